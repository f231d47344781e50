"""CATALOG -> CHECKS, as data: what every row of a graph must satisfy. Engines execute the rules."""
