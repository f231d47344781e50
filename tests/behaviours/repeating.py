"""What a random case that fails says about how to repeat it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.gate.seeds import run_seed


@contextmanager
def repeatable(case_seed: str = "") -> Iterator[None]:
    """Add to an error the variables that make a run draw the same cases, and the case's own seed.

    The number of cases counts as well: a run that draws more cases draws other ones.
    """
    variables = {"OMNIGRAPH_SEED": str(run_seed())}
    if "OMNIGRAPH_EXAMPLES" in os.environ:
        variables["OMNIGRAPH_EXAMPLES"] = os.environ["OMNIGRAPH_EXAMPLES"]
    try:
        yield
    except BaseException as error:
        command = " ".join(f"{name}={value}" for name, value in variables.items())
        error.add_note(f"repeat with: {command}" + (f" (seed {case_seed!r})" if case_seed else ""))
        raise
