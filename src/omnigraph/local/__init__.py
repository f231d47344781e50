"""The in-process engine: it runs the rules with Arrow kernels and DuckDB, without a cluster."""
