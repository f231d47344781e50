"""The policy of a nightly run: every word of its file, and what is said about wrong ones."""

from __future__ import annotations

from datetime import timedelta

import pytest

from omnigraph_lake.arguments import parse_age
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.maintenance.cleanup import CleanupPolicy
from omnigraph_lake.maintenance.maintain import Policy, parse_policy
from omnigraph_lake.maintenance.optimize import OptimizeOptions

pytestmark = pytest.mark.unit


def policy(text: str) -> Policy:
    return parse_policy(text, name="nightly.toml")


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("45s", timedelta(seconds=45)),
        ("30m", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        (" 7d ", timedelta(days=7)),
        ("4w", timedelta(weeks=4)),
        ("0s", timedelta(0)),
    ],
)
def test_an_age_is_a_number_and_its_unit(text: str, age: timedelta) -> None:
    assert parse_age(text) == age


@pytest.mark.parametrize(
    "text", ["", "7", "d", "-7d", "7 d", "7D", "1.5h", "7days", "9999999d", "\u0667d", "7d\n7d"]
)
def test_what_is_no_age_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"(?s)is not a duration.*45s, 30m, 12h, 7d or 4w"):
        parse_age(text)


def test_without_a_word_every_step_runs_and_a_week_is_kept() -> None:
    everything = policy("")

    assert everything == Policy()
    assert (everything.check, everything.optimize, everything.cleanup) == (True, True, True)
    assert everything.optimize_options == OptimizeOptions()
    assert everything.cleanup_policy == CleanupPolicy(
        keep_versions=10, older_than=timedelta(days=7)
    )


def test_every_word_is_understood() -> None:
    said = policy(
        """
        [check]
        enabled = false
        [optimize]
        enabled = false
        target_rows_per_fragment = 4096
        [cleanup]
        enabled = false
        keep = 2
        older_than = "12h"
        allow_unsafe_keep = true
        """
    )

    assert said == Policy(
        check=False,
        optimize=False,
        optimize_options=OptimizeOptions(target_rows_per_fragment=4096),
        cleanup=False,
        cleanup_policy=CleanupPolicy(keep_versions=2, older_than=timedelta(hours=12)),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("keep = 5", CleanupPolicy(keep_versions=5)),
        ('older_than = "1d"', CleanupPolicy(older_than=timedelta(days=1))),
        ("enabled = true", Policy().cleanup_policy),
    ],
)
def test_one_word_about_versions_alone_means_what_it_says(
    text: str, expected: CleanupPolicy
) -> None:
    assert policy(f"[cleanup]\n{text}").cleanup_policy == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[check", "nightly.toml is not TOML"),
        (
            "[cleanpu]",
            r"nightly.toml says 'cleanpu'.*cleanup.*Known values: check, optimize, branches, "
            r"cleanup",
        ),
        ("[cleanup]\nkepe = 3", r"\[cleanup\] of nightly.toml says 'kepe'.*keep"),
        ("cleanup = true", "cleanup in nightly.toml is True, expected a section"),
        ("[check]\nenabled = 1", "check.enabled in nightly.toml is 1, expected true or false"),
        ("[cleanup]\nkeep = true", "cleanup.keep in nightly.toml is True, expected a whole number"),
        ("[cleanup]\nkeep = 2.0", "expected a whole number"),
        ("[cleanup]\nolder_than = 7", "cleanup.older_than in nightly.toml is 7, expected a text"),
        ('[cleanup]\nolder_than = "soon"', "'soon' is not a duration"),
        ("[cleanup]\nkeep = 2", r"interrupted write.*--allow-unsafe-keep"),
        ("[cleanup]\nkeep = 0", "cannot keep 0 versions"),
        ("[optimize]\ntarget_rows_per_fragment = '9'", "expected a whole number"),
    ],
)
def test_a_word_that_is_wrong_is_named_with_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"(?s){message}"):
        policy(text)


@pytest.mark.parametrize("rows", [0, -5])
def test_a_size_of_fragments_that_cannot_be_is_refused(rows: int) -> None:
    with pytest.raises(InvalidInputError):
        policy(f"[optimize]\ntarget_rows_per_fragment = {rows}")
