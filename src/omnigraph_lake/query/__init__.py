"""The query language: text to syntax tree, to a typed query, to a logical plan."""
