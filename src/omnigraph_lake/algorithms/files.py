"""Arrays of numbers as files of a run, which its tasks exchange and which a resumed run reads.

Invariant: a file is read exactly as it was written, or refused: its checksum is compared, because a
power cut may leave a file that was not synced.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph_lake.errors import ConflictError

if TYPE_CHECKING:
    from omnigraph_lake.runner.shuffle import Scratch

_WORD: Final = 8
_Header = list[tuple[str, str, int]]


def put_arrays(scratch: Scratch, name: str, arrays: Mapping[str, np.ndarray]) -> str:
    """Write some arrays as one file; returns its path."""
    header: _Header = [(key, array.dtype.str, len(array)) for key, array in arrays.items()]
    encoded = msgspec.msgpack.encode(header)
    parts = [len(encoded).to_bytes(_WORD, "little"), _pad(encoded)]
    parts += [_pad(np.ascontiguousarray(array).tobytes()) for array in arrays.values()]
    return put_checked(scratch, name, b"".join(parts))


def read_arrays(scratch: Scratch, path: str) -> dict[str, np.ndarray]:
    """The arrays of a file; they cannot be written to."""
    content = read_checked(scratch, path)
    size = int.from_bytes(content[:_WORD].to_pybytes(), "little")
    header = msgspec.msgpack.decode(content[_WORD : _WORD + size].to_pybytes(), type=_Header)
    start = _WORD + _room(size)
    arrays: dict[str, np.ndarray] = {}
    for name, kind, count in header:
        dtype = np.dtype(kind)
        arrays[name] = np.frombuffer(content, dtype, count, start)
        start += _room(count * dtype.itemsize)
    return arrays


def put_texts(scratch: Scratch, name: str, texts: pa.Array) -> str:
    """Write a column of texts as one file; returns its path."""
    return put_checked(scratch, name, encode_texts(texts))


def read_texts(scratch: Scratch, path: str) -> pa.Array:
    return decode_texts(read_checked(scratch, path))


def encode_texts(texts: pa.Array) -> bytes:
    return encode_rows(pa.RecordBatch.from_arrays([texts], names=["text"]))


def decode_texts(content: pa.Buffer | bytes) -> pa.Array:
    (batch,) = decode_rows(content)
    return batch.column(0)


def encode_rows(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_rows(content: pa.Buffer | bytes) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(content) as stream:
        return list(stream)


def put_checked(scratch: Scratch, name: str, content: bytes) -> str:
    # Random, because a second attempt must not overwrite a file that the first has reported.
    unique = f"{name}-{secrets.token_hex(6)}"
    path = scratch.put(unique, content + zlib.crc32(content).to_bytes(_WORD, "little"))
    scratch.require_open([path])
    return path


def read_checked(scratch: Scratch, path: str) -> pa.Buffer:
    stored = scratch.read(path)
    content = stored[: max(0, stored.size - _WORD)]
    checksum = stored[content.size :].to_pybytes()
    if checksum != zlib.crc32(content).to_bytes(_WORD, "little"):
        raise ConflictError(
            f"{path} is not as the run wrote it: {stored.size} bytes with another checksum",
            next_step="Run it again under a new operation id: this run cannot be resumed.",
        )
    return content


def _room(size: int) -> int:
    return -(-size // _WORD) * _WORD


def _pad(content: bytes) -> bytes:
    return content.ljust(_room(len(content)), b"\0")
