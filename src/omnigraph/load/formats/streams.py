"""Source files as streams of bytes, unpacked where they are packed.

Invariant: whatever goes wrong while a file is read has its name in the error. Only files that this
machine can open are sources so far; another store would be one more case here.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from omnigraph.errors import InvalidInputError, NotFoundError, StorageUnavailableError
from omnigraph.load.formats.records import SourceFile


@contextmanager
def opened(file: SourceFile) -> Iterator[BinaryIO]:
    """The bytes of a file; what is raised inside is raised as an error about this file.

    Raises:
        NotFoundError: the file is gone, or was never on this machine.
        InvalidInputError: the file is packed, and damaged or cut off.
        StorageUnavailableError: the file cannot be read.
    """
    try:
        with Path(file.path).open("rb") as plain:
            if file.gzipped:
                with gzip.GzipFile(fileobj=plain) as unpacked:
                    yield cast("BinaryIO", unpacked)
            else:
                yield plain
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{file.path} does not exist on this machine",
            next_step="Name a file that every machine of the load can read.",
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInputError(
            f"{file.path} is not a complete gzip file: {error!s:.200}",
            next_step=f"Test it with `gzip --test {file.path}`, then make or copy it again.",
        ) from error
    except OSError as error:
        raise StorageUnavailableError(
            f"{file.path} cannot be read: {error.strerror or error!s:.200}",
            next_step="Make the file readable and load again.",
        ) from error


def shrunk(file: SourceFile, *, found: int) -> InvalidInputError:
    """The error of a file that lost bytes between planning and reading."""
    return InvalidInputError(
        f"{file.path} changed while it was loaded: expected {file.size} bytes, found {found}",
        next_step="Load files that are not being written to.",
    )
