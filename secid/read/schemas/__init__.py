"""Which columns hold query, positives and negatives: found from the shape of a file's first rows."""
