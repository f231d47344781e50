"""Rows pass the checks of a schema change exactly if a write under the new schema takes them."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.evolution.plan.planning import Evolution, evolve
from omnigraph_lake.evolution.run_checks import failed_checks
from omnigraph_lake.load.write import validate
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.schema.catalog import Catalog
from omnigraph_lake.validation.constraints import WriteMode
from tests.drawing import drawn
from tests.evolution.plan.pairs import pair
from tests.evolution.plan.rows import Row, migrated, rows_of
from tests.evolution.plan.test_random_pairs import seeds
from tests.evolution.stored import as_stored_in, stored
from tests.schema.compiling import compiled
from tests.validation.graphs import MemoryTables, counting_ids, published

pytestmark = pytest.mark.random


@drawn(6, one_in=2)
@given(seeds)
def test_random_rows_pass_exactly_if_a_write_takes_them(seed: int) -> None:
    judge(seed)


def test_random_rows_both_pass_and_fail() -> None:
    verdicts: Counter[bool] = Counter()
    for seed in range(10_000, 10_120):
        verdicts.update(judge(seed))
        if min(verdicts[True], verdicts[False]) > 1:
            return

    raise AssertionError(f"nearly all rows are judged alike: {verdicts}")


def judge(seed: int) -> list[bool]:
    """For every table that goes on, whether its checks hold, which a write must confirm.

    Rows are such that the accepted schema allows them: no key among them is infinite.
    """
    accepted, new = pair(seed)
    try:
        evolution = evolve(compiled(accepted), new)
    except SchemaInvalidError:
        return []
    if not evolution.plan.supported or not evolution.plan.needs:
        return []
    rng = random.Random(seed)
    drawn = {key: rows_of(each, rng) for key, each in evolution.accepted.tables().items()}
    rows = {
        key: few if is_taken(evolution.accepted, key, few) else [] for key, few in drawn.items()
    }
    with TemporaryDirectory() as home:
        where, snapshot = stored(str(Path(home, "graph")), evolution.accepted, rows)
        failed = {
            each.check.table
            for each in failed_checks(ThreadRunner(), where, snapshot, evolution.plan.needs)
        }
    verdicts: list[bool] = []
    target = {each.number: key for key, each in evolution.target.tables().items()}
    for key, before in evolution.accepted.tables().items():
        if before.number in target and rows[key]:
            new_key = target[before.number]
            taken = is_taken(evolution.target, new_key, after(evolution, rows[key], new_key))
            assert taken == (key not in failed), key
            verdicts.append(taken)
    return verdicts


def after(evolution: Evolution, rows: list[Row], new_key: str) -> list[Row]:
    """The rows as the steps of the plan leave them, told without the code under test."""
    declared = evolution.target.tables()[new_key]
    steps = [each for each in evolution.plan.steps if each.subject.number == declared.number]
    return [
        {name: math.nan if value == "nan" else value for name, value in row.items()}
        for row in as_stored_in(migrated(rows, steps), declared)
    ]


def is_taken(catalog: Catalog, key: str, rows: list[Row]) -> bool:
    """Whether a write takes the rows of one type into a graph that has nothing but some nodes."""
    tables = dict(published(catalog).tables)
    if key.startswith("edge:"):
        ids = pa.table({"id": list("123")})
        tables |= {each: ids for each in tables if each.startswith("node:")}
    write = validate(
        {key: rows},
        mode=WriteMode.APPEND,
        catalog=catalog,
        pinned=MemoryTables(tables=tables),
        new_id=counting_ids(),
    )
    return write.report.ok
