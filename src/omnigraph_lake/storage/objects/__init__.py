"""Roots and plain objects below them: put-if-absent, durability, failures."""
