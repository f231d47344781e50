"""Processes, threads and locks.

Many processes write one store and Spark forks its Python workers; so it matters what a fork does to
Lance, what a handle may be used for at once, and that no lock of our own weakens Lance's commit.

That a forked child of a process which used Lance hangs or crashes is true only sometimes, so it is
not run here: guarded are the warning Lance gives and the two ways that work.

Relied on in: `storage/objects/processes.py`, `runner/session.py`, `errors.py`.
"""

import multiprocessing
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, Transaction
from lance.fragment import write_fragments

pytestmark = pytest.mark.unit

Rows = Callable[..., pa.Table]


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_forking_after_importing_lance_warns() -> None:
    """Relied on by: a process that forks workers does not use Lance."""
    forked = _python(
        "import os, lance\nchild = os.fork()\nif child == 0: os._exit(0)\nos.waitpid(child, 0)\n"
    )
    assert "lance is not fork-safe" in forked.stderr


def test_a_child_forked_before_lance_is_imported_can_use_it(uri: str, table: Rows) -> None:
    """Relied on by: Spark workers import Lance inside the task, after the fork."""
    lance.write_dataset(table(3), uri)
    forked = _python(
        "import os, sys\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    import lance\n"
        f"    os._exit(40 + lance.dataset({uri!r}).to_table().num_rows)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert forked.stdout.strip() == "43"


def test_a_spawned_process_can_use_lance_while_its_parent_does(uri: str, table: Rows) -> None:
    """Relied on by: our own worker processes are spawned."""
    lance.write_dataset(table(3), uri)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        opened = pool.apply(lance.dataset, (uri,))
    assert opened.count_rows() == 3


def test_a_dataset_handle_can_be_pickled(uri: str, table: Rows) -> None:
    """Relied on by: a handle may travel to a worker."""
    lance.write_dataset(table(3), uri)
    lance.write_dataset(table(3), uri, mode="append")
    handle = lance.dataset(uri, version=1)
    copied = pickle.loads(pickle.dumps(handle))  # noqa: S301
    assert (copied.version, copied.count_rows()) == (1, 3)


def test_many_threads_can_read_through_one_handle(uri: str, table: Rows) -> None:
    """Relied on by: a query reads its tables in parallel.

    Relied on in `storage/lance/dataset_cache.py`.
    """
    dataset = lance.write_dataset(table(100), uri)
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda i: dataset.count_rows(f"id < {i}"), range(32)))
    assert counts == list(range(32))


def test_appends_of_many_threads_without_a_lock_all_land(uri: str, table: Rows) -> None:
    """Relied on by: Lance's own commit loses nothing, so no lock is ever passed to it.

    Relied on in `storage/lance/next_version.py`, `storage/manifest/swap.py`.
    """
    lance.write_dataset(table(1), uri)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: lance.write_dataset(table(1, i), uri, mode="append"), range(1, 17)))
    assert lance.dataset(uri).version == 17
    assert sorted(lance.dataset(uri).to_table()["id"].to_pylist()) == list(range(17))


def test_a_commit_lock_is_called_with_the_version_about_to_be_written(
    uri: str, table: Rows
) -> None:
    """Relied on by: nothing; a lock could refuse versions, but see the next guard."""
    base = lance.write_dataset(table(1), uri)
    asked: list[int] = []

    @contextmanager
    def lock(version: int) -> Iterator[None]:
        asked.append(version)
        yield

    LanceDataset.commit(
        base, write_fragments(table(1, 1), base, return_transaction=True), commit_lock=lock
    )
    assert asked == [2]


def _race_two_commits_through_a_lock_that_locks_nothing(path: Path, table: Rows) -> int:
    """Return how many of two commits with max_retries=0 for the same version were acknowledged."""
    base = lance.write_dataset(table(1), path)
    both_inside = threading.Barrier(2)

    @contextmanager
    def no_lock(_: int) -> Iterator[None]:
        both_inside.wait(timeout=30)
        yield

    def commit(start: int) -> int:
        operation = write_fragments(table(1, start), base, return_transaction=True).operation
        # A large property makes writing the manifest slow enough for the two writes to overlap.
        staged = Transaction(1, operation, transaction_properties={"pad": "x" * 8_000_000})
        try:
            return LanceDataset.commit(base, staged, commit_lock=no_lock, max_retries=0).version
        except OSError:
            return 0

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(commit, (10, 20))).count(2)


def test_a_commit_lock_without_mutual_exclusion_loses_acknowledged_commits(
    tmp_path: Path, table: Rows
) -> None:
    """Relied on by: no commit_lock is ever passed, it replaces the atomic write of the manifest.

    Relied on in `storage/lance/next_version.py`, `storage/manifest/swap.py`.
    """
    for attempt in range(20):
        path = tmp_path / str(attempt)
        if _race_two_commits_through_a_lock_that_locks_nothing(path, table) == 2:
            after = lance.dataset(path)
            assert (after.version, after.count_rows()) == (2, 2)
            return
    pytest.fail("two commits of one version were never both acknowledged")
