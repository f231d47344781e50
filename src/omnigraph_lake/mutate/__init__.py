"""Mutations in the query language: statements to changed rows."""
