"""How a graph comes to be at a root: from a schema, or as a copy of another graph."""
