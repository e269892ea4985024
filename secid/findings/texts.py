"""Evaluate the findings that need only texts, for all negatives of a run.

This module finds negatives that add no information: repeats in a record, echoes of the query, and hubs, which are
listed for many queries. The other rules are in other modules. Source: METHOD 14.

Reading order: copies (a negative against the positives of its query); phrases, form, openings and languages (how a
passage is written); texts (repeats, echoes, hubs, and all text findings as masks); rows (findings that need the
encoder, and all findings of a measured source); status and summary (from flags to numbers and examples).
`secid check` also uses lexical_gate and judgements.

`texts.text_rules` turns pooled texts and sources into a mask per source. Bit i stands for the catalogue's i-th finding:

    record                                negative            findings
    query     "where do goats live"       "Goats live here!"  false_negative (equal except case and punctuation)
    positive  "goats live here"           "n/a"               empty
                                          "N/A."              empty, repeat
                                          "cats live there"   none

From this mask, `status.ListedNegatives` counts empty 2 of 4 (0.5), false_negative and repeat 1 of 4 (0.25 each).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from secid.arrays import Flags, distinct, is_known
from secid.findings.copies import CopyFinder, LabelledPositives
from secid.findings.openings import NO_KEYS, BothFlags, LengthRange, PassageReader, RunOpenings, opening_flags
from secid.findings.status import ListedNegatives
from secid.pool import DocumentFrequencies, Keys, PlannedSource
from secid.pool.normal_form import EMPTY_FORM, TextForms, text_forms
from secid.pool.plan import Mask, TextFindings
from secid.pool.texts import TextStore
from secid.results.catalogue import BITS

HUB_SHARE = 0.05
"""Share of queries above which a text listed for them is a hub. Source: METHOD 14."""
HUB_QUERIES = 100
"""Number of queries in the sample for which the share is estimated. Source: METHOD 14."""

COMMON_PHRASES = "common_phrases"
"""Name of an array of `RunTexts`."""


def text_rules(
    queries: TextStore,
    passages: TextStore,
    sources: Sequence[PlannedSource],
    known: LabelledPositives | None = None,
    run: RunTexts | None = None,
    threads: int | None = None,
    reader: PassageReader | None = None,
) -> list[TextFindings]:
    """Return the text findings of each source: all for negatives, only formal ones for labelled positives.

    queries, passages, sources : everything that was read, before sampling and before a positive policy is applied.
    known   : labelled positives from outside the run, such as a baseline's. They count like those of the run.
    run     : facts about the whole run if these sources are a part of it; None to gather them from these sources.
    threads : number of processes that read many texts; None for one per core. Not used with a reader.
    reader  : reader that began while these passages were read from files; None to begin now.
    Results do not depend on the order of sources, records and texts, on batch sizes or on the number of processes.
    """
    of_queries = text_forms(queries)
    with PassageReader(threads) if reader is None else nullcontext(reader) as reader:
        facts = reader.facts(passages)
        of_passages, workers = facts.forms, reader.workers(len(passages))
        finder = CopyFinder(of_queries, of_passages, facts.runs, passages, sources, known, workers)
        copies = [finder.flags(source) for source in sources]
    openings = opening_flags(facts.openings, sources, None if run is None else run.openings)
    findings = []
    for source, of_copies, of_openings in zip(sources, copies, openings, strict=True):
        hubs = (
            hub_forms(queries_by_form(source, of_queries, of_passages))
            if run is None
            else run.hubs.get(source.name, NO_KEYS)
        )
        formal = facts.of_source(source, None if run is None else run.lengths.get(source.name))
        flags = {
            **of_copies,
            **of_openings,
            "empty": of_passages.empty[source.negatives],
            "repeat": listed_before(source, of_passages),
            "query_echo": echo_flags(source, of_queries, of_passages),
            "hub": is_known(of_passages.form[source.negatives], hubs),
        }
        masks = formal_masks(source, formal)
        if run is not None:
            excess = run.excess.get(source.name, {})
        else:
            excess = ListedNegatives(source.with_findings(masks), queries.keys).excess()
        findings.append(TextFindings(masks.negatives | mask_of(flags, source.n_triplets), masks.positives, excess))
    return findings


def formal_masks(source: PlannedSource, formal: Mapping[str, BothFlags]) -> TextFindings:
    """Return masks of a source's formal findings. formal: flags from `PassageFacts.of_source`."""
    of_negatives, of_positives = ({name: flags[side] for name, flags in formal.items()} for side in (0, 1))
    positives = mask_of(of_positives, len(source.positives)).astype(np.uint16)
    return TextFindings(mask_of(of_negatives, source.n_triplets), positives)


def mask_of(flags: Mapping[str, Flags], n: int) -> Mask:
    """Return (n,) uint32 masks. Bit i is set if flags[TEXT_FINDINGS[i]] is; a finding without flags sets no bit.

    Raises KeyError for an unknown finding.
    """
    mask = np.zeros(n, np.uint32)
    for name, values in flags.items():
        mask |= values.astype(np.uint32) << np.uint32(BITS[name])
    return mask


def listed_before(source: PlannedSource, passages: TextForms) -> Flags:
    """Return (T,) flags of negatives that repeat the normal form of an earlier negative of their record.

    Exact copies are stored as one triplet, and `copies` counts them. All but the first are repeats too.
    """
    keys = source.triplet_record() * max(1, passages.n_forms) + passages.number[source.negatives]
    order = np.argsort(keys, kind="stable")
    is_repeat = np.zeros(len(keys), np.bool_)
    is_repeat[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    return is_repeat


def echo_flags(source: PlannedSource, queries: TextForms, passages: TextForms) -> Flags:
    """Return (T,) flags of negatives with the same normal form as their query. Texts without words never match."""
    form = passages.form[source.negatives]
    return np.asarray((form == queries.form[source.query[source.triplet_record()]]) & (form != EMPTY_FORM))


@dataclass(frozen=True)
class RunTexts:
    """Facts that the rules need about all texts of a run.

    hubs    : source -> sorted keys of the normal forms that are hubs.
    lengths : source -> shortest and longest ordinary length.
    excess  : source -> result of `status.formal_excess`.
    """

    openings: RunOpenings
    hubs: Mapping[str, Keys]
    lengths: Mapping[str, LengthRange]
    excess: Mapping[str, Mapping[str, bool]]

    def stored(self, names: Sequence[str]) -> dict[str, Keys]:
        """Return the facts as arrays, which `restored_texts` reads. names: names of the sources."""
        arrays = {COMMON_PHRASES: self.openings.common_phrases}
        for number, name in enumerate(names):
            arrays[f"shared_{number}"] = self.openings.shared.get(name, NO_KEYS)
            arrays[f"hubs_{number}"] = self.hubs.get(name, NO_KEYS)
            arrays[f"lengths_{number}"] = np.array(self.lengths.get(name, ()), np.uint64)
            excess = self.excess.get(name, {})
            arrays[f"excess_{number}"] = np.array([2 * BITS[each] + helps for each, helps in excess.items()], np.uint64)
        return arrays


def restored_texts(arrays: Mapping[str, Keys], names: Sequence[str]) -> RunTexts:
    """Return the facts from arrays of `RunTexts.stored`. names: the same names. Raises KeyError for a missing array."""
    shared, hubs, lengths, excess = (
        {name: arrays[f"{kind}_{n}"] for n, name in enumerate(names)}
        for kind in ("shared", "hubs", "lengths", "excess")
    )
    finding_of_bit = tuple(BITS)
    return RunTexts(
        RunOpenings(arrays[COMMON_PHRASES], shared),
        hubs,
        {name: (int(ends[0]), int(ends[1])) for name, ends in lengths.items() if len(ends)},
        {name: {finding_of_bit[key >> 1]: bool(key & 1) for key in keys.tolist()} for name, keys in excess.items()},
    )


def queries_by_form(source: PlannedSource, queries: TextForms, passages: TextForms) -> DocumentFrequencies:
    """Count, for each normal form, the queries of a source that list it. Queries with equal normal forms are one."""
    n_forms = max(1, passages.n_forms)
    query = queries.number[source.query[source.triplet_record()]]
    pairs = distinct(query * n_forms + passages.number[source.negatives])
    form, number = np.unique(passages.form[source.negatives], return_index=True)
    counts = np.bincount(pairs % n_forms, minlength=n_forms)[passages.number[source.negatives][number]]
    return DocumentFrequencies(form, counts.astype(np.int64), len(distinct(pairs // n_forms)))


def hub_forms(frequencies: DocumentFrequencies) -> Keys:
    """Return the sorted keys of hubs: forms listed for an estimated share of queries above HUB_SHARE.

    The estimate is for a random sample of HUB_QUERIES queries. A form listed for k of the source's Q queries is
    listed for k / Q of such a sample on average (the mean of a hypergeometric count, as in rarefaction). If Q is below
    HUB_QUERIES, the missing queries count as queries without the form. The estimate k / max(Q, HUB_QUERIES) is then a
    lower bound, and a hub needs six queries even in a small source.
    """
    return frequencies.keys[frequencies.counts > HUB_SHARE * max(frequencies.n_documents, HUB_QUERIES)]
