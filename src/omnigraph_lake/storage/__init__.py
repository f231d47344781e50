"""Lance datasets and plain objects: open at a pin, stage, commit exactly, list, claim.

The only package that imports `lance` or `obstore`.
"""

import os

# The latest version must come from a listing: a late put into a freed version slot sets Lance's
# hint file back, and a reader that trusts it would lose acknowledged commits.
os.environ["LANCE_USE_VERSION_HINT"] = "0"
# New vectors join the partitions that exist, whose centres come with an index's statistics.
os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "true")
