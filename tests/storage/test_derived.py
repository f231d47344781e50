"""What is remembered belongs to one object, and is dropped when there is too much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from omnigraph_lake.derived import remember_derived
from omnigraph_lake.schema.model import encode_model, model_hash
from tests.schema.compiling import compiled

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Source:
    number: int


def test_equal_values_that_are_not_the_same_are_computed_from_separately() -> None:
    seen: list[int] = []

    @remember_derived(most=2)
    def double(source: Source, offset: int = 0) -> int:
        seen.append(source.number)
        return 2 * source.number + offset

    one, same = Source(1), Source(1)

    assert [double(one), double(one), double(same), double(one, 5), double(one, 5)] == [
        *(2, 2, 2),
        *(7, 7),
    ]
    assert len(seen) == 3


def test_no_more_than_so_many_are_kept() -> None:
    seen: list[int] = []

    @remember_derived(most=2)
    def note(source: Source) -> int:
        seen.append(source.number)
        return source.number

    sources = [Source(number) for number in range(3)]
    for source in [*sources, *sources]:
        assert note(source) == source.number

    assert len(seen) == 6


def test_schemas_that_differ_only_in_the_kind_of_a_value_have_their_own_hashes() -> None:
    """Python's equality takes 1 and true for one value, so catalogs cannot be the keys."""
    texts = ("1", "true", "1.0")
    catalogs = [
        compiled(f"node Person {{ name: String @key @meta(weight={value}) }}") for value in texts
    ]
    models: Mapping[str, str] = {encode_model(catalog): model_hash(catalog) for catalog in catalogs}

    assert len(set(models.values())) == len(models)
