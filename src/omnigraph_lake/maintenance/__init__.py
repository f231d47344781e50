"""Keeping a graph in shape: optimize, indexes, cleanup, repair, the nightly run."""
