"""Plans to rows: queries run in this process, or on Spark."""
