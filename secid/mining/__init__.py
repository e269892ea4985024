"""Mining: queries and candidates to sources of hard negatives, by several methods over one encoding.

    questions    rows of queries and positives, candidates, labels          methods   NAME=METHOD:option=value,…
    orders       the candidates of a query, best first                      ask, llm, answers   a language model's texts
    exclusions   those that may be no negative, and why                     choose    those in the window that pass
    mine         `secid.mine` and `secid.mine_sweep`
    find         one search for all sources of a run                        sweep     other margins and windows
    run, write   the folder; its files and the manifest                     journal   answers that are paid for, on disk

Worked example: K = 2, candidates a, b, c, d with s_qn = 0.9, 0.8, 0.6, 0.5, of which a is the positive (s_qp = 0.9).
`dense` takes b (rank 1) and c (rank 2): a has no rank. `dense:absolute=0.2` takes c and d, since 0.8 is not below 0.7.
`dense:absolute=0.2,ranks=1-2` takes c alone: the query is short, since the margin rejects one of a window of two.
Source: METHOD 10.
"""
