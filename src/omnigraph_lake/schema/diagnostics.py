"""The rules of the schema language by their stable names.

Invariant: a slug never changes its meaning; docs/reference/schema.md describes each one.
"""

from __future__ import annotations

import enum

from omnigraph_lake.language.diagnostics import Diagnostic, Severity, Span


class Rule(enum.StrEnum):
    """The name of every finding about a schema text."""

    SYNTAX = "syntax"
    SCHEMA_TOO_LARGE = "schema-too-large"
    INVALID_CHARACTER = "invalid-character"
    UNTERMINATED_STRING = "unterminated-string"
    UNTERMINATED_COMMENT = "unterminated-comment"
    COMMA_BETWEEN_PROPERTIES = "comma-between-properties"
    UNKNOWN_ESCAPE = "unknown-escape"
    NUMBER_TOO_LONG = "number-too-long"
    NAME_TOO_LONG = "name-too-long"

    DUPLICATE_TYPE = "duplicate-type"
    TYPE_NAME_CASE = "type-name-case"
    DUPLICATE_PROPERTY = "duplicate-property"
    PROPERTY_NAME_CASE = "property-name-case"
    RESERVED_PROPERTY = "reserved-property"

    UNKNOWN_TYPE = "unknown-type"
    VECTOR_SIZE = "vector-size"
    DECIMAL_SIZE = "decimal-size"
    UNEXPECTED_SIZE = "unexpected-size"
    LIST_ITEM = "list-item"
    DUPLICATE_ENUM_VALUE = "duplicate-enum-value"
    DEFAULT_VALUE = "default-value"
    DEFAULT_ON_KEY = "default-on-key"

    UNKNOWN_ENDPOINT = "unknown-endpoint"
    DUPLICATE_END = "duplicate-end"
    UNKNOWN_INTERFACE = "unknown-interface"
    DUPLICATE_INTERFACE = "duplicate-interface"
    INTERFACE_CONFLICT = "interface-conflict"
    INTERFACE_CONSTRAINT = "interface-constraint"

    CONSTRAINT_ON_HEADER = "constraint-on-header"
    CONSTRAINT_ARGUMENTS = "constraint-arguments"
    MISPLACED_ANNOTATION = "misplaced-annotation"
    UNKNOWN_PROPERTY = "unknown-property"
    REPEATED_MEMBER = "repeated-member"
    DUPLICATE_CONSTRAINT = "duplicate-constraint"
    DUPLICATE_KEY = "duplicate-key"
    KEY_ON_EDGE = "key-on-edge"
    RANGE_ON_EDGE = "range-on-edge"
    CHECK_ON_EDGE = "check-on-edge"
    KEY_TYPE = "key-type"
    NULLABLE_KEY = "nullable-key"
    UNIQUE_TYPE = "unique-type"
    INDEX_TYPE = "index-type"
    INDEX_METRIC = "index-metric"
    RANGE_TYPE = "range-type"
    RANGE_BOUNDS = "range-bounds"
    CHECK_TYPE = "check-type"
    CHECK_PATTERN = "check-pattern"
    CARDINALITY = "cardinality"
    MISPLACED_CARDINALITY = "misplaced-cardinality"
    MISPLACED_CLUSTER = "misplaced-cluster"

    DUPLICATE_ANNOTATION = "duplicate-annotation"
    ANNOTATION_ARGUMENTS = "annotation-arguments"
    EMPTY_ANNOTATION = "empty-annotation"
    INSTRUCTION_ON_PROPERTY = "instruction-on-property"
    EMBED_PLACE = "embed-place"
    EMBED_SOURCE = "embed-source"
    EMBED_KEYWORD = "embed-keyword"
    UNKNOWN_ANNOTATION = "unknown-annotation"


def error(rule: Rule, span: Span, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(
        rule=rule.value, severity=Severity.ERROR, span=span, message=message, hint=hint
    )


def warning(rule: Rule, span: Span, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(
        rule=rule.value, severity=Severity.WARNING, span=span, message=message, hint=hint
    )
