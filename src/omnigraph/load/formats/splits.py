"""How files are cut into parts of about equal work.

Invariant: the splits of a file cover it without a gap or an overlap, in order, and every file has
at least one; numbers run through the whole input. Nothing of the content is read, but the footer of
a Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, assert_never

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import InvalidInputError
from omnigraph.load.formats.records import FileFormat, SourceFile, Split
from omnigraph.load.formats.streams import opened

SPLIT_BYTES: Final = 32 << 20


def plan_splits(
    files: Iterable[SourceFile], *, split_bytes: int = SPLIT_BYTES
) -> tuple[Split, ...]:
    """Cut every file into splits of at most about `split_bytes`, where its format allows it.

    Lines are cut anywhere. Parquet is cut between row groups, counted with their unpacked size. A
    packed file is read from its start, and a value in a CSV file may contain newlines: neither can
    be cut.

    Raises:
        InvalidInputError: a Parquet file has no readable footer.
    """
    assert split_bytes > 0
    cuts = ((file, start, end) for file in files for start, end in _ranges(file, split_bytes))
    return tuple(
        Split(number=number, file=file, start=start, end=end)
        for number, (file, start, end) in enumerate(cuts)
    )


def _ranges(file: SourceFile, split_bytes: int) -> list[tuple[int, int]]:
    match file.format:
        case FileFormat.JSONL:
            parts = 1 if file.gzipped else max(1, -(-file.size // split_bytes))
            cuts = [file.size * part // parts for part in range(parts + 1)]
            return list(pairwise(cuts))
        case FileFormat.CSV:
            return [(0, file.size)]
        case FileFormat.PARQUET:
            return list(_grouped(_row_group_bytes(file), split_bytes))
        case _:
            assert_never(file.format)


def _grouped(sizes: list[int], split_bytes: int) -> Iterator[tuple[int, int]]:
    """Neighbouring row groups, as many as fit; a larger one is alone."""
    start = held = 0
    for number, size in enumerate(sizes):
        if number > start and held + size > split_bytes:
            yield start, number
            start, held = number, 0
        held += size
    yield start, len(sizes)


def _row_group_bytes(file: SourceFile) -> list[int]:
    with opened(file) as stream:
        try:
            footer = pq.read_metadata(stream)
        except pa.ArrowException as error:
            raise not_parquet(file, error) from error
    return [footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)]


def not_parquet(file: SourceFile, error: Exception) -> InvalidInputError:
    """The error of a file that is called Parquet and cannot be read as such."""
    return InvalidInputError(
        f"{file.path} cannot be read as Parquet: {error!s:.200}",
        next_step="Write the file again, or leave it out.",
    )
