"""How many requests of an operation wait for each other.

The relay delays every request by more than a busy machine does, so requests that are made at once
overlap. A machine that is starved can still start one of them late, which makes a chain longer and
never shorter: the shortest of some measurements counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.s3_cost import Cost, made_graph, measure_all, placed
from tests.s3.relay import Relay, relay_before
from tests.s3.request_bounds import BOUNDS
from tests.s3.server import S3Server

pytestmark = [
    pytest.mark.s3,
    pytest.mark.timeout(900),
    pytest.mark.nightly(
        "needs a delay of 50 ms at each of 700 requests, and depends on how soon threads start; "
        "the gate counts the requests of the same operations in test_request_costs.py"
    ),
]
MEASUREMENTS = 3


@pytest.fixture(scope="module")
def relay(s3_server: S3Server) -> Iterator[Relay]:
    with relay_before(s3_server.endpoint, latency_seconds=0.05) as relay:
        yield relay


@pytest.fixture(scope="module")
def shortest(
    relay: Relay, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Cost]:
    """The shortest chain of every operation; measured again while one is too long."""
    made = made_graph(tmp_path_factory.mktemp("chains"), tables=10, commits=10)
    shortest: dict[str, Cost] = {}
    for number in range(MEASUREMENTS):
        for cost in measure_all(placed(relay, s3_server, made, f"chains-{number}")):
            known = shortest.setdefault(cost.name, cost)
            shortest[cost.name] = min(known, cost, key=lambda measured: measured.serial)
        if all(shortest[name].serial <= bound.serial for name, bound in BOUNDS.items()):
            break
    return shortest


@pytest.mark.parametrize("name", BOUNDS)
def test_an_operation_stays_within_its_requests_in_a_row(
    shortest: dict[str, Cost], name: str
) -> None:
    cost, bound = shortest[name], BOUNDS[name]

    assert 0 < cost.serial <= bound.serial, cost.line()
    assert cost.requests <= bound.requests, cost.line()
