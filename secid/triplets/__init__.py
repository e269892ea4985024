"""The triplet table: one row per scored (query, positive, negative), and one column per fact."""
