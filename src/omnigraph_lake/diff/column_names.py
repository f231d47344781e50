"""Which columns of two versions of a table are the same property, whatever their names are.

Invariant: columns with the number of one property are the same. Other columns are the same if they
have one name: a property that came again, or one that two branches added and a merge took for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import EdgeType, NodeType


def renamed_columns(
    before: NodeType | EdgeType | None, after: NodeType | EdgeType | None
) -> dict[str, str]:
    """The columns of the first version that have another name in the second.

    A column whose property is gone and whose name another one has now is called `NAME (before)`.
    """
    if before is None or after is None:
        return {}
    new_names = {prop.number: name for name, prop in after.properties.items()}
    renamed: dict[str, str] = {}
    taken = set[str]()
    for name, prop in before.properties.items():
        new_name = new_names.get(prop.number)
        if new_name is not None:
            taken.add(new_name)
            if new_name != name:
                renamed[name] = new_name
    for name, prop in before.properties.items():
        if prop.number not in new_names and name in taken:
            renamed[name] = f"{name} (before)"
    return renamed


class RowConversion(Protocol):
    """What is done to rows before their columns are renamed; picklable."""

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedColumns:
    """Gives rows of a version the names that their columns have in another one."""

    columns: pa.Schema = field(repr=False)
    renamed: Mapping[str, str]
    first: RowConversion | None = None

    @property
    def lifted(self) -> pa.Schema:
        return pa.schema(
            [
                column.with_name(self.renamed.get(column.name, column.name))
                for column in self.columns
            ]
        )

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        converted = rows if self.first is None else self.first(rows)
        return converted.rename_columns(
            [self.renamed.get(name, name) for name in converted.schema.names]
        )
