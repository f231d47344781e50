"""FILES AND FRAMES -> ROWS OF TYPES: what is read, how it is cut, decoded and sorted out."""
