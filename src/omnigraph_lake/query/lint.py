"""Advice about queries that compile, and a description of each for tools.

Invariant: a warning never stops a query. The descriptor says what a run will return, read and
write, and is the same in every place that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from omnigraph_lake.language.diagnostics import Diagnostic, Severity
from omnigraph_lake.query import ast
from omnigraph_lake.query.compile import CheckedQuery, check_queries
from omnigraph_lake.query.diagnostics import Rule, warning
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.query.plan import Mutation
from omnigraph_lake.query.planning import plan_query
from omnigraph_lake.query.prune_empty import can_have_rows
from omnigraph_lake.query.typed import Column, TypedQuery, UpdateStatement
from omnigraph_lake.query.types import DecimalList, EdgeOf, NodeOf, show
from omnigraph_lake.schema import catalog as ct


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultField:
    """One column of a result, as tools see it."""

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None
    vector_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDescriptor:
    """What a query takes, returns, reads and writes; tables by their keys, sorted."""

    name: str
    mutation: bool
    description: str | None
    instruction: str | None
    parameters: tuple[ResultField, ...]
    result: tuple[ResultField, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedQuery:
    """The findings about one query; no descriptor if one of them is an error."""

    name: str
    findings: tuple[Diagnostic, ...]
    descriptor: QueryDescriptor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The findings about a file; `refusal` is set if it does not parse."""

    refusal: Diagnostic | None
    queries: tuple[LintedQuery, ...]

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        first = () if self.refusal is None else (self.refusal,)
        return (*first, *(finding for query in self.queries for finding in query.findings))

    @property
    def has_errors(self) -> bool:
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def lint_queries(text: str, *, catalog: ct.Catalog) -> LintReport:
    """Every error and every warning about a text."""
    parsed = parse_queries(text)
    if isinstance(parsed, Diagnostic):
        return LintReport(refusal=parsed, queries=())
    return lint_parsed(parsed, catalog=catalog)


def lint_parsed(parsed: ast.QueryFile, *, catalog: ct.Catalog) -> LintReport:
    """Every error and every warning about a tree."""
    checked_queries = check_queries(parsed, catalog)
    unset_warnings = _unset_properties(checked_queries, catalog)
    linted_queries: list[LintedQuery] = []
    for query in checked_queries:
        advice = [
            *_advice(query, catalog),
            *unset_warnings.get(query.declaration.name.span.offset, ()),
        ]
        findings = sorted(
            (*query.findings, *advice), key=lambda finding: (finding.span.offset, finding.rule)
        )
        linted_queries.append(
            LintedQuery(
                name=query.declaration.name.text,
                findings=tuple(findings),
                descriptor=None if query.typed is None else describe(query.typed),
            )
        )
    return LintReport(refusal=None, queries=tuple(linted_queries))


def find_newly_refused(
    text: str, *, accepted: ct.Catalog, target: ct.Catalog
) -> Iterator[tuple[str, Diagnostic]]:
    """The queries of a text that compile with a schema and not with another; each with an error."""
    errors = {
        query.name: error
        for query in lint_queries(text, catalog=target).queries
        if (error := _first_error(query)) is not None
    }
    for query in lint_queries(text, catalog=accepted).queries if errors else ():
        if query.name in errors and _first_error(query) is None:
            yield query.name, errors[query.name]


def _first_error(query: LintedQuery) -> Diagnostic | None:
    errors = (finding for finding in query.findings if finding.severity is Severity.ERROR)
    return next(errors, None)


def describe(query: TypedQuery) -> QueryDescriptor:
    """The descriptor of a query that compiles."""
    return QueryDescriptor(
        name=query.name,
        mutation=query.is_mutation,
        description=query.description,
        instruction=query.instruction,
        parameters=tuple(
            _field(Column(name=parameter.name, type=parameter.type, nullable=parameter.nullable))
            for parameter in query.parameters
        ),
        result=tuple(map(_field, query.columns)),
        reads=query.reads,
        writes=query.writes,
    )


def _field(column: Column) -> ResultField:
    kind, item, size = show(column.type), None, None
    match column.type:
        case ct.ListType():
            kind, item = "List", column.type.item.value
        case DecimalList():
            kind, item = "List", show(column.type.item)
        case ct.VectorType():
            kind, size = "Vector", column.type.size
        case ct.EnumType():
            kind = "String"
        case NodeOf():
            kind = "Node"
        case EdgeOf():
            kind = "Edge"
        case ct.ScalarType() | ct.DecimalType():
            pass
        case _:
            assert_never(column.type)
    return ResultField(
        name=column.name, kind=kind, nullable=column.nullable, item_kind=item, vector_size=size
    )


def _advice(checked: CheckedQuery, catalog: ct.Catalog) -> Iterator[Diagnostic]:
    if checked.typed is None:
        return
    declaration = checked.declaration
    used = _variables_in(declaration.body)
    for parameter in declaration.parameters:
        if parameter.name.text not in used:
            yield warning(
                Rule.UNUSED_PARAMETER,
                parameter.name.span,
                f"`${parameter.name.text}` is never used",
                "remove it, or use it",
            )
    is_constant = not declaration.parameters and not declaration.is_adhoc
    if is_constant and isinstance(declaration.body, ast.WriteBody):
        yield warning(
            Rule.CONSTANT_MUTATION,
            declaration.name.span,
            "this mutation has no parameters, so every run does the same",
        )
    plan = plan_query(checked.typed, catalog)
    if not isinstance(plan, Mutation) and not can_have_rows(plan):
        yield warning(
            Rule.EMPTY_RESULT,
            declaration.name.span,
            "this query never returns a row",
            "two of its conditions contradict each other, or one is never true",
        )


def _variables_in(body: ast.ReadBody | ast.WriteBody | ast.MatchedWriteBody) -> frozenset[str]:
    """The variables that expressions of a body use; iterative, without recursion."""
    variables: set[str] = set()
    pending: list[object] = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += node
        elif isinstance(node, ast.VariableUse):
            variables.add(node.name.text)
        elif hasattr(node, "__dataclass_fields__"):
            pending += [getattr(node, name) for name in node.__dataclass_fields__]
    return frozenset(variables)


def _unset_properties(
    checked_queries: Sequence[CheckedQuery], catalog: ct.Catalog
) -> Mapping[int, list[Diagnostic]]:
    """Nullable properties that no update of their type sets, at the first update of the type."""
    updates: dict[str, tuple[ast.Name, set[str]]] = {}
    places: dict[str, int] = {}
    for query in checked_queries:
        if query.typed is None or not isinstance(query.declaration.body, ast.WriteBody):
            continue
        plan = plan_query(query.typed, catalog)
        assert isinstance(plan, Mutation)
        for statement, typed_statement in zip(
            query.declaration.body.statements, plan.statements, strict=True
        ):
            if isinstance(typed_statement, UpdateStatement) and isinstance(statement, ast.Update):
                key = typed_statement.table_key
                place, names = updates.setdefault(key, (statement.type, set()))
                names |= {assignment.property for assignment in typed_statement.assignments}
                places.setdefault(key, query.declaration.name.span.offset)
                updates[key] = (place, names)
    tables = catalog.tables()
    warnings: dict[int, list[Diagnostic]] = {}
    for key, (place, names) in updates.items():
        for prop in tables[key].properties.values():
            if prop.nullable and prop.embed is None and prop.name not in names:
                warnings.setdefault(places[key], []).append(
                    warning(
                        Rule.UNSET_PROPERTY,
                        place.span,
                        f"no update of {tables[key].name} sets `{prop.name}`",
                    )
                )
    return warnings
