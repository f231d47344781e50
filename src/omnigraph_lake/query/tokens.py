"""Classifies the words of a query text as keyword, name or edge, by their neighbours.

Invariant: tokens are returned in order, each once; only their kind can change.
An edge may be called like an operator and a property like a keyword, so one word alone is
ambiguous, and the grammar has one token of lookahead.

Translates a syntax error of the grammar to a message for the author of a query.

Invariant: exactly one diagnostic per refusal, never a token name of the grammar in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from lark import Token

from omnigraph_lake.language.diagnostics import Diagnostic, Refusal, did_you_mean, span_at
from omnigraph_lake.query.diagnostics import Rule, error

KEYWORDS: Final = frozenset(
    {
        *("query", "match", "return", "distinct", "having", "by", "order", "limit", "offset"),
        "optional",
        *("not", "and", "or", "in", "is", "null", "true", "false"),
        *("contains", "starts_with", "ends_with", "as", "asc", "desc"),
        *("insert", "upsert", "replace", "update", "delete", "set", "where"),
        *("case", "when", "then", "else", "end"),
    }
)
SUB_PATTERNS: Final = frozenset({"exists", "count"})
"""Keywords in front of a brace, names everywhere else."""
_OF_CASES: Final = frozenset({"case", "when", "then", "else", "end"})
"""Keywords of an open `case` alone; elsewhere they are names."""
_NEVER_EDGES: Final = frozenset({"and", "or", "in", "is", "as", "not"})
_OPERATOR_WORDS: Final = frozenset({"contains", "starts_with", "ends_with"})
_VALUE_NAMES: Final = frozenset({"null", "true", "false"})
_NEVER_OPERANDS: Final = frozenset(
    {*_NEVER_EDGES, *_OPERATOR_WORDS, *_VALUE_NAMES, "where", "return"}
)
_OPERAND_ENDS: Final = frozenset({"VARIABLE", "NUMBER", "STRING", "RPAR", "RSQB", "RBRACE"})
_STATEMENTS: Final = frozenset({"insert", "upsert", "replace", "update", "delete"})
_COMPARISONS: Final = frozenset(
    {"EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"}
)
_BEFORE_A_NAME: Final = frozenset({"LBRACE", "COMMA", "COLON"})
_BEHIND_A_NAME: Final = frozenset({"RBRACE", "COMMA"})
_EDGE_ENDS: Final = frozenset({"EDGE_NAME", "FORWARD"})
_BEFORE_AN_OPERAND: Final = frozenset(
    {
        *_EDGE_ENDS,
        *_COMPARISONS,
        *("CONTAINS", "STARTS_WITH", "ENDS_WITH", "IN", "NOT", "AND", "OR", "AS"),
        *("PLUS", "MINUS", "STAR", "SLASH", "PERCENT"),
    }
)
"""Behind one of these a variable is the last word of a clause, if another variable follows it."""
_CONTINUES_A_CLAUSE: Final = frozenset(
    {*_COMPARISONS, "COLON", "DOT", "PLUS", "MINUS", "STAR", "SLASH", "PERCENT"}
)
_BEFORE_A_VALUE: Final = frozenset({"LPAR", "COMMA"})
_NAME: Final = "NAME"
_VARIABLE: Final = "VARIABLE"


class WordSorter:
    """The step between lexer and parser; holds no state, so one instance serves all."""

    always_accept = ()

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """The same tokens, words classified."""
        return iter(sort_words(list(stream)))


def sort_words(tokens: Sequence[Token]) -> list[Token]:
    """Every token with the kind its neighbours give it."""
    # Parameters in front of a body without a name.
    parameters = _declared(tokens, 1) if _kind(tokens, 0) == "LPAR" else frozenset[str]()
    is_tail = False
    kinds = [str(token.type) for token in tokens]
    of_cases = _sort_cases(tokens)
    for index, token in enumerate(tokens):
        if index in of_cases:
            kinds[index] = token.value.upper()
        if kinds[index] != _NAME:
            continue
        if token.value == "query" and _kind(tokens, index + 2) == "LPAR":
            parameters, is_tail = _declared(tokens, index + 3), False
        if is_tail:
            # Behind `having` are no edges: `having n > $least limit $most`.
            _sort_keyword(tokens, index, kinds)
        else:
            _sort_word(tokens, index, kinds, parameters)
            is_tail = kinds[index] == "HAVING"
    return [
        token if token.type == kind else token.update(type=kind)
        for token, kind in zip(tokens, kinds, strict=True)
    ]


def _sort_cases(tokens: Sequence[Token]) -> frozenset[int]:
    """The words that belong to a `case`, which begins where `when` follows and ends with `end`.

    Where an operand is expected, such a word is a name. A block inside is a text of its own.
    """
    words: set[int] = set()
    open_cases = [0]
    for index, token in enumerate(tokens):
        if token.type == "LBRACE":
            open_cases.append(0)
        elif token.type == "RBRACE" and len(open_cases) > 1:
            open_cases.pop()
        if token.value == "case" and _value(tokens, index + 1) == "when":
            is_word = _kind(tokens, index - 1) != "DOT"
            open_cases[-1] += is_word
        elif token.value in _OF_CASES and open_cases[-1]:
            begins = index - 1 in words and _value(tokens, index - 1) == "case"
            is_word = begins or _ends_operand(tokens, index - 1, words)
            open_cases[-1] -= is_word and token.value == "end"
        else:
            continue
        if is_word:
            words.add(index)
    return frozenset(words)


def _ends_operand(tokens: Sequence[Token], index: int, words: set[int]) -> bool:
    """Whether an operand can end with a token."""
    if index in words:
        return _value(tokens, index) == "end"
    if _kind(tokens, index) == _NAME:
        is_operator = tokens[index].value in _NEVER_OPERANDS - _VALUE_NAMES
        return not is_operator or _kind(tokens, index - 1) == "DOT"
    return _kind(tokens, index) in _OPERAND_ENDS


def _sort_word(
    tokens: Sequence[Token], index: int, kinds: list[str], parameters: frozenset[str]
) -> None:
    last = _last_alternative(tokens, index)
    back, on = _kind(tokens, index - 1) == "LESS", _kind(tokens, last + 1) == "GREATER"
    start = index - back
    named = _follows_edge_variable(tokens, start)
    if named and not on and _binds_any_type(tokens, index, kinds):
        kinds[index] = "ANY_TYPE"
        return
    if named:
        kinds[start - 2] = "EDGE_VARIABLE"
    if (back or on) and (named or _is_directed(tokens, index, last, back=back, on=on)):
        if back:
            kinds[start] = "BACKWARD"
        if on:
            kinds[last + 1] = "FORWARD"
        _name_edges(kinds, index, last)
    elif named or _stands_between_ends(tokens, index, parameters):
        _name_edges(kinds, index, last)
    elif _is_any_type(tokens, index):
        kinds[index] = "ANY_TYPE"
    else:
        _sort_keyword(tokens, index, kinds)


def _sort_keyword(tokens: Sequence[Token], index: int, kinds: list[str]) -> None:
    keywords = KEYWORDS - _OF_CASES
    is_keyword = tokens[index].value in keywords and not _is_plain_name(tokens, index)
    if is_keyword or _opens_sub_pattern(tokens, index):
        kinds[index] = tokens[index].value.upper()


def _last_alternative(tokens: Sequence[Token], index: int) -> int:
    """The last of the words that `|` joins to the one at `index`."""
    while _kind(tokens, index + 1) == "PIPE" and _kind(tokens, index + 2) == _NAME:
        index += 2
    return index


def _name_edges(kinds: list[str], first: int, last: int) -> None:
    for index in range(first, last + 1, 2):
        kinds[index] = "EDGE_NAME"


def _is_any_type(tokens: Sequence[Token], index: int) -> bool:
    """Whether this is the `_` of `$n: _`."""
    return (
        tokens[index].value == "_"
        and _kind(tokens, index - 1) == "COLON"
        and _kind(tokens, index - 2) == _VARIABLE
    )


def _binds_any_type(tokens: Sequence[Token], index: int, kinds: Sequence[str]) -> bool:
    """Whether `$a $n: _` is the end of one clause and `$n: _` the next one, not an edge."""
    if not _is_any_type(tokens, index):
        return False
    if _kind(tokens, index + 1) != _VARIABLE:
        return True
    before = kinds[index - 4] if index >= 4 else ""
    ends_clause = before in _BEFORE_AN_OPERAND or (
        before == "RBRACE" and _closes_bounds(tokens, index - 4, kinds)
    )
    # The right end of an edge is the end of a clause.
    continues = _kind(tokens, index + 2) in _CONTINUES_A_CLAUSE
    return ends_clause or continues


def _closes_bounds(tokens: Sequence[Token], index: int, kinds: Sequence[str]) -> bool:
    """Whether a brace closes bounds of hops: `{1,2}` or `{1,}` behind an edge."""
    opening = index
    while opening > max(index - 4, 0) and _kind(tokens, opening) != "LBRACE":
        opening -= 1
    return opening > 0 and kinds[opening - 1] in _EDGE_ENDS


def _kind(tokens: Sequence[Token], index: int) -> str:
    return str(tokens[index].type) if 0 <= index < len(tokens) else ""


def _value(tokens: Sequence[Token], index: int) -> str:
    return str(tokens[index].value) if 0 <= index < len(tokens) else ""


def _declared(tokens: Sequence[Token], index: int) -> frozenset[str]:
    """The parameters between the parentheses that open in front of `index`."""
    parameters: set[str] = set()
    depth = 1
    while depth > 0 and index < len(tokens) and _kind(tokens, index) != "LBRACE":
        kind = _kind(tokens, index)
        if kind == _NAME and tokens[index].value == "query":
            break  # a header that is not closed; a text may have very many of them
        depth += (kind == "LPAR") - (kind == "RPAR")
        if kind == _VARIABLE:
            parameters.add(_value(tokens, index))
        index += 1
    return frozenset(parameters)


def _opens_bounds(tokens: Sequence[Token], index: int) -> bool:
    return _kind(tokens, index) == "LBRACE" and _kind(tokens, index + 1) == "NUMBER"


def _follows_edge_variable(tokens: Sequence[Token], index: int) -> bool:
    return (
        _kind(tokens, index - 1) == "COLON"
        and _kind(tokens, index - 2) == _VARIABLE
        and _kind(tokens, index - 3) == _VARIABLE
    )


def _stands_between_ends(tokens: Sequence[Token], index: int, parameters: frozenset[str]) -> bool:
    word, left = tokens[index].value, _value(tokens, index - 1)
    if _kind(tokens, index - 1) != _VARIABLE or word in _NEVER_EDGES:
        return False
    is_order = word == "by" and _kind(tokens, index - 2) in _BEFORE_A_VALUE  # `first($x by $y)`
    is_operator = word in _OPERATOR_WORDS and left in parameters
    if _value(tokens, index - 2) == "limit" or is_order or is_operator:
        return False
    if word in _STATEMENTS and (
        _value(tokens, index - 2) == "delete" or _kind(tokens, index - 2) == "COMMA"
    ):
        return False  # `delete $a update $b set ...`
    if _kind(tokens, index + 1) == "PIPE":
        return True
    if _kind(tokens, index + 1) == _VARIABLE:
        # Only a value has a property: `$given contains $p.name` is a condition.
        return word not in _OPERATOR_WORDS or _kind(tokens, index + 2) != "DOT"
    # A block may begin with a number: `optional { 1 < $x.age }` has no bounds.
    certain = word not in {*KEYWORDS, *SUB_PATTERNS} or _kind(tokens, index + 3) == "COMMA"
    return certain and _opens_bounds(tokens, index + 1)


def _is_directed(tokens: Sequence[Token], index: int, last: int, *, back: bool, on: bool) -> bool:
    """Whether words beside `<` or `>` are edges between two variables, not an operand."""
    if _kind(tokens, index - back - 1) != _VARIABLE:
        return False
    if back and on:
        return True
    after = last + 1 + on
    word = tokens[index].value
    if word in _VALUE_NAMES or (word in SUB_PATTERNS and _kind(tokens, after) != _VARIABLE):
        return False
    return _kind(tokens, after) == _VARIABLE or _opens_bounds(tokens, after)


def _follows_path(tokens: Sequence[Token], index: int) -> bool:
    """Whether a word is the `by` of `as $path by weight`."""
    return (
        _value(tokens, index) == "by"
        and _kind(tokens, index - 1) == _VARIABLE
        and _value(tokens, index - 2) == "as"
    )


def _opens_sub_pattern(tokens: Sequence[Token], index: int) -> bool:
    return (
        tokens[index].value in SUB_PATTERNS
        and _kind(tokens, index + 1) == "LBRACE"
        and _kind(tokens, index - 1) != "DOT"
        and _value(tokens, index - 1) != "as"
    )


def _is_plain_name(tokens: Sequence[Token], index: int) -> bool:
    """Whether a keyword is where only a name can be: a property, an alias, a query."""
    before, after = _value(tokens, index - 1), _kind(tokens, index + 1)
    if _kind(tokens, index - 1) == "DOT" or after == "COLON":
        return True
    if tokens[index].value == "replace" and after != "TYPE_NAME":
        return True  # the function
    alias = before == "as" and _kind(tokens, index - 2) != "DOT"
    if _follows_path(tokens, index - 1):
        return True
    if alias or (before == "query" and after == "LPAR"):
        return True
    if tokens[index].value in _NEVER_OPERANDS:
        return False
    closed = after in _BEHIND_A_NAME or _value(tokens, index + 1) in ("asc", "desc")
    alone = closed and _kind(tokens, index - 1) in _BEFORE_A_NAME
    return alone or after in _COMPARISONS


_IN_WORDS: Final = {
    "NAME": "a name",
    "TYPE_NAME": "a type name",
    "VARIABLE": "a variable",
    "ANNOTATION": "an annotation",
    "STRING": "a string",
    "NUMBER": "a number",
    "EDGE_NAME": "the name of an edge",
    "PIPE": "`|`",
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
_VALUE_WORDS: Final = frozenset(
    {*_VALUE_STARTS, "FALSE", "MINUS", "NAME", "NOT", "EXISTS", "COUNT", "CASE"}
)
_BEHIND_MATCH: Final = frozenset({"RETURN", "INSERT", "UPSERT", "REPLACE", "UPDATE", "DELETE"})
_CLAUSE_STARTS: Final = frozenset({"OPTIONAL", "VARIABLE"})
_WORD: Final = re.compile(r"[$@]?\w+|[<>!]=|\.\.|==|&&|\|\|")
_VARIABLE_BEFORE: Final = re.compile(r"\$[a-z_]\w*\s*$")
_BARE_NAME: Final = re.compile(r"(?<![$.@\w])[a-z_]\w*\s*$")
_PROPERTY_BEFORE: Final = re.compile(r"\$[a-z_]\w*\.[a-z_]\w*$")
_PATH_BEHIND: Final = re.compile(r"\.(\w+(?:\.\w+)*)")
_OTHER_STATEMENT: Final = re.compile(
    r"select\b|with\b|create\b|merge\b|unwind\b|call\b|(optional\s+)?match\s*\(", re.IGNORECASE
)
"""How queries of SQL and Cypher start, where a query starts here."""
_WITHOUT_BRACE: Final = re.compile(r"\(|[a-z_]\w*\s*=", re.IGNORECASE)
"""What follows `match` in Cypher, and `set` in SQL."""
_SQL_AND_CYPHER: Final = (
    "SQL and Cypher are not understood: see docs/how-to/from-sql.md and docs/how-to/from-cypher.md"
)
_OTHER_LANGUAGES: Final = {
    "==": "equality is written `=`",
    "!": 'negation is the word `not`, "is not equal" is `!=`',
    "&&": "conditions are joined by the word `and`",
    "||": "conditions are joined by the word `or`",
    "&": "conditions are joined by the word `and`",
    "|": "conditions are joined by the word `or`",
    ";": "clauses and statements are not separated by anything",
    "'": 'strings are written in double quotes: `"text"`',
    "->": "an edge that is followed forward is written `$a knows> $b`",
    "<-": "an edge that is followed backward is written `$a <knows $b`",
    "skip": "rows are skipped by `offset`",
    "select": "columns are listed in `return { ... }`",
    "create": "rows are created by `insert`",
    "merge": "rows are created or updated by `upsert`",
    "by": "write `order { ... }`; columns that are no aggregates are the keys of groups",
    "group": "columns that are no aggregates are the keys of groups",
}


class _Refusal(Refusal):
    def diagnostic(self, rule: Rule, message: str, hint: str = "") -> Diagnostic:
        return error(rule, self.span, message, hint)


def is_sql_or_cypher(text: str) -> bool:
    """Whether a text starts as a statement of another language."""
    return _OTHER_STATEMENT.match(text.lstrip()) is not None


def explain_character(text: str, offset: int) -> Diagnostic:
    """Why no token of the language starts at `offset`."""
    character = text[offset : offset + 1]
    refusal = _Refusal(text=text, offset=offset, found=character, expected=frozenset())
    if character == '"':
        return _unterminated_string(refusal)
    hint = _OTHER_LANGUAGES.get(text[offset : offset + 2]) or _OTHER_LANGUAGES.get(character, "")
    if is_sql_or_cypher(text):
        hint = _SQL_AND_CYPHER
    elif character.isdigit():
        hint = "numbers are written without an exponent: `1000.0` for 1e3"
    elif character in "$@":
        hint = f"a name in small letters follows `{character}` at once"
    elif not character.isascii():
        hint = "names use ASCII letters, digits and `_` only"
    return refusal.diagnostic(Rule.SYNTAX, f"found `{character}`, which is not valid here", hint)


def explain_refusal(text: str, offset: int, expected: Collection[str]) -> Diagnostic:
    """Why the grammar, which expects `expected`, does not accept the text at `offset`."""
    refusal = _Refusal.at(text, offset, expected, word=_WORD)
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
    if "RETURN" not in refusal.expected or not refusal.expected <= _BEHIND_MATCH:
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
    bodies = ("match", "insert", "upsert", "replace", "update", "delete")
    if "QUERY" in refusal.expected and refusal.found:
        words = ("query", *(bodies if "MATCH" in refusal.expected else ()))
        hint = "a file is a list of queries: `query name() { ... }`"
    elif "MATCH" in refusal.expected and refusal.found:
        words = bodies
        hint = "a query starts with `match`; a mutation with one of the other words"
    else:
        return None
    if _OTHER_STATEMENT.match(refusal.text, refusal.offset):
        suggested = _SQL_AND_CYPHER
    else:
        suggested = did_you_mean(refusal.found, words) or hint
    listed = ", ".join(f"`{word}`" for word in words)
    return refusal.diagnostic(
        Rule.SYNTAX,
        f"{_found_words(refusal)}, expected {listed}",
        suggested,
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
    terminals = set(refusal.expected)
    parts: list[str] = []
    if terminals >= _CLAUSE_STARTS:
        parts.append("a clause")
        terminals -= {*_VALUE_WORDS, "OPTIONAL"}
    elif terminals >= _VALUE_STARTS:
        parts.append("an expression")
        terminals -= _VALUE_WORDS
    if terminals & {"EQUAL", "PLUS", "AND"}:
        # What could continue the expression is rarely what the author meant.
        terminals -= {*_OPERATORS, "DOT", "LPAR", "EDGE_NAME", "EDGE_VARIABLE", "BACKWARD"}
        if not terminals:
            parts.append("an operator")
    parts += [words for terminal, words in _IN_WORDS.items() if terminal in terminals]
    parts += [
        f"`{terminal.lower()}`" for terminal in sorted(terminals) if terminal.lower() in KEYWORDS
    ]
    if not parts:
        return "something else"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _starts_as_one_of_ours(refusal: _Refusal, text_before: str) -> bool:
    """Whether a statement of SQL or Cypher starts with a word of this language."""
    if "TYPE_NAME" in refusal.expected and refusal.found.lower() in {"into", "from"}:
        return True
    return (
        refusal.expected == {"LBRACE"}
        and text_before.split()[-1:] in (["match"], ["set"])
        and _WITHOUT_BRACE.match(refusal.text, refusal.offset) is not None
    )


def _json_value(refusal: _Refusal, text_before: str) -> str:
    """What is meant by a path behind a property; empty if there is none."""
    if (owner := _PROPERTY_BEFORE.search(text_before)) is None:
        return ""
    path = _PATH_BEHIND.match(refusal.text, refusal.offset)
    return "" if path is None else f'cast(json({owner.group()}, "{path.group(1)}") as String)'


def _hint(refusal: _Refusal) -> str:
    word, expected = refusal.found, refusal.expected
    before = refusal.text[max(0, refusal.offset - 1) : refusal.offset]
    other = _OTHER_LANGUAGES.get(before + word) or _OTHER_LANGUAGES.get(word.lower(), "")
    text_before = refusal.text[max(0, refusal.offset - 80) : refusal.offset]
    bare, variable = _BARE_NAME.search(text_before), _VARIABLE_BEFORE.search(text_before)
    json_value = _json_value(refusal, text_before)
    for condition, hint in (
        (_starts_as_one_of_ours(refusal, text_before), _SQL_AND_CYPHER),
        (bool(other), other),
        (word in {"<", ">", "-"}, "a direction is written `$a knows> $b` or `$a <knows $b`"),
        ("EDGE_NAME" in expected and word[:1].isupper(), "edges start with a small letter here"),
        ("TYPE_NAME" in expected and word[:1].islower(), "type names start with a capital letter"),
        ("VARIABLE" in expected and word[:1].isalpha(), f"variables start with `$`: `${word}`"),
        ("NAME" in expected and word[:1].isupper(), "names start with a small letter or `_`"),
        (word == ":" and bare is not None, "variables start with `$`: `$p: Person`"),
        (
            word == ":" and variable is not None,
            "the type of a variable is a clause of its own: `$p: Person  $p knows $q`",
        ),
        (bool(json_value), f"a value inside of Json is read by `{json_value}`"),
        (word == ".", "a number has digits on both sides of its point: `0.5`"),
        (word == "as" and "VARIABLE" not in expected, "an alias is a name: `as total`"),
        (not word and "RBRACE" in expected, "close the block with `}`"),
        (not word and "RPAR" in expected, "close the parenthesis with `)`"),
    ):
        if condition and hint:
            return short(hint) if word in hint and len(hint) > 120 else hint
    return ""
