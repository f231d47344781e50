"""Cursors as texts: what goes in comes out, and nothing else is taken for one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph_lake.diff.branch_line import (
    TEXT_MAX,
    Cursor,
    decode,
    encode,
    mark_of,
    require_same_choice,
)
from omnigraph_lake.errors import InvalidInputError
from tests.drawing import drawn

pytestmark = pytest.mark.unit

CURSOR = Cursor(
    graph="01HZZZZZZZZZZZZZZZZZZZZZZA",
    branch="main",
    incarnation="01HZZZZZZZZZZZZZZZZZZZZZZB",
    types=mark_of(["node:Person"]),
    commit_id="01HZZZZZZZZZZZZZZZZZZZZZZC",
)


@pytest.mark.random
@drawn(20)
@given(
    branch=st.text(max_size=160),
    types=st.none() | st.lists(st.text(), max_size=300),
    commit_id=st.none() | st.text(max_size=26),
)
def test_a_cursor_survives_being_a_text(
    branch: str, types: list[str] | None, commit_id: str | None
) -> None:
    cursor = replace(CURSOR, branch=branch, types=mark_of(types), commit_id=commit_id)

    text = encode(cursor)

    assert decode(text) == cursor
    assert re.fullmatch(r"[A-Za-z0-9_-]+", text)
    assert len(text) <= TEXT_MAX


def test_white_space_around_a_cursor_does_not_matter() -> None:
    assert decode(f" {encode(CURSOR)}\n") == CURSOR


@pytest.mark.random
@drawn(20)
@given(st.data())
def test_a_cursor_with_another_character_is_refused(data: st.DataObject) -> None:
    text = encode(CURSOR)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda each: each != text[place]))
    changed = text[:place] + other + text[place + 1 :]

    try:
        found = decode(changed)
    except InvalidInputError:
        return
    # The last character has bits that no byte needs, and white space at the ends is taken off.
    assert found == CURSOR
    assert place == len(text) - 1


@pytest.mark.parametrize("length", range(0, len(encode(CURSOR)), 7))
def test_a_cursor_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(InvalidInputError, match="cursor"):
        decode(encode(CURSOR)[:length])


@pytest.mark.parametrize(
    "given", [None, 7, b"abc", "", "not a cursor", "%%%", "A" * (TEXT_MAX + 1), "QUJD", "ä"]
)
def test_what_is_no_cursor_is_refused(given: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        decode(given)

    assert "cursor" in caught.value.what
    assert "start over" in caught.value.next_step


def test_the_order_in_which_types_are_named_does_not_matter() -> None:
    assert mark_of(["node:A", "edge:B"]) == mark_of(["edge:B", "node:A"])
    assert len({mark_of(None), mark_of([]), mark_of(["node:A"]), mark_of(["edge:A"])}) == 4


@pytest.mark.parametrize(
    ("branch", "types", "said"),
    [
        ("dev", CURSOR.types, "is for branch 'main', not for 'dev'"),
        ("main", mark_of(None), "other types"),
        ("main", mark_of(["node:Person", "node:Note"]), "other types"),
    ],
)
def test_a_cursor_is_refused_for_another_choice(branch: str, types: str, said: str) -> None:
    require_same_choice(CURSOR, branch="main", types=CURSOR.types)

    with pytest.raises(InvalidInputError, match=said):
        require_same_choice(CURSOR, branch=branch, types=types)
