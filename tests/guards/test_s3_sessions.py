"""What a Lance session keeps of a store with entity tags.

Relied on in: `storage/lance/datasets.py`, `storage/manifest/swap.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import lance
import pyarrow as pa
import pytest

from tests.s3.relay import Relay, relay_before
from tests.s3.server import BUCKET, S3Server

pytestmark = pytest.mark.s3

URI = f"s3://{BUCKET}/table-of-sessions"


@pytest.fixture
def relay(s3_server: S3Server) -> Iterator[Relay]:
    shutil.rmtree(s3_server.folder_of(URI), ignore_errors=True)
    with relay_before(s3_server.endpoint) as relay:
        yield relay


def make(options: dict[str, str], tag: str, *, indexed: str, deleted: int) -> None:
    """Three versions: rows, an index, a deletion."""
    rows = pa.table({"a": range(10), "b": range(10), "tag": [tag] * 10})
    made = lance.write_dataset(rows, URI, storage_options=options, enable_stable_row_ids=True)
    made.create_scalar_index(indexed, "BTREE")
    lance.dataset(URI, storage_options=options).delete(f"a = {deleted}")


@pytest.mark.parametrize("version", [None, 3])
def test_a_version_of_the_same_number_with_other_content_is_read_anew(
    relay: Relay, s3_server: S3Server, version: int | None
) -> None:
    """Relied on by: handles share a session, and freed numbers are taken again."""
    options = s3_server.options(aws_endpoint=relay.url)
    session = lance.Session()  # type: ignore[attr-defined]

    def seen() -> tuple[object, ...]:
        table = lance.dataset(URI, version=version, storage_options=options, session=session)
        rows = table.to_table(columns=["a", "tag"], filter="a in (3, 4)").to_pylist()
        return table.version, [index.field_names for index in table.describe_indices()], rows

    make(options, "one", indexed="a", deleted=3)
    assert seen() == seen() == (3, [["a"]], [{"a": 4, "tag": "one"}])
    shutil.rmtree(s3_server.folder_of(URI))
    make(options, "two", indexed="b", deleted=4)

    assert seen() == (3, [["b"]], [{"a": 3, "tag": "two"}])


def test_a_session_saves_reading_the_manifest_but_not_asking_for_the_latest(
    relay: Relay, s3_server: S3Server
) -> None:
    """Relied on by: what an open costs is one listing."""
    options = s3_server.options(aws_endpoint=relay.url)
    session = lance.Session()  # type: ignore[attr-defined]
    make(options, "one", indexed="a", deleted=3)
    lance.dataset(URI, storage_options=options, session=session)
    relay.forget()

    lance.dataset(URI, storage_options=options, session=session)

    assert [served.asked.kind.value for served in relay.served()] == ["list"]
