"""The relay counts, orders and mistreats requests as it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from omnigraph_lake.errors import StorageUnavailableError
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.request_counts import RequestKind
from omnigraph_lake.storage.objects.store import Objects, Put, StoredObjects
from tests.s3.relay import (
    Asked,
    Relay,
    Served,
    Treatment,
    longest_chain,
    relay_before,
    understood,
)
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def relay(s3_server: S3Server) -> Iterator[Relay]:
    with relay_before(s3_server.endpoint) as relay:
        yield relay


@pytest.fixture
def objects(s3_root: str, s3_server: S3Server, relay: Relay) -> Objects:
    options = s3_server.options(aws_endpoint=relay.url)
    return StoredObjects(parse_root(s3_root, storage_options=options))


def _stored(objects: Objects, server: S3Server, path: str) -> bytes | None:
    """What the server has, asked around the relay."""
    root = parse_root(objects.root.uri, storage_options=server.options())
    return StoredObjects(root).read(path)


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

    told = [(served.asked.kind, served.status, served.bytes_sent) for served in relay.served()]
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
    """At least: a busy machine adds to it, and nothing takes from it."""
    relay.latency_seconds = 0.1

    objects.replace("a", b"1")

    (served,) = relay.served()
    assert served.ended - served.began >= 0.1


@pytest.mark.parametrize(
    ("treatment", "happens"),
    [
        (Treatment.DROP_ANSWER, True),
        (Treatment.DROP_REQUEST, False),
        (Treatment.SLOW_DOWN, False),
        (Treatment.FAIL, False),
    ],
    ids=lambda value: value.value if isinstance(value, Treatment) else None,
)
def test_a_client_learns_nothing_but_the_server_may_have_done_it(
    objects: Objects, relay: Relay, s3_server: S3Server, treatment: Treatment, happens: bool
) -> None:
    relay.rule = lambda _: treatment

    with pytest.raises(StorageUnavailableError):
        objects.replace("a", b"1")

    assert (_stored(objects, s3_server, "a") == b"1") is happens
    answered = {Treatment.SLOW_DOWN: 503, Treatment.FAIL: 500}.get(treatment, 0)
    assert {served.status for served in relay.served()} == {answered}


def test_a_request_that_is_held_is_never_answered(
    s3_root: str, s3_server: S3Server, relay: Relay
) -> None:
    options = s3_server.options(aws_endpoint=relay.url, timeout="1s")
    objects = StoredObjects(parse_root(s3_root, storage_options=options))
    relay.rule = lambda _: Treatment.HOLD

    with pytest.raises(StorageUnavailableError):
        objects.replace("a", b"1")

    assert relay.served() == ()
    assert _stored(objects, s3_server, "a") is None


def test_a_client_that_repeats_a_put_after_a_lost_answer_finds_its_own_object(
    objects: Objects, relay: Relay
) -> None:
    lost = iter([Treatment.DROP_ANSWER])
    relay.rule = lambda _: next(lost, Treatment.FORWARD)

    assert objects.put_if_absent("a", b"mine") is Put.EXISTED

    assert [served.status for served in relay.served()] == [0, 412]
    assert objects.read("a") == b"mine"
