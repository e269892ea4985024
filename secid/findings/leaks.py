"""Where a source holds texts of the evaluation set: counts and examples for the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from secid.arrays import distinct
from secid.findings.cautions import Case
from secid.findings.leakage import Matches, passage_finder, query_finder
from secid.findings.normal_form import Index
from secid.pool import Plan, PlannedSource
from secid.read.evaluation import EvaluationSet
from secid.read.rows import shorten
from secid.results import Example

SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class Leaks:
    """Evaluation texts found among all texts of a run."""

    plan: Plan
    evaluation: EvaluationSet
    queries: Matches
    passages: Matches

    def cases(self, planned: PlannedSource, n_examples: int) -> dict[str, Case]:
        """Shares of the source's distinct queries and passages that are evaluation texts, by caution."""
        asked = distinct(planned.query)
        positives, negatives = distinct(planned.positives), distinct(planned.negatives)
        roles = f"; {_n(self.passages, positives)} as positives, {_n(self.passages, negatives)} as negatives"
        examples = self.examples(planned, n_examples)
        return {
            "eval_query": self._case(self.queries, asked, len(self.evaluation.queries), "", examples["eval_query"]),
            "eval_passage": self._case(
                self.passages,
                np.union1d(positives, negatives),
                len(self.evaluation.passages),
                roles,
                examples["eval_passage"],
            ),
        }

    def _case(self, matches: Matches, ids: Index, n_all: int, roles: str, examples: tuple[Example, ...]) -> Case:
        hit = ids[matches.which[ids] >= 0]
        n_exact = int(matches.exact[hit].sum())
        n_met = len(distinct(matches.which[hit]))
        detail = f"{n_exact} exactly, {len(hit) - n_exact} nearly; {n_met} of {n_all} of the evaluation set{roles}"
        return Case(len(hit), len(hit) / max(1, len(ids)), detail if len(hit) else "", examples)

    def examples(self, planned: PlannedSource, n: int) -> dict[str, tuple[Example, ...]]:
        """The first places where they stand, each evaluation text once."""
        paths = planned.source.paths
        found: dict[str, tuple[Example, ...]] = {}
        record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
        places = {
            "eval_query": (self.queries, planned.query, planned.file, planned.line, self.plan.queries),
            "eval_passage": (
                self.passages,
                np.concatenate([planned.positives, planned.negatives]),
                np.concatenate([planned.file[record], planned.negative_file]),
                np.concatenate([planned.line[record], planned.negative_line]),
                self.plan.passages,
            ),
        }
        texts = {"eval_query": self.evaluation.queries, "eval_passage": self.evaluation.passages}
        for name, (matches, ids, file, line, store) in places.items():
            keys = list(texts[name])
            hits = np.flatnonzero(matches.which[ids] >= 0)
            _, first = np.unique(matches.which[ids[hits]], return_index=True)
            shown = []
            for place in hits[np.sort(first)][:n].tolist():
                text_id = int(ids[place])
                key = keys[int(matches.which[text_id])]
                how = "equals" if matches.exact[text_id] else f"resembles ({matches.similarity[text_id]:.2f})"
                own = shorten(store.take(np.array([text_id]))[0], SHOWN_CHARACTERS)
                there = "" if matches.exact[text_id] else f" {shorten(texts[name][key], SHOWN_CHARACTERS)!r}"
                detail = f"{own!r} {how} {key}{there}"
                shown.append(Example(name, paths[int(file[place])], int(line[place]), detail))
            found[name] = tuple(shown)
        return found


def find_leaks(plan: Plan, evaluation: EvaluationSet, tick: Callable[[int], None]) -> Leaks:
    """Compares all texts of a run with the evaluation set."""
    return Leaks(
        plan,
        evaluation,
        query_finder(evaluation.queries).find(plan.queries, tick),
        passage_finder(evaluation.passages).find(plan.passages, tick),
    )


def _n(matches: Matches, ids: Index) -> int:
    return int((matches.which[ids] >= 0).sum())
