"""The rules of the query language by their stable names.

Invariant: a slug never changes its meaning; docs/reference/query.md describes each one.
"""

from __future__ import annotations

import enum

from omnigraph_lake.language.diagnostics import Diagnostic, Severity, Span


class Rule(enum.StrEnum):
    """The name of every finding about a query text."""

    SYNTAX = "syntax"
    QUERY_TOO_LARGE = "query-too-large"
    INVALID_CHARACTER = "invalid-character"
    UNTERMINATED_STRING = "unterminated-string"
    UNTERMINATED_COMMENT = "unterminated-comment"
    UNKNOWN_ESCAPE = "unknown-escape"
    NUMBER_TOO_LONG = "number-too-long"
    NAME_TOO_LONG = "name-too-long"
    NESTING_TOO_DEEP = "nesting-too-deep"
    QUERY_TOO_COMPLEX = "query-too-complex"
    COMPARISON_CHAIN = "comparison-chain"

    DUPLICATE_QUERY = "duplicate-query"
    UNKNOWN_ANNOTATION = "unknown-annotation"
    DUPLICATE_ANNOTATION = "duplicate-annotation"
    EMPTY_ANNOTATION = "empty-annotation"
    PARAMETER_TYPE = "parameter-type"
    DUPLICATE_PARAMETER = "duplicate-parameter"

    UNKNOWN_TYPE = "unknown-type"
    UNKNOWN_PROPERTY = "unknown-property"
    UNKNOWN_VARIABLE = "unknown-variable"
    UNKNOWN_EDGE = "unknown-edge"
    UNKNOWN_FUNCTION = "unknown-function"
    UNKNOWN_ALIAS = "unknown-alias"

    VARIABLE_CLASH = "variable-clash"
    ANONYMOUS_VARIABLE = "anonymous-variable"
    EDGE_ENDPOINT = "edge-endpoint"
    UNBOUND_TRAVERSAL = "unbound-traversal"
    OPTIONAL_VARIABLE = "optional-variable"
    HOP_BOUNDS = "hop-bounds"
    UNDIRECTED_EDGE = "undirected-edge"
    EDGE_DIRECTION = "edge-direction"
    EDGE_VARIABLE = "edge-variable"
    PATH_VARIABLE = "path-variable"
    PATH_WEIGHT = "path-weight"
    DISCONNECTED_BLOCK = "disconnected-block"
    SUB_PATTERN_PLACE = "sub-pattern-place"

    VALUE_TYPE = "value-type"
    VALUE_RANGE = "value-range"
    ENUM_VALUE = "enum-value"
    DATE_VALUE = "date-value"
    OPERAND_TYPES = "operand-types"
    CONDITION_TYPE = "condition-type"
    NULL_PLACE = "null-place"
    BLOB_PLACE = "blob-place"
    WHOLE_ENTITY = "whole-entity"

    FUNCTION_ARGUMENTS = "function-arguments"
    FUNCTION_PLACE = "function-place"
    AGGREGATE_TYPE = "aggregate-type"
    AGGREGATE_MIX = "aggregate-mix"
    SEARCH_FIELD = "search-field"
    VECTOR_FIELD = "vector-field"

    DUPLICATE_COLUMN = "duplicate-column"
    COLUMN_NAME = "column-name"
    HAVING_GROUPS = "having-groups"
    HAVING_COLUMN = "having-column"
    ORDER_KEY = "order-key"
    RANK_FIRST = "rank-first"
    RANK_DIRECTION = "rank-direction"
    RANK_LIMIT = "rank-limit"
    RANK_ARMS = "rank-arms"
    RANK_MIX = "rank-mix"
    LIMIT_VALUE = "limit-value"

    DUPLICATE_ASSIGNMENT = "duplicate-assignment"
    MISSING_ASSIGNMENT = "missing-assignment"
    EMPTY_ASSIGNMENT = "empty-assignment"
    IDENTITY_ASSIGNMENT = "identity-assignment"
    MUTATION_VARIABLE = "mutation-variable"

    UNSET_PROPERTY = "unset-property"
    CONSTANT_MUTATION = "constant-mutation"
    UNUSED_PARAMETER = "unused-parameter"
    EMPTY_RESULT = "empty-result"


def error(rule: Rule, span: Span, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(
        rule=rule.value, severity=Severity.ERROR, span=span, message=message, hint=hint
    )


def warning(rule: Rule, span: Span, message: str, hint: str = "") -> Diagnostic:
    return Diagnostic(
        rule=rule.value, severity=Severity.WARNING, span=span, message=message, hint=hint
    )
