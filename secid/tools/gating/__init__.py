"""The gate: a baseline, a policy, and the checks that decide whether a source of negatives may enter."""
