"""Sequences of very many small things, held in little memory.

The reports of a load's pieces are such a thing: one takes about two kilobytes as an object and a
tenth of that here, among others like it.

Invariant: iterating holds the items of one part, so work over all of them needs no more memory than
the sequence itself.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, Generic, TypeVar, overload

import msgspec

Item = TypeVar("Item")
Source = TypeVar("Source")

_ITEMS_PER_PART: Final = 64


class _Computed(Sequence[Item], Generic[Item]):
    """A sequence whose items are made when they are asked for."""

    @abstractmethod
    def _item(self, index: int) -> Item:
        """The item at an index from 0 on."""

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self._item(position) for position in positions]
        return self._item(positions)


class Packed(_Computed[Item]):
    """Items that were encoded as msgpack, compressed in parts."""

    def __init__(self, encoded: Iterable[bytes], item: type[Item]) -> None:
        self._decoder = msgspec.msgpack.Decoder(item)
        self._parts: list[bytes] = []
        self._count = 0
        self._last: tuple[int, list[bytes]] = (-1, [])
        items = iter(encoded)
        while part := list(islice(items, _ITEMS_PER_PART)):
            self._parts.append(zlib.compress(msgspec.msgpack.encode(part), 1))
            self._count += len(part)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        for number in range(len(self._parts)):
            for content in self._part(number):
                yield self._decoder.decode(content)

    def _item(self, index: int) -> Item:
        part, position = divmod(index, _ITEMS_PER_PART)
        return self._decoder.decode(self._part(part)[position])

    def _part(self, number: int) -> list[bytes]:
        # Several threads may read: what they share is replaced as a whole.
        last = self._last
        if last[0] != number:
            content = msgspec.msgpack.decode(zlib.decompress(self._parts[number]), type=list[bytes])
            last = self._last = (number, content)
        return last[1]


class Mapped(_Computed[Item], Generic[Source, Item]):
    """Items that are made from others."""

    def __init__(self, sources: Sequence[Source], make: Callable[[Source], Item]) -> None:
        self._sources = sources
        self._make = make

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[Item]:
        return map(self._make, self._sources)

    def _item(self, index: int) -> Item:
        return self._make(self._sources[index])


class Joined(_Computed[Item]):
    """The items of one sequence, then those of another."""

    def __init__(self, first: Sequence[Item], second: Sequence[Item]) -> None:
        self._first = first
        self._second = second

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __iter__(self) -> Iterator[Item]:
        return chain(self._first, self._second)

    def _item(self, index: int) -> Item:
        count = len(self._first)
        return self._first[index] if index < count else self._second[index - count]
