"""Hashes keys, which are the values of one or more columns, to 96 bits.

Multilinear hashing: a key is a list of 32-bit words, and a hash the upper half of the sum, modulo
2^64, of every word times a random multiplier of its place. Three such sums make 96 bits.

Invariants:

- Equal keys have equal hashes in every process and on every platform, whatever the chunks, offsets
  and encodings of their arrays. Both zeros are one value, and so is every NaN.
- Two different keys have equal hashes with a probability of 2^-96 over the choice of the seed,
  whatever the keys are, as long as the seed is secret. Texts of more than 4 KiB are represented by
  their length and their BLAKE2b digest, for which no collision is known.
- Hashes are compared within one operation and never stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

SEED_BYTES: Final = 32
TEXT_BYTES_MAX: Final = 4096
"""Longer texts are hashed by their digests, so that the multipliers stay few."""

_STREAMS: Final = 3
_HALF: Final = np.uint64(32)
_LOWER: Final = np.uint64((1 << 32) - 1)
_WORD_BYTES: Final = 8
_DECIMAL_BYTES: Final = 16
_LENGTH_PLACE: Final = 1
_FIRST_PLACE: Final = 2
_PLACES: Final = _FIRST_PLACE + TEXT_BYTES_MAX // 4
# The working arrays of so many rows fit into the cache of a core.
_ROWS_PER_BLOCK: Final = 16_384
_NEGATIVE_ZERO: Final = np.uint64(1 << 63)
_NAN: Final = np.uint64(0x7FF8 << 48)
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHashes:
    """The hashes of some keys, and which of them have no null."""

    first: np.ndarray
    """64 bits."""
    second: np.ndarray
    """32 bits."""
    present: np.ndarray | None
    """None if no key has a null; the hash of a key with a null means nothing."""


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray], seed: bytes) -> KeyHashes:
    """The hash of every row of some columns of texts, numbers, decimals, Booleans or times."""
    sums = np.zeros((_STREAMS, len(columns[0])), np.uint64)
    present: np.ndarray | None = None
    for number, column in enumerate(columns):
        multipliers = _multipliers(seed, number)
        sums += multipliers[:, :1]
        start = 0
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            _add_values(chunk, seed, multipliers, sums[:, start : start + len(chunk)])
            start += len(chunk)
        if column.null_count:
            is_valid = column.is_valid().to_numpy(zero_copy_only=False)
            present = is_valid if present is None else present & is_valid
    sums >>= _HALF
    first = (sums[0] << _HALF) | sums[1]
    return KeyHashes(first=first, second=sums[2].astype(np.uint32), present=present)


@lru_cache(maxsize=16)
def _multipliers(seed: bytes, column: int) -> np.ndarray:
    """Random numbers by stream and place, different ones for every column of a key."""
    stream = hashlib.shake_256(column.to_bytes(4, "little") + seed)
    numbers = np.frombuffer(stream.digest(_STREAMS * _PLACES * 8), "<u8")
    return numbers.astype(np.uint64).reshape(_STREAMS, _PLACES)


def _add_values(values: pa.Array, seed: bytes, multipliers: np.ndarray, sums: np.ndarray) -> None:
    if pat.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pat.is_string_view(values.type) or pat.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    if pat.is_decimal128(values.type):
        # Columns of one type have one scale, so equal values have equal bytes.
        values = values.view(pa.binary(_DECIMAL_BYTES)).cast(pa.binary())
    blocks = [
        slice(start, start + _ROWS_PER_BLOCK) for start in range(0, len(values), _ROWS_PER_BLOCK)
    ]
    if pat.is_primitive(values.type):
        numbers = _as_integers(values)
        for block in blocks:
            _add_words(numbers[block], _FIRST_PLACE, multipliers, sums[:, block])
        return
    offsets, content = _text_buffers(values)
    for block in blocks:
        bounds = offsets[block.start : block.stop + 1].astype(np.int64)
        text = content[bounds[0] : bounds[-1]]
        _add_texts(text, bounds - bounds[0], seed, multipliers, sums[:, block])


def _as_integers(values: pa.Array) -> np.ndarray:
    """Every value as 64 bits, which are equal for equal values; those of a null mean nothing."""
    kind = values.type
    if pat.is_floating(kind):
        floats = _without_nulls(values.cast(pa.float64()))
        bits = floats.view(np.uint64).copy()
        bits[bits == _NEGATIVE_ZERO] = 0
        bits[np.isnan(floats)] = _NAN
        return bits
    if pat.is_unsigned_integer(kind) or pat.is_boolean(kind):
        return _without_nulls(values.cast(pa.uint64()))
    if pat.is_date32(kind) or pat.is_time32(kind):
        values = values.cast(pa.int32())
    return _without_nulls(values.cast(pa.int64())).view(np.uint64)


def _without_nulls(numbers: pa.Array) -> np.ndarray:
    filled: np.ndarray = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    return filled


def _text_buffers(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where every text begins and where the last one ends, and the bytes of all."""
    wide = pat.is_large_string(values.type) or pat.is_large_binary(values.type)
    assert wide or pat.is_string(values.type) or pat.is_binary(values.type), values.type
    _, offset_buffer, content = values.buffers()
    kind = np.dtype(np.int64 if wide else np.int32)
    offsets = (
        np.frombuffer(offset_buffer, kind, len(values) + 1, values.offset * kind.itemsize)
        if len(values)
        else np.zeros(1, kind)
    )
    return offsets, np.frombuffer(content or b"", np.uint8)


def _add_texts(
    text: np.ndarray, bounds: np.ndarray, seed: bytes, multipliers: np.ndarray, sums: np.ndarray
) -> None:
    """Add the lengths and the words of texts, which are parts of one text."""
    starts, lengths = bounds[:-1].copy(), np.diff(bounds)
    length_words = np.minimum(lengths, int(_LOWER)).astype(np.uint64)
    sums += length_words * multipliers[:, _LENGTH_PLACE, np.newaxis]
    digests = bytearray()
    for row in np.flatnonzero(lengths > TEXT_BYTES_MAX).tolist():
        digest = hashlib.blake2b(text[bounds[row] : bounds[row + 1]].data, key=seed).digest()
        starts[row], lengths[row] = len(text) + len(digests), len(digest)
        digests += digest
    padding = np.zeros(_WORD_BYTES, np.uint8)
    padded = np.concatenate([text, np.frombuffer(digests, np.uint8), padding])
    # The 8 bytes from any byte on, as a number.
    words = np.ndarray(len(padded) - _WORD_BYTES + 1, "<u8", padded, strides=(1,))
    _add_text_words(words, starts, lengths, _FIRST_PLACE, multipliers, sums)


def _add_text_words(
    words: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    place: int,
    multipliers: np.ndarray,
    sums: np.ndarray,
) -> None:
    """Add the words of texts, as if all were as long as the longest: a zero adds nothing.

    Texts of more than twice the mean are finished on their own, for which the others need not wait:
    they are less than half of all.
    """
    longest, mean = int(lengths.max()), -(-int(lengths.sum()) // len(lengths))
    shortest = int(lengths.min())
    first, last = int(starts[0]), int(starts[-1])
    has_one_length = shortest == longest and last - first == longest * (len(starts) - 1)
    done = 0
    while done < min(longest, 2 * mean):
        if has_one_length:
            chosen = words[first + done : last + done + 1 : longest]  # much faster than by index
        else:
            chosen = words[np.minimum(starts + done, len(words) - 1)]
        if done + _WORD_BYTES > shortest:
            chosen = chosen & _MASKS.take(lengths - done, mode="clip")
        _add_words(chosen, place + done // 4, multipliers, sums)
        done += _WORD_BYTES
    longer = np.flatnonzero(lengths > done)
    if len(longer):
        rest = np.zeros((_STREAMS, len(longer)), np.uint64)
        # Work on few rows costs its calls: one per word, or some per row, whichever are fewer.
        add = _add_single_texts if 2 * len(longer) < longest - done else _add_text_words
        add(
            words,
            starts[longer] + done,
            lengths[longer] - done,
            place + done // 4,
            multipliers,
            rest,
        )
        sums[:, longer] += rest


def _add_single_texts(
    words: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    place: int,
    multipliers: np.ndarray,
    sums: np.ndarray,
) -> None:
    for row, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        chosen = words[start : start + length : _WORD_BYTES].copy()
        chosen[-1] &= _MASKS[(length - 1) % _WORD_BYTES + 1]
        halves = chosen.view("<u4").astype(np.uint64)
        sums[:, row] += (multipliers[:, place : place + len(halves)] * halves).sum(axis=1)


def _add_words(words: np.ndarray, place: int, multipliers: np.ndarray, sums: np.ndarray) -> None:
    """Add one 64-bit word of every key as two words of 32 bits."""
    product = np.empty_like(sums)
    for offset, half in enumerate((words & _LOWER, words >> _HALF)):
        np.multiply(half, multipliers[:, place + offset, np.newaxis], out=product)
        sums += product
