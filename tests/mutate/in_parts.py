"""Runs mutations of a few rows the way of those that memory cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

from omnigraph_lake.engine import query
from omnigraph_lake.errors import InvalidInputError, QueryFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import completion
from omnigraph_lake.mutate import matched, removal, statements
from omnigraph_lake.mutate.overlay import MutationTooLarge


@contextmanager
def forced_in_parts() -> Iterator[None]:
    """Let a mutation hold no row of a match, and no table that it can stream."""
    limits = replace(matched.MATCHED_LIMITS, rows=0)
    with ExitStack() as stack:
        for module, name, value in (
            (query, "STREAMED_LEAST", 0),
            (completion, "ROWS_PER_BUCKET", 3),
            (removal, "ROWS_PER_BUCKET", 3),
            (matched, "MATCHED_LIMITS", limits),
            (statements, "MATCHED_LIMITS", limits),
        ):
            stack.enter_context(patch.object(module, name, value))
        yield


def can_run_in_parts(graph: Graph, text: str, parameters: Mapping[str, object]) -> bool:
    """Whether a mutation has one statement for one type, or fails for another reason than size."""
    try:
        with forced_in_parts():
            graph.mutate(text, parameters, dry_run=True)
    except MutationTooLarge:
        return False
    except (InvalidInputError, QueryFailedError):
        return True
    return True
