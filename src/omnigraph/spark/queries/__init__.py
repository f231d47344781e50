"""Plans of queries as DataFrames, for graphs that are too large for one machine."""
