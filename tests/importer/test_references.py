"""Keys and references are found by names and values, and what is only probable is a hint.

The tables have the shape of public data in which an import once chose a wrong key or edge.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.ids import key_properties
from omnigraph_lake.schema.compile import compile_schema
from tests.importer.shapes import write_csv

pytestmark = pytest.mark.unit

Rows = list[tuple[object, ...]]


def table(folder: Path, name: str, header: str, rows: Rows) -> str:
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    return write_csv(folder / f"{name}.csv", "\n".join(lines))


def inferred(folder: Path, files: list[str]) -> tuple[set[str], dict[str, str]]:
    """The edges as `Source -> Target`, and the keys of the node types."""
    report = og.import_data(str(folder / "g"), files, dry_run=True)
    catalog = compile_schema(report.schema, filename="schema", identity_domain="d")
    edges = {f"{e.source.names[0]} -> {e.target.names[0]}" for e in catalog.edges.values()}
    keys = {
        name: ",".join(prop.name for prop in key_properties(node)) if node.key else ""
        for name, node in catalog.nodes.items()
    }
    return edges, keys


CODES = ["EWR", "JFK", "LGA", "BOS", "SFO", "LAX", "ORD", "ATL", "MIA", "SEA", "DEN", "PHX"]


def test_a_column_refers_to_the_key_that_holds_its_values_whatever_it_is_called(
    tmp_path: Path,
) -> None:
    airports = table(
        tmp_path, "airports", "faa,name,alt", [(c, f"{c} Field", n) for n, c in enumerate(CODES)]
    )
    airlines = table(
        tmp_path, "airlines", "carrier,name", [("UA", "United"), ("AA", "American"), ("B6", "Blue")]
    )
    flights = table(
        tmp_path,
        "flights",
        "day,carrier,origin,dest",
        [(n % 28 + 1, ["UA", "AA", "B6"][n % 3], CODES[n % 3], CODES[n % 12]) for n in range(120)],
    )

    edges, keys = inferred(tmp_path, [airlines, airports, flights])

    assert edges == {"Flight -> Airline", "Flight -> Airport"}
    assert keys == {"Airline": "carrier", "Airport": "faa", "Flight": ""}


def test_an_id_that_few_records_repeat_is_the_key_and_not_a_unique_name(tmp_path: Path) -> None:
    customers = table(
        tmp_path,
        "customers",
        "customer_id,name",
        [*((f"C{n}", f"n{n}") for n in range(50)), ("C7", "Changed")],
    )
    orders = table(
        tmp_path, "orders", "order_id,customer_id", [(n, f"C{n % 50}") for n in range(200)]
    )

    edges, keys = inferred(tmp_path, [customers, orders])

    assert edges == {"Order -> Customer"}
    assert keys == {"Customer": "customer_id", "Order": "order_id"}


def test_a_target_of_the_same_family_is_meant_before_a_shorter_name(tmp_path: Path) -> None:
    ids: Rows = [(n, f"x{n}") for n in range(1, 9)]
    files = [
        table(tmp_path, name, "id,identifier", ids)
        for name in ("stats", "warrior_stats", "move_targets", "targets", "berry_effects")
    ]
    files.append(
        table(
            tmp_path,
            "moves",
            "id,target_id,effect_id,power",
            [(n, n % 8 + 1, n % 8 + 1, n) for n in range(1, 30)],
        )
    )
    files.append(
        table(
            tmp_path,
            "warriors",
            "id,warrior_stat_id,best_stat_id,rank",
            [(n, n % 8 + 1, n % 8 + 1, n) for n in range(1, 30)],
        )
    )

    edges, _ = inferred(tmp_path, files)

    assert edges == {
        "Move -> Target",
        "Move -> BerryEffect",
        "Warrior -> WarriorStat",
    }


def test_a_table_whose_key_names_a_row_of_another_one_is_no_target(tmp_path: Path) -> None:
    players = table(tmp_path, "people", "playerID,given", [(f"p{n}", f"g{n}") for n in range(44)])
    details = table(
        tmp_path, "biographies", "playerID,text", [(f"p{n}", f"t{n} t") for n in range(40)]
    )
    batting = table(
        tmp_path, "batting", "playerID,year,runs", [(f"p{n % 40}", n // 40, n) for n in range(160)]
    )

    edges, keys = inferred(tmp_path, [details, players, batting])

    assert edges == {"Biography -> Person", "Batting -> Person"}
    assert keys["Person"] == "playerID"


def test_translations_of_names_join_their_subject_and_their_language(tmp_path: Path) -> None:
    items = table(tmp_path, "items", "id,cost", [(n, n * 7) for n in range(1, 11)])
    languages = table(tmp_path, "languages", "id,iso", [(1, "en"), (2, "de"), (3, "fr")])
    item_names = table(
        tmp_path,
        "item_names",
        "item_id,language_id,name",
        [(n, k, f"name {n} {k}") for n in range(1, 11) for k in (1, 2, 3)],
    )

    edges, keys = inferred(tmp_path, [items, languages, item_names])

    assert edges == {"Item -> Language"}
    assert set(keys) == {"Item", "Language"}


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("id,score", [(n, n % 9 + 1) for n in range(1, 60)]),
        ("id,theta", [(n, n + 0.5) for n in range(1, 60)]),
        ("id,start,end", [(n, n, n + 3) for n in range(1, 60)]),
        ("id,code", [(n, f"z{n}") for n in range(1, 60)]),
    ],
    ids=["small numbers", "measures", "ranges", "other codes"],
)
def test_numbers_and_other_codes_are_no_references(tmp_path: Path, header: str, rows: Rows) -> None:
    groups = table(tmp_path, "groups", "id,label", [(n, f"l{n}") for n in range(1, 70)])

    edges, _ = inferred(tmp_path, [groups, table(tmp_path, "results", header, rows)])

    assert not edges


def test_unique_measures_are_no_keys_and_row_numbers_are_left_out(tmp_path: Path) -> None:
    rows: Rows = [(f'"{n}"', 1000 - 7 * n, f"s{n % 4}") for n in range(1, 40)]
    states = table(tmp_path, "states", '"",deaths,region', rows)

    report = og.import_data(str(tmp_path / "g"), [states], dry_run=True)

    assert "column '' numbers the rows: left out" in report.schema
    assert "@key" not in report.schema
    assert "edge" not in report.schema.replace("edges", "")


def test_two_tables_of_the_same_things_are_joined_by_their_keys(tmp_path: Path) -> None:
    ids = [4972 + 31 * n for n in range(60)]
    films = table(tmp_path, "films", "ID,title", [(i, f"t{i}") for i in ids])
    reviews = table(tmp_path, "reviews", "ID,meter", [(i, i % 90) for i in ids])

    edges, keys = inferred(tmp_path, [films, reviews])

    assert edges == {"Review -> Film"}
    assert keys == {"Film": "film_id", "Review": "review_id"}


def test_a_column_that_repeats_the_key_of_its_row_is_no_loop(tmp_path: Path) -> None:
    rows: Rows = [(f"k{n}", f"k{n}" if n != 5 else "k1", n) for n in range(30)]

    edges, _ = inferred(tmp_path, [table(tmp_path, "places", "id,state,n", rows)])

    assert not edges


def test_two_columns_that_other_tables_share_are_a_key_and_references_to_it(
    tmp_path: Path,
) -> None:
    years, names = range(1990, 2000), ["BOS", "CHI", "NYA", "SLN"]
    teams = table(
        tmp_path,
        "teams",
        "yearID,lgID,teamID,wins",
        [(y, "AL", t, 80 + (y + n) % 5) for y in years for n, t in enumerate(names)],
    )
    people = table(tmp_path, "people", "playerID,given", [(f"p{n}", f"g{n}") for n in range(60)])
    batting = table(
        tmp_path,
        "batting",
        "playerID,yearID,stint,teamID,runs,hits,a,b,c,d,e",
        [
            (f"p{n}", y, 1, names[(n + y) % 4], n % 9, n % 7, 1, 2, 3, 4, 5)
            for y in years
            for n in range(60)
        ],
    )
    series = table(
        tmp_path,
        "series",
        "yearID,round,teamIDwinner,teamIDloser,ties,note,more",
        [
            (y, f"R{r}", names[(y + r) % 4], names[(y + r + 1) % 4], 0, f"n{y}", "m")
            for y in years
            for r in range(2)
        ],
    )

    report = og.import_data(str(tmp_path / "g"), [people, teams, batting, series], on_error="fail")

    assert "@key(yearID, teamID)" in report.schema
    assert "edge Batting: Person -> Team {" in report.schema
    assert "edge Series: Team -> Team {" in report.schema
    assert og.open(str(tmp_path / "g")).count("Batting") == 600


def test_what_is_only_probable_is_a_hint_with_the_option_that_makes_it(tmp_path: Path) -> None:
    planes = table(tmp_path, "planes", "serial,seats", [(f"N{n}", n) for n in range(30)])
    rows: Rows = [(n, f"N{n % 40}") for n in range(80)]
    files = [planes, table(tmp_path, "trips", "trip_id,craft", rows)]

    edges, keys = inferred(tmp_path, files)

    assert (edges, keys) == (set(), {"Plane": "", "Trip": "trip_id"})

    options = og.ImportOptions(
        keys={"Plane": "serial"}, edges={"Trip.craft": "Plane"}, max_rejected="50%"
    )
    report = og.import_data(str(tmp_path / "g"), files, options=options)

    assert report.load is not None
    assert report.load.written == {"Plane": 30, "Trip": 80, "HasCraft": 60}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (og.ImportOptions(keys={"Plan": "serial"}), "no source has 'Plan'; did you mean `Plane`?"),
        (og.ImportOptions(keys={"Plane": "serail"}), "Plane has no column 'serail' for its key"),
        (og.ImportOptions(edges={"Plane.seat": "Plane"}), "no source has 'Plane.seat'"),
        (og.ImportOptions(edges={"Plane.seats": "Plane"}), "Plane.seats cannot refer to 'Plane'"),
    ],
)
def test_choices_that_name_nothing_are_refused(
    tmp_path: Path, options: og.ImportOptions, found: str
) -> None:
    planes = table(tmp_path, "planes", "serial,seats", [(f"N{n}", n) for n in range(30)])

    with pytest.raises(og.InvalidInputError) as refused:
        og.import_data(str(tmp_path / "g"), [planes], options=options)

    assert found in str(refused.value)


def test_types_and_words_for_no_value_are_chosen_by_options(tmp_path: Path) -> None:
    days = [f"2024-01-{n:02}" if n % 9 else "unknown" for n in range(1, 30)]
    visits = table(
        tmp_path,
        "visits",
        "visit_id,day,zip",
        [(n, day, f"0{n}" if n % 2 else "-") for n, day in enumerate(days)],
    )
    options = og.ImportOptions(types={"Visit.zip": "I64"}, null_words=["unknown", "-"])

    report = og.import_data(str(tmp_path / "g"), [visits], options=options)

    schema = compile_schema(report.schema, filename="schema", identity_domain="d")
    shown = {name: str(prop.type) for name, prop in schema.nodes["Visit"].properties.items()}
    assert "Date" in shown["day"]
    assert "I64" in shown["zip"]
    assert og.open(str(tmp_path / "g")).scan("Visit").read_all().column("day").null_count == 3


def test_words_for_no_value_name_no_node(tmp_path: Path) -> None:
    towns = table(tmp_path, "towns", "town_id,size", [(f"T{n}", n * n) for n in range(9)])
    visits = table(
        tmp_path, "visits", "visit_id,town_id", [(n, f"T{n}" if n < 9 else "NA") for n in range(12)]
    )
    roads = table(tmp_path, "roads", "source,target", [("a", "b"), ("b", "NA")])
    options = og.ImportOptions(null_words=["NA"], missing_endpoints="create", max_rejected="50%")

    report = og.import_data(str(tmp_path / "g"), [towns, visits, roads], options=options)

    assert report.load is not None
    assert {name: report.load.written[name] for name in ("Town", "HasTown", "Node", "Roads")} == {
        "Town": 9,
        "HasTown": 9,
        "Node": 2,
        "Roads": 1,
    }
    assert report.load.quarantined["missing_required"] == 1


def test_numbered_columns_and_parents_refer_to_keys_of_texts(tmp_path: Path) -> None:
    buses = table(
        tmp_path,
        "buses",
        "name,parent_station",
        [*((n, "") for n in range(30)), *((f"{n}_220kV", n) for n in range(30))],
    )
    lines = table(
        tmp_path,
        "lines",
        "line_id,bus0,bus1",
        [(n, n % 30, f"{(n + 1) % 30}_220kV") for n in range(60)],
    )
    loads = table(tmp_path, "loads", "name,bus,p", [(n, n, n * 3) for n in range(30)])
    shops = table(tmp_path, "shops", "shop_id,bus", [(n, n % 30) for n in range(90)])

    report = og.import_data(str(tmp_path / "g"), [buses, lines, loads, shops], on_error="fail")

    shown = [line for line in report.schema.splitlines() if line.startswith("edge")]
    assert shown == [
        "edge HasParentStation: Bus -> Bus @card(0..1)",
        "edge HasBus0: Line -> Bus @card(0..1)",
        "edge HasBus1: Line -> Bus @card(0..1)",
        "edge HasBus: Load -> Bus @card(0..1)",
        "edge ShopHasBus: Shop -> Bus @card(0..1)",
    ]


def test_a_choice_stands_above_what_names_say(tmp_path: Path) -> None:
    people = table(tmp_path, "people", "code,name", [(f"c{n}", f"n{n}") for n in range(30)])
    calls = table(
        tmp_path,
        "calls",
        "call,source,target",
        [(1000 + 7 * n, f"c{n % 30}", f"c{(n + 1) % 30}") for n in range(60)],
    )
    options = og.ImportOptions(keys={"calls": "call"}, edges={"calls.source": "people"})

    report = og.import_data(str(tmp_path / "g"), [people, calls], options=options)

    assert "call: I64 @key" in report.schema
    assert "edge HasSource: Call -> Person" in report.schema


def test_a_coordinate_is_not_taken_for_row_numbers(tmp_path: Path) -> None:
    points = table(tmp_path, "points", "x,y", [(n, n * n % 7) for n in range(1, 40)])
    odd = table(tmp_path, "odd", '"",y', [(2 * n + 1, n % 7) for n in range(1, 40)])

    report = og.import_data(str(tmp_path / "g"), [points, odd], dry_run=True)

    assert "left out" not in report.schema
    assert "x: I64" in report.schema
