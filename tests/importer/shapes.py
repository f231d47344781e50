"""Inputs of the shapes that people have, and the schemas that a person would write for them."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

Make = Callable[[Path], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """`make` writes the files; `written` is what an import writes of every type."""

    name: str
    make: Make
    schema: str
    written: Mapping[str, int]


def write_csv(path: Path, text: str) -> str:
    path.write_text(text.strip() + "\n")
    return str(path)


def write_lines(path: Path, records: Sequence[object]) -> str:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def one_table(folder: Path) -> Sequence[str]:
    rows = [
        {
            "id": number,
            "Full Name": f"Person {number}",
            "born": f"{number + 1:02}.12.1990",
            "salary": f"{number + 1},250.50",
            "active": "yes" if number % 2 else "no",
            "team": ("red", "blue", "green")[number % 3],
            "zip": f"0{number:04}",
            "seen": f"2024-05-{number + 1:02}T10:00:00Z",
            "note": "" if number else "first, with a comma",
            "tags": "a|b" if number % 2 else "c|d",
        }
        for number in range(15)
    ]
    path = folder / "employees.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return [str(path)]


ONE_TABLE = """
node Employee {
    employee_id: I64 @key
    full_name: String
    born: Date
    salary: F64
    active: Bool
    team: enum(blue, green, red)
    zip: String
    seen: DateTime
    note: String?
    tags: [String]
}
"""


def foreign_keys(folder: Path) -> Sequence[str]:
    return [
        write_csv(
            folder / "people.csv",
            """
id,name,company_id,manager_id
1,Ann,acme,
2,Bob,acme,1
3,Cyd,beta,1
4,Dan,,2
""",
        ),
        write_csv(folder / "companies.csv", "code,title\nacme,Acme\nbeta,Beta"),
    ]


FOREIGN_KEYS = """
node Person { person_id: I64 @key name: String }
node Company { code: String @key title: String }
edge HasCompany: Person -> Company @card(0..1)
edge HasManager: Person -> Person @card(0..1)
"""


def join_table(folder: Path) -> Sequence[str]:
    return [
        write_csv(folder / "students.csv", "student_id,name\ns1,Ann\ns2,Bob\ns3,Cyd"),
        write_csv(folder / "courses.csv", "course_id,title\nc1,Maths\nc2,Art"),
        write_csv(
            folder / "enrolments.csv",
            "student_id,course_id,grade,since\ns1,c1,1.3,2024-01-01\ns1,c2,2,2024-01-02\n"
            "s2,c1,,2024-01-03",
        ),
    ]


JOIN_TABLE = """
node Student { student_id: String @key name: String }
node Course { course_id: String @key title: String }
edge Enrolment: Student -> Course { grade: F64? since: Date }
"""


def edge_list(folder: Path) -> Sequence[str]:
    return [
        write_csv(folder / "follows.tsv", "source\ttarget\tweight\n1\t2\t0.5\n2\t3\t1\n3\t1\t2.5")
    ]


EDGE_LIST = """
node Node { node_id: I64 @key }
edge Follows: Node -> Node { weight: F64 }
"""


def nested_json(folder: Path) -> Sequence[str]:
    orders = [
        {
            "id": f"o{number}",
            "total": 10.5 * number,
            "paid": bool(number % 2),
            "address": {"city": "Ulm", "zip": "89073"},
            "customer": {"id": number % 2, "name": f"C{number % 2}"},
            "tags": ["new", "web"][: number % 3],
            "items": [{"sku": "x", "amount": 2}, {"sku": "y", "amount": 1}][: 1 + number % 2],
        }
        for number in range(4)
    ]
    path = folder / "orders.json"
    path.write_text(json.dumps(orders, indent=2))
    return [str(path)]


NESTED_JSON = """
node Order {
    order_id: String @key
    total: F64
    paid: Bool
    address_city: String
    address_zip: String
    tags: [String]
}
node Customer { customer_id: I64 @key name: String }
node Item { order_id: String position: I64 sku: String amount: I64 @key(order_id, position) }
edge HasCustomer: Order -> Customer @card(0..1)
edge HasItem: Order -> Item
"""


def mixed_lines(folder: Path) -> Sequence[str]:
    records = [
        {"type": "user", "id": "u1", "name": "Ann", "age": 41},
        {"type": "user", "id": "u2", "name": "Bob"},
        {"type": "post", "id": "p1", "title": "Hi", "user_id": "u1"},
        {"type": "likes", "from": "u2", "to": "p1", "at": "2024-05-01T10:00:00Z"},
    ]
    return [write_lines(folder / "events.jsonl", records)]


MIXED_LINES = """
node User { user_id: String @key name: String age: I64? }
node Post { post_id: String @key title: String }
edge HasUser: Post -> User @card(0..1)
edge Likes: User -> Post { at: DateTime }
"""


def sqlite(folder: Path) -> Sequence[str]:
    path = folder / "shop.db"
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE artists (artist INTEGER PRIMARY KEY, name TEXT NOT NULL);
            CREATE TABLE albums (
                album INTEGER PRIMARY KEY, title TEXT, by INTEGER REFERENCES artists(artist)
            );
            CREATE TABLE ratings (
                album INTEGER REFERENCES albums, artist INTEGER REFERENCES artists, stars REAL,
                PRIMARY KEY (album, artist)
            );
            INSERT INTO artists VALUES (1, 'A'), (2, 'B');
            INSERT INTO albums VALUES (10, 'X', 1), (11, NULL, 2), (12, 'Z', NULL);
            INSERT INTO ratings VALUES (10, 1, 4.5), (11, 2, 3.5);
            """
        )
    database.close()
    return [str(path)]


SQLITE = """
node Artist { artist: I64 @key name: String }
node Album { album: I64 @key title: String? }
edge HasBy: Album -> Artist @card(0..1)
edge Rating: Album -> Artist { stars: F64 }
"""


def duck(folder: Path) -> Sequence[str]:
    path = folder / "lake.duckdb"
    with duckdb.connect(path) as database:
        database.execute(
            "CREATE TABLE towns (town VARCHAR PRIMARY KEY, people BIGINT, founded DATE)"
        )
        database.execute(
            "CREATE TABLE roads (number INTEGER PRIMARY KEY, start_town VARCHAR "
            "REFERENCES towns(town), km DECIMAL(8, 2), open BOOLEAN, seen TIMESTAMP)"
        )
        database.execute(
            "INSERT INTO towns VALUES ('Ulm', 130000, '2020-01-01'), ('Aalen', 1, NULL)"
        )
        database.execute("INSERT INTO roads VALUES (10, 'Ulm', 72.5, true, '2024-01-01 10:00:00')")
    return [str(path)]


DUCK = """
node Town { town: String @key people: I64 founded: Date? }
node Road { number: I32 @key km: Decimal(8, 2) open: Bool seen: DateTime }
edge HasStartTown: Road -> Town @card(0..1)
"""


def parquet_folder(folder: Path) -> Sequence[str]:
    for number in range(2):
        part = folder / "lake" / "readings" / f"year=202{number}" / f"part-0000{number}.parquet"
        part.parent.mkdir(parents=True)
        pq.write_table(
            pa.table(
                {
                    "reading_id": pa.array([10 * number, 10 * number + 1], pa.int64()),
                    "sensor": pa.array(["a", "b"]),
                    "value": pa.array([0.5, None], pa.float32()),
                    "embedding": pa.array([[0.5] * 8] * 2, pa.list_(pa.float32())),
                    "at": pa.array([0, 1], pa.timestamp("ms")),
                    "where": pa.array([{"x": 1, "y": 2}] * 2),
                }
            ),
            part,
        )
    sensors = folder / "lake" / "sensors.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "room": ["r1", "r1"]}), sensors)
    return [str(folder / "lake")]


PARQUET_FOLDER = """
node Reading {
    reading_id: I64 @key
    value: F32?
    embedding: Vector(8)
    at: DateTime
    where_x: I64
    where_y: I64
}
node Sensor { name: String @key room: String }
edge HasSensor: Reading -> Sensor @card(0..1)
"""


def arrow_file(folder: Path) -> Sequence[str]:
    path = folder / "cities.feather"
    table = pa.table(
        {"code": pa.array(["a", "b"]).dictionary_encode(), "size": pa.array([1, 2], pa.uint32())}
    )
    feather.write_feather(table, path)
    return [str(path)]


ARROW_FILE = "node City { code: String @key size: U32 }"


def graphml(folder: Path) -> Sequence[str]:
    path = folder / "net.graphml"
    path.write_text(
        """<?xml version="1.0" encoding="UTF-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d0" for="node" attr.name="colour" attr.type="string"/>
  <key id="d1" for="edge" attr.name="weight" attr.type="double"/>
  <graph edgedefault="directed">
    <node id="n0"><data key="d0">green &amp; blue</data></node>
    <node id="n1"/>
    <node id="n2"><data key="d0">red</data></node>
    <edge source="n0" target="n1"><data key="d1">1.5</data></edge>
    <edge source="n1" target="n2"/>
  </graph>
</graphml>
"""
    )
    return [str(path)]


def node_link(folder: Path) -> Sequence[str]:
    path = folder / "characters.json"
    nodes = [{"name": name, "group": 1} for name in ("Myriel", "Napoleon", "Valjean", "Javert")]
    links = [{"source": 1, "target": 0, "value": 1}, {"source": 2, "target": 0, "value": 8}]
    path.write_text(json.dumps({"nodes": nodes, "links": links}) + "\n")
    return [str(path)]


NODE_LINK = """
node Node { position: I64 @key  name: String  group: I64 }
edge Links: Node -> Node { value: I64 }
"""


def splits(folder: Path) -> Sequence[str]:
    nations = folder / "nations"
    nations.mkdir()
    facts = {
        "train": "uk\tembassy\tusa\nusa\tembassy\tuk\ncuba\tembassy\tusa\nuk\taid\tcuba",
        "valid": "uk\tembassy\tcuba\ncuba\taid\tuk\nuk\taid\tusa",
        "test": "usa\taid\tcuba\nuk\ttreaty\tusa\nusa\ttreaty\tuk",
    }
    return [write_csv(nations / f"{name}.txt", text) for name, text in facts.items()]


SPLITS = """
node Node { node_id: String @key }
edge Nations: Node -> Node { predicate: String }
"""


GRAPHML = """
node Node { node_id: String @key colour: String? }
edge Edges: Node -> Node { weight: F64? }
"""


def neo4j_csv(folder: Path) -> Sequence[str]:
    return [
        write_csv(
            folder / "movies.csv",
            "movieId:ID(Movie),title,year:int,:LABEL\ntt1,Matrix,1999,Movie\ntt2,Speed,1994,Movie",
        ),
        write_csv(
            folder / "actors.csv",
            "personId:ID(Person),name,born:long,alias:string[],:LABEL\n"
            "keanu,Keanu Reeves,1964,Neo;Ted,Person;Actor\ncarrie,Carrie-Anne,,,Person",
        ),
        write_csv(
            folder / "roles.csv",
            ":START_ID(Person),role,:END_ID(Movie),:TYPE\n"
            "keanu,Neo,tt1,ACTED_IN\ncarrie,Trinity,tt1,ACTED_IN\nkeanu,,tt2,LIKES",
        ),
    ]


NEO4J_CSV = """
node Movie { movieId: String @key title: String year: I64 }
node Person { personId: String @key name: String born: I64? alias: [String]? labels: [String] }
edge ActedIn: Person -> Movie { role: String? }
edge Likes: Person -> Movie { role: String? }
"""


def neo4j_json(folder: Path) -> Sequence[str]:
    ann = {"id": "0", "labels": ["User"], "properties": {"name": "Ann", "age": 41}}
    bob = {"id": "1", "labels": ["User"], "properties": {"name": "Bob"}}
    town = {"id": "2", "labels": ["Town"], "properties": {"name": "Ulm"}}
    ends = [{key: node[key] for key in ("id", "labels")} for node in (ann, bob, town)]
    records = [
        *({"type": "node", **node} for node in (ann, bob, town)),
        {
            "type": "relationship",
            "id": "0",
            "label": "KNOWS",
            "properties": {"since": 1993},
            "start": ends[0],
            "end": ends[1],
        },
        {"type": "relationship", "id": "1", "label": "LIVES_IN", "start": ends[1], "end": ends[2]},
    ]
    return [write_lines(folder / "all.json", records)]


NEO4J_JSON = """
node User { neo4j_id: String @key name: String age: I64? }
node Town { neo4j_id: String @key name: String }
edge Knows: User -> User { since: I64 }
edge LivesIn: User -> Town
"""


SHAPES = [
    Shape(name="one table", make=one_table, schema=ONE_TABLE, written={"Employee": 15}),
    Shape(
        name="foreign keys",
        make=foreign_keys,
        schema=FOREIGN_KEYS,
        written={"Person": 4, "Company": 2, "HasCompany": 3, "HasManager": 3},
    ),
    Shape(
        name="join table",
        make=join_table,
        schema=JOIN_TABLE,
        written={"Student": 3, "Course": 2, "Enrolment": 3},
    ),
    Shape(name="edge list", make=edge_list, schema=EDGE_LIST, written={"Node": 3, "Follows": 3}),
    Shape(
        name="nested JSON",
        make=nested_json,
        schema=NESTED_JSON,
        written={"Order": 4, "Customer": 2, "Item": 6, "HasCustomer": 4, "HasItem": 6},
    ),
    Shape(
        name="mixed JSON lines",
        make=mixed_lines,
        schema=MIXED_LINES,
        written={"User": 2, "Post": 1, "HasUser": 1, "Likes": 1},
    ),
    Shape(
        name="SQLite",
        make=sqlite,
        schema=SQLITE,
        written={"Artist": 2, "Album": 3, "HasBy": 2, "Rating": 2},
    ),
    Shape(name="DuckDB", make=duck, schema=DUCK, written={"Town": 2, "Road": 1, "HasStartTown": 1}),
    Shape(
        name="Parquet folder",
        make=parquet_folder,
        schema=PARQUET_FOLDER,
        written={"Reading": 4, "Sensor": 2, "HasSensor": 4},
    ),
    Shape(name="Feather", make=arrow_file, schema=ARROW_FILE, written={"City": 2}),
    Shape(name="links by index", make=node_link, schema=NODE_LINK, written={"Node": 4, "Links": 2}),
    Shape(name="splits", make=splits, schema=SPLITS, written={"Node": 3, "Nations": 10}),
    Shape(name="GraphML", make=graphml, schema=GRAPHML, written={"Node": 3, "Edges": 2}),
    Shape(
        name="Neo4j CSV",
        make=neo4j_csv,
        schema=NEO4J_CSV,
        written={"Movie": 2, "Person": 2, "ActedIn": 2, "Likes": 1},
    ),
    Shape(
        name="Neo4j JSON",
        make=neo4j_json,
        schema=NEO4J_JSON,
        written={"User": 2, "Town": 1, "Knows": 1, "LivesIn": 1},
    ),
]
