from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph_lake.errors import DamagedGraphError, StorageUnavailableError, UnsafeStoreError
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.objects.store import Objects, Put, StoredObjects, claim

pytestmark = pytest.mark.unit


@pytest.fixture
def objects(graph_root: str) -> Objects:
    return StoredObjects(parse_root(graph_root), create=True)


class ForgetfulStore:
    """A store that accepts the condition of put-if-absent and ignores it, as some do."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.content: dict[str, bytes] = {}

    def put_if_absent(self, path: str, content: bytes) -> Put:
        self.content[path] = content
        return Put.CREATED

    def replace(self, path: str, content: bytes) -> None:
        self.content[path] = content

    def read(self, path: str) -> bytes | None:
        return self.content.get(path)

    def list(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(path for path in self.content if path.startswith(prefix)))

    def folders(self, prefix: str) -> tuple[str, ...]:
        below = [path.removeprefix(f"{prefix}/") for path in self.list(prefix)]
        return tuple(
            sorted({f"{prefix}/{path.partition('/')[0]}" for path in below if "/" in path})
        )

    def sizes(self, prefix: str) -> dict[str, int]:
        return {path: len(self.content[path]) for path in self.list(prefix)}

    def delete(self, path: str) -> None:
        self.content.pop(path, None)


def test_the_first_put_wins_and_later_ones_change_nothing(objects: Objects) -> None:
    first = objects.put_if_absent("a/x.json", b"1")
    second = objects.put_if_absent("a/x.json", b"2")

    assert (first, second) == (Put.CREATED, Put.EXISTED)
    assert objects.read("a/x.json") == b"1"


def test_one_of_many_concurrent_puts_wins(objects: Objects) -> None:
    for round_number in range(20):
        path = f"race/{round_number}"
        with ThreadPoolExecutor(8) as pool:
            puts = [pool.submit(objects.put_if_absent, path, b"%d" % n) for n in range(8)]
            outcomes = [put.result() for put in puts]

        assert outcomes.count(Put.CREATED) == 1
        assert objects.read(path) == b"%d" % outcomes.index(Put.CREATED)


def test_a_missing_object_reads_as_none_and_deletes_quietly(objects: Objects) -> None:
    assert objects.read("nope") is None
    objects.delete("nope")


def test_folders_are_what_has_something_below_it(objects: Objects) -> None:
    for path in ("a/1/x", "a/1/y/z", "a/0/x", "a/file", "ab/2/x"):
        objects.put_if_absent(path, b"")

    assert objects.folders("a") == ("a/0", "a/1")
    assert objects.folders("c") == ()


def test_list_is_recursive_sorted_and_knows_whole_segments(objects: Objects) -> None:
    for path in ("p/b", "p/a/c", "pp/x"):
        objects.put_if_absent(path, b"")

    assert objects.list("p") == ("p/a/c", "p/b")
    assert objects.list("empty") == ()


def test_replace_overwrites(objects: Objects) -> None:
    objects.put_if_absent("x", b"1")
    objects.replace("x", b"2")

    assert objects.read("x") == b"2"


@pytest.mark.parametrize("path", ["../evil", "a/../../evil", "/etc/evil", "nul\x00byte"])
def test_a_path_cannot_leave_the_root(objects: Objects, path: str) -> None:
    with pytest.raises(DamagedGraphError, match="not below the root"):
        objects.put_if_absent(path, b"x")
    assert objects.list("") == ()


def test_a_claim_returns_what_is_there_whoever_put_it(objects: Objects) -> None:
    assert claim(objects, "ref", b"mine") == b"mine"
    assert claim(objects, "ref", b"yours") == b"mine"


@pytest.mark.parametrize("present", [False, True])
def test_a_store_that_ignores_put_if_absent_is_refused_without_damage(present: bool) -> None:
    store = ForgetfulStore(parse_root("/forgetful/g"))
    if present:
        store.content["ref"] = b"before"

    with pytest.raises(UnsafeStoreError, match="ignores put-if-absent"):
        claim(store, "ref", b"new")
    assert store.content["ref"] == (b"before" if present else b"new")


def test_an_unusable_root_names_itself() -> None:
    with pytest.raises(StorageUnavailableError, match="/proc/nope"):
        StoredObjects(parse_root("/proc/nope"), create=True)
