"""Plans to DataFrames."""
