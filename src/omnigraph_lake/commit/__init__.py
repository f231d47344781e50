"""Staged changes become one published commit, or nothing, whatever crashes, pauses or races."""
