"""Mine all sources of a run in one search, and write their files and the manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import Flags, Floats, Index, best_first, distinct
from secid.arrays import pairs as pair_codes
from secid.encode import Encoder
from secid.errors import InputError
from secid.files import sha256_of
from secid.findings.copies import ranges_of
from secid.pages.glossary import reason_list
from secid.pages.mine_text import short_words
from secid.pages.text import plural
from secid.pool import sample_order
from secid.progress import Progress
from secid.read.sources import MANIFEST, files_of_killed_run
from secid.results.mine import Mined, MinedSource
from secid.settings import Settings
from secid.tools.mining.choose import (
    EXCLUSION_REASONS,
    FILL_NUMBER,
    SHORT_ROW_REASONS,
    Bm25Ranking,
    CandidateLists,
    Choice,
    DenseRanking,
    Exclusions,
    Picks,
    RandomRanking,
    Ranking,
    combine,
    fill,
    passing,
)
from secid.tools.mining.llm import PROMPT, Answers
from secid.tools.mining.methods import (
    FILL_MINER,
    METHODS,
    REJECTED,
    Bm25,
    Dense,
    Hybrid,
    Llm,
    Method,
    Miner,
    MiningPlan,
    Random,
)
from secid.tools.mining.questions import Questions
from secid.triplets.embedding import Embedder
from secid.triplets.search import dots
from secid.write.rows import CopyRow, Passage
from secid.write.writer import WrittenFile, new_files, write_rows, writing

# Search the negatives of each source. `secid mine` writes them, and `--sweep` counts them.

SEARCHED_ROWS_AT_ONCE = 4_096
"""Maximum number of rows that are searched together. Each ranking then takes 15 MB at the default window."""
MIN_BATCHES = 20
"""Minimum number of batches of rows, so that progress is shown. Each batch reads all candidates' vectors once."""


@dataclass(frozen=True)
class MinedLists:
    """Negatives of each source, in the order of the plan, with their scores. Scores are NaN without an encoder.

    positive, s_qp : (R,) the lowest-scoring labelled positive of each row's query, and its score.
    s_first : (R,) score of each row's first positive.
    picks, s_qn : for each source, its negatives and (R, K) their scores; NaN without a negative.
    """

    positive: Index
    s_qp: Floats
    s_first: Floats
    picks: list[Picks]
    s_qn: list[Floats]


def find_negatives(
    plan: MiningPlan, questions: Questions, written: Mapping[int, Index], encoder: Encoder | None, settings: Settings,
    work: Path, progress: Progress,
) -> MinedLists:  # fmt: skip
    """Find the negatives of all sources in one search.

    written : for each source of a language model, (R, m) ids of the texts for each row; -1 after the last.
    encoder : None if no source is dense and margins are not needed.   work : an empty folder for temporary files.
    """
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    exclusions = Exclusions(questions, progress)
    with ExitStack() as stack:
        embedder = None
        if encoder is not None:
            embedder = Embedder(questions.queries, questions.passages, encoder, settings, work, progress)
            stack.callback(embedder.close)
        positive, s_qp = lowest_positives(plan, questions, exclusions, embedder)
        picks = search(plan, questions, exclusions, embedder, s_qp, written, settings, progress)
        query = questions.query[:, None]
        s_first = _scores(embedder, query, questions.first[:, None])[:, 0]
        return MinedLists(
            positive, s_qp, s_first, picks, [_scores(embedder, query, source_picks.ids) for source_picks in picks]
        )


def lowest_positives(
    plan: MiningPlan, questions: Questions, exclusions: Exclusions, embedder: Embedder | None
) -> tuple[Index, Floats]:
    """Return the lowest-scoring labelled positive of each row's query, (R,), and its score, (R,).

    A margin below the lowest score also holds for the query's other positives. A label of a query counts for all
    queries with the same normal form, as in the exclusions. Without an encoder, scores are NaN and each row's first
    positive is returned. If a source is dense, all candidates are encoded too.
    """
    if embedder is None:
        return questions.first, np.full(len(questions.query), np.nan)
    queries, forms, n = distinct(questions.query), exclusions.query_forms, len(questions.passages)
    form, passage = np.divmod(distinct(pair_codes(forms[questions.labels[0]], questions.labels[1], n)), n)
    start, stop = (np.searchsorted(form, forms[queries], side) for side in ("left", "right"))
    query, passage = np.repeat(queries, stop - start), passage[ranges_of(start, stop - start)]
    dense = any(isinstance(miner.method, Dense) for miner in plan.miners)
    candidates = np.arange(questions.n_candidates if dense else 0)
    embedder.need(queries, distinct(np.concatenate([candidates, passage])))
    scores = dots(embedder.vectors, query, passage)
    lowest = best_first(-scores, passage, query)[np.searchsorted(query, queries)]
    place = lowest[np.searchsorted(queries, questions.query)]
    return passage[place], scores[place]


def search(
    plan: MiningPlan, questions: Questions, exclusions: Exclusions, embedder: Embedder | None, s_qp: Floats,
    written: Mapping[int, Index], settings: Settings, progress: Progress,
) -> list[Picks]:  # fmt: skip
    """Search the negatives of each source, in the order of the plan. written: as in `find_negatives`."""
    n_rows, n = len(questions.query), questions.n_candidates
    picks = [Picks.empty(n_rows, plan.k, len(questions.passages), plan.max_reuse) for _ in plan.miners]
    number_of = {miner.name: number for number, miner in enumerate(plan.miners)}
    keys = questions.queries.keys, questions.passages.keys[:n]
    choice = Choice(exclusions, keys, plan.seed, plan.k, plan.max_reuse is not None)
    # Rows are sorted by a hash of their texts, so that the order of files does not decide which rows a cap cuts short.
    order = np.lexsort((questions.sorting, sample_order(keys[0], plan.seed)[questions.query]))
    at_random = RandomRanking(questions.queries, n, plan.seed)
    groups = _rankings(plan, questions, embedder, at_random, settings, progress)
    progress.start("mine", n_rows, "queries")
    n_at_once = min(SEARCHED_ROWS_AT_ONCE, ceil(n_rows / MIN_BATCHES))
    for start in range(0, n_rows, n_at_once):
        rows = order[start : start + n_at_once]
        query, limit = questions.query[rows], s_qp[rows]
        for ranking, numbers in groups:
            lists = choice.lists(ranking, query, limit, [plan.miners[number] for number in numbers])
            for number in numbers:
                choice.choose(plan.miners[number], number, picks[number], rows, lists)
        for number, ids in written.items():
            texts = ids[rows]
            lists = CandidateLists(
                at_random, query, limit, texts, np.full(texts.shape, np.nan), exclusions.codes(query, texts),
                np.ones(len(rows), np.bool_),
            )  # fmt: skip
            choice.choose(plan.miners[number], number, picks[number], rows, lists)
        for number, miner in enumerate(plan.miners):
            if isinstance(miner.method, Hybrid):
                parts = [(number_of[name], count) for name, count in miner.method.parts]
                combine(parts, picks, number, rows, exclusions)
                picks[number].excluded = sum((picks[part].excluded for part, _ in parts), 0 * picks[number].excluded)
        progress.advance(len(rows))
    if plan.on_short == "random":
        short = [order[source_picks.short_reason[order] > 0] for source_picks in picks]
        progress.start("fill", sum(map(len, short)), "queries")
        for miner, source_picks, rows in zip(plan.miners, picks, short, strict=True):
            for row in rows.tolist():
                query = questions.query[row : row + 1]
                passes = partial(_passes, miner.method, embedder, query, s_qp[row])
                fill(source_picks, row, FILL_NUMBER, query, passes, at_random, exclusions)
                progress.advance(1)
    return picks


def _passes(method: Method, embedder: Embedder | None, query: Index, s_qp: float, ids: Index) -> Flags:
    """Return flags of candidates that pass a method's margins and maximum, (n,). query: (1,) id.   ids: (n,)."""
    scores = np.full(len(ids), np.nan)
    if embedder is not None and isinstance(method, Dense):
        scores = dots(embedder.vectors, np.repeat(query, len(ids)), ids)
    return np.logical_and(*passing(method, scores, np.asarray(s_qp)))


def _rankings(
    plan: MiningPlan, questions: Questions, embedder: Embedder | None, at_random: Ranking, settings: Settings,
    progress: Progress,
) -> list[tuple[Ranking, list[int]]]:  # fmt: skip
    """Return each ranking that the plan needs, with the numbers of the sources that use it."""
    n = questions.n_candidates

    def bm25() -> Ranking:
        progress.start("index", n, "texts")
        return Bm25Ranking(questions.queries, questions.passages, n, settings.tokenizer, progress.advance)

    makers: dict[type, Callable[[], Ranking]] = {Random: lambda: at_random, Bm25: bm25}
    if embedder is not None:
        vectors = embedder.vectors
        makers[Dense] = lambda: DenseRanking(vectors, n)
    numbers = {
        kind: [number for number, miner in enumerate(plan.miners) if isinstance(miner.method, kind)] for kind in makers
    }
    return [(maker(), numbers[kind]) for kind, maker in makers.items() if numbers[kind]]


def _scores(embedder: Embedder | None, queries: Index, ids: Index | npt.NDArray[np.int32]) -> Floats:
    """Return (R, m) dot products of queries (R, 1) and passages (R, m); NaN for id -1 or without an encoder."""
    scores = np.full(ids.shape, np.nan)
    present = ids >= 0
    if embedder is not None and present.any():
        passages = ids[present].astype(np.int64)
        embedder.need(np.zeros(0, np.int64), distinct(passages))
        scores[present] = dots(embedder.vectors, np.broadcast_to(queries, ids.shape)[present], passages)
    return scores


# Write the files of the sources and the manifest.

WRITTEN_ROWS_AT_ONCE = 1_024
"""Number of rows whose texts are read together."""
FILE_DECIMALS = 6
"""Decimals of scores and margins in the files. If texts are encoded in other batches, scores differ in the seventh."""
SWEEP_ADVICE = "--sweep shows other ranks and margins"
SWEEP_OR_NO_MARGIN_ADVICE = "--sweep shows other ranks and margins; relative=none removes the margin"
FEWER_ADVICE = "use --on-short keep, or a smaller -k"
MACHINE_FIELDS = ("device", "facts", "rules")
"""Fields of an encoder that a manifest omits, because they depend on the machine. The others are its recipe."""


@dataclass(frozen=True)
class MinedNegatives:
    """The negatives of one source, for its file and its result.

    number  : number of its miner in the plan.   answers : answers of its language model; None for other methods.
    """

    plan: MiningPlan
    questions: Questions
    lists: MinedLists
    number: int
    answers: Answers | None
    temperature: float

    @property
    def miner(self) -> Miner:
        return self.plan.miners[self.number]

    @property
    def picks(self) -> Picks:
        return self.lists.picks[self.number]

    @property
    def s_qn(self) -> Floats:
        return self.lists.s_qn[self.number]

    @cached_property
    def in_file(self) -> Flags:
        """Return flags of the input rows that are in the file, (R,)."""
        has_any = self.picks.counts > 0
        return has_any & (self.picks.short_reason == 0) if self.plan.on_short == "drop" else has_any

    @property
    def short(self) -> dict[str, int]:
        return _by_name(SHORT_ROW_REASONS, np.bincount(self.picks.short_reason, minlength=len(SHORT_ROW_REASONS) + 1))

    def refuse_none(self) -> None:
        """Raise InputError if the file would have no row."""
        if self.in_file.any():
            return
        n, why = plural(len(self.in_file), "row"), short_words(self.short)
        method, other_ranks = self.miner.method, None
        if isinstance(method, Dense):
            other_ranks = SWEEP_ADVICE if method.relative is None else SWEEP_OR_NO_MARGIN_ADVICE
        if self.picks.counts.any():
            raise InputError(
                f"each of {n} has fewer than {self.plan.k} negatives, so --on-short drop drops all: {why}",
                where=self.miner.name,
                remedy=f"{FEWER_ADVICE}; {other_ranks}" if other_ranks else FEWER_ADVICE,
            )
        if self.answers is not None:
            faults = reason_list(self.answers.reasons)
            raise InputError(
                f"the language model gave no usable negative for any of {n}: {faults}",
                where=self.miner.name,
                remedy=f"read {REJECTED.format(self.miner.name)} in the folder, and change the model or --prompt",
            )
        raise InputError(f"found no negative for any of {n}: {why}", where=self.miner.name, remedy=other_ranks)

    def rows(self) -> Iterator[CopyRow]:
        """Yield the rows of the file, the same at each call."""
        ids = self.picks.ids.astype(np.int64)
        used = distinct(ids[self.in_file].ravel())
        used = used[used >= 0]
        names = dict(zip(used.tolist(), self.questions.ids(used[used < self.questions.n_candidates]), strict=False))
        methods = [miner.method for miner in self.plan.miners]
        written = {number for number, method in enumerate(methods) if isinstance(method, Llm)}
        unranked = {
            FILL_NUMBER,
            *written,
            *(number for number, method in enumerate(methods) if isinstance(method, Random)),
        }
        miners = {FILL_NUMBER: FILL_MINER, **{number: miner.name for number, miner in enumerate(self.plan.miners)}}
        rows = (item for item in enumerate(self.questions.rows()) if self.in_file[item[0]])
        while part := list(islice(rows, WRITTEN_ROWS_AT_ONCE)):
            places = np.array([place for place, _ in part])
            passages = ids[places]
            texts = iter(self.questions.passages.take(passages[passages >= 0]))
            for place, row in part:
                n = int((self.picks.ids[place] >= 0).sum())
                cells = zip(
                    *(getattr(self.picks, name)[place, :n].tolist() for name in ("ids", "ranks", "by")),
                    self.picks.scores[place, :n].round(FILE_DECIMALS).tolist(),
                    (self.lists.s_qp[place] - self.s_qn[place, :n]).round(FILE_DECIMALS).tolist(),
                    strict=True,
                )
                negatives = [
                    Passage(
                        next(texts),
                        "" if by in written else names[key],
                        "",
                        _nan_to_none(score),
                        None if by in unranked else rank,
                        _nan_to_none(margin),
                        miners[by],
                    )
                    for key, rank, by, score, margin in cells
                ]
                yield row._replace(negatives=negatives)

    def summary(self, path: Path, sha256: str, written: WrittenFile) -> MinedSource:
        """Return the result of the source. path, sha256 : the written file.   written : its layout and ids."""
        picks, in_file, answers = self.picks, self.in_file, self.answers
        present = in_file[:, None] & (picks.ids >= 0)
        _, uses = np.unique(picks.ids[present], return_counts=True)
        n_missing = int((picks.counts == 0).sum())
        n_lacking = int(np.maximum(self.plan.k - picks.counts[in_file], 0).sum())
        return MinedSource(
            name=self.miner.name,
            path=str(path),
            sha256=sha256,
            method={"typed": self.miner.text, **options_of(self.miner.method)},
            layout=written.layout,
            n_rows=int(in_file.sum()),
            n_missing=n_missing,
            n_dropped=int((~in_file).sum()) - n_missing,
            n_negatives=int(picks.counts[in_file].sum()),
            n_filled=int((picks.by[present] == FILL_NUMBER).sum()),
            n_short=int((picks.short_reason > 0).sum()),
            n_still_short=int((picks.counts[in_file] < self.plan.k).sum()),
            n_lacking=n_lacking,
            short=self.short,
            excluded=_by_name(EXCLUSION_REASONS, picks.excluded),
            **score_means(self.s_qn, self.lists.s_first, present, self.temperature),
            n_passages=len(uses),
            most_used=int(uses.max(initial=0)),
            n_made_ids=written.n_made_ids,
            not_held=written.not_held,
            rejected={} if answers is None else answers.reasons,
            usage=None if answers is None else answers.usage,
        )


def write_sources(sources: Sequence[MinedNegatives], run: Mined, folder: Path, progress: Progress) -> Mined:
    """Write the files of all sources and the manifest, all or none of them. Return the run with its sources.

    The manifest gets its final name last. Without it, the files belong to a killed run and are replaced. The rejected
    texts of language models are written even if the rest fails, so that the user can see what was wrong.
    """
    plan, rejected = sources[0].plan, []
    with writing(folder):
        killed = files_of_killed_run(folder)
        for source in sources:
            if source.answers is not None:
                path = folder / REJECTED.format(source.miner.name)
                rejected.append(shutil.copyfile(source.answers.rejected, path))
    for source in sources:
        source.refuse_none()
    with writing(folder):
        for path in set(killed).difference(rejected):
            path.unlink()
    progress.start("write", len(sources), "files")
    paths, summaries = plan.paths(folder), []
    with new_files(*paths, folder / MANIFEST) as partials:
        for source, path, partial in zip(sources, paths, partials, strict=False):
            with writing(path):
                written = write_rows(source.rows, plan.schema, partial, plan.suffix)
            summaries.append(source.summary(path, sha256_of(partial), written))
            progress.advance(1)
        run = replace(run, sources=tuple(summaries))
        document = _manifest(run, plan, sources[0].questions)
        document["files"] |= {path.name: {"sha256": sha256_of(path)} for path in rejected}
        with writing(folder / MANIFEST):
            partials[-1].write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return run


def _nan_to_none(value: float) -> float | None:
    return None if value != value else value


def options_of(method: Method) -> dict[str, Any]:
    """Return a method's name and its options that are set."""
    options = {name: value for name, value in asdict(method).items() if value is not None}
    return {"method": next(name for name, kind in METHODS.items() if type(method) is kind), **options}


def score_means(s_qn: Floats, s_first: Floats, counted: Flags, temperature: float) -> dict[str, float | None]:
    """Return the mean s_qn and π of some negatives, and the share that score above their positive.

    Each is None without negatives, or if a score is unknown. They are computed from the rounded numbers of the files,
    so that they are as reproducible as the files. Source: METHOD 2.

    s_qn, s_first : as in `MinedLists`.   counted : (R, K) flags of the negatives to include.
    """
    if not counted.any() or np.isnan(s_qn[counted]).any():
        return dict.fromkeys(("s_query_negative", "consistency", "inverted_share"))
    margins = (s_first[:, None] - s_qn)[counted].round(FILE_DECIMALS)
    return {
        "s_query_negative": float(s_qn[counted].round(FILE_DECIMALS).mean()),
        "consistency": float(torch.sigmoid(torch.from_numpy(margins / temperature)).mean()),
        "inverted_share": float((margins < 0).mean()),
    }


def _by_name(names: Sequence[str], counts: Index) -> dict[str, int]:
    """Return the counts above 0 by name. counts[i + 1] belongs to names[i]."""
    return {name: n for name, n in zip(names, counts[1:].tolist(), strict=True) if n}


def _manifest(run: Mined, plan: MiningPlan, questions: Questions) -> dict[str, Any]:
    """Return the run as a document with hashes. It has no time, machine or path, so equal runs have equal manifests."""
    document = asdict(run)
    for name in ("folder", "next_command"):
        del document[name]
    if run.encoder is not None:
        encoder = {name: value for name, value in document["encoder"].items() if name not in MACHINE_FIELDS}
        path = Path(run.encoder.name)
        document["encoder"] = {**encoder, "name": path.name if path.is_absolute() else run.encoder.name}
    prompt = (plan.prompt or PROMPT) if any(isinstance(miner.method, Llm) for miner in plan.miners) else None
    keys, sources = questions.passages.keys[: questions.n_candidates], document.pop("sources")
    return {
        **document,
        "prompt_sha256": None if prompt is None else hashlib.sha256(prompt.encode()).hexdigest(),
        "candidates_sha256": hashlib.sha256(keys.tobytes()).hexdigest(),
        "files": {Path(source.pop("path")).name: source for source in sources},
    }
