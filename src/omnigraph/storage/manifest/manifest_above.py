"""Publishing above versions of `__manifest` that cannot be read.

Invariant: a rebuilt manifest is put right above the newest stored version, whatever that holds, and
only if that number is free. So no older version is in force at any moment, and no number becomes
free that a late writer could take.

Lance makes the version after that of its handle and reads none in between. A handle of an older
version that has the number of the newest one is all it needs. But it looks how the file of that
version is named, and names a file differently if there is none. So the handle is used only if the
newest version is still the same after it was made: a process that moves it away has put a newer one
first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lance import LanceDataset

from omnigraph import names
from omnigraph.storage.lance.datasets import create_in_memory, dataset_uri
from omnigraph.storage.lance.version_messages import handle_of, message_of, renumbered
from omnigraph.storage.manifest.state import ManifestState
from omnigraph.storage.manifest.survey import stored_versions
from omnigraph.storage.manifest.swap import SwapAnswer, stored_version, swap_manifest
from omnigraph.storage.manifest_rows import ManifestFacts, ManifestRow, encode
from omnigraph.storage.objects.s3_options import for_one_request
from omnigraph.storage.objects.store import stored_objects

if TYPE_CHECKING:
    from omnigraph.storage.objects.location import Root


def swap_above(
    base: ManifestState, newest: int, rows: tuple[ManifestRow, ...], *, operation_id: str
) -> SwapAnswer:
    """Try to put rows that were made from a whole version right above the newest stored one."""
    # The handle that was surveyed may know of the damaged versions above it.
    whole = stored_version(base.root, base.version)
    message = renumbered(message_of(whole.handle), newest)
    above = replace(whole, version=newest, handle=handle_of(whole.handle, newest, message))
    return _swapped(above, rows, operation_id)


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
    return _swapped(nothing, rows, operation_id)


def _swapped(above: ManifestState, rows: tuple[ManifestRow, ...], operation_id: str) -> SwapAnswer:
    versions = stored_versions(stored_objects(above.root), names.MANIFEST)
    if [version for version, _ in versions][:1] != [above.version]:
        return SwapAnswer.REFUSED
    return swap_manifest(above, rows, operation_id=operation_id, stamp=above.stamp)
