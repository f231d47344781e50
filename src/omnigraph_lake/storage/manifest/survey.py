"""Finds the versions of `__manifest` that can be read, and publishes above those that cannot.

The survey reads only. A store that does not answer, or refuses the request, is not damage: its
error is passed on.

To publish above damaged versions: Lance makes the version after that of its handle and reads none
in between, so it needs only a handle of an older version that has the number of the newest one. But
it looks how the file of that version is named, and names a file differently if there is none. So
the handle is used only if the newest version is still the same after it was made: a process that
moves it away has put a newer one first.

Invariants:

- Nothing is believed that is not proven. A version is whole if all of it can be read and its rows
  have their digest. The rows of a damaged one are believed if the file that holds them has that
  digest, and no other file was ever offered for the same version.
- A rebuilt manifest is put right above the newest stored version, whatever that holds, and only if
  that number is free. So no older version is in force at any moment, and no number becomes free
  that a late writer could take.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

from lance import LanceDataset
from lance.file import LanceFileReader

from omnigraph_lake import errors, names
from omnigraph_lake.storage.lance.base_paths import handle_of, message_of, renumbered
from omnigraph_lake.storage.lance.datasets import create_in_memory, dataset_uri, translated
from omnigraph_lake.storage.manifest.state import ManifestState
from omnigraph_lake.storage.manifest.swap import SwapAnswer, is_whole, stored_version, swap_manifest
from omnigraph_lake.storage.manifest_rows import (
    ManifestFacts,
    ManifestRow,
    decode,
    encode,
    facts_of,
)
from omnigraph_lake.storage.objects.containment import require_inside
from omnigraph_lake.storage.objects.failures import Failure, failure_of
from omnigraph_lake.storage.objects.location import Root, Scheme
from omnigraph_lake.storage.objects.s3_options import for_one_request
from omnigraph_lake.storage.objects.store import Objects, stored_objects

_DATA_FILE: Final = re.compile(rb"([01]{24}[0-9a-f]{26}\.lance)")
"""How Lance names data files; a transaction spells those that it brings."""
_REASON_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedVersion:
    """A version of the manifest that cannot be read, and why."""

    version: int
    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvaged:
    """What a damaged version said, from the file that holds its rows."""

    version: int
    facts: ManifestFacts
    rows: tuple[ManifestRow, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSurvey:
    """The newest version of main's manifest that is whole, and those above it that are damaged.

    `salvaged` is the newest of the damaged ones whose rows could be read all the same.
    """

    whole: ManifestState | None
    damaged: tuple[DamagedVersion, ...]
    salvaged: Salvaged | None


def survey_manifest(objects: Objects) -> ManifestSurvey:
    """Look at versions of main's manifest, newest first, until one is whole.

    Raises:
        StorageUnavailableError: the store does not respond, or does not let us read.
    """
    damaged: list[DamagedVersion] = []
    salvaged: Salvaged | None = None
    for version, path in stored_versions(objects, names.MANIFEST):
        try:
            state = _whole(objects.root, version)
        except (errors.DamagedGraphError, errors.StorageUnavailableError) as error:
            if not is_damage(error):
                raise
            damaged.append(DamagedVersion(version=version, path=path, reason=_reason(error)))
            salvaged = salvaged or _salvage(objects, version)
        else:
            return ManifestSurvey(whole=state, damaged=tuple(damaged), salvaged=salvaged)
    return ManifestSurvey(whole=None, damaged=tuple(damaged), salvaged=salvaged)


def damaged_below(objects: Objects, version: int) -> tuple[DamagedVersion, ...]:
    """The damaged ones among the versions of main's manifest below a whole one, newest first."""
    damaged: list[DamagedVersion] = []
    for number, path in stored_versions(objects, names.MANIFEST):
        if number < version:
            try:
                stored_version(objects.root, number)
            except (errors.DamagedGraphError, errors.StorageUnavailableError) as error:
                if not is_damage(error):
                    raise
                damaged.append(DamagedVersion(version=number, path=path, reason=_reason(error)))
    # Old versions may be removed while they are looked at.
    stored = {number for number, _ in stored_versions(objects, names.MANIFEST)} if damaged else ()
    return tuple(old for old in damaged if old.version in stored)


def stored_versions(objects: Objects, place: str) -> tuple[tuple[int, str], ...]:
    """The versions that a dataset has files of, readable or not, newest first, with their paths."""
    paths = objects.list(names.lance_versions(place))
    numbered = ((names.lance_version_at(path), path) for path in paths)
    return tuple(
        sorted(((number, path) for number, path in numbered if number is not None), reverse=True)
    )


def is_damage(error: errors.OmnigraphError) -> bool:
    """Whether the stored data is damaged, not the store or the access to it."""
    if not isinstance(error, errors.StorageUnavailableError):
        return isinstance(error, errors.DamagedGraphError)
    return failure_of(error.__cause__ or error) is Failure.OTHER


def _whole(root: Root, version: int) -> ManifestState:
    if root.scheme is Scheme.LOCAL and not is_whole(root, None, version):
        raise errors.DamagedGraphError(
            "it is empty or truncated, or a file that it names is missing"
        )
    return stored_version(root, version)


def _salvage(objects: Objects, version: int) -> Salvaged | None:
    """The rows of a damaged version, if only one file was ever offered for it.

    Lance writes the rows and a transaction that names their file before it makes the version.
    Several writers may have tried to make the same version; then it is not known whose rows it had.
    """
    offered = {
        file.decode()
        for path in objects.list(names.lance_transactions(names.MANIFEST).rstrip("/"))
        if path.startswith(names.lance_transactions(names.MANIFEST, version - 1))
        for file in _DATA_FILE.findall(objects.read(path) or b"")
    }
    if len(offered) != 1:
        return None
    root = objects.root
    path = names.lance_data(names.MANIFEST, offered.pop())
    try:
        with translated(root, f"read {path}"):
            require_inside(root, path)
            reader = LanceFileReader(
                root.child(path), storage_options=for_one_request(root.storage_options) or None
            )
            table = reader.read_all().to_table()
        facts = facts_of(table.schema)
        if facts.stamp < names.STAMP_OF_DIGESTS:
            return None
        if facts.stamp > names.STAMP:
            raise errors.FormatTooNewError(root.uri, found=facts.stamp, supported=names.STAMP)
        return Salvaged(version=version, facts=facts, rows=decode(table))
    except (errors.DamagedGraphError, errors.StorageUnavailableError) as error:
        if not is_damage(error):
            raise
        return None


def _reason(error: errors.OmnigraphError) -> str:
    return error.what.splitlines()[0][:_REASON_MAX]


def swap_above(
    base: ManifestState, newest: int, rows: tuple[ManifestRow, ...], *, operation_id: str
) -> SwapAnswer:
    """Try to put rows that were made from a whole version right above the newest stored one."""
    # The handle that was surveyed may know of the damaged versions above it.
    state = stored_version(base.root, base.version)
    message = renumbered(message_of(state.handle), newest)
    above = replace(state, version=newest, handle=handle_of(state.handle, newest, message))
    return _swap(above, rows, operation_id)


def put_above(
    root: Root,
    newest: int,
    rows: tuple[ManifestRow, ...],
    facts: ManifestFacts,
    *,
    operation_id: str,
) -> SwapAnswer:
    """Try to put rows right above the newest stored version, though none is whole."""
    root = replace(root, durability=facts.durability)
    first = create_in_memory(encode(rows, facts))
    handle = LanceDataset(
        dataset_uri(root, names.MANIFEST, None),
        version=newest,
        storage_options=for_one_request(root.storage_options) or None,
        serialized_manifest=renumbered(message_of(first), newest),
    )
    nothing = ManifestState(
        ref=None, version=newest, facts=facts, rows=(), handle=handle, root=root
    )
    return _swap(nothing, rows, operation_id)


def _swap(above: ManifestState, rows: tuple[ManifestRow, ...], operation_id: str) -> SwapAnswer:
    versions = stored_versions(stored_objects(above.root), names.MANIFEST)
    if [version for version, _ in versions][:1] != [above.version]:
        return SwapAnswer.REFUSED
    return swap_manifest(above, rows, operation_id=operation_id, stamp=above.stamp)
