"""`secid score` and `secid check`: the stages of a run, from files to published numbers."""
