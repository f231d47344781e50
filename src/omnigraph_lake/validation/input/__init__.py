"""Rows of any origin as columns of their type."""
