"""RESULTS -> TEXT AND HTML: cells, tables that fit a width, and the pages of results."""
