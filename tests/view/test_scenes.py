"""A scene has the elements that were asked for, and says what it does not have."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.storage.manifest.commit_graph import CommitGraph
from omnigraph_lake.storage.manifest_rows import GraphCommit
from omnigraph_lake.view import layout
from omnigraph_lake.view.elements import SnapshotElements
from omnigraph_lake.view.scene import (
    Mark,
    Scene,
    SceneEdge,
    SceneKind,
    SceneNode,
    commit_scene,
    label_of,
    text_of,
)
from tests.view.people import FRIENDS, PEOPLE, build_graph

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("about scenes; tests/s3 has the verbs")]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return build_graph(str(tmp_path_factory.mktemp("scenes") / "g"))


def shown_of(view: og.View) -> set[str]:
    return {node.key[1] for node in view.scene.nodes if node.shown}


@pytest.mark.parametrize(
    ("hops", "shown", "hidden"),
    [
        (0, {"Ann"}, {"Bob", "Acme"}),
        (1, {"Ann", "Bob", "Acme"}, {"Cy"}),
        (2, {"Ann", "Bob", "Acme", "Cy"}, {"Dana"}),
    ],
)
def test_a_neighbourhood_shows_its_hops_and_has_one_more(
    graph: og.Graph, hops: int, shown: set[str], hidden: set[str]
) -> None:
    view = graph.view(around=("Person", "Ann"), hops=hops)

    assert shown_of(view) == shown
    assert {node.key[1] for node in view.scene.nodes if not node.shown} == hidden
    assert all(node.complete == node.shown for node in view.scene.nodes)
    assert view.scene.notes == []


def test_both_spellings_of_a_node_mean_the_same(graph: og.Graph) -> None:
    by_key, by_id = graph.view(around=("Person", "Ann")), graph.view(around="Person/Ann")

    assert by_key.scene == by_id.scene


def test_what_is_cut_is_said(graph: og.Graph) -> None:
    view = graph.view(around="Person/Eve", hops=1, limit=4)

    assert len(shown_of(view)) == 4
    assert "Eve" in shown_of(view)
    assert "the first 4" in view.scene.notes[0]
    assert view.scene.nodes_total == graph.count("Person") + graph.count("Company")
    eve = next(node for node in view.scene.nodes if node.key[1] == "Eve")
    assert not eve.complete


def test_a_result_is_connected_and_counts_the_graph(graph: og.Graph) -> None:
    friends, people = graph.query(FRIENDS).view(), graph.query(PEOPLE).view(limit=2)

    _, edges = friends.scene.visible()
    assert {edge.type for edge in edges} == {"Knows"}
    assert (friends.scene.nodes_total, friends.scene.edges_total) == (16, 16)
    assert (len(shown_of(people)), people.scene.nodes_total) == (2, 16)
    assert "The result has 15 nodes" in people.scene.notes[0]


SHOPS = """
node Shop { name: String @key }
node Till { name: String @key }
node Sale { name: String @key }
node Memo { text: String }
edge At: Sale -> Till
edge In: Till -> Shop
edge Of: Sale -> Shop
edge Near: Shop | Till -> Shop
"""


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Sales in the reverse order of their shops, so that the first of each type share no edges."""
    graph = og.init(str(tmp_path_factory.mktemp("shops") / "g"), schema=SHOPS)
    sales = [f"s{999 - number}" for number in range(600)]
    graph.write(
        {
            "Shop": [{"name": f"h{number:02}"} for number in range(12)],
            "Till": [{"name": f"t{number:02}"} for number in range(24)],
            "Sale": [{"name": name} for name in reversed(sales)],
            "Memo": [{"text": str(number)} for number in range(64)],
            "At": [
                {"src": name, "dst": f"t{23 - place // 25:02}"} for place, name in enumerate(sales)
            ],
            "Of": [
                {"src": name, "dst": f"h{11 - place // 50:02}"} for place, name in enumerate(sales)
            ],
            "Near": [
                {"src": "h00", "dst": "h01", "src_type": "Shop"},
                {"src": "t00", "dst": "h01", "src_type": "Till"},
            ],
            "In": [{"src": f"t{number:02}", "dst": f"h{number // 2:02}"} for number in range(24)],
        }
    )
    return graph


def test_a_sample_is_connected_by_edges_of_every_type_in_proportion(shops: og.Graph) -> None:
    scene = shops.view(limit=200).scene

    nodes, edges = scene.visible()
    joined = {end for edge in edges for end in (edge.source, edge.target)}
    counts = Counter(edge.type for edge in edges)
    assert len(nodes) == 200
    assert {node.key[0] for node in nodes if node.key not in joined} == {"Memo"}
    assert sum(node.key[0] == "Memo" for node in nodes) == 200 * 64 // 700
    assert len(edges) > 300
    assert 0.8 < counts["At"] / counts["Of"] < 1.25
    assert 3 <= counts["In"] <= 12
    assert scene.is_sample


def test_a_sample_says_so_and_is_the_same_of_the_same_state(shops: og.Graph) -> None:
    view, again = shops.view(limit=200), og.open(shops.root).view(limit=200)

    assert view.scene == again.scene
    assert str(view).endswith(" of 1,226 edges (a sample)")
    assert "A sample" in view.scene.notes[0]


def test_a_sample_reads_a_bounded_part_of_the_edges(shops: og.Graph) -> None:
    snapshot, contract = shops._view()
    elements = SnapshotElements(shops._objects.root, snapshot, contract.catalog)

    read = elements.edges_among(["Shop", "Till", "Sale"], limit=206)

    assert Counter(edge.type for edge in read.edges) == {"At": 100, "Of": 100, "In": 24, "Near": 2}
    assert read.is_cut
    among_shops = elements.edges_among(["Shop", "Memo"], limit=206)
    assert [(edge.type, edge.source) for edge in among_shops.edges] == [("Near", ("Shop", "h00"))]


def test_a_graph_of_too_many_types_for_a_sample_begins_with_its_types(shops: og.Graph) -> None:
    few, many = shops.view(limit=199).scene, shops.view(limit=200).scene

    assert (few.kind, few.other and few.other.is_sample) == (SceneKind.TYPES, True)
    assert (many.is_sample, many.other and many.other.kind) == (True, SceneKind.TYPES)
    assert shops.view(limit=700).scene.other is None


def test_types_are_drawn_with_how_many_there_are_of_each(shops: og.Graph) -> None:
    scene = shops.view_types().scene

    assert [node.label for node in scene.nodes] == ["Sale 600", "Memo 64", "Till 24", "Shop 12"]
    assert [(edge.label, edge.source[0], edge.target[0]) for edge in scene.edges] == [
        ("At 600", "Sale", "Till"),
        ("In 24", "Till", "Shop"),
        ("Of 600", "Sale", "Shop"),
        ("Near 2 in all", "Shop", "Shop"),
        ("Near 2 in all", "Till", "Shop"),
    ]
    assert str(shops.view_types()) == (
        "g: 4 node types with 700 nodes, 4 edge types with 1,226 edges"
    )


def test_a_type_has_one_colour_in_all_views_of_a_graph(shops: og.Graph) -> None:
    views = [shops.view(limit=200), shops.view(around="Till/t03"), shops.view_types()]

    nodes = [dict(view.scene.node_colors) for view in views]
    edges = [dict(view.scene.edge_colors) for view in views]
    assert all(colors.items() <= nodes[-1].items() for colors in nodes)
    assert all(colors.items() <= edges[-1].items() for colors in edges)
    assert len({*nodes[-1].values(), *edges[-1].values()}) == 4 + 4


def test_edges_between_the_nodes_of_a_result_are_drawn(graph: og.Graph) -> None:
    _, edges = graph.query(PEOPLE).view().scene.visible()

    assert len(edges) == graph.count("Knows")


def test_a_result_without_nodes_cannot_be_drawn(graph: og.Graph) -> None:
    result = graph.query("query ages() { match { $p: Person } return { $p.age } }")

    with pytest.raises(InvalidInputError, match="no nodes, edges or paths"):
        result.view()


def test_a_neighbourhood_ends_where_the_graph_does(graph: og.Graph) -> None:
    assert len(shown_of(graph.view(around="Person/Ann", hops=10**9))) == 16


@pytest.mark.parametrize(
    "arguments", [{"around": "Persn/Ann"}, {"around": "Person/Zoe"}, {"types": ["Persn"]}]
)
def test_what_does_not_exist_is_an_error(graph: og.Graph, arguments: dict[str, object]) -> None:
    with pytest.raises(NotFoundError):
        graph.view(**arguments)  # type: ignore[arg-type]


def test_a_difference_marks_what_happened(graph: og.Graph) -> None:
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "Ann", "age": 38}]}, mode="merge")
    dev.write({"Person": [{"name": "Fay"}], "Knows": [{"src": "Fay", "dst": "Bob"}]})
    dev.delete({"Person": ["Dana"]})

    scene = graph.diff("main", "dev").view().scene

    marks = {node.key[1]: node.mark for node in scene.nodes}
    assert marks == {
        "Ann": Mark.CHANGED,
        "Fay": Mark.ADDED,
        "Dana": Mark.REMOVED,
        **dict.fromkeys(["Bob", "Cy", "Eve"], Mark.PLAIN),
    }
    edges = sorted((edge.source[1], edge.target[1], edge.mark) for edge in scene.edges)
    assert edges == [
        ("Cy", "Dana", Mark.REMOVED),
        ("Dana", "Eve", Mark.REMOVED),
        ("Fay", "Bob", Mark.ADDED),
    ]
    ann = next(node for node in scene.nodes if node.key[1] == "Ann")
    assert (ann.before, ann.properties["age"]) == ({"age": "37"}, "38")
    assert scene.notes == []
    limited = graph.diff("main", "dev").view(limit=1).scene
    assert "of 3 changed nodes" in limited.notes[0]


def test_a_limit_never_makes_a_changed_node_look_unchanged(graph: og.Graph) -> None:
    cut = graph.branches.create("cut")
    cut.write({"Person": [{"name": name} for name in ("Aa", "Zz")]})
    cut.write({"Knows": [{"src": "Zz", "dst": "Bob"}]})

    whole = graph.diff("main", "cut").view().scene
    limited = graph.diff("main", "cut").view(limit=2).scene
    smallest = graph.diff("main", "cut").view(limit=1).scene

    marks = {node.key[1]: node.mark for node in whole.nodes}
    assert marks == {"Aa": Mark.ADDED, "Zz": Mark.ADDED, "Bob": Mark.PLAIN}
    for scene in (limited, smallest):
        assert all(node.mark is marks[node.key[1]] for node in scene.nodes)
    assert "2 of 2" not in smallest.notes[0]


def test_a_history_has_every_branch_and_no_commit_before_its_child(
    graph: og.Graph,
) -> None:
    side = graph.branches.create("side")
    side.write({"Person": [{"name": "Gil"}]}, actor="gil")
    graph.tags.create("before-merge")
    graph.merge("side")

    scene = graph.view_commits().scene

    places = {node.key[1]: place for place, node in enumerate(scene.nodes)}
    assert {"main", "side"} <= {node.key[0] for node in scene.nodes}
    assert all(places[edge.source[1]] < places[edge.target[1]] for edge in scene.edges)
    assert {edge.type for edge in scene.edges} == {"parent", "merged"}
    assert any("[before-merge]" in node.label for node in scene.nodes)
    assert scene.nodes_total == len(scene.nodes)
    cut = graph.view_commits(limit=1).scene
    assert cut.notes == [f"{scene.nodes_total - 1} older commits not shown."]


def test_clocks_that_disagree_do_not_turn_a_history_around() -> None:
    def commit(number: int, parent: int | None, minute: int) -> GraphCommit:
        return GraphCommit(
            commit_id=f"C{number}",
            branch=None,
            operation_id="",
            actor="ann",
            created_at=f"2026-01-01T00:{minute:02}:00+00:00",
            parent_id=None if parent is None else f"C{parent}",
        )

    commits = [commit(1, None, 30), commit(2, 1, 10), commit(3, 2, 20)]

    history = CommitGraph({commit.commit_id: commit for commit in commits})

    scene = commit_scene(history, labels={}, facts=(), limit=10)

    assert [node.key[1] for node in scene.nodes] == ["C3", "C2", "C1"]


def test_branches_share_a_lane_one_after_the_other() -> None:
    def node(branch: str, number: int) -> SceneNode:
        return SceneNode(key=(branch, f"C{number}"), label="")

    def edge(child: SceneNode, parent: SceneNode, kind: str = "parent") -> SceneEdge:
        return SceneEdge(type=kind, id="", source=child.key, target=parent.key)

    top, new, fork, merge, old, side, first = (
        *(node("main", 7), node("new", 6), node("main", 5), node("main", 4)),
        *(node("old", 3), node("side", 2), node("main", 1)),
    )
    history = Scene(
        kind=SceneKind.COMMITS,
        title="History",
        facts=(),
        nodes=[top, new, fork, merge, old, side, first],
        edges=[
            *(edge(top, fork), edge(top, new, "merged"), edge(new, fork), edge(fork, merge)),
            *(edge(merge, first), edge(merge, old, "merged"), edge(old, first), edge(side, first)),
        ],
        nodes_total=7,
        edges_total=8,
    )

    lanes = {
        node.key[0]: int(x)
        for node, (x, _) in zip(history.nodes, layout.lay_out(history).tolist(), strict=True)
    }

    assert lanes == {"main": 0, "new": 1, "old": 1, "side": 2}


def scene_of(count: int, *, seed: int = 1, edges_each: int = 2) -> Scene:
    """A graph in which most neighbours are near each other, with some nodes alone."""
    drawn = random.Random(seed)
    nodes = [SceneNode(key=("N", str(number)), label=str(number)) for number in range(count)]
    edges = [
        SceneEdge(
            type="E",
            id=f"{number}-{which}",
            source=("N", str(number)),
            target=("N", str(min(number + drawn.randint(1, 9), count - 1))),
        )
        for number in range(count * 9 // 10)
        for which in range(edges_each)
    ]
    return Scene(
        kind=SceneKind.GRAPH,
        title="t",
        facts=(),
        nodes=nodes,
        edges=edges,
        nodes_total=count,
        edges_total=len(edges),
    )


@pytest.mark.parametrize("count", [0, 1, 2, 30, 1_000])
def test_a_layout_is_repeatable_and_keeps_nodes_apart(count: int) -> None:
    scene = scene_of(count)

    first, second = layout.lay_out(scene), layout.lay_out(scene)

    assert np.isfinite(first).all()
    assert np.array_equal(first, second)
    assert len(np.unique(first.round(3), axis=0)) == count


def test_neighbours_are_nearer_than_others() -> None:
    scene = scene_of(1_000)

    points = layout.lay_out(scene)

    places = {node.key: place for place, node in enumerate(scene.nodes)}
    pairs = np.array([(places[edge.source], places[edge.target]) for edge in scene.edges])
    others = np.random.default_rng(1).integers(0, 900, (2_000, 2))

    def mean_distance(chosen: np.ndarray) -> float:
        delta = points[chosen[:, 0]] - points[chosen[:, 1]]
        return float(np.hypot(delta[:, 0], delta[:, 1]).mean())

    assert mean_distance(pairs) < 0.25 * mean_distance(others)


def test_the_density_repels_as_the_nodes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(2).normal(size=(800, 2)) * 20
    mass = np.random.default_rng(3).uniform(1, 5, 800)

    exact = layout._repulsion(points, mass, 1.0)
    monkeypatch.setattr(layout, "_EXACT_MAX", 0)
    approximate = layout._repulsion(points, mass, 1.0)

    assert np.corrcoef(exact.ravel(), approximate.ravel())[0, 1] > 0.97


def test_nodes_without_edges_keep_as_far_apart_as_the_picture_allows() -> None:
    scene = scene_of(1_000)

    points = layout.lay_out(scene)

    connected = {key for edge in scene.edges for key in (edge.source, edge.target)}
    alone = points[[node.key not in connected for node in scene.nodes]]
    width = float(np.ptp(points[:, 0]))
    assert len(alone) > 80
    delta = alone[:, None, :] - alone[None, :, :]
    distances = np.hypot(delta[..., 0], delta[..., 1]) + np.eye(len(alone)) * width
    assert distances.min() > width / 100


def test_hidden_nodes_are_placed_around_a_neighbour() -> None:
    scene = scene_of(40)
    hidden = [replace(node, shown=int(node.key[1]) < 20) for node in scene.nodes]

    points = layout.lay_out(replace(scene, nodes=hidden))

    assert np.isfinite(points).all()
    assert len(np.unique(points.round(3), axis=0)) >= 36


def test_labels_and_texts_are_what_people_read() -> None:
    ulid = "01M7HZET4G00000S46800000Y3"

    assert label_of({"Title": "  A  book "}, "b1") == "A book"
    assert label_of({"name": None}, "b1") == "b1"
    assert label_of({}, ulid) == ulid[:12]
    assert label_of({}, "53ee8187750cb349f817079e32065455~2") == "53ee8187750c"
    assert label_of({}, '["2004","SFN"]') == "2004 SFN"
    assert text_of([0.5] * 300) == "[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, … 300 items]"
    assert text_of(value=True) == "true"
    assert text_of("x" * 5_000) == "x" * 1_999 + "…"
