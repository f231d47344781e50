"""Schema text to catalog: parse, check, resolve, and describe as Arrow schemas."""
