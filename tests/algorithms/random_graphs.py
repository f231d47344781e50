"""Random graphs, here and in another library: parallel edges, loops, isolated nodes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import rustworkx as rx

import omnigraph_lake as og
from omnigraph_lake.algorithms.blocks import Sizes
from omnigraph_lake.algorithms.components import Components
from omnigraph_lake.algorithms.distances import Distances, Landmark
from omnigraph_lake.algorithms.labels import LabelPropagation
from omnigraph_lake.algorithms.page_rank import PageRank
from omnigraph_lake.algorithms.runs import Algorithm
from omnigraph_lake.algorithms.triangles import TriangleCount
from omnigraph_lake.api.algorithms import AlgorithmResult, RunTarget
from omnigraph_lake.graph import Graph
from omnigraph_lake.runner.protocol import Runner
from omnigraph_lake.storage.objects.location import Root

SCHEMA = """
node Person { name: String @key  rank: F64?  part: String?  note: String? }
node City { name: String @key }
edge Knows: Person -> Person { }
edge Likes: Person -> Person { }
edge LivesIn: Person -> City { }
"""
SCHEMA_OF_TYPES = """
node Person { name: String @key  rank: F64? }
node Company { name: String @key  rank: F64? }
edge Knows: Person | Company -> Person | Company { }
edge Likes: Person -> Person | Company { }
"""
NODE_TYPES = ["Person", "Company"]
EDGE_TYPES = ["Knows", "Likes"]
Link = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomGraph:
    """A graph, and what is in it."""

    graph: Graph
    people: list[str]
    """Ids, or types and ids."""
    links: list[Link]
    node_type: str | list[str] = "Person"

    @property
    def root(self) -> Root:
        return self.graph._objects.root

    def run(
        self,
        algorithm: Algorithm,
        runner: Runner,
        *,
        sizes: Sizes | None = None,
        operation_id: str | None = None,
        is_stored: bool = False,
    ) -> AlgorithmResult:
        snapshot = self.graph.snapshot().pinned
        catalog = self.graph.schema.catalog
        target = RunTarget(root=self.root, snapshot=snapshot, catalog=catalog, is_pinned=True)
        tables = target.choose(self.node_type, EDGE_TYPES)
        result, _ = target.run(
            algorithm,
            tables,
            runner,
            sizes=sizes,
            operation_id=operation_id,
            is_stored=is_stored,
        )
        return result

    def landmarks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([self.people[-1], self.people[0], self.people[-1]]))

    def all_algorithms(self) -> list[Algorithm]:
        landmarks: tuple[Landmark, ...] = self.landmarks()
        if self.node_type == NODE_TYPES:
            landmarks = tuple(typed_node(landmark) for landmark in self.landmarks())
        return [
            PageRank(tolerance=1e-10, rounds_max=1000),
            Components(),
            LabelPropagation(rounds=4),
            TriangleCount(),
            Distances(landmarks=landmarks),
            Distances(landmarks=landmarks, per_landmark=True),
        ]

    def expected(self, algorithm: Algorithm) -> dict[str, object]:
        """The result by id, by another library."""
        match algorithm:
            case PageRank():
                return dict(self._ranks())
            case Components():
                return {
                    person: min(part)
                    for part in nx.weakly_connected_components(self._model())
                    for person in part
                }
            case LabelPropagation():
                return dict(self._labels(algorithm.rounds))
            case TriangleCount():
                simple = nx.Graph(self._model())
                simple.remove_edges_from(list(nx.selfloop_edges(simple)))
                return dict(nx.triangles(simple))
            case Distances():
                hops = [
                    nx.single_source_shortest_path_length(self._model(), landmark)
                    for landmark in self.landmarks()
                ]
                lists = {person: [near.get(person) for near in hops] for person in self.people}
                if algorithm.per_landmark:
                    return dict(lists)
                return {
                    person: min((hop for hop in found if hop is not None), default=None)
                    for person, found in lists.items()
                }
            case _:
                raise AssertionError(algorithm)

    def _model(self) -> nx.MultiDiGraph:
        model = nx.MultiDiGraph()
        model.add_nodes_from(self.people)
        model.add_edges_from((source, target) for _, source, target in self.links)
        return model

    def _ranks(self) -> dict[str, float]:
        number = {person: at for at, person in enumerate(self.people)}
        model = rx.PyDiGraph()
        model.add_nodes_from(self.people)
        model.add_edges_from(
            [(number[source], number[target], 1.0) for _, source, target in self.links]
        )
        ranks = rx.pagerank(model, weight_fn=float, tol=1e-12, max_iter=1000)
        return {self.people[node]: rank for node, rank in ranks.items()}

    def _labels(self, rounds: int) -> dict[str, str]:
        labels = {person: person for person in self.people}
        proper = [(source, target) for _, source, target in self.links if source != target]
        for _ in range(rounds):
            votes = {person: Counter([labels[person]]) for person in self.people}
            for source, target in proper:
                votes[source][labels[target]] += 1
                votes[target][labels[source]] += 1
            labels = {
                person: min(label for label in cast if cast[label] == max(cast.values()))
                for person, cast in votes.items()
            }
        return labels


def random_graph(root: str, seed: object, *, people: int, edges: int) -> RandomGraph:
    """Some people are linked to each other, in groups without links between them."""
    chance = random.Random(str(seed))
    names = [f"p{number}" for number in range(people)]
    groups = chance.randint(1, 3)

    def link() -> Link:
        group = names[chance.randrange(groups) :: groups] or names
        return chance.choice(EDGE_TYPES), chance.choice(group), chance.choice(group)

    return made_graph(root, names, [link() for _ in range(edges)])


def made_graph(root: str, people: list[str], links: Sequence[Link]) -> RandomGraph:
    graph = og.init(root, schema=SCHEMA)
    rows = {
        edge_type: [
            {"src": source, "dst": target} for kind, source, target in links if kind == edge_type
        ]
        for edge_type in EDGE_TYPES
    }
    # In several commits, so that there are several fragments.
    half = len(people) // 2
    graph.write({"Person": [{"name": name, "note": name} for name in people[half:]]})
    graph.write({"Person": [{"name": name, "note": name} for name in people[:half]], **rows})
    return RandomGraph(graph=graph, people=people, links=list(links))


def random_graph_of_types(root: str, seed: object, *, ids: int, edges: int) -> RandomGraph:
    """Nodes of two types that share their ids; a node is called by both, as `Person p1`."""
    chance = random.Random(str(seed))
    people = sorted(f"{kind} p{number}" for kind in NODE_TYPES for number in range(ids))
    named = people[ids:]
    assert all(name.startswith("Person ") for name in named)
    links = [
        (kind, chance.choice(named if kind == "Likes" else people), chance.choice(people))
        for kind in chance.choices(EDGE_TYPES, k=edges)
    ]
    graph = og.init(root, schema=SCHEMA_OF_TYPES)
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in (*NODE_TYPES, *EDGE_TYPES)}
    for person in people:
        kind, name = typed_node(person)
        rows[kind].append({"name": name})
    for edge_type, source, target in links:
        (source_type, source_id), (target_type, target_id) = map(typed_node, (source, target))
        typed = {"src_type": source_type} if edge_type == "Knows" else {}
        rows[edge_type].append(
            {"src": source_id, "dst": target_id, "dst_type": target_type, **typed}
        )
    graph.write({name: part for name, part in rows.items() if part})
    return RandomGraph(graph=graph, people=people, links=links, node_type=NODE_TYPES)


def typed_node(person: str) -> tuple[str, str]:
    kind, _, node_id = person.partition(" ")
    return kind, node_id
