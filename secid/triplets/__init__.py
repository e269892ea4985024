"""The triplet table: one row per scored (query, positive, negative), one column per fact."""
