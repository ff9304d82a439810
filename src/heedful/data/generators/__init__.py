"""Sets made from a seed by numpy's RandomState: its streams are frozen, the same seed is the same set."""
