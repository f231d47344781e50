"""Benchmarks: each module prints a table and, as its last line, one JSON object."""
