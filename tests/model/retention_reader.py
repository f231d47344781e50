"""Readers: open a version first, and then ask whether it was still the published one.

Cleanup frees the number of a version that it deletes, and a late put may take it again. A floor
at or below the version, read after it was opened, proves that it had not been deleted. So does
somebody who pins it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.model.labels import RetentionName
from tests.model.retention_scope import RetentionScope
from tests.model.retention_state import (
    Reader,
    ReaderPhase,
    RetentionState,
    RetentionStep,
    is_pinned,
    label,
    source_version,
)
from tests.model.state import replaced

ORDER: Final[tuple[ReaderPhase, ...]] = ("open", "floor", "pinned", "answer")
CHECK_FIRST: Final[tuple[ReaderPhase, ...]] = ("floor", "pinned", "open", "answer")


def reader_steps(
    scope: RetentionScope, state: RetentionState, number: int
) -> Iterator[RetentionStep]:
    """Everything that a reader can do next."""
    reader, source = state.readers[number], scope.readers[number]
    order = CHECK_FIRST if scope.mutant == "read_check_first" else ORDER
    version = reader.version

    def to(following: Reader, name: RetentionName, detail: str) -> RetentionStep:
        readers = replaced(state.readers, number, following)
        return label(name, detail, f"reader{number}"), state._replace(readers=readers)

    def after(phase: ReaderPhase) -> Reader:
        return reader._replace(phase=order[order.index(phase) + 1])

    match reader.phase:
        case "idle":
            if (found := source_version(scope, state, source)) is not None:
                yield to(Reader(order[0], found), "read.begin", f"{source[0]} is at v{found}")
        case "open":
            opened = _opened(scope, state, after("open"))
            yield to(opened, "read.post_manifest", f"v{version}: {opened.phase != 'gone'}")
        case "floor":
            following = after("pinned" if version >= state.floor else "floor")
            yield to(following, "retention.check", f"v{version}, floor is {state.floor}")
        case "pinned":
            pinned = is_pinned(scope, state, version)
            following = after("pinned") if pinned else Reader("gone")
            yield to(following, "retention.check", f"v{version} is pinned: {pinned}")
        case "answer":
            yield to(reader._replace(phase="answered"), "read.verify", f"answers from v{version}")
        case _:
            return


def _opened(scope: RetentionScope, state: RetentionState, following: Reader) -> Reader:
    content = state.content(following.version)
    if content is None:
        return Reader("gone")
    if scope.mutant == "read_unchecked":
        following = following._replace(phase="answer")
    return following._replace(content=content)
