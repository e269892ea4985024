"""What is wrong with each source: proxies, buckets with examples, gate histograms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from secid.measure.buckets import Thresholds, Trait, traits
from secid.measure.proxies import proxies
from secid.pool import SPLITTERS, Plan, sample_order, splitter
from secid.results import Bucket, Proxies, TripletExample
from secid.settings import Settings
from secid.triplets.coverage import CoverageBench

if TYPE_CHECKING:
    from secid.triplets.measured import Measured

Floats = npt.NDArray[np.float64]

HISTOGRAM_BINS = 20
SHOWN_GATES = ("consistency", "locality", "coverage", "weight")
EXAMPLE_CHARACTERS = 600
"""A passage is cut to this length in the report: enough to judge it, small enough for a page."""
MATCHED_TERMS = 12
SEVERITY_DECIMALS = 5
"""Of how bad a triplet is: copies of one text differ in the seventh, by the batch they were encoded in."""


@dataclass(frozen=True)
class Findings:
    """Fields of SourceResult that tell what a source is made of."""

    proxies: Proxies
    gate_histograms: Mapping[str, tuple[int, ...]]
    buckets: tuple[Bucket, ...]
    bucket_overlaps: Mapping[str, Mapping[str, int]]


class Inspector:
    """Looks into measured sources while the plan's texts are still at hand.

    truncated : (n_passages,) which passages the encoder cut; None where it does not say, and there is no such bucket.
    """

    def __init__(
        self,
        plan: Plan,
        coverages: CoverageBench,
        truncated: npt.NDArray[np.bool_] | None,
        settings: Settings,
    ) -> None:
        self._plan = plan
        self._coverages = coverages
        self._truncated = truncated
        self._wordless = coverages.lexicon(settings.tokenizer).queries_without_tokens()
        self._settings = settings

    def findings(self, item: Measured) -> Findings:
        """Proxies, buckets and histograms of one source. Source: METHOD 3, 4."""
        found = self.traits(item)
        idf = self._coverages.idf(item.triplets, self._settings.tokenizer, self._settings.idf)
        table, columns = item.table, item.table.columns()
        values = proxies(item.triplets, table.dots(), table.gates(), item.record_gradient, table.temperature)
        return Findings(
            proxies=Proxies(**vars(values)),
            gate_histograms={name: _histogram(columns[name], table.share) for name in SHOWN_GATES},
            buckets=tuple(self._bucket(item, name, trait, idf) for name, trait in found.items()),
            bucket_overlaps={
                first: {
                    second: _count(found[first].flags & found[second].flags, item.triplets.share) for second in found
                }
                for first in found
            },
        )

    def traits(self, item: Measured) -> dict[str, Trait]:
        """Who is in which bucket."""
        planned, rows, settings = item.table.source, item.triplets, self._settings
        return traits(
            item.table.columns(),
            {
                "equals_positive": planned.equals_positive[rows.place],
                "duplicate_negative": planned.copies[rows.place] > 1,
                **({} if self._truncated is None else {"truncated": self._truncated[rows.negative]}),
                "query_without_tokens": self._wordless[rows.query],
            },
            Thresholds(settings.high_coverage, settings.near_copy, settings.valid, settings.far),
        )

    def _bucket(self, item: Measured, name: str, trait: Trait, idf: Floats) -> Bucket:
        flags = trait.flags
        share = np.ones(len(flags)) if item.triplets.share is None else item.triplets.share
        weight = share * item.table.gates().weight.numpy()
        information = item.influence.information
        eci = item.nats(item.influence.budgets[0])
        return Bucket(
            name=name,
            kind=trait.kind,
            rule=trait.rule,
            n_triplets=_count(flags, item.triplets.share),
            fraction=float(share[flags].sum() / share.sum()),
            weight_fraction=_part(weight, flags),
            score_nats=eci * _part(information, flags),
            examples=self._examples(item, trait, idf),
        )

    def _examples(self, item: Measured, trait: Trait, idf: Floats) -> tuple[TripletExample, ...]:
        """The worst triplets of a bucket, one a query; equally bad ones in the seeded order of queries."""
        rows = item.triplets
        inside = np.flatnonzero(trait.flags)
        priority = sample_order(self._plan.queries.keys[rows.query[inside]], self._settings.seed)
        order = inside[np.lexsort((priority, -trait.severity[inside].round(SEVERITY_DECIMALS)))]
        _, first = np.unique(rows.query[order], return_index=True)
        worst = order[np.sort(first)][: self._settings.examples]
        columns = item.table.columns()
        return tuple(self._example(item, int(place), columns, idf) for place in worst)

    def _example(self, item: Measured, place: int, columns: Mapping[str, Floats], idf: Floats) -> TripletExample:
        rows, planned, plan = item.triplets, item.table.source, self._plan
        listed = int(rows.place[place])
        query = plan.queries.take(rows.query[[place]])[0]
        positive, negative = plan.passages.take(np.array([rows.positive[place], rows.negative[place]]))
        return TripletExample(
            path=planned.source.paths[int(planned.negative_file[listed])],
            line=int(planned.negative_line[listed]),
            query=_cut(query),
            positive=_cut(positive),
            negative=_cut(negative),
            matched_terms=self._matched(query, negative, idf),
            **{name: float(values[place]) for name, values in columns.items()},
        )

    def _matched(self, query: str, negative: str, idf: Floats) -> tuple[tuple[str, float], ...]:
        """Query tokens that the negative holds, the heaviest first."""
        tokenizer = self._settings.tokenizer
        if tokenizer not in SPLITTERS:
            return ()  # word pieces are no terms that a reader would know
        terms = sorted({*splitter(tokenizer, "query")(query)} & {*splitter(tokenizer, "passage")(negative)})
        weights: Iterable[float] = self._coverages.lexicon(tokenizer).term_idf(terms, idf) if terms else []
        pairs = sorted(zip(terms, map(float, weights), strict=True), key=lambda pair: (-pair[1], pair[0]))
        return tuple(pairs[:MATCHED_TERMS])


def _part(amounts: npt.NDArray[np.float64], flags: npt.NDArray[np.bool_]) -> float:
    """Share of the amounts that the flagged hold; 0.0 where there is nothing to share."""
    total = float(amounts.sum())
    return float(amounts[flags].sum()) / total if total > 0 else 0.0


def _count(flags: npt.NDArray[np.bool_], share: npt.NDArray[np.float64] | None) -> int:
    """How many negatives the flagged pairs make up, by their shares; at least 1 where there are any."""
    if share is None or not flags.any():
        return int(flags.sum())
    return max(1, round(float(share[flags].sum())))


def _histogram(values: npt.NDArray[np.float64], share: npt.NDArray[np.float64] | None) -> tuple[int, ...]:
    """Negatives by bin. Sums of shares are rounded as they add up, so that the bins add up to all negatives."""
    counts, _ = np.histogram(values, bins=HISTOGRAM_BINS, range=(0.0, 1.0), weights=share)
    sums = np.rint(np.cumsum(counts)).astype(np.int64)
    return tuple(int(count) for count in np.diff(sums, prepend=0))


def _cut(text: str) -> str:
    return text if len(text) <= EXAMPLE_CHARACTERS else text[: EXAMPLE_CHARACTERS - 1] + "…"
