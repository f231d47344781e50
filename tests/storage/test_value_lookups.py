"""Rows by the values of an indexed column: the same rows that a filter of Lance finds."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

import omnigraph_lake as og
from omnigraph_lake.graph import Graph
from omnigraph_lake.names import LANCE_COLUMNS
from omnigraph_lake.storage.lance import row_lineage, value_lookups
from omnigraph_lake.storage.lance.dataset_cache import look_up
from omnigraph_lake.storage.lance.value_lookups import OneOf, look_up_values
from omnigraph_lake.storage.objects.location import parse_root
from tests.drawing import seeds
from tests.stores import folder_of

pytestmark = pytest.mark.random

NODE, EDGE = "node:P", "edge:Knows"
SCHEMA = """
node P { k: String @key  n: I64  note: String? @index }
edge Knows: P -> P @cluster { n: I64 }
"""
COLUMNS = {NODE: ("id", "note"), EDGE: ("id", "src", "dst")}
KEYS = [f"p{number}" for number in range(60)]


class History:
    """A graph under random writes."""

    def __init__(self, graph: Graph, chance: random.Random) -> None:
        self.graph = graph
        self.chance = chance
        graph.write({"P": [self._node(key) for key in KEYS]})
        graph.write({"Knows": [self._edge() for _ in range(150)]})
        graph.maintenance.optimize()

    def _node(self, key: str) -> dict[str, object]:
        note = self.chance.choice([None, "a", "it's", "ü", f"note of {key}"])
        return {"k": key, "n": self.chance.randint(0, 9), "note": note}

    def _edge(self) -> dict[str, object]:
        src, dst = (self.chance.choice(KEYS) for _ in range(2))
        return {"src": src, "dst": dst, "n": self.chance.randint(0, 9)}

    def write(self) -> None:
        count = self.chance.choice([1, 7, 40])
        match self.chance.choice(["replace", "replace", "append", "delete", "optimize"]):
            case "replace":
                chosen = self.chance.sample(KEYS, min(count, len(KEYS)))
                self.graph.write({"P": [self._node(key) for key in chosen]}, mode="replace")
                edges = self.chance.sample(self.rows(EDGE), count)
                self.graph.write(
                    {"Knows": [{**row, "n": self.chance.randint(0, 9)} for row in edges]},
                    mode="replace",
                )
            case "append":
                self.graph.write({"Knows": [self._edge() for _ in range(count)]})
            case "delete":
                edges = self.chance.sample(self.rows(EDGE), count)
                self.graph.delete({"Knows": [str(row["id"]) for row in edges]})
            case _:
                self.graph.maintenance.optimize()

    def rows(self, table: str) -> list[dict[str, object]]:
        wanted = ["id", "src", "dst"] if table == EDGE else ["id"]
        stored = self.graph.scan(table.partition(":")[2], columns=wanted).read_all()
        return list(stored.to_pylist())

    def compare(self, graph: Graph | None = None) -> int:
        """Compare both ways for every indexed column; how often Lance was not asked for all."""
        return sum(
            compare(graph or self.graph, table, column, self._values(table, column))
            for table, columns in COLUMNS.items()
            for column in columns
        )

    def _values(self, table: str, column: str) -> pa.Array:
        stored = self.graph.scan(table.partition(":")[2], columns=[column]).read_all()
        known = sorted({value for value in stored[column].to_pylist() if value is not None})
        chosen = self.chance.sample(known, min(len(known), self.chance.choice([1, 3, 30])))
        return pa.array([*chosen, "", "p", "zzz"], pa.string())


def compare(graph: Graph, table: str, column: str, values: pa.Array) -> bool:
    """Look up some values in both ways; whether Lance was not asked for all of it."""
    root, entry = parse_root(graph.root), graph.snapshot().tables[table]
    wanted = OneOf(column=column, values=values)
    read = ("n", *COLUMNS[table], *LANCE_COLUMNS[:2], LANCE_COLUMNS[3])
    expected = look_up(root, entry, read, wanted.text).read_all()

    rows = look_up_values(root, entry, read, wanted).read_all()

    assert rows.schema == expected.schema
    assert bag(rows) == bag(expected)
    return value_lookups._search(root, entry, wanted) is not None


def bag(rows: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


@pytest.fixture
def from_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few rows are not left to Lance."""
    monkeypatch.setattr(value_lookups, "ROWS_MIN", 1)
    monkeypatch.setattr(row_lineage, "INLINE_BYTES_MAX", 0)


@pytest.mark.usefixtures("from_the_first_row")
@pytest.mark.parametrize("seed", seeds("value lookups", 1))
def test_the_same_rows_are_found_after_random_writes(
    graph_root: str, tmp_path: Path, seed: str
) -> None:
    history = History(og.init(graph_root, schema=SCHEMA), random.Random(seed))
    searches = 0
    for _ in range(6):
        history.write()
        searches += history.compare()
    assert searches

    side = history.graph.branches.create("side")
    side.write({"Knows": [{"src": "p1", "dst": "p2", "n": 1}]})
    side.delete({"Knows": [str(history.rows(EDGE)[0]["id"])]})
    assert history.compare(side)
    shutil.copytree(folder_of(graph_root), tmp_path / "moved")
    assert history.compare(og.open(str(tmp_path / "moved"), branch="side"))


@pytest.mark.usefixtures("from_the_first_row")
def test_values_that_fill_pages_nulls_other_alphabets_and_many_threads(graph_root: str) -> None:
    """A page has 4,096 entries: one is all nulls, another one value."""
    schema = SCHEMA.replace("@cluster { n: I64 }", "@cluster { n: I64  note: String? @index }")
    graph = og.init(graph_root, schema=schema)
    graph.write({"P": [{"k": key, "n": 0} for key in KEYS]})
    notes = [*[None] * 5_000, *["same"] * 9_000, *(f"{chr(97 + n)}\u00fc" for n in range(900))]
    chance = random.Random(5)
    chance.shuffle(notes)
    ends = [[chance.choice(KEYS) for _ in notes] for _ in range(2)]
    columns = {"src": ends[0], "dst": ends[1], "n": list(range(len(notes))), "note": notes}
    graph.load({"Knows": pa.table(columns)})
    graph.maintenance.optimize()

    for values in (["same"], ["a\u00fc", "\u00fc", ""], ["tz", "\u03b1\u00fc"], ["\U0001f600"]):
        assert compare(graph, EDGE, "note", pa.array(values))
    for key in KEYS[:3]:
        assert compare(graph, EDGE, "src", pa.array([key, "p", "q"]))

    def count(key: str) -> int:
        value_lookups._PAGES.clear()
        wanted = OneOf(column="src", values=pa.array([key]))
        search = value_lookups._search(root, entry, wanted)
        return -1 if search is None else len(search.positions)

    root, entry = parse_root(graph.root), graph.snapshot().tables[EDGE]
    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(count, KEYS * 2))
    assert counts == [ends[0].count(key) for key in KEYS * 2]


Pages = list[list[str | None]]


def write_tree(folder: Path, pages: Pages, bounds: Pages, numbers: list[int]) -> None:
    """The files of a B-tree with pages of two entries, whose addresses count from 0."""
    values = [value for page in pages for value in page]
    data = pa.table({"values": pa.array(values, pa.string()), "ids": range(len(values))})
    lookup = pa.table(
        {
            "min": pa.array([lowest for lowest, _ in bounds], pa.string()),
            "max": pa.array([highest for _, highest in bounds], pa.string()),
            "page_idx": pa.array(numbers, pa.uint32()),
        }
    )
    data = data.cast(pa.schema({"values": pa.string(), "ids": pa.uint64()}))
    for name, rows in {"page_data": data, "page_lookup": lookup}.items():
        writer = LanceFileWriter(str(folder / f"{name}.lance"), rows.schema)
        writer.write_batch(rows)
        writer.add_schema_metadata("batch_size", "2")
        writer.close()


SOUND: Pages = [[None, "a"], ["b", "b"], ["b", "c"], ["d"]]
SOUND_BOUNDS: Pages = [[None, "a"], ["b", "b"], ["b", "c"], ["d", "d"]]


def test_entries_of_a_value_are_found_on_all_pages(tmp_path: Path) -> None:
    write_tree(tmp_path, SOUND, SOUND_BOUNDS, [0, 1, 2, 3])
    tree = value_lookups._tree_at(parse_root(str(tmp_path)), str(tmp_path))

    found = {value: np.concatenate(tree.find([value])).tolist() for value in "abcd"}

    assert found == {"a": [1], "b": [2, 3, 4], "c": [5], "d": [6]}
    assert sum(map(len, tree.find(["", "bb", "z"]))) == 0


@pytest.mark.parametrize(
    ("pages", "bounds", "numbers"),
    [
        pytest.param([["a", None]], [["a", None]], [0], id="nulls last"),
        pytest.param([["c", "d"], ["a"]], [["c", "d"], ["a", "a"]], [0, 1], id="no order"),
        pytest.param(SOUND, SOUND_BOUNDS, [1, 0, 2, 3], id="other numbers"),
        pytest.param(SOUND, SOUND_BOUNDS[:3], [0, 1, 2], id="a page without bounds"),
        pytest.param([["a", "b"]], [["a", "c"]], [0], id="other bounds"),
    ],
)
def test_a_btree_that_is_laid_out_otherwise_is_not_searched(
    tmp_path: Path, pages: Pages, bounds: Pages, numbers: list[int]
) -> None:
    write_tree(tmp_path, pages, bounds, numbers)

    with pytest.raises(ValueError, match=str(tmp_path)):
        value_lookups._tree_at(parse_root(str(tmp_path)), str(tmp_path)).find(["a"])
