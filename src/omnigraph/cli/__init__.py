"""The `omnigraph` command: the graph comes first, then what it is about."""
