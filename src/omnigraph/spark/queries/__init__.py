"""Plans of queries as DataFrames, for graphs that no single machine should read."""
