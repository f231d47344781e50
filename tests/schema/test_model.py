"""The stored model: canonical text, hashes that move only with meaning, damage refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.schema.catalog import ByName, VectorMetric
from omnigraph_lake.schema.model import decode_model, encode_model, model_hash, shape_hash
from tests.schema.compiling import DOMAIN, compiled

pytestmark = pytest.mark.unit

TEXT = """
interface Named { name: String @index }
node A @description("d") @meta(zz=1.5) implements Named {
    k: String @key
    n: I64?
    s: enum(a, b)
    t: String
    v: Vector(4) @embed("t", model="m") @index(metric=dot)
    w: Vector(4)? @index
    @range(n, -1..2.5) @check(t, "x") @unique(k, n)
}
node B { x: [I32] y: Blob? }
edge E: A -> B @card(1..2) { w: F32 @unique(src, w) }
edge F: A -> B @cluster
"""


def test_a_model_survives_encoding() -> None:
    catalog = compiled(TEXT)

    assert decode_model(encode_model(catalog)) == catalog


def test_a_model_mentions_clustering_only_where_it_is_wanted() -> None:
    text = "node A {} edge E: A -> A"

    assert "clustered" not in encode_model(compiled(text))
    assert shape_hash(compiled(text)) != shape_hash(compiled(text + " @cluster"))


def test_the_text_is_canonical() -> None:
    text = encode_model(compiled(TEXT))

    assert text == json.dumps(json.loads(text), sort_keys=True, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    "other",
    [
        TEXT.replace("\n", " ").replace("{", " {\r\n\t"),
        "// comment\n" + TEXT.replace("k: String", "k: /* c */ String"),
        TEXT.replace("enum(a, b)", "enum(b, a)"),
        TEXT.replace("w: Vector(4)? @index", "w: Vector(4)? @index(metric=cosine)"),
        TEXT.replace("2.5", "2.500"),
        TEXT.replace("k: String @key", 'k: String @key @rename_from("old")'),
        TEXT.replace("n: I64?\n    s: enum(a, b)", "s: enum(a, b)\n    n: I64?"),
        TEXT.replace('@range(n, -1..2.5) @check(t, "x")', '@check(t, "x") @range(n, -1..2.5)'),
        TEXT.replace("node B { x: [I32] y: Blob? }", "") + "node B { x: [I32] y: Blob? }",
    ],
    ids=[
        *("white space", "comments", "enum order", "default metric", "trailing zeros"),
        "rename hint",
        *("property order", "constraint order", "type order"),
    ],
)
def test_the_shape_ignores_what_means_nothing(other: str) -> None:
    assert shape_hash(compiled(other)) == shape_hash(compiled(TEXT))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k: String", "k2: String"),
        ("n: I64?", "n: I64"),
        ("enum(a, b)", "enum(a, b, c)"),
        ("v: Vector(4)", "v: Vector(5)"),
        ("@index(metric=dot)", "@index(metric=l2)"),
        ("@index(metric=dot)", "@index"),
        ("w: Vector(4)? @index", "w: Vector(4)? @index(metric=l2)"),
        ("-1..2.5", "-1..2.6"),
        ('"x"', '"y"'),
        ("1..2)", "1..3)"),
        ('@description("d")', '@description("e")'),
        ("@meta(zz=1.5)", "@meta(zz=1.6)"),
        ("@meta(zz=1.5)", '@meta(zz="1.5")'),
        ("k: String @key", "k: String @key(k)"),
        ("implements Named", ""),
        ('model="m"', 'model="n"'),
        ("@unique(src, w)", "@unique(dst, w)"),
        ("edge E: A -> B", "edge E: B -> A"),
        ("node B { x", "node B { z: Bool x"),
    ],
)
def test_the_shape_changes_with_the_meaning(old: str, new: str) -> None:
    assert old in TEXT
    # Without this constraint a property can be renamed in one place.
    base = TEXT.replace("@unique(k, n)", "")
    changed = base.replace(old, new)

    assert shape_hash(compiled(changed)) != shape_hash(compiled(base))


def test_the_model_hash_covers_identity_and_the_shape_does_not() -> None:
    one = compiled(TEXT)
    renumbered = compiled("node First {} " + TEXT)
    other_text = encode_model(one).replace(DOMAIN, "01J00000000000000000000000")
    other = decode_model(other_text)

    assert model_hash(one) != model_hash(other)
    assert shape_hash(one) == shape_hash(other)
    assert shape_hash(one) != shape_hash(renumbered)
    assert len(model_hash(one)) == 64


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '"x"', "{}", '{"format": 2}', '{"format": true}'),
        *('{"format": "1"}', "[" * 100_000, '{"format": 1}', '{"format": 1' + "0" * 5000 + "}"),
    ],
)
def test_what_is_no_model_is_refused(text: str) -> None:
    with pytest.raises(DamagedGraphError):
        decode_model(text)


def test_a_model_from_before_vectors_had_metrics_keeps_its_meaning_and_its_hashes() -> None:
    text = (Path(__file__).parent / "model_without_metrics.json").read_text()

    catalog = decode_model(text)

    assert encode_model(catalog) == text
    assert model_hash(catalog) == (
        "329677cd0c7cf5f787a2334472148dda633ad1563174e61e0ad8c620eabba8cf"
    )
    assert shape_hash(catalog) == (
        "3cb0762a7341c9a9125a0cc7d587fdc11532ad2df952489dd1f9ce299a54c407"
    )
    assert catalog == compiled("""
        interface Named { name: String @index v: Vector(4) @index }
        node A implements Named {
            k: String n: I64 w: Vector(3)?
            @key(k, n) @index(n, name) @index(w)
        }
        edge E: A -> A { since: Date @index @index(src, since) }
    """)
    metrics = {each.properties: each.metric for each in catalog.nodes["A"].indexes}
    assert metrics[("v",)] is metrics[("w",)] is VectorMetric.COSINE
    assert metrics[("name",)] is metrics[("n", "name")] is None


def _edited(change: Any) -> str:
    document = json.loads(encode_model(compiled(TEXT)))
    change(document)
    return json.dumps(document)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("nodes"),
        lambda d: d.update(extra=1),
        lambda d: d.update(nodes={}),
        lambda d: d.update(next_number=3),
        lambda d: d.update(next_number=True),
        lambda d: d["nodes"][0].pop("number"),
        lambda d: d["nodes"][0].update(number=d["nodes"][1]["number"]),
        lambda d: d["nodes"][0]["properties"][0].update(name="other"),
        lambda d: d["nodes"][0]["properties"][0].update(nullable=0),
        lambda d: d["nodes"][0]["properties"][0]["type"].update(scalar="Text"),
        lambda d: d["nodes"][0]["properties"][0].update(type={"kind": "set"}),
        lambda d: d["nodes"][0]["properties"][2]["type"].update(values=["b", "a"]),
        lambda d: d["nodes"][0]["indexes"][0].update(metric="manhattan"),
        lambda d: d["nodes"][0]["indexes"][0].update(metric="cosine"),
        lambda d: d["nodes"][0]["indexes"][0].update(metric=None),
        lambda d: d["nodes"][0]["indexes"][0].update(members=["v", "n"]),
        lambda d: d["nodes"][0]["indexes"][1].update(members=["v"]),
        lambda d: d["nodes"][0]["indexes"][2].update(metric="dot"),
        lambda d: d["nodes"][0]["ranges"][0].update(low="0"),
        lambda d: d["nodes"][0]["ranges"][0].update(high={"decimal": "x"}),
        lambda d: d["nodes"][0]["key"].update(members=[]),
        lambda d: d["nodes"][0]["key"].update(spelling="header"),
        lambda d: d["nodes"].append(d["nodes"][0]),
        lambda d: d["edges"][0].update(source="Nobody"),
        lambda d: d["edges"][0]["uniques"][0].update(members=["gone"]),
        lambda d: d["edges"][0]["cardinality"].update(minimum=1.0),
    ],
)
def test_a_model_somebody_edited_is_refused(change: Any) -> None:
    with pytest.raises(DamagedGraphError):
        decode_model(_edited(change))


POLYMORPHIC = """
interface Named { name: String }
node A implements Named {}
node B {}
node C implements Named {}
edge E: A -> B | A
edge F: Named -> A
"""


def test_polymorphic_ends_are_the_node_types_they_name() -> None:
    catalog = compiled(POLYMORPHIC)
    edges = catalog.edges

    assert (str(edges["E"].target), edges["E"].target.names) == ("B | A", ("B", "A"))
    assert (str(edges["F"].source), edges["F"].source.names) == ("Named", ("A", "C"))
    assert edges["F"].source.numbers() == {name: catalog.nodes[name].number for name in "AC"}
    assert [end.is_polymorphic for end in (edges["E"].source, edges["E"].target)] == [False, True]
    assert edges["F"].source.is_polymorphic
    assert decode_model(encode_model(catalog)) == catalog


def test_the_types_of_an_interface_follow_the_nodes_of_the_catalog() -> None:
    catalog = compiled(POLYMORPHIC)
    fewer = [catalog.nodes["A"], catalog.nodes["B"]]

    shrunk = dataclasses.replace(catalog, nodes=ByName(fewer))

    assert shrunk.edges["F"].source.names == ("A",)
    assert shrunk.edges["F"].source.is_polymorphic


def test_what_null_means_is_identity_and_the_order_of_ends_is_none() -> None:
    catalog = compiled(POLYMORPHIC)
    edge = catalog.edges["E"]
    known = dataclasses.replace(edge, target=dataclasses.replace(edge.target, implicit="B"))
    changed = dataclasses.replace(catalog, edges=ByName([known, catalog.edges["F"]]))
    turned = compiled(POLYMORPHIC.replace("B | A", "A | B"))

    assert decode_model(encode_model(changed)) == changed
    assert changed.edges["E"].target.implicit_number == catalog.nodes["B"].number
    assert model_hash(changed) != model_hash(catalog)
    assert shape_hash(changed) == shape_hash(catalog) == shape_hash(turned)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d["edges"][0]["target"].update(types=["Nobody", "A"]),
        lambda d: d["edges"][0]["target"].update(implicit="C"),
        lambda d: d["edges"][0]["target"].update(types=["B"]),
    ],
)
def test_a_model_with_wrong_ends_is_damaged(damage: Callable[[Any], None]) -> None:
    document = json.loads(encode_model(compiled(POLYMORPHIC)))
    damage(document)

    with pytest.raises(DamagedGraphError):
        decode_model(json.dumps(document))
