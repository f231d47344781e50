"""Records of every input format as rows of types, or as rejected records."""
