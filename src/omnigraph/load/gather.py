"""The whole input of an in-process load: rows by type, refused records, and where each came from.

Invariant: holds every record once, in input order, so that a row's position tells its place. All
of it is in memory: this is the engine for inputs that fit there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InputTooLargeError
from omnigraph.load.formats.frames import parse_batches
from omnigraph.load.formats.parse import parse_split
from omnigraph.load.formats.raw import raw_records, shown_at
from omnigraph.load.formats.records import (
    REFUSED_SCHEMA,
    Parsed,
    ParsedRows,
    RefusedRecords,
    SplitEnd,
)
from omnigraph.load.quarantine import QUARANTINE_SCHEMA
from omnigraph.load.report import frame_name
from omnigraph.runner.memory import COPIES_OF_A_LOAD, rows_bytes_max
from omnigraph.validation.constraints import rules_of
from omnigraph.validation.input.named_types import declared_types
from omnigraph.validation.input.sources import read_table, without_views

if TYPE_CHECKING:
    from omnigraph.load.formats.records import Split
    from omnigraph.load.report import LoadJob
    from omnigraph.validation.input.intake import NewIds

_LISTED: Final = pa.schema([pa.field("part", pa.int32(), nullable=False), *REFUSED_SCHEMA])


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of the input: a split of a file, or a frame."""

    file: str
    size: int
    source: Split | pa.Table

    def raw(self, places: Iterable[int]) -> list[bytes]:
        """The records at these places, as they came."""
        if not isinstance(self.source, pa.Table):
            return raw_records(self.source, list(places))
        return [shown_at(self.source, place) for place in places]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """An input as it was read; each row of a table has its part and its place beside it."""

    parts: tuple[Part, ...]
    lines_before: tuple[int, ...]
    tables: Mapping[str, pa.Table]
    row_parts: Mapping[str, npt.NDArray[np.int32]]
    row_places: Mapping[str, npt.NDArray[np.uint32]]
    refused: pa.Table
    records: int

    def listed(
        self, refused: Mapping[str, pa.Table], labels: Mapping[str, str], *, with_raw: bool
    ) -> pa.Table:
        """All refused records in the shape of the quarantine table, in input order.

        `refused` are rows of the tables that keyed rules refused, each with reason and message.
        Without `raw` the input is not looked at again.
        """
        keyed = [
            self._keyed(key, rows, labels[key], with_raw=with_raw) for key, rows in refused.items()
        ]
        order = [("part", "ascending"), ("place", "ascending")]
        rows = pa.concat_tables([self.refused, *keyed]).sort_by(order)
        parts = rows.column("part").to_numpy()
        files = pa.array([part.file for part in self.parts], pa.string())
        lines = np.array(self.lines_before, np.int64)[parts] + rows.column("place").to_numpy() + 1
        columns = [rows.column(name) for name in ("type", "reason", "message", "raw")]
        return pa.Table.from_arrays(
            [files.take(pa.array(parts)), pa.array(lines, pa.int64()), *columns],
            schema=QUARANTINE_SCHEMA,
        )

    def _keyed(self, key: str, rows: pa.Table, label: str, *, with_raw: bool) -> pa.Table:
        positions = rows.column("row").to_numpy()
        parts, places = self.row_parts[key][positions], self.row_places[key][positions]
        raw = self._raw(parts, places) if with_raw else [b""] * len(rows)
        return pa.Table.from_arrays(
            [
                pa.array(parts, pa.int32()),
                pa.array(places, pa.uint32()),
                pa.repeat(label, len(rows)),
                rows.column("reason"),
                rows.column("message"),
                pa.array(raw, pa.binary()),
            ],
            schema=_LISTED,
        )

    def _raw(self, parts: npt.NDArray[np.int32], places: npt.NDArray[np.uint32]) -> list[bytes]:
        found = [b""] * len(parts)
        for number in np.unique(parts).tolist():
            here = np.flatnonzero(parts == number).tolist()
            for position, raw in zip(
                here, self.parts[number].raw(places[here].tolist()), strict=True
            ):
                found[position] = raw
        return found


def gather(job: LoadJob, *, new_ids: NewIds) -> Gathered:
    """Read the whole input, part by part."""
    held = _Held()
    parts = tuple(_parts(job))
    job.progress.phase("reading", total_bytes=sum(part.size for part in parts))
    for part, parsed in zip(parts, _parsed(job, parts, new_ids), strict=True):
        held.begin(part)
        for each in parsed:
            job.progress.advance(records=held.take(each))
        job.progress.advance(bytes_read=part.size)
    return held.gathered()


class _Held:
    """What has been read so far."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._lines_before: list[int] = []
        self._lines: Counter[str] = Counter()
        self._rows: dict[str, list[pa.Table]] = {}
        self._row_parts: dict[str, list[npt.NDArray[np.int32]]] = {}
        self._row_places: dict[str, list[npt.NDArray[np.uint32]]] = {}
        self._refused: list[pa.Table] = [_LISTED.empty_table()]
        self._records = 0
        self._bytes = 0
        self._bytes_max = rows_bytes_max(copies=COPIES_OF_A_LOAD)

    def begin(self, part: Part) -> None:
        self._parts.append(part)
        self._lines_before.append(self._lines[part.file])

    def take(self, parsed: Parsed) -> int:
        """Keep a piece of the present part; returns how many records it holds."""
        number = len(self._parts) - 1
        count = 0
        match parsed:
            case ParsedRows():
                key = parsed.table_key
                count = len(parsed.places)
                self._require_room(parsed.rows.nbytes)
                self._rows.setdefault(key, []).append(parsed.rows)
                self._row_parts.setdefault(key, []).append(np.full(count, number, np.int32))
                self._row_places.setdefault(key, []).append(parsed.places.to_numpy())
            case RefusedRecords():
                count = len(parsed.table)
                numbers = pa.array(np.full(count, number, np.int32))
                self._require_room(parsed.table.nbytes)
                columns = [numbers, *parsed.table.columns]
                self._refused.append(pa.Table.from_arrays(columns, schema=_LISTED))
            case SplitEnd():
                self._lines[self._parts[-1].file] += parsed.lines
                self._records += parsed.records
            case _:
                assert_never(parsed)
        return count

    def _require_room(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._bytes_max:
            raise InputTooLargeError(
                f"the records of {self._parts[-1].file} and of what was read before it",
                needed=self._bytes,
                allowed=self._bytes_max,
            )

    def gathered(self) -> Gathered:
        rows = {key: [each for each in held if len(each)] for key, held in self._rows.items()}
        return Gathered(
            parts=tuple(self._parts),
            lines_before=tuple(self._lines_before),
            tables={key: pa.concat_tables(held) for key, held in rows.items() if held},
            row_parts={key: np.concatenate(held) for key, held in self._row_parts.items()},
            row_places={key: np.concatenate(held) for key, held in self._row_places.items()},
            refused=pa.concat_tables(self._refused),
            records=self._records,
        )


def _parts(job: LoadJob) -> Iterator[Part]:
    shares = Counter(split.file.path for split in job.splits)
    for split in job.splits:
        size = split.file.size // shares[split.file.path]
        yield Part(file=split.file.path, size=size, source=split)
    declared = declared_types(job.catalog)
    for key, frame in job.frames.items():
        name = declared[key].name
        rows = without_views(read_table(frame, type_name=name))
        yield Part(file=frame_name(name), size=rows.nbytes, source=rows)


def _parsed(job: LoadJob, parts: Iterable[Part], new_ids: NewIds) -> Iterator[Iterable[Parsed]]:
    frames = iter(job.frames)
    for part in parts:
        if isinstance(part.source, pa.Table):
            declared = declared_types(job.catalog)[next(frames)]
            yield parse_batches(
                part.source.to_batches(), declared, rules_of(declared), new_ids=new_ids
            )
        else:
            yield parse_split(part.source, job.catalog, new_ids=new_ids)
