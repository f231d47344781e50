"""Schemas that were changed on two sides, merged: all pairs of edits, and laws of merging."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from omnigraph_lake.evolution.plan.plan import StepKind
from omnigraph_lake.merge.catalog_conflicts import SchemaConflictKind
from omnigraph_lake.merge.catalogs import MergedSchema, SchemaSide, merge_catalogs
from omnigraph_lake.merge.conflicts import Side
from omnigraph_lake.schema.catalog import FIRST_UNIQUE_NUMBER
from omnigraph_lake.schema.model import model_hash, shape_hash
from omnigraph_lake.schema.printing import print_schema
from tests.gate.seeds import run_seed
from tests.merge.catalogs.schema_edits import EDITS, Edit, base, counted, evolution, side
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).with_name("golden")
UPDATING = os.environ.get("OMNIGRAPH_UPDATE_GOLDEN") == "1"
OF_THEIRS = FIRST_UNIQUE_NUMBER + 1000
BY_NAME = {edit.name: edit for edit in EDITS}


def merged(ours: Edit, theirs: Edit, resolution: dict[str, Side] | None = None) -> MergedSchema:
    return merge_catalogs(base(), side(ours), side(theirs, OF_THEIRS), resolution)


def outcome(result: MergedSchema) -> str:
    return " ".join(sorted({conflict.kind for conflict in result.conflicts})) or "merged"


def _require_stored(pairs: Iterable[tuple[Edit, Edit]], stored: dict[str, dict[str, str]]) -> None:
    for ours, theirs in pairs:
        result, swapped = merged(ours, theirs), merged(theirs, ours)
        assert outcome(result) == stored[ours.name][theirs.name], (ours.name, theirs.name)
        assert outcome(swapped) == outcome(result), (ours.name, theirs.name)
        if result.catalog is not None and swapped.catalog is not None:
            assert shape_hash(result.catalog) == shape_hash(swapped.catalog)


def test_pairs_of_edits_end_as_stored_and_alike_from_both_sides() -> None:
    stored = json.loads((GOLDEN / "pairs.json").read_text())
    pairs = list(itertools.combinations_with_replacement(EDITS, 2))
    conflicting = [pair for pair in pairs if stored[pair[0].name][pair[1].name] != "merged"]
    chosen = random.Random(run_seed())

    _require_stored([*chosen.sample(pairs, 60), *chosen.sample(conflicting, 20)], stored)


@pytest.mark.nightly("more than 2,000 merges; the gate has a sample of them")
def test_every_pair_of_edits_ends_as_stored() -> None:
    pairs = list(itertools.product(EDITS, EDITS))
    if UPDATING:
        outcomes: dict[str, dict[str, str]] = {edit.name: {} for edit in EDITS}
        for ours, theirs in pairs:
            outcomes[ours.name][theirs.name] = outcome(merged(ours, theirs))
        (GOLDEN / "pairs.json").write_text(json.dumps(outcomes, indent=1) + "\n")

    _require_stored(pairs, json.loads((GOLDEN / "pairs.json").read_text()))


def test_messages_name_both_changes_as_stored() -> None:
    stored = GOLDEN / "messages.json"
    outcomes = json.loads((GOLDEN / "pairs.json").read_text())
    messages: dict[str, str] = {}
    for kind in sorted(set(SchemaConflictKind) - {SchemaConflictKind.NUMBERS_TAKEN}):
        ours, theirs = next(
            pair
            for pair in itertools.product(EDITS, EDITS)
            if outcomes[pair[0].name][pair[1].name] == kind
        )
        first = merged(ours, theirs).conflicts[0]
        messages[first.kind] = f"{first.element}: {first.message}"
    if UPDATING:
        stored.write_text(json.dumps(messages, indent=1) + "\n")

    assert messages == json.loads(stored.read_text())


def test_edits_cover_every_kind_of_step() -> None:
    kinds = {step.kind for edit in EDITS for step in evolution(edit).plan.steps}

    assert set(StepKind) - kinds <= {StepKind.RESPELL_CONSTRAINT, StepKind.CHANGE_ORIGIN}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_a_merge_with_an_unchanged_side_or_with_itself_is_the_changed_side(edit: Edit) -> None:
    changed, unchanged = side(edit), SchemaSide(catalog=base())

    for ours, theirs in ((changed, unchanged), (unchanged, changed), (changed, changed)):
        result = merge_catalogs(base(), ours, theirs)
        assert result.conflicts == ()
        assert result.catalog is not None
        assert model_hash(result.catalog) == model_hash(changed.catalog)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_what_a_side_takes_back_is_taken_back(edit: Edit) -> None:
    changed, earlier = side(edit).catalog, base()

    result = merge_catalogs(changed, SchemaSide(catalog=changed), SchemaSide(catalog=earlier))

    assert result.conflicts == ()
    assert result.catalog is not None
    assert shape_hash(result.catalog) == shape_hash(earlier)


def test_what_both_sides_bring_back_is_one_thing() -> None:
    dropped = side(BY_NAME["drop_property"]).catalog
    brought_back = SchemaSide(catalog=base())

    renamed = SchemaSide(catalog=side(BY_NAME["rename_type"]).catalog)
    result = merge_catalogs(dropped, renamed, brought_back)

    assert result.conflicts == ()
    assert result.catalog is not None
    assert shape_hash(result.catalog) == shape_hash(renamed.catalog)


def test_what_both_add_under_one_name_is_one_thing_with_our_number() -> None:
    edit = BY_NAME["add_property"]
    result = merged(edit, edit)

    assert result.catalog is not None
    ours = side(edit).catalog.nodes["Person"].properties["b"].number
    theirs = side(edit, OF_THEIRS).catalog.nodes["Person"].properties["b"].number
    assert result.catalog.nodes["Person"].properties["b"].number == ours
    assert result.same_numbers[theirs] == ours


def test_numbers_that_branches_counted_themselves_are_refused() -> None:
    ours, theirs = (
        SchemaSide(catalog=counted(BY_NAME[name])) for name in ("add_property", "add_type")
    )

    conflicts = merge_catalogs(base(), ours, theirs).conflicts

    assert {conflict.kind for conflict in conflicts} == {SchemaConflictKind.NUMBERS_TAKEN}


@pytest.mark.parametrize(
    ("ours", "theirs", "element"),
    [
        ("rename_type", "rename_type otherwise", "Town"),
        ("drop_property", "widen_property", "Person.age"),
        ("update_type_metadata", "update_type_metadata otherwise", "Town"),
        ("widen_property", "widen_property otherwise", "Person.age"),
        ("string_to_enum", "string_to_enum otherwise", "Person.mood"),
        ("add_property filled", "add_property filled otherwise", "Person.b"),
        ("add_property", "add_property otherwise", "Person.b"),
        ("change_range", "change_range otherwise", "Person"),
    ],
)
@pytest.mark.parametrize("decided", Side)
def test_a_resolution_takes_the_change_of_one_side(
    ours: str, theirs: str, element: str, decided: Side
) -> None:
    one, other = BY_NAME[ours], BY_NAME[theirs]
    resolution = {element: decided, "Aged.age": decided}
    result = merged(one, other, resolution)

    assert result.conflicts == ()
    assert result.catalog is not None
    chosen = one if decided is Side.OURS else other
    chosen_side = side(one) if decided is Side.OURS else side(other, OF_THEIRS)
    if "drop" not in ours:
        assert shape_hash(result.catalog) == shape_hash(chosen_side.catalog)
    if chosen.name.startswith("add_property filled"):
        assert list(result.fills.values()) == list(chosen_side.fills.values())


def test_mappings_of_both_sides_are_chained() -> None:
    ours = BY_NAME["map_values"]  # left to gone
    first = merged(ours, BY_NAME["extend_enum"])

    assert first.catalog is not None
    (mapping,) = first.mappings.values()
    assert [(pair.old, pair.new) for pair in mapping.base] == [("left", "gone")]
    assert mapping.theirs == mapping.base
    assert mapping.ours == (), "rows of ours have the values already"
    assert outcome(merged(ours, BY_NAME["map_values to another"])) == "SM-106"
    assert outcome(merged(ours, BY_NAME["map_values otherwise"])) == "SM-106"


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_a_printed_schema_compiles_to_the_same_shape(edit: Edit) -> None:
    catalog = evolution(edit).target

    assert shape_hash(compiled(print_schema(catalog))) == shape_hash(catalog)
