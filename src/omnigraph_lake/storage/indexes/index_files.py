"""Reads from the files of a text index how long its texts are and how many of them hold a token.

Lance has no call for either. Each partition of an index lists its texts with their numbers of
tokens, numbers its tokens by an automaton, and lists by these numbers how many texts hold each.

Invariants:
- Counts are those of all texts that the index was built from, deleted ones included.
- Files that are not laid out as expected give None: the caller asks the index instead.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from omnigraph_lake.storage.objects.s3_options import for_one_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from omnigraph_lake.storage.objects.location import Root

_UNEXPECTED: Final = (OSError, ValueError, KeyError, TypeError, IndexError)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLengths:
    """The texts with a token that an index was built from: their row ids and numbers of tokens."""

    row_ids: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHolders:
    """How many texts of an index hold each token."""

    partitions: tuple[tuple[Automaton, npt.NDArray[np.uint32]], ...] = field(repr=False)

    def count(self, token: str) -> int:
        key = token.encode()
        numbered = ((automaton.find(key), counts) for automaton, counts in self.partitions)
        return sum(int(counts[number]) for number, counts in numbered if number is not None)


def document_lengths(root: Root, folders: Sequence[str]) -> DocumentLengths | None:
    """The texts of an index whose segments have these folders."""
    columns = ["_rowid", "_num_tokens"]
    try:
        prefixes = _partitions(root, folders)
        tables = [_read(root, f"{prefix}_docs.lance", columns) for prefix in prefixes]
    except _UNEXPECTED:
        return None
    lengths = pa.concat_tables(tables) if tables else None
    if lengths is None or lengths.schema.types != [pa.uint64(), pa.uint32()]:
        return None
    row_ids, counts = (column.to_numpy() for column in lengths.columns)
    return DocumentLengths(row_ids=row_ids, lengths=counts)


def token_holders(root: Root, folders: Sequence[str]) -> TokenHolders | None:
    """How many texts hold each token, of an index whose segments have these folders."""
    partitions: list[tuple[Automaton, npt.NDArray[np.uint32]]] = []
    try:
        for prefix in _partitions(root, folders):
            (numbering,) = _read(root, f"{prefix}_tokens.lance", ["_token_fst_bytes"]).to_pylist()
            automaton = open_automaton(numbering["_token_fst_bytes"])
            counts = _read(root, f"{prefix}_invert.lance", ["_length"]).column(0)
            if automaton is None or counts.type != pa.uint32() or len(counts) != automaton.size:
                return None
            partitions.append((automaton, counts.to_numpy()))
    except _UNEXPECTED:
        return None
    return TokenHolders(partitions=tuple(partitions))


def _partitions(root: Root, folders: Sequence[str]) -> list[str]:
    """What the names of the files of each partition begin with."""
    options = for_one_request(root.storage_options) or None
    prefixes: list[str] = []
    for folder in folders:
        about = LanceFileReader(f"{folder}/metadata.lance", storage_options=options).metadata()
        numbers = json.loads(about.schema.metadata[b"partitions"])
        prefixes += [f"{folder}/part_{int(number)}" for number in numbers]
    return prefixes


def _read(root: Root, path: str, columns: list[str]) -> pa.Table:
    options = for_one_request(root.storage_options) or None
    reader = LanceFileReader(path, storage_options=options, columns=columns)
    return reader.read_all().to_table().select(columns)


_VERSION: Final = 3
_HEADER_BYTES: Final = 16
_FOOTER_BYTES: Final = 20
_FREQUENT: Final = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"
"""A node with one transition has the place of its byte in this list, from 1 on, or 0."""
_ONE_NEXT: Final = 0b11
_ONE: Final = 0b10
_FINAL: Final = 0b01
_PLACE_BITS: Final = 0b111111
_INDEXED_ABOVE: Final = 32
_INDEX_BYTES: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Automaton:
    """Numbers of byte strings, in version 3 of the format of the `fst` library of Rust.

    A node is addressed by its last byte and read backwards; the node at 0 is final and empty. The
    number of a string is the sum of the outputs on its way.
    """

    content: bytes = field(repr=False)
    root: int
    size: int

    def find(self, key: bytes) -> int | None:
        """The number of a string; None if it is not in the automaton."""
        address, number = self.root, 0
        for byte in key:
            transition = self._follow(address, byte)
            if transition is None:
                return None
            address, output = transition
            number += output
        final_output = self._final_output(address)
        return None if final_output is None else number + final_output

    def _follow(self, address: int, byte: int) -> tuple[int, int] | None:
        """The node behind the transition of a byte, and the output of the transition."""
        if address == 0:
            return None
        content, state = self.content, self.content[address]
        if state >> 6 not in (_ONE, _ONE_NEXT):
            return self._choose(address, byte)
        place = state & _PLACE_BITS
        at = address if place else address - 1
        if byte != (_FREQUENT[place - 1] if place else content[at]):
            return None
        if state >> 6 == _ONE_NEXT:
            return at - 1, 0
        at -= 1
        step_size, output_size = content[at] >> 4, content[at] & 0xF
        step = self._number(at - step_size, step_size)
        end = at - step_size - output_size
        return (end - step if step else 0), self._number(end, output_size)

    def _choose(self, address: int, byte: int) -> tuple[int, int] | None:
        """The same for a node with any number of transitions."""
        count, at, step_size, output_size = self._layout(address)
        inputs = at - count
        if count > _INDEXED_ABOVE:
            place = self.content[at + byte]
            if place >= count:
                return None
        else:
            found_at = self.content.find(byte, inputs, at)
            if found_at < 0:
                return None
            place = at - 1 - found_at  # they are listed backwards
        steps = inputs - count * step_size
        outputs = steps - count * output_size
        is_final = self.content[address] >> 6 == _FINAL
        end = outputs - (output_size if is_final else 0)
        step = self._number(inputs - (place + 1) * step_size, step_size)
        output = self._number(steps - (place + 1) * output_size, output_size)
        return (end - step if step else 0), output

    def _final_output(self, address: int) -> int | None:
        """What is added where a string ends; None if none ends here."""
        if address == 0:
            return 0
        if self.content[address] >> 6 != _FINAL:
            return None
        count, at, step_size, output_size = self._layout(address)
        end = at - count * (1 + step_size + output_size) - output_size
        return self._number(end, output_size)

    def _layout(self, address: int) -> tuple[int, int, int, int]:
        """Transitions of a node, where their bytes end, the sizes of an address and an output."""
        content = self.content
        count = content[address] & _PLACE_BITS
        at = address
        if not count:
            at -= 1
            # No node has 1 transition in this form, so 1 means all 256.
            count = _INDEX_BYTES if content[at] == 1 else content[at]
        at -= 1
        sizes = content[at]
        if count > _INDEXED_ABOVE:
            at -= _INDEX_BYTES
        return count, at, sizes >> 4, sizes & 0xF

    def _number(self, start: int, size: int) -> int:
        return int.from_bytes(self.content[start : start + size], "little")


def open_automaton(content: bytes) -> Automaton | None:
    """None if the content has another format."""
    if len(content) < _HEADER_BYTES + _FOOTER_BYTES:
        return None
    version = int.from_bytes(content[:8], "little")
    footer = content[-_FOOTER_BYTES:]
    size, root = int.from_bytes(footer[:8], "little"), int.from_bytes(footer[8:16], "little")
    if version != _VERSION or root >= len(content) - _FOOTER_BYTES:
        return None
    return Automaton(content=content, root=root, size=size)
