"""Show how far a verb is: a bar on a terminal, one line every ten seconds elsewhere.

A verb enters its progress, and the runner that it uses begins stages and advances them. Both kinds
show the same figures: the stage, what is done of it in pieces and bytes, rows, the rate and time.

Invariants:
- Progress never changes what a verb does, and a verb without it prints nothing.
- Figures are those that were counted: what a runner does not know is not shown.
- Any thread may advance; drawing happens in a thread of its own, at a steady pace.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.runner.protocol import Stage

if TYPE_CHECKING:
    from rich.table import Table

HEARTBEAT_SECONDS: Final = 10.0
_STAGE_WIDTH: Final = 30
_BAR_WIDTH: Final = 30
_WIDTH_LEAST: Final = 6
"""Of the stage and of the bar on a narrow terminal."""
_SECONDS_MINUTES_MAX: Final = 10
_MILLION: Final = 1_000_000
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class Progress:
    """What a verb reports while it works, between entering and leaving; this one only counts."""

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self.pieces = 0
        """Of the present stage, as far as they are known."""
        self.pieces_done = 0
        self.rows = 0
        self.size = 0
        """Bytes of the present stage that are done."""
        self._since = time.monotonic()
        self._counting = threading.Lock()

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        """No progress is shown."""

    def begin(self, stage: Stage, *, pieces: int) -> None:
        """Begin a stage; one that is begun again has more pieces."""
        with self._counting:
            if stage == self.stage:
                self.pieces += pieces
                return
            self.stage, self.pieces = stage, pieces
            self.pieces_done = self.rows = self.size = 0
            self._since = time.monotonic()

    def advance(self, *, pieces: int = 0, rows: int = 0, size: int = 0) -> None:
        """So much more of the present stage is done."""
        with self._counting:
            self.pieces_done += pieces
            self.rows += rows
            self.size += size

    def watch_at(self, address: str) -> None:
        """A page shows the work in detail."""

    def _stage_text(self) -> str:
        return "starting" if self.stage is None else str(self.stage)

    def _total_size(self) -> int:
        return 0 if self.stage is None else self.stage.size

    def _seconds(self) -> float:
        return time.monotonic() - self._since

    def _pieces_text(self) -> str:
        if self.pieces:
            return f"{self.pieces_done:,} of {counted(self.pieces, 'piece')}"
        return counted(self.pieces_done, "piece") if self.pieces_done else ""

    def _size_text(self) -> str:
        return _sizes(self.size, self._total_size()) if self.size else ""

    def _rate_text(self) -> str:
        seconds = self._seconds()
        if seconds < 1:
            return ""
        if self.rows:
            return f"{_short(float(f'{self.rows / seconds:.2g}'))} rows/s"
        return f"{_sizes(int(self.size / seconds), 0)}/s" if self.size else ""


class Heartbeat(Progress):
    """One line at a steady pace, also while a verb is too busy to report anything."""

    def __init__(
        self, write: Callable[[str], object], *, every_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        super().__init__()
        self._write = write
        self._every = every_seconds
        self._over = threading.Event()
        self._addresses: list[str] = []

    def __enter__(self) -> Self:
        self._over.clear()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return super().__enter__()

    def _end(self) -> None:
        self._over.set()
        self._thread.join()

    def watch_at(self, address: str) -> None:
        self._addresses.append(address)

    def _beat(self) -> None:
        while not self._over.wait(self._every):
            self._write(self._line())
            while self._addresses:
                self._write(f"Spark UI: {self._addresses.pop()}")

    def _line(self) -> str:
        with self._counting:
            figures = [
                self._stage_text(),
                self._pieces_text(),
                f"{_short(self.rows)} rows" if self.rows else "",
                self._size_text(),
                self._rate_text(),
                _duration(self._seconds()),
            ]
        return ", ".join(figure for figure in figures if figure)


class Bar(Progress):
    """A bar on a terminal; only the address of a UI stays behind."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # 60 ms that a silent verb need not pay
        from rich.live import Live

        super().__init__()
        self._console = Console(file=stream)
        self._live = Live(
            get_renderable=self._draw, console=self._console, refresh_per_second=5, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return super().__enter__()

    def _end(self) -> None:
        self._live.stop()

    def watch_at(self, address: str) -> None:
        self._console.print(f"Spark UI: {address}", highlight=False, soft_wrap=True)

    def _draw(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        with self._counting:
            stage = self._stage_text()
            done, total = (
                (self.size, self._total_size())
                if self.size or not self.pieces
                else (self.pieces_done, self.pieces)
            )
            figures = [self._size_text() or self._pieces_text(), self._rate_text()]
            seconds = self._seconds()
        left = seconds * (total - done) / done if 0 < done < total else None
        figures.append(_duration(seconds) if left is None else f"{_duration(left)} left")
        text = ", ".join(figure for figure in figures if figure)
        room = self._console.width - len(text) - 2
        stage_width = max(_WIDTH_LEAST, min(len(stage), _STAGE_WIDTH, room - _WIDTH_LEAST))
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True, overflow="ellipsis", width=stage_width)
        grid.add_column(width=max(_WIDTH_LEAST, min(_BAR_WIDTH, room - stage_width)))
        grid.add_column(no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=total or None, completed=min(done, total), pulse=not total)
        grid.add_row(Text(stage), bar, text)
        return grid


def watching(stream: TextIO) -> Progress:
    """The kind of progress that suits a stream: a bar for a person, a heartbeat for a log."""
    if stream.isatty():
        return Bar(stream)

    def write(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return Heartbeat(write)


def require_progress(progress: object | None) -> Progress:
    """The progress that a caller passed, or one that shows nothing.

    Raises:
        InvalidInputError: it is none.
    """
    if progress is None:
        return Progress()
    if not isinstance(progress, Progress):
        raise InvalidInputError(f"progress is {shown(progress)}, expected a Progress")
    return progress


def _short(count: float) -> str:
    """Such as `410,000` or `1.2 M`."""
    return f"{count / _MILLION:,.1f} M" if count >= _MILLION else f"{count:,.0f}"


def _sizes(done: int, total: int) -> str:
    """Bytes in the unit of all, such as `310 of 980 MiB`."""
    unit = 0
    while unit < len(_UNITS) - 1 and max(done, total) >= 1 << 10 * (unit + 1):
        unit += 1
    amounts = [amount / (1 << 10 * unit) for amount in ([done, total] if total else [done])]
    digits = 1 if unit and max(amounts) < 100 else 0
    return f"{' of '.join(f'{amount:,.{digits}f}' for amount in amounts)} {_UNITS[unit]}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    if minutes >= _SECONDS_MINUTES_MAX:
        return f"{minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
