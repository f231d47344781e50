"""Edit the mapping and the schema of a graph that exists, as the choices of an import say.

Invariants:
- Nothing is chosen again: rules, types and names that no choice names stay as they are.
- The lines that a person wrote stay, with their comments, where an edit does not replace them. The
  new text of a mapping is read again, and means what was planned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import partial
from typing import Final, TypeAlias

from omnigraph_lake.arguments import one_of
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.ids import key_properties
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.column_profile import ColumnProfile
from omnigraph_lake.importer.draft import choose_given_type
from omnigraph_lake.importer.mapping_file import MappingFile, read_mapping, write_mapping
from omnigraph_lake.importer.profile import SourceProfile
from omnigraph_lake.importer.roles import InferenceOptions
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.load.formats.mapping import (
    EdgeMapping,
    Endpoint,
    NodeMapping,
    Rule,
    SourceMapping,
    ValueMapping,
)
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.show import show_type

_COMMENT: Final = re.compile(r"""\s+#[^"']*$""")
_Change: TypeAlias = Callable[[str, ValueMapping], ValueMapping]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaEdit:
    """A declaration that is added to a schema, or another type of a property of `owner`."""

    added: str = ""
    owner: str = ""
    name: str = ""
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        edit = f"{self.owner}.{self.name}: {self.before} -> {self.after}"
        return f"+{self.added}" if self.added else f"~{edit}"

    def require_in(self, catalog: ct.Catalog) -> None:
        """Refuse an edit that the text of the schema had no place for.

        Raises:
            InvalidInputError: the property is declared elsewhere, as in an interface.
        """
        owner = catalog.nodes.get(self.owner) or catalog.edges.get(self.owner)
        if owner is not None and _spell(owner.properties[self.name]) != self.after:
            raise InvalidInputError(
                f"{self} cannot be written into the schema: {self.owner} does not declare it",
                next_step="Change it where it is declared: `omnigraph schema apply`.",
            )

    def apply(self, text: str) -> str:
        """The text with the edit; as it is where it has the edit, or no place for it."""
        if self.added:
            return text if self.added in text else f"{text.rstrip()}\n\n{self.added}\n"
        head = rf"(?m)^(\s*(?:node|edge)\s+{self.owner}\b[^}}]*?[\s{{]{self.name}\s*:\s*)"
        before = r"\s*".join(map(re.escape, self.before.split()))
        return re.sub(rf"{head}{before}(?![\w?])", rf"\g<1>{self.after}", text, count=1)


@dataclass(slots=True, kw_only=True)
class MappingEditor:
    """Edits the mappings of sources, and collects the edits that the schema needs."""

    catalog: ct.Catalog
    options: InferenceOptions
    schema: dict[SchemaEdit, None] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """The choices that name a column of a rule."""
    added: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The ends of the edge types that are new."""

    def edit(self, mapping: SourceMapping, profile: SourceProfile) -> SourceMapping:
        """Make the choices part of the mapping of a source.

        Raises:
            InvalidInputError: a column cannot refer to the type that was chosen for it.
        """
        columns = _columns_of(profile)
        edges = [
            self._refer(rule, path, target)
            for rule in mapping.nodes
            for path in columns
            if (target := self._choice(self.options.edges, mapping, rule, path)) is not None
            and not any(_refers(edge, rule, path, target) for edge in mapping.edges)
        ]
        referring = {value.column for edge in edges for value in edge.target.key.values()}
        rules: list[Rule] = [*mapping.nodes, *mapping.edges, *edges]
        read = [_with_values(rule, partial(self._read, mapping, rule, columns)) for rule in rules]
        return replace(
            mapping,
            nodes=tuple(rule for rule in read if isinstance(rule, NodeMapping)),
            edges=tuple(rule for rule in read if isinstance(rule, EdgeMapping)),
            ignored=tuple(path for path in mapping.ignored if path not in referring),
        )

    def require_used(self) -> None:
        """Refuse choices that name nothing.

        Raises:
            InvalidInputError: no rule that is used here reads the column.
        """
        for name in {*self.options.edges, *self.options.types} - self.used:
            raise InvalidInputError(
                f"no node rule of these sources is {shown(name)}, a type or source and its column",
                next_step="Name them as in `Order.sold_to`; the mapping has the types of a source.",
            )

    def _choice(
        self, choices: Mapping[str, str], mapping: SourceMapping, rule: Rule, path: str
    ) -> str | None:
        name = next((n for n in (rule.type, mapping.name) if f"{n}.{path}" in choices), None)
        self.used.add(f"{name}.{path}")
        return None if name is None else choices[f"{name}.{path}"]

    def _refer(self, rule: NodeMapping, path: str, named: str) -> EdgeMapping:
        """The rule of an edge from the node of a rule to the one that a column names."""
        nodes = self.catalog.nodes
        target, own = nodes.get(named), nodes[rule.type]
        key = key_properties(target) if target is not None and target.key else ()
        if len(key) != 1:
            raise InvalidInputError(
                f"{rule.type}.{path} cannot refer to {shown(named)}, which is no type with a key "
                "of one property",
                next_step="Name one: `omnigraph schema show` prints the types.",
            )
        ids = (
            {prop.name: rule.properties[prop.name] for prop in key_properties(own)}
            if own.key
            else {}
        )
        role, ends = naming.stem(path.rpartition(".")[2]), (rule.type, named)
        declared = self.catalog.edges.values()
        taken = {edge.name: (*edge.source.names, *edge.target.names) for edge in declared}
        taken |= self.added
        # Another file of the same records gets the edges that are there.
        names = [naming.reference_name(role, rule.type, others) for others in ((), taken)]
        name = next(name for name in names if taken.get(name, ends) == ends)
        if name not in taken:
            self.added[name] = ends
            self.schema[SchemaEdit(added=f"edge {name}: {rule.type} -> {named} @card(0..1)")] = None
        return EdgeMapping(
            type=name,
            source=Endpoint(
                type=rule.type, key=ids or ({} if rule.id is None else {ID_COLUMN: rule.id})
            ),
            target=Endpoint(type=named, key={key[0].name: ValueMapping(column=path)}),
            single=True,
            optional=True,
            each=rule.each,
            each_split=rule.each_split,
            where=rule.where,
        )

    def _read(
        self,
        mapping: SourceMapping,
        rule: Rule,
        columns: Mapping[str, ColumnProfile],
        name: str,
        value: ValueMapping,
    ) -> ValueMapping:
        """A value with the words for null, and with the type that was chosen for its property."""
        column = columns.get(value.column)
        if column is None:
            return value
        words = [word for word, count in column.declared_nulls.items() if count]
        owner = self.catalog.nodes.get(rule.type) or self.catalog.edges.get(rule.type)
        prop = None if owner is None else owner.properties.get(name)
        if prop is not None:
            kind = show_type(prop.type)
            chosen = self._choice(self.options.types, mapping, rule, value.column)
            if chosen is not None:
                scalar = one_of(ct.Scalar, chosen, argument="a type of a column")
                kind, read, _ = choose_given_type(column, scalar)
                value = replace(read, null=value.null)
            is_key = isinstance(owner, ct.NodeType) and owner.key and prop in key_properties(owner)
            before = _spell(prop)
            after = f"{kind}{'?' if prop.nullable or (words and not is_key) else ''}"
            edit = SchemaEdit(owner=rule.type, name=name, before=before, after=after)
            self.schema |= {edit: None} if before != after else {}
        return replace(value, null=tuple(dict.fromkeys((*value.null, *words))))


def _spell(prop: ct.Property) -> str:
    return f"{show_type(prop.type)}{'?' if prop.nullable else ''}"


def _columns_of(profile: SourceProfile) -> dict[str, ColumnProfile]:
    """The columns of the records and of the lists in them."""
    parts = (profile.columns, *map(_columns_of, profile.children.values()))
    return {path: column for part in parts for path, column in part.items()}


def _refers(edge: EdgeMapping, rule: NodeMapping, path: str, target: str) -> bool:
    columns = [value.column for value in edge.target.key.values()]
    return (edge.source.type, edge.target.type, columns) == (rule.type, target, [path])


def _with_values(rule: Rule, change: _Change) -> Rule:
    """A rule with other values; those of the ends of an edge are no properties of it."""
    properties = {name: change(name, value) for name, value in rule.properties.items()}
    if isinstance(rule, NodeMapping):
        return replace(rule, properties=properties)
    source, target = (
        replace(end, key={name: change("", value) for name, value in end.key.items()})
        for end in (rule.source, rule.target)
    )
    return replace(rule, properties=properties, source=source, target=target)


def edit_text(text: str, before: MappingFile, after: MappingFile) -> str:
    """The text of a mapping that means another one now, with the comments of its own."""
    old, new = (write_mapping(one.mappings, schema=one.schema) for one in (before, after))
    merged = _merge(old.splitlines(), new.splitlines(), text.splitlines())
    return merged if merged and read_mapping(merged, name="mapping") == after else new


def _merge(base: Sequence[str], new: Sequence[str], own: list[str]) -> str:
    """Change lines as those of another text were changed; empty if they are not there."""
    plain = [_COMMENT.sub("", line) for line in own]
    blocks = SequenceMatcher(None, base, plain, autojunk=False).get_matching_blocks()
    place = {one.a + step: one.b + step for one in blocks for step in range(one.size)}
    changes = SequenceMatcher(None, base, new, autojunk=False).get_opcodes()
    for kind, first, last, start, end in reversed(changes):
        if kind != "equal":
            if not place.keys() >= {*range(max(0, first - 1), last)}:
                return ""
            at = place[first - 1] + 1 if first else 0
            own[at : at + last - first] = new[start:end]
    return "\n".join(own) + "\n"
