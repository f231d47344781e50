"""A plan of a schema change -> columns of tables, values of existing rows, rows that violate it."""
