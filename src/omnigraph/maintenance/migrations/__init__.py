"""One module per step of the internal format, named after the stamp it reaches.

Each step is safe to run again, alone or beside another process doing the same, and ends with one
manifest swap that sets the next stamp.
"""
