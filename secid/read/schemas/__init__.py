"""Which columns hold query, positives and negatives: inferred from the shape of a file's first rows."""
