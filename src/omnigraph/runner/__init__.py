"""What work runs on: Spark sessions and their failures, DuckDB, memory."""
