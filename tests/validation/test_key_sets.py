"""Sets of hashed keys, compared with sets of Python."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph_lake.runner.key_hash import KeyHashes
from omnigraph_lake.runner.protocol import Stage
from omnigraph_lake.runner.threads import ThreadRunner
from omnigraph_lake.validation.key_sets import KeySet, collect_keys

pytestmark = pytest.mark.unit


def hashes(pairs: list[tuple[int, int]]) -> KeyHashes:
    return KeyHashes(
        first=np.array([first for first, _ in pairs], np.uint64),
        second=np.array([second for _, second in pairs], np.uint32),
        present=None,
    )


def collected(pieces: list[list[tuple[int, int]]]) -> KeySet:
    (stored,) = collect_keys(
        ThreadRunner(parallel=2),
        Stage(verb="test", name="collect"),
        pieces,
        lambda piece, _: iter([(0, hashes(piece))]),
        sets=1,
        scratch=None,
    )
    return stored.read()


@pytest.mark.parametrize("upper", [8, 1 << 20, 1 << 64])
def test_membership_is_that_of_a_set_of_pairs(upper: int) -> None:
    dice = np.random.default_rng(3)
    firsts = dice.integers(0, upper - 1, 400, dtype=np.uint64, endpoint=True).tolist()
    pairs = list(zip(firsts, dice.integers(0, 3, 400).tolist(), strict=True))
    members, others = pairs[:200], pairs[200:]

    keys = collected([members[:90], [], members[90:]])

    asked = hashes([*members, *others])
    expected = [pair in set(members) for pair in [*members, *others]]
    assert keys.has(asked.first, asked.second).tolist() == expected


def test_an_empty_set_has_no_member() -> None:
    asked = hashes([(0, 0), ((1 << 64) - 1, 1)])

    assert not collected([[]]).has(asked.first, asked.second).any()
