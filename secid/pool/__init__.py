"""Turn records into a pool: distinct texts, sources as index arrays, tokens, document frequencies and coverage.

Source: METHOD 1, 2.3, 4.
"""

from secid.pool.collect import collect_sources
from secid.pool.coverage import DocumentFrequencies, Lexicon
from secid.pool.make import (
    DraftPlan,
    bad_reasons,
    content_of,
    draft_plan,
    first_sampled,
    key_ranks,
    restricted,
    sample_order,
    select_records,
)
from secid.pool.plan import Plan, PlannedSource, Tally, labels_of
from secid.pool.tokens import SPLITTERS, Keys, TokenSets, splitter, term_keys, token_stream

__all__ = [
    "SPLITTERS",
    "DocumentFrequencies",
    "DraftPlan",
    "Keys",
    "Lexicon",
    "Plan",
    "PlannedSource",
    "Tally",
    "TokenSets",
    "bad_reasons",
    "collect_sources",
    "content_of",
    "draft_plan",
    "first_sampled",
    "key_ranks",
    "labels_of",
    "restricted",
    "sample_order",
    "select_records",
    "splitter",
    "term_keys",
    "token_stream",
]
