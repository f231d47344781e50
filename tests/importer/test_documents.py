"""Documents of JSON whose records are not simply a list: maps, arrays, wrappers."""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake import ImportOptions, ImportReport, InvalidInputError
from omnigraph_lake.importer import profile
from omnigraph_lake.load.formats import document_files

pytestmark = pytest.mark.unit

COUNTRIES = {
    f"C{n}": {"rank": n, "name": f"Land {n}", **({"capital": f"Town {n}"} if n % 3 else {})}
    for n in range(25)
}
CITIES = [[f"Town {n}", "AF" if n % 2 else "AL", n + 0.25, -7.5] for n in range(30)]


def imported(folder: Path, name: str, document: Any, **options: Any) -> ImportReport:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document))
    report = og.import_data(str(folder / "g"), str(path), options=ImportOptions(**options))
    assert report.load is not None
    load = report.load
    counts = (load.written, load.already_there, load.quarantined)
    assert load.read == sum(sum(count.values()) for count in counts)
    return report


def written(report: ImportReport) -> dict[str, int]:
    assert report.load is not None
    return dict(report.load.written)


@pytest.mark.parametrize("piece", [64, 1 << 20])
@pytest.mark.parametrize("inside", [False, True])
def test_an_object_of_alike_objects_is_a_table_with_their_names(
    tmp_path: Path, inside: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_files, "_PIECE", piece)
    document = {"data": COUNTRIES, "updated": 17} if inside else COUNTRIES

    report = imported(tmp_path, "countries", document)

    (type_name,) = written(report)
    assert written(report) == {type_name: 25}
    assert type_name == ("Data" if inside else "Country")
    stored = og.open(str(tmp_path / "g")).scan(type_name).read_all().to_pylist()
    assert sorted(row["key"] for row in stored) == sorted(COUNTRIES)
    assert ("not imported, beside the records: updated" in report.schema) is inside


def test_a_map_is_one_again_when_few_of_its_members_are_imported(tmp_path: Path) -> None:
    imported(tmp_path, "countries", COUNTRIES)

    again = imported(tmp_path, "countries", {"C1": {"rank": 1, "name": "New"}})

    assert again.load is not None
    assert (again.load.read, again.load.updated["Country"]) == (1, 1)


def test_a_few_objects_of_one_large_shape_are_a_map(tmp_path: Path) -> None:
    shape = {"name": "x", "area": 1.5, "lat": 2, "lon": 3, "box": {"east": 1}}

    report = imported(tmp_path, "continents", dict.fromkeys(("AF", "AN", "AS"), shape))

    assert written(report) == {"Continent": 3}


def test_the_column_of_the_names_has_a_name_of_its_own(tmp_path: Path) -> None:
    document = {name: {**country, "key": 1} for name, country in COUNTRIES.items()}

    report = imported(tmp_path, "countries", document)

    assert written(report) == {"Country": 25}
    assert 'key_column = "key_2"' in report.mapping


@pytest.mark.parametrize("code", [str, int], ids=str)
def test_a_member_that_has_the_name_is_its_column(tmp_path: Path, code: type) -> None:
    document = {str(n): {"code": code(n), **COUNTRIES[f"C{n}"]} for n in range(20)}

    report = imported(tmp_path, "countries", document)

    assert written(report) == {"Country": 20}
    assert 'key_column = "code"' in report.mapping
    assert "    key:" not in report.schema


@pytest.mark.parametrize("values", [["Land"], [["A", "B"]], [1, 2.5]], ids=str)
def test_a_map_of_scalars_or_lists_has_keys_and_values(tmp_path: Path, values: list[Any]) -> None:
    document = {f"C{n}": values[n % len(values)] for n in range(20)}

    report = imported(tmp_path, "codes", document)

    assert written(report) == {"Code": 20}
    assert "value:" in report.schema


MEMBERS = {
    f"C{n}": [
        {"member": f"m{n}{i}", "rank": i, **({"title": "x"} if i else {})} for i in range(n % 3)
    ]
    for n in range(30)
}
"""Committees and who sits in them; ten have nobody."""


@pytest.mark.parametrize("piece", [64, 1 << 20])
@pytest.mark.parametrize("inside", [False, True])
def test_an_object_of_lists_of_alike_records_is_one_table(
    tmp_path: Path, inside: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_files, "_PIECE", piece)
    document = {"data": MEMBERS, "updated": 17} if inside else MEMBERS

    report = imported(tmp_path, "seats", document)

    (type_name,) = written(report)
    stored = og.open(str(tmp_path / "g")).scan(type_name).read_all().to_pylist()
    assert type_name == ("Data" if inside else "Seat")
    assert sorted((row["key"], row["member"]) for row in stored) == sorted(
        (name, item["member"]) for name, items in MEMBERS.items() for item in items
    )


def test_an_empty_list_is_a_value_among_lists_of_values(tmp_path: Path) -> None:
    document = {"C0": [], **{f"D{n}": ["A"] for n in range(20)}, "E0": []}

    assert written(imported(tmp_path, "codes", document)) == {"Code": 22}


def test_items_of_the_lists_of_an_object_that_are_no_records_are_rejected(tmp_path: Path) -> None:
    document = {"C": [[1, 2], *MEMBERS["C2"]], **MEMBERS, "C2": [*MEMBERS["C2"], 7]}

    report = imported(tmp_path, "seats", document, max_rejected="50%")

    assert written(report) == {"Seat": 32}
    assert report.load.quarantined == {"malformed": 2}  # type: ignore[union-attr]


def test_a_member_that_all_records_of_a_list_repeat_is_its_name(tmp_path: Path) -> None:
    document = {
        name: [{"committee": name, **item} for item in items] for name, items in MEMBERS.items()
    }

    assert 'key_column = "committee"' in imported(tmp_path, "seats", document).mapping


def test_lists_whose_records_have_names_of_their_own_are_tables(tmp_path: Path) -> None:
    document = {f"t{n}": [{"id": 1, "name": "x", f"a{n}": 1, f"b{n}": 2}] for n in range(20)}

    report = imported(tmp_path, "dump", document)

    assert len(written(report)) == 20


def test_nested_objects_with_names_of_their_own_are_kept_as_json(tmp_path: Path) -> None:
    support = [{f"api.{n}.{i}": {"since": i} for i in range(5)} for n in range(20)]

    imported(tmp_path, "features", [{"id": n, "in": {"all": own}} for n, own in enumerate(support)])

    stored = og.open(str(tmp_path / "g")).scan("Feature").read_all().to_pylist()
    assert [json.loads(row["in_all"]) for row in sorted(stored, key=itemgetter("feature_id"))] == (
        support
    )


def test_nested_objects_that_share_many_names_have_columns(tmp_path: Path) -> None:
    records = [{"id": n, "at": {f"day_{i}": i for i in range(100)}} for n in range(20)]

    report = imported(tmp_path, "things", records)

    assert "at_day_99: I64" in report.schema


def test_an_object_of_few_or_different_members_is_one_record(tmp_path: Path) -> None:
    few = {f"C{n}": {"iso": "x"} for n in range(19)}
    different = {f"a{n}": n if n % 2 else "x" for n in range(40)}

    assert written(imported(tmp_path / "..", "few", few, sample=None)) == {"Few": 1}
    (tmp_path / "b").mkdir()
    assert written(imported(tmp_path / "b", "setting", different)) == {"Setting": 1}


def test_arrays_in_an_array_are_records(tmp_path: Path) -> None:
    report = imported(tmp_path, "cities", CITIES)

    assert written(report) == {"City": 30}
    assert "column_3: F64" in report.schema
    again = imported(tmp_path, "cities", CITIES[:1])
    assert not any(again.load.inserted.values())  # type: ignore[union-attr]


def test_the_first_array_is_the_header_if_it_is_unlike_the_others(tmp_path: Path) -> None:
    report = imported(tmp_path, "cities", [["name", "country", "lat", "lon"], *CITIES])

    assert written(report) == {"City": 30}
    assert "lat: F64" in report.schema


def test_items_that_are_no_records_are_counted_as_rejected(tmp_path: Path) -> None:
    mixed = [{"id": 1}, 5, {"id": 2}, "x", [3], None]

    report = imported(tmp_path, "things", mixed, max_rejected="100%")

    assert written(report) == {"Thing": 2}
    assert report.load.quarantined == {"malformed": 4}  # type: ignore[union-attr]


def test_an_array_before_objects_is_rejected_and_no_header(tmp_path: Path) -> None:
    mixed = [[5, 6], *({"id": n} for n in range(3))]

    report = imported(tmp_path, "things", mixed, max_rejected="50%")

    assert report.load is not None
    assert report.load.read == 4
    assert report.load.quarantined == {"malformed": 1}


def test_arrays_with_other_numbers_of_cells_are_rejected(tmp_path: Path) -> None:
    report = imported(tmp_path, "cities", [*CITIES, ["x"], 5], max_rejected="50%")

    assert written(report) == {"City": 30}
    assert sum(report.load.quarantined.values()) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("document", [[1, 2, 3], 5, [[], []], [{}]], ids=str)
def test_a_document_without_records_is_an_error(tmp_path: Path, document: Any) -> None:
    with pytest.raises(InvalidInputError, match="has no record that can be imported"):
        imported(tmp_path, "things", document)


def products(count: int) -> list[dict[str, Any]]:
    return [{"sku": f"p{n}", "price": n * 1.5} for n in range(count)]


@pytest.mark.parametrize(("name", "count"), [("products", 2), ("export", 60)])
def test_a_wrapper_around_a_list_is_no_entity(tmp_path: Path, name: str, count: int) -> None:
    document = {"exported_at": "2024-01-01", "empty": [], "products": products(count)}

    report = imported(tmp_path, name, document)

    assert written(report) == {"Product": count}
    assert "products: not imported, beside the records: exported_at" in report.schema


def test_a_record_with_a_list_keeps_both(tmp_path: Path) -> None:
    document = {"id": 7, "customer": "Ann", "lines": products(30)}

    report = imported(tmp_path, "invoice", document)

    assert written(report) == {"Invoice": 1, "Line": 30, "HasLine": 30}


def test_beside_a_table_a_small_map_is_one_too(tmp_path: Path) -> None:
    agents = {f"a{n}": {"browser": f"B{n}", "type": "desktop"} for n in range(4)}
    features = {f"f{n}": {"title": f"F{n}", "spec": "x"} for n in range(20)}
    document = {"agents": agents, "statuses": {"rec": "R", "cr": "C"}, "data": features}

    report = imported(tmp_path, "caniuse", document)

    assert written(report)["Agent"] == 4
    assert written(report)["Data"] == 20
    assert "beside the records: statuses" in report.schema


def test_members_of_a_list_of_arrays_are_a_table(tmp_path: Path) -> None:
    report = imported(tmp_path, "socrata", {"meta": {"view": "x"}, "data": CITIES})

    assert written(report) == {"Data": 30}


def test_too_many_columns_stop_at_once_with_the_likely_cause(tmp_path: Path) -> None:
    different = {f"a{n}": n if n % 2 else "x" for n in range(1001)}

    with pytest.raises(InvalidInputError, match=r"1,001 columns.* used as a map") as refused:
        imported(tmp_path, "settings", different)

    assert "--map" in str(refused.value)


def test_nested_members_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "COLUMNS_MAX", 10)
    monkeypatch.setattr(document_files, "_BATCH", 2)
    records = [{"a": {f"m{n}": row for n in range(6)}} for row in range(5)]

    assert written(imported(tmp_path, "things", records)) == {"Thing": 5}


def test_members_whose_names_have_dots_keep_their_values(tmp_path: Path) -> None:
    records = [{"id": n, "usage": {"5.5": n, "6": 2}, "of": {"a.b": {"c.d": n}}} for n in range(3)]

    report = imported(tmp_path, "browsers", records)

    (row, *_) = og.open(str(tmp_path / "g")).scan("Browser").read_all().to_pylist()
    assert written(report) == {"Browser": 3}
    assert {row["usage_5_5"], row["of_a_b_c_d"]} == {row["browser_id"]}
