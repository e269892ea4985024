"""The table of shapes: one entry a family, each with an example that its test reads.

Adding a family is adding an entry. Within a rank, order matters only for the name that is shown:
where two entries read the same columns the first gives it; where they read different ones,
detection refuses and lists both.
"""

from __future__ import annotations

from dataclasses import dataclass

from secid.read.rows import Row
from secid.read.schemas import labels, toolkits
from secid.read.schemas.patterns import NEGATIVE, NEGATIVE_IDS, POSITIVE, POSITIVE_IDS, QUERY, QUERY_ID, Bind, columns


@dataclass(frozen=True, slots=True)
class Shape:
    """A family of record formats.

    name    : what `--format` takes.
    example : rows that the shape reads as query "q", positive "p" (title "T"), negatives "n", "m", "h"
              (ids 11; 1, d1; 2, 3, d2).
    ids     : True where passages must be ids, False where they must be texts, None where either may be.
    rank    : 0 for a family with names of its own, 1 for general names, 2 for the last resort; a rank
              counts only where no shape of a lower one fits.
    by_name : what `--format` reads under this name, where that is more than what is detected.
    """

    name: str
    title: str
    bind: Bind
    example: tuple[Row, ...]
    ids: bool | None = None
    rank: int = 0
    by_name: Bind | None = None


def _passage(text: str) -> dict[str, str]:
    return {"docid": "7", "title": "T", "text": text}


SHAPES = (
    Shape("tevatron", "Tevatron v1, RLHN", columns(QUERY, "positive_passages", "negative_passages", "lists"),
          ({"query": "q", "positive_passages": [_passage("p")], "negative_passages": [_passage("n")]},)),
    Shape("tevatron-ids", "Tevatron v2", columns(QUERY, "positive_document_ids", "negative_document_ids", "lists"),
          ({"query_id": "1", "query_text": "q", "positive_document_ids": ["d1"], "negative_document_ids": ["d2"]},),
          ids=True),
    Shape("instructor", "INSTRUCTOR, GritLM", toolkits.instructor,
          ({"query": ["find it", "q"], "pos": ["find it", "p"], "neg": [["find it", "n"]]},)),
    Shape("flagembedding", "FlagEmbedding", columns("query", "pos", "neg", "lists"),
          ({"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [0.9], "neg_scores": [0.2], "prompt": "x"},)),
    Shape("dpr", "DPR, Contriever", toolkits.dpr,
          ({"question": "q", "answers": ["a"], "positive_ctxs": [_passage("p")], "negative_ctxs": [_passage("n")],
          "hard_negative_ctxs": [_passage("h")]},)),
    Shape("ms-swift", "ms-swift", toolkits.ms_swift, ({"messages": [{"role": "user", "content": "q"}],
          "positive_messages": [[{"role": "user", "content": "p"}]],
          "negative_messages": [[{"role": "user", "content": "n"}]]},)),
    Shape("nomic", "nomic", toolkits.nomic, ({"query": "q", "document": "p", "negatives": ["n"],
          "metadata": {"objective": {"self": [], "paired": [], "triplet": [["query", "document", "negatives"]]}}},),
          ids=False),
    Shape("simlm", "E5, SimLM", toolkits.simlm,
          ({"query_id": "1", "query": "q", "positives": {"doc_id": ["d1"], "score": [1.0]},
          "negatives": {"doc_id": ["d2"], "score": [0.5]}},)),
    Shape("miners", "several miners in one row", toolkits.several_miners,
          ({"qid": 11, "pos": [1], "neg": {"bm25": [2], "tas-b": [{"pid": 3, "ce-score": -1.5}]}},),
          by_name=toolkits.all_miners),
    Shape("e5-mistral", "E5-mistral synthetic",
          columns("user_query", "positive_document", "hard_negative_document", "cells"),
          ({"user_query": "q", "positive_document": "p", "hard_negative_document": "n"},), ids=False),
    Shape("cohere", "Cohere", columns("query", "relevant_passages", "hard_negatives", "lists"),
          ({"query": "q", "relevant_passages": ["p"], "hard_negatives": ["n"]},)),
    Shape("nvidia", "NVIDIA", columns("query|question", "pos_doc", "neg_doc", "any"),
          ({"query": "q", "pos_doc": {"text": "p"}, "neg_doc": ["n"]},)),
    Shape("hotchpotch", "hotchpotch", columns("query", "pos_text", "negs_text", "lists"),
          ({"query": "q", "pos_text": "p", "negs_text": ["n"], "pos_score": 0.9, "negs_score": [0.2]},)),
    Shape("simcse", "SimCSE", columns("sent0", "sent1", "hard_neg", "cells"),
          ({"sent0": "q", "sent1": "p", "hard_neg": "n"},), ids=False),
    Shape("gpt-table", "GPT-made table", columns("query_text", "gold_passage", r"(hard_)?negative(_\d+)?", "cells"),
          ({"query_text": "q", "gold_passage": "p", "hard_negative": "n"},), ids=False),
    Shape("labelled-list", "labelled list", labels.labelled_list,
          ({"query": "q", "docs": ["p", "n"], "labels": [1, 0]},)),
    Shape("rocketqa", "RocketQA, rows that end on a label", toolkits.positional_pair,
          (["q", "T", "p", "1"], ["q", "T", "n", "0"])),
    Shape("labelled-pair", "labelled pair", labels.labelled_pair,
          ({"query": "q", "passage": "p", "label": 1}, {"query": "q", "passage": "n", "label": 0}), rank=1),
    Shape("colbert", "ColBERT n-way", toolkits.colbert, ([11, [1, 0.9], [2, 0.1]],), ids=True),
    Shape("id-rows", "rows of ids (MS MARCO, ColBERT, GPL)", toolkits.positional_triplet, ([11, 1, 2],), ids=True),
    Shape("rows", "rows without names (JSON arrays, MS MARCO triples)", toolkits.positional_triplet, (["q", "p", "n"],),
          ids=False, by_name=toolkits.positional_tuple),
    Shape("ids", "ids and a corpus", columns((*QUERY, *QUERY_ID), POSITIVE, NEGATIVE, "cells"),
          ({"query": 11, "positive": 1, "negative": 2},), ids=True, rank=1),
    Shape("triplet", "sentence-transformers triplet or n-tuple",
          columns((*QUERY, *QUERY_ID), POSITIVE, NEGATIVE, "cells"),
          ({"query": "q", "positive": "p", "negative_1": "n", "negative_2": "m"},), ids=False, rank=1),
    Shape("lists", "lists of positives and negatives (reranking)",
          columns((*QUERY, *QUERY_ID), POSITIVE, NEGATIVE, "lists"),
          ({"query": "q", "positive": ["p"], "negative": ["n"]},), rank=1),
    Shape("objects", "objects that hold a text each", toolkits.objects,
          ({"query": {"text": "q"}, "positive": {"title": "T", "text": "p"}, "negative": {"text": "n"}},),
          ids=False, rank=1),
    Shape("text-and-ids", "texts of positives, ids of negatives",
          columns((*QUERY, *QUERY_ID), POSITIVE, NEGATIVE_IDS, "any", positive_texts=True),
          ({"query": "q", "positive": "p", "negative_ids": ["d2"]},), ids=True, rank=2),
    Shape("id-columns", "columns named as ids", columns((*QUERY, *QUERY_ID), POSITIVE_IDS, NEGATIVE_IDS, "any"),
          ({"query_id": "11", "positive_id": "d1", "negative_ids": ["d2"]},), ids=True, rank=2),
    Shape("ordered-triplet", "three columns of text, by their order", toolkits.by_order,
          ({"premise": "q", "entailment": "p", "contradiction": "n"},), ids=False, rank=2),
)  # fmt: skip

RUN = "trec"
"""The format of runs, which `read.trec` makes rows of: their lines are none."""
FORMATS = {**{shape.name: shape.title for shape in SHAPES}, RUN: "TREC run, with the judgements of a collection"}
"""What `--format` takes, with titles."""
