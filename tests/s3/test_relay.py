"""The relay counts, orders and mistreats requests as it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from benchmarks.s3_cost import running_server
from omnigraph.errors import StorageUnavailableError
from omnigraph.storage.location import Root, parse_root
from omnigraph.storage.objects import Objects, Put, StoredObjects
from omnigraph.storage.request_counts import RequestKind
from tests.s3.relay import (
    Asked,
    Relay,
    Served,
    Treatment,
    longest_chain,
    relay_before,
    understood,
)
from tests.s3.server import BUCKET, S3Server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def relay(server: S3Server) -> Iterator[Relay]:
    with relay_before(server.endpoint) as relay:
        yield relay


@pytest.fixture
def objects(server: S3Server, relay: Relay, request: pytest.FixtureRequest) -> Objects:
    name = request.node.name.replace("[", "-").replace("]", "").replace(" ", "-")
    return StoredObjects(_root(server, name, aws_endpoint=relay.url))


def _root(server: S3Server, name: str, **more: str) -> Root:
    return parse_root(f"s3://{BUCKET}/{name}", storage_options=server.options(**more))


def _stored(objects: Objects, server: S3Server, path: str) -> bytes | None:
    """What the server has, asked behind the relay's back."""
    name = objects.root.uri.rpartition("/")[2]
    return StoredObjects(_root(server, name)).read(path)


@pytest.mark.parametrize(
    ("method", "path", "kind", "key"),
    [
        ("GET", "/b?list-type=2&prefix=g%2Fnodes%2F", RequestKind.LIST, "g/nodes/"),
        ("GET", "/b/?list-type=2", RequestKind.LIST, ""),
        ("GET", "/b/g/a%20b.json", RequestKind.GET, "g/a b.json"),
        ("HEAD", "/b/g/a", RequestKind.HEAD, "g/a"),
        ("PUT", "/b/g/a?partNumber=1&uploadId=x", RequestKind.PUT, "g/a"),
        ("POST", "/b/g/a?uploads", RequestKind.PUT, "g/a"),
        ("POST", "/b?delete", RequestKind.DELETE, ""),
        ("DELETE", "/b/g/a?uploadId=x", RequestKind.DELETE, "g/a"),
    ],
)
def test_a_request_is_understood(method: str, path: str, kind: RequestKind, key: str) -> None:
    assert understood(method, path) == (kind, key)


@pytest.mark.parametrize(
    ("times", "length"),
    [
        ([], 0),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 3), (0, 3), (0, 3)], 1),
        ([(0, 10), (1, 2), (3, 4), (11, 12)], 3),
        ([(2, 3), (0, 2.5), (4, 5)], 2),
    ],
)
def test_the_longest_chain_has_no_two_requests_at_once(
    times: Sequence[tuple[float, float]], length: int
) -> None:
    served = [_served(began, ended) for began, ended in times]

    assert len(longest_chain(served)) == length


def _served(began: float, ended: float) -> Served:
    asked = Asked(kind=RequestKind.GET, method="GET", key="k", number=0)
    return Served(asked=asked, status=200, bytes_sent=0, bytes_received=0, began=began, ended=ended)


def test_requests_arrive_unchanged_and_are_told_in_order(objects: Objects, relay: Relay) -> None:
    assert objects.put_if_absent("a", b"first") is Put.CREATED
    assert objects.put_if_absent("a", b"second") is Put.EXISTED
    assert objects.read("a") == b"first"
    assert objects.read("b") is None
    assert objects.list("") == ("a",)
    objects.delete("a")

    told = [(each.asked.kind, each.status, each.bytes_sent) for each in relay.served()]
    assert told[:5] == [
        (RequestKind.PUT, 200, 5),
        (RequestKind.PUT, 412, 6),
        (RequestKind.GET, 200, 0),
        (RequestKind.GET, 404, 0),
        (RequestKind.LIST, 200, 0),
    ]
    assert told[5][:2] == (RequestKind.DELETE, 200)
    assert len(longest_chain(relay.served())) == len(told) == 6


def test_latency_is_added_to_every_request(objects: Objects, relay: Relay) -> None:
    relay.latency_seconds = 0.1

    objects.replace("a", b"1")

    (served,) = relay.served()
    assert served.ended - served.began >= 0.1


@pytest.mark.parametrize(
    ("treatment", "happens"),
    [(Treatment.DROP_ANSWER, True), (Treatment.DROP_REQUEST, False), (Treatment.SLOW_DOWN, False)],
)
def test_a_client_learns_nothing_but_the_server_may_have_done_it(
    objects: Objects, relay: Relay, server: S3Server, treatment: Treatment, happens: bool
) -> None:
    relay.rule = lambda _: treatment

    with pytest.raises(StorageUnavailableError):
        objects.replace("a", b"1")

    assert (_stored(objects, server, "a") == b"1") is happens
    assert {each.status for each in relay.served()} == (
        {503} if treatment is Treatment.SLOW_DOWN else {0}
    )


def test_a_client_that_repeats_a_put_after_a_lost_answer_finds_its_own_object(
    objects: Objects, relay: Relay
) -> None:
    lost = iter([Treatment.DROP_ANSWER])
    relay.rule = lambda _: next(lost, Treatment.FORWARD)

    assert objects.put_if_absent("a", b"mine") is Put.EXISTED

    assert [each.status for each in relay.served()] == [0, 412]
    assert objects.read("a") == b"mine"
