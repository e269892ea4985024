"""`secid mine`: several sources over one encoding of the same queries and candidates, written whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch

from secid.arrays import Flags, Floats, Index, distinct
from secid.arrays import pairs as pair_codes
from secid.encode import Encoder
from secid.errors import InputError, OutputError
from secid.files import PARTIAL, locked, make_folder
from secid.findings.copies import spread
from secid.mining.ask import Answers, ask
from secid.mining.choose import FILL, WHY, Choice, Picks, any_passes, combine, fill, passing
from secid.mining.exclusions import Exclusions
from secid.mining.journal import kept_answers
from secid.mining.llm import Endpoint
from secid.mining.methods import Bm25, Dense, Hybrid, Llm, Method, MiningPlan
from secid.mining.methods import Random as RandomMethod
from secid.mining.orders import Bm25Ranking, DenseRanking, RandomRanking, Ranking, dots
from secid.mining.questions import Questions, questions_of_collection, questions_of_pairs
from secid.mining.write import JOURNAL, REJECTED, Negatives, write_sources
from secid.pool import sample_order
from secid.pool.reading import bytes_read_by
from secid.progress import Progress
from secid.read import open_source, resolve_sources
from secid.read.collection import noted_collection
from secid.read.manifest import left_by_a_kill
from secid.results import EncoderInfo
from secid.results.commands import score_command
from secid.results.mine import MINE_SCHEMA_VERSION, Mined
from secid.scoring.audit import label_files
from secid.settings import Settings, flag_of
from secid.triplets.embedding import Embedder
from secid.version import VERSION

Load = Callable[[], tuple[Encoder, EncoderInfo]]
ROWS_AT_ONCE = 4_096
"""Rows whose lists are in memory together: at the default window 15 MB of each order."""
SCORE_SETTINGS = (
    "revision", "pooling", "query_prefix", "passage_prefix", "query_prompt", "passage_prompt", "max_length",
    "normalize", "truncate_dim", "dtype", "trust_remote_code", "allow_pickle", "tokenizer", "temperature",
)  # fmt: skip


def mine_sources(
    plan: MiningPlan, load: Load | None, settings: Settings, folder: Path, work: Path, progress: Progress
) -> Mined:
    """Reads the queries, mines all sources, and writes their files and the manifest to `folder`, which is created.

    load : gives the encoder and its recipe; None to mine without one, and then nothing is known of margins.
    work : an empty folder for temporary files.
    What cannot work is refused before anything is read, and an encoder is loaded only for queries and candidates that
    are there. Raises SecidError; then nothing is left but what a language model was paid for.
    """
    plan.check(settings, load is not None)
    check_folder(folder)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    journals = [folder / JOURNAL.format(miner.name) for miner in plan.miners]
    with ExitStack() as stack:
        endpoints = {
            number: stack.enter_context(closing(Endpoint(miner.method, plan.seed, progress)))
            for number, miner in enumerate(plan.miners)
            if isinstance(miner.method, Llm)
        }
        stack.enter_context(_removed_if_empty(folder))
        stack.enter_context(_alone_in(folder))
        stack.enter_context(kept_answers(journals, progress))
        questions = stack.enter_context(closing(read_questions(plan, settings, work, progress)))
        exclusions = exclusions_of(questions, progress)
        encoder, info = load() if load else (None, None)
        embedder = None
        if encoder is not None:
            embedder = Embedder(questions.queries, questions.passages, encoder, settings, work, progress)
            stack.callback(embedder.close)
        answers = {
            number: ask(questions, endpoint, plan, journals[number], work / f"{number}.texts", progress)
            for number, endpoint in endpoints.items()
        }
        _, s_qp = lowest_positives(plan, questions, exclusions, embedder)
        picks = search(plan, questions, exclusions, embedder, s_qp, answers, settings, progress)
        s_first = first_scores(questions, embedder)
        sources = [
            Negatives(
                plan,
                questions,
                number,
                own,
                answers.get(number),
                s_qp,
                s_first,
                scores_of(own, questions, embedder),
                settings.temperature,
            )
            for number, own in enumerate(picks)
        ]
        run = Mined(
            **asked_of(plan, questions, settings),
            encoder=info,
            folder=str(folder),
            on_short=plan.on_short,
            schema=plan.schema,
            sources=(),
            next_command=score_command(
                list(map(str, plan.paths(folder))), settings.encoder, settings.collection, _encoder_flags(settings)
            ),
        )
        return write_sources(sources, run, folder, progress)


def asked_of(plan: MiningPlan, questions: Questions, settings: Settings) -> dict[str, Any]:
    """The fields of `MiningRun` but for the encoder."""
    return {
        "schema_version": MINE_SCHEMA_VERSION,
        "secid_version": VERSION,
        "n_rows": len(questions.query),
        "n_queries": len(distinct(questions.query)),
        "n_candidates": questions.n_candidates,
        "skipped": dict(sorted(questions.skipped.items())),
        "k": plan.k,
        "seed": plan.seed,
        "max_reuse": plan.max_reuse,
        "settings": {name: getattr(settings, name) for name in ("tokenizer", "titles", "temperature")},
    }


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Creates the folder, and keeps other runs out of it until the block ends. Raises OutputError."""
    make_folder(folder / JOURNAL)
    with locked(folder) as is_locked:
        if not is_locked and sys.platform != "win32":
            remedy = "wait until it has ended, or name a new directory"
            raise OutputError("another run is writing to it", where=str(folder), remedy=remedy)
        check_folder(folder)  # a run may have ended since it was looked at
        yield


@contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    """Where the block fails, removes the folders that it created, if nothing is in them."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        for path in created:
            with suppress(OSError):
                path.rmdir()
        raise


def _encoder_flags(settings: Settings) -> list[str]:
    """The words of a command line for the settings that decide what a score is, where they are not the defaults."""
    words: list[str] = []
    for name in SCORE_SETTINGS:
        flag, value = flag_of(name), getattr(settings, name)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if value != getattr(Settings(), name):
            words += (
                [*flag.split(" ")[:-1], f"{name}={text}"]
                if " " in flag
                else [flag, *([text] if value is not True else [])]
            )
    return words


def read_questions(plan: MiningPlan, settings: Settings, work: Path, progress: Progress) -> Questions:
    """Rows and candidates. The caller closes them."""
    if plan.pairs is None:
        files, labels = (label_files(None, name, settings, "--pairs SOURCE") for name in (plan.split, None))
        progress.start("read", None, "")
        judged = noted_collection(settings, progress)
        return questions_of_collection(judged, files, labels, work, settings.max_bad_fraction)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(closing(open_source(source, settings, keep=True, without_negatives=True)))
            for source in resolve_sources([plan.pairs], settings)
        ]
        given = settings.collection or settings.corpus
        collection = noted_collection(settings, progress) if given else None
        tick = bytes_read_by(readers, progress)
        return questions_of_pairs(readers, collection, settings, work, tick)


def check_folder(folder: Path) -> None:
    """Raises OutputError for a folder that holds anything but what a killed run left."""
    if folder.is_dir():
        names = sorted(path.name for path in {*folder.iterdir()}.difference(left_by_a_kill(folder)))
        own = (JOURNAL.format("*"), REJECTED.format("*"))
        files = [n for n in names if not (PARTIAL.search(n) or any(fnmatchcase(n, pattern) for pattern in own))]
        if files:
            raise OutputError(
                f"is not empty (it holds {files[0]})",
                where=str(folder),
                remedy="name a new directory; nothing is overwritten"
                if not any(fnmatchcase(path.name, own[0]) for path in folder.iterdir())
                else f"remove all in it but {own[0]}: a new directory would pay for these answers again",
            )
    elif folder.exists() or folder.is_symlink():
        raise OutputError("is not a directory", where=str(folder))


def exclusions_of(questions: Questions, progress: Progress) -> Exclusions:
    """The rules for these questions. Raises InputError where there is no candidate."""
    if not questions.n_candidates:
        raise InputError("the corpus has no passage with text", remedy="candidates are the passages of --collection")
    return Exclusions(questions, progress)


def lowest_positives(
    plan: MiningPlan, questions: Questions, exclusions: Exclusions, embedder: Embedder | None
) -> tuple[Index, Floats]:
    """(R,) the labelled positive of each row's query that scores lowest, and (R,) its score; NaN without an encoder.

    So a margin holds for every one, in whatever order they are labelled; a label of a query counts for all of its
    normal form, as it does in the exclusions. Encodes what dense sources search too.
    """
    if embedder is None:
        return questions.positive, np.full(len(questions.query), np.nan)
    own, forms, n = distinct(questions.query), exclusions.query_forms, len(questions.passages)
    form, passage = np.divmod(distinct(pair_codes(forms[questions.labels[0]], questions.labels[1], n)), n)
    start, stop = (np.searchsorted(form, forms[own], side) for side in ("left", "right"))
    query, passage = np.repeat(own, stop - start), passage[spread(start, stop - start)]
    dense = any(isinstance(miner.method, Dense) for miner in plan.miners)
    candidates = np.arange(questions.n_candidates if dense else 0)
    embedder.need(own, distinct(np.concatenate([candidates, passage])))
    scores = dots(embedder.vectors, query, passage)
    lowest = np.lexsort((passage, scores, query))[np.searchsorted(query, own)]
    place = lowest[np.searchsorted(own, questions.query)]
    return passage[place], scores[place]


def first_scores(questions: Questions, embedder: Embedder | None) -> Floats:
    """(R,) score of the first positive of each row, which `lowest_positives` has encoded; NaN without an encoder."""
    if embedder is None:
        return np.full(len(questions.query), np.nan)
    return dots(embedder.vectors, questions.query, questions.first)


def search(
    plan: MiningPlan, questions: Questions, exclusions: Exclusions, embedder: Embedder | None, s_qp: Floats,
    answers: Mapping[int, Answers], settings: Settings, progress: Progress,
) -> list[Picks]:  # fmt: skip
    """The negatives of each source, in the order of the plan. answers : of language models, by source."""
    n_rows, n = len(questions.query), questions.n_candidates
    picks = [Picks.empty(n_rows, plan.k, n, plan.max_reuse) for _ in plan.miners]
    for number, texts in answers.items():
        picks[number].n_written[:] = texts.counts
        picks[number].why[:] = np.where(texts.counts < plan.k, WHY.index("few_written") + 1, 0)
    number_of = {miner.name: number for number, miner in enumerate(plan.miners)}
    keys = questions.queries.keys, questions.passages.keys[:n]
    choice = Choice(exclusions, keys, plan.seed, plan.k, plan.max_reuse is not None)
    # Rows in the order of a hash of their texts: which ones a cap leaves out depends on no order of files.
    order = np.lexsort((questions.positive, sample_order(keys[0], plan.seed)[questions.query]))
    at_random = RandomRanking(questions.queries, n, plan.seed)
    groups = _rankings(plan, questions, embedder, at_random, settings, progress)
    progress.start("mine", n_rows, "queries")
    for start in range(0, n_rows, ROWS_AT_ONCE):
        rows = order[start : start + ROWS_AT_ONCE]
        query, limit = questions.query[rows], s_qp[rows]
        for ranking, numbers in groups:
            lists = choice.lists(ranking, query, limit, [plan.miners[number] for number in numbers])
            for number in numbers:
                choice.choose(plan.miners[number], number, picks[number], rows, lists)
        for number, miner in enumerate(plan.miners):
            if isinstance(miner.method, Hybrid):
                parts = [(number_of[name], count) for name, count in miner.method.parts]
                combine(parts, picks, number, rows, exclusions)
                picks[number].excluded = sum((picks[part].excluded for part, _ in parts), 0 * picks[number].excluded)
        progress.advance(len(rows))
    if plan.on_short == "random":
        short = [order[own.why[order] > 0] for own in picks]
        progress.start("fill", sum(map(len, short)), "queries")
        for miner, filled, rows in zip(plan.miners, picks, short, strict=True):
            for row in rows.tolist():
                asked = questions.query[row : row + 1]
                passes = _passes(miner.method, embedder, asked, s_qp[row : row + 1])
                fill(filled, row, FILL, asked, passes, at_random, exclusions)
                progress.advance(1)
    return picks


def _passes(method: Method, embedder: Embedder | None, query: Index, s_qp: Floats) -> Callable[[Index], Flags]:
    """What tells which of some candidates pass a method's margins and maximum. query, s_qp : (1,)."""
    if not isinstance(method, Dense) or embedder is None:
        return any_passes
    vectors = embedder.vectors

    def passes(ids: Index) -> Flags:
        near, below = passing(method, dots(vectors, np.repeat(query, len(ids)), ids), s_qp)
        return near & below

    return passes


def _rankings(
    plan: MiningPlan, questions: Questions, embedder: Embedder | None, at_random: Ranking, settings: Settings,
    progress: Progress,
) -> list[tuple[Ranking, list[int]]]:  # fmt: skip
    """Each order that is needed, with the numbers of the sources that take from it."""
    n = questions.n_candidates

    def bm25() -> Ranking:
        progress.start("index", n, "texts")
        return Bm25Ranking(questions.queries, questions.passages, n, settings.tokenizer, progress.advance)

    makers: dict[type, Callable[[], Ranking]] = {RandomMethod: lambda: at_random, Bm25: bm25}
    if embedder is not None:
        vectors = embedder.vectors
        makers[Dense] = lambda: DenseRanking(vectors, n)
    numbers = {
        kind: [number for number, miner in enumerate(plan.miners) if isinstance(miner.method, kind)] for kind in makers
    }
    return [(maker(), numbers[kind]) for kind, maker in makers.items() if numbers[kind]]


def scores_of(picks: Picks, questions: Questions, embedder: Embedder | None) -> Floats:
    """(R, K) s_qn of the negatives, NaN where there is none, or no encoder."""
    scores = np.full(picks.ids.shape, np.nan)
    taken = picks.ids >= 0
    if embedder is not None and taken.any():
        ids = picks.ids[taken].astype(np.int64)
        embedder.need(np.zeros(0, np.int64), distinct(ids))
        scores[taken] = dots(embedder.vectors, np.repeat(questions.query, taken.sum(axis=1)), ids)
    return scores
