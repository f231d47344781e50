"""Pages deny a capability only while it does not exist.

`CLAIMS` pairs sentences of the pages with functions that show, by the public API or the command,
that what they deny is refused. A feature that is built turns its claim red, and the sentence goes.
Sentences that look like a denial and are none, or that other tests show, are listed with them, so
that a new denial needs a claim.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import lance
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

import omnigraph_lake as og
from omnigraph_lake import errors
from omnigraph_lake.cli.main import app
from tests.docs.test_pages import HOME, commands
from tests.stores import folder_of, root_at

pytestmark = pytest.mark.unit

SCHEMA: Final = """
interface Named { name: String @unique }
node Person implements Named { email: String @key  age: I32?  note: String? }
node Company implements Named { code: String @key }
node Doc { title: String @key  meaning: Vector(2)? @embed("title", model="m")  body: Json? }
edge Knows: Person -> Person
"""
ROWS: Final[Mapping[str, list[dict[str, Any]]]] = {
    "Person": [{"email": name, "name": name} for name in "abcd"],
    "Doc": [{"title": "first", "body": {"any": ["shape"]}}, {"title": "second", "body": 2}],
    "Knows": [{"src": src, "dst": dst} for src, dst in ("ab", "ac", "bd", "cd")],
}
USAGE_ERROR: Final = 2
MUTATION_ROWS: Final = 100_000
MUTATION_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A graph that no claim changes, and a place of its own for each claim."""

    graph: og.Graph
    folder: Path

    def new_graph(self, schema: str) -> og.Graph:
        return og.init(root_at(self.folder / "g"), schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence of a page, or a part of one, and what shows that it is true."""

    page: str
    sentence: str
    shows: Callable[[Scene], None]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(root_at(Path(tmp_path_factory.mktemp("claims"), "g")), schema=SCHEMA)
    graph.write(ROWS)
    return graph


def refuses_schemas(*texts: str) -> Callable[[Scene], None]:
    def shows(scene: Scene) -> None:
        for text in texts:
            with pytest.raises(errors.SchemaInvalidError):
                scene.graph.schema.plan(text)

    return shows


def refuses_queries(*texts: str) -> Callable[[Scene], None]:
    def shows(scene: Scene) -> None:
        for text in texts:
            with pytest.raises(errors.QueryInvalidError):
                scene.graph.explain(text)

    return shows


def refuses_roots(*roots: str) -> Callable[[Scene], None]:
    def shows(_: Scene) -> None:
        for root in roots:
            with pytest.raises(errors.InvalidInputError, match="as a graph root"):
                og.open(root)

    return shows


def has_no(*words: str) -> Callable[[Scene], None]:
    """Neither a command nor a member of the package, of a graph or of its namespaces."""

    def shows(_: Scene) -> None:
        for word in words:
            assert not [name for name in public_names() if re.fullmatch(f"{word}s?", name)], word
        assert CliRunner().invoke(app, [words[0]]).exit_code == USAGE_ERROR

    return shows


@cache
def public_names() -> frozenset[str]:
    """Words of commands, and names of the package, of a graph and of its namespaces."""
    spaces = (og, og.Graph, og.Maintenance, og.Branches)
    members = {name for space in spaces for name in dir(space)}
    return frozenset(members | {part for command in commands() for part in command.split()})


def all_of(*parts: Callable[[Scene], None]) -> Callable[[Scene], None]:
    def shows(scene: Scene) -> None:
        for part in parts:
            part(scene)

    return shows


def undeclared_rows_are_refused(scene: Scene) -> None:
    with pytest.raises(errors.InvalidInputError):
        scene.graph.write({"Ghost": [{"name": "x"}]}, dry_run=True)
    with pytest.raises(errors.ValidationFailedError):
        scene.graph.write({"Company": [{"code": "x", "name": "x", "ghost": 1}]}, dry_run=True)


def one_path_is_found_of_two(scene: Scene) -> None:
    text = """match { $a: Person { name: "a" }  $b: Person { name: "d" }  $a knows{1,} $b as $way }
        return { nodes($way) as nodes }"""

    assert scene.graph.query(text).to_pylist() == [{"nodes": ["a", "b", "d"]}]
    refuses_queries(text.replace("as $way }", "as all $way }"))(scene)


def texts_are_not_embedded(scene: Scene) -> None:
    text = 'match { $d: Doc } return { $d.title } order { nearest($d.meaning, "x") } limit 1'

    with pytest.raises(errors.InvalidInputError, match="no model here"):
        scene.graph.query(text).to_pylist()
    assert scene.graph.get("Doc", "first")["meaning"] is None  # type: ignore[index]


def large_mutations_are_refused(scene: Scene) -> None:
    graph = scene.new_graph("node Item { name: String @key  text: String? }")
    graph.write({"Item": pa.table({"name": [str(number) for number in range(MUTATION_ROWS + 1)]})})

    for text, parameters in (
        ('update Item set { text: "x" } where true', {}),
        ('($t: String) insert Item { name: "x", text: $t }', {"t": "x" * (MUTATION_BYTES + 1)}),
    ):
        with pytest.raises(errors.InvalidInputError, match="makes the mutation"):
            graph.mutate(text, parameters, dry_run=True)
    deletion = graph.mutate("delete Item where true", dry_run=True)
    assert deletion.statements[0].nodes == MUTATION_ROWS + 1


def two_widenings_are_a_conflict(scene: Scene) -> None:
    text = "node Person {{ name: String @key  age: {} }}"
    graph = scene.new_graph(text.format("I32?"))
    graph.branches.create("dev").schema.apply(text.format("I64?"))

    with pytest.raises(errors.ConflictError, match="cannot be merged"):
        graph.schema.apply(text.format("F64?"))
    graph.schema.apply(text.format("F64?"), allow_diverged=True)
    with pytest.raises(errors.MergeConflictError, match="SM-105"):
        graph.merge("dev")


def foreign_rows_block_their_type(scene: Scene) -> None:
    graph = scene.new_graph("node Person { name: String @key }\nnode Other { name: String @key }")
    pinned = graph.snapshot().tables["node:Person"]
    folder = folder_of(graph.root, pinned.location)
    table = lance.dataset(str(folder), version=pinned.version)
    table.insert(pa.table({"id": ["Eve"], "name": ["Eve"]}))

    assert graph.count("Person") == 0
    with pytest.raises(errors.DriftNeedsRepairError):
        graph.write({"Person": [{"name": "Dan"}]})
    with pytest.raises(errors.DriftNeedsRepairError):
        graph.schema.apply(graph.schema.text.replace("String @key }", "String @key  a: I64? }", 1))
    skipped = {table.table_key: table.skipped for table in graph.maintenance.optimize()}
    assert skipped["node:Person"] == "drift_needs_repair"
    graph.write({"Other": [{"name": "Dan"}]})


def names_are_not_unique_across_types(scene: Scene) -> None:
    rows = [{"name": "e", "email": "e"}], [{"name": "e", "code": "e"}]
    scene.graph.write({"Person": rows[0], "Company": rows[1]}, dry_run=True)
    with pytest.raises(errors.ValidationFailedError):
        scene.graph.write({"Person": [*rows[0], {"name": "e", "email": "f"}]}, dry_run=True)


def cleaned_versions_are_refused(scene: Scene) -> None:
    graph = scene.new_graph("node Person { name: String @key }")
    first = graph.write({"Person": [{"name": "0"}]}).commit_id
    for number in range(1, 4):
        graph.write({"Person": [{"name": str(number)}]})
    graph.maintenance.cleanup(keep_versions=3, dry_run=False)

    with pytest.raises(errors.NoLongerKeptError, match=str(first)):
        graph.at(str(first)).scan("Person").read_all()


def only_an_empty_target_is_restored_to(scene: Scene) -> None:
    graph = scene.new_graph("node Person { name: String @key }")
    backup = root_at(scene.folder / "backup")
    og.backup(graph.root, backup)

    with pytest.raises(errors.ConflictError, match="not empty"):
        og.restore(backup, scene.graph.root)


def only_linux_is_declared(_: Scene) -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    systems = [name for name in project["classifiers"] if name.startswith("Operating System")]

    assert systems == ["Operating System :: POSIX :: Linux"]


def it_is_declared_an_alpha(_: Scene) -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]

    assert "Development Status :: 3 - Alpha" in project["classifiers"]


def no_option_takes_a_secret(_: Scene) -> None:
    pending = [typer.main.get_command(app)]
    options: list[str] = []
    while pending:
        command = pending.pop()
        pending += getattr(command, "commands", {}).values()
        options += [name for parameter in command.params for name in parameter.opts]

    assert len(options) > 50
    assert [name for name in options if re.search("secret|password|token|credential", name)] == []


ONE_TYPE: Final = all_of(
    refuses_schemas("node Person | Company { name: String @key }"),
    refuses_queries('match { $p: Person } update $p set { type: "Company" }'),
)
NO_SERVER: Final = all_of(has_no("serve", "server", "listen"), refuses_roots("http://localhost/g"))
NO_USERS: Final = has_no("user", "role", "grant", "policy")
OTHER_LANGUAGES: Final = refuses_queries(
    "MATCH (p:Person) RETURN p.name", "g.V().hasLabel('Person')", "SELECT ?s WHERE { ?s ?p ?o }"
)
MAPS: Final = refuses_schemas(
    "node A { a: Map(String, I64) }", "node A { a: { b: String } }", "node A { a: Json(b: I64) }"
)
LISTS: Final = refuses_schemas(
    "node A { a: [[I64]] }", "node A { a: [Decimal(4, 2)] }", "node A { a: [Json] }"
)

WHY, FAQ, MODEL = "docs/concepts/why.md", "docs/concepts/faq.md", "docs/concepts/data-model.md"
VERSIONING: Final = "docs/concepts/versioning.md"
FAILURES, HANDBOOK = "docs/operations/failures.md", "docs/operations/index.md"
CLAIMS: Final = [
    Claim(page=page, sentence=sentence, shows=shows)
    for page, sentence, shows in (
        (WHY, "There are no users: access to the files is access to the graph", NO_USERS),
        (WHY, "Omnigraph does not run them: it has [its own language]", OTHER_LANGUAGES),
        (WHY, "opens no graph over HTTP", NO_SERVER),
        (WHY, "files, and a library: no server to size or patch", NO_SERVER),
        (WHY, "A type or property that is not declared is refused", undeclared_rows_are_refused),
        (WHY, "Here a path is a shortest one", one_path_is_found_of_two),
        (WHY, "| macOS, Windows | a Linux machine or container.", only_linux_is_declared),
        (
            WHY,
            "there is no `WITH`, no `UNION` and no function of your own",
            refuses_queries(
                "match { $p: Person } with { $p.name } return { $p.name }",
                "match { $p: Person } return { $p.id } union match { $p: Doc } return { $p.id }",
                "match { $p: Person } return { my_function($p.name) as name }",
            ),
        ),
        (WHY, "changes at most 100,000 rows or 64 MiB", large_mutations_are_refused),
        (WHY, "- A node has one type for life.", ONE_TYPE),
        (WHY, "those that do not go together are conflicts", two_widenings_are_a_conflict),
        (WHY, "- The release is an alpha", it_is_declared_an_alpha),
        (FAQ, "**Is there a server?** No.", NO_SERVER),
        (FAQ, "**Can I write Cypher or SQL?** No Cypher", OTHER_LANGUAGES),
        (FAQ, "**Are embeddings computed for me?** No.", texts_are_not_embedded),
        (FAQ, "another tool writes are not visible, and they block", foreign_rows_block_their_type),
        (FAQ, "store are refused.", refuses_roots("gs://bucket/prefix")),
        (MODEL, "- Labels that nodes gain and lose", ONE_TYPE),
        (MODEL, "- Properties without a declaration.", undeclared_rows_are_refused),
        (MODEL, "- Maps, and nested objects with declared fields.", MAPS),
        (MODEL, "which is not checked against a shape", MAPS),
        (MODEL, "lists of lists, of decimals or of `Json`", LISTS),
        (
            MODEL,
            "- Keys of edges: the `id` of an edge is given or new.",
            refuses_schemas("node A {}\nedge E: A -> A { code: String @key }"),
        ),
        (MODEL, "- Uniqueness across types", names_are_not_unique_across_types),
        (VERSIONING, "A read of a deleted version is refused", cleaned_versions_are_refused),
        (
            VERSIONING,
            "is refused if the schema of a branch could not be merged any more",
            two_widenings_are_a_conflict,
        ),
        (FAILURES, "Writes to a type are refused with", foreign_rows_block_their_type),
        (HANDBOOK, "so there is no server to run", NO_SERVER),
        (HANDBOOK, "The target must be empty.", only_an_empty_target_is_restored_to),
        (HANDBOOK, "There is no downgrade", has_no("downgrade", "rollback")),
        (HANDBOOK, "| Are there users inside a graph? | no.", NO_USERS),
        (HANDBOOK, "never on a command line", no_option_takes_a_secret),
    )
]

SHOWN_ELSEWHERE: Final = {
    "| many small commits per second |": "tests/s3/test_request_costs.py",
    "- Commits per second: a small commit": "tests/s3/test_request_costs.py",
    "Small appends that wait for each other are": "tests/commit",
    "- The first query over all edges in a new process": "tests/engine",
    "- The store must honour put-if-absent": "tests/s3/test_unsafe_store.py",
    "Compactions and indexes made with Lance change no rows": "tests/maintenance/test_repair.py",
    "* The driver keeps eight bytes for every published row": "tests/spark",
    "* A gzip file is one task": "tests/load",
    "* A merge into a type with `Blob` properties": "tests/spark",
    "* Spark does not tell a Python source": "tests/guards/test_spark_pushdown.py",
    "- The removal of the newest version of `__manifest`": "tests/damage",
    "- Damage after a file was compared": "tests/damage",
    "- Memory errors while a file is written": "tests/damage",
    "- Forgery: a user who can write": "tests/hostile",
}
"""Denials that need a store, Spark or damage, by how they begin, and the tests that show them."""

DENIES_NOTHING: Final = (
    # Promises of Omnigraph, which tests of behaviours hold.
    "**Does `merge` erase columns that I do not mention?** No.",
    "**Do branches copy data?** No.",
    "| Can a read see half of a write? | No.",
    "| Can two parts of one query see different states? | No.",
    "| Does an open graph get stale? | No.",
    "| Does an index delay what is seen? | No.",
    "It is atomic over all types",
    "Failed writes leave no commit.",
    "A branch is created from any state and copies no data",
    "| node and edge tables that must change together |",
    "| risky bulk changes |",
    "Readers are not affected",
    "A graph does not know its own address",
    "Writers of different types do not wait for each other.",
    "| memory of a load | does not grow",
    # Advice, figures and states of things.
    "**How many writers can a graph have?**",
    "**Can I copy the folder?** While there are no writers, yes.",
    "| analytics over one flat table |",
    "| writers | those of one table take turns",
    "- A query has one pattern and one result",
    "Lookups by key do not.",
    "| `OutcomeUnknownError` |",
    '| "the bucket does not exist", access denied |',
    "Rows are published only if you insist, because no rule was checked",
    "Commits since the backup are lost with the damaged file",
    "What can be recovered, and what cannot",
    "The message says which: the bucket does not exist",
    "| `omnigraph_maintain_exit_code` |",
)
"""Sentences that match `DENIAL` and deny no capability, by how they begin."""

DENIAL: Final = re.compile(
    r"\b(?:cannot|(?:is|are) refused|(?:does|do|is|are) not|[Nn]o|[Nn]one|[Nn]either|lacks?)\b"
)
OF_THE_LIST: Final = {
    WHY: ("## When not", "## Limits to know before you start"),
    MODEL: ("## What the model does not have",),
    "docs/explanation/spark.md": ("## Limits",),
    "docs/explanation/checksums.md": ("## Limits",),
}
"""Sections in which every row and every bullet denies something."""
OTHERS: Final = ("comparison.md",)
"""Pages about other products."""


@pytest.mark.parametrize(
    "claim", CLAIMS, ids=[f"{Path(claim.page).stem}-{claim.sentence[:40]}" for claim in CLAIMS]
)
def test_what_a_page_denies_is_refused(claim: Claim, graph: og.Graph, tmp_path: Path) -> None:
    assert claim.sentence in one_line((HOME / claim.page).read_text()), "the page changed"

    claim.shows(Scene(graph=graph, folder=tmp_path))


def test_every_denial_is_a_claim_or_is_none() -> None:
    known = (*(claim.sentence for claim in CLAIMS), *SHOWN_ELSEWHERE, *DENIES_NOTHING)
    denials = dict(denials_of_pages())

    unknown = [
        f"{page}: {sentence}"
        for sentence, page in denials.items()
        if not any(part in sentence for part in known)
    ]

    assert len(denials) > 40
    assert unknown == [], "show it in CLAIMS, or list what it is instead"
    assert [part for part in known if not any(part in one for one in all_sentences())] == []
    assert [place for place in SHOWN_ELSEWHERE.values() if not (HOME / place).exists()] == []


def denials_of_pages() -> Iterator[tuple[str, str]]:
    """Sentences that look like a denial, and those of the sections of limits, with their pages."""
    for page in pages():
        for sentence in sentences(page.read_text()):
            if DENIAL.search(sentence):
                yield sentence, page.name
    for name, headings in OF_THE_LIST.items():
        for heading in headings:
            section = (HOME / name).read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]
            assert section, f"{name} has no section {heading}"
            for entry in entries(section):
                if entry[0] in "|-*":
                    yield next(sentences(entry)), name


def all_sentences() -> list[str]:
    others = [HOME / name for name in OF_THE_LIST]
    return [sentence for page in (*pages(), *others) for sentence in sentences(page.read_text())]


def pages() -> list[Path]:
    folders = (HOME / "docs/concepts", HOME / "docs/operations")
    return [
        page
        for folder in folders
        for page in sorted(folder.glob("*.md"))
        if page.name not in OTHERS
    ]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page, each on one line; a row of a table is one."""
    for entry in entries(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)):
        if entry.startswith("|"):
            yield entry
        else:
            yield from re.split(r"(?<=[.!?])\s+(?=[A-Z`*\[])", entry)


def entries(text: str) -> Iterator[str]:
    """Paragraphs, bullets and rows of tables, without headings and the heads of tables."""
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().splitlines()
        if len(lines) > 1 and re.fullmatch(r"[|-]+", lines[1]):
            lines = lines[2:]
        begun: list[str] = []
        for line in lines:
            if begun and re.match(r"\||#|[-*] |\d+\. ", line):
                yield " ".join(begun)
                begun = []
            if not line.startswith("#"):
                begun.append(line.strip())
        if begun:
            yield " ".join(begun)


def one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)
