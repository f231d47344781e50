"""Search and scalar indexes of one table: built as segments, asked for rows."""
