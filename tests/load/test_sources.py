from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.load.formats.records import FileFormat
from omnigraph_lake.load.input_files import Named, find_sources
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

CATALOG = compiled(
    """
    node Person { name: String? }
    node Both { }
    edge Knows: Person -> Person
    edge Both: Person -> Person
    """
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"abc")


def paths(*named: Named, type_name: str | None = None) -> list[str]:
    return [each.path for each in find_sources(named, catalog=CATALOG, type_name=type_name)]


def types(*named: Named) -> list[str | None]:
    return [each.type_name for each in find_sources(named, catalog=CATALOG)]


@pytest.mark.parametrize(
    ("name", "file_format", "gzipped"),
    [
        ("a.jsonl", FileFormat.JSONL, False),
        ("a.ndjson", FileFormat.JSONL, False),
        ("a.json", FileFormat.JSONL, False),
        ("A.JSONL.GZ", FileFormat.JSONL, True),
        ("Person.csv", FileFormat.CSV, False),
        ("Person.csv.gz", FileFormat.CSV, True),
        ("Person.parquet", FileFormat.PARQUET, False),
    ],
)
def test_the_ending_tells_the_format(
    folder: Path, name: str, file_format: FileFormat, gzipped: bool
) -> None:
    put(name)

    (found,) = find_sources(name, catalog=CATALOG)

    assert (found.path, found.format, found.gzipped, found.size) == (name, file_format, gzipped, 3)


@pytest.mark.parametrize("name", ["a.tsv", "a", "a.gz", "Person.parquet.gz", "a.jsonl.bz2"])
def test_an_unknown_ending_is_refused_with_those_that_are_known(folder: Path, name: str) -> None:
    put(name)

    with pytest.raises(
        InvalidInputError, match=r"expected \.jsonl, \.ndjson, \.json, \.csv"
    ) as caught:
        find_sources(name, catalog=CATALOG)
    assert name in str(caught.value)


def test_the_order_is_that_of_the_names_and_then_of_the_sorted_paths(folder: Path) -> None:
    put("z/2.jsonl", "z/10.jsonl", "z/a/1.jsonl", "b.jsonl", "a.jsonl")

    found = paths("z", "*.jsonl", Path("z/2.jsonl"))

    assert found == ["z/10.jsonl", "z/2.jsonl", "z/a/1.jsonl", "a.jsonl", "b.jsonl"]


def test_a_pattern_reaches_into_folders(folder: Path) -> None:
    put("x/1.jsonl", "x/y/2.jsonl", "x/y/3.jsonl")

    assert paths("x/**/*.jsonl") == ["x/1.jsonl", "x/y/2.jsonl", "x/y/3.jsonl"]
    assert paths("x/y/[23].jsonl") == ["x/y/2.jsonl", "x/y/3.jsonl"]
    assert paths("x*") == ["x/1.jsonl", "x/y/2.jsonl", "x/y/3.jsonl"]


def test_a_file_that_is_called_like_a_pattern_is_that_file(folder: Path) -> None:
    put("a[1].jsonl", "a1.jsonl")

    assert paths("a[1].jsonl") == ["a[1].jsonl"]


def test_notes_of_other_programs_in_a_folder_are_no_data(folder: Path) -> None:
    put("d/part.jsonl", "d/_SUCCESS", "d/.part.jsonl.crc", "d/_temporary/x.jsonl")

    assert paths("d") == ["d/part.jsonl"]


def test_a_stranger_in_a_folder_is_not_passed_over(folder: Path) -> None:
    put("d/part.jsonl", "d/more.tsv")

    with pytest.raises(InvalidInputError, match=r"d/more\.tsv"):
        paths("d")


def test_an_address_of_a_file_is_its_path(folder: Path) -> None:
    put("a b.jsonl")

    assert paths(f"file://{folder}/a%20b.jsonl") == [f"{folder}/a b.jsonl"]


def test_other_stores_are_refused_by_name(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"hdfs://host/a\.jsonl is on a store of kind hdfs"):
        paths("hdfs://host/a.jsonl")


@pytest.mark.parametrize("name", ["none.jsonl", "none*.jsonl", "empty", "gone/"])
def test_a_name_that_matches_nothing_is_said(folder: Path, name: str) -> None:
    Path("empty").mkdir()

    with pytest.raises(NotFoundError) as caught:
        paths(name)
    assert name in str(caught.value)


def test_no_name_at_all_is_refused() -> None:
    with pytest.raises(NotFoundError, match="no input was named"):
        paths()


def test_a_link_to_nowhere_is_refused(folder: Path) -> None:
    Path("d").mkdir()
    Path("d/a.jsonl").symlink_to("nowhere")

    with pytest.raises(NotFoundError, match=r"d/a\.jsonl cannot be read"):
        paths("d")


def test_a_file_without_types_inside_is_called_after_its_type_or_its_folder_is(
    folder: Path,
) -> None:
    put("Person.csv", "nodes/Person/part-0.parquet", "edges/Knows/part-0.parquet", "Knows.2024.csv")

    found = types("Person.csv", "Knows.2024.csv", "edges", "nodes")

    assert found == ["Person", "Knows", "Knows", "Person"]


def test_the_name_of_a_file_counts_before_that_of_its_folder(folder: Path) -> None:
    put("Person/Knows.csv")

    assert types("Person/Knows.csv") == ["Knows"]


def test_a_name_of_two_types_is_decided_by_the_folder_above(folder: Path) -> None:
    put("nodes/Both/0.parquet", "edges/Both/0.parquet", "edges/Both.csv", "Both.csv")

    assert types("nodes/Both", "edges/Both", "edges/Both.csv") == [
        "node:Both",
        "edge:Both",
        "edge:Both",
    ]
    with pytest.raises(InvalidInputError, match="do not name their type"):
        types("Both.csv")


def test_a_file_called_after_no_type_needs_one(folder: Path) -> None:
    put("people.csv")

    with pytest.raises(InvalidInputError, match="one of Person, Both, Knows, Both") as caught:
        paths("people.csv")
    assert "--type" in str(caught.value)


def test_a_given_type_and_mapping_are_for_every_file(folder: Path) -> None:
    put("people.csv", "Knows.csv")

    found = find_sources(
        ["people.csv", "Knows.csv"],
        catalog=CATALOG,
        type_name="Person",
        columns={"name": "full_name"},
    )

    assert [each.type_name for each in found] == ["Person", "Person"]
    assert found[0].columns == {"name": "full_name"}


@pytest.mark.parametrize(
    ("type_name", "columns"), [("Person", None), (None, {"name": "full_name"})]
)
def test_records_that_name_their_type_take_neither_a_type_nor_a_mapping(
    folder: Path, type_name: str | None, columns: dict[str, str] | None
) -> None:
    put("a.jsonl")

    with pytest.raises(InvalidInputError, match="name their types and properties themselves"):
        find_sources("a.jsonl", catalog=CATALOG, type_name=type_name, columns=columns)


@pytest.mark.parametrize(
    ("type_name", "said"),
    [("Persn", "did you mean `Person`"), ("Both", "a node type and an edge type")],
)
def test_a_type_that_does_not_stand_for_one_is_refused(
    folder: Path, type_name: str, said: str
) -> None:
    put("a.csv")

    with pytest.raises(InvalidInputError, match=said):
        paths("a.csv", type_name=type_name)
    assert paths("a.csv", type_name="node:Both") == ["a.csv"]
