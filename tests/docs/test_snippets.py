"""Every snippet of the documentation runs, in order, as a new user would run it.

`omnigraph` commands and Python programs are forks; what needs a shell, or Spark, is a new process.
These forms are also compared with what they print, where `...` stands for any text, and ids,
times, sizes and white space may differ:

- a Python block that is followed by a block with the title "Output";
- a `console` block: commands after `$`, each with what it prints, standard output first. The exit
  code of a command that fails is shown by `$ echo $?` after it;
- Python blocks that go on with the names of the first one are one program with it.
"""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forking.programs import Finished, environment_of, run_code, run_command

HOME = Path(__file__).parent.parent.parent
README = HOME / "README.md"
PAGES = [
    README,
    HOME / "docs/index.md",
    *sorted(HOME.glob("docs/concepts/*.md")),
    *sorted(HOME.glob("docs/cookbook/*.md")),
    *sorted(HOME.glob("docs/operations/*.md")),
    HOME / "docs/explanation/checksums.md",
    HOME / "docs/explanation/durability.md",
    HOME / "docs/explanation/holds.md",
    HOME / "docs/reference/layout.md",
    HOME / "docs/reference/python.md",
    HOME / "docs/reference/load.md",
    HOME / "docs/reference/spark.md",
    HOME / "docs/reference/branches.md",
    HOME / "docs/reference/maintenance.md",
    *sorted(set(HOME.glob("docs/tutorials/*.md")) - {HOME / "docs/tutorials/real-data.md"}),
    HOME / "docs/how-to/import.md",
    HOME / "docs/how-to/from-neo4j.md",
    HOME / "docs/how-to/search.md",
    HOME / "docs/how-to/stream.md",
    HOME / "docs/how-to/view.md",
    HOME / "docs/how-to/shell.md",
]
NOT_RUN_HERE = {
    "docs/dev/releasing.md": "steps of a release",
    "docs/dev/testing.md": "runs tests itself",
    "docs/how-to/backup.md": "other disks and stores; docs/operations/index.md runs the commands",
    "docs/how-to/editor.md": "editors; tests/editor/test_server.py",
    "docs/how-to/from-cypher.md": "tests/docs/test_translations.py",
    "docs/how-to/from-omnigraph-0-7.md": "tests/legacy/test_legacy_page.py",
    "docs/how-to/from-sql.md": "tests/docs/test_translations.py",
    "docs/how-to/object-store.md": "a bucket and its keys; tests/s3",
    "docs/how-to/spark-platforms.md": "clusters; tests/cluster and the nightly",
    "docs/reference/api.md": "signatures",
    "docs/reference/cost.md": "a bucket; tests/s3/test_request_costs.py",
    "docs/reference/query.md": "tests/query/test_reference_page.py",
    "docs/reference/schema-evolution.md": "tests/evolution/plan/test_evolution_page.py",
    "docs/reference/schema.md": "tests/schema/test_reference_page.py",
    "docs/reference/screens.md": "tests/docs/test_screens.py",
    "docs/tutorials/real-data.md": "downloads; tests/public_data/test_real_data_page.py",
}
"""Pages with snippets that this module does not run: what they need, or what runs them."""
FENCE = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"\n]*)")?\n(?P<code>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
FILE_NAME = re.compile(r"`(?P<name>[\w./-]+\.(?:pg|gq))`")
IMPORT = re.compile(r"^(?:import|from) ", re.MULTILINE)
OF_THE_SHELL = "();<>|&"
BETWEEN_RECIPES = "\x1e"
VARYING = re.compile(
    r"\b01[0-9A-HJKMNP-TV-Z]{6,24}\b"  # ids
    r"|\b[0-9a-f]{32}\b|\b[01]{24}[0-9a-f]{26}\b"  # digests, names of data files
    r"|\b\d{4}-\d\d-\d\d[T ][\d:.+]+(?: \([^)]*\) *)?"  # times
    r"|\b\d+(?:\.\d+)? [kM]?B\b"  # sizes
    r"|\bin \d+\.\d s\b"  # durations
    r"|─+ *\n"  # as wide as the table, which depends on how long ago something was
)
FOLDER_OF_PAGES = "/home/ann"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A block of a page, the text before it, and what it prints if the page shows it."""

    language: str
    code: str
    before: str
    output: str | None


def snippets_of(page: Path) -> Iterator[Snippet]:
    text = page.read_text()
    blocks = list(FENCE.finditer(text))
    for number, block in enumerate(blocks):
        if block["title"] == "Output":
            continue
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        shows_output = following is not None and following["title"] == "Output"
        yield Snippet(
            language=block["language"],
            code=block["code"],
            before=text[: block.start()],
            output=following["code"] if following is not None and shows_output else None,
        )


def needs_spark(page: Path) -> bool:
    return "with-spark" in page.name or page.name == "stream.md"


def is_one_program(page: Path) -> bool:
    """Whether Python blocks go on with the names of the first one instead of importing anew."""
    programs = [snippet.code for snippet in snippets_of(page) if snippet.language == "python"]
    return not all(IMPORT.search(program) for program in programs)


def has_snippets(page: Path) -> bool:
    return any(
        snippet.language in {"pg", "gq", "bash", "console", "python"}
        for snippet in snippets_of(page)
    )


ON_SPARK = (
    pytest.mark.spark,
    pytest.mark.nightly(
        "a JVM for each snippet on Spark; in the gate, tests/spark loads, reads and "
        "merges in one session"
    ),
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=f"{page.parent.name}/{page.name}",
            marks=ON_SPARK if needs_spark(page) else pytest.mark.unit,
        )
        for page in PAGES
        if has_snippets(page)
    ],
)
def test_the_snippets_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    if is_one_program(page):
        run_recipes(list(snippets_of(page)), tmp_path)
        return
    for snippet in snippets_of(page):
        run_snippet(snippet, tmp_path, new_process=needs_spark(page))


@pytest.mark.unit
def test_every_page_with_snippets_is_run_or_says_why_not() -> None:
    pages = {page for page in HOME.glob("docs/**/*.md") if has_snippets(page)}

    assert pages - set(PAGES) == {HOME / page for page in NOT_RUN_HERE}


@pytest.mark.unit
def test_every_page_of_the_cookbook_and_the_handbook_shows_what_it_prints() -> None:
    pages = [*HOME.glob("docs/cookbook/*.md"), *HOME.glob("docs/operations/*.md")]
    shown = [
        page
        for page in pages
        if any(snippet.output or snippet.language == "console" for snippet in snippets_of(page))
    ]

    assert len(shown) >= 5


@pytest.mark.unit
def test_the_first_program_of_the_readme_runs_in_a_new_process(tmp_path: Path) -> None:
    """Only a Python that has imported nothing shows that the imports of a snippet are enough."""
    blocks = list(FENCE.finditer(README.read_text()))
    schema, program = (
        next(block["code"] for block in blocks if block["language"] == language)
        for language in ("pg", "python")
    )
    (tmp_path / "people.pg").write_text(schema)
    run_command("init", "./g", "--schema", "people.pg", cwd=tmp_path)

    finished = run_code(program, cwd=tmp_path, new_process=True)

    assert finished.returncode == 0, finished.stderr


def run_recipes(snippets: list[Snippet], folder: Path) -> None:
    """Run the Python blocks of a page as one program, and compare what each of them prints."""
    programs = [snippet for snippet in snippets if snippet.language == "python"]
    assert {snippet.language for snippet in snippets} <= {"python", "text"}

    finished = run_code(
        f"print({BETWEEN_RECIPES!r})\n".join(snippet.code for snippet in programs), cwd=folder
    )

    printed = finished.stdout.split(f"{BETWEEN_RECIPES}\n")
    for snippet, text in zip(programs, printed, strict=False):
        if snippet.output is not None:
            require_output(snippet.output, text, snippet.code, folder)
    assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"


def run_snippet(snippet: Snippet, folder: Path, *, new_process: bool) -> None:
    """Run a block of a page; the text before it names the file of a schema or of queries."""
    match snippet.language:
        case "pg" | "gq":
            name = FILE_NAME.findall(snippet.before)[-1]
            (folder / name).write_text(snippet.code)
        case "bash":
            for line in snippet.code.strip().splitlines():
                finished = run_line(line, folder, new_process=new_process)
                assert finished.returncode == 0, f"{line}\n{finished.stdout}\n{finished.stderr}"
        case "console":
            run_transcript(snippet.code, folder)
        case "python":
            finished = run_code(snippet.code, cwd=folder, new_process=new_process)
            assert finished.returncode == 0, f"{snippet.code}\n{finished.stdout}\n{finished.stderr}"
            if snippet.output is not None:
                require_output(snippet.output, finished.stdout, snippet.code, folder)
        case _:
            pass


def run_transcript(code: str, folder: Path) -> None:
    """Run each command of a transcript, and compare what is printed and how it ends."""
    exit_code = 0
    for step in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        line, _, shown = step.partition("\n")
        if line == "echo $?":
            require_output(shown, f"{exit_code}\n", step, folder)
            exit_code = 0
            continue
        assert exit_code == 0, f"show the exit code {exit_code} of the command before: {line}"
        finished = run_line(line, folder, new_process=False)
        require_output(shown, finished.stdout + finished.stderr, line, folder)
        exit_code = finished.returncode
    assert exit_code == 0, f"show the exit code {exit_code} of the last command of\n{code}"


def require_output(shown: str, printed: str, code: str, folder: Path) -> None:
    """Ids, times and sizes may differ, and the page has its graphs in a folder of its own."""
    same = doctest.OutputChecker().check_output(
        VARYING.sub("", shown),
        VARYING.sub("", printed.replace(str(folder), FOLDER_OF_PAGES)),
        doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    assert same, f"{code}\nprints\n{printed}\nbut the page shows\n{shown}"


def run_line(line: str, folder: Path, *, new_process: bool) -> Finished:
    words = shell_words(line)
    if words[0] == "pip":
        return Finished(returncode=0, content=b"", stderr="")
    if words[0] != "omnigraph" or any(word[0] in OF_THE_SHELL for word in words if word):
        return run_in_shell(line, folder)
    return run_command(*words[1:], cwd=folder, new_process=new_process)


def shell_words(line: str) -> list[str]:
    """Words as a shell splits them; redirections and pipes are words of their own."""
    words = shlex.shlex(line, posix=True, punctuation_chars=OF_THE_SHELL)
    words.whitespace_split = True
    return list(words)


def run_in_shell(line: str, folder: Path) -> Finished:
    finished = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment_of({}),
    )
    return Finished(
        returncode=finished.returncode, content=finished.stdout.encode(), stderr=finished.stderr
    )


@pytest.mark.unit
def test_the_diagnostic_of_the_home_page_is_what_lint_prints(tmp_path: Path) -> None:
    (shown,) = [
        block["code"]
        for block in FENCE.finditer((HOME / "docs/index.md").read_text())
        if block["language"] == "text" and block["title"] is None
    ]
    (tmp_path / "people.pg").write_text("node Person {\n    email: Strng @key\n}\n")

    assert run_command("lint", "people.pg", cwd=tmp_path).stdout == shown
