"""The static rules of the query language, one module per part of a query."""
