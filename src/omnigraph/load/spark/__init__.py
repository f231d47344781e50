"""The jobs and tasks of a load on Spark."""
