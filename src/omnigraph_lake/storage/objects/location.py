"""Where a graph lives: one root, as a canonical URI, and the paths below it.

Invariant: every path handed to Lance or to the object store is made here, below the root: one that
is absolute or has dot segments is refused, wherever it was read. Where links lead is looked at in
`containment.py`. Local roots become absolute paths without dot segments; `s3://bucket/prefix` stays
a URI. On Azure a root is `abfss://container@account.dfs.core.windows.net/prefix`, however it was
spelled, so that one graph has one address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from omnigraph_lake.errors import DamagedGraphError, InvalidInputError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.storage.objects.cloud_options import ACCOUNT, azure_options, google_options
from omnigraph_lake.storage.objects.paths import require_path
from omnigraph_lake.storage.objects.s3_options import s3_options


class Scheme(StrEnum):
    """The kinds of store a root can name."""

    LOCAL = "file"
    S3 = "s3"
    AZURE = "abfss"
    GOOGLE = "gs"
    """Of inputs only: no graph is kept there."""


class Durability(StrEnum):
    """What an acknowledged write survives."""

    COMMIT = "commit"
    """A power cut."""
    OS = "os"
    """A crash of the process; a power cut may take the newest commits, and nothing else."""


class Verify(StrEnum):
    """Which files of a table are compared with their checksums before it is read."""

    METADATA = "metadata"
    """Versions, deletion files and the indexes that decide keys; nothing on an object store."""
    FIRST_READ = "first-read"
    """Every file of the version, data included."""


DURABILITY_VARIABLE: Final = "OMNIGRAPH_DURABILITY"
VERIFY_VARIABLE: Final = "OMNIGRAPH_VERIFY"
_NOT_IN_ADDRESSES: Final = frozenset("%?#\\")
_SCHEME_OF: Final[Mapping[str, Scheme]] = {
    "s3": Scheme.S3,
    "s3a": Scheme.S3,
    "az": Scheme.AZURE,
    "abfss": Scheme.AZURE,
    "gs": Scheme.GOOGLE,
}
"""How addresses of object stores begin."""
_AZURE_HOST: Final = ".dfs.core.windows.net"
_AZURE_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{1,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """One graph's root and the options its store needs; options never appear in `repr`."""

    scheme: Scheme
    uri: str
    durability: Durability = Durability.COMMIT
    verify: Verify = Verify.METADATA
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def child(self, relative: str) -> str:
        """The Lance URI of something below the root.

        Raises:
            DamagedGraphError: the path would leave the root.
        """
        require_relative(self, relative)
        return f"{self.uri}/{relative}"

    @property
    def bucket(self) -> str:
        """The bucket or container of a root that is not local."""
        return self.uri.split("/")[2]

    def __str__(self) -> str:
        return self.uri


def parse_root(
    root: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: str | None = None,
    verify: str | None = None,
) -> Root:
    """Understand a local path, or a `file://`, `s3://`, `az://` or `abfss://` root."""
    located = _locate(root, storage_options)
    return replace(located, durability=_durability(durability), verify=_verify(verify))


def parse_input(
    address: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    graph: Root | None = None,
) -> tuple[Root, str] | None:
    """The bucket of an input and the path in it; None if the address is not of an object store.

    Without options, an input of the kind of store, and of the account, that the graph is in is
    reached as the graph is, and any other one as the environment says.
    """
    scheme, marked, rest = address.partition("://")
    if not marked or scheme not in _SCHEME_OF:
        return None
    options = _checked_options(storage_options)
    if storage_options is None and graph is not None and graph.scheme is _SCHEME_OF[scheme]:
        _, _, host = rest.partition("/")[0].partition("@")
        if scheme != "abfss" or host == graph.bucket.partition("@")[2]:
            options = dict(graph.storage_options)
    return _bucket_of(address, scheme, options)


def require_relative(root: Root, path: str) -> None:
    """Refuse a path that its spelling takes out of the root.

    Raises:
        DamagedGraphError: it is absolute, or has dot segments.
    """
    fault = _fault_of(path) or (None if root.scheme is Scheme.LOCAL else _fault_in_address(path))
    if fault is not None:
        raise outside(str(root), path, fault)


def stored_path(path: str, *, said_by: str) -> str:
    """A path, or a part of one, as it was read from storage.

    Raises:
        DamagedGraphError: it could not be the name of something below a root.
    """
    if not isinstance(path, str):
        raise outside(said_by, path, "it is no text")
    fault = _fault_of(path) or _fault_in_address(path)
    if fault is not None:
        raise outside(said_by, path, fault)
    return path


def outside(said_by: str, path: object, fault: str) -> DamagedGraphError:
    """The error of a path that is not below the root."""
    return DamagedGraphError(
        f"{said_by} names {path!r:.200}, which is not below the root: {fault}. Nothing was read "
        "or changed there",
        next_step="Do not use this folder unless you trust its origin; restore it from a backup, "
        "or run `omnigraph repair GRAPH --rebuild-manifest` to see what can be recovered.",
    )


def _fault_of(path: str) -> str | None:
    if path.startswith("/"):
        return "it is absolute"
    if any(segment in {"", ".", ".."} for segment in path.split("/")):
        return "it has empty or dot segments"
    return "it has a null character" if "\0" in path else None


def _fault_in_address(path: str) -> str | None:
    """What an address would read otherwise than as a name: escapes, queries and fragments."""
    if not path.isprintable() or any(character in _NOT_IN_ADDRESSES for character in path):
        return "it has characters that are not allowed in a graph"
    return None


def is_durability_given(durability: str | None) -> bool:
    """Whether a caller or the environment sets the durability."""
    return bool(durability or os.environ.get(DURABILITY_VARIABLE))


def _durability(durability: str | None) -> Durability:
    """What a caller asks for, or else the environment; durable commits by default."""
    value = durability or os.environ.get(DURABILITY_VARIABLE) or Durability.COMMIT
    try:
        return Durability(value)
    except (ValueError, RecursionError):
        raise InvalidInputError(
            f"durability is {shown(value)}, expected 'commit' or 'os'",
            next_step=f"Give durability='commit', or unset {DURABILITY_VARIABLE}.",
        ) from None


def _verify(verify: str | None) -> Verify:
    value = verify or os.environ.get(VERIFY_VARIABLE) or Verify.METADATA
    try:
        return Verify(value)
    except (ValueError, RecursionError):
        raise InvalidInputError(
            f"verify is {shown(value)}, expected 'metadata' or 'first-read'",
            next_step=f"Give verify='first-read', or unset {VERIFY_VARIABLE}.",
        ) from None


def _locate(root: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> Root:
    options = _checked_options(storage_options)
    text: object = os.fspath(root) if isinstance(root, os.PathLike) else root
    if not isinstance(text, str) or not text.strip():
        raise _refused(text, "a graph root must be a path or a URI")
    if text == ":memory:":
        # Other databases are kept in memory under this name; here it would become a folder.
        raise _refused(text, "a graph is stored in a folder or at a URL; name a temporary folder")
    if "://" not in text:
        return Root(scheme=Scheme.LOCAL, uri=_absolute(text), storage_options=options)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise _refused(text, str(error)) from error
    match parts.scheme:
        case "file":
            return Root(scheme=Scheme.LOCAL, uri=_file_path(text, parts), storage_options=options)
        case "s3" | "s3a" | "az" | "abfss":
            segments = _path_segments(text)
            bucket, _ = _bucket_of(text, parts.scheme, options)
            return replace(bucket, uri="/".join([bucket.uri, *segments]))
        case "gs":
            raise _refused(text, "whether Lance commits safely there is not tested")
        case "http" | "https":
            raise _refused(text, "an http address is a server, not a store")
        case _:
            raise _refused(text, f"the scheme {parts.scheme!r} is not supported")


def _checked_options(options: object) -> dict[str, str]:
    value = {} if options is None else options
    if isinstance(value, Mapping) and all(
        isinstance(text, str) for pair in value.items() for text in pair
    ):
        return dict(value)
    raise InvalidInputError("storage_options must map option names to texts")


def _file_path(text: str, parts: SplitResult) -> str:
    if parts.netloc not in {"", "localhost"}:
        raise _refused(text, f"file:// names the host {parts.netloc!r}")
    if parts.query or parts.fragment or not parts.path:
        raise _refused(text, "a file address is file:///path; write ? and # as %3F and %23")
    return _absolute(unquote(parts.path))


def _absolute(path: str) -> str:
    if not path.isprintable():
        raise _refused(path, "it has control characters or is not valid Unicode")
    require_path(path, argument="the root")
    try:
        expanded = Path(path).expanduser()
    except RuntimeError as error:
        raise _refused(path, str(error)) from error
    absolute = expanded if expanded.is_absolute() else Path.cwd() / expanded
    segments: list[str] = []
    for segment in absolute.parts[1:]:
        if segment == "..":
            del segments[-1:]
        elif segment != ".":
            segments.append(segment)
    if not segments:
        raise _refused(path, "the file system's root cannot be a graph")
    return "/" + "/".join(segments)


def _path_segments(address: str) -> list[str]:
    if not address.isprintable():
        raise _refused(address, "it has control characters or is not valid Unicode")
    segments = [segment for segment in address.split("/")[3:] if segment]
    if any(segment in {".", ".."} for segment in segments):
        raise _refused(address, "it is an address with dot segments")
    return segments


def _bucket_of(address: str, scheme: str, options: Mapping[str, str]) -> tuple[Root, str]:
    """The bucket or container of an address, and the path in it as it is spelled."""
    name, _, path = address.partition("://")[2].partition("/")
    if not name or not name.isprintable():
        raise _refused(address, "it names no bucket")
    match scheme:
        case "s3" | "s3a":
            uri = f"s3://{name}"
            resolved = s3_options(options, os.environ, root=address)
            return Root(scheme=Scheme.S3, uri=uri, storage_options=resolved), path
        case "gs":
            resolved = google_options(options, os.environ)
            return Root(scheme=Scheme.GOOGLE, uri=f"gs://{name}", storage_options=resolved), path
        case _:
            container, _, host = name.partition("@")
            account = host.removesuffix(_AZURE_HOST) if scheme == "abfss" else None
            if scheme == "abfss" and account == host:
                raise _refused(address, f"its host is not ACCOUNT{_AZURE_HOST}")
            resolved = azure_options(options, os.environ, address=address, account=account)
            for part in (container, resolved[ACCOUNT]):
                if not _AZURE_NAME.fullmatch(part):
                    raise _refused(address, f"{part!r:.80} is no name of a container or account")
            uri = f"abfss://{container}@{resolved[ACCOUNT]}{_AZURE_HOST}"
            return Root(scheme=Scheme.AZURE, uri=uri, storage_options=resolved), path


def _refused(text: object, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"cannot use {shown(text, 200)} as a graph root: {why}",
        next_step="Give a local path, file:///path, s3://bucket/prefix, az://container/prefix or "
        "abfss://container@account.dfs.core.windows.net/prefix.",
    )
