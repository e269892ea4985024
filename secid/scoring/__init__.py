"""`secid score` and `secid check`: the stages of a run, from files to published numbers.

Read in this order: run (score, from sources to a `Run`), stages (embed, measure, inspect), warnings, publish (results
to the run folder), check (the same files without an encoder).

In: the sources `bm25.jsonl` and `random.jsonl`, settings and an encoder. Out: one `Run`, whose `sources` are ranked:

    source  rank  eci_nats
    bm25    1     5.2       more information about the encoder's errors at the same budget
    random  2     1.1

`check` returns what needs no encoder: counts, lengths, findings of the texts, and cautions.
"""
