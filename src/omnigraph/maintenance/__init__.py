"""Maintenance of existing graphs."""
