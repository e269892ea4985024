"""Shapes that hold no records with negatives, known so that the message can say what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from secid.read.passages import passage_text
from secid.read.rows import shown
from secid.read.schemas.head import LISTS, Head, cell
from secid.read.schemas.patterns import NEGATIVE, POSITIVE, QUERY, fits, named
from secid.read.schemas.special import is_transposed
from secid.settings import flag_of

MINE = "secid scores negatives that are there: find some first, with BM25 or a dense retriever over the corpus"
COLLECTION = (
    f"name it by --collection (the folder) or {flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}, "
    "and score a file of records"
)
TREC = "TREC relevance judgements or a run, not records with negatives"
TREC_REMEDY = (
    "write rows with `query_id`, `positive_id` and `negative_ids` from both; the texts of the ids: --collection; "
    "judgements for --against-eval: parted by tabs"
)
BATCH = "answers of a language model in a batch, with the records in their texts"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A shape that cannot be scored, why, and what to do with it. late: only where no schema fits."""

    fits: Callable[[Head], bool]
    message: str
    remedy: str
    late: bool = False


def _has(*names: str) -> Callable[[Head], bool]:
    return lambda head: set(names) <= set(head.kinds)


def _is_collection(head: Head) -> bool:
    kinds = head.kinds
    named_ids = any(name in kinds for name in ("_id", "docid", "doc_id", "pid", "id", "qid"))
    texts = "text" in kinds or "contents" in kinds or "document_text" in kinds
    return named_ids and texts and not any(name in kinds for name in ("label", "score")) and not named(head, QUERY)


def _is_headless_pair(head: Head) -> bool:
    return not head.named and len(head.kinds) == 2


def _is_trec_qrels(head: Head) -> bool:
    return not head.named and len(head.kinds) in (4, 6) and {*map(shown, head.column(1))} in ({"0"}, {"Q0"})


def _is_run(head: Head) -> bool:
    """Whether rows are query, passage, rank: the third counts from 1 (or 0) within each query, over other passages."""
    if head.named or len(head.kinds) not in (3, 4):
        return False
    ranked: dict[str, dict[str, str]] = {}
    for row in head.rows:
        cells = [cell(row, place) for place in range(3)]
        if not all(isinstance(value, str | int) for value in cells):
            continue
        query, passage, rank = map(str, cells)
        if rank in ranked.setdefault(query, {}):
            return False
        ranked[query][rank] = passage
    several = any(len(passages) > 1 for passages in ranked.values())
    return several and all(_counts(passages) for passages in ranked.values())


def _counts(passages: Mapping[str, str]) -> bool:
    """Whether different passages stand at the ranks 1, 2, 3, ... or 0, 1, 2, ..."""
    n = len(passages)
    ranks = [{str(rank) for rank in range(first, first + n)} for first in (0, 1)]
    return len(set(passages.values())) == n and set(passages) in ranks


def _is_instruction_tuning(head: Head) -> bool:
    return {"instruction", "output"} <= set(head.kinds) and not named(head, NEGATIVE)


def _is_chat(head: Head) -> bool:
    kinds = head.kinds
    spoken = kinds.get("messages") == "structs" or kinds.get("conversations") in LISTS or "history" in kinds
    return spoken and "positive_messages" not in kinds and not named(head, POSITIVE[:1])


def _is_nested(head: Head) -> bool:
    """Whether records lie inside objects of the rows."""
    inner = [value for key in head.kinds if head.kinds[key] == "struct" for value in head.typical(key)]
    known = [any(fits(name, NEGATIVE) for name in value) and any(fits(name, (*QUERY, *POSITIVE[:1])) for name in value)
             for value in inner]  # fmt: skip
    return any(known) and not named(head, NEGATIVE)


def _has_several_queries(head: Head) -> bool:
    queries = named(head, QUERY)
    return bool(queries) and all(head.kinds[key] == "texts" for key in queries) and bool(named(head, NEGATIVE))


def _are_keyed(head: Head) -> bool:
    negatives = named(head, NEGATIVE)
    values = [value for key in negatives if head.kinds[key] == "struct" for value in head.typical(key)]
    return bool(named(head, QUERY)) and bool(values) and all(passage_text(value) is None for value in values)


def _has_no_negatives(head: Head) -> bool:
    return bool(named(head, QUERY)) and bool(named(head, POSITIVE)) and not named(head, NEGATIVE)


REFUSALS = (
    Refusal(_has("queries", "corpus", "relevant_docs"), "a LlamaIndex data set: it has no negatives", MINE),
    Refusal(is_transposed, "one object that holds a whole table by columns or by numbered rows",
            "write the table by rows: in pandas `to_json(path, orient='records', lines=True)`"),
    Refusal(_is_nested, "the records lie one level deeper, inside objects",
            "write one record a line: `jq -c '(arrays[] // .) | . + .NAME'` for rows that hold theirs under NAME, "
            "`jq -c '.[]'` for records by id, `jq -c 'to_entries[] | {query: .key} + .value'` for records by query"),
    Refusal(_has("query-id", "corpus-id"), "relevance judgements (qrels), not records with negatives", COLLECTION),
    Refusal(_has("query-id", "corpus-ids"), "lists of candidates (top_ranked), of which none is said to be positive",
            TREC_REMEDY),
    Refusal(_is_trec_qrels, TREC, TREC_REMEDY),
    Refusal(_is_run, "a run (query, passage, rank), not triples of ids",
            "write rows of query, positive, negative; --format id-rows where the third column holds ids of negatives"),
    Refusal(_has("custom_id", "response"), BATCH,
            "write one record a line: `jq -c '.response.body.choices[0].message.content | fromjson'`"),
    Refusal(_has("prompt", "chosen", "rejected"), "preference pairs of a chat model, not retrieval records",
            "if they are meant as records, name the columns with --query-column, --positive-column, --negative-column"),
    Refusal(_is_instruction_tuning, "instruction-tuning data: it has no negatives", MINE),
    Refusal(_is_chat, "conversations without positives and negatives", MINE),
    Refusal(_is_collection, "a collection of texts, not records with negatives", COLLECTION),
    Refusal(_is_headless_pair, "two columns without names (ids and texts, or pairs): no negatives", MINE),
    Refusal(_has_several_queries, "lists of queries, where one text is expected",
            "write a row for each query", late=True),
    Refusal(_are_keyed, "negatives that are objects without a text of known name",
            "write them as a list of texts, or a list for each miner (`{\"bm25\": [...], \"dense\": [...]}`); "
            "--negative-column reads objects of one text a miner", late=True),
    Refusal(_has_no_negatives, "a query and positives but no column of negatives",
            f"if there is none: {MINE}", late=True),
)  # fmt: skip
