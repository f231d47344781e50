"""Imports of a Postgres database, from a server that runs for the test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.schema.show import show_type

POSTGRES = shutil.which("postgres")
BINARIES = Path(POSTGRES).resolve().parent if POSTGRES else None
pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(BINARIES is None, reason="there is no Postgres server on this machine"),
]

TABLES = """
CREATE TABLE companies (id int PRIMARY KEY, name text NOT NULL, rating numeric(3, 1));
CREATE TABLE people (
    id bigint PRIMARY KEY, name text NOT NULL, company int REFERENCES companies,
    born date, seen timestamptz, noted timestamp, active boolean NOT NULL, tags text[],
    score double precision, exact numeric, share numeric(38, 20), wide numeric(50, 20),
    tens numeric(5, -1), code numeric(20), token uuid, profile jsonb, photo bytea
);
CREATE TABLE knows (
    one bigint REFERENCES people, other bigint REFERENCES people, since int,
    PRIMARY KEY (one, other)
);
CREATE TABLE "../escaped" (id int PRIMARY KEY, text text);
INSERT INTO "../escaped" VALUES (1, 'inside');
CREATE SCHEMA archive;
CREATE TABLE archive.notes (id int PRIMARY KEY, text text);
INSERT INTO companies VALUES (1, 'Acme', 4.5), (2, 'Beta', NULL);
INSERT INTO people VALUES
    (1, 'Ann', 1, '1990-05-17', '2024-01-02 03:04:05+02', '2024-01-02 03:04:05', true,
     '{a,b}', 1.5, 12345678901234567890.50, 0.12345678901234567891,
     123456789012345678901234567890.12345678901234567890, 120, 12345678901234567890,
     '00000000-0000-0000-0000-000000000001',
     '{"level": 3}', '\\x00ff'),
    (2, 'Bob, "the" first', 2, NULL, NULL, NULL, false, '{}', NULL, 0.25,
     NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO people SELECT n, 'p' || n, 1, NULL, NULL, NULL, true FROM generate_series(3, 20000) n;
INSERT INTO knows VALUES (1, 2, 2001), (2, 1, NULL);
INSERT INTO archive.notes VALUES (7, 'old');
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a new database; a server refuses to run as root."""
    assert BINARIES is not None
    folder = Path(tmp_path_factory.mktemp("postgres"))
    data = folder / "data"
    user = "nobody" if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, "nobody")
        for above in (folder, *folder.parents):
            if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
                above.chmod(above.stat().st_mode | 0o011)

    def run(program: str, *arguments: object) -> None:
        command = [str(BINARIES / program), *map(str, arguments)]
        subprocess.run(command, cwd="/", user=user, check=True, stdout=subprocess.DEVNULL)

    ways = ("--auth=trust", "--username=ann", "--no-sync", "--encoding=UTF8", "--locale=C")
    run("initdb", "-D", data, *ways)
    options = f"-c listen_addresses='' -c fsync=off -k {folder}"
    run("pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
    address = f"postgresql://ann:secret@/postgres?host={folder}"
    try:
        run("psql", "-v", "ON_ERROR_STOP=1", address, "-c", TABLES)
        yield address
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")


def test_tables_become_types_and_foreign_keys_edges(server: str, tmp_path: Path) -> None:
    root = str(tmp_path / "g")

    report = og.import_data(root, server)

    assert report.load is not None
    written = dict(report.load.written)
    assert written.pop("Person") == 20_000
    assert not report.load.rejected
    graph = og.open(root)
    graph_type = graph.schema.catalog.nodes["Person"]
    people = graph.scan("Person").read_all()
    (ann,) = people.filter(people["name"].is_valid()).slice(0, 1).to_pylist()
    assert (ann["born"].isoformat(), ann["active"], ann["score"]) == ("1990-05-17", True, 1.5)
    assert ann["seen"].isoformat() == "2024-01-02T01:04:05+00:00"
    assert ann["noted"].isoformat() == "2024-01-02T03:04:05+00:00"
    assert (ann["tags"], ann["exact"]) == (["a", "b"], Decimal("12345678901234567890.50"))
    assert ann["share"] == Decimal("0.12345678901234567891")
    assert ann["wide"] == "123456789012345678901234567890.12345678901234567890"
    assert (ann["tens"], ann["code"]) == (Decimal(120), Decimal(12345678901234567890))
    kinds = {prop.name: show_type(prop.type) for prop in graph_type.properties.values()}
    assert kinds["exact"] == "Decimal(28, 2)"
    assert kinds["share"] == "Decimal(38, 20)"
    assert kinds["tens"] == "Decimal(28, 0)"
    assert kinds["code"] == "Decimal(20, 0)"
    assert (ann["token"][-4:], ann["profile"]) == ("0001", '{"level": 3}')
    assert people["name"].to_pylist()[1] == 'Bob, "the" first'
    assert {row["rating"] for row in graph.scan("Company").read_all().to_pylist()} == {4.5, None}
    edges = {
        edge.name: (edge.source.only, edge.target.only)
        for edge in graph.schema.catalog.edges.values()
    }
    assert ("Person", "Company") in edges.values()
    assert ("Person", "Person") in edges.values()
    assert set(written.values()) == {20_000, 2, 1}
    assert "Escaped" in written


@pytest.mark.nightly("second imports of files and of SQLite are in the gate")
def test_a_second_import_updates(server: str, tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    og.import_data(root, server)

    report = og.import_data(root, server)

    assert report.load is not None
    assert sum(report.load.inserted.values()) == 0


def test_what_cannot_be_read_is_said_without_the_password(server: str, tmp_path: Path) -> None:
    for address in (
        server.replace("/postgres?", "/nowhere?"),
        "postgresql://ann:secret@127.0.0.1:9/postgres",
    ):
        with pytest.raises(InvalidInputError, match="cannot be read") as caught:
            og.import_data(str(tmp_path / "g"), address)
        assert "secret" not in str(caught.value)
        assert not (tmp_path / "g").exists()
