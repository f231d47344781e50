"""Running mutations: statements in order over what the graph holds."""
