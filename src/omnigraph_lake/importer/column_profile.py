"""Profile a column: nulls, readings of its texts, its distinct values if they are few, its digits.

Invariants:
- Memory is bounded by a batch; see `hashed_values`.
- What a profile says holds for every value that was added, whatever batches they came in.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake.importer.hashed_values import HashedColumn
from omnigraph_lake.importer.readings import (
    INTEGER,
    MARKED,
    NULL_MARKS,
    NULL_TEXTS,
    NULL_WORDS,
    QUOTED,
    TEXT,
    Reading,
    best,
    fitting,
    readings_of,
    with_amounts,
)
from omnigraph_lake.load.formats.raw_batches import is_list
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.arrow import find_true

_ROOMY_DIGITS: Final = 28
"""The digits of numbers whose source declares none; sums of so many digits are exact."""
_DIGITS: Final = r"^-?0*(?P<whole>[0-9]*?)(?:\.(?P<fraction>[0-9]*?)0*)?$"
VALUES_MAX: Final = 64
"""Of a column with more distinct values the values are not remembered."""
_SAMPLE: Final = 200
_ENUM_VALUES_MAX: Final = 16
_ENUM_RECORDS_MIN: Final = 12
_ENUM_REPEATS_MIN: Final = 4
_ENUM_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
NEAR_SHARE_MIN: Final = 0.9
"""In 2,226 data sets of R, 36 columns of texts are numbers for half of the values or more, if marks
are left out. In the 17 above this share few values are odd; the 19 below are classes, codes, lists.
"""
_EXACT_FLOAT_MAX: Final = 2**53
_F32_MAX: Final = 3.4028234663852886e38
_JOINED_KINDS: Final = (
    pat.is_integer,
    pat.is_floating,
    pat.is_unsigned_integer,
    lambda kind: pat.is_date(kind) or pat.is_timestamp(kind),
)
_NOT_PLAIN: Final = pa.array(["", *sorted(NULL_TEXTS)])

_ARROW_SCALARS: Final = (
    (pat.is_boolean, ct.Scalar.BOOL),
    (pat.is_int8, ct.Scalar.I32),
    (pat.is_int16, ct.Scalar.I32),
    (pat.is_int32, ct.Scalar.I32),
    (pat.is_int64, ct.Scalar.I64),
    (pat.is_uint8, ct.Scalar.U32),
    (pat.is_uint16, ct.Scalar.U32),
    (pat.is_uint32, ct.Scalar.U32),
    (pat.is_uint64, ct.Scalar.U64),
    (pat.is_float16, ct.Scalar.F32),
    (pat.is_float32, ct.Scalar.F32),
    (pat.is_float64, ct.Scalar.F64),
    (pat.is_date, ct.Scalar.DATE),
    (pat.is_timestamp, ct.Scalar.DATETIME),
    (pat.is_string, ct.Scalar.STRING),
    (pat.is_large_string, ct.Scalar.STRING),
    (pat.is_string_view, ct.Scalar.STRING),
)


@dataclass(slots=True)
class NearReading:
    """The reading of nearly all texts of a column, and how many it does not fit.

    `odd` are at most two of the texts that it does not fit, of which `record` is the number of the
    first, from 1.
    """

    reading: Reading
    fits: int
    misfits: int = 0
    odd: tuple[str, ...] = ()
    record: int = 0

    @property
    def share(self) -> float:
        return self.fits / (self.fits + self.misfits)

    def add(self, column: pa.StringArray, plain: pa.BooleanArray, before: int) -> None:
        """Count the texts of a batch that are plain values; `before` counts earlier records."""
        read = self.reading.find_fitting(column)
        misfits = find_true(pc.and_(plain, pc.invert(read)))
        self.fits += pc.sum(pc.and_(plain, read)).as_py()
        self.misfits += len(misfits)
        if len(misfits):
            self.record = self.record or before + misfits[0].as_py() + 1
        if len(misfits) and len(self.odd) < 2:
            texts = pc.unique(column.take(misfits)).to_pylist()
            self.odd = tuple(dict.fromkeys([*self.odd, *texts]))[:2]


@dataclass(slots=True)
class ColumnProfile:
    """What is known about one column."""

    path: str
    records: int = 0
    nulls: int = 0
    """Records without a value; also those with a word that the caller declared as null."""
    empties: int = 0
    """Texts without a character."""
    null_words: Counter[str] = field(default_factory=Counter)
    """How often words and marks occur that can stand for a missing value, in texts of any kind."""
    declared_nulls: Counter[str] = field(default_factory=Counter)
    """How often each word occurs that the caller declared as null; also those that never do."""
    readings: tuple[Reading, ...] = ()
    """The readings that fit all texts but empty ones and `null_words`."""
    near: NearReading | None = None
    values: Counter[str] | None = field(default_factory=Counter)
    sample: list[str] = field(default_factory=list)
    """The first texts that can be values."""
    text_max: int = 0
    """The bytes of the longest text."""
    integer_min: int | None = None
    integer_max: int | None = None
    has_texts: bool = False
    arrow_type: pa.DataType | None = None
    """The type of values of which not all are texts."""
    item_kinds: set[str] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)
    digits: tuple[int, int] | None = None
    """The most digits in front of the point and behind it, of texts that are exact numbers."""
    lists: int = 0
    """Values that are lists of scalars."""
    is_mixed: bool = False
    """Whether some values are nested and others are not."""
    hashes: HashedColumn | None = None
    unit: str = ""
    """What a sheet shows beside its numbers."""
    is_repetitive: bool = True
    """Whether the texts of every batch so far were different ones twice or more on average."""

    def __post_init__(self) -> None:
        self.readings = self.readings or readings_of(self.path)

    @property
    def has_values(self) -> bool:
        return self.missing < self.records

    @property
    def is_list(self) -> bool:
        if self.arrow_type is not None:
            return is_list(self.arrow_type)
        return self.lists > 0 and self.lists == self.records - self.nulls

    @property
    def _plain(self) -> int:
        """Texts that can be nothing but values."""
        return self.records - self.nulls - self.empties - self.null_words.total()

    def reading(self) -> tuple[Reading, str]:
        """How the texts are read, and why not more specifically."""
        if not self._plain:
            return TEXT, ""
        reading, why = best(self.readings)
        is_marked = not NULL_MARKS.isdisjoint(self.null_words)
        return (TEXT, "") if is_marked and reading.scalar not in MARKED else (reading, why)

    @property
    def is_enum(self) -> bool:
        """Whether few values, which could be written in a schema, are repeated often."""
        if self.arrow_type is not None or self.values is None or self.is_list:
            return False
        if self.null_texts or self.reading()[0] is not TEXT:
            return False
        values = [value for value in self.values if value]
        filled = self.records - self.nulls - self.empties
        return (
            2 <= len(values) <= _ENUM_VALUES_MAX
            and filled >= _ENUM_RECORDS_MIN
            and filled >= _ENUM_REPEATS_MIN * len(values)
            and all(_ENUM_VALUE.fullmatch(value) for value in values)
            and all(re.search("[A-Za-z]", value) for value in values)
        )

    @property
    def null_texts(self) -> tuple[str, ...]:
        """The words for a missing value in this column; they are values where others are texts."""
        if self.arrow_type is not None or self.is_list or self.is_mixed:
            return ()
        if self._plain:
            return tuple(self.null_words) if self.reading()[0] is not TEXT else ()
        return tuple(self.null_words) if self.null_words.keys() <= NULL_WORDS else ()

    @property
    def empty_is_null(self) -> bool:
        """Whether texts without a character stand for a missing value."""
        if not self.empties:
            return False
        return bool(self.null_texts) or self.reading()[0] is not TEXT or self.is_enum

    @property
    def missing(self) -> int:
        words = sum(self.null_words[word] for word in self.null_texts)
        return self.nulls + words + (self.empties if self.empty_is_null else 0)

    def missing_why(self) -> str:
        """What tells that records have no value, with counts."""
        words = {word: self.null_words[word] for word in self.null_texts} | +self.declared_nulls
        rest = self.missing - sum(words.values())
        counts = [f"'{word}' in {count:,}" for word, count in sorted(words.items())]
        of = f"of {self.records:,}"
        mean = "means" if len(words) == 1 else "mean"
        parts = [f"{' and '.join(counts)} {of} {mean} no value"] if words else []
        return "; ".join([*parts, f"no value in {rest:,} {of}"] if rest else parts)

    @property
    def can_identify(self) -> bool:
        """Whether every record has a value that an id can be made of: a list or `""` is none."""
        return not (self.is_list or self.is_mixed or self.missing or self.empties)

    def is_dense_range(self, distinct: int) -> bool:
        """Whether so many distinct integers leave out no more of their range than they fill.

        Numbers that are counted up, such as 1 to n, are in every other such range by chance.
        """
        if self.integer_min is None or self.integer_max is None:
            return False
        return self.scalar() in ct.INTEGERS and self.integer_max - self.integer_min < 2 * distinct

    def decimals(self) -> ct.DecimalType | None:
        """The decimals that hold all values, if they are exact numbers beyond those of 64 bits."""
        if self.arrow_type is not None:
            kind = self.arrow_type
            return ct.decimal_type(kind.precision, kind.scale) if pat.is_decimal(kind) else None
        if self.digits is None:
            return None
        whole, scale = self.digits
        roomy = _ROOMY_DIGITS if whole + scale <= _ROOMY_DIGITS else ct.DECIMAL_DIGITS_MAX
        return ct.decimal_type(roomy, scale) if whole + scale <= roomy else None

    def scalar(self) -> ct.Scalar | None:
        """The type of the values, unless they are decimals, lists or nested."""
        if self.decimals() is not None:
            return None
        if self.arrow_type is not None:
            return next((s for test, s in _ARROW_SCALARS if test(self.arrow_type)), None)
        return self.reading()[0].scalar

    def encode(self, column: pa.Array) -> pa.Array:
        """The texts of a batch as a dictionary, if they repeat: each is looked at once."""
        if not self.is_repetitive or not pat.is_string(column.type):
            return column
        encoded = column.dictionary_encode()
        self.is_repetitive = 2 * len(encoded.dictionary) <= len(column)
        return encoded

    def add(
        self, column: pa.Array, encoded: pa.Array, *, quoted: bool, exact: bool = False
    ) -> None:
        """Take in the values of a batch, also as they were encoded.

        `quoted` tells that texts were quoted in JSON, `exact` that they have all digits of numbers.
        """
        before = self.records
        self.records += len(column)
        self.nulls += column.null_count
        if not pat.is_string(column.type):
            self._add_typed(column)
            return
        is_encoded = pat.is_dictionary(encoded.type)
        texts = encoded.dictionary if is_encoded else column.drop_null()
        if not len(texts):
            return
        self.has_texts = True
        if self.arrow_type is not None:
            self.arrow_type = pa.string()
        if exact:
            self._add_digits(texts)
        if quoted or exact:
            self.readings = tuple(reading for reading in self.readings if reading in QUOTED)
        self.text_max = max(self.text_max, pc.max(pc.binary_length(texts)).as_py())
        self._add_values(encoded)
        self._add_texts(column, texts, before)

    def _add_texts(self, column: pa.StringArray, texts: pa.StringArray, before: int) -> None:
        """Take in a batch; `texts` has each of its texts at least once."""
        known = self.readings = with_amounts(self.readings, texts)
        plain = column.is_valid()
        has_nulls = bool(self.null_words) or bool(self.empties)
        # Words are looked for only where they may be: no reading but that of texts fits one.
        self.readings = known if has_nulls else fitting(known, texts)
        if has_nulls or self.readings == (TEXT,):
            count = len(texts)
            texts, plain = self._without_nulls(column, texts)
            if has_nulls or len(texts) < count:
                self.readings = fitting(known, texts)
            if self.readings == (TEXT,) and len(texts):
                self._add_near(known, column, plain, before)
        if INTEGER in self.readings and len(texts):
            low, high = pc.min_max(texts.cast(pa.int64())).as_py().values()
            self._widen(low, high)
        if len(self.sample) < _SAMPLE:
            self.sample += column.filter(plain).slice(0, _SAMPLE - len(self.sample)).to_pylist()

    def without_declared_nulls(self, column: pa.StringArray) -> pa.StringArray:
        """The values of a batch, before it is added, without the words that were declared null."""
        is_null = pc.is_in(column, pa.array(list(self.declared_nulls), pa.string()))
        words = pc.value_counts(column.filter(is_null)).to_pylist()
        self.declared_nulls.update({row["values"]: row["counts"] for row in words})
        return pc.if_else(is_null, None, column) if words else column

    def _without_nulls(
        self, column: pa.StringArray, texts: pa.StringArray
    ) -> tuple[pa.StringArray, pa.BooleanArray]:
        """The texts that can be nothing but values, and where they are; the others are counted."""
        is_other = pc.is_in(texts, _NOT_PLAIN)
        if not pc.any(is_other).as_py():
            return texts, column.is_valid()
        is_plain = pc.invert(pc.is_in(column, _NOT_PLAIN))
        plain = pc.and_(column.is_valid(), is_plain)
        for row in pc.value_counts(column.filter(pc.invert(is_plain))).to_pylist():
            if row["values"]:
                self.null_words[row["values"]] += row["counts"]
            else:
                self.empties += row["counts"]
        return texts.filter(pc.invert(is_other)), plain

    def _add_near(
        self,
        known: tuple[Reading, ...],
        column: pa.StringArray,
        plain: pa.BooleanArray,
        before: int,
    ) -> None:
        """Count what nearly fits; which reading that is, the first batch with a misfit decides."""
        if known != (TEXT,):
            earlier = self._plain - pc.sum(plain).as_py()
            self.near = _find_near(known, column, plain, before, earlier)
        elif self.near is not None:
            self.near.add(column, plain, before)

    def _widen(self, low: int, high: int) -> None:
        known = [n for n in (self.integer_min, self.integer_max) if n is not None]
        self.integer_min, self.integer_max = min([low, *known]), max([high, *known])

    def _add_digits(self, texts: pa.StringArray) -> None:
        """Count the digits that numbers need; other texts, such as NaN, need too many."""
        parts = pc.extract_regex(texts, pattern=_DIGITS)
        if parts.null_count:
            self.digits = (ct.DECIMAL_DIGITS_MAX + 1, 0)
            return
        whole, scale = self.digits or (0, 0)
        lengths = [
            pc.max(pc.binary_length(pc.struct_field(parts, part))).as_py()
            for part in ("whole", "fraction")
        ]
        self.digits = max(whole, lengths[0]), max(scale, lengths[1])

    def _add_typed(self, column: pa.Array) -> None:
        present = column.drop_null()
        if pat.is_integer(column.type) and len(present):
            self._widen(*pc.min_max(present).as_py().values())
        if self.has_texts or (pat.is_temporal(column.type) and not _has_years(present)):
            self.arrow_type = pa.string()
            return
        self.arrow_type = self._join(column.type)
        if is_list(column.type):
            self.lists += len(present)
            if len(self.lengths) < 2:
                self.lengths.update(pc.unique(pc.list_value_length(present)).to_pylist()[:2])
            if pat.is_floating(column.type.value_type):
                self.item_kinds.update(_kinds_of_floats(present.flatten()))

    def _join(self, kind: pa.DataType) -> pa.DataType:
        """The type of all batches so far; texts if no other holds their values."""
        known = self.arrow_type
        if known is None or known == kind:
            return kind
        is_integer, is_float, is_unsigned, is_time = (
            [test(known), test(kind)] for test in _JOINED_KINDS
        )
        if all(is_unsigned) or all(is_float):
            return pa.uint64() if all(is_unsigned) else pa.float64()
        if all(is_integer) and pa.uint64() not in {known, kind}:
            return pa.int64()
        if all(is_time):
            return pa.timestamp("us", "UTC")
        if any(is_float) and any(is_integer):
            bounds = (self.integer_min or 0, self.integer_max or 0)
            is_exact = max(map(abs, bounds)) <= _EXACT_FLOAT_MAX
            return pa.float64() if is_exact else pa.string()
        one, other = _exact_digits(known), _exact_digits(kind)
        common = None if one is None or other is None else ct.join_decimals((one, other))
        return pa.string() if common is None else pa.decimal128(common.precision, common.scale)

    def _add_values(self, texts: pa.Array) -> None:
        if self.values is None:
            return
        counts = pc.value_counts(texts.drop_null())
        if len(counts) + len(self.values) > 2 * VALUES_MAX:
            self.values = None
            return
        for row in counts.to_pylist():
            self.values[row["values"]] += row["counts"]
        if len(self.values) > VALUES_MAX:
            self.values = None

    def make_text(self) -> None:
        """Keep all values as JSON, because some are nested and others are not."""
        self.is_mixed = True
        self.readings = (TEXT,)
        self.arrow_type = self.values = self.hashes = self.near = None
        self.lists = 0

    def add_lists(self, lists: Iterable[Sequence[Any]]) -> None:
        """Take in lists of scalars."""
        for items in lists:
            self.lists += 1
            if len(self.lengths) < 2:
                self.lengths.add(len(items))
            self.item_kinds.update(map(_kind_of, items))


def _kind_of(item: Any) -> str:
    """The kind of a scalar in a list; numbers apart that a narrower type would not hold."""
    if isinstance(item, float):
        return "float" if abs(item) <= _F32_MAX else "large float"
    if isinstance(item, int) and not isinstance(item, bool) and abs(item) > _EXACT_FLOAT_MAX:
        return "large int" if -(2**63) <= item < 2**63 else "huge int"
    return type(item).__name__


def _kinds_of_floats(items: pa.Array) -> Iterator[str]:
    """Which of the items of typed lists a `Vector` does not hold."""
    if items.null_count:
        yield "NoneType"
    if pc.any(pc.greater(pc.abs(items.cast(pa.float64())), _F32_MAX)).as_py():
        yield "large float"


def _has_years(times: pa.Array) -> bool:
    """Whether dates or points in time are in the years of a graph."""
    if not len(times) or not (pat.is_date(times.type) or pat.is_timestamp(times.type)):
        return True
    low, high = pc.min_max(pc.year(times)).as_py().values()
    return bool(low >= dt.MINYEAR and high <= dt.MAXYEAR)


def _find_near(
    known: tuple[Reading, ...],
    column: pa.StringArray,
    plain: pa.BooleanArray,
    before: int,
    earlier: int,
) -> NearReading | None:
    """The reading that fits nearly all values so far, if it is one alone."""
    texts = column.filter(plain)
    # One of three texts fits a reading of nine in ten but for one case in a thousand.
    probes = [texts[row].as_py() for row in {0, len(texts) // 2, len(texts) - 1}]
    tried: list[NearReading] = []
    for reading in known:
        if reading.scalar is not ct.Scalar.STRING and any(map(reading.may_fit, probes)):
            near = NearReading(reading=reading, fits=earlier)
            near.add(column, plain, before)
            tried.append(near)
    most = max((near.fits for near in tried), default=0)
    chosen, _ = best((*(near.reading for near in tried if near.fits == most), TEXT))
    return next(
        (near for near in tried if near.reading is chosen and near.share >= NEAR_SHARE_MIN), None
    )


def _exact_digits(kind: pa.DataType) -> ct.DecimalType | None:
    if pat.is_decimal(kind):
        return ct.decimal_type(kind.precision, kind.scale)
    scalar = next((scalar for test, scalar in _ARROW_SCALARS if test(kind)), None)
    return None if scalar is None else ct.exact_decimal(ct.ScalarType(scalar=scalar))
