"""The whole archive of Debian as a graph: `just bench debian`, `just bench debian --indexes DIR`.

Runs `omnigraph demo debian` on two suites, in a process of its own, and the steps of the tutorial
on the result. Every record is accounted for: what was published and what was rejected is compared
with counts that awk makes of the same index files, and so are results of queries. Prints seconds of
every step and the peak memory of the processes; fails if a count or a result differs.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import omnigraph_lake as og

FIELDS: Final = (
    *("Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances"),
    *("Conflicts", "Breaks", "Replaces", "Provides"),
)
NODES: Final = ("Package", "VirtualPackage", "Source", "Section", "Maintainer")
COUNT: Final = r"""
function flush(   n, i, item, items) {
    if (kind != "") {
        n = split(text, items, /[,|]/)
        for (i = 1; i <= n; i++) {
            item = items[i]
            gsub(/[ \t]/, "", item)
            if (item != "") count[kind]++
        }
    }
    kind = ""
}
/^[ \t]/ { if (kind != "") text = text $0; next }
{ flush(); split($0, parts, ":"); }
parts[1] in wanted { kind = parts[1]; text = substr($0, length(kind) + 2) }
parts[1] in counted { count[parts[1]]++ }
BEGIN {
    n = split(FIELDS, names, " "); for (i = 1; i <= n; i++) wanted[names[i]] = 1
    n = split("Package Section Maintainer", names, " ")
    for (i = 1; i <= n; i++) counted[names[i]] = 1
}
END { flush(); for (kind in count) print kind, count[kind] }
"""
"""Counts stanzas, and items of relations over folded lines; no parser of the product."""
TOP: Final = r"""
/^Package: / { name = $2 }
/^(Pre-)?Depends: / { if ($0 ~ "[ ,|]" TARGET "[ :,|]|[ ,|]" TARGET "$") users[name] = 1 }
END { for (name in users) n++; print n + 0 }
"""
"""Counts the packages of which a dependency names TARGET."""


def awk(program: str, index: Path, **variables: str) -> str:
    given = [word for name, text in variables.items() for word in ("-v", f"{name}={text}")]
    finished = subprocess.run(
        [shutil.which("awk") or "awk", *given, program, str(index)],
        capture_output=True,
        text=True,
        check=True,
    )
    return finished.stdout


def awk_counts(index: Path) -> dict[str, int]:
    """Stanzas, sections, maintainers and items of every field of relations."""
    lines = awk(COUNT, index, FIELDS=" ".join(FIELDS)).split("\n")
    return {name: int(count) for name, count in (line.split() for line in lines if line)}


def require_every_record(
    suite: Mapping[str, Any], counts: Mapping[str, int], *, unnamed: int = 0
) -> None:
    """What was published and what was rejected are together what awk counts.

    `unnamed` are stanzas without a name, which awk does not count as packages: the node and its
    source are rejected.
    """
    relations = {name.lower(): counts.get(name, 0) for name in FIELDS}
    assert suite["relations"] == relations, (suite["relations"], relations)
    published, rejected = suite["published"], suite["rejected"]
    packages = published["Package"] + rejected.get("duplicate_id", 0)
    assert packages == counts["Package"], (packages, counts["Package"])
    assert published["VirtualPackage"] == suite["virtual_packages"]
    nodes = sum(published[name] for name in NODES)
    rejected_nodes = rejected.get("duplicate_id", 0) + 2 * unnamed
    edges = sum(published.values()) - nodes + sum(rejected.values()) - rejected_nodes
    described = counts["Package"] + unnamed + counts["Section"] + counts["Maintainer"]
    assert edges == sum(relations.values()) + described, (edges, relations, described)
    assert suite["read"] == sum(published.values()) + sum(rejected.values())


def require_every_name(folder: Path, branch: str, index: Path) -> None:
    """The packages of a branch are those of the index, by name."""
    graph = og.open(str(folder / "graph"), branch=branch)
    packages = graph.query("match { $p: Package } return { $p.name }")
    names = {name for row in packages.to_pylist() for name in row.values()}
    assert names == set(awk('$1 == "Package:" { print $2 }', index).split())


@contextmanager
def timed(step: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    took, used = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{step:<44}{took:8.1f} s {used:8.1f} CPU s", flush=True)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=options.scratch) as scratch:
        folder = Path(scratch, "deb")
        demo = create(folder, options)
        first, second = demo["suites"]
        for suite in demo["suites"]:
            edges = sum(suite["published"].values()) - sum(suite["published"][n] for n in NODES)
            print(
                f"{suite['suite']}: {suite['packages']:,} packages, "
                f"{suite['virtual_packages']:,} virtual, {sum(suite['relations'].values()):,} "
                f"relations, {edges:,} edges published, "
                f"{sum(suite['rejected'].values()):,} rejected, load {suite['seconds']:.1f} s"
            )
            index = index_of(folder, options, suite["suite"])
            require_every_record(suite, awk_counts(index))
            require_every_name(folder, suite["branch"], index)
        print(f"demo: {demo['seconds']:.1f} s, peak {demo['peak_bytes'] / 1e6:,.0f} MB")
        use(folder, index_of(folder, options, first["suite"]), second["suite"], spark=options.spark)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"tutorial: peak {peak:,.0f} MB; every count and result is as awk says")


def create(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    source = ["--indexes", str(options.indexes)] if options.indexes else []
    command = [
        sys.executable,
        "-m",
        "omnigraph_lake",
        "demo",
        "debian",
        str(folder),
        *source,
        "--json",
    ]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    demo: dict[str, Any] = json.loads(finished.stdout)
    return demo


def index_of(folder: Path, options: argparse.Namespace, suite: str) -> Path:
    """The index of a suite as a plain file."""
    if options.indexes:
        return Path(options.indexes, suite, "Packages")
    (packed,) = (folder / "apt/var/lib/apt/lists").glob(f"*_dists_{suite}_*_Packages*")
    plain = folder / f"{suite}.Packages"
    with plain.open("wb") as target:
        subprocess.run(
            ["/usr/lib/apt/apt-helper", "cat-file", str(packed)], stdout=target, check=True
        )
    return plain


def use(folder: Path, index: Path, branch: str, *, spark: bool) -> None:
    """The steps of the tutorial, with results that awk confirms."""
    graph = og.open(str(folder / "graph"))
    queries = folder / "debian.gq"
    with timed("optimize"):
        graph.maintenance.optimize()
    with timed("two hops around curl"):
        near = graph.query(queries, {"package": "curl"}, name="around").to_pylist()
    assert {"VirtualPackage", "Section"} < {row["type"] for row in near}
    with timed("needed_by libc6, all steps"):
        steps = graph.query(queries, {"package": "libc6"}, name="needed_by").to_pylist()
    assert steps[0] == {"steps": 1, "packages": int(awk(TOP, index, TARGET="libc6"))}, steps
    with timed("sections"):
        sections = graph.query(queries, name="sections").to_pylist()
    assert sum(row["packages"] for row in sections) == awk_counts(index)["Section"]
    with timed("about text editor"):
        editors = graph.query(queries, {"words": "text editor"}, name="about").to_pylist()
    assert len(editors) == 10
    assert all("editor" in row["summary"].lower() for row in editors[:3]), editors
    with timed("PageRank of dependencies"):
        target = og.SparkTarget() if spark else None
        types = ["Package", "VirtualPackage"]
        result = graph.algorithms.page_rank(types, ["DependsOn"], spark=target, write_to="rank")
        ranks = result.to_pylist()
    best = sorted(ranks, key=lambda row: -row["rank"])[:5]
    print("  " + ", ".join(f"{row['id']} {row['rank']:.4f}" for row in best))
    assert "libc6" in [row["id"] for row in best]
    with timed(f"diff main {branch}"):
        changes = graph.diff("main", branch)
    for key in ("node:Package", "edge:DependsOn"):
        counts = changes.tables[key].counts
        print(
            f"  {key}: {counts.inserted:,} inserted, {counts.updated:,} updated, "
            f"{counts.deleted:,} deleted"
        )
    review(graph, folder, branch)


def review(graph: og.Graph, folder: Path, branch: str) -> None:
    """Hold back what the gate finds on the branch, and merge the rest."""
    there = graph.checkout(branch)
    with timed("gate"):
        broken = there.query(folder / "gate.gq", name="uninstallable").to_pylist()
    print(f"  {len(broken):,} packages cannot be installed")
    with timed("hold back"):
        there.mutate("query hold_back() { delete Package where unmet > 0 }")
    assert there.query(folder / "gate.gq", name="uninstallable").to_pylist() == []
    with timed("merge"):
        graph.merge(branch)
    with timed("check"):
        assert graph.maintenance.check().ok
    assert graph.count("Package") == there.count("Package")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--indexes", type=Path, help="a folder with SUITE/Packages; else apt")
    parser.add_argument("--spark", action="store_true", help="PageRank on Spark")
    parser.add_argument("--scratch", help="where the graph is made")
    return parser.parse_args()


if __name__ == "__main__":
    main()
