"""Compiles query text to typed queries, or to the list of everything that is wrong with it.

The syntax tree is checked against a catalog, and all findings are reported at once.

Invariants:

- Both entry points, `compile_queries` and `diagnose_queries`, accept any text.
- A query is typed exactly when none of the findings about it is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from omnigraph_lake.errors import QueryInvalidError
from omnigraph_lake.language.diagnostics import Diagnostic, Severity, Suggestions
from omnigraph_lake.names import edge_table_key, node_table_key
from omnigraph_lake.query import ast
from omnigraph_lake.query import typed as tq
from omnigraph_lake.query import types as qt
from omnigraph_lake.query.checks.literals import read_sizes, string_constant
from omnigraph_lake.query.checks.pattern import SubPatternChecks, check_block
from omnigraph_lake.query.checks.results import (
    check_count,
    check_having,
    check_order,
    check_projections,
    expand_projections,
)
from omnigraph_lake.query.checks.scope import Findings, Scope
from omnigraph_lake.query.checks.writes import check_matched_write, check_statement
from omnigraph_lake.query.diagnostics import Rule
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.resolve import DECIMAL, DECIMAL_HINT, VECTOR, VECTOR_SIZE_MAX

NAME_CHARACTERS_MAX: Final = 255
_NOTES: Final = ("description", "instruction")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedQuery:
    """A query with its findings; `typed` is None if one of them is an error."""

    declaration: ast.QueryDeclaration
    typed: tq.TypedQuery | None
    findings: tuple[Diagnostic, ...]


def check_queries(
    parsed: ast.QueryFile, catalog: ct.Catalog, *, given: Sequence[tq.TypedParameter] = ()
) -> tuple[CheckedQuery, ...]:
    """Every query of a file, in source order.

    `given` are the parameters that an ad-hoc text uses without declaring them.
    """
    names: set[str] = set()
    checked_queries: list[CheckedQuery] = []
    suggestions = Suggestions()
    for declaration in parsed.queries:
        findings = Findings(suggestions)
        if declaration.name.text in names:
            findings.error(
                Rule.DUPLICATE_QUERY,
                declaration.name.span,
                f"the query `{declaration.name.text[:80]}` already exists",
                "give one of the two another name",
            )
        names.add(declaration.name.text)
        typed = _check_query(declaration, catalog, findings, given)
        diagnostics = findings.in_source_order()
        faulty = any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)
        assert faulty or typed is not None, "what is not typed was reported"
        checked_queries.append(
            CheckedQuery(
                declaration=declaration, typed=None if faulty else typed, findings=diagnostics
            )
        )
    return tuple(checked_queries)


def _check_query(
    declaration: ast.QueryDeclaration,
    catalog: ct.Catalog,
    findings: Findings,
    given: Sequence[tq.TypedParameter],
) -> tq.TypedQuery | None:
    _check_names(declaration, findings)
    notes = _notes(declaration, findings)
    parameters = parameters_of(declaration, findings)
    if declaration.is_adhoc:
        parameters |= {parameter.name: parameter for parameter in given}
    scope = Scope(
        catalog=catalog,
        findings=findings,
        parameters=parameters,
        is_adhoc=declaration.is_adhoc,
    )
    body: tq.TypedRead | tq.TypedWrite | None
    match declaration.body:
        case ast.ReadBody():
            body = _check_read(declaration.body, scope)
        case ast.WriteBody():
            body = _check_write(declaration.body, scope)
        case ast.MatchedWriteBody():
            body = check_matched_write(declaration.body, scope)
        case _:
            assert_never(declaration.body)
    typed_parameters = tuple(
        parameter for parameter in parameters.values() if parameter is not None
    )
    if body is None or len(typed_parameters) < len(parameters):
        return None
    writes = tuple(sorted(set(_writes(body))))
    return tq.TypedQuery(
        name=declaration.name.text,
        parameters=typed_parameters,
        description=notes.get("description"),
        instruction=notes.get("instruction"),
        body=body,
        reads=tuple(sorted({*_reads(body, catalog), *writes})),
        writes=writes,
        is_adhoc=declaration.is_adhoc,
    )


def _check_names(declaration: ast.QueryDeclaration, findings: Findings) -> None:
    names = [declaration.name, *(parameter.name for parameter in declaration.parameters)]
    if isinstance(declaration.body, ast.ReadBody):
        names += [
            projection.alias
            for projection in declaration.body.projections
            if projection.alias is not None
        ]
    for name in names:
        if len(name.text) > NAME_CHARACTERS_MAX:
            findings.error(
                Rule.NAME_TOO_LONG,
                name.span,
                f"a name has at most {NAME_CHARACTERS_MAX} characters, found {len(name.text)}",
            )


def _notes(declaration: ast.QueryDeclaration, findings: Findings) -> dict[str, str]:
    notes: dict[str, str] = {}
    for annotation in declaration.annotations:
        name = annotation.name
        value = string_constant(annotation.value, findings).value
        assert isinstance(value, str)
        if name.text not in _NOTES:
            findings.error(
                Rule.UNKNOWN_ANNOTATION,
                name.span,
                f"a query has no annotation `@{name.text[:80]}`",
                "a query takes `@description` and `@instruction`",
            )
        elif name.text in notes:
            findings.error(Rule.DUPLICATE_ANNOTATION, name.span, f"`@{name.text}` is given twice")
        elif not value.strip():
            findings.error(Rule.EMPTY_ANNOTATION, annotation.value.span, f"`@{name.text}` is empty")
        notes[name.text] = value
    return notes


def parameters_of(
    declaration: ast.QueryDeclaration, findings: Findings
) -> dict[str, tq.TypedParameter | None]:
    """The parameters by name; None for one whose type was reported."""
    parameters: dict[str, tq.TypedParameter | None] = {}
    for parameter in declaration.parameters:
        name = parameter.name.text
        if name in parameters:
            findings.error(
                Rule.DUPLICATE_PARAMETER, parameter.name.span, f"`${name[:80]}` is declared twice"
            )
            continue
        if name == "_":
            findings.error(
                Rule.ANONYMOUS_VARIABLE,
                parameter.name.span,
                "a parameter needs a name other than `$_`",
            )
        declared = _parameter_type(parameter, findings)
        parameters[name] = (
            None
            if declared is None
            else tq.TypedParameter(name=name, type=declared, nullable=parameter.nullable)
        )
    return parameters


def _parameter_type(
    parameter_declaration: ast.ParameterDeclaration, findings: Findings
) -> qt.ParameterType | None:
    scalars = {scalar.value: scalar for scalar in ct.Scalar}
    name = parameter_declaration.type.text
    if parameter_declaration.sizes:
        sized = _type_of_sizes(name, read_sizes(parameter_declaration.sizes))
        if sized is not None and not parameter_declaration.listed:
            return sized
        if isinstance(sized, ct.DecimalType):
            return qt.DecimalList(item=sized)
        hint = f"write `Vector(n)` with 1 to {VECTOR_SIZE_MAX} numbers"
        if name == DECIMAL:
            hint = DECIMAL_HINT
    elif name in scalars:
        if not parameter_declaration.listed:
            return ct.ScalarType(scalar=scalars[name])
        if scalars[name] not in ct.WITHOUT_ORDER:
            return ct.ListType(item=scalars[name])
        hint = "a list holds base types other than Blob and Json"
    elif name == VECTOR:
        hint = "write its size: `Vector(384)`"
    elif name == DECIMAL:
        hint = DECIMAL_HINT
    else:
        # Only an unknown type needs the parser of schemas.
        from omnigraph_lake.schema.parser import type_hint

        hint = type_hint(name)
    findings.error(
        Rule.PARAMETER_TYPE,
        parameter_declaration.type.span,
        "this is not a type for a parameter",
        hint,
    )
    return None


def _type_of_sizes(name: str, sizes: tuple[int | None, ...]) -> ct.PropertyType | None:
    match name, sizes:
        case "Vector", (int(size),) if 1 <= size <= VECTOR_SIZE_MAX:
            return ct.VectorType(size=size)
        case "Decimal", (int(precision), int(scale)):
            return ct.decimal_type(precision, scale)
        case _:
            return None


def _check_read(body: ast.ReadBody, scope: Scope) -> tq.TypedRead | None:
    numbers = itertools.count(1)
    checked = check_block(body.clauses, scope, numbers)
    if not checked.scope.variables:
        scope.findings.error(
            Rule.DISCONNECTED_BLOCK,
            body.clauses[0].span,
            "this `match` binds no variables",
            "bind a node: `$p: Person`",
        )
    sub_patterns = SubPatternChecks(numbers)
    result_scope = replace(checked.scope, sub_patterns=sub_patterns, may_aggregate=True)
    body = expand_projections(body, result_scope)
    projections, grouped = check_projections(body, result_scope)
    having = check_having(body, projections, result_scope, grouped=grouped)
    order = check_order(body, projections, result_scope, grouped=grouped)
    limit = check_count(body.limit, "limit", scope)
    offset = check_count(body.offset, "offset", scope)
    return tq.TypedRead(
        block=checked.block,
        projections=projections,
        distinct=body.distinct,
        grouped=grouped,
        ranking=order.ranking,
        order=order.keys,
        limit=limit,
        offset=offset,
        sub_patterns=sub_patterns.checked,
        having=having,
    )


def _check_write(body: ast.WriteBody, scope: Scope) -> tq.TypedWrite | None:
    checked_statements = [check_statement(statement, scope) for statement in body.statements]
    statements = tuple(statement for statement in checked_statements if statement is not None)
    return (
        tq.TypedWrite(statements=statements) if len(statements) == len(checked_statements) else None
    )


def _writes(body: tq.TypedRead | tq.TypedWrite) -> Iterator[str]:
    if isinstance(body, tq.TypedRead):
        return
    for statement in body.statements:
        yield statement.table_key
        if isinstance(statement, tq.DeleteStatement | tq.MatchedStatement):
            yield from map(edge_table_key, statement.incident)


def _reads(body: tq.TypedRead | tq.TypedWrite, catalog: ct.Catalog) -> Iterator[str]:
    if isinstance(body, tq.TypedRead):
        for block in body.blocks:
            yield from _block_reads(block)
        return
    for statement in body.statements:
        if isinstance(statement, tq.MatchedStatement):
            for block in statement.read.blocks:
                yield from _block_reads(block)
        edge = catalog.edges.get(statement.type)
        if edge is not None and statement.table_key == edge_table_key(statement.type):
            yield from map(node_table_key, (*edge.source.names, *edge.target.names))


def _block_reads(block: tq.Block) -> Iterator[str]:
    for binding in block.bindings:
        yield from map(node_table_key, binding.type.types)
    for traversal in block.traversals:
        yield from map(edge_table_key, tq.edges_of(traversal.steps))
        for step in traversal.steps:
            yield node_table_key(step.start_type)
            yield node_table_key(step.end_type)
        yield from map(node_table_key, traversal.left_type.types)
        yield from map(node_table_key, traversal.right_type.types)
    for inner in block.inner_blocks:
        yield from _block_reads(inner)


def compile_queries(text: str, *, catalog: ct.Catalog, filename: str) -> ct.ByName[tq.TypedQuery]:
    """All queries of a file by name, in source order.

    Raises:
        QueryInvalidError: with every finding, if one of them is an error.
    """
    return compile_parsed(parse_queries(text), text=text, catalog=catalog, filename=filename)


def compile_parsed(
    parsed: ast.QueryFile | Diagnostic,
    *,
    text: str,
    catalog: ct.Catalog,
    filename: str,
    given: Sequence[tq.TypedParameter] = (),
) -> ct.ByName[tq.TypedQuery]:
    """As `compile_queries`, of a text that was parsed; `given` as in `check_queries`."""
    if isinstance(parsed, Diagnostic):
        raise QueryInvalidError(filename, (parsed,), text=text)
    checked_queries = check_queries(parsed, catalog, given=given)
    findings = tuple(finding for query in checked_queries for finding in query.findings)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise QueryInvalidError(filename, findings, text=text)
    return ct.ByName(query.typed for query in checked_queries if query.typed is not None)


def diagnose_queries(text: str, *, catalog: ct.Catalog) -> tuple[Diagnostic, ...]:
    """Every finding about a text in source order; empty for valid queries."""
    parsed = parse_queries(text)
    if isinstance(parsed, Diagnostic):
        return (parsed,)
    return tuple(
        finding
        for check_query in check_queries(parsed, catalog)
        for finding in check_query.findings
    )
