"""The namespaces and options of a graph, each a thin layer over the rooms below."""
