"""Writers of the main branch, as far as they keep, need or make versions of the line.

A commit lists HEAD and then puts the next number, if that is free. A number that cleanup has freed
in between is taken by the late put. Such a version is never published: the pin has moved.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.labels import RetentionName
from tests.model.retention_state import RetentionState, RetentionStep, Writer, label
from tests.model.state import replaced


def writer_steps(state: RetentionState, number: int) -> Iterator[RetentionStep]:
    """Everything that a writer of main can do next; it does not heal, so it may fail."""
    writer = state.writers[number]

    def to(
        following: Writer, name: RetentionName, detail: str, changed: RetentionState = state
    ) -> RetentionStep:
        writers = replaced(changed.writers, number, following)
        return label(name, detail, f"W{number}"), changed._replace(writers=writers)

    base = writer.base
    match writer.phase:
        case "idle":
            yield to(Writer("sidecar", state.pin), "mutation.begin", f"pin v{state.pin}")
        case "sidecar":
            following = writer._replace(phase="stage", protected=state.pin == base)
            claimed = state._replace(sidecars=replaced(state.sidecars, number, base))
            yield to(following, "mutation.post_sidecar", f"floor v{base}", claimed)
        case "stage":
            yield to(*_staged(state, writer))
        case "list":
            head = max(version for version, _ in state.versions)
            following = writer._replace(phase="put", number=head + 1)
            yield to(following, "mutation.pre_table_commit", f"will put v{head + 1}")
        case "put" if state.content(writer.number) is not None:
            again = writer._replace(phase="list", number=0)
            yield to(again, "mutation.pre_table_commit", f"v{writer.number} taken")
        case "put":
            landed = state._replace(versions=state.versions | {(writer.number, number)})
            following = writer._replace(phase="publish")
            yield to(following, "mutation.post_table_commit", f"v{writer.number}", landed)
        case "publish":
            yield _published(state, number)
        case "sidecar_delete":
            ended = state._replace(sidecars=replaced(state.sidecars, number, 0))
            yield to(Writer("done"), "mutation.post_sidecar_delete", "decided", ended)
        case _:
            return


def _staged(state: RetentionState, writer: Writer) -> tuple[Writer, RetentionName, str]:
    """Staging reads the base; a writer that finds it gone has nothing to publish."""
    found = state.content(writer.base) is not None
    following = writer._replace(phase="list" if found else "publish")
    return following, "mutation.post_stage", f"base v{writer.base} there: {found}"


def _published(state: RetentionState, number: int) -> RetentionStep:
    """Move the pin if it is still the base and the version landed right above it; else abort."""
    writer = state.writers[number]
    decided = state._replace(writers=replaced(state.writers, number, Writer("sidecar_delete")))
    if writer.number != writer.base + 1 or state.pin != writer.base:
        return label("publish.post_abort", "not exact, or the pin moved", f"W{number}"), decided
    moved = decided._replace(
        pin=writer.number, published=(*state.published, (writer.number, number))
    )
    return label("publish.post_manifest", f"pin v{writer.number}", f"W{number}"), moved
