"""Importing the package is cheap, and every name it promises is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import omnigraph

pytestmark = pytest.mark.unit


def test_every_public_name_resolves_and_the_list_is_sorted() -> None:
    assert omnigraph.__all__ == sorted(omnigraph.__all__)
    assert [name for name in omnigraph.__all__ if getattr(omnigraph, name) is None] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        omnigraph.nope  # noqa: B018


def test_importing_the_package_loads_neither_lance_nor_arrow_nor_spark() -> None:
    script = (
        "import sys, omnigraph, omnigraph.cli.main; "
        "print([m for m in ('lance', 'pyarrow', 'pyspark', 'rich', 'lark') if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    assert loaded.strip() == "[]"
