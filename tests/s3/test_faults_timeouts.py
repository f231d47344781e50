"""A timeout bounds how long a silent store holds a call, and does not cut what is merely slow.

How long a call takes is not measured. It is at most the number of its attempts times what one may
take: attempts are counted at a relay that never answers, and the options say what one may take.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.errors import StorageUnavailableError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.objects.request_counts import RequestKind
from omnigraph_lake.storage.objects.s3_options import for_one_request, s3_options, seconds
from tests.s3.relay import Asked, Relay, Treatment, forward, relay_before
from tests.s3.server import S3Server
from tests.s3.toxiproxy import Toxic, Toxiproxy, toxiproxy_before

pytestmark = pytest.mark.s3

SCHEMA = "node Text { name: String @key  body: String }"
TIMEOUT_SECONDS = 6.0
"""The shortest for which no attempt ends before the second in which a client repeats it."""
SLOW_TIMEOUT_SECONDS = 60.0
LISTED_TIMES, FETCHED_TIMES, QUESTIONED_TIMES = 6, 8, 4
"""How often a listing, a part of a file and the state of the schema are asked for."""
PAUSES_SECONDS = 3.0


@pytest.fixture
def relay(served: S3Server) -> Iterator[Relay]:
    with relay_before(served.endpoint) as relay:
        yield relay


@pytest.fixture
def proxy(served: S3Server) -> Iterator[Toxiproxy]:
    with toxiproxy_before(served.endpoint) as proxy:
        yield proxy


@pytest.fixture
def graph(writer: Mapping[str, str], s3_root: str, relay: Relay) -> Graph:
    """A graph with a row, opened through the relay."""
    made = og.init(s3_root, schema=SCHEMA, storage_options=writer)
    made.write({"Text": [{"name": "t", "body": "b"}]})
    options = {**writer, "aws_endpoint": relay.url, "timeout": f"{TIMEOUT_SECONDS}s"}
    return og.open(s3_root, storage_options=options)


class Silence:
    """A rule that holds some requests for good and counts them."""

    def __init__(self, *, about: str = "") -> None:
        self._about = about
        self.asked: list[Asked] = []

    def rule(self, asked: Asked) -> Treatment:
        if self._about not in asked.key:
            return Treatment.FORWARD
        self.asked.append(asked)
        return Treatment.HOLD


def told(timeout: str, **more: str) -> Mapping[str, str]:
    return s3_options({"region": "r", "timeout": timeout, **more}, {}, root="s3://b/g")


@pytest.mark.parametrize("timeout", ["10s", "30s", "2m", "10m"])
def test_all_attempts_together_end_before_twice_the_timeout(timeout: str) -> None:
    attempt = seconds(for_one_request(told(timeout))["timeout"])

    # What is never answered, and what is asked after it: a question, a deletion, a listing.
    assert LISTED_TIMES * attempt + PAUSES_SECONDS + 3 * attempt < 2 * seconds(timeout)
    assert FETCHED_TIMES * attempt + 3 * attempt < 2 * seconds(timeout)


def test_a_client_does_not_repeat_what_was_waited_for_in_full() -> None:
    options = for_one_request(told("30s"))

    assert int(options["client_retry_timeout"]) <= seconds(options["timeout"])


def test_what_the_caller_asked_for_stays() -> None:
    given = told("30s", client_retry_timeout="1", client_max_retries="9")

    options = for_one_request(given)

    assert (options["client_retry_timeout"], options["client_max_retries"]) == ("1", "9")


def test_a_silent_store_is_asked_a_few_times_and_the_next_time_one_question(
    graph: Graph, relay: Relay
) -> None:
    first, second = Silence(), Silence()

    relay.rule = first.rule
    with pytest.raises(StorageUnavailableError):
        graph.snapshot()
    relay.rule = second.rule
    with pytest.raises(StorageUnavailableError):
        graph.snapshot()

    assert {asked.kind for asked in first.asked} == {RequestKind.LIST}
    assert len(first.asked) <= LISTED_TIMES
    assert {asked.key.rpartition("/")[2] for asked in second.asked} == {names.SCHEMA_STATE}
    assert len(second.asked) <= QUESTIONED_TIMES
    relay.rule = forward
    assert graph.snapshot().tables


def test_a_file_that_does_not_come_is_asked_for_a_few_times(graph: Graph, relay: Relay) -> None:
    silence = Silence(about="/data/")
    relay.rule = silence.rule

    with pytest.raises(StorageUnavailableError):
        graph.scan("Text").read_all()

    assert {asked.kind for asked in silence.asked} == {RequestKind.GET}
    assert len(silence.asked) <= FETCHED_TIMES
    relay.rule = forward
    assert graph.scan("Text").read_all().num_rows == 1


@pytest.mark.nightly(
    "12 MB at 1 MB/s; test_request_costs.py proves in the gate that a large file goes in parts, "
    "each of which is a request with a timeout of its own"
)
def test_a_slow_upload_of_a_large_file_is_not_cut(
    writer: Mapping[str, str], s3_root: str, proxy: Toxiproxy
) -> None:
    og.init(s3_root, schema=SCHEMA, storage_options=writer)
    timeout = f"{SLOW_TIMEOUT_SECONDS}s"
    options = {**writer, "aws_endpoint": proxy.url, "timeout": timeout}
    graph = og.open(s3_root, storage_options=options)
    # A part of 5 MB gets through in half the time of one request, the whole file does not.
    kilobytes = 1_000
    attempt = seconds(for_one_request(told(timeout))["timeout"])
    assert 2 * 5_000 / kilobytes <= attempt < 12_000 / kilobytes
    proxy.add(Toxic(kind="bandwidth", attributes={"rate": kilobytes}, spoils_requests=True))

    bodies = [random.Random(number).randbytes(1 << 19).hex() for number in range(12)]
    rows = [{"name": f"t{number}", "body": body} for number, body in enumerate(bodies)]
    result = graph.write({"Text": rows})

    proxy.heal()
    assert result.commit_id is not None
    written = graph.scan("Text").read_all().column("body").to_pylist()
    assert sorted(written) == sorted(bodies)
