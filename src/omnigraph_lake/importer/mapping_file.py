"""Mapping files (`.map.toml`): written by an inference, edited by people, read again.

Invariants:
- Reading what was written gives the same mappings.
- A file with a fault is refused as a whole, with every fault: line, key, found and expected.
- A file names its version; one of a later version is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.ids import key_properties
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.load.formats import digests
from omnigraph_lake.load.formats.mapping import (
    Condition,
    EdgeMapping,
    Endpoint,
    NodeMapping,
    Parse,
    SourceMapping,
    TextForm,
    UnknownColumns,
    ValueMapping,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema import catalog as ct

VERSION: Final = 1
SUFFIX: Final = ".map.toml"
_JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)
_FORM: Final = tuple(member.name for member in fields(TextForm))
_FAULTS_SHOWN: Final = 10
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY: Final = re.compile(r"""^\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_.-]+)\s*=""")
_Word = TypeVar("_Word", bound=StrEnum)
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingFile:
    """The mappings of all sources, and the schema that they are for."""

    mappings: tuple[SourceMapping, ...]
    schema: str | None = None


def write_mapping(mappings: Sequence[SourceMapping], *, schema: str | None) -> str:
    """The text of a mapping file."""
    lines = [
        "# Which columns become which nodes, edges and properties.",
        "# Edit it and import again with --map. The keys: `Mapping files` in the reference.",
        f"version = {VERSION}",
    ]
    if schema is not None:
        lines.append(f"schema = {_toml(schema)}")
    for mapping in mappings:
        lines += ["", *_source_lines(mapping)]
    return "\n".join(lines) + "\n"


def _source_lines(mapping: SourceMapping) -> Iterator[str]:
    yield "[[source]]"
    yield f"name = {_toml(mapping.name)}"
    if mapping.also:
        yield f"also = {_toml(list(mapping.also))}"
    for name in _FORM:
        setting = getattr(mapping.form, name)
        if setting is not None:
            yield f"{name} = {_toml(setting)}"
    yield f"unknown_columns = {_toml(mapping.unknown.value)}"
    if mapping.kept_in is not None:
        yield f"kept_in = {_toml(mapping.kept_in)}"
    if mapping.ignored:
        yield f"ignored = {_toml(list(mapping.ignored))}"
    if mapping.digest:
        columns = _toml(list(mapping.digest))
        yield f"digest = {{ version = {digests.VERSION}, columns = {columns} }}"
    for node in mapping.nodes:
        yield from ("", *_node_lines(node))
    for edge in mapping.edges:
        yield from ("", *_edge_lines(edge))


def _node_lines(node: NodeMapping) -> Iterator[str]:
    yield "[[source.node]]"
    yield f"type = {_toml(node.type)}"
    if node.id is not None:
        yield f"id = {_value(node.id)}"
    yield from _rule_lines(node)
    if node.distinct:
        yield "distinct = true"
    if node.requires:
        yield f"requires = {_toml(list(node.requires))}"
    yield "[source.node.properties]"
    yield from _property_lines(node.properties)


def _edge_lines(edge: EdgeMapping) -> Iterator[str]:
    yield "[[source.edge]]"
    yield f"type = {_toml(edge.type)}"
    yield f"from = {_endpoint(edge.source)}"
    yield f"to = {_endpoint(edge.target)}"
    if edge.new_id:
        yield 'id = "new"'
    elif edge.id:
        yield f"id = {_toml(list(edge.id))}"
    yield from _rule_lines(edge)
    if edge.single:
        yield "single = true"
    if edge.optional:
        yield "optional = true"
    if edge.properties:
        yield "[source.edge.properties]"
        yield from _property_lines(edge.properties)


def _rule_lines(rule: NodeMapping | EdgeMapping) -> Iterator[str]:
    if rule.each is not None:
        yield f"each = {_toml(rule.each)}"
    if rule.each_split is not None:
        yield f"each_split = {_toml(rule.each_split)}"
    if rule.where:
        conditions = (
            f"{_key(condition.column)} = {_toml(_one_or_list(condition.equals))}"
            for condition in rule.where
        )
        yield f"where = {{ {', '.join(conditions)} }}"


def _property_lines(properties: Mapping[str, ValueMapping]) -> Iterator[str]:
    for name, value in properties.items():
        yield f"{_key(name)} = {_value(value)}"


def _endpoint(end: Endpoint) -> str:
    members = ", ".join(f"{_key(name)} = {_value(value)}" for name, value in end.key.items())
    missing = ', missing = "create"' if end.create else ""
    return f"{{ type = {_toml(end.type)}, key = {{ {members} }}{missing} }}"


def _value(value: ValueMapping) -> str:
    if value.is_plain:
        return _toml(value.column)
    parts = [f"column = {_toml(value.column)}"]
    for name in ("split", "parse", "format", "thousands", "decimal", "unit", "default"):
        setting = getattr(value, name)
        if setting is not None:
            parts.append(f"{name} = {_toml(str(setting))}")
    for name in ("true", "false", "null"):
        texts = getattr(value, name)
        if texts:
            parts.append(f"{name} = {_toml(_one_or_list(texts))}")
    return f"{{ {', '.join(parts)} }}"


def _one_or_list(texts: Sequence[str]) -> object:
    return texts[0] if len(texts) == 1 else list(texts)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _toml(name)


def _toml(value: object) -> str:
    # Strings and lists of strings are spelt as in JSON, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_mapping(text: str, *, name: str) -> MappingFile:
    """The mappings of a file.

    Raises:
        InvalidInputError: the file is not TOML, of a later version, or has faults; all are listed.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(
            f"{name} is not TOML: {error}", next_step="Fix the line, then import again."
        ) from error
    version = content.get("version")
    if version != VERSION:
        raise InvalidInputError(
            f"{name}: version: found {shown(version)}, expected {VERSION}",
            next_step="Upgrade Omnigraph, or write the mapping again with `omnigraph import "
            "--dry-run`.",
        )
    reader = _Reader(text, name)
    mapping_file = reader.file(content)
    reader.require_no_faults()
    return mapping_file


class _Reader:
    """Reads tables of TOML, and collects what is wrong with them."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._lines = dict(_locate(text))
        self._faults: list[str] = []

    def require_no_faults(self) -> None:
        if not self._faults:
            return
        shown_faults = "\n".join(self._faults[:_FAULTS_SHOWN])
        more = len(self._faults) - _FAULTS_SHOWN
        rest = f"\n... and {more} more" if more > 0 else ""
        raise InvalidInputError(
            f"the mapping {self._name} cannot be used:\n{shown_faults}{rest}",
            next_step="Fix these lines, then import again.",
        )

    def fault(self, path: Path, message: str) -> None:
        label = ".".join(str(part) for part in path if isinstance(part, str))
        self._faults.append(f"{self._name}:{self._line(path)}: {label}: {message}")

    def _line(self, path: Path) -> int:
        """The line of the innermost key that has one."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def file(self, content: Mapping[str, Any]) -> MappingFile:
        self._require_known(content, (), ("version", "schema", "source"))
        sources = self._tables(content, (), "source")
        mappings = tuple(self._source(table, path) for table, path in sources)
        if not mappings:
            self.fault((), "found no [[source]], expected at least one")
        return MappingFile(mappings=mappings, schema=self._text(content, (), "schema"))

    def _source(self, table: Mapping[str, Any], path: Path) -> SourceMapping:
        known = ("name", "also", "unknown_columns", "kept_in", "ignored", "digest", "node", "edge")
        self._require_known(table, path, (*known, *_FORM))
        nodes = tuple(self._node(*entry) for entry in self._tables(table, path, "node"))
        edges = tuple(self._edge(*entry) for entry in self._tables(table, path, "edge"))
        if not nodes and not edges:
            self.fault(path, "found no [[source.node]] and no [[source.edge]], expected one")
        unknown = self._word(table, path, "unknown_columns", UnknownColumns)
        kept_in = self._text(table, path, "kept_in")
        if unknown is UnknownColumns.KEEP and (kept_in is None or not nodes):
            self.fault(path, 'unknown_columns = "keep" needs kept_in and a [[source.node]]')
        mapping = SourceMapping(
            name=self._require_text(table, path, "name"),
            also=self._texts(table, path, "also"),
            form=self._form(table, path),
            nodes=nodes,
            edges=edges,
            ignored=self._texts(table, path, "ignored"),
            unknown=unknown or UnknownColumns.ERROR,
            kept_in=kept_in if unknown is UnknownColumns.KEEP else None,
            digest=self._digest(table, path),
        )
        if digests.uses_digests(mapping) and "digest" not in table:
            self.fault(
                path,
                f'found the id "*" without `digest = {{ version = {digests.VERSION}, columns = '
                "[...] }`: digests are made in another way than those of this mapping, so its "
                "records would get other ids. Infer the mapping again with `omnigraph import NEW "
                "FILE... --dry-run`",
            )
        return mapping

    def _digest(self, table: Mapping[str, Any], path: Path) -> tuple[str, ...]:
        """The columns that digests are made of, in order."""
        if "digest" not in table:
            return ()
        inner, digest = (*path, "digest"), table["digest"]
        if not isinstance(digest, Mapping):
            self.fault(inner, f"found {shown(digest)}, expected {{ version = ..., columns = ... }}")
            return ()
        self._require_known(digest, inner, ("version", "columns"))
        if digest.get("version") != digests.VERSION:
            version = shown(digest.get("version"))
            self.fault(inner, f"version: found {version}, expected {digests.VERSION}")
        columns = tuple(sorted(set(self._texts(digest, inner, "columns"))))
        if not columns:
            self.fault(inner, "columns: found none, expected the columns that ids are made of")
        return columns

    def _form(self, table: Mapping[str, Any], path: Path) -> TextForm:
        header = table.get("header")
        if isinstance(header, list):
            header = self._texts(table, path, "header")
        elif header is not None:
            header = self._flag(table, path, "header")
        texts = {name: self._text(table, path, name) for name in _FORM if name != "header"}
        return TextForm(header=header, **texts)

    def _node(self, table: Mapping[str, Any], path: Path) -> NodeMapping:
        known = ("type", "id", "each", "each_split", "where", "distinct", "requires", "properties")
        self._require_known(table, path, known)
        return NodeMapping(
            type=self._require_text(table, path, "type"),
            id=self._value(table["id"], (*path, "id")) if "id" in table else None,
            properties=self._values(table, path, "properties"),
            each=self._text(table, path, "each"),
            each_split=self._text(table, path, "each_split"),
            where=self._where(table, path),
            distinct=self._flag(table, path, "distinct"),
            requires=self._texts(table, path, "requires"),
        )

    def _edge(self, table: Mapping[str, Any], path: Path) -> EdgeMapping:
        known = ("type", "from", "to", "id", "each", "each_split", "where", "single", "optional")
        self._require_known(table, path, (*known, "properties"))
        is_new = table.get("id") == "new"
        return EdgeMapping(
            type=self._require_text(table, path, "type"),
            source=self._end(table, path, "from"),
            target=self._end(table, path, "to"),
            properties=self._values(table, path, "properties"),
            id=() if is_new else self._texts(table, path, "id"),
            new_id=is_new,
            single=self._flag(table, path, "single"),
            optional=self._flag(table, path, "optional"),
            each=self._text(table, path, "each"),
            each_split=self._text(table, path, "each_split"),
            where=self._where(table, path),
        )

    def _end(self, table: Mapping[str, Any], path: Path, name: str) -> Endpoint:
        inner = (*path, name)
        end = table.get(name)
        if not isinstance(end, Mapping):
            self.fault(inner, f"found {shown(end)}, expected {{ type = ..., key = {{ ... }} }}")
            return Endpoint(type="", key={})
        self._require_known(end, inner, ("type", "key", "missing"))
        missing = end.get("missing", "reject")
        if missing not in {"reject", "create"}:
            self.fault((*inner, "missing"), f"found {shown(missing)}, expected reject or create")
        return Endpoint(
            type=self._require_text(end, inner, "type"),
            key=self._values(end, inner, "key"),
            create=missing == "create",
        )

    def _where(self, table: Mapping[str, Any], path: Path) -> tuple[Condition, ...]:
        inner = (*path, "where")
        where = table.get("where", {})
        if not isinstance(where, Mapping):
            self.fault(inner, f"found {shown(where)}, expected {{ column = text }}")
            return ()
        return tuple(
            Condition(column=column, equals=self._texts(where, inner, column)) for column in where
        )

    def _values(self, table: Mapping[str, Any], path: Path, name: str) -> dict[str, ValueMapping]:
        inner = (*path, name)
        values = table.get(name, {})
        if not isinstance(values, Mapping):
            self.fault(inner, f"found {shown(values)}, expected a table of names and columns")
            return {}
        return {key: self._value(value, (*inner, key)) for key, value in values.items()}

    def _value(self, value: object, path: Path) -> ValueMapping:
        if isinstance(value, str):
            return ValueMapping(column=value)
        if not isinstance(value, Mapping):
            self.fault(path, f"found {shown(value)}, expected a column or {{ column = ... }}")
            return ValueMapping(column="")
        self._require_known(value, path, [member.name for member in fields(ValueMapping)])
        parse = self._word(value, path, "parse", Parse)
        default = value.get("default")
        if isinstance(default, bool):
            default = "true" if default else "false"
        for name, needed in (
            ("format", (Parse.DATE, Parse.DATETIME)),
            ("true", (Parse.BOOLEAN,)),
            ("unit", (Parse.NUMBER,)),
        ):
            if name in value and parse not in needed:
                words = " or ".join(f'"{word.value}"' for word in needed)
                self.fault((*path, name), f"found without parse, expected parse = {words}")
        return ValueMapping(
            column=self._require_text(value, path, "column"),
            split=self._text(value, path, "split"),
            parse=parse,
            format=self._text(value, path, "format"),
            thousands=self._text(value, path, "thousands"),
            decimal=self._text(value, path, "decimal"),
            unit=self._text(value, path, "unit"),
            true=self._texts(value, path, "true"),
            false=self._texts(value, path, "false"),
            null=self._texts(value, path, "null"),
            default=None if default is None else str(default),
        )

    def _require_known(self, table: Mapping[str, Any], path: Path, known: Sequence[str]) -> None:
        for name in table:
            if name not in known:
                hint = did_you_mean(name, known)
                expected = hint or f"expected one of {', '.join(known)}"
                self.fault((*path, name), f"found an unknown key; {expected}")

    def _tables(
        self, table: Mapping[str, Any], path: Path, name: str
    ) -> list[tuple[Mapping[str, Any], Path]]:
        entries = table.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(e, Mapping) for e in entries):
            self.fault((*path, name), f"found {shown(entries)}, expected [[...{name}]] tables")
            return []
        return [(entry, (*path, name, number)) for number, entry in enumerate(entries)]

    def _require_text(self, table: Mapping[str, Any], path: Path, name: str) -> str:
        text = self._text(table, path, name)
        if text is None and name not in table:
            self.fault(path, f"found no {name}, expected a text")
        return text or ""

    def _text(self, table: Mapping[str, Any], path: Path, name: str) -> str | None:
        value = table.get(name)
        if value is None or (isinstance(value, str) and (value or name == "column")):
            return value
        self.fault((*path, name), f"found {shown(value)}, expected a text")
        return None

    def _texts(self, table: Mapping[str, Any], path: Path, name: str) -> tuple[str, ...]:
        value = table.get(name, [])
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
        self.fault((*path, name), f"found {shown(value)}, expected a text or a list of texts")
        return ()

    def _flag(self, table: Mapping[str, Any], path: Path, name: str) -> bool:
        value = table.get(name, False)
        if not isinstance(value, bool):
            self.fault((*path, name), f"found {shown(value)}, expected true or false")
        return value is True

    def _word(
        self, table: Mapping[str, Any], path: Path, name: str, words: type[_Word]
    ) -> _Word | None:
        text = self._text(table, path, name)
        if text is None:
            return None
        known = [word.value for word in words]
        if text not in known:
            hint = did_you_mean(text, known)
            expected = f"expected {' or '.join(known)}" + (f"; {hint}" if hint else "")
            self.fault((*path, name), f"found {shown(text)}, {expected}")
            return None
        return words(text)

    def check(self, mappings: Iterable[SourceMapping], catalog: ct.Catalog) -> None:
        """Find rules that name types or properties that the schema does not have."""
        for number, mapping in enumerate(mappings):
            path: Path = ("source", number)
            for at, node in enumerate(mapping.nodes):
                self._check_node(node, (*path, "node", at), catalog, mapping.kept_in)
            for at, edge in enumerate(mapping.edges):
                self._check_edge(edge, (*path, "edge", at), catalog)

    def _check_node(
        self, rule: NodeMapping, path: Path, catalog: ct.Catalog, kept_in: str | None
    ) -> None:
        node = catalog.nodes.get(rule.type)
        if node is None:
            self._no_type(path, "node", rule.type, catalog.nodes)
            return
        self._check_properties(rule.properties, path, node)
        if kept_in is not None and path[-1] == 0 and kept_in not in node.properties:
            self.fault(path[:2], f"kept_in: {node.name} has no property {shown(kept_in)}")

    def _check_edge(self, rule: EdgeMapping, path: Path, catalog: ct.Catalog) -> None:
        edge = catalog.edges.get(rule.type)
        if edge is None:
            self._no_type(path, "edge", rule.type, catalog.edges)
            return
        self._check_properties(rule.properties, path, edge)
        for name, end, declared in (
            ("from", rule.source, edge.source),
            ("to", rule.target, edge.target),
        ):
            inner = (*path, name)
            if end.type not in declared.names:
                self.fault((*inner, "type"), f"found {shown(end.type)}, expected {declared}")
                continue
            node = catalog.nodes[end.type]
            key = [member.name for member in key_properties(node)] if node.key else [ID_COLUMN]
            if sorted(end.key) != sorted(key):
                given = ", ".join(end.key) or "nothing"
                self.fault((*inner, "key"), f"found {given}, expected {', '.join(key)}")
            required = [
                prop.name
                for prop in node.properties.values()
                if not prop.nullable and prop.default is None and prop.name not in key
            ]
            if end.create and required:
                self.fault(
                    (*inner, "missing"),
                    f"{node.name} cannot be created: {', '.join(required)} need values",
                )

    def _check_properties(
        self,
        properties: Mapping[str, ValueMapping],
        path: Path,
        declared: ct.NodeType | ct.EdgeType,
    ) -> None:
        for name in properties:
            if name not in declared.properties:
                hint = did_you_mean(name, declared.properties)
                self.fault(
                    (*path, "properties", name),
                    f"{declared.name} has no such property" + (f"; {hint}" if hint else ""),
                )
            elif declared.properties[name].type == _JSON:
                self.fault(
                    (*path, "properties", name),
                    "a mapping does not say whether a text is a JSON text or a JSON string, so it "
                    "writes no Json; map it to a String, or load records",
                )

    def _no_type(self, path: Path, kind: str, name: str, known: Iterable[str]) -> None:
        hint = did_you_mean(name, known)
        self.fault(
            (*path, "type"),
            f"found {shown(name)}, expected a type of a {kind} in the schema"
            + (f"; {hint}" if hint else ""),
        )


def check_mapping(mapping_file: MappingFile, catalog: ct.Catalog, *, text: str, name: str) -> None:
    """Compare a mapping with a schema.

    Raises:
        InvalidInputError: a rule names a type or a property that the schema does not have.
    """
    reader = _Reader(text, name)
    reader.check(mapping_file.mappings, catalog)
    reader.require_no_faults()


def _locate(text: str) -> Iterator[tuple[Path, int]]:
    """The lines of headers and keys. TOML parsers do not tell them."""
    counts: dict[Path, int] = {}
    here: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header is not None:
            is_array = header[1] == "[["
            here = ()
            parts = [part.strip().strip("\"'") for part in header[2].split(".")]
            for depth, part in enumerate(parts, start=1):
                here = (*here, part)
                if depth == len(parts) and is_array:
                    counts[here] = counts.get(here, -1) + 1
                if here in counts:
                    here = (*here, counts[here])
            yield here, number
        elif (key := _KEY.match(line)) is not None:
            yield (*here, key[1].strip("\"'")), number
