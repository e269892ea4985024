"""Independent reference for METHOD: all functions that tests compare secid with, under one name.

    from tests.oracle import reference

    records = reference.merge_rows(rows)
    idf = reference.idf_for({"bm25": records}, "bm25")
    expected = reference.score_source(records, q_vec, p_vec, idf)
    reference.assert_close(actual, expected)

Reading order: scoring (METHOD 1, 2), variants (3, 4, 7), uncertainty (8), closeness. Nothing here imports
secid; test_reference.py checks this. Embeddings are cast to float64 and never rescaled. Sampling by hash,
controls, the probe and encoding have no reference here.
"""

from __future__ import annotations

from tests.oracle.closeness import assert_close
from tests.oracle.scoring import (
    EPSILON,
    TOKENIZERS,
    Idf,
    Measured,
    Record,
    Row,
    Triplet,
    coverage,
    document_frequencies,
    idf_for,
    idf_table,
    log_det_nats,
    measure_source,
    measure_triplets,
    merge_rows,
    policy_triplets,
    score_source,
    scored_documents,
    scored_queries,
    singular_values,
    summary,
    tokens,
    triplets,
    uniform_idf,
)
from tests.oracle.uncertainty import (
    bias_nats,
    bootstrap_scores,
    covariance,
    holm,
    influence,
    on_queries,
    paired_standard_error,
    queries_needed,
    query_sums,
    shared_difference,
    source_sums,
    standard_error,
    two_sided_p,
)
from tests.oracle.variants import (
    VARIANTS,
    budget_curve,
    gate_buckets,
    mixture_nats,
    pair_proxies,
    rank_stability,
    record_proxies,
    run_weights,
    shape_of_spectrum,
    spectrum,
    variant_scores,
    variant_weight,
)

__all__ = [
    "EPSILON", "TOKENIZERS", "VARIANTS", "Idf", "Measured", "Record", "Row", "Triplet", "assert_close", "bias_nats",
    "bootstrap_scores", "budget_curve", "covariance", "coverage", "document_frequencies", "gate_buckets", "holm",
    "idf_for", "idf_table", "influence", "log_det_nats", "measure_source", "measure_triplets", "merge_rows",
    "mixture_nats", "on_queries", "pair_proxies", "paired_standard_error", "policy_triplets", "queries_needed",
    "query_sums", "rank_stability", "record_proxies", "run_weights", "score_source", "scored_documents",
    "scored_queries", "shape_of_spectrum", "shared_difference", "singular_values", "source_sums", "spectrum",
    "standard_error", "summary", "tokens", "triplets", "two_sided_p", "uniform_idf", "variant_scores", "variant_weight",
]  # fmt: skip
