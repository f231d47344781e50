"""Files in a bucket are found and loaded as files on a disk are, by ranges of bytes."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake import Graph, LoadOptions
from omnigraph_lake.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from omnigraph_lake.load.formats.csv_files import read_csv
from omnigraph_lake.load.formats.parse import raw_records
from omnigraph_lake.load.formats.splits import (
    LineBlock,
    csv_ranges,
    cut_records,
    plan_splits,
    read_lines,
    scan_range,
)
from omnigraph_lake.load.input_files import find_sources
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.request_counts import RequestCounts, counted_requests
from omnigraph_lake.storage.objects.store import StoredObjects
from tests.s3.server import READER, S3Server
from tests.schema.compiling import compiled
from tests.stores import BUCKET

pytestmark = pytest.mark.s3

SCHEMA = "node Person { name: String @key\n age: I32? }"
CATALOG = compiled(SCHEMA)
NAMES = (
    "a.jsonl",
    "b.jsonl.gz",
    "Person.csv",
    ".hidden/c.jsonl",
    "_temporary/d.jsonl",
    "_e.jsonl",
    "2026/01/f.jsonl",
    "2026/02/g.jsonl",
    "2026/02/_part/h.jsonl",
    "Person/part-0.parquet",
    "odd %41 #?/[i] ü.jsonl",
)
PATTERNS = (
    "",
    "a.jsonl",
    "2026",
    "2026/",
    "*.jsonl*",
    "2026/*/?.jsonl",
    "2026/*",
    "20[0-9][0-9]/0[!2]",
    "**/*.jsonl",
    "2026/**",
    "**/part-*.parquet",
    "_temporary",
    ".hidden/*.jsonl",
    "odd %41 #?/[i] ü.jsonl",
    "odd %41 #?",
)


@pytest.fixture
def bucket_folder(served: S3Server, tmp_path: Path) -> Path:
    """A folder of the bucket, as the server keeps it."""
    folder = Path(served.data, BUCKET, str(tmp_path).lstrip("/"), "in put")
    folder.mkdir(parents=True)
    return folder


def address(folder: Path, served: S3Server) -> str:
    return f"s3://{folder.relative_to(served.data)}"


def options(served: S3Server) -> LoadOptions:
    return LoadOptions(storage_options=served.options(READER))


def local_graph(tmp_path: Path) -> Graph:
    return og.init(str(tmp_path / "graph"), schema=SCHEMA)


def rows(graph: Graph) -> Sequence[Mapping[str, object]]:
    table = graph.scan("Person", columns=["name", "age"]).read_all()
    listed: list[Mapping[str, object]] = table.sort_by("name").to_pylist()
    return listed


def requests_since(before: RequestCounts) -> RequestCounts:
    return counted_requests() - before


def put_all_formats(folder: Path) -> None:
    def lines(*names: str) -> bytes:
        records = [{"type": "Person", "data": {"name": name, "age": 7}} for name in names]
        return "\n".join(map(json.dumps, records)).encode()

    (folder / "a.jsonl").write_bytes(lines("a1", "a2") + b'\n{"type": "Person"}\nno record')
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines("b1", "b2")))
    (folder / "Person.csv").write_text("name,age\nc1,8\nc2,eight\n")
    (folder / "Person").mkdir()
    for part in range(3):
        table = pa.table({"name": [f"d{part}{row}" for row in range(40)], "age": range(40)})
        pq.write_table(table, folder / "Person" / f"{part}.parquet", row_group_size=15)


def test_names_folders_and_patterns_mean_the_same_as_on_a_disk(
    served: S3Server, bucket_folder: Path, tmp_path: Path
) -> None:
    disk = tmp_path / "in put"
    for folder in (disk, bucket_folder):
        for name in NAMES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)

    for pattern in PATTERNS:
        local = find_sources(f"{disk}/{pattern}", catalog=CATALOG)
        stored = find_sources(
            f"{address(bucket_folder, served)}/{pattern}",
            catalog=CATALOG,
            storage_options=served.options(READER),
        )
        there = [
            (os.path.relpath(file.path, disk), file.format, file.size, file.gzipped, file.type_name)
            for file in local
        ]
        here = [
            (
                file.path.removeprefix(f"{address(bucket_folder, served)}/"),
                file.format,
                file.size,
                file.gzipped,
                file.type_name,
            )
            for file in stored
        ]
        assert sorted(here) == sorted(there), pattern


def test_every_format_is_loaded_with_the_account_of_a_local_file(
    served: S3Server, bucket_folder: Path, tmp_path: Path
) -> None:
    put_all_formats(bucket_folder)
    disk = tmp_path / "in put"
    shutil.copytree(bucket_folder, disk)
    stored, local = (og.init(str(tmp_path / name), schema=SCHEMA) for name in ("stored", "local"))

    report = stored.load(
        [f"{address(bucket_folder, served)}/", f"{address(bucket_folder, served)}/a.jsonl"],
        on_error="quarantine",
        options=options(served),
    )
    expected = local.load(str(disk), on_error="quarantine")

    assert rows(stored) == rows(local)
    assert len(rows(stored)) == 125
    assert (report.read, report.written) == (expected.read, expected.written)
    moved = [
        replace(record, file=record.file.replace(address(bucket_folder, served), f"{disk}"))
        for record in report.rejected
    ]
    assert moved == list(expected.rejected)
    assert len(moved) == 3


def test_a_split_requests_its_bytes_once_and_little_more(
    served: S3Server, bucket_folder: Path
) -> None:
    content = b"".join(b"%07d%s\n" % (line, b"x" * 1016) for line in range(12 << 10))
    (bucket_folder / "a.jsonl").write_bytes(content)
    (file,) = find_sources(
        f"{address(bucket_folder, served)}/a.jsonl",
        catalog=CATALOG,
        storage_options=served.options(READER),
    )
    lines: list[bytes] = []
    for split in plan_splits([file], split_bytes=(5 << 20) + 17):
        before = counted_requests()
        for block in read_lines(split):
            assert isinstance(block, LineBlock)
            lines += block.lines
        done = requests_since(before)
        assert done.bytes_received <= split.end - split.start + (512 << 10)
        assert done.get <= 4

    assert b"".join(line + b"\n" for line in lines) == content
    assert raw_records(split, [1]) == [lines[8193]]


def test_a_split_of_a_csv_file_requests_its_bytes_once_and_the_header(
    served: S3Server, bucket_folder: Path
) -> None:
    rows = [f'{row:07},"{"x" * 1014}\n"' for row in range(12 << 10)]
    (bucket_folder / "Person.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    (file,) = find_sources(
        f"{address(bucket_folder, served)}/Person.csv",
        catalog=CATALOG,
        storage_options=served.options(READER),
    )
    whole = plan_splits([file])
    ranges = csv_ranges(whole, (5 << 20) + 17)
    before = counted_requests()
    splits = cut_records(whole, ranges, [scan_range(part) for part in ranges])
    assert requests_since(before).bytes_received <= file.size + 16

    numbers: list[str] = []
    for split in splits:
        before = counted_requests()
        for batch in read_csv(split):
            numbers += batch.cells.column("a").to_pylist()
        done = requests_since(before)
        assert done.bytes_received <= split.end - split.start + (512 << 10)

    assert len(splits) == 3
    assert numbers == [f"{row:07}" for row in range(12 << 10)]


def test_a_file_that_is_replaced_while_it_is_loaded_is_an_error(
    served: S3Server, bucket_folder: Path, writer: Mapping[str, str]
) -> None:
    place = address(bucket_folder, served)
    objects = StoredObjects(parse_root(place, storage_options=writer))
    objects.replace("a.jsonl", b"a\nb\n")
    (split,) = plan_splits(find_sources(place, catalog=CATALOG, storage_options=writer))

    objects.replace("a.jsonl", b"c\nd\n")
    with pytest.raises(InvalidInputError, match=r"a\.jsonl changed while it was loaded"):
        list(read_lines(split))
    objects.delete("a.jsonl")
    with pytest.raises(NotFoundError, match=r"a\.jsonl does not exist;"):
        list(read_lines(split))


def test_an_input_that_cannot_be_read_is_named(
    served: S3Server, bucket_folder: Path, tmp_path: Path
) -> None:
    graph = local_graph(tmp_path)
    (bucket_folder / "a.jsonl").write_bytes(b"{}")
    (bucket_folder / "Person.parquet").write_bytes(b"no parquet")
    (bucket_folder / "b.jsonl.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    place = address(bucket_folder, served)

    for name, error, message in (
        (f"{place}/none*", NotFoundError, "matches no file"),
        (f"{place}/none.jsonl", NotFoundError, "matches no file"),
        ("s3://no-such-bucket/a.jsonl", StorageUnavailableError, "the bucket does not exist"),
        (f"{place}/Person.parquet", InvalidInputError, "cannot be read as Parquet"),
        (f"{place}/b.jsonl.gz", InvalidInputError, "is not a complete gzip file"),
        ("hdfs://host/a.jsonl", InvalidInputError, "a store of kind hdfs"),
    ):
        with pytest.raises(error, match=message):
            graph.load(name, options=options(served))
    wrong = served.options(("reader", "wrong-secret-0815"))
    with pytest.raises(StorageUnavailableError, match="credentials") as raised:
        graph.load(f"{place}/a.jsonl", options=LoadOptions(storage_options=wrong))
    assert "wrong-secret-0815" not in str(raised.value)
    assert graph.count("Person") == 0


def test_a_graph_on_s3_reads_inputs_with_its_own_options(
    served: S3Server, bucket_folder: Path, writer: Mapping[str, str], s3_root: str
) -> None:
    (bucket_folder / "Person.csv").write_text("name\nann\n")
    graph = og.init(s3_root, schema=SCHEMA, storage_options=writer)

    assert graph.load(address(bucket_folder, served)).written == {"Person": 1}
