"""Random pairs of schemas: the plan leads exactly to the target, and the target means the text."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from omnigraph_lake.errors import SchemaInvalidError
from omnigraph_lake.evolution.plan.plan_text import plan_json, plan_text
from omnigraph_lake.evolution.plan.planning import Evolution, apply_to, evolve
from omnigraph_lake.schema.catalog import FIRST_UNIQUE_NUMBER, Catalog
from omnigraph_lake.schema.model import decode_model, encode_model, model_hash, shape_hash
from tests.drawing import drawn
from tests.evolution.plan.pairs import pair, shuffled
from tests.schema.compiling import compiled
from tests.schema.schemas import texts

pytestmark = pytest.mark.random

seeds = st.integers(0, 2**48)


def evolved(accepted: str, new: str) -> Evolution:
    """The change, unless a text or one of its hints is wrong, which is not the point here."""
    try:
        return evolve(compiled(accepted), new)
    except SchemaInvalidError:
        assume(False)
        raise


def numbers(catalog: Catalog) -> dict[int, tuple[str, int]]:
    """Every number with the kind of its type and the number of its owner."""
    found: dict[int, tuple[str, int]] = {}
    for kind in ("interfaces", "nodes", "edges"):
        for each in getattr(catalog, kind).values():
            found[each.number] = (kind, 0)
            for one in each.properties.values():
                found[one.number] = (kind, each.number)
    return found


def holds(evolution: Evolution, new: str) -> None:
    plan, target = evolution.plan, evolution.target
    assert shape_hash(target) == shape_hash(compiled(new))
    assert decode_model(encode_model(target)) == target
    assert all(line.isprintable() for line in plan_text(plan).split("\n"))
    assert plan_json(plan) == plan_json(evolve(evolution.accepted, new).plan)
    if plan.supported:
        assert model_hash(apply_to(evolution.accepted, plan.steps)) == model_hash(target)
    if not plan.steps and plan.supported:
        assert model_hash(target) == model_hash(evolution.accepted)


@drawn(10, one_in=2)
@given(seeds)
def test_the_steps_lead_from_the_accepted_catalog_to_the_target(seed: int) -> None:
    accepted, new = pair(seed)

    evolution = evolved(accepted, new)

    holds(evolution, new)


@drawn(6, one_in=4)
@given(texts(), texts())
def test_unrelated_schemas_have_a_plan_too(accepted: str, new: str) -> None:
    evolution = evolved(accepted, new)

    holds(evolution, new)


@drawn(10, one_in=2)
@given(seeds)
def test_a_number_keeps_its_kind_and_owner_and_new_ones_were_never_given_out(seed: int) -> None:
    evolution = evolved(*pair(seed))
    before, after = numbers(evolution.accepted), numbers(evolution.target)

    for number in after:
        assert number in before or number >= FIRST_UNIQUE_NUMBER
        assert number not in before or before[number] == after[number]
    assert evolution.target.next_number >= evolution.accepted.next_number
    assert evolution.target.identity_domain == evolution.accepted.identity_domain


@drawn(10, one_in=2)
@given(seeds)
def test_an_accepted_text_can_be_planned_again_with_its_hints_and_changes_nothing(
    seed: int,
) -> None:
    accepted, new = pair(seed)
    target = evolved(accepted, new).target

    again = evolve(target, new)

    assert again.plan.steps == ()
    assert again.plan.refusals == ()
    assert again.target == target


@drawn(10, one_in=2)
@given(seeds)
def test_an_order_that_means_nothing_is_no_change(seed: int) -> None:
    accepted, new = shuffled(seed)

    evolution = evolved(accepted, new)

    assert evolution.plan.steps == ()
    assert evolution.target == evolution.accepted


def test_most_random_pairs_are_valid_and_many_are_supported() -> None:
    outcomes: list[str] = []
    for seed in range(30):
        accepted, new = pair(seed)
        try:
            plan = evolve(compiled(accepted), new).plan
        except SchemaInvalidError:
            outcomes.append("invalid")
            continue
        outcomes.append("supported" if plan.supported and plan.steps else "refused")

    assert outcomes.count("invalid") < 9
    assert outcomes.count("supported") > 9
