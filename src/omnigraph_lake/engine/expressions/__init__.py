"""Typed expressions over frames: Arrow kernels, SQL, search scores."""
