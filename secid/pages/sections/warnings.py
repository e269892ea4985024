"""What makes the scores of a run less than they seem, a sentence for each warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from secid.pages.findings import damaged_positives
from secid.pages.numbers import budget, capital, count, fraction, listed, percent, plural
from secid.pages.sanitize import named, plain
from secid.results import Run
from secid.settings import flag_of

SHOWN_NAMES = 4
MISREADS: Mapping[str, str] = {
    "cut": "splits words at vowel signs and other marks",
    "fused": "makes one word of a whole sentence in scripts without spaces",
    "decomposed": "takes decomposed letters (NFD) for other letters than composed ones",
}
"""What a tokenizer does to words, by the kind of a warning or caution."""


def warning_sentences(run: Run) -> tuple[str, ...]:
    """The warnings of a run, in its order; those of a kind that only a newer secid knows are left out."""
    of_run = [SENTENCES[item.kind](item.source or "", item.values) for item in run.warnings if item.kind in SENTENCES]
    return (*merged_sentences(run), *of_run, *damaged_positives(run.sources))


def merged_sentences(run: Run) -> tuple[str, ...]:
    """What of a merged run is of a sample of the queries."""
    if run.merged is None or run.merged.sampled_queries is None:
        return ()
    sentence = (
        f"Merged from {plural(run.merged.n_shards, 'shard')}: the table, its intervals and comparisons, the findings "
        "and the overlap of sources are of all rows; hardness, languages, random_like, weak_positive and the other "
        f"parts are of {count(run.merged.sampled_queries)} queries of each source. RUN in a command stands for the run "
        "folder of a shard."
    )
    return (sentence,)


def _noisy(_: str, values: Mapping[str, Any]) -> str:
    return (
        f"The encoder is not batch-invariant: positive and negative closer than {values['distance']:.2g} count as the "
        f"same (limit {values['limit']:.2g}), so scores and ranks mean little."
    )


def _inactive(source: str, values: Mapping[str, Any]) -> str:
    low = (
        f"The lexical gate is inactive for {named(source)}: under {plain(values['tokenizer'])} the labelled positives "
        f"cover {fraction(values['coverage'])} of their queries on average"
    )
    best, positives = plain(values["best"]), values["best_positives"]
    if not values["helps"]:
        return f"{low}, and no tokenizer that leaves words whole helps (most: {best}, about {fraction(positives)})."
    apart = "" if values["for_all"] else " in a run of its own"
    return (
        f"{low}. Use {flag_of('tokenizer', best)}{apart}: the positives then cover about "
        f"{fraction(positives, 2)}, the negatives {fraction(values['best_negatives'], 2)}."
    )


def _misread(_: str, values: Mapping[str, Any]) -> str:
    shares = [f"{percent(share)} of the texts of {named(name)}" for name, share in values["sources"].items()]
    where = listed(shares, SHOWN_NAMES)
    does = MISREADS.get(values["effect"], "misreads words")
    return f"Use {flag_of('tokenizer', values['best'])}: {plain(values['tokenizer'])} {does} ({where})."


def _few_queries(source: str, values: Mapping[str, Any]) -> str:
    n = values["n_queries"]
    few = "1 query is" if n == 1 else f"{count(n)} queries are"
    return f"{named(source)}: {few} too few for an interval; its order is not established."


def _unpaired(_: str, values: Mapping[str, Any]) -> str:
    first, second, n = named(values["first"]), named(values["second"]), values["n_shared_queries"]
    shared = f"{first} and {second} share {plural(n, 'query', 'queries') if n else 'no queries'}"
    if values["n_apart"] == 1:
        return f"{shared}, too few to compare them: score sources of the same queries."
    pairs = f"{count(values['n_apart'])} of {plural(values['n_pairs'], 'pair')}"
    return f"{pairs} share too few queries to be compared ({shared}): score sources of the same queries."


def _own_queries(_: str, values: Mapping[str, Any]) -> str:
    n, largest = values["n_common"], values.get("n_largest")  # absent from reports of earlier versions
    of = f"; the largest has {count(largest)}" if largest else ""
    shared = f"only {plural(n, 'query', 'queries')} are" if n > 1 else "only 1 query is" if n else "no query is"
    return (
        f"{capital(shared)} in every source{of}. So each row of the table is of the source's own queries, marked *: "
        "compare sources by their pairs, not by these rows."
    )


def _traces(_: str, values: Mapping[str, Any]) -> str:
    return (
        f"{count(values['n_traces'])} of {plural(values['n_pairs'], 'pair')} are compared by tr M: the sources share "
        "too many different sets of queries to score each."
    )


def _chosen(_: str, values: Mapping[str, Any]) -> str:
    apart = sorted(values["sources"].items(), key=lambda item: -abs(item[1][1] - item[1][2]))
    parts = [
        f"{named(name)} has {count(n)} of the {count(values['n_queries'])} queries (hardness of the other sources: "
        f"{fraction(on_them, 2)} on these, {fraction(on_rest, 2)} on the rest)"
        for name, (n, on_them, on_rest) in apart
    ]
    return f"{listed(parts, SHOWN_NAMES)}."


def _unequal(_: str, values: Mapping[str, Any]) -> str:
    return (
        f"The sources differ in size, and with {flag_of('positives', 'all')} they are not cut to equal numbers, so the "
        f"order at B = {budget(values['budget'])} favours the larger ones; rank at B = 1, or with "
        f"{flag_of('positives', 'first')}."
    )


def _no_value(source: str, values: Mapping[str, Any]) -> str:
    return f"No row of {named(source)} has a value of {named(values['column'])}: all are in the slice without one."


def _mixed(source: str, values: Mapping[str, Any]) -> str:
    n = values["n_records"]
    return (
        f"{named(source)}: the rows of {plural(n, 'record')} differ in {named(values['column'])}; a record counts "
        "under the value of its first row, so the order of rows matters."
    )


def _no_common_value(_: str, values: Mapping[str, Any]) -> str:
    own = [f"{named(name)} has {listed([named(value) for value in of])}" for name, of in values["sources"].items()]
    return (
        f"Some sources share no slice: write the values of {named(values['column'])} the same way in all "
        f"({listed(own, SHOWN_NAMES)})."
    )


SENTENCES: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "noisy_encoder": _noisy,
    "inactive_lexical_gate": _inactive,
    "misread_words": _misread,
    "few_queries": _few_queries,
    "few_shared_queries": _unpaired,
    "own_queries": _own_queries,
    "traces_compared": _traces,
    "chosen_queries": _chosen,
    "unequal_sizes": _unequal,
    "no_slice_value": _no_value,
    "mixed_slice_values": _mixed,
    "no_common_slice_value": _no_common_value,
}
