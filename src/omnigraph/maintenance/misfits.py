"""Whether a version of a table has the columns that the schema declares.

Invariant: a version that does not is never published; no reader could make sense of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def misfit_of(columns: pa.Schema, declared: pa.Schema | None, *, version: int) -> str | None:
    """The first column that is not as the schema declares it: nothing could read it any more."""
    if declared is None:
        return "the schema has no such type"
    for field in declared:
        if field.name not in columns.names:
            return f"column {field.name!r} is missing in version {version}"
        stored = columns.field(field.name)
        if not stored.equals(field):
            return (
                f"column {field.name!r} of version {version} is "
                f"{_spelt(stored)}, the schema says {_spelt(field)}"
            )
        if not dict(field.metadata or {}).items() <= dict(stored.metadata or {}).items():
            return (
                f"column {field.name!r} of version {version} lost the metadata that Omnigraph "
                "gives its columns"
            )
    for name in columns.names:
        if name not in declared.names:
            return f"column {name!r} of version {version} is not in the schema"
    return None


def _spelt(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
