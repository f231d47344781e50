"""Upkeep of a graph that already exists."""
