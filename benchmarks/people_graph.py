"""A generated graph of people who follow each other, with known answers.

Its shape is that of a public benchmark of graph databases: 100,000 persons in 7,117 cities, and
2,384,101 edges between persons, whose number per person falls off like a power. The same seed
gives the same rows, so answers can be compared with what is known about them. The key of a person
is its name, which is also its id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SEED: Final = 7
PERSONS: Final = 100_000
FOLLOWS: Final = 2_400_000
CITIES: Final = 7117
STATES: Final = 273
INTERESTS: Final = 41
COUNTRIES: Final = ("United States", "United Kingdom", "Canada")
LONDONERS: Final = 400
"""So many persons live in the first city whatever the dice say."""

SCHEMA: Final = """
node Person { name: String @key  gender: String  age: I32 }
node City { city: String }
node State { state: String }
node Country { country: String }
node Interest { interest: String }

edge Follows: Person -> Person
edge LivesIn: Person -> City
edge HasInterest: Person -> Interest
edge CityIn: City -> State
edge StateIn: State -> Country
"""
NODES: Final = ("Person", "City", "State", "Country", "Interest")
EDGES: Final = ("Follows", "LivesIn", "HasInterest", "CityIn", "StateIn")

MOST_FOLLOWED: Final = ("p12280", 2350)
TWO_HOP_PATHS: Final = 56_732_418
TWO_HOP_PATHS_BY_AGE: Final = 25_661_915
"""Answers for the seed and the sizes above."""


def generate(folder: Path, *, persons: int = PERSONS, follows: int = FOLLOWS) -> dict[str, int]:
    """Write one Parquet file per type; gives the number of rows by type."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = _tables(persons, follows)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return {name: table.num_rows for name, table in tables.items()}


def _tables(persons: int, follows: int) -> dict[str, pa.Table]:
    """All rows; the order of the draws is part of what the seed means."""
    dice = np.random.default_rng(SEED)
    country_of_state = dice.integers(0, len(COUNTRIES), STATES)
    state_of_city = dice.integers(0, STATES, CITIES)
    country_of_state[state_of_city[0]] = COUNTRIES.index("United Kingdom")
    ages = dice.integers(18, 80, persons)
    genders = np.where(dice.random(persons) < 0.5, "male", "female")
    homes = dice.integers(0, CITIES, persons)
    homes[:LONDONERS] = 0
    sources, targets = _follows(dice, persons, follows)
    liked = _interests(dice, persons)
    cities = ["London", *(f"City{number:04d}" for number in range(1, CITIES))]
    interests = ["Tennis", "Photography", "Fine Dining"]
    interests += [f"I{number:02d}" for number in range(INTERESTS - len(interests))]
    return {
        "Person": pa.table(
            {
                "id": _ids("p", range(persons)),
                "name": _ids("p", range(persons)),
                "gender": genders,
                "age": ages.astype("int32"),
            }
        ),
        "City": pa.table({"id": _ids("c", range(CITIES)), "city": cities}),
        "State": pa.table(
            {"id": _ids("s", range(STATES)), "state": [f"S{at:03d}" for at in range(STATES)]}
        ),
        "Country": pa.table({"id": _ids("k", range(len(COUNTRIES))), "country": COUNTRIES}),
        "Interest": pa.table({"id": _ids("i", range(INTERESTS)), "interest": interests}),
        "Follows": pa.table({"src": _ids("p", sources), "dst": _ids("p", targets)}),
        "LivesIn": pa.table({"src": _ids("p", range(persons)), "dst": _ids("c", homes)}),
        "HasInterest": pa.table(
            {"src": _ids("p", liked // INTERESTS), "dst": _ids("i", liked % INTERESTS)}
        ),
        "CityIn": pa.table({"src": _ids("c", range(CITIES)), "dst": _ids("s", state_of_city)}),
        "StateIn": pa.table({"src": _ids("s", range(STATES)), "dst": _ids("k", country_of_state)}),
    }


def _follows(
    dice: np.random.Generator, persons: int, follows: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs of different persons, each once; few persons are followed by many."""
    weights = dice.zipf(1.6, persons).clip(1, 5000).astype(float)
    targets = dice.choice(persons, follows, p=weights / weights.sum())
    sources = dice.integers(0, persons, follows)
    others = sources != targets
    pairs = np.unique(sources[others].astype(np.int64) * persons + targets[others])
    return pairs // persons, pairs % persons


def _interests(dice: np.random.Generator, persons: int) -> npt.NDArray[np.int64]:
    count = int(persons * 2.5)
    owners = dice.integers(0, persons, count).astype(np.int64)
    return np.unique(owners * INTERESTS + dice.integers(0, INTERESTS, count))


def _ids(letter: str, numbers: range | npt.NDArray[np.int64]) -> pa.Array:
    texts = pa.array(np.asarray(numbers), pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(letter, texts, "")
