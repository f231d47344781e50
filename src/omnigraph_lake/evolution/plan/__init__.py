"""An accepted catalog and a new text to the plan of a schema change."""
