"""A run in parts, on several machines: shards by query, what they count together, and their merge."""
