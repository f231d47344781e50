"""The demos as their users run them; what becomes of indexes is compared with what awk counts."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from benchmarks.debian import awk_counts, require_every_record
from tests.cli.commands import run

pytestmark = [
    pytest.mark.unit,
    pytest.mark.local_disk("a demo creates a directory on the disk of its user"),
]

SAMPLE = Path(og.__file__).parent / "demo/debian/sample"
ODD_NAME = '../../etc "quoted" \\ name'
PACKAGES = "Created-By: Packages"
HOSTILE = f"""\
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
Depends: a-virtual (>= 3), a-virtual (>= 4), ${{misc:Depends}}, a (>= 1
Provides: v (= 3), virtual-b
Essential: yes

Version: 1
Depends: a

Package: {ODD_NAME}
Version: 1
Depends: , ,a|
"""


def demo(*arguments: str, cwd: Path, code: int = 0) -> dict[str, Any]:
    finished = run("demo", *arguments, "--json", cwd=cwd)
    assert finished.returncode == code, finished.stderr
    document = json.loads(finished.stdout)
    assert isinstance(document, dict)
    return document


@pytest.mark.nightly("tens of commands; the gate runs the tutorials, which use both demos")
@pytest.mark.parametrize("data", ["small", "debian --sample"])
def test_every_step_that_a_demo_names_runs(data: str, tmp_path: Path) -> None:
    name, *options = data.split()
    document = demo(name, "./a demo", *options, cwd=tmp_path)

    assert len(document["next"]) > 5
    for step in document["next"]:
        finished = run(*shlex.split(step)[1:], cwd=tmp_path)
        assert finished.returncode == 0, f"{step}\n{finished.stderr}"


def test_a_demo_fills_no_directory_that_has_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    finished = run("demo", "small", str(tmp_path))

    assert finished.returncode == 4
    assert "is not empty; nothing was written" in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_demo_makes_no_folder_that_is_called_like_a_store(tmp_path: Path) -> None:
    finished = run("demo", "small", "s3://bucket/solar", cwd=tmp_path)

    assert finished.returncode == 5
    assert "fills a directory of this machine; nothing was written" in finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_demo_that_fails_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()

    for directory in ("there", "new"):
        finished = run("demo", "debian", directory, "--sample", "--suite", "nope", cwd=tmp_path)
        assert finished.returncode == 5
        assert "nope/Packages" in finished.stderr

    assert list(tmp_path.rglob("*")) == [tmp_path / "there"]


@pytest.mark.parametrize("suite", ["../up", "a b", "main", ""])
def test_a_suite_is_named_like_one(suite: str, tmp_path: Path) -> None:
    finished = run("demo", "debian", "deb", "--sample", "--suite", suite, cwd=tmp_path)

    assert finished.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_indexes_come_from_one_place(tmp_path: Path) -> None:
    for words in ("--sample --system", "--sample --mirror http://x", "--system --suite testing"):
        finished = run("demo", "debian", "deb", *words.split(), cwd=tmp_path)

        assert finished.returncode == 2, words
    assert list(tmp_path.iterdir()) == []


def system_index(folder: Path) -> Path | None:
    """What apt has downloaded for this system, as one plain file."""
    if shutil.which("apt-get") is None:
        return None
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(FILENAME)", PACKAGES, "Origin: Debian"],
        capture_output=True,
        text=True,
        check=True,
    )
    with (folder / "Packages").open("wb") as target:
        for path in listed.stdout.split():
            subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", path], stdout=target, check=True)
            target.write(b"\n")
    return folder / "Packages" if listed.stdout else None


@pytest.mark.nightly("all packages of a system; the gate loads the sample")
def test_every_record_of_the_system_is_published_or_rejected(tmp_path: Path) -> None:
    index = system_index(tmp_path)
    if index is None:
        pytest.skip("apt has no index of Debian here")

    document = demo("debian", "deb", "--system", cwd=tmp_path)

    (suite,) = document["suites"]
    require_every_record(suite, awk_counts(index))
    assert document["peak_bytes"] < 1 << 30


def test_without_apt_the_demo_says_what_to_use_instead(tmp_path: Path) -> None:
    finished = run("demo", "debian", "deb", cwd=tmp_path, env={"PATH": str(tmp_path)})

    assert finished.returncode == 5
    assert "--sample" in finished.stderr
    assert not (tmp_path / "deb").exists()


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The sample, and before its first suite what no archive has."""
    folder = tmp_path_factory.mktemp("debian")
    odd, unstable = folder / "lists/odd/main/Packages.gz", folder / "lists/unstable/Packages"
    for path in (odd, unstable):
        path.parent.mkdir(parents=True)
    text = f"{HOSTILE}\n{(SAMPLE / 'testing/Packages').read_text()}"
    odd.write_bytes(gzip.compress(text.encode()))
    (folder / "odd").write_text(text)
    shutil.copyfile(SAMPLE / "unstable/Packages", unstable)
    suites = ("--suite", "odd", "--suite", "unstable", "--indexes", "lists")
    return folder, demo("debian", "deb", *suites, cwd=folder)


def test_every_record_is_published_or_rejected(debian: tuple[Path, dict[str, Any]]) -> None:
    folder, document = debian
    main, branch = document["suites"]

    require_every_record(main, awk_counts(folder / "odd"), unnamed=1)
    require_every_record(branch, awk_counts(SAMPLE / "unstable/Packages"))
    assert (main["branch"], branch["branch"]) == ("main", "unstable")
    assert (main["packages"], main["older_versions"]) == (48, 2)
    assert document["peak_bytes"] > 0


def test_hostile_stanzas_are_loaded_as_far_as_they_are_valid(
    debian: tuple[Path, dict[str, Any]],
) -> None:
    graph = og.open(str(debian[0] / "deb/graph"), read_only=True)
    package, other = graph.get("Package", "a"), graph.get("Package", "b")

    assert package is not None
    assert other is not None
    assert (package["version"], package["unmet"], package["installed_kib"]) == ("2.0-1", 1, None)
    assert package["summary"] == "write to (address) or (address) folded"
    assert (other["unmet"], other["essential"]) == (3, True)
    edges = graph.scan("DependsOn").read_all().to_pylist()
    assert sorted(
        (edge["src"], edge["dst_type"], edge["dst"], edge["group"], edge["position"])
        for edge in edges
        if edge["src"] in {"a", "b", ODD_NAME}
    ) == [
        (ODD_NAME, "Package", "a", 1, 1),
        ("a", "Package", "b", 1, 1),
        ("a", "Package", "b", 4, 1),
        ("a", "VirtualPackage", "v", 2, 1),
        ("a", "VirtualPackage", "virtual-b", 1, 2),
        ("b", "VirtualPackage", "a-virtual", 1, 1),
        ("b", "VirtualPackage", "a-virtual", 2, 1),
    ]
    assert graph.get("Section", "old") is None


def test_no_address_and_no_name_of_a_person_is_stored(
    debian: tuple[Path, dict[str, Any]],
) -> None:
    files = (path for path in (debian[0] / "deb").rglob("*") if path.is_file())
    stored = b"".join(path.read_bytes() for path in files)

    assert not re.search(rb"[\w.]+@[\w.]*example", stored)
    assert b"Maya Bash" not in stored
    assert b"miscellaneous files" in stored
