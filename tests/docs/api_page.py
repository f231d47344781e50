"""Writes the Python API page from signatures, fields and docstrings.

    python -m tests.docs.api_page docs/reference/api.md

Everything that `omnigraph` exports is on the page. Docstrings are in Google's style: a summary,
then paragraphs, then sections such as `Args:`, which become lists.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import omnigraph_lake
import omnigraph_lake.spark
from omnigraph_lake.api.reads import Reads
from tests.surface import NAMESPACES

HEADER: Final = """# Python API

Every function, method, result and option, generated from the docstrings by `just api`; a test
compares the page with the code. [Python](python.md) is the guide to it, with examples. Everything
can be imported from `omnigraph_lake`, which is `og` here, `SparkGraph` from `omnigraph_lake.spark`.
"""
WIDTH: Final = 100
SECTIONS: Final = ("Args", "Returns", "Raises", "Yields", "Attributes")


def main(target: str) -> None:
    Path(target).write_text(page())


def page() -> str:
    parts = [
        HEADER,
        *_functions(),
        *_graphs(),
        *_namespaces(),
        *_results(),
        *_aliases(),
        *_errors(),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _functions() -> Iterator[str]:
    yield "## Functions\n"
    for name in dir(omnigraph_lake):
        function = getattr(omnigraph_lake, name)
        if inspect.isfunction(function):
            yield from _callable(f"og.{name}", name, function)


def _graphs() -> Iterator[str]:
    for kind in (omnigraph_lake.Graph, omnigraph_lake.GraphView, omnigraph_lake.spark.SparkGraph):
        yield f"## {kind.__name__}\n"
        yield from _prose(kind)
        yield from _members(kind, kind.__name__)


def _namespaces() -> Iterator[str]:
    for name, kind in NAMESPACES.items():
        yield f"## graph.{name}\n"
        yield f"The class is `og.{kind.__name__}`.\n"
        yield from _prose(kind)
        yield from _members(kind, f"graph.{name}")


def _results() -> Iterator[str]:
    yield "## Results and options\n"
    shown = {*NAMESPACES.values(), omnigraph_lake.Graph, omnigraph_lake.GraphView}
    for name in dir(omnigraph_lake):
        kind = getattr(omnigraph_lake, name)
        if not inspect.isclass(kind) or kind in shown or issubclass(kind, Exception):
            continue
        if getattr(kind, "__module__", "").startswith("omnigraph_lake"):
            yield f"### {name}\n"
            yield from _prose(kind)
            yield from _fields(kind)
            yield from _methods_of_result(kind)


def _aliases() -> Iterator[str]:
    aliases = [
        name
        for name in dir(omnigraph_lake)
        if not inspect.isclass(getattr(omnigraph_lake, name))
        and not inspect.isfunction(getattr(omnigraph_lake, name))
    ]
    yield "## Types of arguments\n"
    yield "| Name | Values |\n|---|---|"
    for name in aliases:
        yield f"| `{name}` | `{_alias_text(getattr(omnigraph_lake, name))}` |"
    yield ""


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield "Effects and exit codes are listed under [errors](errors.md).\n"
    yield "| Class | Meaning |\n|---|---|"
    for name in dir(omnigraph_lake):
        kind = getattr(omnigraph_lake, name)
        if inspect.isclass(kind) and issubclass(kind, Exception):
            yield f"| `{name}` | {_cell(_summary(kind))} |"


def _members(kind: type, title: str) -> Iterator[str]:
    """Properties as a table, then every method with its signature."""
    members = [
        (name, inspect.getattr_static(kind, name)) for name in dir(kind) if not name.startswith("_")
    ]
    properties = [(name, part) for name, part in members if not inspect.isfunction(part)]
    if properties:
        yield "| Property | Meaning |\n|---|---|"
        for name, part in properties:
            yield f"| `{name}` | {_cell(_summary(getattr(part, 'func', part)))} |"
        yield ""
    methods = [(name, part) for name, part in members if inspect.isfunction(part)]
    shared = [name for name, part in methods if _is_of_graph(kind, name, part)]
    if shared:
        yield f"As of a [graph](#graph): {', '.join(f'`{name}`' for name in shared)}.\n"
    for name, part in methods:
        if name not in shared:
            yield from _callable(f"{title}.{name}", name, part)


def _is_of_graph(kind: type, name: str, part: object) -> bool:
    """Whether it is a method that a view shares with a graph, whose section describes it."""
    return kind is not omnigraph_lake.Graph and vars(Reads).get(name) is part


def _methods_of_result(kind: type) -> Iterator[str]:
    methods = [
        (name, part)
        for name, part in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(part) or isinstance(part, property))
    ]
    if not methods:
        return
    yield "| Member | Meaning |\n|---|---|"
    for name, part in methods:
        shown = f"{name}()" if inspect.isfunction(part) else name
        yield f"| `{shown}` | {_cell(_summary(part))} |"
    yield ""


def _fields(kind: type) -> Iterator[str]:
    if issubclass(kind, enum.Enum):
        yield f"Values: {', '.join(f'`{member.value}`' for member in kind)}.\n"
        return
    if not dataclasses.is_dataclass(kind):
        return
    visible = [field for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    if not visible:
        return
    meanings = _described(kind)
    yield "| Field | Type | Meaning |\n|---|---|---|" if meanings else "| Field | Type |\n|---|---|"
    for field in visible:
        meaning = f" {_cell(meanings.get(field.name, ''))} |" if meanings else ""
        yield f"| `{field.name}` | `{_bar(_annotation(field.type))}` |{meaning}"
    yield ""


def _described(kind: type) -> dict[str, str]:
    """What the docstring of a dataclass, and the texts below its fields, say of the fields."""
    sections = dict(_sections(inspect.getdoc(kind) or ""))
    meanings = dict(_entries(sections.get("Args", "") + sections.get("Attributes", "")))
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    for field, following in pairwise(body.body):
        match field, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                meanings[name] = _one_line(text)
            case _:
                pass
    return meanings


def _callable(title: str, name: str, function: Any) -> Iterator[str]:
    yield f"### {title}\n"
    yield f"```python\n{_signature(name, function)}\n```\n"
    yield from _prose(function)


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(inspect.unwrap(function))
    texts: list[str] = []
    star = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = True
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            texts.append("*")
            star = True
        texts.append(_parameter(parameter))
    returned = signature.return_annotation
    suffix = "" if returned is inspect.Signature.empty else f" -> {_annotation(returned)}"
    line = f"def {name}({', '.join(texts)}){suffix}: ..."
    if len(line) <= WIDTH:
        return line
    body = "".join(f"    {text},\n" for text in texts)
    return f"def {name}(\n{body}){suffix}: ..."


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    text = f"{stars.get(parameter.kind.name, '')}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        spaced = " = " if parameter.annotation is not parameter.empty else "="
        text += f"{spaced}{_default(parameter.default)}"
    return text


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace("'", '"')


def _default(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return repr(value)


def _prose(thing: object) -> Iterator[str]:
    """The docstring as Markdown: paragraphs, and sections as lists."""
    for name, text in _sections(inspect.getdoc(thing) or ""):
        if not name:
            yield _paragraphs(text)
        elif name == "Args" and dataclasses.is_dataclass(thing):
            continue  # in the table of its fields
        elif name in {"Args", "Raises"}:
            yield f"{'Arguments' if name == 'Args' else name}:\n"
            for entry, meaning in _entries(text):
                yield f"- `{entry}`: {meaning}"
            yield ""
        elif name != "Attributes":
            yield f"{name}: {_one_line(text)}\n"


def _sections(text: str) -> list[tuple[str, str]]:
    """The text before the first section under an empty name, then each section."""
    pattern = rf"^({'|'.join(SECTIONS)}):\n"
    pieces = re.split(pattern, text, flags=re.MULTILINE)
    return [("", pieces[0]), *zip(pieces[1::2], pieces[2::2], strict=True)]


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """`name: meaning` entries; deeper lines continue the entry before them."""
    lines = inspect.cleandoc(text).splitlines()
    entries: list[tuple[str, str]] = []
    for line in lines:
        match = re.match(r"(\*{0,2}[\w.]+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?: (.*)", line)
        if match and not line.startswith(" "):
            entries.append((match[1], match[2]))
        elif entries and line.strip():
            name, meaning = entries.pop()
            entries.append((name, f"{meaning} {line.strip()}"))
    yield from entries


def _paragraphs(text: str) -> str:
    """Paragraphs; indented ones are examples and become code."""
    shown: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith("    "):
            shown.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        else:
            shown.append(paragraph)
    return "\n\n".join(shown) + "\n"


def _summary(thing: object) -> str:
    return _one_line((inspect.getdoc(thing) or "").split("\n\n", 1)[0])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _bar(_one_line(text))


def _bar(text: str) -> str:
    return text.replace("|", "\\|")


def _alias_text(alias: object) -> str:
    text = str(getattr(alias, "__value__", alias))
    text = re.sub(r"\b(?:typing|collections\.abc|datetime|os|omnigraph(?:\.\w+)*)\.", "", text)
    text = re.sub(r"ForwardRef\('(\w+)'\)", r"\1", text)
    text = re.sub(r"Union\[([^]]*)\]", lambda match: match[1].replace(", ", " | "), text)
    return _bar(text)


if __name__ == "__main__":
    main(sys.argv[1])
