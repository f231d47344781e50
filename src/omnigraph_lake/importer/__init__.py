"""Raw files to a graph: profiles of sources, an inferred schema, and a mapping file."""
