"""The gate: a baseline, a policy, and the checks that let a source of negatives in, or not."""
