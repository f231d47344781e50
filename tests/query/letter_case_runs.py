"""The runs of the table of letter case, from the Unicode data of Python 3.11 (Unicode 14.0).

`python -m tests.query.letter_case_runs` prints them for `engine/expressions/letter_case.py`. They
are pinned: a newer Unicode version changes answers of queries, so it comes with a new format.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from tests.query.function_values import simple_lower, simple_upper


def runs_of(mapping: Callable[[str], str]) -> str:
    """Every run as `first.count.step.difference`; the first code point in hexadecimal."""
    return " ".join(
        f"{first:x}.{count}.{step}.{difference}"
        for first, count, step, difference in _runs(mapping)
    )


def _runs(mapping: Callable[[str], str]) -> Iterator[tuple[int, int, int, int]]:
    changes = {
        code: ord(mapping(chr(code))) - code
        for code in range(0x110000)
        if not 0xD800 <= code < 0xE000 and mapping(chr(code)) != chr(code)
    }
    done: set[int] = set()
    for first, difference in changes.items():
        if first in done:
            continue
        lengths = {}
        for step in (1, 2):
            count = 1
            while changes.get(first + count * step) == difference:
                count += 1
            lengths[step] = count
        step = 2 if lengths[2] > lengths[1] else 1
        done.update(range(first, first + lengths[step] * step, step))
        yield first, lengths[step], step, difference


if __name__ == "__main__":
    for name, mapping in (("_LOWER", simple_lower), ("_UPPER", simple_upper)):
        lines = textwrap.wrap(runs_of(mapping), 96)
        print(f'{name}: Final = """\n' + "\n".join(lines) + '\n"""')
