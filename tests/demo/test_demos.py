"""The demos as their users run them; what becomes of indexes is compared with what awk counts."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import omnigraph as api
from benchmarks.debian import awk_counts, require_every_record
from tests.cli.commands import omnigraph

pytestmark = [
    pytest.mark.unit,
    pytest.mark.local_disk("a demo creates a directory on the disk of its user"),
]

SAMPLE = Path(api.__file__).parent / "demo/debian/sample"
HOSTILE = """\
Package: a
Version: 2.0-1
Maintainer: Zoë Beispiel <zoe@example.org>
Architecture: amd64
Depends: b (>= 1.0) | virtual-b, v (= 3),
 missing [amd64],
 b:any
Provides: a-virtual (= 2), a-virtual (= 3)
Breaks: b (<< 0.5), b (>> 9), gone (<= 1)
Section: libs
Installed-Size: many
Description: write to zoe@example.org or <team@lists.example.org>
 folded

Package: a
Version: 2.0~rc1-1
Maintainer: Other <other@example.org>
Depends: only-of-the-old, b
Section: old

Package: b
Version: 1.0-1
Maintainer: Zoë Beispiel <zoe@example.org>
Depends: a-virtual (>= 3), a-virtual (>= 4), ${misc:Depends}, a (>= 1
Provides: v (= 3), virtual-b
Essential: yes

Version: 1
Depends: a

Package: ../../etc "quoted" \\ name
Version: 1
Depends: , ,a|
"""


def demo(*arguments: str, cwd: Path, code: int = 0) -> dict[str, Any]:
    finished = omnigraph("demo", *arguments, "--json", cwd=cwd)
    assert finished.returncode == code, finished.stderr
    document = json.loads(finished.stdout)
    assert isinstance(document, dict)
    return document


def steps_run(document: dict[str, Any], cwd: Path) -> None:
    for step in document["next"]:
        finished = omnigraph(*shlex.split(step)[1:], cwd=cwd)
        assert finished.returncode == 0, f"{step}\n{finished.stderr}"


def test_the_small_demo_runs_with_every_step_it_names(tmp_path: Path) -> None:
    document = demo("small", "./my solar", cwd=tmp_path)

    assert (document["nodes"], document["edges"]) == (69, 131)
    steps_run(document, tmp_path)
    graph = api.open(str(tmp_path / "my solar/graph"))
    pluto = graph.get("Body", "Pluto")
    assert pluto is not None
    assert (pluto["kind"], pluto["radius_km"]) == ("dwarf-planet", 1188.3)
    assert graph.get("Body", "Vulcan") is None


def test_a_demo_fills_no_directory_that_has_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    finished = omnigraph("demo", "small", str(tmp_path))

    assert finished.returncode == 4
    assert "is not empty; nothing was written" in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_demo_that_fails_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()

    for directory in ("there", "new"):
        finished = omnigraph(
            "demo", "debian", directory, "--sample", "--suite", "nope", cwd=tmp_path
        )
        assert finished.returncode == 5
        assert "nope/Packages" in finished.stderr

    assert list(tmp_path.rglob("*")) == [tmp_path / "there"]


def test_without_apt_the_demo_says_what_to_use_instead(tmp_path: Path) -> None:
    finished = omnigraph("demo", "debian", "deb", cwd=tmp_path, env={"PATH": str(tmp_path)})

    assert finished.returncode == 5
    assert "--sample" in finished.stderr
    assert not (tmp_path / "deb").exists()


@pytest.mark.cost("loads two suites, and runs every step that it names", 5)
def test_every_record_of_the_sample_is_published_or_rejected(tmp_path: Path) -> None:
    document = demo("debian", "deb", "--sample", cwd=tmp_path)

    for suite in document["suites"]:
        require_every_record(suite, awk_counts(SAMPLE / suite["suite"] / "Packages"))
    main, branch = document["suites"]
    assert (main["branch"], branch["branch"]) == ("main", "unstable")
    assert (main["packages"], main["older_versions"]) == (44, 1)
    assert document["peak_bytes"] > 0
    steps_run(document, tmp_path)


def test_hostile_indexes_are_loaded_or_rejected_record_by_record(tmp_path: Path) -> None:
    (tmp_path / "lists/odd/main").mkdir(parents=True)
    plain = tmp_path / "Packages"
    plain.write_text(HOSTILE)
    packed = tmp_path / "lists/odd/main/Packages.gz"
    packed.write_bytes(gzip.compress(HOSTILE.encode()))

    document = demo("debian", "deb", "--suite", "odd", "--indexes", "lists", cwd=tmp_path)

    (suite,) = document["suites"]
    counts = awk_counts(plain)
    assert suite["relations"] == {name: counts.get(name.title(), 0) for name in suite["relations"]}
    assert suite["read"] == sum(suite["published"].values()) + sum(suite["rejected"].values())
    graph = api.open(str(tmp_path / "deb/graph"), read_only=True)
    package, other = graph.get("Package", "a"), graph.get("Package", "b")
    assert package is not None
    assert other is not None
    assert (package["version"], package["unmet"], package["installed_kib"]) == ("2.0-1", 1, None)
    assert package["summary"] == "write to (address) or (address) folded"
    assert (other["unmet"], other["essential"]) == (3, True)
    edges = graph.scan("DependsOn").read_all().to_pylist()
    assert sorted(
        (edge["src"], edge["dst"], edge["group"], edge["position"]) for edge in edges
    ) == [
        ('../../etc "quoted" \\ name', "a", 1, 1),
        ("a", "b", 1, 1),
        ("a", "b", 4, 1),
        ("a", "v", 2, 1),
        ("a", "virtual-b", 1, 2),
        ("b", "a-virtual", 1, 1),
        ("b", "a-virtual", 2, 1),
    ]
    assert graph.count("Maintainer") == 1


def test_no_address_and_no_name_of_a_person_is_stored(tmp_path: Path) -> None:
    demo("debian", "deb", "--sample", "--suite", "testing", cwd=tmp_path)

    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert not re.search(rb"[\w.]+@[\w.]*example", stored)
    assert b"Maya Bash" not in stored
    assert b"miscellaneous files" in stored
