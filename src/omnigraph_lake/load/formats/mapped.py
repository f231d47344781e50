"""Apply a mapping to raw records: rows that passed all checks of a single row, or refusals.

Invariants:
- Every row that a rule yields is returned once, as a row or as a refusal; `SplitEnd` counts them,
  and the records that no rule takes. A record can yield several rows, which are checked and refused
  one by one at the place of the record.
- A value that a rule cannot parse stays as it came, so that the refusal quotes it.
- Ids of edges are the JSON array of the ids of their ends and of the columns that the rule names.
- Memory is bounded by a batch, and by the last rows that a distinct rule has yielded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.ids import canonical_column, join_spellings, key_properties
from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.load.formats.counts import NO_TYPE, RuleCounts, SourceCounts
from omnigraph_lake.load.formats.csv_files import cell_column, cell_row
from omnigraph_lake.load.formats.digests import digest_records, uses_digests
from omnigraph_lake.load.formats.json_record import Claim
from omnigraph_lake.load.formats.mapping import (
    Condition,
    EdgeMapping,
    Endpoint,
    NodeMapping,
    Parse,
    Rule,
    SourceMapping,
    UnknownColumns,
    ValueMapping,
)
from omnigraph_lake.load.formats.raw_batches import (
    RawBatch,
    RawRecords,
    TabularBatch,
    as_texts,
)
from omnigraph_lake.load.formats.records import Parsed, RecordDigests, Refusal, SplitEnd
from omnigraph_lake.load.formats.row_validator import (
    Places,
    RowValidator,
    ValidatedRows,
    in_input_order,
    together,
)
from omnigraph_lake.load.formats.values import Column
from omnigraph_lake.names import (
    ID_COLUMN,
    SOURCE_COLUMN,
    SOURCE_TYPE_COLUMN,
    TARGET_COLUMN,
    TARGET_TYPE_COLUMN,
    edge_table_key,
    node_table_key,
)
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.validation.constraints import rules_of
from omnigraph_lake.validation.input.intake import NewIds
from omnigraph_lake.validation.violations import Reason, shown

_TEXT: Final = ct.ScalarType(scalar=ct.Scalar.STRING)
_SEEN_MAX: Final = 1 << 18
"""So many rows of a distinct rule a task remembers; later it may yield a row again."""
_NAMES_MAX: Final = 256
"""Names of columns that a message may suggest for one that no record has."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=float, decimal_format="number")
_NO_ROWS: Final = ValidatedRows()
TRUE_WORDS: Final = ("true", "True", "TRUE", "t", "yes", "Yes", "YES", "y", "Y", "1")
FALSE_WORDS: Final = ("false", "False", "FALSE", "f", "no", "No", "NO", "n", "N", "0")
EPOCHS: Final = {"epoch": "s", "epoch_ms": "ms", "epoch_us": "us"}
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_TEXT_ITEMS: Final = frozenset({ct.Scalar.STRING, ct.Scalar.DATE, ct.Scalar.DATETIME})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows of one type before they are checked: values, the texts they came from, and places.

    `batch` has a record for each row, to show it.
    """

    batch: RawBatch
    columns: dict[str, pa.Array]
    originals: dict[str, pa.Array]
    doubted: npt.NDArray[np.bool_]

    @property
    def places(self) -> Places:
        return self.batch.places


@dataclass(slots=True)
class _Seen:
    """The rows that a distinct rule has yielded."""

    texts: set[str | None] = field(default_factory=set)

    def new_rows(self, texts: pa.StringArray) -> npt.NDArray[np.int64]:
        rows: list[int] = []
        for row, text in enumerate(texts.to_pylist()):
            if text not in self.texts:
                if len(self.texts) >= _SEEN_MAX:
                    self.texts.clear()
                self.texts.add(text)
                rows.append(row)
        return np.array(rows, np.int64)


class MappedParser:
    """Applies the mapping of one source, batch by batch."""

    def __init__(
        self,
        mapping: SourceMapping,
        catalog: ct.Catalog,
        *,
        new_ids: NewIds,
        partial: bool,
        where: str,
    ) -> None:
        self._mapping = mapping
        self._catalog = catalog
        self._where = where
        self._known = frozenset(
            name for path in mapping.paths() for name in (path, path.partition(".")[0])
        )
        self._has_digests = uses_digests(mapping)
        self._counts = SourceCounts(mapping.name, rules=[RuleCounts() for _ in mapping.rules])
        self._seen: dict[object, _Seen] = {}
        self._validators: dict[str, RowValidator] = {}
        self._new_ids = new_ids
        self._partial = partial

    def parse(self, records: Iterable[RawRecords]) -> Iterator[Parsed]:
        """All rows of the records, in order; the last item is `SplitEnd`.

        Raises:
            InvalidInputError: the records have a column that the mapping does not know.
        """
        lines = count = 0
        for raw in records:
            lines = raw.lines
            batch, refusals = self._without_unknown(raw.batch)
            if self._has_digests and len(batch):
                digests = digest_records(batch, self._mapping)
                batch = batch.with_digests(digests)
                yield RecordDigests(digests=digests, places=pa.array(batch.places, pa.uint32()))
            refused = self._refuse((*raw.refusals, *refusals))
            checked = together([refused, self._validate(batch)])
            count += sum(len(rows.places) for rows in checked.rows) + len(checked.refusals)
            yield from in_input_order(checked)
            if any(rule.records and not rule.rows for rule in self._counts.rules):
                names = dict.fromkeys([*self._counts.names, *batch.names()])
                self._counts.names = list(names)[:_NAMES_MAX]
        yield SplitEnd(lines=lines, records=count, counts=self._counts)

    def _refuse(self, refusals: Iterable[Refusal]) -> ValidatedRows:
        """Count records that no rule has taken."""
        refused = tuple(refusals)
        counts = self._counts.of_type(NO_TYPE)
        counts.records += len(refused)
        for refusal in refused:
            counts.reject(refusal.reason.value, is_derived=False)
        return ValidatedRows(refusals=refused)

    def _check_rows(
        self, number: int, rows: _Rows, validator: RowValidator, *, is_derived: bool
    ) -> ValidatedRows:
        """Check the rows of a rule, and count them."""
        checked = _check(rows, validator)
        self._counts.rules[number].rows += len(rows.places)
        counts = self._counts.of_type(validator.rules.table_key)
        for refusal in checked.refusals:
            counts.reject(refusal.reason.value, is_derived=is_derived)
        if not is_derived:
            return checked
        flags = (pa.repeat(pa.scalar(value=True), len(part.places)) for part in checked.rows)
        marked = zip(checked.rows, flags, strict=True)
        return replace(checked, rows=tuple(replace(part, is_derived=f) for part, f in marked))

    def _validate(self, batch: RawBatch) -> ValidatedRows:
        if not len(batch):
            return _NO_ROWS
        taken = np.zeros(len(batch), np.bool_)
        taken_by_type: dict[str, npt.NDArray[np.bool_]] = {}
        parts: list[ValidatedRows] = []
        for number, rule in enumerate(self._mapping.rules):
            mask = _meets(batch, rule.where)
            taken |= mask
            if not _is_derived(rule):
                key = _table_key(rule)
                taken_by_type[key] = mask | taken_by_type.get(key, np.False_)
            chosen = batch if mask.all() else batch.take(np.flatnonzero(mask))
            self._counts.rules[number].records += len(chosen)
            if rule.each is not None:
                self._counts.rules[number].inner_lists += chosen.count_inner(rule.each)
                chosen = chosen.unnest(rule.each, rule.each_split)
            if len(chosen):
                parts.append(self._rows_of(number, rule, chosen))
        for key, mask in taken_by_type.items():
            skipped = len(batch) - int(mask.sum())
            self._counts.of_type(key).records += skipped
            self._counts.of_type(key).skipped += skipped
        parts.append(self._refuse(self._untaken(batch, taken)))
        return together(parts)

    def _rows_of(self, number: int, rule: Rule, batch: RawBatch) -> ValidatedRows:
        if not _is_derived(rule):
            self._counts.of_type(_table_key(rule)).records += len(batch)
        if isinstance(rule, NodeMapping):
            return self._nodes(number, rule, batch)
        return self._edges(number, rule, batch)

    def _skip(self, rule: Rule, batch: RawBatch, kept: npt.NDArray[np.bool_]) -> RawBatch:
        """The records of which a rule yields rows."""
        if kept.all():
            return batch
        if not _is_derived(rule):
            self._counts.of_type(_table_key(rule)).skipped += len(batch) - int(kept.sum())
        return batch.take(np.flatnonzero(kept))

    def _nodes(self, number: int, rule: NodeMapping, batch: RawBatch) -> ValidatedRows:
        for path in rule.requires:
            has_value = batch.column(path).is_valid().to_numpy(zero_copy_only=False)
            batch = self._skip(rule, batch, has_value)
        validator = self._validator(node_table_key(rule.type))
        if rule.distinct:
            columns = [batch.column(value.column) for value in rule.properties.values()]
            seen = self._seen.setdefault(number, _Seen())
            batch = batch.take(seen.new_rows(_row_texts(columns)))
        if not len(batch):
            return _NO_ROWS
        extra: dict[str, pa.Array] = {}
        if number == 0 and self._mapping.kept_in is not None:
            extra[self._mapping.kept_in] = self._keep_unknown(batch)
        if rule.id is not None:
            extra[ID_COLUMN] = _values(batch, rule.id, _TEXT)[1]
        built = self._build(batch, rule.properties, extra, validator)
        return self._check_rows(number, built, validator, is_derived=rule.distinct)

    def _edges(self, number: int, rule: EdgeMapping, batch: RawBatch) -> ValidatedRows:
        validator = self._validator(edge_table_key(rule.type))
        ends = [self._end(end, batch) for end in (rule.source, rule.target)]
        created: list[ValidatedRows] = []
        present = ends[0].ids.is_valid().to_numpy(zero_copy_only=False)
        present &= ends[1].ids.is_valid().to_numpy(zero_copy_only=False)
        for end, ids in zip((rule.source, rule.target), ends, strict=True):
            if end.create:
                created.append(self._create(number, end, ids, batch, present))
        kept = present if rule.optional else np.ones(len(batch), np.bool_)
        rows = np.flatnonzero(kept)
        batch = self._skip(rule, batch, kept)
        if not len(rows):
            return together(created)
        mask = pa.array(rows)
        source, target = (end.ids.take(mask) for end in ends)
        extra = {SOURCE_COLUMN: source, TARGET_COLUMN: target}
        types = {SOURCE_TYPE_COLUMN: rule.source.type, TARGET_TYPE_COLUMN: rule.target.type}
        for name in end_type_columns(validator.declared):
            extra[name] = pa.repeat(types[name], len(rows))
        if not rule.new_id:
            extra[ID_COLUMN] = _edge_ids(batch, rule, source, target)
        built = self._build(batch, rule.properties, extra, validator)
        return together([*created, self._check_rows(number, built, validator, is_derived=False)])

    def _build(
        self,
        batch: RawBatch,
        properties: Mapping[str, ValueMapping],
        extra: Mapping[str, pa.Array],
        validator: RowValidator,
    ) -> _Rows:
        # The id is always there, because a table without columns has no rows.
        columns = {ID_COLUMN: pa.nulls(len(batch), pa.string()), **extra}
        originals = dict(columns)
        doubted = np.zeros(len(batch), np.bool_)
        for name, value in properties.items():
            column, originals[name] = _values(
                batch, value, validator.declared.properties[name].type
            )
            columns[name] = column.values
            if column.doubted is not None:
                doubted |= column.doubted
        return _Rows(batch=batch, columns=columns, originals=originals, doubted=doubted)

    def _end(self, end: Endpoint, batch: RawBatch) -> _EndIds:
        """The ids of the nodes at one end; a value that is none of its type stays as it is."""
        node = self._catalog.nodes[end.type]
        if node.key is None:
            (value,) = end.key.values()
            texts = _values(batch, value, _TEXT)[1]
            return _EndIds(ids=texts, columns={ID_COLUMN: texts})
        spellings: list[pa.Array] = []
        columns: dict[str, pa.Array] = {}
        for member in key_properties(node):
            column, original = _values(batch, end.key[member.name], member.type)
            columns[member.name] = column.values
            texts = original if pat.is_string(original.type) else original.cast(pa.string())
            spellings.append(_spell(member, column, texts))
        if len(spellings) == 1:
            return _EndIds(ids=spellings[0], columns=columns)
        complete = np.ones(len(batch), np.bool_)
        for spelling in spellings:
            complete &= spelling.is_valid().to_numpy(zero_copy_only=False)
        joined = join_spellings([spelling.fill_null("") for spelling in spellings])
        return _EndIds(ids=pc.if_else(pa.array(complete), joined, None), columns=columns)

    def _create(
        self,
        number: int,
        end: Endpoint,
        ids: _EndIds,
        batch: RawBatch,
        present: npt.NDArray[np.bool_],
    ) -> ValidatedRows:
        """The nodes of an end that this task has not yielded yet, with nothing but their key."""
        usable = present.copy()
        for values in ids.columns.values():
            usable &= values.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(usable)
        seen = self._seen.setdefault(end.type, _Seen())
        rows = rows[seen.new_rows(ids.ids.take(pa.array(rows)))]
        if not len(rows):
            return _NO_ROWS
        columns = {name: values.take(pa.array(rows)) for name, values in ids.columns.items()}
        columns.setdefault(ID_COLUMN, pa.nulls(len(rows), pa.string()))
        built = _Rows(
            batch=batch.take(rows),
            columns=columns,
            originals=columns,
            doubted=np.zeros(len(rows), np.bool_),
        )
        validator = self._validator(node_table_key(end.type))
        return self._check_rows(number, built, validator, is_derived=True)

    def _validator(self, table_key: str) -> RowValidator:
        if table_key not in self._validators:
            declared = self._catalog.tables()[table_key]
            self._validators[table_key] = RowValidator(
                declared=declared,
                rules=rules_of(declared),
                new_ids=self._new_ids,
                partial=self._partial,
            )
        return self._validators[table_key]

    def _without_unknown(self, batch: RawBatch) -> tuple[RawBatch, tuple[Refusal, ...]]:
        """The batch without records that have unknown columns, if these are errors."""
        if self._mapping.unknown is not UnknownColumns.ERROR:
            return batch, ()
        unknown = [name for name in batch.names() if name not in self._known]
        if not unknown:
            return batch, ()
        if isinstance(batch, TabularBatch):
            raise _unknown_column(self._where, unknown[0], self._known)
        others = batch.others(self._known)
        refusals = tuple(
            Refusal(
                place=int(batch.places[row]),
                type_name=None,
                reason=Reason.UNKNOWN_COLUMN,
                message=_no_rule(next(iter(names)), self._known),
                raw=batch.raw(row),
            )
            for row, names in enumerate(others)
            if names
        )
        rows = np.array([row for row, names in enumerate(others) if not names], np.int64)
        return batch.take(rows), refusals

    def _keep_unknown(self, batch: RawBatch) -> pa.Array:
        texts = [
            _ENCODER.encode(other).decode() if other else None
            for other in batch.others(self._known)
        ]
        return pa.array(texts, pa.string())

    def _untaken(self, batch: RawBatch, taken: npt.NDArray[np.bool_]) -> Iterator[Refusal]:
        conditions = [condition for rule in self._mapping.rules for condition in rule.where]
        for row in np.flatnonzero(~taken).tolist():
            column = conditions[0].column if conditions else ""
            value = batch.take(np.array([row])).column(column)[0].as_py() if column else None
            expected = ", ".join(
                dict.fromkeys(text for condition in conditions for text in condition.equals)
            )
            yield Refusal(
                place=int(batch.places[row]),
                type_name=None,
                reason=Reason.UNKNOWN_TYPE,
                message=f"{column}: found {shown(value)}, expected one of {expected:.200}",
                raw=batch.raw(row),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndIds:
    """The ids at one end of edges, and the values of the key that they are made of."""

    ids: pa.Array
    columns: Mapping[str, pa.Array]


def _table_key(rule: Rule) -> str:
    is_node = isinstance(rule, NodeMapping)
    return node_table_key(rule.type) if is_node else edge_table_key(rule.type)


def _is_derived(rule: Rule) -> bool:
    """Whether a rule yields distinct values of records."""
    return isinstance(rule, NodeMapping) and rule.distinct


def _meets(batch: RawBatch, conditions: Iterable[Condition]) -> npt.NDArray[np.bool_]:
    met = np.ones(len(batch), np.bool_)
    for condition in conditions:
        texts = as_texts(batch.column(condition.column))
        expected = pa.array(condition.equals, pa.string())
        met &= pc.is_in(texts, expected).to_numpy(zero_copy_only=False)
    return met


def _values(batch: RawBatch, value: ValueMapping, kind: ct.PropertyType) -> tuple[Column, pa.Array]:
    """The values of a property, and what they were converted from."""
    source = batch.column(value.column)
    if not pat.is_string(source.type):
        is_text = kind == _TEXT or isinstance(kind, ct.EnumType)
        if value.is_plain and not is_text:
            return Column(values=source), source
        source = as_texts(source)
    texts = source if value.is_plain else parse_texts(source, value, kind)
    return cell_column(texts, kind), texts


def _spell(member: ct.Property, column: Column, texts: pa.Array) -> pa.Array:
    """The canonical spellings of key values; where there is no value, its text."""
    values = column.values
    if member.type == _TEXT:
        return texts
    sure = values.is_valid().to_numpy(zero_copy_only=False).copy()
    if column.doubted is not None:
        sure &= ~column.doubted
    if sure.all():
        return canonical_column(member, values)
    spelled = canonical_column(member, values.filter(pa.array(sure)))
    return pc.replace_with_mask(texts, pa.array(sure), spelled)


def _edge_ids(
    batch: RawBatch, rule: EdgeMapping, source: pa.Array, target: pa.Array
) -> pa.StringArray:
    columns = [source] if rule.single else [source, target]
    columns += [as_texts(batch.column(path)) for path in rule.id]
    return join_spellings([column.fill_null("") for column in columns])


def _row_texts(columns: Sequence[pa.Array]) -> pa.StringArray:
    return join_spellings([as_texts(column).fill_null("\x00") for column in columns])


def _check(rows: _Rows, validator: RowValidator) -> ValidatedRows:
    doubted = rows.doubted.copy()
    sure = np.flatnonzero(~doubted)
    columns: Mapping[str, pa.Array] = rows.columns
    if doubted.any():
        mask = pa.array(~doubted)
        columns = {name: column.filter(mask) for name, column in columns.items()}
    passed, bad = validator.passed(columns, rows.places[sure])
    doubted[sure[bad]] = True
    again = np.flatnonzero(doubted)
    if not len(again):
        return ValidatedRows(rows=(passed,))
    claims = [_claim(rows, row, validator) for row in again.tolist()]
    return together([ValidatedRows(rows=(passed,)), validator.claims(claims)])


def _claim(rows: _Rows, row: int, validator: RowValidator) -> Claim:
    texts = {
        name: column[row].as_py()
        for name, column in rows.originals.items()
        if pat.is_string(column.type)
    }
    record: dict[str, object] = cell_row(validator.declared, texts)
    record |= {
        name: column[row].as_py() for name, column in rows.originals.items() if name not in texts
    }
    return Claim(
        place=int(rows.places[row]),
        claimed=validator.declared.name,
        raw=rows.batch.raw(row),
        declared=validator.declared,
        row=record,
    )


def _no_rule(name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known)
    return f"no rule of the mapping uses {shown(name)}" + (f"; {hint}" if hint else "")


def _unknown_column(where: str, name: str, known: Iterable[str]) -> InvalidInputError:
    return InvalidInputError(
        f"{where} has a column that is not in the mapping: {_no_rule(name, known)}",
        next_step="Add the column to the mapping, list it under `ignored`, or import with "
        "`--unknown-columns ignore` or `keep`.",
    )


def parse_texts(texts: pa.StringArray, value: ValueMapping, kind: ct.PropertyType) -> pa.Array:
    """The texts of a column as cells of a property."""
    if value.null:
        is_null = pc.is_in(texts, pa.array(value.null, pa.string()))
        texts = pc.if_else(is_null, None, texts)
    if value.split is not None:
        texts = _split(texts, value, kind)
    elif value.parse is not None:
        texts = _parse(texts, value)
    if value.default is not None:
        texts = texts.fill_null(value.default)
    return texts


def _parse(texts: pa.StringArray, value: ValueMapping) -> pa.StringArray:
    trimmed = pc.utf8_trim_whitespace(texts)
    assert value.parse is not None
    match value.parse:
        case Parse.DATE:
            parsed = _dates(trimmed, value.format or "%Y-%m-%d", "%Y-%m-%d")
        case Parse.DATETIME:
            parsed = _dates(trimmed, value.format or "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ")
        case Parse.NUMBER:
            parsed = _numbers(trimmed, value)
        case Parse.BOOLEAN:
            parsed = _booleans(trimmed, value)
        case _:
            assert_never(value.parse)
    return pc.coalesce(parsed, texts)


def _dates(texts: pa.StringArray, form: str, spelling: str) -> pa.StringArray:
    if form in EPOCHS:
        plain = pc.match_substring_regex(texts, pattern=r"^-?[0-9]{1,17}$")
        times = pc.if_else(plain, texts, None).cast(pa.int64()).cast(pa.timestamp(EPOCHS[form]))
        return pc.strftime(times.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%SZ")
    times = pc.strptime(texts, format=form, unit="s", error_is_null=True)
    return pc.strftime(_without_rolled(times, texts, form), format=spelling)


def _without_rolled(times: pa.Array, texts: pa.StringArray, form: str) -> pa.Array:
    """The times without those of days that their month does not have.

    Arrow takes 31.04. for the first of May, so what became one of the first three days is compared.
    """
    if "%d" not in form or "%z" in form:
        return times
    parts = re.split("%(.)", re.sub(r"\s+", " ", form))
    parts[::2] = [re.escape(literal).replace(r"\ ", r"\s+") for literal in parts[::2]]
    place = parts.index("d", 1)
    parts[1::2] = [".+?"] * len(parts[1::2])
    parts[place] = "(?P<day>[0-9]{1,2})"
    early = pc.if_else(pc.less_equal(pc.day(times), 3), texts, None)
    days = pc.struct_field(pc.extract_regex(early, pattern=f"^{''.join(parts)}$"), "day")
    is_rolled = pc.greater(days.cast(pa.int8()), 28).fill_null(fill_value=False)
    return pc.if_else(is_rolled, None, times)


def _numbers(texts: pa.StringArray, value: ValueMapping) -> pa.StringArray:
    plain = texts if value.unit is None else _without_unit(texts, re.escape(value.unit))
    plain = pc.replace_substring_regex(plain, r"^\(([^-].*)\)$", r"-\1")
    if value.thousands:
        mark = re.escape(value.thousands)
        # `1.5` is no 15 where the point is between thousands. India has groups of two as well.
        groups = rf"^[^0-9]*[0-9]{{1,3}}({mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}([^0-9].*)?$"
        has_groups = pc.match_substring_regex(plain, pattern=groups)
        plain = pc.if_else(has_groups, pc.replace_substring(plain, value.thousands, ""), plain)
        plain = pc.if_else(pc.match_substring(plain, value.thousands), None, plain)
    if value.decimal and value.decimal != ".":
        plain = pc.replace_substring(plain, value.decimal, ".")
    plain = pc.if_else(pc.match_substring_regex(plain, pattern=_NUMBER), plain, None)
    for pattern, replacement in (
        (r"^\+", ""),
        (r"^(-?)0+([0-9])", r"\1\2"),
        (r"^(-?)\.", r"\10."),
        (r"\.([eE]|$)", r"\1"),
    ):
        plain = pc.replace_substring_regex(plain, pattern, replacement)
    return plain


def _without_unit(texts: pa.StringArray, unit: str) -> pa.StringArray:
    """Numbers without the unit before or behind them; null where it is not."""
    space = r"[\s\p{Zs}]?"
    form = rf"^([-(]?){unit}{space}(.*)$|^(.*?){space}{unit}(\)?)$"
    has_unit = pc.match_substring_regex(texts, pattern=form)
    numbers = pc.replace_substring_regex(texts, form, r"\1\2\3\4")
    return pc.if_else(has_unit, numbers, None)


def _booleans(texts: pa.StringArray, value: ValueMapping) -> pa.StringArray:
    true = pc.is_in(texts, pa.array(value.true or TRUE_WORDS, pa.string()))
    false = pc.is_in(texts, pa.array(value.false or FALSE_WORDS, pa.string()))
    return pc.if_else(true, "true", pc.if_else(false, "false", None))


def _split(texts: pa.StringArray, value: ValueMapping, kind: ct.PropertyType) -> pa.StringArray:
    """Lists as JSON; items of texts are quoted, others are spelt as they are."""
    assert value.split is not None
    is_text = not isinstance(kind, ct.ListType) or kind.item in _TEXT_ITEMS
    lists: list[str | None] = []
    for text in texts.to_pylist():
        if text is None:
            lists.append(None)
            continue
        items = [item.strip() for item in text.split(value.split)]
        shown = [
            json.dumps(item, ensure_ascii=False) if is_text else item for item in items if item
        ]
        lists.append(f"[{','.join(shown)}]")
    return pa.array(lists, pa.string())
