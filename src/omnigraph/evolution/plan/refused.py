"""Messages for a refused schema change: unsupported changes, and rows that violate it.

Invariant: every reason names its code, the thing, what was found, and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.evolution.plan.data_checks import DataCheck, EdgesPerSource
from omnigraph.evolution.plan.plan import Plan
from omnigraph.evolution.plan.plan_words import check_words


def refusal_of_plan(filename: str, plan: Plan) -> tuple[str, str]:
    """The sentence and the details of a plan with refusals."""
    count = len(plan.refusals)
    lines = [
        f"  [{each.code}] {each.subject.words} {each.element}: {each.reason}\n    {each.remedy}"
        for each in plan.refusals
    ]
    return (
        f"{filename} contains {count} change{'s' if count != 1 else ''} that cannot be made",
        "\n".join(lines),
    )


def refusal_of_rows(
    filename: str, found: Sequence[tuple[DataCheck, int, tuple[str, ...]]]
) -> tuple[str, str]:
    """The sentence and the details of checks that rows do not pass."""
    lines = []
    for check, rows, examples in found:
        more = ", ..." if rows > len(examples) else ""
        shown = f": {', '.join(examples)}{more}" if examples else ""
        thing = "source" if isinstance(check, EdgesPerSource) else "row"
        lines.append(
            f"  [{check.code}] expected {check_words(check)}; found {rows:,} "
            f"{thing}{'' if rows == 1 else 's'} in violation{shown}\n    {check.remedy}"
        )
    return f"rows of this graph violate {filename}", "\n".join(lines)
