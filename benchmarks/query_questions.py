"""The questions of the query benchmark, in both languages, and how their answers are compared.

Ladybug follows edges from the first node that a pattern names. Of the spellings of a question that
were tried, its fastest is used: patterns begin at the end from which that is, and rows are counted
instead of ids.

The second question needs no second step in a pattern language: the number of followers is counted
per person together with the city, and the greatest count is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question; `columns` are those of ours that both sides give, in the other's order."""

    number: int
    what: str
    ours: str
    cypher: str
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.number} {self.what}"


QUESTIONS: Final = (
    Question(
        number=1,
        what="the 3 most followed",
        ours="""
query q() {
    match { $f: Person  $f follows $p }
    return { $p.id as id, count($f) as n }
    order { n desc, id }
    limit 3
}""",
        cypher="""
MATCH (p:Person)<-[:Follows]-(f:Person)
RETURN p.id, count(*) AS n ORDER BY n DESC, p.id LIMIT 3""",
        columns=("id", "n"),
    ),
    Question(
        number=2,
        what="the city of the most followed",
        ours="""
query q() {
    match { $f: Person  $f follows $p  $p livesIn $c }
    return { $p.id as id, $p.name as name, $c.city as city, count($f) as n }
    order { n desc }
    limit 1
}""",
        cypher="""
MATCH (p:Person)<-[:Follows]-(f:Person)
WITH p, count(*) AS n ORDER BY n DESC LIMIT 1
MATCH (p)-[:LivesIn]->(c:City)
RETURN p.name, n, c.city""",
        columns=("name", "n", "city"),
    ),
    Question(
        number=3,
        what="5 cities of a country with the lowest mean age",
        ours="""
query q() {
    match {
        $p: Person
        $p livesIn $c  $c cityIn $s  $s stateIn $k
        $k.country = "United States"
    }
    return { $c.city as city, avg($p.age) as mean }
    order { mean, city }
    limit 5
}""",
        cypher="""
MATCH (p:Person)-[:LivesIn]->(c:City)-[:CityIn]->(s:State)-[:StateIn]->(k:Country)
WHERE k.country = 'United States'
RETURN c.city, avg(p.age) AS a ORDER BY a, c.city LIMIT 5""",
        columns=("city", "mean"),
    ),
    Question(
        number=4,
        what="persons aged 30 to 40 per country",
        ours="""
query q() {
    match {
        $p: Person
        $p livesIn $c  $c cityIn $s  $s stateIn $k
        $p.age >= 30 and $p.age <= 40
    }
    return { $k.country as country, count($p) as n }
    order { n desc }
    limit 3
}""",
        cypher="""
MATCH (p:Person)-[:LivesIn]->(c:City)-[:CityIn]->(s:State)-[:StateIn]->(k:Country)
WHERE p.age >= 30 AND p.age <= 40
RETURN k.country, count(p) AS n ORDER BY n DESC LIMIT 3""",
        columns=("country", "n"),
    ),
    Question(
        number=5,
        what="men in London who like fine dining",
        ours="""
query q() {
    match {
        $p: Person { gender: "male" }
        $p hasInterest $i  $i.interest = "Fine Dining"
        $p livesIn $c  $c.city = "London"
    }
    return { count($p) as n }
}""",
        cypher="""
MATCH (i:Interest)<-[:HasInterest]-(p:Person)-[:LivesIn]->(c:City)
WHERE i.interest = 'Fine Dining' AND p.gender = 'male' AND c.city = 'London'
RETURN count(*)""",
        columns=("n",),
    ),
    Question(
        number=6,
        what="cities with most women who like tennis",
        ours="""
query q() {
    match {
        $p: Person { gender: "female" }
        $p hasInterest $i  $i.interest = "Tennis"
        $p livesIn $c
    }
    return { count($p) as n, $c.city as city }
    order { n desc, city }
    limit 5
}""",
        cypher="""
MATCH (i:Interest)<-[:HasInterest]-(p:Person)-[:LivesIn]->(c:City)
WHERE i.interest = 'Tennis' AND p.gender = 'female'
RETURN count(*) AS n, c.city ORDER BY n DESC, c.city LIMIT 5""",
        columns=("n", "city"),
    ),
    Question(
        number=7,
        what="the state with most 23 to 30 year olds who like photography",
        ours="""
query q() {
    match {
        $p: Person
        $p livesIn $c  $c cityIn $s  $s stateIn $k
        $p hasInterest $i
        $p.age >= 23 and $p.age <= 30
        $k.country = "United States"
        $i.interest = "Photography"
    }
    return { count($p) as n, $s.state as state }
    order { n desc, state }
    limit 1
}""",
        cypher="""
MATCH (p:Person)-[:LivesIn]->(:City)-[:CityIn]->(s:State)-[:StateIn]->(k:Country)
WHERE p.age >= 23 AND p.age <= 30 AND k.country = 'United States'
WITH p, s MATCH (p)-[:HasInterest]->(i:Interest) WHERE i.interest = 'Photography'
RETURN count(p.id) AS n, s.state ORDER BY n DESC, s.state LIMIT 1""",
        columns=("n", "state"),
    ),
    Question(
        number=8,
        what="two-hop paths",
        ours="""
query q() {
    match { $a: Person  $a follows $b  $b follows $c }
    return { count(*) as n }
}""",
        cypher="""
MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(x:Person) RETURN count(*)""",
        columns=("n",),
    ),
    Question(
        number=9,
        what="two-hop paths through under-50s to over-25s",
        ours="""
query q() {
    match { $a: Person  $a follows $b  $b follows $c  $b.age < 50 and $c.age > 25 }
    return { count(*) as n }
}""",
        cypher="""
MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(x:Person)
WHERE b.age < 50 AND x.age > 25 RETURN count(*)""",
        columns=("n",),
    ),
)


class Start(StrEnum):
    """What names the person from whom hops are counted; in Ladybug both are the primary key."""

    ID = "id"
    KEY = "key"


def our_hops(hops: int, start: Start) -> str:
    """How many different persons are reached over so many edges; without any, the person."""
    named = {Start.ID: "id", Start.KEY: "name"}[start]
    if not hops:
        return f"""
query q($id: String) {{
    match {{ $a: Person {{ {named}: $id }} }}
    return {{ $a.gender as gender, $a.age as age }}
}}"""
    names = ["$a", *(f"$n{at}" for at in range(hops))]
    steps = "  ".join(f"{names[at]} follows {names[at + 1]}" for at in range(hops))
    return f"""
query q($id: String) {{
    match {{ $a: Person {{ {named}: $id }}  {steps} }}
    return {{ count(distinct {names[-1]}.id) as n }}
}}"""


def cypher_hops(hops: int) -> str:
    if not hops:
        return "MATCH (a:Person) WHERE a.id = $id RETURN a.gender, a.age"
    steps = "".join(f"-[:Follows]->(n{at}:Person)" for at in range(hops))
    return f"MATCH (a:Person){steps} WHERE a.id = $id RETURN count(DISTINCT n{hops - 1}.id)"


def alike(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]]) -> bool:
    """Equal rows in order; means may differ in the last digits."""
    return len(ours) == len(theirs) and all(
        len(one) == len(other) and all(map(_same, one, other))
        for one, other in zip(ours, theirs, strict=True)
    )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)
