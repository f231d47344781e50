"""What work runs on: threads or Spark, exchanges between tasks, sessions, DuckDB, memory."""
