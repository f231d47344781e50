"""THE DATA PLANE: graph data on Spark executors, through DataFrames and nothing below them."""
