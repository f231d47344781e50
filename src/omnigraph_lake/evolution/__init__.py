"""Changes of the schema: the plan, what it asks of rows, and its publication."""
