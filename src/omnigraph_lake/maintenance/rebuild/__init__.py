"""Rebuilding a manifest that is lost or cannot be read."""
