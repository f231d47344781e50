"""Schema and query texts in an editor: findings, completions, explanations, renames; the server."""
