"""The log of a name: small objects, each decided by one put-if-absent; the last one counts.

Invariant: an entry never changes and never disappears, but for a forced initialisation that deposes
a dead claim of `main` before any graph exists. What a name refers to exists while the last entry of
its log says `ready`, so processes that create and delete at once are put in order by the store.

    creating    claimed: what it needs is protected from now on, but must not be relied on yet
    ready       its creator has looked at everything after the claim: it lives
                (an upgrade may repeat it, in the form of a new format)
    abandoned   takes the place of `ready` if the creator failed or seems dead; it never lives then
    deleted     it is gone; what is created next under this name is another

No process finishes what another began.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError, OutcomeUnknownError, StorageUnavailableError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.objects.documents import MALFORMED, digest_of_values, parsed
from omnigraph_lake.storage.objects.durability import make_durable
from omnigraph_lake.storage.objects.failures import Failure, failure_of
from omnigraph_lake.storage.objects.location import stored_path
from omnigraph_lake.storage.objects.store import Objects, Put, read_all


class Ref(Protocol):
    """What an entry holds besides its state: a dataclass of plain values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


_DIGEST: Final = "digest"
_FORMAT: Final = "format"

RefT = TypeVar("RefT", bound=Ref)


class RefState(StrEnum):
    """What an entry of a log says."""

    CREATING = "creating"
    READY = "ready"
    ABANDONED = "abandoned"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefKind(Generic[RefT]):
    """One kind of names: where their logs are, and how an entry is read."""

    thing: str
    directory: str
    post_abandon: str
    decoded: Callable[[Mapping[str, Any]], RefT]
    named: Callable[[RefT], str]
    """The name whose log an entry belongs to."""
    paths: Callable[[RefT], Iterable[str]]
    """What an entry says that becomes a part of a path."""
    format: int | None = None
    """Said by every entry; releases that know no such field cannot read an entry that has it."""


@dataclass(frozen=True, kw_only=True)  # `RefLog[Tag](...)` fails on frozen slots in Python 3.11
class RefLog(Generic[RefT]):
    """The end of a name's log: how many entries there are, and what the last one says."""

    name: str
    last: int
    state: RefState | None
    ref: RefT | None

    @property
    def living(self) -> RefT | None:
        """The living reference, which may be relied on."""
        return self.ref if self.state is RefState.READY else None

    @property
    def claimed(self) -> RefT | None:
        """What removals must keep: it exists, or may exist soon."""
        return self.ref if self.state in {RefState.READY, RefState.CREATING} else None


def read_log(objects: Objects, kind: RefKind[RefT], name: str) -> RefLog[RefT]:
    later = objects.list(names.later_ref_entries(kind.directory, name))
    last = max((number for _, number in _entries(kind, later)), default=1)
    content = objects.read(names.ref_entry(kind.directory, name, last))
    return _log(kind, name, last, content)


def read_logs(objects: Objects, kind: RefKind[RefT]) -> Mapping[str, RefLog[RefT]]:
    """Every log by name; those that change meanwhile may be older or newer than others."""
    return _logs(objects, kind, objects.list(kind.directory))


def steady_logs(objects: Objects, kind: RefKind[RefT]) -> Mapping[str, RefLog[RefT]]:
    """Every log by name, all as they were at one moment.

    A listing takes time, and may miss a new log and see another end that was needed until then.
    Entries are only ever added, so two equal listings describe a moment between them.
    """
    listed = objects.list(kind.directory)
    while (again := objects.list(kind.directory)) != listed:
        listed = again
    return _logs(objects, kind, listed)


def append_to(
    objects: Objects, kind: RefKind[RefT], log: RefLog[RefT], ref: RefT, state: RefState
) -> bool:
    """Put the next entry of a log; False if another process put another one there.

    Raises:
        OutcomeUnknownError: the store stopped responding while the entry was put.
    """
    path = names.ref_entry(kind.directory, log.name, log.last + 1)
    content = encoded(kind, ref, state, path)
    make_durable(objects.root)  # what the entry speaks of
    try:
        # A store may repeat a put whose answer was lost, and then find our own object.
        is_ours = (
            objects.put_if_absent(path, content) is Put.CREATED or objects.read(path) == content
        )
        make_durable(objects.root)
    except StorageUnavailableError as error:
        seen = state in {RefState.READY, RefState.DELETED}
        if not seen or failure_of(error.__cause__ or error) is not Failure.UNREACHABLE:
            raise
        raise OutcomeUnknownError(
            f"the store stopped responding while {kind.thing} {log.name!r} of {objects.root} "
            f"became {state.value}",
            next_step=f"Look whether it is among the {kind.thing} names when the store responds.",
        ) from error
    return is_ours


def free_log(objects: Objects, kind: RefKind[RefT], name: str) -> RefLog[RefT] | None:
    """The log of a name that nothing has; None if something has it.

    A creation that has not ended is abandoned: its creator, if alive, gets an error.
    """
    log = read_log(objects, kind, name)
    if log.state is RefState.CREATING:
        assert log.ref is not None
        append_to(objects, kind, log, log.ref, RefState.ABANDONED)
        reach(kind.post_abandon)
        log = read_log(objects, kind, name)
    return log if log.claimed is None else None


def encoded(kind: RefKind[RefT], ref: RefT, state: RefState, path: str) -> bytes:
    """An entry for a path; its digest distinguishes it from an entry of another path."""
    fields = {**asdict(ref), "state": state.value}
    if kind.format is not None:
        fields[_FORMAT] = kind.format
    digest = digest_of_values([path, fields])
    return json.dumps({**fields, _DIGEST: digest}, sort_keys=True).encode()


def decoded(kind: RefKind[RefT], path: str, content: bytes) -> tuple[RefState, RefT]:
    """What an entry says; one that is older than the states is ready."""
    ((name, _),) = _entries(kind, [path])
    try:
        fields = dict(parsed(content))
        _require_digest(fields.pop(_DIGEST, None), path, fields)
        state = RefState(fields.pop("state", RefState.READY))
        fields.pop(_FORMAT, None)
        ref = kind.decoded(fields)
        paths = tuple(kind.paths(ref))
        if kind.named(ref) != name:
            raise ValueError(f"it belongs to {kind.named(ref)!r:.80}")
    except MALFORMED as error:
        raise DamagedGraphError(
            f"the claim of {kind.thing} {name!r} cannot be parsed: {error!r}",
            next_step=f"Restore {path} from a backup of the graph's root.",
        ) from error
    for part in paths:
        stored_path(part, said_by=path)
    return state, ref


def broken_entries(objects: Objects, kind: RefKind[RefT]) -> Iterator[tuple[str, str]]:
    """Entries of logs that cannot be read or are missing between others: their paths, and why."""
    paths = objects.list(kind.directory)
    entries = [path for path in paths if names.ref_entry_at(kind.directory, path) is not None]
    numbers: dict[str, set[int]] = {}
    for name, number in _entries(kind, entries):
        numbers.setdefault(name, {0}).add(number)
    for path, content in read_all(objects, entries).items():
        try:
            if content is not None:
                decoded(kind, path, content)
        except DamagedGraphError as error:
            yield path, error.what
    for name, present in numbers.items():
        for before, after in pairwise(sorted(present)):
            first, last = before + 1, after - 1
            path = names.ref_entry(kind.directory, name, first)
            if first == last:
                yield path, f"entry {first} of {kind.thing} {name!r} is missing"
            elif first < last:
                yield path, f"entries {first} to {last} of {kind.thing} {name!r} are missing"


def _require_digest(expected: object, path: str, fields: Mapping[str, Any]) -> None:
    """Entries of formats before 7 have no digest."""
    digest = digest_of_values([path, fields])
    if expected not in (None, digest):
        raise ValueError(f"its digest is {digest}, expected {expected!r:.80}")


def _logs(
    objects: Objects, kind: RefKind[RefT], listed: Iterable[str]
) -> Mapping[str, RefLog[RefT]]:
    last: dict[str, int] = {}
    for name, number in _entries(kind, listed):
        last[name] = max(number, last.get(name, 0))
    ends = {name: names.ref_entry(kind.directory, name, last[name]) for name in sorted(last)}
    contents = read_all(objects, tuple(ends.values()))
    return {name: _log(kind, name, last[name], contents[path]) for name, path in ends.items()}


def _entries(kind: RefKind[RefT], paths: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The names and numbers of the entries among paths; other files are none."""
    for path in paths:
        entry = names.ref_entry_at(kind.directory, path)
        if entry is not None:
            yield entry


def _log(kind: RefKind[RefT], name: str, last: int, content: bytes | None) -> RefLog[RefT]:
    path = names.ref_entry(kind.directory, name, last)
    if content is None:
        return RefLog(name=name, last=0, state=None, ref=None)
    state, ref = decoded(kind, path, content)
    return RefLog(name=name, last=last, state=state, ref=ref)
