"""A run in parts, on as many machines as there are: shards by query, what they count together, and their merge.

Source: METHOD 11, docs/scale.md.
"""
