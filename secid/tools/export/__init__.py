"""Export rows from the sources of a run: filtered copies, mixtures, and the negatives with a finding."""
