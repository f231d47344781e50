"""The status of a graph as plots: sizes, index coverage, fragments, reclaimable bytes, history.

Tiles, bars and columns are inline SVG in one HTML page without a script.

Invariants:
- Read-only. What a cleanup would remove is a dry run of it.
- As in the page of a view: no address, no request, and every text is escaped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from omnigraph_lake import names
from omnigraph_lake.display.cells import counted, cut, file_size, printable, short_ids
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.maintenance.status import GraphStatus, TableStatus
from omnigraph_lake.storage.objects.paths import checked_path
from omnigraph_lake.view.drawing import frame_of, write_file
from omnigraph_lake.view.page import asset, html_page

if TYPE_CHECKING:
    from omnigraph_lake.storage.manifest_rows import GraphCommit

KEPT_VERSIONS: Final = (10, 3)
"""For how many kept versions the reclaimable bytes are computed."""
_COLUMNS_MAX: Final = 40
_BARS_MAX: Final = 16
_COMMITS_LISTED: Final = 12
_STEPS: Final = (
    timedelta(minutes=1),
    timedelta(minutes=10),
    timedelta(hours=1),
    timedelta(days=1),
    timedelta(days=7),
    timedelta(days=28),
    timedelta(days=364),
)


_BAR_WIDTH: Final = 360
_BAR_ROW: Final = 26
_NAME_WIDTH: Final = 150
_COLUMNS_WIDTH: Final = 640
_COLUMNS_HEIGHT: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure, and what it means."""

    name: str
    figure: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A value between 0 and `whole`; without a whole, the longest bar of its plot has all the room.

    `text` is how the value is read.
    """

    name: str
    value: float
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Values by name, one below the other."""

    title: str
    bars: Sequence[Bar]
    whole: float | None = None
    note: str = ""
    empty: str = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Counts along time, one beside the other."""

    title: str
    columns: Sequence[tuple[str, int]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts; the columns in `numbers` are aligned to the right."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()


Plot: TypeAlias = Bars | Columns | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport(Displayed):
    """The status of a graph, its stored bytes and its history, to be saved as a page."""

    status: GraphStatus
    stored_bytes: int
    """Of all files of the graph, on every branch and of every version."""
    reclaimable: Mapping[int, int]
    """Bytes that a cleanup would remove, by the number of versions it keeps."""
    commits: Sequence[GraphCommit]
    """Of the branch, newest first."""

    def html(self) -> str:
        """One self-contained page; it makes no request."""
        status = self.status
        facts = [
            ("graph", status.root),
            ("branch", f"{status.branch} at commit {status.commit_id or '(none yet)'}"),
            ("manifest", f"version {status.manifest_version}, format {status.format_stamp}"),
        ]
        plots = [*_sizes(status), *_health(status, self.reclaimable), *_history(self.commits)]
        return _report_page(
            f"Status of {status.root.rstrip('/').rpartition('/')[2]}", facts, self._tiles(), plots
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, replacing an existing file."""
        target = checked_path(path, argument="path")
        if target.suffix.lower() not in {".html", ".htm"}:
            raise InvalidInputError(
                f"cannot write a report to {target}, expected a file that ends with .html",
                next_step=f"Write to {target.with_suffix('.html')}.",
            )
        write_file(target, self.html())
        return target

    def _tiles(self) -> list[Tile]:
        tables = self.status.tables
        nodes = sum(table.rows for table in tables if table.kind == "node")
        edges = sum(table.rows for table in tables if table.kind == "edge")
        data = sum(table.data_bytes for table in tables)
        keep, reclaimable = min(self.reclaimable.items(), default=(KEPT_VERSIONS[-1], 0))
        pending = len(self.status.pending_sidecars)
        return [
            Tile(name="Nodes", figure=f"{nodes:,}", note=_types(tables, "node")),
            Tile(name="Edges", figure=f"{edges:,}", note=_types(tables, "edge")),
            Tile(name="Current data", figure=file_size(data), note="of this branch"),
            Tile(name="Stored", figure=file_size(self.stored_bytes), note="all versions, indexes"),
            Tile(
                name="Reclaimable", figure=file_size(reclaimable), note=f"by cleanup --keep {keep}"
            ),
            Tile(
                name="Commits",
                figure=f"{len(self.commits):,}",
                note=f"{counted(pending, 'pending write')}",
            ),
        ]

    def _page(self) -> Page:
        return Page(
            summary=f"{self.status}; {file_size(self.stored_bytes)} stored, "
            f"{counted(len(self.commits), 'commit')}"
        )

    def _repr_html_(self) -> str:
        return frame_of(self.html(), title=str(self))


def _types(tables: Sequence[TableStatus], kind: str) -> str:
    return counted(sum(table.kind == kind for table in tables), "type")


def _sizes(status: GraphStatus) -> Iterator[Plot]:
    by_rows = sorted(status.tables, key=lambda table: -table.rows)
    yield Bars(
        title="Rows by type",
        bars=[
            Bar(name=table.type_name, value=table.rows, text=f"{table.rows:,}")
            for table in by_rows[:_BARS_MAX]
        ],
        note=_cut(len(by_rows), "type"),
        empty="no types",
    )
    by_bytes = sorted(status.tables, key=lambda table: -table.data_bytes)
    yield Bars(
        title="Size by type",
        bars=[
            Bar(name=table.type_name, value=table.data_bytes, text=file_size(table.data_bytes))
            for table in by_bytes[:_BARS_MAX]
        ],
        note=_cut(len(by_bytes), "type"),
        empty="no types",
    )


def _health(status: GraphStatus, reclaimable: Mapping[int, int]) -> Iterator[Plot]:
    coverage = [bar for table in status.tables for bar in _coverage(table)]
    partial = sum(bar.is_warning for bar in coverage)
    yield Bars(
        title="Index coverage"
        if len(coverage) <= _BARS_MAX
        else f"Index coverage, the {_BARS_MAX} lowest of {len(coverage)}",
        bars=sorted(coverage, key=lambda bar: bar.value)[:_BARS_MAX],
        whole=1,
        note="Run omnigraph optimize to build missing indexes and cover all rows."
        if partial
        else "Every index that can be built covers all rows.",
        empty="no indexes are declared",
    )
    by_fragments = sorted(status.tables, key=lambda table: -table.fragments)
    yield Bars(
        title="Fragments by type",
        bars=[
            Bar(
                name=table.type_name,
                value=table.fragments,
                text=f"{table.fragments:,}"
                + (f", {table.deleted_rows:,} deleted" if table.deleted_rows else ""),
            )
            for table in by_fragments[:_BARS_MAX]
        ],
        note="Many small fragments make reads slower; omnigraph optimize combines them.",
    )
    yield Bars(
        title="Reclaimable by cleanup",
        bars=[
            Bar(name=f"keep {keep} versions", value=count, text=file_size(count))
            for keep, count in sorted(reclaimable.items(), reverse=True)
        ],
        note="A cleanup removes old versions and unreferenced files; tags and branches keep some.",
    )


def _coverage(table: TableStatus) -> Iterator[Bar]:
    for index in table.indexes:
        rows = index.indexed_rows + index.unindexed_rows
        share = index.indexed_rows / rows if rows else 1.0
        yield Bar(
            name=f"{table.type_name} {', '.join(index.columns)}",
            value=share,
            text=f"{share:.0%}",
            is_warning=share < 1,
        )
    for column in table.missing_indexes:
        name = f"{table.type_name} {column}"
        if column in table.waiting_indexes:
            yield Bar(name=name, value=0, text="waits for a vector")
        else:
            yield Bar(name=name, value=0, text="not built", is_warning=True)


def _history(commits: Sequence[GraphCommit]) -> Iterator[Plot]:
    moments = sorted(datetime.fromisoformat(commit.created_at) for commit in commits)
    if moments:
        step, columns = _columns(moments)
        yield Columns(title=f"Commits per {_step_name(step)}", columns=columns)
    short = short_ids([commit.commit_id for commit in commits])
    yield Table(
        title="Latest commits",
        header=("commit", "when", "actor", "branch", "message", "types"),
        rows=[
            (
                short[commit.commit_id],
                commit.created_at[:16].replace("T", " "),
                commit.actor,
                (commit.branch or names.MAIN) + (" (merge)" if commit.merged_parent_id else ""),
                commit.note.subject,
                ", ".join(table_key.partition(":")[2] for table_key, _, _ in commit.tables),
            )
            for commit in commits[:_COMMITS_LISTED]
        ],
    )


def _columns(moments: Sequence[datetime]) -> tuple[timedelta, list[tuple[str, int]]]:
    """The smallest step of time of which few enough cover all moments, and the count in each."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    span = moments[-1] - moments[0]
    step = next((step for step in _STEPS if span / step < _COLUMNS_MAX - 1), _STEPS[-1])
    counts = Counter((moment - epoch) // step for moment in moments)
    first, last = min(counts), max(counts)
    form = "%Y-%m-%d" if step >= timedelta(days=1) else "%Y-%m-%d %H:%M"
    return step, [
        ((epoch + place * step).strftime(form), counts[place])
        for place in range(max(first, last - 10 * _COLUMNS_MAX), last + 1)
    ]


def _step_name(step: timedelta) -> str:
    names_of_steps = {60: "minute", 600: "10 minutes", 3_600: "hour", 86_400: "day"}
    return names_of_steps.get(int(step.total_seconds()), counted(step.days, "day"))


def _cut(count: int, noun: str) -> str:
    return f"{_BARS_MAX} of {counted(count, noun)}" if count > _BARS_MAX else ""


def _report_page(
    title: str, facts: Sequence[tuple[str, str]], tiles: Sequence[Tile], plots: Sequence[Plot]
) -> str:
    """The page of these figures."""
    fact_list = "".join(f"<dt>{_text(name)}</dt><dd>{_text(text)}</dd>" for name, text in facts)
    tile_list = "".join(
        f'<div class="tile"><span>{_text(tile.name)}</span><strong>{_text(tile.figure)}</strong>'
        f"<small>{_text(tile.note)}</small></div>"
        for tile in tiles
    )
    body = (
        '<input type="checkbox" id="theme" aria-label="Switch between light and dark">'
        f'<header><span class="mark" aria-hidden="true"><i></i><i></i><i></i></span>'
        f"<h1>{_text(title)}</h1>"
        '<label for="theme" title="Switch between light and dark">Light / dark</label></header>'
        f"<main><dl>{fact_list}</dl>"
        f'<div class="tiles">{tile_list}</div>'
        f'<div class="plots">{"".join(map(_plot, plots))}</div></main>'
    )
    return html_page(title, body, style=asset("report.css"))


def _plot(plot: Plot) -> str:
    match plot:
        case Bars():
            content = _bars(plot)
        case Columns():
            content = _column_plot(plot)
        case Table():
            content = _table(plot)
        case _:
            assert_never(plot)
    note = "" if isinstance(plot, Table) or not plot.note else f"<p>{_text(plot.note)}</p>"
    kind = "" if isinstance(plot, Bars) else ' class="wide"'
    return f"<section{kind}><h2>{_text(plot.title)}</h2>{content}{note}</section>"


def _bars(plot: Bars) -> str:
    if not plot.bars:
        return f"<p>{_text(plot.empty)}</p>"
    whole = plot.whole or max(bar.value for bar in plot.bars) or 1
    height = len(plot.bars) * _BAR_ROW
    width = _NAME_WIDTH + _BAR_WIDTH + 90
    lines = "".join(
        _bar(bar, top, share=bar.value / whole)
        for bar, top in zip(plot.bars, range(0, height, _BAR_ROW), strict=True)
    )
    return f'<svg viewBox="0 0 {width} {height}" role="img">{lines}</svg>'


def _bar(bar: Bar, top: int, *, share: float) -> str:
    length = max(share * _BAR_WIDTH, 3 if bar.value else 0)
    place = f'x="{_NAME_WIDTH}" y="{top + 6}" height="12" rx="6"'
    kind = "figure alert" if bar.is_warning else "figure"
    name = f"{_text(cut(bar.name, 22))}<title>{_text(bar.name)}</title>"
    return (
        f'<text x="0" y="{top + 16}">{name}</text>'
        f'<rect class="room" {place} width="{_BAR_WIDTH}"/>'
        f'<rect class="{"warning" if bar.is_warning else "bar"}" {place} width="{length:.1f}"/>'
        f'<text class="{kind}" x="{_NAME_WIDTH + _BAR_WIDTH + 10}" y="{top + 16}">'
        f"{_text(bar.text)}</text>"
    )


def _column_plot(plot: Columns) -> str:
    if not plot.columns:
        return "<p>nothing</p>"
    highest = max(count for _, count in plot.columns) or 1
    step = _COLUMNS_WIDTH / len(plot.columns)
    parts = [
        f'<path class="grid" d="M0 {_COLUMNS_HEIGHT + 14.5}H{_COLUMNS_WIDTH}"/>',
        f'<text class="figure" x="0" y="10">{highest:,}</text>',
    ]
    for place, (name, count) in enumerate(plot.columns):
        height = count / highest * (_COLUMNS_HEIGHT - 6)
        parts.append(
            f'<rect class="bar" x="{place * step + step * 0.12:.1f}" '
            f'y="{_COLUMNS_HEIGHT + 14 - height:.1f}" width="{min(step * 0.76, 40):.1f}" '
            f'height="{height:.1f}" rx="2"><title>{_text(f"{name}: {count:,}")}</title></rect>'
        )
    ends = (plot.columns[0][0], plot.columns[-1][0])
    parts.append(f'<text x="0" y="{_COLUMNS_HEIGHT + 32}">{_text(ends[0])}</text>')
    if len(plot.columns) > 1:
        parts.append(
            f'<text x="{_COLUMNS_WIDTH}" y="{_COLUMNS_HEIGHT + 32}" text-anchor="end">'
            f"{_text(ends[1])}</text>"
        )
    size = f"0 0 {_COLUMNS_WIDTH} {_COLUMNS_HEIGHT + 38}"
    return f'<svg viewBox="{size}" role="img">{"".join(parts)}</svg>'


def _table(plot: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> Iterator[str]:
        yield "<tr>"
        for place, cell in enumerate(cells):
            kind = ' class="number"' if place in plot.numbers else ""
            yield f"<{tag}{kind}>{_text(cell)}</{tag}>"
        yield "</tr>"

    head = "".join(row(plot.header, "th"))
    body = "".join("".join(row(cells, "td")) for cells in plot.rows)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _text(text: str) -> str:
    return escape(printable(text))
