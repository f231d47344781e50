"""A timeout bounds how long a silent store holds a call, and does not cut what is merely slow."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping

import pytest

import omnigraph
from omnigraph.errors import StorageUnavailableError
from omnigraph.storage.s3_options import for_one_request, s3_options, seconds
from tests.s3.server import S3Server
from tests.s3.toxiproxy import Toxic, Toxiproxy, toxiproxy_before

pytestmark = pytest.mark.s3

SCHEMA = "node Text { name: String @key  body: String }"
TIMEOUT_SECONDS = 10.0
LISTED_TIMES, FETCHED_TIMES, PAUSES_SECONDS = 6, 8, 3.0


@pytest.fixture
def proxy(served: S3Server) -> Iterator[Toxiproxy]:
    with toxiproxy_before(served.endpoint) as proxy:
        yield proxy


def told(timeout: str, **more: str) -> Mapping[str, str]:
    return s3_options({"region": "r", "timeout": timeout, **more}, {}, root="s3://b/g")


@pytest.mark.parametrize("timeout", ["10s", "30s", "2m", "10m"])
def test_all_attempts_together_end_before_twice_the_timeout(timeout: str) -> None:
    attempt = seconds(for_one_request(told(timeout))["timeout"])

    # What nobody answers, and what is asked after it: a question, a deletion, a listing.
    assert LISTED_TIMES * attempt + PAUSES_SECONDS + 3 * attempt < 2 * seconds(timeout)
    assert FETCHED_TIMES * attempt + 3 * attempt < 2 * seconds(timeout)


def test_a_client_does_not_repeat_what_was_waited_for_in_full() -> None:
    options = for_one_request(told("30s"))

    assert int(options["client_retry_timeout"]) <= seconds(options["timeout"])


def test_what_the_caller_asked_for_stays() -> None:
    given = told("30s", client_retry_timeout="1", client_max_retries="9")

    options = for_one_request(given)

    assert (options["client_retry_timeout"], options["client_max_retries"]) == ("1", "9")


def test_a_silent_store_holds_nobody_for_long(
    writer: Mapping[str, str], s3_root: str, proxy: Toxiproxy
) -> None:
    omnigraph.init(s3_root, schema=SCHEMA, storage_options=writer)
    options = {**writer, "aws_endpoint": proxy.url, "timeout": f"{TIMEOUT_SECONDS}s"}
    graph = omnigraph.open(s3_root, storage_options=options)
    for way in (True, False):
        proxy.add(Toxic(kind="timeout", attributes={"timeout": 0}, spoils_requests=way))

    started = time.monotonic()
    with pytest.raises(StorageUnavailableError):
        graph.snapshot()
    first = time.monotonic() - started
    with pytest.raises(StorageUnavailableError):
        graph.snapshot()
    second = time.monotonic() - started - first

    assert first < 2 * TIMEOUT_SECONDS
    assert second < TIMEOUT_SECONDS
    proxy.heal()
    assert graph.snapshot().tables


def test_a_slow_upload_of_a_large_file_is_not_cut(
    writer: Mapping[str, str], s3_root: str, proxy: Toxiproxy
) -> None:
    omnigraph.init(s3_root, schema=SCHEMA, storage_options=writer)
    options = {**writer, "aws_endpoint": proxy.url, "timeout": f"{TIMEOUT_SECONDS}s"}
    graph = omnigraph.open(s3_root, storage_options=options)
    # A part of 5 MB gets through in the time of one request, the whole file does not.
    kilobytes = 4_000
    attempt = seconds(for_one_request(told(f"{TIMEOUT_SECONDS}s"))["timeout"])
    assert 5_000 / kilobytes < attempt < 12_000 / kilobytes
    proxy.add(Toxic(kind="bandwidth", attributes={"rate": kilobytes}, spoils_requests=True))

    bodies = [random.Random(each).randbytes(1 << 19).hex() for each in range(12)]
    rows = [{"name": f"t{each}", "body": body} for each, body in enumerate(bodies)]
    result = graph.write({"Text": rows})

    proxy.heal()
    assert result.commit_id is not None
    written = graph.nodes("Text").read_all().column("body").to_pylist()
    assert sorted(written) == sorted(bodies)
