"""A query text in an editor.

What a name means is decided by the checks of the compiler, on the tree of what could be read. A
text is renamed only if it parses.

Invariant: every method accepts any text and any place in it; only `rename` refuses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Final

from omnigraph_lake.editor import content
from omnigraph_lake.editor.query_places import VARIABLES, QueryPlace, aliases_of, kind_at
from omnigraph_lake.editor.unfinished import RecoveredQuery, continuation_at, recover_queries
from omnigraph_lake.errors import InvalidInputError, QueryInvalidError
from omnigraph_lake.language.diagnostics import Diagnostic, Severity, Suggestions
from omnigraph_lake.language.grammars import Lexeme
from omnigraph_lake.query import ast
from omnigraph_lake.query.checks.pattern import check_block
from omnigraph_lake.query.checks.scope import ANONYMOUS, Findings, Scope
from omnigraph_lake.query.compile import parameters_of
from omnigraph_lake.query.formatting import format_queries
from omnigraph_lake.query.lint import lint_parsed
from omnigraph_lake.query.parser import parse_queries
from omnigraph_lake.schema.catalog import Catalog

_WORD_START: Final = re.compile(r"[$@A-Za-z_]")
_VARIABLE_NAME: Final = re.compile(r"[a-z_][A-Za-z0-9_]*")


class QueryDocument:
    """A query text, and the schema that it is checked against."""

    def __init__(self, text: str, catalog: Catalog | None) -> None:
        self.text = text
        self._catalog = catalog

    @cached_property
    def _queries(self) -> tuple[RecoveredQuery, ...]:
        return recover_queries(self.text)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        parsed = parse_queries(self.text)
        if not isinstance(parsed, Diagnostic):
            return self._lint(parsed)
        refusals = [query.refusal for query in self._queries if query.refusal is not None]
        valid = ast.QueryFile(
            queries=tuple(
                query.declaration
                for query in self._queries
                if query.refusal is None and query.declaration is not None
            )
        )
        findings = (*(refusals or [parsed]), *self._lint(valid))
        return tuple(sorted(findings, key=lambda finding: finding.span.offset))

    def _lint(self, parsed: ast.QueryFile) -> tuple[Diagnostic, ...]:
        return () if self._catalog is None else lint_parsed(parsed, catalog=self._catalog).findings

    def completions(self, offset: int) -> content.Completions:
        word = content.word_at(self.text, offset)
        if word.kind is content.WordKind.COMMENT:
            return content.Completions(range=word.range, items=())
        continuation = continuation_at(self.text, word.range.start)
        place = self._place(offset, continuation.before)
        if word.kind is content.WordKind.STRING:
            items = place.values() if "STRING" in continuation.expected else ()
        else:
            items = place.completions(continuation.expected)
        return content.Completions(range=word.range, items=tuple(dict.fromkeys(items)))

    def hover(self, offset: int) -> content.Hover | None:
        query, position = self._token_at(offset)
        if query is None:
            return None
        token = query.tokens[position]
        place = self._place(token.offset, query.tokens[:position])
        explained = place.explain(token, kind_at(query.tokens, position + 1))
        if explained is None:
            return None
        code, description = explained
        return content.Hover(range=_range_of(token), code=code, description=description)

    def definition(self, offset: int) -> content.TextRange | content.SchemaElement | None:
        query, position = self._token_at(offset)
        if query is None:
            return None
        token = query.tokens[position]
        if token.kind in VARIABLES:
            return _declaration_of(token, query.tokens)
        if token.offset in _alias_uses(query.declaration):
            alias = aliases_of(query.declaration)[token.text]
            return content.TextRange(start=alias.span.offset, end=alias.span.end)
        place = self._place(token.offset, query.tokens[:position])
        return place.element(token, kind_at(query.tokens, position + 1))

    def renamable(self, offset: int) -> content.TextRange | None:
        query, position = self._token_at(offset)
        if query is None:
            return None
        token = query.tokens[position]
        if token.kind in VARIABLES and token.text != f"${ANONYMOUS}":
            return content.TextRange(start=token.offset + 1, end=token.end)
        return _range_of(token) if token.offset in _alias_uses(query.declaration) else None

    def rename(self, offset: int, name: str) -> tuple[content.TextRange, ...]:
        parsed = parse_queries(self.text)
        if isinstance(parsed, Diagnostic):
            raise InvalidInputError(
                f"the text does not parse: line {parsed.span.line}: {parsed.message}",
                next_step="Correct it, then rename.",
            )
        query, position = self._token_at(offset)
        if query is None or self.renamable(offset) is None:
            raise InvalidInputError(
                "there is no variable, parameter or alias to rename",
                next_step="Place the cursor on a variable, a parameter or an alias.",
            )
        token, name = query.tokens[position], name.removeprefix("$")
        is_variable = token.kind in VARIABLES
        if not _VARIABLE_NAME.fullmatch(name) or name == ANONYMOUS:
            raise InvalidInputError(
                f"`{name}` is not a name", next_step="Names start with a small letter or `_`."
            )
        places = _occurrences(query, token)
        taken = {
            (other.text[1:] if is_variable else other.text)
            for other in query.tokens
            if other.kind in (VARIABLES if is_variable else {"NAME"})
        }
        renamed = content.replace_places(self.text, places, name)
        if name in taken or self._errors(renamed) > self._errors(self.text):
            raise InvalidInputError(
                f"`{name}` is used in this query already", next_step="Choose another name."
            )
        return places

    def _errors(self, text: str) -> int:
        findings = QueryDocument(text, self._catalog).diagnostics()
        return sum(finding.severity is Severity.ERROR for finding in findings)

    def format(self) -> str | None:
        try:
            return format_queries(self.text)
        except QueryInvalidError:
            return None

    def _token_at(self, offset: int) -> tuple[RecoveredQuery | None, int]:
        """The query and the token at a place; where two meet, the one that is a word."""
        touching = [
            (query, position)
            for query in self._queries
            if query.tokens[0].offset <= offset <= query.tokens[-1].end
            for position, token in enumerate(query.tokens)
            if token.offset <= offset <= token.end
        ]
        words = [
            (query, position)
            for query, position in touching
            if _WORD_START.match(query.tokens[position].text)
        ]
        return words[-1] if words else (None, 0)

    def _place(self, offset: int, before: Sequence[Lexeme]) -> QueryPlace:
        declaration: ast.QueryDeclaration | None = None
        for query in self._queries:
            if query.tokens[0].offset <= offset:
                declaration = query.declaration
        scope = None
        if self._catalog is not None and declaration is not None:
            scope = _scope_at(declaration, offset, self._catalog)
        return QueryPlace(
            before=before, catalog=self._catalog, declaration=declaration, scope=scope
        )


def _scope_at(declaration: ast.QueryDeclaration, offset: int, catalog: Catalog) -> Scope:
    """What names mean at a place, as the checks of the compiler decide it."""
    findings = Findings(Suggestions(comparisons_max=0))
    scope = Scope(
        catalog=catalog, findings=findings, parameters=parameters_of(declaration, findings)
    )
    if isinstance(declaration.body, ast.WriteBody):
        return scope
    clauses: tuple[ast.Clause, ...] = declaration.body.clauses
    outside: tuple[object, ...]
    match declaration.body:
        case ast.ReadBody():
            outside = (declaration.body.projections, declaration.body.orderings)
        case ast.MatchedWriteBody():
            outside = (declaration.body.statements,)
    while True:
        scope = check_block(clauses, scope).scope
        blocks = [
            clause for clause in clauses if isinstance(clause, ast.NotBlock | ast.OptionalBlock)
        ]
        conditions = [clause.condition for clause in clauses if isinstance(clause, ast.Filter)]
        inner = [
            block
            for block in (*blocks, *ast.sub_patterns_of((*conditions, *outside)))
            if block.span.offset <= offset <= block.span.end
        ]
        if not inner:
            return scope
        clauses, outside = inner[0].clauses, ()


def _declaration_of(variable: Lexeme, tokens: Sequence[Lexeme]) -> content.TextRange:
    """Where a variable is bound: as a parameter, to a type, to an edge, or where it is first."""
    uses = [
        position
        for position, token in enumerate(tokens)
        if token.kind in VARIABLES and token.text == variable.text
    ]
    bound = [position for position in uses if kind_at(tokens, position + 1) == "COLON"]
    return _range_of(tokens[(bound or uses)[0]])


def _range_of(token: Lexeme) -> content.TextRange:
    return content.TextRange(start=token.offset, end=token.end)


def _alias_uses(declaration: ast.QueryDeclaration | None) -> dict[int, str]:
    """The places where an alias is given or used, with its name."""
    aliases = aliases_of(declaration)
    uses = {name.span.offset: name.text for name in aliases.values()}
    if declaration is not None and isinstance(declaration.body, ast.ReadBody):
        keys = [ordering.expression for ordering in declaration.body.orderings]
        words = [key for key in keys if isinstance(key, ast.Word)]
        words += _words_in(declaration.body.having)
        uses |= {word.span.offset: word.name.text for word in words if word.name.text in aliases}
    return uses


def _words_in(condition: ast.Expression | None) -> list[ast.Word]:
    """The bare words of a condition; iterative, without recursion."""
    words: list[ast.Word] = []
    pending: list[object] = [condition]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Word):
            words.append(node)
        elif isinstance(node, tuple):
            pending += node
        elif is_dataclass(node):
            pending += [getattr(node, part.name) for part in fields(node)]
    return words


def _occurrences(query: RecoveredQuery, token: Lexeme) -> tuple[content.TextRange, ...]:
    """Every place of a variable, without its `$`, or of an alias."""
    if token.kind in VARIABLES:
        return tuple(
            content.TextRange(start=other.offset + 1, end=other.end)
            for other in query.tokens
            if other.kind in VARIABLES and other.text == token.text
        )
    uses = _alias_uses(query.declaration)
    return tuple(
        content.TextRange(start=offset, end=offset + len(name))
        for offset, name in uses.items()
        if name == token.text
    )
