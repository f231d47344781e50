"""A split of any format as rows of types and refusals.

Invariant: every record of the split comes out once, as a row that passed all a single row can be
judged by, or as a refusal; the last word is `SplitEnd`. Memory is bounded by a block, whatever the
size of the split.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

from omnigraph.load.formats.csv_files import parse_csv
from omnigraph.load.formats.frames import parse_parquet
from omnigraph.load.formats.jsonl import parse_lines
from omnigraph.load.formats.lines import BLOCK_BYTES
from omnigraph.load.formats.records import FileFormat, Parsed, Split
from omnigraph.load.formats.row_validator import Judge
from omnigraph.schema.catalog import Catalog
from omnigraph.validation.constraints import rules_of
from omnigraph.validation.input.intake import NewIds
from omnigraph.validation.input.named_types import type_named

BLOCK_ROWS: Final = 8192


def parse_split(
    split: Split,
    catalog: Catalog,
    *,
    new_ids: NewIds,
    block_bytes: int = BLOCK_BYTES,
    block_rows: int = BLOCK_ROWS,
) -> Iterator[Parsed]:
    """Read a split; what it holds comes in input order, type by type within a block.

    Args:
        split: The part of a file to read.
        catalog: The schema the records must keep.
        new_ids: Makes ids for records that need one and have none.
        block_bytes: How much text is read at once.
        block_rows: How many Parquet rows are read at once.

    Raises:
        NotFoundError: the file is not there.
        InvalidInputError: the file as a whole cannot be read, or its columns are not the type's.
        StorageUnavailableError: the file cannot be opened.
    """
    match split.file.format:
        case FileFormat.JSONL:
            return parse_lines(split, catalog, new_ids=new_ids, block_bytes=block_bytes)
        case FileFormat.CSV | FileFormat.PARQUET:
            assert split.file.type_name is not None, "sources give such files a type"
            declared = type_named(split.file.type_name, catalog)
            judge = Judge(declared=declared, rules=rules_of(declared), new_ids=new_ids)
            if split.file.format is FileFormat.CSV:
                return parse_csv(split, judge)
            return parse_parquet(split, judge, block_rows=block_rows)
        case _:
            assert_never(split.file.format)
