from __future__ import annotations

import datetime as dt
import math

import pyarrow as pa
import pytest

from omnigraph_lake.validation import lookups, pinned_access
from omnigraph_lake.validation.constraints import WriteMode, table_rules
from omnigraph_lake.validation.write_effects import ProposedWrite, rules_concerning
from tests.validation.graphs import PEOPLE, checked, findings, person

pytestmark = pytest.mark.unit

ANN = {"node:Person": [person("ann", nick="a"), person("bob", nick="b")]}


@pytest.fixture(params=[0, 2000], ids=["scans", "filters"], autouse=True)
def _both_ways_of_looking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "PROBE_VALUES_MAX", request.param)
    monkeypatch.setattr(pinned_access, "ROWS_PER_PROBE", 0)


@pytest.mark.parametrize("mode", WriteMode)
def test_an_id_twice_in_one_input_is_refused_from_the_second_row_on(mode: WriteMode) -> None:
    rows = [person("x"), person("y"), person("x"), person("x", nick="n")]

    write = checked({"Person": rows}, mode=mode)

    assert findings(write) == [("duplicate_id", "id", 2), ("duplicate_id", "id", 3)]
    assert write.bad_rows["node:Person"].to_pylist() == [2, 3]


def test_append_refuses_an_id_that_exists() -> None:
    write = checked({"Person": [person("new"), person("ann")]}, rows=ANN)

    assert findings(write) == [("id_exists", "id", 1)]
    assert write.report.kept[0].id == "ann"


@pytest.mark.parametrize("mode", [WriteMode.MERGE, WriteMode.REPLACE, WriteMode.OVERWRITE])
def test_other_modes_replace_an_id_that_exists(mode: WriteMode) -> None:
    assert checked({"Person": [person("ann", nick="a")]}, rows=ANN, mode=mode).report.ok


def test_append_may_use_an_id_that_the_same_write_deletes() -> None:
    write = checked({"Person": [person("ann")]}, rows=ANN, deleted={"Person": ["ann"]})

    assert write.report.ok
    assert write.deletions["node:Person"].to_pylist() == ["ann"]


def test_a_merge_needs_no_delete_for_the_rows_it_replaces() -> None:
    write = checked(
        {"Person": [person("ann")]},
        rows=ANN,
        mode=WriteMode.MERGE,
        deleted={"Person": ["ann", "bob"]},
    )

    assert write.deletions["node:Person"].to_pylist() == ["bob"]


def test_a_unique_value_is_refused_if_a_published_row_holds_it() -> None:
    write = checked({"Person": [person("x", nick="a")]}, rows=ANN)

    assert findings(write) == [("not_unique", "nick", 0)]
    assert write.report.kept[0].message == (
        "found 'a', which another row has too, expected a unique value"
    )


def test_a_unique_value_is_refused_from_the_second_new_row_on() -> None:
    rows = [person("x", nick="n"), person("y", nick="n"), person("z", nick="n")]

    assert findings(checked({"Person": rows})) == [
        ("not_unique", "nick", 1),
        ("not_unique", "nick", 2),
    ]


def test_null_is_exempt_from_uniqueness() -> None:
    rows = [person("x"), person("y"), person("z", first="f"), person("w", first="f")]

    assert checked({"Person": rows}, rows=ANN).report.ok


def test_a_unique_tuple_compares_as_a_whole() -> None:
    published = {"node:Person": [person("ann", first="f", last="l")]}
    rows = [person("x", first="f", last="m"), person("y", first="f", last="l")]

    assert findings(checked({"Person": rows}, rows=published)) == [("not_unique", "first,last", 1)]


def test_a_value_freed_by_a_replaced_row_may_be_used_again() -> None:
    rows = [person("ann", nick="other"), person("x", nick="a")]

    assert checked({"Person": rows}, rows=ANN, mode=WriteMode.MERGE).report.ok


def test_a_value_freed_by_a_deleted_row_may_be_used_again() -> None:
    write = checked({"Person": [person("x", nick="a")]}, rows=ANN, deleted={"Person": ["ann"]})

    assert write.report.ok


def test_two_rows_may_swap_their_values() -> None:
    rows = [person("ann", nick="b"), person("bob", nick="a")]

    assert checked({"Person": rows}, rows=ANN, mode=WriteMode.MERGE).report.ok


def test_overwritten_rows_hold_no_values() -> None:
    rows = [person("x", nick="a")]

    assert checked({"Person": rows}, rows=ANN, mode=WriteMode.OVERWRITE).report.ok


def test_both_zeros_are_one_value_and_so_is_nan() -> None:
    published = {"node:Pet": [{"id": "p", "weight": 0.0}, {"id": "q", "weight": math.nan}]}
    rows = [{"weight": -0.0}, {"weight": math.nan}, {"weight": math.inf}]

    write = checked({"Pet": rows}, rows=published)

    assert findings(write) == [("not_unique", "weight", 0), ("not_unique", "weight", 1)]


def test_unique_points_in_time_compare_as_stored() -> None:
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    published = {"node:Pet": [{"id": "p", "born": moment}]}

    write = checked({"Pet": [{"born": "2024-01-01T02:00+02:00"}]}, rows=published)

    assert findings(write) == [("not_unique", "born", 0)]


def test_rows_without_an_id_are_reported_once_and_left_out() -> None:
    write = checked({"Person": [{"email": None, "nick": "a"}]}, rows=ANN)

    assert findings(write) == [("missing_required", "email", 0)]


def test_the_answer_rests_on_the_written_tables() -> None:
    assert checked({"Person": [person("x")]}, rows=ANN).read_set == {"node:Person"}
    assert checked({"Person": []}).read_set == {"node:Person"}
    assert checked({}).read_set == set()


def test_few_ids_are_looked_up_by_a_filter_and_many_by_a_scan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from omnigraph_lake.load.write import validate
    from tests.validation.graphs import PEOPLE, counting_ids, published

    monkeypatch.setattr(lookups, "PROBE_VALUES_MAX", 2)
    monkeypatch.setattr(pinned_access, "ROWS_PER_PROBE", 0)
    seen = []
    for count in (2, 3):
        tables = published(PEOPLE, ANN)
        validate(
            {"Person": pa.table({"email": [f"p{number}" for number in range(count)]})},
            mode=WriteMode.APPEND,
            catalog=PEOPLE,
            pinned=tables,
            new_id=counting_ids(),
        )
        seen.append(tables.filters[0])

    assert seen == [("node:Person", "`id` IN ('p0', 'p1')"), ("node:Person", None)]


def test_rules_of_tables_that_a_write_cannot_concern_are_not_looked_at() -> None:
    rules = table_rules(PEOPLE)
    ids = pa.array(["x"])

    def concerned(written: list[str], deleted: list[str], mode: WriteMode) -> set[str]:
        write = ProposedWrite(
            tables={key: pa.table({"id": ids}) for key in written},
            mode=mode,
            deleted=dict.fromkeys(deleted, ids),
        )
        return set(rules_concerning(write, rules))

    person_key, pet, owns, knows = "node:Person", "node:Pet", "edge:Owns", "edge:Knows"
    assert concerned([person_key], [], WriteMode.APPEND) == {person_key}
    assert concerned([owns], [], WriteMode.MERGE) == {owns, person_key, pet}
    assert concerned([], [pet], WriteMode.APPEND) == {pet, owns, person_key}
    assert concerned([person_key], [], WriteMode.OVERWRITE) == {person_key, pet, owns, knows}
