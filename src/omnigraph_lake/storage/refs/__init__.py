"""Names of states: branches, tags, holds, references, and what they keep."""
