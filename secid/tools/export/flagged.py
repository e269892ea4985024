"""The negatives of a run that have a finding, with their texts and numbers.

The files are read again. Findings of the texts are those of every row, whether the run scored all of them or a sample,
and each listing of a negative is a line; of `repeat` those that `secid select --drop repeat` leaves out. Findings that
need the encoder are columns of negatives.parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from secid.arrays import Flags
from secid.errors import UsageError
from secid.findings.summary import Matcher
from secid.pages.text import json_shown
from secid.pool import Plan, restricted
from secid.progress import Silent
from secid.results import Run
from secid.results.catalogue import FINDINGS, TEXT_FINDINGS, known_finding
from secid.results.document import settings_of
from secid.tools.export.left_out import Facts
from secid.tools.export.read_again import Original, find_source, plan_again, text_rules_of
from secid.tools.export.select import read_facts
from secid.write.writer import new_files, writing

NUMBERS = ("s_query_positive", "s_query_negative", "consistency", "locality", "coverage", "weight")
"""s_qp, s_qn, π, ρ, c and w of METHOD 2."""
SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True)
class Flagged:
    """What was written. n_rows: by source, of those asked for."""

    finding: str
    path: str
    n_rows: dict[str, int]


def write_flagged(run: Run, folder: Path, finding: str, source: str | None, out: Path | TextIO, work: Path) -> Flagged:
    """Writes a JSON line for each negative with the finding, in the order of the files, those without text last.

    source : one of the run's, None for all.   out : a new file, or an open one.   work : an empty folder.
    Raises UsageError for an unknown finding or one that was not evaluated, InputError where a file has changed,
    OutputError where the file exists or cannot be written.
    """
    known_finding(finding, "--finding")
    names = [find_source(run, source).name] if source is not None else [item.name for item in run.sources]
    if isinstance(out, Path):
        if not out.name.endswith(SUFFIX):
            raise UsageError(f"the rows are JSON lines: end the name in {SUFFIX}", where=str(out))
        with (
            new_files(out) as (part,),
            _sources(run, folder, finding, names, work) as sources,
            writing(out),
            part.open("w", encoding="utf-8", newline="\n") as file,
        ):
            return Flagged(finding=finding, path=str(out), n_rows=_write(sources, file))
    with _sources(run, folder, finding, names, work) as sources:
        return Flagged(finding=finding, path="-", n_rows=_write(sources, out))


def _write(sources: Mapping[str, _Rows], file: TextIO) -> dict[str, int]:
    counts = dict.fromkeys(sources, 0)
    for name, rows in sources.items():
        for row in rows:
            file.write(json_shown(json.dumps(row, ensure_ascii=False)) + "\n")
            counts[name] += 1
    return counts


@contextmanager
def _sources(run: Run, folder: Path, finding: str, names: Sequence[str], work: Path) -> Iterator[dict[str, _Rows]]:
    """The lines of each source, while its texts are at hand."""
    settings = settings_of(run, by=None)
    rules = text_rules_of(folder, run)
    everything = replace(settings, max_records=None, first_k=None, positives="all")
    with plan_again(run, names, everything, work, Silent(), rules) as (plan, originals):
        sources = {}
        for name, original in originals.items():
            sample = restricted(original.planned, plan.queries, settings)
            facts = read_facts(run, folder, original, sample, NUMBERS, tuple(FINDINGS), (finding,), partly=True)
            facts.findings["repeat"] = original.planned.has("repeat")  # not of its later copies alone
            sources[name] = _Rows(plan, original, facts, finding, first_only=settings.positives == "first")
        yield sources


@dataclass(frozen=True)
class _Rows:
    """The lines of one source."""

    plan: Plan
    original: Original
    facts: Facts
    finding: str
    first_only: bool

    def __iter__(self) -> Iterator[dict[str, Any]]:
        listed, match_of = self._listed(), self._matches()
        planned = self.original.planned
        for place, row, part in self.original.rows():
            if row is None:
                continue
            for ordinal in np.flatnonzero(listed[part]).tolist():
                triplet = int(planned.listed[part][ordinal])
                positives = [passage.text for passage in row.positives]
                # Of several positives nothing here names the one that a policy scored.
                positive = positives[0] if self.first_only else None
                more = {"positives": positives} if len(positives) > 1 else {}
                match = match_of(triplet)
                yield {
                    **self._start(place.path, place.line, ordinal),
                    "query": row.query,
                    "positive": positive,
                    **more,
                    "negative": row.negatives[ordinal].text,
                    "findings": [name for name, flags in self.facts.findings.items() if flags[triplet]],
                    **self._numbers(triplet),
                    **({} if match is None else {"match": asdict(match)}),
                }
        yield from self._blanks()

    def _start(self, path: str, line: int, ordinal: int | None) -> dict[str, Any]:
        return {"source": self.original.name, "path": path, "line": line, "ordinal": ordinal}

    def _numbers(self, triplet: int) -> Mapping[str, float | None]:
        """None for a negative outside the sample."""
        scored = self.facts.scored[triplet]
        return {name: float(of[triplet]) if scored else None for name, of in self.facts.numbers.items()}

    def _listed(self) -> Flags:
        """(L,) which listed negatives have a line: of a finding of the texts all listings, else the first."""
        planned = self.original.planned
        again = planned.listed_again()
        if self.finding == "repeat":
            return np.asarray(again | planned.again()[planned.listed])
        flags = self.facts.findings[self.finding][planned.listed]
        return np.asarray(flags if self.finding in TEXT_FINDINGS else flags & ~again)

    def _matches(self) -> Any:
        """Gives what the negative of a triplet repeats; None for a finding that repeats nothing."""
        matcher, planned = Matcher(self.plan), self.original.planned
        if self.finding == "repeat":
            return partial(matcher.earlier, planned)
        if self.finding != "hub":
            return lambda triplet: matcher.of(self.finding, planned, triplet)
        first = {text: place for place, text in reversed(list(enumerate(planned.negatives.tolist())))}
        served = cache(lambda place: matcher.of("hub", planned, place))
        return lambda triplet: served(first[int(planned.negatives[triplet])])

    def _blanks(self) -> Iterator[dict[str, Any]]:
        """Negatives without text: a line each, with the row that lists it."""
        planned, none = self.original.planned, dict.fromkeys(NUMBERS)
        blanks = planned.blanks if self.finding == "empty" else planned.blanks.only(planned.blanks.count < 0)
        for file, line, count in blanks:
            texts = {"query": None, "positive": None, "negative": ""}
            for _ in range(count):
                yield {**self._start(planned.source.paths[file], line, None), **texts, "findings": ["empty"], **none}
