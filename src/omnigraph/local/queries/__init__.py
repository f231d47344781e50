"""Runs logical plans of queries in this process, with Arrow and DuckDB."""
