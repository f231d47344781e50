"""What an operation may ask of the store: the numbers of the reference page on costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Bound(NamedTuple):
    """The most requests that an operation may make, and the most of them in a row."""

    requests: int
    serial: int


BOUNDS: Final[Mapping[str, Bound]] = {
    "open r": Bound(7, 5),
    "open rw": Bound(10, 8),
    "point query": Bound(22, 13),
    "point query, again": Bound(1, 1),
    "1 hop": Bound(16, 12),
    "1 hop, again": Bound(1, 1),
    "status": Bound(45, 24),
    "commit of one row, first": Bound(29, 23),
    "commit of one row (merge)": Bound(18, 15),
    "commit of one row (append)": Bound(15, 12),
    "commit of one row, empty table": Bound(16, 14),
    "commit of one edge": Bound(20, 19),
    "branch create": Bound(19, 19),
    "first commit on a branch": Bound(60, 53),
    "merge, fast-forward": Bound(32, 31),
    "merge, three-way": Bound(61, 58),
    "optimize, nothing to do": Bound(72, 50),
    "cleanup, preview": Bound(320, 200),
    "check": Bound(380, 300),
    "check, one other branch": Bound(387, 305),
    "branch list, one other branch": Bound(28, 19),
}
"""By operation, on a graph of ten tables: what is needed today and a little more."""
