"""Defines `demo small` and `demo debian`: graphs to try Omnigraph with, and what to try.

Invariants:
- A demo fills a directory that is empty or does not exist: the graph, its schema, queries and data
  are files in it, so that every step can be repeated by hand.
- A demo uses the interface of every user: `init`, `load`, `branches`, `mutate`.
- If a demo fails, what it wrote to the directory is removed.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast

import typer

import omnigraph_lake as og
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.cli import options, output
from omnigraph_lake.display.cells import counted, file_size
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import ConflictError, InvalidInputError
from omnigraph_lake.names import MAIN, edge_table_key, node_table_key

if TYPE_CHECKING:
    from omnigraph_lake.api.options import Spark
    from omnigraph_lake.demo.apt_indexes import Indexes
    from omnigraph_lake.demo.debian_records import SuiteRecords
    from omnigraph_lake.graph import Graph
    from omnigraph_lake.load.report import LoadReport
    from omnigraph_lake.runner.progress import Progress
    from omnigraph_lake.storage.snapshot import TableEntry

demo_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

GRAPH: Final = "graph"
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]+:")
_SOLAR_BRANCH: Final = "iau-2006"
_SOLAR_CHANGE: Final = 'query vulcan() { delete Body where name = "Vulcan" }'
_SOLAR_MEANWHILE: Final = (
    'query measured() { update Body set { radius_km: 1188.3 } where name = "Pluto" }'
)
_SUITES: Final = ("testing", "unstable")
_SUITE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_KEY_BYTES: Final = 32
_REJECTED_MAX: Final = "50%"
"""Versions that are not the newest count: a suite with updates has many."""

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory to create; it may exist if it is empty.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDemo(Displayed):
    """What `demo small` made."""

    directory: str
    graph: str
    branch: str
    nodes: int
    edges: int
    next: tuple[str, ...]

    def _page(self) -> Page:
        return Page(
            summary=f"created {self.graph} with {counted(self.nodes, 'node')} and "
            f"{counted(self.edges, 'edge')}, and branch {self.branch} with changes to review"
        )


@demo_app.command("small")
def small(directory: DirectoryArgument, *, as_json: options.JsonFlag = False) -> None:
    """Create a small graph of the solar system with a branch to review."""
    with _filling(directory):
        _copy_data("solar", directory)
        graph = _create_solar(directory)
        tables = graph.snapshot().pinned.tables
    report = SmallDemo(
        directory=str(directory),
        graph=graph_of(directory),
        branch=_SOLAR_BRANCH,
        nodes=_rows(tables, node_table_key("")),
        edges=_rows(tables, edge_table_key("")),
        next=_next_steps(
            directory,
            "query GRAPH DIR/solar.gq --name planets",
            "query GRAPH DIR/solar.gq --name tour --param mission='Voyager 2'",
            "query GRAPH DIR/solar.gq --name about --param words='ocean ice'",
            f"diff GRAPH main {_SOLAR_BRANCH}",
            f"merge GRAPH {_SOLAR_BRANCH}",
            "commit list GRAPH",
        ),
    )
    _show(report, asdict(report), report.next, as_json=as_json)


def _rows(tables: Mapping[str, TableEntry], prefix: str) -> int:
    return sum(entry.row_count for key, entry in tables.items() if key.startswith(prefix))


def _create_solar(directory: Path) -> Graph:
    """Main as astronomers saw it before 2006, and a branch with what they decided."""
    graph = og.init(graph_of(directory), schema=directory / "solar.pg", actor="demo")
    graph.load(directory / "solar.jsonl", actor="demo")
    branch = graph.branches.create(_SOLAR_BRANCH)
    branch.load(directory / f"{_SOLAR_BRANCH}.jsonl", mode="merge", actor="demo")
    branch.mutate(_SOLAR_CHANGE, actor="demo")
    graph.mutate(_SOLAR_MEANWHILE, actor="demo")
    return graph


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSuite:
    """A suite in the graph: what its indexes have, and what the load made of it."""

    suite: str
    branch: str
    packages: int
    virtual_packages: int
    older_versions: int
    relations: Mapping[str, int]
    read: int
    published: Mapping[str, int]
    rejected: Mapping[str, int]
    quarantine: str | None
    commit_id: str | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianDemo(Displayed):
    """What `demo debian` made; `peak_bytes` is the most memory that this process used."""

    directory: str
    graph: str
    suites: tuple[LoadedSuite, ...]
    seconds: float
    peak_bytes: int
    next: tuple[str, ...]

    def _page(self) -> Page:
        header = ("suite", "branch", "packages", "virtual", "relations", "published", "rejected")
        rows = [
            (
                suite.suite,
                suite.branch,
                f"{suite.packages:,}",
                f"{suite.virtual_packages:,}",
                f"{sum(suite.relations.values()):,}",
                f"{sum(suite.published.values()):,}",
                f"{sum(suite.rejected.values()):,}",
            )
            for suite in self.suites
        ]
        summary = (
            f"created {self.graph} in {self.seconds:.1f} s, with at most "
            f"{file_size(self.peak_bytes)} of memory"
        )
        return Page(
            summary=summary,
            tables=[TableView(header=header, rows=rows, numbers=(2, 3, 4, 5, 6))],
            lines=[summary],
        )


@demo_app.command("debian")
def debian(  # noqa: PLR0913 - one parameter per option
    directory: DirectoryArgument,
    *,
    suites: Annotated[
        list[str] | None,
        typer.Option("--suite", help="Suite: the first is main, others are branches of it."),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Use a small excerpt of this package, no network.")
    ] = False,
    indexes: Annotated[
        Path | None,
        typer.Option("--indexes", metavar="DIR", help="Use DIR/SUITE/Packages[.gz|.xz], no apt."),
    ] = None,
    system: Annotated[
        bool, typer.Option("--system", help="Use what apt has downloaded here, as one suite.")
    ] = False,
    mirror: Annotated[
        str | None, typer.Option("--mirror", metavar="URL", help="Archive to download from.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="auto, local or spark.")] = "auto",
    master: options.MasterOption = None,
    remote: options.RemoteOption = None,
    as_json: options.JsonFlag = False,
    quiet: options.QuietFlag = False,
) -> None:
    """Create a graph of Debian's packages from apt's indexes."""
    began = SYSTEM_CLOCK.now()
    names = _distinct_suites(suites or _SUITES)
    if sum((sample, system, indexes is not None, mirror is not None)) > 1:
        raise typer.BadParameter("give one of --sample, --system, --indexes and --mirror")
    if system and suites:
        raise typer.BadParameter("the indexes of the system are one suite", param_hint="--suite")
    note = _ignore if quiet or as_json else output.note
    with _filling(directory):
        _copy_data("debian", directory, without="sample")
        note("finding the indexes of packages")
        if sample or indexes is not None:
            suite_indexes = _read_folder(_data("debian") / "sample" if sample else indexes, names)
        else:
            suite_indexes = _ask_apt(directory / "apt", None if system else names, mirror)
        loading = _Loading(
            graph=og.init(graph_of(directory), schema=directory / "debian.pg", actor="demo"),
            engine=engine,
            spark=options.spark_target(master, remote),
            progress=lambda: output.progress(silent=quiet or as_json),
        )
        loaded = [
            loading.load(suite, records, branch=suite if number else MAIN)
            for number, (suite, records) in enumerate(_records(directory, suite_indexes, note))
        ]
    report = DebianDemo(
        directory=str(directory),
        graph=graph_of(directory),
        suites=tuple(loaded),
        seconds=round((SYSTEM_CLOCK.now() - began).total_seconds(), 3),
        peak_bytes=_peak_bytes(),
        next=_debian_steps(directory, tuple(suite_indexes)),
    )
    _show(report, asdict(report), report.next, as_json=as_json)


def _distinct_suites(suites: Iterable[str]) -> tuple[str, ...]:
    """Names that can be those of files and branches."""
    names = tuple(dict.fromkeys(suites))
    for name in names:
        if not _SUITE.fullmatch(name):
            raise typer.BadParameter(f"{name!r} is no name of a suite", param_hint="--suite")
    if MAIN in names:
        raise typer.BadParameter("main is the branch of the first suite", param_hint="--suite")
    return names


def _ignore(_message: str) -> None:
    """Report no progress."""


def _read_folder(folder: Path | None, suites: tuple[str, ...]) -> Indexes:
    # Commands that do not need it start without it.
    from omnigraph_lake.demo.apt_indexes import indexes_in

    assert folder is not None
    return indexes_in(folder, suites)


def _ask_apt(directory: Path, suites: tuple[str, ...] | None, mirror: str | None) -> Indexes:
    """The indexes of these suites in a directory of apt's own; without suites the system's."""
    # Commands that do not need it start without it.
    from omnigraph_lake.demo.apt_indexes import fetch_indexes, system_indexes

    return system_indexes() if suites is None else fetch_indexes(directory, suites, mirror=mirror)


def _records(
    directory: Path, indexes: Indexes, note: Callable[[str], None]
) -> Iterator[tuple[str, SuiteRecords]]:
    # Commands that do not need it start without it.
    import secrets

    from omnigraph_lake.demo.debian_records import write_records

    key = secrets.token_bytes(_KEY_BYTES)
    for suite, opened in indexes.items():
        note(f"reading the packages of {suite}")
        records = write_records(suite, opened, directory, key=key)
        note(f"loading {counted(records.records, 'record')} of {suite}")
        yield suite, records


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loading:
    """Loads suites into a graph: the first into main, each other one into a branch of its name."""

    graph: Graph
    engine: str
    spark: Spark | None
    progress: Callable[[], Progress | None]

    def load(self, suite: str, records: SuiteRecords, *, branch: str) -> LoadedSuite:
        is_first = branch == MAIN
        report = self.graph.load(
            [str(path) for path in records.files],
            mode="append" if is_first else "overwrite",
            on_error="quarantine",
            spark=self.spark,
            actor="demo",
            options=og.LoadOptions(
                max_rejected=_REJECTED_MAX,
                engine=cast("Literal['auto', 'local', 'spark']", self.engine),
                branch=branch,
                source=None if is_first else MAIN,
                progress=self.progress(),
            ),
        )
        return _suite_report(suite, branch, records, report)


def _suite_report(
    suite: str, branch: str, records: SuiteRecords, report: LoadReport
) -> LoadedSuite:
    assert report.read == records.records, "every record that was written is read"
    return LoadedSuite(
        suite=suite,
        branch=branch,
        packages=records.packages,
        virtual_packages=records.virtual_packages,
        older_versions=records.older_stanzas,
        relations=records.relations,
        read=report.read,
        published=report.written,
        rejected=report.quarantined,
        quarantine=report.quarantine,
        commit_id=report.commit_id,
        seconds=report.seconds,
    )


def _debian_steps(directory: Path, suites: tuple[str, ...]) -> tuple[str, ...]:
    on_branches = [
        step
        for suite in suites[1:2]
        for step in (
            f"diff GRAPH main {suite} --type Package",
            f"query GRAPH DIR/gate.gq --name uninstallable --branch {suite}",
            f"merge GRAPH {suite} --dry-run",
        )
    ]
    return _next_steps(
        directory,
        "query GRAPH DIR/debian.gq --name needs --param package=bash",
        "query GRAPH DIR/debian.gq --name around --param package=bash",
        "query GRAPH DIR/debian.gq --name needed_by --param package=libc6",
        "query GRAPH DIR/debian.gq --name about --param words='text editor'",
        *on_branches,
        "optimize GRAPH",
    )


def _peak_bytes() -> int:
    import resource  # as above

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def graph_of(directory: Path) -> str:
    """The graph of a demo."""
    return str(directory / GRAPH)


def _next_steps(directory: Path, *commands: str) -> tuple[str, ...]:
    graph, files = shlex.quote(graph_of(directory)), shlex.quote(str(directory))
    return tuple(
        "omnigraph " + command.replace("GRAPH", graph).replace("DIR", files) for command in commands
    )


@contextmanager
def _filling(directory: Path) -> Iterator[None]:
    """Make a directory for a demo; if the demo fails, it is as it was."""
    if _SCHEME.fullmatch(next(iter(directory.parts), "")):
        raise InvalidInputError(
            f"{directory} is a URL, and a demo fills a directory of this machine",
            next_step="Give a local path; `omnigraph clone` copies its graph to a store.",
        )
    was_there = directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConflictError(
                f"{directory} is not empty",
                next_step="Choose another directory, or remove it first.",
            )
    except OSError as error:
        raise InvalidInputError(
            f"cannot create the directory {directory}: {error.strerror}",
            next_step="Choose another directory.",
        ) from error
    try:
        yield
    except Exception:
        for entry in directory.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if not was_there:
            directory.rmdir()
        raise


def _copy_data(name: str, directory: Path, *, without: str = "") -> None:
    """Copy the files of a demo to where its user can read and change them."""
    for path in _data(name).iterdir():
        if path.name != without:
            shutil.copyfile(path, directory / path.name)


def _data(name: str) -> Path:
    """Files of this package."""
    return Path(og.__file__).parent / "demo" / name


def _show(
    report: Displayed, document: Mapping[str, object], steps: tuple[str, ...], *, as_json: bool
) -> None:
    if as_json:
        output.json_object(document)
        return
    output.show(report)
    output.note_commands("Next:", steps)
