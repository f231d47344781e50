"""Algorithms over whole graphs: numbered nodes, blocks of edges, rounds that can be resumed."""
