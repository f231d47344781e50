"""How an executor gets at nodes and edges: in memory, or through indexes."""
