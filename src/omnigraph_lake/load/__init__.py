"""Files, frames and rows to one commit: sources, formats, staging, report."""
