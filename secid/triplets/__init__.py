"""The triplet table: a row a (query, positive, negative) that is scored, a column a fact.

Read in this order: positives (which positive a negative is scored against), coverage and embedding (the lexical and
the vector columns), measure_set (the sums over a source), table, estimates (means and shares with 95 % intervals,
queries as clusters), random_reference (what random passages would reach).

In: one record, "q" with the positive "p" and the negatives "a" and "b". Out: two rows,

    query  positive  negative  consistency  locality  coverage  weight
    q      p         a         0.9          0.8       0.5       0.9 * 0.8 * (1 - 0.5) = 0.36
    q      p         b         0.4          0.8       0.0       0.4 * 0.8 * (1 - 0.0) = 0.32

so that the source's mean consistency is 0.65, and 1 of its 2 negatives (b, below 0.5) is an inversion.
"""
