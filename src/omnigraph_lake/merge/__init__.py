"""Three-way merges of branches: plan, conflicts, rows, commit."""
