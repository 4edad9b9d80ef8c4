"""A run on disk: which algorithm and settings it has, its folder, and the files that results are written to."""
