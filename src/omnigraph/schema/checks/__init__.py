"""What a parsed schema must fulfil: one module per subject, each returning all its findings."""
