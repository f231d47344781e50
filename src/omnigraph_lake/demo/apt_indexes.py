"""Where the package indexes of suites come from: apt, a folder, or the sample of this package.

apt works in a directory of its own below that of the demo, so that it needs no root and changes
nothing of the system: `apt-get -c DIR/apt/apt.conf` uses it. The configuration of the system
applies, for proxies, except for its commands that run after an update. The mirror and components
are those of the Debian archive that the system is configured with.

Invariant: an index is streamed, whatever its compression; it is never unpacked to a file.
"""

from __future__ import annotations

import bz2
import getpass
import gzip
import lzma
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from omnigraph_lake.errors import InvalidInputError, StorageUnavailableError

APT_GET: Final = "apt-get"
APT_CONFIG: Final = "apt-config"
APT_HELPER: Final = "/usr/lib/apt/apt-helper"
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""The keys of Debian; without this file those that the system trusts are used."""
_OTHERWISE: Final = "Use `--sample` to try it without a network, or `--indexes DIR` with files."
_SEPARATOR: Final = "|"
_PACKAGES: Final = "Created-By: Packages"
_OPENERS: Final[Mapping[str, Callable[..., Any]]] = {
    "": open,
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
_FOLDERS: Final = (
    "etc/apt/apt.conf.d",
    "etc/apt/preferences.d",
    "etc/apt/sources.list.d",
    "var/cache/apt/archives/partial",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg",
)
_CONFIGURATION: Final = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir "{directory}";
Dir::State::status "{directory}/var/lib/dpkg/status";
Dir::Etc::trusted "/etc/apt/trusted.gpg";
Dir::Etc::trustedparts "/etc/apt/trusted.gpg.d";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
APT::Sandbox::User "{user}";
APT::Architectures {{ "{architecture}"; }};
"""
_SOURCES: Final = """\
Types: deb
URIs: {uri}
Suites: {suites}
Components: {components}
Architectures: {architecture}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An archive of packages as apt is configured with it."""

    uri: str
    components: tuple[str, ...]


Indexes = Mapping[str, Sequence[Callable[[], AbstractContextManager[Iterable[bytes]]]]]
"""By suite, functions that open its indexes for reading their lines."""


def indexes_in(folder: Path, suites: Sequence[str]) -> Indexes:
    """The indexes of a folder that has one folder per suite, with files called `Packages*`.

    Raises:
        InvalidInputError: a suite has no such file.
    """
    by_suite = {}
    for suite in suites:
        paths = sorted(path for path in folder.glob(f"{suite}/**/Packages*") if path.is_file())
        if not paths:
            raise InvalidInputError(
                f"there is no file {folder}/{suite}/Packages",
                next_step="Put the indexes of each suite into a folder of its name: Packages, "
                "Packages.gz or Packages.xz.",
            )
        by_suite[suite] = [partial(_open_file, path) for path in paths]
    return by_suite


@contextmanager
def _open_file(path: Path) -> Iterator[Iterable[bytes]]:
    opener = _OPENERS.get(path.suffix)
    if opener is None:
        with _open_with_apt((APT_HELPER,), path) as lines:
            yield lines
        return
    try:
        with opener(path, "rb") as lines:
            yield lines
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise InvalidInputError(
            f"cannot read the index {path}: {error}", next_step="Download it again."
        ) from error


def system_indexes() -> Indexes:
    """The indexes of Debian that apt has downloaded for this system, as one suite.

    Raises:
        InvalidInputError: there is no apt, or it has no index of Debian.
    """
    _require_apt()
    fields = _format("CODENAME", "FILENAME")
    rows = _targets((APT_GET,), fields, "Origin: Debian")
    if not rows:
        raise InvalidInputError(
            "apt has no index of Debian on this machine",
            next_step=f"Run `apt-get update` as root. {_OTHERWISE}",
        )
    paths = [Path(path) for _, path in rows]
    return {rows[0][0]: [partial(_open_with_apt, (APT_HELPER,), path) for path in paths]}


def fetch_indexes(directory: Path, suites: Sequence[str], *, mirror: str | None) -> Indexes:
    """Download the indexes of suites with apt into a directory of its own.

    Raises:
        InvalidInputError: there is no apt, or it knows no archive of Debian.
        StorageUnavailableError: apt could not download an index.
    """
    _require_apt()
    configured = _find_archive()
    if mirror is not None:
        components = configured.components if configured else ("main",)
        configured = Archive(uri=mirror, components=components)
    if configured is None:
        raise InvalidInputError(
            "apt knows no archive of Debian on this machine",
            next_step=f"Name one with `--mirror URL`. {_OTHERWISE}",
        )
    command = _lay_out(directory, configured, suites)
    _run([*command, "--quiet=2", "update"], f"download the indexes of {', '.join(suites)}")
    rows = _targets(command, _format("RELEASE", "FILENAME"))
    helper = (APT_HELPER, *command[1:])
    by_suite = {
        suite: [
            partial(_open_with_apt, helper, Path(path))
            for release, path in rows
            if release == suite
        ]
        for suite in suites
    }
    missing = [suite for suite, files in by_suite.items() if not files]
    if missing:
        raise StorageUnavailableError(
            f"apt downloaded no index of {', '.join(missing)}", next_step=_OTHERWISE
        )
    return by_suite


def _require_apt() -> None:
    if shutil.which(APT_GET) is None:
        raise InvalidInputError("this needs apt-get, which is not installed", next_step=_OTHERWISE)


def _targets(command: Sequence[str], fields: str, *filters: str) -> list[list[str]]:
    """Fields of the indexes of packages that apt has."""
    listed = _run([*command, "indextargets", "--format", fields, _PACKAGES, *filters])
    return [line.split(_SEPARATOR) for line in listed.splitlines()]


def _format(*fields: str) -> str:
    return _SEPARATOR.join(f"$({name})" for name in fields)


def _find_archive() -> Archive | None:
    """The archive of Debian that the system downloads packages from."""
    fields = _format("REPO_URI", "COMPONENT")
    rows = _targets((APT_GET,), fields, "Origin: Debian", "Label: Debian")
    if not rows:
        return None
    uri = rows[0][0]
    components = dict.fromkeys(component for row_uri, component in rows if row_uri == uri)
    return Archive(uri=uri, components=tuple(components))


def _lay_out(directory: Path, archive: Archive, suites: Sequence[str]) -> tuple[str, ...]:
    """Make apt's directory; the command that uses it."""
    place = directory.absolute()
    for folder in _FOLDERS:
        (place / folder).mkdir(parents=True)
    (place / "var/lib/dpkg/status").touch()
    architecture = _run([APT_CONFIG, "dump", "--format", "%v%n", "APT::Architecture"]).strip()
    configuration = place / "apt.conf"
    configuration.write_text(
        _CONFIGURATION.format(directory=place, user=getpass.getuser(), architecture=architecture),
        encoding="utf-8",
    )
    sources = _SOURCES.format(
        uri=archive.uri,
        suites=" ".join(suites),
        components=" ".join(archive.components),
        architecture=architecture,
    )
    if KEYRING.exists():
        sources += f"Signed-By: {KEYRING}\n"
    (place / "etc/apt/sources.list.d/debian.sources").write_text(sources, encoding="utf-8")
    return (APT_GET, "-c", str(configuration))


def _run(command: Sequence[str], deed: str = "ask apt for its configuration") -> str:
    finished = subprocess.run(  # noqa: S603 - the words are apt's and ours
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if finished.returncode:
        said = "\n".join(finished.stderr.strip().splitlines()[-3:])
        raise StorageUnavailableError(
            f"could not {deed}: {said}", next_step=f"Check the network. {_OTHERWISE}"
        )
    return finished.stdout


@contextmanager
def _open_with_apt(helper: Sequence[str], path: Path) -> Iterator[Iterable[bytes]]:
    """Lines of a file that apt unpacks."""
    if not Path(helper[0]).exists():
        raise InvalidInputError(
            f"cannot unpack {path}: {helper[0]} is not installed",
            next_step="Unpack it first: .gz, .xz and .bz2 can be read without apt.",
        )
    with subprocess.Popen(  # noqa: S603 - as above
        [*helper, "cat-file", str(path)], stdout=subprocess.PIPE
    ) as unpacking:
        assert unpacking.stdout is not None
        yield unpacking.stdout
    if unpacking.returncode:
        raise StorageUnavailableError(
            f"apt could not read {path}", next_step="Remove the directory and run the demo again."
        )
