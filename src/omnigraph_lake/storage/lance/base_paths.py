"""Locates the files of a version below the current root, also after the graph was moved.

A fork shares files with what it was forked from, and Lance names those by the full address they had
when the fork was made. Everything that it shares lies in the folder of the same dataset, so the
part of an address below that folder is true wherever the graph is now. The addresses are exchanged
in the message of a version: the version as Lance stores it and sends it to other processes.

Invariants:

- A handle reads files below the root that it was opened at, and no others: not even those of an
  original that is still there.
- Nothing is written for that. A version that is made from such a handle names the new address by
  itself, and a version that names the old one is read in the same way again.
- What is not exchanged in a message stays byte for byte.
- A handle that is made of a message does not read the store before it is asked for rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lance import LanceDataset

from omnigraph_lake import names
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.storage.objects.containment import require_bases_inside

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from omnigraph_lake.storage.objects.location import Root


_VERSION: Final = 3
"""The field with the number of the version."""
_HIGHEST_FRAGMENT: Final = 11
"""The field with the highest number that a fragment ever had."""
_NUMBER, _BYTES = 0, 2
"""Kinds of fields."""


def message_of(handle: LanceDataset) -> bytes:
    """The version as Lance sends it to another process."""
    return bytes(handle._ds.serialized_manifest())  # noqa: SLF001


def handle_of(
    dataset: LanceDataset,
    version: int,
    message: bytes,
    *,
    session: Any = None,
    uri: str | None = None,
) -> LanceDataset:
    """A handle at the address of another one, or elsewhere, on the version that a message tells."""
    return LanceDataset(
        uri or dataset.uri,
        version=version,
        storage_options=dataset._storage_options,  # noqa: SLF001
        serialized_manifest=message,
        session=session,
    )


def highest_fragment_id(handle: LanceDataset) -> int | None:
    """The highest number of a fragment that the table ever had; None if it had none."""
    for number, _, content in fields_of(message_of(handle)):
        if number == _HIGHEST_FRAGMENT:
            return number_at(content, 0)[0]
    return None


def renumbered(message: bytes, version: int) -> bytes:
    """The message of a version with another number."""
    number = as_varint(_VERSION << 3 | _NUMBER) + as_varint(version)
    return b"".join(
        number if at == _VERSION else field_bytes for at, field_bytes, _ in fields_of(message)
    )


def fields_of(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The number, all bytes and the content of every field of a protobuf message."""
    position = 0
    while position < len(message):
        start = position
        tag, position = number_at(message, position)
        content_at = position
        match tag & 7:
            case 0:
                _, position = number_at(message, position)
            case 1:
                position += 8
            case 2:
                length, content_at = number_at(message, position)
                position = content_at + length
            case 5:
                position += 4
            case kind:
                raise ValueError(f"a version has a field of kind {kind}")
        yield tag >> 3, message[start:position], message[content_at:position]


def field(number: int, content: bytes) -> bytes:
    return as_varint(number << 3 | _BYTES) + as_varint(len(content)) + content


def number_at(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def as_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_BASE_PATHS: Final = 18
"""The field of a version that has one message for each place with files of its own."""
_TRANSACTION: Final = 12
"""The field of a version with the name of the file that has its transaction."""
_ADDRESS: Final = 4
"""The field of such a message that names the place."""


def below_root(root: Root, handle: LanceDataset, *, session: Any = None) -> LanceDataset:
    """The handle, or one of the same version whose shared files are below this root.

    Raises:
        DamagedGraphError: it names files that are in no folder of its dataset.
    """
    moved = _moved(root, handle)
    if moved:
        message = _exchanged(message_of(handle), moved)
        handle = handle_of(handle, handle.version, message, session=session)
    require_bases_inside(root, handle)
    return handle


def names_former_root(root: Root, handle: LanceDataset) -> bool:
    """Whether a version, opened by Lance itself, names an address that the graph had before."""
    return bool(_moved(root, handle))


def places_of_files(root: Root, handle: LanceDataset) -> Mapping[int | None, str]:
    """The folders, relative to the root, that hold files of a version, by what its files name."""
    bases = {number: base.path for number, base in handle.base_paths().items()}
    places: dict[int | None, str] = {None: _relative(root, handle, handle.uri)}
    return places | {number: _relative(root, handle, path) for number, path in bases.items()}


def transaction_file(handle: LanceDataset) -> str | None:
    """The name of the file with the transaction that made a version; None if it names none."""
    fields = fields_of(message_of(handle))
    return next((value.decode() for number, _, value in fields if number == _TRANSACTION), None)


def _moved(root: Root, handle: LanceDataset) -> dict[str, str]:
    """The addresses that a version names and that are not below the root, with what they are."""
    addresses = [base.path for base in handle.base_paths().values()]
    current = {address: root.child(_relative(root, handle, address)) for address in addresses}
    return {old: new for old, new in current.items() if old != new}


def _relative(root: Root, handle: LanceDataset, address: str) -> str:
    place = str(handle.uri).removeprefix(f"{root.uri}/")
    location = names.dataset_of_place(place)
    if address == handle.uri:
        return place
    if address.endswith(f"/{location}"):
        return location
    _, is_fork, fork = address.rpartition(f"/{names.forks_folder(location)}/")
    if is_fork and not {"", ".", ".."}.intersection(fork.split("/")):
        return names.fork_location(location, fork)
    raise DamagedGraphError(
        f"version {handle.version} of {handle.uri} names files at {address}, which is no folder of "
        f"{location}; nothing there was read",
        next_step=f"Restore {location} from a backup, or run `omnigraph check {root}`.",
    )


def _exchanged(version: bytes, moved: dict[str, str]) -> bytes:
    """The message of a version with other addresses, and everything else as it is."""
    exchanged = bytearray()
    for number, field_bytes, content in fields_of(version):
        if number != _BASE_PATHS:
            exchanged += field_bytes
            continue
        base = bytearray()
        for part, part_bytes, value in fields_of(content):
            address = value.decode() if part == _ADDRESS else ""
            base += field(part, moved[address].encode()) if address in moved else part_bytes
        exchanged += field(number, bytes(base))
    return bytes(exchanged)
