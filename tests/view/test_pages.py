"""A view is one page: nothing leaves it, and nothing of the graph runs in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import omnigraph_lake as og
from omnigraph_lake.view.drawing import View
from omnigraph_lake.view.page import json_block
from omnigraph_lake.view.scene import Scene, SceneEdge, SceneKind, SceneNode
from tests.cli.commands import answer, run
from tests.view.people import FRIENDS, HOSTILE, PEOPLE, build_graph

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("about pages, which know no store")]

ASSETS = Path(og.__file__).parent / "view/assets"
FRONTEND = Path(__file__).parent.parent.parent / "frontend"


class Elements(HTMLParser):
    """The elements of a page, in order, each with its attributes and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.seen: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._is_open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes), []))
        self._is_open = True

    def handle_data(self, data: str) -> None:
        if self._is_open:
            self.seen[-1][2].append(data)

    def handle_endtag(self, _tag: str) -> None:
        self._is_open = False

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [
            (attributes, "".join(texts)) for name, attributes, texts in self.seen if name == tag
        ]


def data_of(page: str) -> dict[str, Any]:
    (_, text) = next(
        script for script in Elements(page).all("script") if script[0].get("id") == "data"
    )
    data = json.loads(text)
    assert isinstance(data, dict)
    return data


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return build_graph(str(tmp_path_factory.mktemp("view") / "g"))


@pytest.fixture(scope="module")
def page(graph: og.Graph) -> str:
    return graph.view().html()


def test_a_page_allows_only_the_script_and_the_style_that_it_has(page: str) -> None:
    elements = Elements(page)
    policy = next(
        str(attributes["content"])
        for attributes, _ in elements.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    scripts = [text for attributes, text in elements.all("script") if "type" not in attributes]
    assert rules["default-src"] == "'none'"
    assert [rules["script-src"]] == [digest(text) for text in scripts]
    assert [rules["style-src"]] == [digest(text) for _, text in elements.all("style")]
    assert rules.keys() == {"default-src", "script-src", "style-src", "base-uri", "form-action"}


def test_a_page_names_no_address(page: str) -> None:
    addresses = re.findall(r"https?://[^\s\"'<)]+", page)

    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert not [
        attributes
        for _, attributes, _ in Elements(page).seen
        if {"src", "href", "srcset"} & attributes.keys()
    ]


def test_hostile_names_are_data(page: str) -> None:
    block = page.split('id="data">', 1)[1].split("</script>", 1)[0]
    labels = {row[1] for row in data_of(page)["nodes"]}

    assert not set("<>&\u2028\u2029") & set(block)
    assert set(HOSTILE) <= labels
    assert [attributes.get("id") for attributes, _ in Elements(page).all("script")] == [
        "data",
        None,
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_json_in_a_page_reads_back_as_it_was(text: str) -> None:
    block = json_block({text: [text]})

    assert json.loads(block) == {text: [text]}
    assert not set("<>&\u2028\u2029") & set(block)


def test_the_same_graph_gives_the_same_page(graph: og.Graph, page: str) -> None:
    assert graph.view().html() == page


def test_blobs_are_not_in_a_page_and_times_are_texts(graph: og.Graph) -> None:
    (node,) = [
        node for node in graph.view(around=("Person", "Ann"), hops=0).scene.nodes if node.shown
    ]

    assert node.properties == {"name": "Ann", "age": "37", "note": HOSTILE[0]}


def test_a_picture_is_xml_whatever_names_hold(graph: og.Graph) -> None:
    picture = graph.view().svg()

    root = ET.fromstring(picture)  # noqa: S314 - our own text
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert tags <= {
        *("svg", "title", "style", "defs", "marker", "path", "rect", "text", "circle"),
    }
    assert f"Person {HOSTILE[0]}" in titles


def test_a_picture_escapes_control_characters() -> None:
    node = SceneNode(key=("N\x00", "\x1b[31m"), label="a\x01\ufffe\ud800]]>")
    scene = Scene(
        kind=SceneKind.GRAPH,
        title="\x02<&\x7f",
        facts=[("graph", "\ud800")],
        nodes=[node],
        edges=[SceneEdge(type="E", id="e", source=node.key, target=node.key)],
        nodes_total=1,
        edges_total=1,
    )

    root = ET.fromstring(View(scene).svg())  # noqa: S314 - our own text

    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a\\x01\\ufffe\\ud800]]>" in texts
    assert r"\x02<&\x7f" in texts


def test_a_picture_names_edges_apart_and_leaves_out_generated_ids() -> None:
    digests = [hashlib.md5(str(number).encode()).hexdigest() for number in range(70)]  # noqa: S324
    nodes = [SceneNode(key=("N", text), label=text[:12]) for text in digests]
    nodes.append(SceneNode(key=("N", "hub"), label="hub"))
    scene = Scene(
        kind=SceneKind.GRAPH,
        title="t",
        facts=(),
        nodes=nodes,
        edges=[
            SceneEdge(type=kind, id="", source=node.key, target=("N", "hub"))
            for node in nodes[:2]
            for kind in ("First", "Second")
        ],
        nodes_total=71,
        edges_total=4,
    )

    root = ET.fromstring(View(scene).svg())  # noqa: S314 - our own text

    space = "{http://www.w3.org/2000/svg}"
    labels = [text.text for text in root.iter(f"{space}text") if text.get("class") == "label"]
    lines = [path for path in root.iter(f"{space}path") if path.get("class") == "edge"]
    assert labels == ["hub"]
    assert len({path.get("d") for path in lines}) == len(lines) == 4
    assert len({path.get("stroke") for path in lines}) == 2
    assert {path.get("marker-end") for path in lines} == {"url(#head-0)", "url(#head-1)"}


def test_a_notebook_shows_a_page_in_a_frame_without_rights(graph: og.Graph, page: str) -> None:
    frame = graph.view()._repr_html_()

    ((attributes, _),) = Elements(frame).all("iframe")
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"] == page
    assert unescape(frame).count("<iframe") == 1


def test_the_bundle_is_what_its_versions_and_licences_say() -> None:
    script, notices = (ASSETS / "view.js").read_text(), (ASSETS / "LICENSES.txt").read_text()
    pinned = json.loads((FRONTEND / "package.json").read_text())["devDependencies"]

    assert "</script" not in script.lower()
    for name in ("sigma", "@sigma/edge-curve", "graphology", "graphology-layout-forceatlas2"):
        assert f"{name} {pinned[name]} (MIT)" in notices
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in pinned.values())


def test_a_command_writes_a_page_and_says_how_much_it_shows(
    graph: og.Graph, tmp_path: Path
) -> None:
    target = tmp_path / "out.html"

    said = answer("view", graph.root, "-o", str(target), "--around", "Person/Ann", "--hops", "2")

    assert said["file"] == str(target)
    assert (said["nodes"], said["nodes_total"]) == (4, 16)
    assert len([row for row in data_of(target.read_text())["nodes"] if row[6]]) == 4


@pytest.mark.parametrize(
    ("options", "kind", "count"),
    [
        (("--query", FRIENDS), "graph", 15),
        (("--query", PEOPLE, "--limit", "3"), "graph", 3),
        (("--diff", "empty", "main"), "diff", 16),
        (("--commits",), "commits", 2),
        (("--type", "Company"), "graph", 1),
        (("--types",), "types", 2),
    ],
)
def test_a_command_draws_results_differences_and_histories(
    graph: og.Graph, tmp_path: Path, options: tuple[str, ...], kind: str, count: int
) -> None:
    if "empty" not in {branch.name for branch in graph.branches.list()}:
        graph.branches.create("empty", source=graph.commits()[-1].commit_id)

    said = answer("view", graph.root, "-o", str(tmp_path / "out.svg"), *options)

    assert (said["kind"], said["nodes"]) == (kind, count)
    assert (tmp_path / "out.svg").read_text().startswith("<svg")


def test_a_command_shows_one_thing_at_a_time(graph: og.Graph, tmp_path: Path) -> None:
    target = tmp_path / "out.html"

    two = run("view", graph.root, "--commits", "--around", "Person/Ann", "-o", str(target))
    unused = run("view", graph.root, "--commits", "--at", "main", "-o", str(target))
    picture = run("view", graph.root, "-o", str(tmp_path / "out.png"))
    unknown = run("view", graph.root, "--around", "Person/Zoe", "-o", str(target))
    chosen = run("view", graph.root, "--types", "--type", "Person", "-o", str(target))

    assert two.returncode == 2
    assert "one thing at a time" in two.stderr
    assert unused.returncode == chosen.returncode == 2
    assert picture.returncode != 0
    assert ".html or .svg" in picture.stderr
    assert "no Person with the id 'Zoe'" in unknown.stderr
    assert not target.exists()


def test_the_status_is_a_page_of_plots_without_a_script(graph: og.Graph, tmp_path: Path) -> None:
    target = tmp_path / "status.html"

    finished = run("status", graph.root, "--html", str(target))

    assert finished.returncode == 0, finished.stderr
    elements = Elements(target.read_text())
    headings = [text for _, text in elements.all("h2")]
    assert elements.all("script") == []
    assert {"Rows by type", "Size by type", "Index coverage", "Latest commits"} <= set(headings)
    assert elements.all("rect")
