"""The operations of a graph, one module each."""
