"""The rules for a parsed schema: one module per subject, each returning all its findings."""
