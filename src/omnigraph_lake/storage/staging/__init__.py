"""Changes of one table: staged, committed as a version, compared."""
