"""The one entry to validation: inputs of any origin, checked by every rule, as one write.

Invariant: writes nothing and does not raise for invalid rows; the tables may be written if and only
if the report has no violations. Input that cannot be interpreted, such as an unknown type, raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph.errors import InvalidInputError
from omnigraph.schema.catalog import Catalog
from omnigraph.validation.constraints import table_rules
from omnigraph.validation.input.intake import one_by_one, table_key_of, take_in
from omnigraph.validation.input.named_types import resolved_types
from omnigraph.validation.keyed_checks import check_keyed
from omnigraph.validation.modes import WriteMode
from omnigraph.validation.pinned import PinnedTables
from omnigraph.validation.row_checks import check_rows
from omnigraph.validation.violations import BadRows, ViolationReport, report_of
from omnigraph.validation.write_effects import ProposedWrite


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedWrite:
    """Everything a commit needs to know about a write, by table key.

    `deletions` holds the ids to delete before the rows are written: those named and those of
    cascaded edges, without the ones a merge or an overwrite removes anyway.
    `bad_rows` holds the input positions with at least one violation. `read_set` names the tables
    whose pinned content the result depends on: if one of them changes, validate again.
    """

    tables: Mapping[str, pa.Table]
    mode: WriteMode
    deletions: Mapping[str, pa.StringArray]
    report: ViolationReport
    bad_rows: Mapping[str, pa.Int64Array]
    read_set: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenWrite:
    """A caller's rows in their final shape, and the violations that do not depend on the graph.

    It can be checked against one state of the graph after the other: a caller's stream is read
    once, and generated ids do not change.
    """

    proposed: ProposedWrite
    findings: tuple[BadRows, ...]


def validate(
    inputs: Mapping[str, object],
    *,
    mode: WriteMode,
    catalog: Catalog,
    pinned: PinnedTables,
    new_id: Callable[[], str],
    deleted: Mapping[str, object] | None = None,
) -> ValidatedWrite:
    """Check rows and deletes of any number of types against the rules and the pinned graph."""
    taken = take_write(inputs, deleted=deleted or {}, mode=mode, catalog=catalog, new_id=new_id)
    return check_write(taken, catalog, pinned)


def take_write(
    inputs: Mapping[str, object],
    *,
    deleted: Mapping[str, object],
    mode: WriteMode,
    catalog: Catalog,
    new_id: Callable[[], str],
) -> TakenWrite:
    """Read the caller's input, once, and make the checks that do not need the graph.

    `deleted` maps types to ids; deleting a node deletes its edges, and an id that does not exist is
    no fault. Types are named as in the schema, or by table key (`node:X`, `edge:X`) where a node
    type and an edge type share a name.
    """
    rules = table_rules(catalog)
    findings: list[BadRows] = []
    tables: dict[str, pa.Table] = {}
    for declared, source in resolved_types(inputs, catalog):
        taken = take_in(declared, source, new_ids=one_by_one(new_id))
        tables[taken.table_key] = taken.table
        findings += taken.findings
        findings += check_rows(taken.table, rules[taken.table_key], unreadable=taken.unreadable)
    write = ProposedWrite(
        tables=tables,
        mode=mode,
        deleted={
            table_key_of(declared): _id_array(ids, declared.name)
            for declared, ids in resolved_types(deleted, catalog)
        },
    )
    return TakenWrite(proposed=write, findings=tuple(findings))


def check_write(taken: TakenWrite, catalog: Catalog, pinned: PinnedTables) -> ValidatedWrite:
    """Check the input against the pinned graph."""
    keyed = check_keyed(taken.proposed, table_rules(catalog), pinned)
    findings = (*taken.findings, *keyed.findings)
    return ValidatedWrite(
        tables=taken.proposed.tables,
        mode=taken.proposed.mode,
        deletions=keyed.deletions,
        report=report_of(findings),
        bad_rows=_bad_rows(findings),
        read_set=keyed.read_set,
    )


def _id_array(ids: object, type_name: str) -> pa.StringArray:
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
        raise _unreadable_ids(type_name, f"found {type(ids).__name__}")
    try:
        given = _texts(ids)
    except Exception as error:  # a caller's iterable may raise anything
        raise _unreadable_ids(type_name, f"{error!s:.200}") from error
    return pc.unique(given).drop_null()


def _texts(ids: Iterable[object]) -> pa.Array | pa.ChunkedArray:
    if isinstance(ids, pa.Array | pa.ChunkedArray):
        if not _is_text(ids.type):
            raise TypeError(f"ids are text, found {ids.type}")
        texts = ids.cast(pa.string())
        texts.validate(full=True)
        return texts
    listed = list(ids)
    if any(isinstance(each, bytes | bytearray) for each in listed):
        raise TypeError("ids are text, found bytes")
    return pa.array(listed, pa.string())


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pat.is_dictionary(kind) else kind
    return bool(pat.is_string(plain) or pat.is_large_string(plain) or pat.is_string_view(plain))


def _unreadable_ids(type_name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"cannot read the ids of {type_name} to delete: {why}",
        next_step="Give a list or an Arrow array of strings.",
    )


def _bad_rows(findings: Iterable[BadRows]) -> dict[str, pa.Int64Array]:
    by_table: dict[str, list[pa.Int64Array]] = {}
    for finding in findings:
        if len(finding.rows):
            by_table.setdefault(finding.table_key, []).append(finding.rows)
    merged = {key: pc.unique(pa.chunked_array(rows)) for key, rows in by_table.items()}
    return {key: rows.take(pc.sort_indices(rows)) for key, rows in merged.items()}
