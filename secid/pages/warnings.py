"""The warnings of a run as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from secid.pages.text import count, fraction, listed, named, percent, plain, plural
from secid.results import Run, SourceReport
from secid.results.catalogue import DAMAGE_FINDINGS, FINDINGS
from secid.settings import flag_of

MAX_WARNED_NAMES = 4
MISREADS: Mapping[str, str] = {
    "cut": "splits words at vowel signs and other marks",
    "fused": "makes one word of a whole sentence in scripts without spaces",
    "decomposed": "takes decomposed letters (NFD) for other letters than composed ones",
}
"""Damage that a tokenizer does to words, by the kind of a warning or caution."""


def warning_sentences(run: Run) -> tuple[str, ...]:
    """Return the warnings of a run as sentences, in order. Kinds from a newer version of secid are left out."""
    of_run = [
        WARNING_SENTENCES[item.kind](item.source or "", item.values)
        for item in run.warnings
        if item.kind in WARNING_SENTENCES
    ]
    return (*merged_sentences(run), *of_run, *damaged_positives(run.sources))


def merged_sentences(run: Run) -> tuple[str, ...]:
    """Return sentences on the parts of a merged run that cover only a sample of the queries."""
    if run.merged is None or run.merged.sampled_queries is None:
        return ()
    sentence = (
        f"Merged from {plural(run.merged.n_shards, 'shard')}: the table, its intervals and comparisons, the findings "
        "and the overlap of sources cover all rows; hardness (and so which sources are ranked), languages, "
        "random_like, weak_positive and the other parts cover a sample of "
        f"{count(run.merged.sampled_queries)} queries of each source. In a command, RUN is the run folder of a shard."
    )
    return (sentence,)


def _filled(kind: str, source: str, values: Mapping[str, Any]) -> str:
    return TEMPLATES[kind].format(source=named(source), **{name: _written(value) for name, value in values.items()})


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        clauses = [f"{named(name)} has {listed([named(each) for each in of])}" for name, of in value.items()]
        return listed(clauses, MAX_WARNED_NAMES)
    if isinstance(value, str):
        return named(value)
    return count(value) if isinstance(value, int) else f"{value:.2g}"


TEMPLATES: Mapping[str, str] = {
    "noisy_encoder": "The encoder is not batch-invariant: positive and negative closer than {distance} count as the "
    "same (limit {limit}), so scores and ranks mean little.",
    "few_queries": "{source} has too few queries for an interval ({n_queries}), so its order is not established.",
    "few_shared_queries": "{n_apart} of {n_pairs} pairs share too few queries to be compared, such as {first} and "
    "{second} ({n_shared_queries} shared). Score sources with the same queries.",
    "own_queries": "Queries in every source: {n_common}; the largest source has {n_largest}. So each row of the table, "
    "marked *, covers that source's own queries. Compare sources by their pairs, not by these rows.",
    "traces_compared": "{n_traces} of {n_pairs} pairs are compared by tr M, because there are too many different sets "
    "of shared queries to score each.",
    "unequal_sizes": f"The sources differ in size, and with {flag_of('positives', 'all')} they are not cut to equal "
    "numbers. So the order above B = 1 favours larger sources. Rank at B = 1, or use "
    f"{flag_of('positives', 'first')}.",
    "no_slice_value": "No row of {source} has a value in {column}, so all its rows are in the slice without a value.",
    "mixed_slice_values": "Records of {source} whose rows differ in {column}: {n_records}. Each counts under the value "
    "of its first row, so the order of rows matters.",
    "no_common_slice_value": "Some sources have no slice in common. Write the values of {column} the same way in all "
    "sources ({sources}).",
    "inactive_lexical_gate": "The lexical gate is inactive for {source}: under {tokenizer} the labelled positives "
    "cover {coverage} of their queries on average.",
}
"""Sentences of warnings by kind, with their values by name."""


def _inactive(source: str, values: Mapping[str, Any]) -> str:
    low = _filled("inactive_lexical_gate", source, values)
    best, positives = values["best"], fraction(values["best_positives"], 2)
    if not values["helps"]:
        return f"{low} No tokenizer that leaves words whole helps (most: {plain(best)}, {positives})."
    apart = "" if values["for_all"] else " in a separate run"
    negatives = fraction(values["best_negatives"], 2)
    return f"{low} Use {flag_of('tokenizer', best)}{apart}: positives then cover {positives}, negatives {negatives}."


def _misread(_: str, values: Mapping[str, Any]) -> str:
    shares = [f"{percent(share)} of the texts of {named(name)}" for name, share in values["sources"].items()]
    does = MISREADS.get(values["effect"], "misreads words")
    where = listed(shares, MAX_WARNED_NAMES)
    return f"Use {flag_of('tokenizer', values['best'])}: {plain(values['tokenizer'])} {does} ({where})."


def _chosen(_: str, values: Mapping[str, Any]) -> str:
    apart = sorted(values["sources"].items(), key=lambda item: -abs(item[1][1] - item[1][2]))
    parts = [
        f"{named(name)} has {count(n)} of the {count(values['n_queries'])} queries (hardness of the other sources: "
        f"{fraction(on_them, 2)} on these, {fraction(on_rest, 2)} on the rest)"
        for name, (n, on_them, on_rest) in apart
    ]
    return f"{listed(parts, MAX_WARNED_NAMES)}."


WARNING_SENTENCES: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    **{kind: partial(_filled, kind) for kind in TEMPLATES},
    "inactive_lexical_gate": _inactive,
    "misread_words": _misread,
    "chosen_queries": _chosen,
}


def damaged_positives(sources: Iterable[SourceReport]) -> list[str]:
    """Return a sentence about each source whose labelled positives have defects."""
    sentences = []
    for source in sources:
        shares = {
            item.name: item.positives.share
            for item in source.findings
            if item.positives and item.name in DAMAGE_FINDINGS
        }
        damaged = [f"{percent(share)} {name}" for name, share in shares.items() if FINDINGS[name].exceeded_by(share)]
        if damaged:
            sentences.append(
                f"The positives of {named(source.name)} are damaged, too: {', '.join(damaged)}. Repair them."
            )
    return sentences
