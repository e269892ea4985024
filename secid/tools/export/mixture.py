"""Score a mixture of sources, and write it: the rows of one source with negatives from several."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from secid.arrays import Index
from secid.errors import UsageError
from secid.findings.copies import CopyFinder, LabelledPositives, forms_and_runs
from secid.findings.texts import mask_of
from secid.measure.information import InformationState, eigenvalues, mixture_state, spectral_nats
from secid.pool import Plan, PlannedSource, sample_order
from secid.pool.normal_form import text_forms
from secid.pool.plan import TextFindings
from secid.pool.texts import TextStore
from secid.progress import Progress
from secid.records import Fact
from secid.results import Run
from secid.results.document import settings_of
from secid.results.sources import Status
from secid.run_folder.tables import read_states
from secid.settings import FIELDS
from secid.tools.export.read_again import Original, find_source, plan_again, read_labels
from secid.write.rows import CopyRow, Passage
from secid.write.writer import WrittenFile, new_files, schema_of, suffix_of, write_rows, writing

# A mixture is scored from the saved states of its sources.
#
# Since M(alpha) = sum alpha_s M_s, nothing is read or encoded again. secid recommends no shares: at B = 1 the score is
# nearly the mean weight, so the best mixture would be little more than the source with the easiest negatives.
# Source: METHOD 7.

MIX_SCHEMA_VERSION = "2.0"
SUM_TOLERANCE = 0.015
"""Maximum difference between the sum of shares and 1. Three shares with two decimals can differ that much."""


@dataclass(frozen=True, kw_only=True)
class MixturePart:
    """One source of a mixture.

    share       : share of the mixture.   n_negatives : number of negatives that its state was computed from.
    single_nats : score of the source without the others, at the same budget.
    status, repair : status of the source in the run; command to repair it, None if it needs none.
    """

    name: str
    share: float
    n_negatives: float
    single_nats: float
    status: Status
    repair: str | None


@dataclass(frozen=True, kw_only=True)
class MixtureScore:
    """The score of a mixture at a budget.

    nats  : log det(I + B M(alpha)).   parts : sources with a share above 0, in the order of the run.
    remarks : reasons to read the numbers with care.
    """

    schema_version: str
    budget: float
    nats: float
    parts: tuple[MixturePart, ...]
    remarks: tuple[Fact, ...]


def score_of_mixture(folder: Path, run: Run, shares: Mapping[str, float], budget: float) -> MixtureScore:
    """Score a mixture of a run's sources at a budget.

    run : the folder's report.   shares : shares by source; see `normalized`.
    Raises UsageError for an unknown name, invalid shares or an invalid budget, InputError for damaged states.
    Source: METHOD 7.
    """
    most = FIELDS["budget"].metadata["le"]
    if not 0 < budget <= most:  # NaN fails this test too
        remedy = f"give a number above 0 and at most {most:g}"
        raise UsageError(f"{budget:g} is out of range", where="--budget", remedy=remedy)
    share_of = normalized(run, shares)
    states = read_states(folder, run)
    parts = tuple(
        MixturePart(
            name=source.name,
            share=share_of[source.name],
            n_negatives=states[source.name].n_negatives,
            single_nats=_nats(states[source.name], budget),
            status=source.status,
            repair=source.repair,
        )
        for source in run.sources
        if source.name in share_of
    )
    mixture = mixture_state([states[part.name] for part in parts], [part.share for part in parts])
    return MixtureScore(
        schema_version=MIX_SCHEMA_VERSION,
        budget=budget,
        nats=_nats(mixture, budget),
        parts=parts,
        remarks=tuple(_remarks(parts, budget)),
    )


def normalized(run: Run, shares: Mapping[str, float]) -> dict[str, float]:
    """Return the shares above 0, divided by their sum, by source.

    shares : share of each source, at least 0. They add up to 1 except for rounding. Omitted sources have share 0.
    Raises UsageError for an unknown name or invalid shares.
    """
    names = [source.name for source in run.sources]
    for name in shares:
        if name not in names:
            raise UsageError(
                f"no source {name!r} in this run", where="--shares", remedy=f"use one of {', '.join(names)}"
            )
    total = sum(shares.values())
    # NaN fails this test too
    if not (all(share >= 0.0 for share in shares.values()) and abs(total - 1.0) <= SUM_TOLERANCE):
        got = ", ".join(f"{name} {share:g}" for name, share in shares.items()) or "no shares"
        raise UsageError(
            f"shares must be at least 0 and add up to 1, got {got}",
            where="--shares",
            remedy="write, for example, --shares bm25=0.6,dense=0.4",
        )
    return {name: share / total for name, share in shares.items() if share > 0.0}


def _nats(state: InformationState, budget: float) -> float:
    return spectral_nats(eigenvalues(state, len(state.total)), budget)


def _remarks(parts: Sequence[MixturePart], budget: float) -> Iterator[Fact]:
    for part in parts:
        if part.share * budget > part.n_negatives:
            yield Fact("too_few", {"name": part.name, "n": part.n_negatives, "budget": budget})
    by_size = sorted(parts, key=lambda part: part.n_negatives)
    fewest, most = by_size[0], by_size[-1]
    if budget > 1.0 and fewest.n_negatives < most.n_negatives:
        numbers: dict[str, str | float] = {"n_fewest": fewest.n_negatives, "n_most": most.n_negatives}
        yield Fact("unequal", {"fewest": fewest.name, "most": most.name, **numbers})


# A mixed file has the rows of one source, the base, with negatives drawn from several sources.
#
# Each record of the base gets as many negatives as it lists, K, and each source gives its share of them. K times a
# share is rarely a whole number, so systematic sampling rounds it. With cumulative shares c_s and one offset u in
# [0, 1) for each record, source s gives floor(K c_s + u) - floor(K c_(s-1) + u) negatives. These add up to K for every
# record, and on average source s gives K times its share. If a source has too few, the others fill in. Offsets and
# draws depend on hashes of texts and on the seed, so the order of files or rows does not change them.
# Source: METHOD 7.

NEVER_DRAWN = ("false_negative", "near_copy")
"""Findings whose negatives are never drawn, because they are copies of a positive."""
FIRST_BITS = 2.0**-64


class Draw(NamedTuple):
    """A drawn negative. source : name of its source.   triplet : number of its triplet in the source."""

    source: str
    triplet: int


@dataclass(frozen=True, kw_only=True)
class DrawCounts:
    """Counts of negatives that could not be drawn as requested.

    n_short : number of negatives that sources lacked for their shares. Other sources filled in if possible.
    n_alone : number of records with candidates from fewer than two sources; 0 for a mixture of one source.
    n_false_negative, n_near_copy : number of candidates that were not drawn because they are a labelled positive of the
              query in the run, or a near copy of one.
    """

    n_short: int
    n_alone: int
    n_false_negative: int
    n_near_copy: int


@dataclass(frozen=True, kw_only=True)
class Blend(WrittenFile, DrawCounts):
    """The written mixture.

    base      : source whose rows the file has.   n_records : number of its records.
    requested : requested share of each source; they add up to 1.
    """

    base: str
    path: str
    provenance_path: str
    n_records: int
    n_drawn: dict[str, int]
    requested: dict[str, float]


def write_blend(
    run: Run,
    folder: Path,
    shares: Mapping[str, float],
    base_name: str | None,
    out: Path,
    schema_name: str | None,
    work: Path,
    progress: Progress,
    seed: int,
) -> Blend:
    """Write the mixed file, and OUT.provenance.jsonl with a line for each row of the file.

    All records are written, even if the run scored only a sample. The order of shares changes nothing. Labelled
    positives are those that the run kept, including those of other sources and of qrels.

    folder : the run folder.   shares : shares by source; see `normalized`.   work : an empty folder.
    base_name : name of the base; None for the highest-ranked source with a share.
    schema_name : schema of the file; None for the base's own if there is one, else flagembedding.
    Raises UsageError for invalid shares, InputError if an original has changed, OutputError if a file exists or cannot
    be written.
    """
    draw_shares = dict(sorted(normalized(run, shares).items()))
    base = base_name or next(source.name for source in run.sources if source.name in draw_shares)
    settings = settings_of(run, max_records=None, seed=seed)
    schema, suffix = schema_of(schema_name, {file.schema for file in find_source(run, base).files}), suffix_of(out)
    provenance = out.with_name(f"{out.name}.provenance.jsonl")
    rules = partial(_copies, known=read_labels(folder, run))
    with (
        new_files(out, provenance) as (mixed, log),
        plan_again(run, sorted({*draw_shares, base}), settings, work, progress, rules) as (plan, originals),
    ):
        planned = originals[base].planned
        sources = {name: originals[name].planned for name in draw_shares}
        drawn, counts = _drawn(plan, sources, draw_shares, planned, seed)
        rows = _MixedRows(plan, originals, base, drawn)
        with writing(out):
            written = write_rows(rows.rows, schema, mixed, suffix)
        with writing(provenance), log.open("w", encoding="utf-8", newline="\n") as lines:
            n_drawn = rows.write_provenance(lines, row_per_negative=written.layout == "triplets")
    return Blend(
        **vars(written),
        base=base,
        path=str(out),
        provenance_path=str(provenance),
        n_records=planned.n_records,
        n_drawn={name: n_drawn[name] for name in draw_shares},
        requested=draw_shares,
        **vars(counts),
    )


def _seed_of(name: str, seed: int) -> int:
    """Return the seed of one source's draws. It depends only on the source's name and the seed of the mixture."""
    return int.from_bytes(blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "big")


def _drawn(
    plan: Plan, sources: Mapping[str, PlannedSource], shares: Mapping[str, float], base: PlannedSource, seed: int
) -> tuple[list[list[Draw]], DrawCounts]:
    """Draw negatives for each record of the base. Return the draws of each record, and the counts."""
    names = list(sources)
    tables = [_by_query(planned, plan, _seed_of(name, seed)) for name, planned in sources.items()]
    cumulated = np.cumsum([shares[name] for name in names])
    cumulated[-1] = 1.0
    offsets = sample_order(plan.queries.keys[base.query], seed).astype(np.float64) * FIRST_BITS
    draws = _Draws(base.query, tables, [planned.negatives for planned in sources.values()])
    for record, k in enumerate(np.diff(base.negative_offsets).tolist()):
        edges = np.floor(k * cumulated + min(float(offsets[record]), 1.0 - 1e-12)).astype(int)
        draws.draw(record, np.diff(edges, prepend=0).tolist())
    unfit = {f"n_{name}": _n_candidates(name, sources.values(), base.query) for name in NEVER_DRAWN}
    drawn = [[Draw(names[place], triplet) for place, triplet in sorted(picked)] for picked in draws.picked]
    return drawn, DrawCounts(n_short=draws.n_short, n_alone=draws.n_alone, **unfit)


def _n_candidates(finding: str, sources: Iterable[PlannedSource], queries: Index) -> int:
    """Count the sources' negatives of these queries that have a finding."""
    return sum(int((p.has(finding) & np.isin(p.query, queries)[p.triplet_record()]).sum()) for p in sources)


def _copies(
    queries: TextStore, passages: TextStore, sources: Sequence[PlannedSource], known: LabelledPositives
) -> list[TextFindings]:
    """Apply only the text rules that exclude negatives from drawing. The others are slower and not needed here."""
    finder = CopyFinder(text_forms(queries), *forms_and_runs(passages), passages, sources, known)
    return [
        TextFindings(mask_of(finder.flags(planned), planned.n_triplets), planned.positive_findings)
        for planned in sources
    ]


class _Pools(NamedTuple):
    """Candidates of a source, sorted by query, then in drawing order.

    query, triplet : (n,) query id and triplet number of each candidate.
    """

    query: Index
    triplet: Index

    def of(self, query: int) -> list[int]:
        """Return the triplets of a query, in the order in which they are drawn."""
        low, high = np.searchsorted(self.query, [query, query + 1])
        triplets: list[int] = self.triplet[low:high].tolist()
        return triplets


def _by_query(planned: PlannedSource, plan: Plan, seed: int) -> _Pools:
    """Return the candidates of a source: its negatives without a finding in `NEVER_DRAWN`."""
    fit = np.flatnonzero(~np.logical_or.reduce([planned.has(name) for name in NEVER_DRAWN]))
    query = planned.query[planned.triplet_record()[fit]]
    order = np.lexsort((fit, sample_order(plan.passages.keys[planned.negatives[fit]], seed), query))
    return _Pools(query[order], fit[order])


class _Draws:
    """Draws negatives for each record. A text that several sources have is drawn once per record.

    picked : drawn negatives of each record, as (place of the source, triplet).
    n_alone : number of records with candidates from fewer than two sources.
    n_short : number of negatives that sources lacked for their quotas.
    """

    def __init__(self, query: Index, tables: Sequence[_Pools], passages: Sequence[Index]) -> None:
        self._query, self._tables, self._passages = query, tables, passages
        self.picked: list[list[tuple[int, int]]] = [[] for _ in query]
        self.n_alone = self.n_short = 0

    def draw(self, record: int, quotas: Sequence[int]) -> None:
        """Draw each source's quota of a record. Fill shortfalls from the other sources, largest quota first."""
        pools = [table.of(int(self._query[record])) for table in self._tables]
        self.n_alone += len(pools) > 1 and sum(map(bool, pools)) < 2
        # Sources with few candidates draw first. Otherwise the others could take the texts that they share.
        places = sorted(range(len(pools)), key=lambda place: len(pools[place]))
        left = sum(quotas[place] - self._take(record, place, quotas[place]) for place in places)
        self.n_short += left
        for place in sorted(range(len(pools)), key=lambda place: -quotas[place]):
            left -= self._take(record, place, left)

    def _spare(self, record: int, place: int) -> Iterator[int]:
        """Yield a source's triplets whose texts the record does not have yet, in the order of drawing."""
        passages = {int(self._passages[other][triplet]) for other, triplet in self.picked[record]}
        for triplet in self._tables[place].of(int(self._query[record])):
            passage = int(self._passages[place][triplet])
            if passage not in passages:
                passages.add(passage)
                yield triplet

    def _take(self, record: int, place: int, n: int) -> int:
        """Draw up to n negatives of a source. Return the number drawn."""
        draws = [(place, triplet) for triplet in islice(self._spare(record, place), n)]
        self.picked[record] += draws
        return len(draws)


class _MixedRows:
    """Rows of the base with drawn negatives. If a record has several rows, they share its draws in order."""

    def __init__(self, plan: Plan, originals: Mapping[str, Original], base: str, drawn: list[list[Draw]]) -> None:
        self._plan, self._originals, self._base, self._drawn = plan, originals, originals[base], drawn
        self._named = {name: self._named_passages(name) for name in {draw.source for row in drawn for draw in row}}

    def _named_passages(self, source: str) -> dict[int, Passage]:
        """Return the drawn passages that have an id, a title or a score, by triplet."""
        original = self._originals[source]
        drawn = {draw.triplet for row in self._drawn for draw in row if draw.source == source}
        passages: dict[int, Passage] = {}
        for _, row, part in original.rows():
            triplets = original.planned.listed[part].tolist()
            for triplet, passage in zip(triplets, row.negatives if row else (), strict=True):
                if triplet in drawn and passage != Passage(passage.text):
                    passages.setdefault(triplet, passage)
        return passages

    def _rows_with_draws(self) -> Iterator[tuple[CopyRow, list[Draw]]]:
        """Yield each row of the base that gets negatives, with their draws."""
        planned = self._base.planned
        record_of = planned.triplet_record()
        n_assigned: Counter[int] = Counter()
        for _, row, part in self._base.rows():
            triplets = planned.listed[part]
            inside = triplets[triplets >= 0]
            if row is None or not len(inside):
                continue
            record = int(record_of[inside[0]])
            draws = self._drawn[record][n_assigned[record] : n_assigned[record] + len(row.negatives)]
            n_assigned[record] += len(draws)
            if draws:
                yield row, draws

    def rows(self) -> Iterator[CopyRow]:
        """Yield the rows of the mixed file. Scores of other sources are removed, since they are not comparable."""
        for row, draws in self._rows_with_draws():
            yield row._replace(negatives=[self._passage(draw) for draw in draws])

    def _passage(self, draw: Draw) -> Passage:
        passage = self._named[draw.source].get(draw.triplet)
        if passage is None:
            ids = self._originals[draw.source].planned.negatives[[draw.triplet]]
            return Passage(self._plan.passages.take(ids)[0])
        return passage if draw.source == self._base.name else passage._replace(score=None)

    def write_provenance(self, lines: TextIO, *, row_per_negative: bool) -> Counter[str]:
        """Write the origins of the negatives, one line for each row of the file. Return the number drawn by source.

        row_per_negative : True if the file has a row for each negative.
        """
        counts: Counter[str] = Counter()
        number = 0
        for _, draws in self._rows_with_draws():
            counts.update(draw.source for draw in draws)
            for row_draws in zip(draws, strict=True) if row_per_negative else [draws]:
                number += 1
                origins = list(map(self._origin, row_draws))
                lines.write(json.dumps({"row": number, "negatives": origins}, ensure_ascii=False) + "\n")
        return counts

    def _origin(self, draw: Draw) -> dict[str, Any]:
        planned = self._originals[draw.source].planned
        return {
            "source": draw.source,
            "path": planned.source.paths[int(planned.negative_file[draw.triplet])],
            "line": int(planned.negative_line[draw.triplet]),
            "ordinal": int(planned.negative_ordinal[draw.triplet]),
        }
