"""The `omnigraph` command line."""
