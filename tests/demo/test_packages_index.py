"""Indexes of Debian: stanzas, relations and versions, whatever is in them."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from omnigraph_lake.demo.packages_index import (
    Constraint,
    Operator,
    compare_versions,
    read_relations,
    read_stanzas,
)

pytestmark = pytest.mark.unit


def stanzas(text: str) -> list[dict[str, str]]:
    return [dict(stanza) for stanza in read_stanzas(text.encode().splitlines(keepends=True))]


def relations(field: str) -> list[tuple[str, int, int, str]]:
    return [
        (item.name, item.group, item.position, str(item.constraint or ""))
        for item in read_relations(field)
    ]


def test_a_stanza_ends_at_a_blank_line_or_at_the_end() -> None:
    text = "\n\nPackage: a\nVersion: 1\n \t\n\nPackage: b\nTag: x:y, z\nVersion:2"

    assert stanzas(text) == [{"Package": "a", "Version": "1"}, {"Package": "b", "Version": "2"}]


def test_folded_lines_belong_to_the_field_before_them() -> None:
    text = "Package: a\nDepends: b,\n c | d,\n\te\nTag: one,\n two\nVersion: 1\n folded\n"

    assert stanzas(text) == [{"Package": "a", "Depends": "b, c | d, e", "Version": "1 folded"}]


def test_bytes_that_are_no_text_are_replaced() -> None:
    (stanza,) = read_stanzas([b"Package: a\n", b"Maintainer: J\xf6rg\n", b"\xff\xfe: x\n"])

    assert stanza == {"Package": "a", "Maintainer": "J\N{REPLACEMENT CHARACTER}rg"}


def test_alternatives_share_a_group() -> None:
    assert relations("a, b (>= 1.0~) | c, d") == [
        ("a", 1, 1, ""),
        ("b", 2, 1, ">= 1.0~"),
        ("c", 2, 2, ""),
        ("d", 3, 1, ""),
    ]


def test_qualifiers_architectures_and_profiles_are_parsed() -> None:
    (first, second, third) = read_relations(
        "python3:any(<<3.14), libx1 [amd64 !i386] <!nocheck> <cross>, old (< 2) [any]"
    )

    assert (first.name, first.qualifier, str(first.constraint)) == ("python3", "any", "<< 3.14")
    assert (second.name, second.architectures) == ("libx1", "amd64 !i386")
    assert (third.constraint, third.architectures) == (
        Constraint(operator=Operator.EARLIER_OR_EQUAL, version="2"),
        "any",
    )


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("", []),
        (" , ,|, ", []),
        ("a,,b|", ["a", "b"]),
        ("a (>= ), b", ["a (>= )", "b"]),
        ("${shlibs:Depends}", ["${shlibs:Depends}"]),
        ("a (>= 1) (<< 2)", ["a (>= 1) (<< 2)"]),
    ],
)
def test_no_item_is_lost(field: str, names: list[str]) -> None:
    assert [item.name for item in read_relations(field)] == names


ORDERED = (
    *("0~~", "0~", "0", "0.1~rc1", "0.1", "0.1-0.1", "0.1-1", "0.1a", "0.1+b1", "0.9", "0.10"),
    *("1.0~beta1~svn1245", "1.0~beta1", "1.0", "1.0-1", "1.0-1a", "1.0-1+b2", "1.0-1.1"),
    *("1.0.4", "1.0.4-2", "1.0.10-1", "2-1-3", "2-2-1", "1:0.5", "1:1.0-1", "2:0~", "10:0"),
)


def test_versions_are_ordered_as_dpkg_orders_them() -> None:
    for later, version in enumerate(ORDERED):
        for earlier, other in enumerate(ORDERED):
            expected = (later > earlier) - (later < earlier)
            assert compare_versions(version, other) == expected, (version, other)


@pytest.mark.parametrize(("left", "right"), [("1.0", "1.0-0"), ("0:1", "1"), ("1.a", "1.a0")])
def test_versions_that_are_spelled_differently_can_be_equal(left: str, right: str) -> None:
    assert compare_versions(left, right) == 0


@pytest.mark.parametrize(
    ("operator", "accepted"),
    [("<<", "0"), ("<=", "01"), ("=", "1"), (">=", "12"), (">>", "2")],
)
def test_constraints_accept_versions(operator: str, accepted: str) -> None:
    constraint = Constraint(operator=Operator(operator), version="1.0")
    versions = {"0": "1.0~1", "1": "1.0-0", "2": "1.0-1"}

    assert {name for name, version in versions.items() if constraint.accepts(version)} == set(
        accepted
    )


@pytest.mark.nightly("a process per pair; the gate has a list that dpkg orders in the same way")
@pytest.mark.skipif(shutil.which("dpkg") is None, reason="no dpkg to compare with")
def test_random_versions_are_ordered_as_dpkg_orders_them() -> None:
    draw = random.Random(11)
    for _ in range(1500):
        left, right = (
            "1" + "".join(draw.choices("0129ab~+.-", k=draw.randint(0, 6))).rstrip("-")
            for _ in range(2)
        )
        command = ["dpkg", "--compare-versions", left, "lt", right]
        is_earlier = subprocess.run(command, check=False, capture_output=True).returncode == 0

        assert (compare_versions(left, right) < 0) == is_earlier, (left, right)
