"""What every suite shares: where a graph's root lives, and a schema to put there."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.drawing import seed_hypothesis
from tests.gate import budgets
from tests.gate.seeds import run_seed
from tests.gate.selection import deselect, is_outside
from tests.stores import on_s3, root_at

if TYPE_CHECKING:
    from omnigraph_lake.graph import Graph
    from tests.s3.server import S3Server

EXAMPLES = Path(__file__).parent.parent / "examples"


def pytest_addoption(parser: pytest.Parser) -> None:
    budgets.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    # No test but those under tests/power is about power cuts; the others need no syncs.
    os.environ.setdefault("OMNIGRAPH_DURABILITY", "os")
    # No test depends on what earlier runs left in the cache directory of the user.
    os.environ.setdefault("OMNIGRAPH_CACHE", "")
    budgets.register(config)
    seed_hypothesis()


def pytest_report_header() -> str:
    return f"seed of random tests: OMNIGRAPH_SEED={run_seed()}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True for files whose tests cannot be reached by what the commit changed."""
    return is_outside(collection_path, config) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not look for garbage among modules and tests: there is none, and there are a million."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave this run's share; on S3, without what is about a local disk (each says why it is)."""
    deselect(config, items)
    for item in items:
        marker = item.get_closest_marker("local_disk")
        if marker is None:
            continue
        (reason,) = marker.args
        if on_s3():
            item.add_marker(pytest.mark.skip(reason=f"about a local disk: {reason}"))


@pytest.fixture(scope="session", autouse=True)
def _datasets_have_no_truth() -> Iterator[None]:
    """An empty dataset is false, so `dataset or other` takes the other one where there are no rows.

    `optimize` once restored a wrong version by that. No code that a test runs may ask.
    """
    from lance import LanceDataset

    def refuse(_: LanceDataset) -> bool:
        raise TypeError("a dataset was tested for truth, which is false for an empty one")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanceDataset, "__bool__", refuse, raising=False)
        yield


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real server with a bucket, a writer and a reader, for this worker alone."""
    from tests.s3.server import S3Server, binary

    if not binary().exists():
        pytest.fail(f"there is no S3 server at {binary()}: run `just s3-tools` once", pytrace=False)
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    server.prepare()
    yield server
    server.stop()


@pytest.fixture(scope="session", autouse=True)
def _store_of_this_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """OMNIGRAPH_TEST_STORE chooses the kind of store for the whole run."""
    if not on_s3():
        yield
        return
    server: S3Server = request.getfixturevalue("s3_server")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def graph_root(tmp_path: Path) -> str:
    """An empty root in the store of this run."""
    return root_at(tmp_path / "graph")


@pytest.fixture(scope="session")
def people_schema() -> str:
    return (EXAMPLES / "people.pg").read_text()


@pytest.fixture
def people_graph(graph_root: str, people_schema: str) -> Graph:
    import omnigraph_lake as og

    return og.init(graph_root, schema=people_schema)
