"""A small graph with names that try to leave their place, for the tests of views."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import omnigraph_lake as og

SCHEMA: Final = """
node Person { name: String @key  age: I32?  note: String?  picture: Blob?  seen: DateTime? }
node Company { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
"""
HOSTILE: Final = (
    "</script><script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 2'>",
    '" onmouseover="window.broken = 3" x="',
    "line\u2028separator\u2029here",
    "'};window.broken = 4;//",
    "<!--<script>",
    "]]></style><svg onload='window.broken = 5'>",
    "javascript:window.broken=6",
    "&lt; &#60; &amp; ${window.broken = 7}",
    "\u202egnp.exe",
)
FRIENDS: Final = "query friends() { match { $p: Person  $p $k:knows $q } return { $p, $k, $q } }"
PEOPLE: Final = "query people() { match { $p: Person } return { $p } }"


def build_graph(root: str) -> og.Graph:
    """Ann knows Bob, who knows Cy and so on to Eve; Ann and Bob work; names are hostile, too."""
    graph = og.init(root, schema=SCHEMA)
    names = ["Ann", "Bob", "Cy", "Dana", "Eve"]
    graph.write(
        {
            "Person": [
                {"name": "Ann", "age": 37, "picture": b"\x00\x01", "note": HOSTILE[0]},
                {"name": "Bob", "note": "a\u0001b\tc\nd\u0000"},
                *({"name": name} for name in names[2:]),
                *({"name": name, "note": name} for name in HOSTILE),
            ],
            "Company": [{"name": "Acme"}],
            "Knows": [
                *({"src": source, "dst": target} for source, target in pairwise(names)),
                *({"src": "Eve", "dst": name} for name in HOSTILE),
            ],
            "WorksAt": [{"src": name, "dst": "Acme"} for name in names[:2]],
        },
        actor="ann",
    )
    return graph
