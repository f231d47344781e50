"""Random histories of a graph with branches, and what they should lead to, in plain Python.

The model keeps every commit with its parents and the whole graph it left. A merge is worked out
from three of these graphs by the oracle for three-way merges; the rules of the schema are looked
at afterwards, for what the merge changed in its target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.merge.oracle import Conflict, Row, Rules, merge_graphs, spelt

SCHEMA = """
node A { name: String @key  x: I32?  y: String?  tag: String? @unique }
node B { name: String @key  x: I32? }
edge R: A -> B @card(1..2) { w: I32? }
edge S: A -> A
"""
COLUMNS = {
    "node:A": ("id", "name", "x", "y", "tag"),
    "node:B": ("id", "name", "x"),
    "edge:R": ("id", "src", "dst", "w"),
    "edge:S": ("id", "src", "dst"),
}
ENDS = {"edge:R": ("node:A", "node:B"), "edge:S": ("node:A", "node:A")}
EDGES_MIN, EDGES_MAX = 1, 2
IDS = {
    "node:A": ("a1", "it's", "\U0001d4b3"),
    "node:B": ("b1", "b2"),
    "edge:R": ("r1", "r2", "r3", "r4"),
    "edge:S": ("s1", "s2"),
}

FIRST = (
    *(
        (key, tuple({**dict.fromkeys(COLUMNS[key]), "id": name, "name": name}.items()))
        for key in ("node:A", "node:B")
        for name in IDS[key]
    ),
    ("edge:R", (("id", "r1"), ("src", "a1"), ("dst", "b1"), ("w", None))),
    ("edge:R", (("id", "r2"), ("src", "a1"), ("dst", "b2"), ("w", None))),
    ("edge:S", (("id", "s1"), ("src", "it's"), ("dst", "a1"))),
)

Content = Mapping[str, Mapping[str, Row]]
Broken = set[tuple[str, str]]
NOTHING: Content = {key: {} for key in COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Rows to insert or replace on a branch, or ids to delete; branches are numbers.

    A write that overwrites puts its rows in the place of all others of their types.
    """

    branch: int
    rows: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    overwrites: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A merge of a branch, or of one of its older commits, into another branch."""

    source: int
    target: int
    back: int = 0
    resolve: str | None = None
    column_level: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A new branch, or one made anew in place of a branch that nothing was made from.

    It starts from the head of its parent, or from an older commit.
    """

    branch: int
    parent: int
    back: int = 0


Step = Write | Merge | Fork


@st.composite
def rows_of(draw: st.DrawFn, table_key: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    name = draw(st.sampled_from(IDS[table_key]))
    numbers, texts = st.sampled_from([None, 0, 1]), st.sampled_from([None, "", "t"])
    if table_key in ENDS:
        ends = [draw(st.sampled_from(IDS[node])) for node in ENDS[table_key]]
        row: Row = {"id": name, "src": ends[0], "dst": ends[1]}
        if table_key == "edge:R":
            row["w"] = draw(numbers)
    else:
        row = {"id": name, "name": name, "x": draw(numbers)}
        if table_key == "node:A":
            row |= {"y": draw(texts), "tag": draw(st.sampled_from([None, None, "u", "v"]))}
    return table_key, tuple(row.items())


def writes(branch: int) -> st.SearchStrategy[Write]:
    tables = st.sampled_from(["node:A", "node:A", "node:A", "node:B", "edge:R", "edge:S"])
    named = tables.flatmap(lambda key: st.tuples(st.just(key), st.sampled_from(IDS[key])))
    rows = st.lists(tables.flatmap(rows_of), min_size=1, max_size=3, unique_by=_name_of)
    gone = st.lists(named, min_size=1, max_size=2)
    puts = st.builds(
        Write,
        branch=st.just(branch),
        rows=rows.map(tuple),
        overwrites=st.sampled_from([False, False, False, True]),
    )
    removals = st.builds(Write, branch=st.just(branch), gone=gone.map(tuple))
    return st.one_of(puts, puts, removals)


@st.composite
def merges(draw: st.DrawFn, count: int) -> Merge:
    source, target = draw(st.permutations(range(count)))[:2]
    return Merge(
        source=source,
        target=target,
        back=draw(st.sampled_from([0, 0, 0, 0, 0, 1])),
        resolve=draw(st.sampled_from([None, None, "ours", "theirs", "newest"])),
        column_level=draw(st.sampled_from([True, True, False])),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Main and a branch or two; rounds of some writes on both sides and a merge."""
    count = draw(st.sampled_from([2, 3, 3]))
    steps: list[Step] = [
        Write(branch=0, rows=FIRST),
        *(
            Fork(branch=branch, parent=draw(st.integers(0, branch - 1)))
            for branch in range(1, count)
        ),
    ]
    for _ in range(draw(st.integers(1, 3))):
        merge = draw(merges(count))
        steps += draw(st.lists(writes(merge.source), min_size=1, max_size=2))
        steps += draw(st.lists(writes(merge.target), max_size=1))
        if draw(st.integers(0, 7)) == 0:
            branch, parent = draw(st.permutations(range(count)))[:2]
            back = draw(st.sampled_from([0, 1, 2]))
            steps.append(Fork(branch=branch, parent=parent, back=back))
        steps.append(merge)
    return steps


def _name_of(row: tuple[str, tuple[tuple[str, Any], ...]]) -> tuple[str, Any]:
    return row[0], dict(row[1])["id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit of the model: its real id, its parents, and the graph it left."""

    commit_id: str
    branch: int
    parents: tuple[str, ...]
    content: Content
    number: int


@dataclass(slots=True)
class Model:
    """Every commit so far, and the head of every branch."""

    commits: dict[str, Commit] = field(default_factory=dict)
    heads: dict[int, str] = field(default_factory=dict)
    made_from: dict[int, set[int]] = field(default_factory=dict)

    def head(self, branch: int) -> Commit:
        return self.commits[self.heads[branch]]

    def record(self, branch: int, commit_id: str, parents: Iterable[str], content: Content) -> None:
        number = len(self.commits)
        self.commits[commit_id] = Commit(
            commit_id=commit_id,
            branch=branch,
            parents=tuple(parents),
            content=content,
            number=number,
        )
        self.heads[branch] = commit_id

    def back(self, branch: int, steps: int) -> Commit:
        """A commit on the line of first parents, as far back as there are."""
        commit = self.head(branch)
        for _ in range(steps):
            commit = self.commits[commit.parents[0]] if commit.parents else commit
        return commit

    def fork(self, branch: int, parent: int, commit: Commit) -> None:
        self.heads[branch] = commit.commit_id
        self.made_from[branch] = {parent, commit.branch} - {branch}

    def lineage(self, branch: int) -> set[int]:
        """The branch and all it may have been made from."""
        found, waiting = set[int](), {branch}
        while waiting:
            each = waiting.pop()
            found.add(each)
            waiting |= self.made_from.get(each, set()) - found
        return found

    def ancestors(self, commit_id: str) -> set[str]:
        found, waiting = set(), [commit_id]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self.commits[each].parents
        return found

    def bases(self, one: str, other: str) -> set[str]:
        """Common ancestors that no other common ancestor descends from."""
        common = self.ancestors(one) & self.ancestors(other)
        older = {parent for each in common for parent in self.commits[each].parents}
        return common - older


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a merge should do: the graph it leaves, or why it must fail."""

    content: Content
    conflicts: list[Conflict]
    broken: Broken

    @property
    def open(self) -> list[Conflict]:
        return [each for each in self.conflicts if each.resolution is None]


def expect_merge(model: Model, base: str, source: Commit, target: Commit, step: Merge) -> Expected:
    if base == target.commit_id:
        return Expected(content=source.content, conflicts=[], broken=set())
    rules = Rules(
        resolution=step.resolve,
        column_level=step.column_level,
        source_is_newer=source.number > target.number,
    )
    merged = merge_graphs(model.commits[base].content, source.content, target.content, rules)
    return Expected(
        content=merged.graph,
        conflicts=merged.conflicts,
        broken=broken_rules(target.content, merged.graph),
    )


def written(before: Content, step: Write) -> Content | None:
    """The graph after a write; None if the write breaks a rule or changes nothing."""
    replaced = {key for key, _ in step.rows} if step.overwrites else set()
    after = {key: {} if key in replaced else dict(rows) for key, rows in before.items()}
    for key, values in step.rows:
        row = dict(values)
        after[key][row["id"]] = row
    for key, name in step.gone:
        after[key].pop(name, None)
    _cascade(after, {(key, name) for key, name in step.gone})
    if same(before, after) or broken_rules(before, after):
        return None
    return after


def same(one: Content, other: Content) -> bool:
    return one.keys() == other.keys() and all(
        spelt(dict(one[key])) == spelt(dict(other[key])) for key in one
    )


def broken_rules(before: Content, after: Content) -> Broken:
    """Rules that a change breaks: table and reason."""
    return {*_orphans(after), *_repeated(after), *_miscounted(before, after)}


def _cascade(graph: dict[str, dict[str, Row]], gone: set[tuple[str, str]]) -> None:
    for key, nodes in ENDS.items():
        for edge in [*graph[key].values()]:
            ends = zip(nodes, (edge["src"], edge["dst"]), strict=True)
            if any(end in gone for end in ends):
                del graph[key][edge["id"]]


def _orphans(graph: Content) -> Iterator[tuple[str, str]]:
    for key, (source, target) in ENDS.items():
        for edge in graph[key].values():
            if edge["src"] not in graph[source] or edge["dst"] not in graph[target]:
                yield key, "missing_endpoint"


def _repeated(graph: Content) -> Iterator[tuple[str, str]]:
    tags = Counter(row["tag"] for row in graph["node:A"].values() if row["tag"] is not None)
    if any(count > 1 for count in tags.values()):
        yield "node:A", "not_unique"


def _miscounted(before: Content, after: Content) -> Iterator[tuple[str, str]]:
    """Sources of edges that came, went or changed, and that are still there."""
    old, new = before["edge:R"], after["edge:R"]
    changed = [name for name in {*old, *new} if spelt(old.get(name)) != spelt(new.get(name))]
    touched = {edges[name]["src"] for edges in (old, new) for name in changed if name in edges}
    counts = Counter(edge["src"] for edge in new.values())
    for source in touched & set(after["node:A"]):
        if counts[source] < EDGES_MIN:
            yield "edge:R", "too_few_edges"
        if counts[source] > EDGES_MAX:
            yield "edge:R", "too_many_edges"
