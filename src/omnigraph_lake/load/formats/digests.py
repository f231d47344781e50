"""Digests of records that have no key: what the ids of their nodes and edges are made of.

A digest is one of the texts of the columns that the mapping names, as they are in the source:
before null words, parsing and types. So a corrected mapping changes no id, and a column that is new
in a later file stays out of it. The source's name is part of it: records of two sources that feed
one type are not equal.

Invariants:
- The encoding is unambiguous: lengths tell where a text ends, and null differs from "".
- Equal digests are taken for equal records, and ids are stored. Therefore a cryptographic hash: for
  one with a public seed, such as that of `runner.key_hash`, anyone can write two different records
  that are one.
"""

from __future__ import annotations

import hashlib
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake.load.formats.mapping import SourceMapping
from omnigraph_lake.load.formats.raw_batches import WHOLE, RawBatch

VERSION: Final = 2
"""Of the way in which digests are made: a mapping file names it, because ids depend on it."""
DIGEST_BYTES: Final = 16
_NULL: Final = "-"


def uses_digests(mapping: SourceMapping) -> bool:
    """Whether a rule makes ids of the digests of records."""
    return any(path == WHOLE or path.endswith(f".{WHOLE}") for path in mapping.paths())


def digest_records(batch: RawBatch, mapping: SourceMapping) -> pa.StringArray:
    """The digest of every record, as hexadecimal digits."""
    parts: list[pa.Array] = []
    for name in mapping.digest:
        texts = batch.texts(name)
        lengths = pc.binary_length(texts).cast(pa.large_string())
        parts += [pc.fill_null(lengths, _NULL), pc.fill_null(texts, "")]
    rows = pc.binary_join_element_wise(*parts, pa.scalar(":", pa.large_string()))
    start = hashlib.blake2b(f"{mapping.name}:".encode(), digest_size=DIGEST_BYTES)
    digests: list[str] = []
    for row in rows.cast(pa.large_binary()).to_pylist():
        of_record = start.copy()
        of_record.update(row)
        digests.append(of_record.hexdigest())
    return pa.array(digests, pa.string())
