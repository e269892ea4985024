"""Shapes that hold no records with negatives, known so that the message can say what they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from secid.read.passages import passage_text
from secid.read.rows import shown
from secid.read.schemas.explain import label_flags, ready_flags
from secid.read.schemas.head import LISTS, Head, cell, look_like_ids
from secid.read.schemas.labels import FLAGS, as_number, is_score
from secid.read.schemas.patterns import NEGATIVE, POSITIVE, QUERY, fits, named
from secid.settings import flag_of

MINE = "mine negatives first, with BM25 or a dense retriever over the corpus"
COLLECTION = (
    f"name it with --collection (the folder), or {flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}, "
    "next to a file of records"
)
TREC = "TREC relevance judgements or a run, not records with negatives"
TREC_REMEDY = (
    "write rows with `query_id`, `positive_id` and `negative_ids` from judgements and run, "
    "and name the texts with --collection DIR"
)
IDS_THIRD = "--format id-rows where the third column holds ids of negatives"
QRELS = "relevance judgements (qrels), not records with negatives"
BY_ROWS = (
    'write it by rows: `python -c "import pandas; '
    "pandas.read_json('FILE'{}).to_json('NEW', orient='records', lines=True)\"`"
)

SMALL = range(-2, 11)
"""Relevance grades in use; TREC judges spam as -2."""

GRADES = 5
"""Different grades of one file, at most."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A shape that cannot be scored, why, and what to do with it. late: only where no schema fits."""

    fits: Callable[[Head], bool]
    message: str
    remedy: str | Callable[[Head], str]
    late: bool = False

    def advice(self, head: Head) -> str:
        """What to do with this file."""
        return self.remedy if isinstance(self.remedy, str) else self.remedy(head)


def _has(*names: str) -> Callable[[Head], bool]:
    return lambda head: set(names) <= set(head.kinds)


def _is_collection(head: Head) -> bool:
    ids, texts = {"_id", "docid", "doc_id", "pid", "id", "qid"}, {"text", "contents", "document_text"}
    labelled = {"label", "score"} & set(head.kinds) or named(head, QUERY)
    return bool(ids & set(head.kinds) and texts & set(head.kinds)) and not labelled


def _is_trec(head: Head) -> bool:
    return not head.named and len(head.kinds) in (4, 6) and {*map(shown, head.column(1))} in ({"0"}, {"Q0"})


def _is_graded(head: Head) -> bool:
    """Whether rows are query id, passage id, grade: few small whole numbers, which come again."""
    if head.named or len(head.kinds) != 3 or not all(look_like_ids(head.column(key)) for key in (0, 1)):
        return False
    grades = [as_number(value) for value in head.column(2)]
    distinct = set(grades)
    few = 0 < len(distinct) < len(grades) and len(distinct) <= GRADES
    return few and all(grade in SMALL for grade in distinct)


def _is_run(head: Head) -> bool:
    """Whether rows are ids of query and passage and a score, or a rank from 1 (or 0) within each query."""
    if head.named or len(head.kinds) not in (3, 4) or {*map(as_number, head.column(2))} <= FLAGS:
        return False
    if len(head.kinds) == 3 and is_score(head, 2):
        return all(look_like_ids(head.column(key)) for key in (0, 1))
    ranked: dict[str, list[tuple[str, str]]] = {}
    for row in head.rows:
        query, passage, rank = (shown(cell(row, place)) for place in range(3))
        ranked.setdefault(query, []).append((rank, passage))
    return any(len(rows) > 1 for rows in ranked.values()) and all(map(_counts, ranked.values()))


def _counts(rows: list[tuple[str, str]]) -> bool:
    """Whether different passages have the ranks 1, 2, 3, ... or 0, 1, 2, ..."""
    n, ranks = len(rows), {rank for rank, _ in rows}
    return len({passage for _, passage in rows}) == n and ranks in ({*map(str, range(n))}, {*map(str, range(1, n + 1))})


def _is_squad(head: Head) -> bool:
    return {"title", "paragraphs"} <= set(head.kinds) or (
        {"question", "context", "answers"} <= set(head.kinds) and not named(head, NEGATIVE)
    )


def _is_chat(head: Head) -> bool:
    kinds = head.kinds
    spoken = kinds.get("messages") == "structs" or kinds.get("conversations") in LISTS or "history" in kinds
    return spoken and "positive_messages" not in kinds and not named(head, POSITIVE[:1])


def is_by_columns(head: Head) -> bool:
    """Whether one row holds a whole table: columns as lists of one length, or as objects by row number.

    Passages of one [instruction, text] schema share their instruction, columns of two rows do not.
    """
    if len(head.rows) > 1 or not isinstance(head.rows[0], dict):
        return False
    if {"columns", "index", "data"} == set(head.kinds):  # as pandas writes it under orient="split"
        return True
    values = list(head.rows[0].values())
    if values and all(isinstance(value, dict) and value for value in values):
        return len({tuple(value) for value in values}) == 1 and all(map(str.isdecimal, values[0]))
    lists = len(values) > 2 and all(isinstance(value, list) and len(value) > 1 for value in values)
    if not lists or not named(head, QUERY):
        return False
    firsts = [head.rows[0][key][0] for role in (POSITIVE, NEGATIVE) for key in named(head, role)]
    flat = all(type(item) is type(value[0]) and not isinstance(item, list) for value in values for item in value)
    return flat and len({len(value) for value in values}) == 1 and len(set(map(shown, firsts))) == len(firsts) > 1


def _by_rows(head: Head) -> str:
    return BY_ROWS.format(", orient='split'" if "columns" in head.kinds else "")


def _inner(head: Head) -> list[tuple[str, bool]]:
    """The columns of objects with records inside, and whether those name a query of their own."""
    inner = []
    for key in head.kinds:
        values = [value for value in head.typical(key) if isinstance(value, dict)]
        names = {name for value in values for name in value}
        queries = any(fits(name, QUERY) for name in names)
        passages = any(fits(name, POSITIVE[:1]) for name in names)
        if any(fits(name, NEGATIVE) for name in names) and (queries or passages):
            inner.append((str(key), queries))
    return inner


def _is_nested(head: Head) -> bool:
    return bool(_inner(head)) and not named(head, NEGATIVE)


def _unnest(head: Head) -> str:
    inner = _inner(head)
    name = shown(inner[0][0], 60)
    if len(inner) == 1 and name.isidentifier() and (inner[0][1] or len(head.kinds) > 1):
        return f"write one record a line: `jq -c '(arrays[] // .) | . + .{name}' FILE > NEW`"
    step = ".[]" if inner[0][1] else "to_entries[] | {query: .key} + .value"
    return f"write one record a line: `jq -c '{step}' FILE > NEW`"


def _has_several_queries(head: Head) -> bool:
    queries = named(head, QUERY)
    return bool(queries) and all(head.kinds[key] == "texts" for key in queries) and bool(named(head, NEGATIVE))


def _are_keyed(head: Head) -> bool:
    values = [value for key in named(head, NEGATIVE) if head.kinds[key] == "struct" for value in head.typical(key)]
    return bool(named(head, QUERY)) and bool(values) and all(passage_text(value) is None for value in values)


def _has_no_negatives(head: Head) -> bool:
    return bool(named(head, QUERY)) and bool(named(head, POSITIVE)) and not named(head, NEGATIVE)


def _grade_flags(head: Head) -> str:
    grades = sorted({number for value in head.column(2) if (number := as_number(value)) is not None})
    if len(grades) == 1:
        return f"judgements of one grade hold no negatives: {MINE}; {IDS_THIRD}"
    flags = f"--query-column 0 --positive-column 1 --label-column 2 --positive-score {grades[1]:g} --collection DIR"
    return f"to take passages judged below {grades[1]:g} as negatives: {flags}; or {MINE}; {IDS_THIRD}"


def _preferred(head: Head) -> str:
    query = next((key for key in ("prompt", *named(head, QUERY)) if head.kinds.get(key) == "text"), "NAME")
    return f"to score them as records: --query-column {query} --positive-column chosen --negative-column rejected"


def _negatives(head: Head) -> str:
    return label_flags(head) or f"{ready_flags(head)}; if no column holds negatives, {MINE}"


REFUSALS = (
    Refusal(_has("queries", "corpus", "relevant_docs"), "a LlamaIndex data set: it has no negatives", MINE),
    Refusal(_is_squad, "a SQuAD data set: it has no negatives", MINE),
    Refusal(is_by_columns, "one object that holds a whole table by columns", _by_rows),
    Refusal(_is_nested, "the records lie one level deeper, inside objects", _unnest),
    Refusal(_has("query-id", "corpus-id"), QRELS, TREC_REMEDY),
    Refusal(_has("query-id", "corpus-ids"), "lists of candidates (top_ranked): none is labelled positive", TREC_REMEDY),
    Refusal(_is_trec, TREC, TREC_REMEDY),
    Refusal(_is_run, "a run (query, passage, rank or score), not triples of ids",
            f"{TREC_REMEDY}; {IDS_THIRD}"),
    Refusal(_is_graded, QRELS, _grade_flags),
    Refusal(_has("chosen", "rejected"), "preference pairs of a chat model, not retrieval records", _preferred),
    Refusal(lambda head: {"instruction", "output"} <= set(head.kinds) and not named(head, NEGATIVE),
            "instruction-tuning data: it has no negatives", MINE),
    Refusal(_is_chat, "conversations without positives and negatives", MINE),
    Refusal(_is_collection, "a collection of texts, not records with negatives", COLLECTION),
    Refusal(lambda head: not head.named and len(head.kinds) == 2,
            "two columns without names, where query, positive and negatives need three", MINE),
    Refusal(_has_several_queries, "lists of queries, where one text is expected",
            "write one text as the query of each row; an [instruction, text] pair has two parts (--format instructor)",
            late=True),
    Refusal(_are_keyed, "negatives that are objects without a text of known name",
            "write them as a list of texts, or as a list for each miner (`{\"bm25\": [...]}`)", late=True),
    Refusal(_has_no_negatives, "a query and positives but no column of negatives", _negatives, late=True),
)  # fmt: skip
