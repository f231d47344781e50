"""Translates a syntax error of the grammar to a message for the author of a query.

Invariant: exactly one diagnostic per refusal, never a token name of the grammar in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from omnigraph.language.diagnostics import Diagnostic, did_you_mean, span_at
from omnigraph.query.diagnostics import Rule, error
from omnigraph.query.tokens import KEYWORDS

_IN_WORDS: Final = {
    "NAME": "a name",
    "TYPE_NAME": "a type name",
    "VARIABLE": "a variable",
    "ANNOTATION": "an annotation",
    "STRING": "a string",
    "NUMBER": "a number",
    "EDGE_NAME": "the name of an edge",
    "COLON": "`:`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "QUESTION": "`?`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "$END": "the end of the file",
}
_OPERATORS: Final = frozenset(
    {
        *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"),
        *("CONTAINS", "STARTS_WITH", "ENDS_WITH", "IN", "IS"),
        *("PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "AND", "OR"),
    }
)
_VALUE_STARTS: Final = frozenset({"STRING", "NUMBER", "VARIABLE", "LSQB", "LPAR", "TRUE", "NULL"})
_VALUE_WORDS: Final = frozenset({*_VALUE_STARTS, "FALSE", "MINUS", "NAME", "NOT"})
_CLAUSE_STARTS: Final = frozenset({"OPTIONAL", "VARIABLE"})
_WORD: Final = re.compile(r"[$@]?\w+|[<>!]=|\.\.|==|&&|\|\|")
_BARE_NAME: Final = re.compile(r"(?<![$.@\w])[a-z_]\w*\s*$")
_OTHER_LANGUAGES: Final = {
    "==": "equality is written `=`",
    "!": 'negation is the word `not`, "is not equal" is `!=`',
    "&&": "conditions are joined by the word `and`",
    "||": "conditions are joined by the word `or`",
    "&": "conditions are joined by the word `and`",
    "|": "conditions are joined by the word `or`",
    ";": "clauses and statements are not separated by anything",
    "'": 'strings are written in double quotes: `"text"`',
    "->": "the direction of an edge follows from the types of its ends: `$a knows $b`",
    "<-": "the direction of an edge follows from the types of its ends: `$a knows $b`",
    "having": "there is no `having`; filter groups in your program",
    "skip": "rows are skipped by `offset`",
    "select": "columns are listed in `return { ... }`",
    "create": "rows are created by `insert`",
    "merge": "rows are created or replaced by `upsert`",
    "by": "write `order { ... }`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    text: str
    offset: int
    found: str
    expected: frozenset[str]

    def diagnostic(self, rule: Rule, message: str, hint: str = "") -> Diagnostic:
        end = self.offset + max(len(self.found), 1)
        return error(rule, span_at(self.text, self.offset, end), message, hint)


def explain_character(text: str, offset: int) -> Diagnostic:
    """Why no token of the language starts at `offset`."""
    found = text[offset : offset + 1]
    refusal = _Refusal(text=text, offset=offset, found=found, expected=frozenset())
    if found == '"':
        return _unterminated_string(refusal)
    hint = _OTHER_LANGUAGES.get(text[offset : offset + 2]) or _OTHER_LANGUAGES.get(found, "")
    if found.isdigit():
        hint = "numbers are written without an exponent: `1000.0` for 1e3"
    elif found in "$@":
        hint = f"a name in small letters follows `{found}` at once"
    elif not found.isascii():
        hint = "names use ASCII letters, digits and `_` only"
    return refusal.diagnostic(Rule.SYNTAX, f"found `{found}`, which is not valid here", hint)


def explain_refusal(text: str, offset: int, expected: Collection[str]) -> Diagnostic:
    """Why the grammar, which expects `expected`, does not accept the text at `offset`."""
    if offset >= len(text):
        offset = len(text.rstrip(" \t\r\n"))
        found = ""
    else:
        word = _WORD.match(text, offset)
        found = word.group() if word else text[offset]
    refusal = _Refusal(text=text, offset=offset, found=found, expected=frozenset(expected))
    for explanation in _EXPLANATIONS:
        diagnostic = explanation(refusal)
        if diagnostic is not None:
            return diagnostic
    message = f"{_found_words(refusal)}, expected {_expected_words(refusal)}"
    return refusal.diagnostic(Rule.SYNTAX, message, _hint(refusal))


def _unterminated_string(refusal: _Refusal) -> Diagnostic:
    line_end = refusal.text.find("\n", refusal.offset)
    line_end = len(refusal.text) if line_end < 0 else line_end
    line = refusal.text[refusal.offset : line_end].rstrip("\r")
    return error(
        Rule.UNTERMINATED_STRING,
        span_at(refusal.text, refusal.offset, refusal.offset + len(line)),
        "this string is not closed on its line",
        'close it with `"`; write `\\n` for a line break and `\\\\` for a backslash',
    )


def _unterminated_comment(refusal: _Refusal) -> Diagnostic | None:
    start = refusal.offset - 1 if refusal.found == "*" else refusal.offset
    if start < 0 or not refusal.text.startswith("/*", start):
        return None
    return error(
        Rule.UNTERMINATED_COMMENT,
        span_at(refusal.text, start, start + 2),
        "this comment is never closed",
        "close it with `*/`; comments do not nest",
    )


def _missing_return(refusal: _Refusal) -> Diagnostic | None:
    if refusal.expected != {"RETURN"}:
        return None
    return refusal.diagnostic(
        Rule.SYNTAX,
        f"{_found_words(refusal)}, expected `return` after `match`",
        "name the columns to return: `return { $p.name }`",
    )


def _missing_where(refusal: _Refusal) -> Diagnostic | None:
    if refusal.expected != {"WHERE"}:
        return None
    return refusal.diagnostic(
        Rule.SYNTAX,
        f"{_found_words(refusal)}, expected `where`",
        "add a condition: `where id = $id`; every row is `where true`",
    )


def _misspelt_start(refusal: _Refusal) -> Diagnostic | None:
    if "QUERY" in refusal.expected and refusal.found:
        words: tuple[str, ...] = ("query",)
        hint = "a file is a list of queries: `query name() { ... }`"
    elif "MATCH" in refusal.expected and refusal.found:
        words = ("match", "insert", "upsert", "update", "delete")
        hint = "a query starts with `match`; a mutation with one of the other words"
    else:
        return None
    listed = ", ".join(f"`{each}`" for each in words)
    return refusal.diagnostic(
        Rule.SYNTAX,
        f"{_found_words(refusal)}, expected {listed}",
        did_you_mean(refusal.found, words) or hint,
    )


_EXPLANATIONS: Final[tuple[Callable[[_Refusal], Diagnostic | None], ...]] = (
    _unterminated_comment,
    _missing_return,
    _missing_where,
    _misspelt_start,
)


def _found_words(refusal: _Refusal) -> str:
    if not refusal.found:
        return "the file ends here"
    if refusal.found == '"':
        return "found a string"
    return f"found `{short(refusal.found)}`"


def short(word: str) -> str:
    """A word that fits into a message."""
    return word if len(word) <= 40 else word[:37] + "..."


def _expected_words(refusal: _Refusal) -> str:
    left = set(refusal.expected)
    parts: list[str] = []
    if left >= _CLAUSE_STARTS:
        parts.append("a clause")
        left -= {*_VALUE_WORDS, "OPTIONAL"}
    elif left >= _VALUE_STARTS:
        parts.append("an expression")
        left -= _VALUE_WORDS
    if left & {"EQUAL", "PLUS", "AND"}:
        # What could continue the expression is rarely what the author meant.
        left -= {*_OPERATORS, "DOT", "LPAR", "EDGE_NAME", "EDGE_VARIABLE", "OPEN_UNDIRECTED"}
        if not left:
            parts.append("an operator")
    parts += [words for terminal, words in _IN_WORDS.items() if terminal in left]
    parts += [f"`{each.lower()}`" for each in sorted(left) if each.lower() in KEYWORDS]
    if not parts:
        return "something else"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _hint(refusal: _Refusal) -> str:
    found, expected = refusal.found, refusal.expected
    before = refusal.text[max(0, refusal.offset - 1) : refusal.offset]
    other = _OTHER_LANGUAGES.get(before + found) or _OTHER_LANGUAGES.get(found.lower(), "")
    bare = _BARE_NAME.search(refusal.text[max(0, refusal.offset - 80) : refusal.offset])
    for condition, hint in (
        (bool(other), other),
        (found in {"<", ">", "-"}, "the direction of an edge follows from the types of its ends"),
        ("EDGE_NAME" in expected and found[:1].isupper(), "edges start with a small letter here"),
        ("TYPE_NAME" in expected and found[:1].islower(), "type names start with a capital letter"),
        ("VARIABLE" in expected and found[:1].isalpha(), f"variables start with `$`: `${found}`"),
        ("NAME" in expected and found[:1].isupper(), "names start with a small letter or `_`"),
        (found == ":" and bare is not None, "variables start with `$`: `$p: Person`"),
        (found == ".", "a number has digits on both sides of its point: `0.5`"),
        (found == "as" and "VARIABLE" not in expected, "an alias is a name: `as total`"),
        (not found and "RBRACE" in expected, "close the block with `}`"),
        (not found and "RPAR" in expected, "close the parenthesis with `)`"),
    ):
        if condition and hint:
            return short(hint) if found in hint and len(hint) > 120 else hint
    return ""
