"""A small graph, and the adversities that can be laid over a copy of it.

Every adversity is laid once in a session, in a template; a test works on copies that share their
files with it, which is safe because no file of a graph is ever written in place.

Invariant: what a test may change is marked: a name with `MARK` in it, a commit whose actor has. All
else is what the graph must still answer afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.storage.objects.durability import boot_id
from tests.crash.copies import is_made, link_root
from tests.forking.programs import run_module, start_module
from tests.maintenance.old_graphs import old_graph

MARK: Final = "verb"
"""Part of every name that verbs may bring or take away."""
SCHEMA: Final = """
node Person { name: String @key  nick: String? @index }
node Company { name: String @key }
edge WorksAt: Person -> Company
"""
PEOPLE: Final = 40
DAMAGED_NAME: Final = "p17"
"""The value that damage to a data file hits."""
DEV, SPARE, GONE, HALF_CREATED = "dev", f"{MARK}-spare", "gone", f"{MARK}-half"
EARLY, KEPT = "early", f"{MARK}-kept"
DOOMED: Final = f"{MARK}-doomed"
OLD_PEOPLE: Final = ("p0", "p1", "p2")


class Adversity(StrEnum):
    """What a verb meets; the graph has branches and tags in every case."""

    BRANCHES = "branches, one deleted and one half created"
    OLD_FORMAT = "internal format 4"
    OLDEST_FORMAT = "internal format 1"
    DEAD_WRITER = "the armed sidecar of a dead writer"
    DAMAGED_DATA = "a damaged data file"
    DAMAGED_DELETION = "a damaged deletion file"
    DAMAGED_KEY_INDEX = "a damaged key index"
    DAMAGED_BRANCH_LOG = "a damaged entry of a branch log"
    DAMAGED_CHECKSUMS = "a damaged list of checksums"
    MISSING_DATA = "a missing data file"
    TORN_MANIFEST = "a newest manifest version of zero length"
    POWER_CUT = "the same, found after the machine was started again"
    READ_ONLY = "folders that must not be written"
    READER = "a reader in another process"
    TOGETHER = "all that leave the graph writable"

    @property
    def is_damage(self) -> bool:
        """Whether questions may be refused."""
        return self in _DAMAGES or self is Adversity.TOGETHER

    @property
    def is_old(self) -> bool:
        return self in (Adversity.OLD_FORMAT, Adversity.OLDEST_FORMAT)

    @property
    def has_reader(self) -> bool:
        return self in (Adversity.READER, Adversity.TOGETHER)

    @property
    def is_read_only(self) -> bool:
        return self is Adversity.READ_ONLY


class Worlds:
    """The templates of a test session: the undamaged graphs, and one for each adversity."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def undamaged(self, adversity: Adversity) -> Path:
        """The graph that an adversity was laid over; a graph of an old format is whole as it is."""
        if adversity.is_old:
            return self.template(adversity)
        return self._made("undamaged", build)

    def template(self, adversity: Adversity) -> Path:
        """A graph with an adversity; a test makes copies of it."""
        return self._made(adversity.name.lower(), lambda root: self._lay(adversity, root))

    def copy(self, adversity: Adversity, to: Path) -> None:
        link_root(str(self.template(adversity)), str(to))

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        root = self._home / name
        if not is_made(str(root)):
            make(root)
        return root

    def _lay(self, adversity: Adversity, root: Path) -> None:
        if adversity is Adversity.OLD_FORMAT:
            old_graph(str(root), stamp=4, branches=(DEV, SPARE), people=OLD_PEOPLE)
            return
        if adversity is Adversity.OLDEST_FORMAT:
            old_graph(str(root), stamp=1, branches=(DEV, SPARE))
            return
        link_root(str(self.undamaged(adversity)), str(root))
        for laid in COEXISTING if adversity is Adversity.TOGETHER else (adversity,):
            if laid in _LAYERS:
                _LAYERS[laid](root)


def build(root: Path) -> None:
    """Rows with an index and a deletion, branches and tags; the newest commit brings marked rows.

    So a reader that steps back over a torn newest version answers every question as before.
    """
    graph = og.init(str(root), schema=SCHEMA, actor="maker")
    people = [{"name": f"p{n}", "nick": f"nick {n % 5}"} for n in range(PEOPLE)]
    jobs = [{"id": f"w{n}", "src": f"p{n}", "dst": f"c{n % 2}"} for n in range(0, PEOPLE - 5, 2)]
    rows = {"Person": people, "Company": [{"name": "c0"}, {"name": "c1"}], "WorksAt": jobs}
    graph.write(rows, actor="maker")
    graph.maintenance.optimize()
    graph.tags.create(EARLY)
    graph.delete({"Person": [f"p{PEOPLE - 1}"]}, actor="maker")
    dev = graph.branches.create(DEV)
    dev.write({"Person": [{"name": f"d{n}"} for n in range(3)]}, actor="maker")
    graph.write({"Person": [{"name": "late"}]}, actor="maker")
    graph.branches.create(SPARE)
    graph.tags.create(KEPT)
    graph.branches.create(GONE)
    graph.branches.delete(GONE)
    graph.write({"Person": [{"name": DOOMED}]}, actor=MARK)


def _half_create(root: Path) -> None:
    _kill("branch", root, "branch.post_manifest=kill")


def _leave_sidecar(root: Path) -> None:
    _kill("write", root, "publish.pre_manifest=kill")


def _kill(verb: str, root: Path, failpoints: str) -> None:
    victim = start_module("tests.adversary.victim", verb, str(root), failpoints=failpoints)
    ended = victim.finish()
    assert ended.returncode < 0, f"{verb} was not killed at {failpoints}: {ended.stderr}"


def _damage_data(root: Path) -> None:
    """Another name in the place of one: the file can be decoded as before."""
    file = _largest(root, f"{_table('node:Person')}/data/*.lance")
    content = file.read_bytes()
    assert DAMAGED_NAME.encode() in content
    _replace(file, content.replace(DAMAGED_NAME.encode(), b"x99"))


def _damage_deletion(root: Path) -> None:
    _flip(_newest(root, f"{_table('node:Person')}/_deletions/*"))


def _damage_key_index(root: Path) -> None:
    for file in root.glob(f"{_table('node:Person')}/_indices/*/page_data.lance"):
        _flip(file)


def _damage_branch_log(root: Path) -> None:
    _flip(root / names.branch_ref(DEV, 2))


def _damage_checksums(root: Path) -> None:
    lists = root.glob(f"{_table('node:Company')}/_checksums/*")
    _flip(max(lists, key=lambda file: names.checksum_list_at(str(file)) or ()))


def _remove_data(root: Path) -> None:
    _largest(root, f"{_table('edge:WorksAt')}/data/*.lance").unlink()


def _tear_manifest(root: Path) -> None:
    """Lance counts versions down, so that the first name is the newest."""
    _replace(min(root.glob(f"{names.MANIFEST}/_versions/*.manifest")), b"")


def _cut_power(root: Path) -> None:
    _tear_manifest(root)
    (root / names.boot_marker(boot_id())).unlink()


_LAYERS: Mapping[Adversity, Callable[[Path], None]] = {
    Adversity.BRANCHES: _half_create,
    Adversity.DEAD_WRITER: _leave_sidecar,
    Adversity.DAMAGED_DATA: _damage_data,
    Adversity.DAMAGED_DELETION: _damage_deletion,
    Adversity.DAMAGED_KEY_INDEX: _damage_key_index,
    Adversity.DAMAGED_BRANCH_LOG: _damage_branch_log,
    Adversity.DAMAGED_CHECKSUMS: _damage_checksums,
    Adversity.MISSING_DATA: _remove_data,
    Adversity.TORN_MANIFEST: _tear_manifest,
    Adversity.POWER_CUT: _cut_power,
}
"""What is done to a copy; a reader and read-only folders belong to the copy that is used."""

COEXISTING: Final = (
    Adversity.BRANCHES,
    Adversity.DEAD_WRITER,
    Adversity.DAMAGED_DATA,
    Adversity.DAMAGED_DELETION,
    Adversity.DAMAGED_KEY_INDEX,
    Adversity.DAMAGED_BRANCH_LOG,
    Adversity.DAMAGED_CHECKSUMS,
    Adversity.MISSING_DATA,
    Adversity.READER,
)
"""In this order: a victim opens the graph first, which would settle what an earlier one left."""

_DAMAGES: Final = frozenset(
    {
        Adversity.DAMAGED_DATA,
        Adversity.DAMAGED_DELETION,
        Adversity.DAMAGED_KEY_INDEX,
        Adversity.DAMAGED_BRANCH_LOG,
        Adversity.DAMAGED_CHECKSUMS,
        Adversity.MISSING_DATA,
        Adversity.TORN_MANIFEST,
    }
)


def ask(folder: Path, *roots: Path) -> str:
    """What a new process answers about each root, as lines of JSON; see questions.py."""
    listing = folder / "asked.txt"
    listing.write_text("\n".join(map(str, roots)))
    ended = run_module("tests.adversary.questions", str(listing))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def _table(table_key: str) -> str:
    return names.table_location(table_key)


def _largest(root: Path, pattern: str) -> Path:
    return max(sorted(root.glob(pattern)), key=lambda file: file.stat().st_size)


def _newest(root: Path, pattern: str) -> Path:
    return max(sorted(root.glob(pattern)), key=lambda file: file.stat().st_mtime_ns)


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x55
    _replace(file, bytes(content))


def _replace(file: Path, content: bytes) -> None:
    """Give the name to a new file: the old one is linked from the undamaged graph."""
    file.unlink()
    file.write_bytes(content)
