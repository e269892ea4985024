"""Rows to train on, from the sources of a run: selections, mixtures, and the negatives with a finding."""
