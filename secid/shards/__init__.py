"""Shards: a scoring job in parts, each kept as a state file, and the run that their sum is."""
