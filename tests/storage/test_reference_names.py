"""Which names branches and tags may have, and what a text could mean instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.storage.refs.references import (
    checked_branch,
    checked_tag,
    could_be_name,
    is_commit_id,
    is_point_in_time,
    manifest_version,
)
from tests.drawing import drawn

pytestmark = pytest.mark.unit

ULID = "01M7FMJP2JQ64ACNXDJ6GSS1KF"
CHECKS = [checked_branch, checked_tag]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "name",
    [
        *("dev", "Dev.2-x_y", "-x", "_x", "HEAD", "MAIN", "mainly", "main.x", "1a", "v", "v1.0"),
        *("x.json", "2026-13-45", "nul", "x" * 160, "ä", "日本", "ß", "1e5", "T2026", ULID[:-1]),
    ],
)
def test_a_good_name_is_taken_without_the_space_around_it(
    check: Callable[[object], str], name: str
) -> None:
    assert check(name) == name
    assert check(f" {name}\t") == name


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("main", "main"),
        (" main ", "main"),
        ("__x", r"(?s)reserved for Omnigraph.*except for those that start with '__run__'"),
        *((text, "mistaken for a commit") for text in (ULID, ULID.lower(), "17", "v17", "0")),
        *((text, "mistaken for a commit") for text in ("2026-11-01", "20261101", "2026-W45-1")),
        *((text, "mistaken for a commit") for text in ("2026-11-01T10:00:00Z", "2026-11-01 10:00")),
        *((text, "cannot name") for text in ("", " ", ".", "..", "a..b", ".a", "a.", "x.lock")),
        *((text, "cannot name") for text in ("a@b", "@", "a b", "*", "x:y", "a\\b", "~", "a?")),
        *((text, "cannot name") for text in ("a\nb", "a\0b", "🐍", "e\u0301", "\ud800")),
        *((text, "cannot name") for text in ("/a", "a/", "a//b", "a/.b", "a/..", "../a")),
        ("x" * 161, "cannot name"),
    ],
)
def test_a_bad_name_is_refused_with_a_next_step(
    check: Callable[[object], str], name: str, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        check(name)

    assert caught.value.next_step
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", [None, 5, b"x", ["x"]])
def test_what_is_no_text_is_no_name(check: Callable[[object], str], name: object) -> None:
    with pytest.raises(InvalidInputError, match="expected a name"):
        check(name)


def test_a_branch_may_have_parts_and_a_tag_may_not() -> None:
    assert checked_branch("a/b/main") == "a/b/main"
    with pytest.raises(InvalidInputError, match="slash"):
        checked_tag("a/b")


@pytest.mark.parametrize("name", ["main/x", "main/x/y"])
def test_no_branch_lies_below_main(name: str) -> None:
    with pytest.raises(InvalidInputError, match="main"):
        checked_branch(name)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("17", 17), ("v17", 17), ("0", 0), ("v", None), ("V17", None), ("-1", None)),
        *(("1.0", None), ("17 ", None), ("", None)),
    ],
)
def test_a_manifest_version_is_a_number_or_a_number_after_v(text: str, number: int | None) -> None:
    assert manifest_version(text) == number


@pytest.mark.random
@drawn(20)
@given(st.text(max_size=40) | st.from_regex(r"[\w./@v\-]{1,30}", fullmatch=True))
def test_a_name_that_passes_means_nothing_else_and_passes_again(text: str) -> None:
    try:
        name = checked_branch(text)
    except InvalidInputError:
        return

    assert checked_branch(name) == name
    assert could_be_name(name)
    assert not is_commit_id(name)
    assert not is_point_in_time(name)
    assert manifest_version(name) is None
    assert not {"@", "\\", " ", "\0", "%", "#", "?"} & set(name)
    assert not any(part in {"", ".", ".."} for part in name.split("/"))
