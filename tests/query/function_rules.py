"""The rules of scalar functions as examples: an expression and the value that it must have.

The evaluator, the local engine and Spark are each asked for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PARAMETERS: Final = (
    "$none: String?, $no_number: I64?, $minus: I64, $word: String, $regex: String, $spaces: String"
)
GIVEN: Final[Mapping[str, Any]] = {
    "none": None,
    "no_number": None,
    "minus": -1,
    "word": "ab",
    "regex": "^b",
    "spaces": "\u00a0\u3000x\u2003\u0085",
}

TEXT: Final[tuple[tuple[str, Any], ...]] = (
    ('lower("ABC xyz 7")', "abc xyz 7"),
    ('lower("ÀÉÎ \u0391Σ Straße")', "àéî \u03b1\u03c3 straße"),
    ('lower("İI")', "ii"),
    ('lower("E\u0301")', "e\u0301"),
    ('lower("")', ""),
    ("lower($none)", None),
    ('upper("abc XYZ 7")', "ABC XYZ 7"),
    ('upper("straße ŉ ﬁ \u0131i")', "STRAßE ŉ ﬁ II"),
    ('upper("ᾳ ς ǆ")', "ᾼ Σ Ǆ"),
    ('upper("\U00010428")', "\U00010400"),
    ("upper($none)", None),
    ('trim(" a\\tb \\r\\n\\t")', "a\tb"),
    ("trim($spaces)", "x"),
    ('trim("\u200bx")', "\u200bx"),
    ('trim("  ")', ""),
    ("trim($none)", None),
    ('length("")', 0),
    ('length("e\u0301\U0001f600")', 3),
    ("length($none)", None),
    ('concat("a", $word, "")', "aab"),
    ('concat("a", $none)', None),
    ('substring("häuser", 1, 3)', "äus"),
    ('substring("abc", 1)', "bc"),
    ('substring("abc", 3)', ""),
    ('substring("abc", 2, 9223372036854775807)', "c"),
    ('substring("abc", 9223372036854775807, 1)', ""),
    ('substring("abc", 18446744073709551615)', ""),
    ('substring("abc", 0, 0)', ""),
    ('substring("\U0001f600x", 1, 1)', "x"),
    ('substring("abc", $minus)', None),
    ('substring("abc", 0, $minus)', None),
    ('substring("abc", $no_number, 1)', None),
    ('substring("abc", length("a"), length("bc") - 1)', "b"),
    ('replace("aaa", "aa", "b")', "ba"),
    ('replace("abc", "", "x")', "abc"),
    ('replace("a.c", ".", "\\\\1$")', "a\\1$c"),
    ('replace("abc", "b", $none)', None),
    ('split("a,,b,", ",")', ("a", "", "b", "")),
    ('split("", ",")', ("",)),
    ('split("a.b|c", ".b|")', ("a", "c")),
    ('split("xabyab", $word)', ("x", "y", "")),
    ('split("a\\\\Eb", "\\\\E")', ("a", "b")),
    ('split($none, ",")', None),
    ('split("a", $none)', None),
    ('like("abc", "a%")', True),
    ('like("abc", "a_c")', True),
    ('like("abc", "b")', False),
    ('like("a\\nb", "a_b")', True),
    ('like("\U0001f600", "_")', True),
    ('like("e\u0301", "_")', False),
    ('like("50%", "50\\\\%")', True),
    ('like("505", "50\\\\%")', False),
    ('like("a\\\\b", "a\\\\\\\\b")', True),
    ('like("a.c", "a.c")', True),
    ('like("abc", "a.c")', False),
    ('like("ABC", "abc")', False),
    ('like("", "%")', True),
    ('like("", "_")', False),
    ('like("ab\\n", "ab")', False),
    ("like($none, $word)", None),
    ('like("ab", $none)', None),
    ('matches("abc", "b")', True),
    ('matches("abc", "^b")', False),
    ('matches("abc", $regex)', False),
    ('matches("bc", $regex)', True),
    ('matches("ab\\n", "b$")', False),
    ('matches("a\\nb", "a.b")', False),
    ('matches("é", "^.$")', True),
    ('matches("", "")', True),
    ('matches("é", "[[:alpha:]]")', False),
    ('matches("é", "\\\\w")', False),
    ('matches("ä", "\\\\pL")', True),
    ('matches("ABC", "(?i)abc")', True),
    ("matches($none, $word)", None),
    ('matches("ab", $none)', None),
)

RULES: Final = TEXT
OF_RE2_ALONE: Final = frozenset({'matches("é", "[[:alpha:]]")', 'matches("ä", "\\\\pL")'})
"""Rules about patterns that Python does not have, so the evaluator cannot know them."""
