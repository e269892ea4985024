"""`secid mine`: several sources over one encoding of the same queries and candidates, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import distinct
from secid.encode import Encoder
from secid.errors import InputError, OutputError, UsageError
from secid.export.rows import Passage, Row
from secid.export.writer import Schema, new_files, write_rows, writing
from secid.files import PARTIAL
from secid.mining.choose import FILL, WHY, OnShort, Picks, choose, combine, deep_enough, fill
from secid.mining.exclusions import EXCLUDED, Exclusions
from secid.mining.methods import Bm25, Dense, Hybrid, Miner
from secid.mining.methods import Random as RandomMethod
from secid.mining.orders import Bm25Ranking, DenseRanking, RandomRanking, Ranking, dots
from secid.mining.questions import Questions, questions_of_collection, questions_of_pairs
from secid.pool import SPLITTERS, sample_order
from secid.pool.reading import bytes_read_by
from secid.progress import Progress
from secid.read import open_source, resolve_sources
from secid.read.collection import open_collection
from secid.results import EncoderInfo
from secid.results.commands import score_command
from secid.results.mine import MINE_SCHEMA_VERSION, Mined, MinedSource
from secid.scoring.audit import label_files
from secid.settings import Settings, flag_of
from secid.triplets.embedding import Embedder
from secid.version import VERSION

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
ROWS_AT_ONCE = 4_096
"""Rows whose lists are in memory together: at the default window 15 MB of each order."""
WRITTEN_AT_ONCE = 1_024
MANIFEST = ".manifest.json"
FILLED = "random"
"""Name of the miner of the negatives that fill up short rows."""


@dataclass(frozen=True)
class Plan:
    """What to mine. max_reuse: rows that a passage may serve in one source; None for any number."""

    miners: tuple[Miner, ...]
    k: int
    seed: int
    on_short: OnShort
    max_reuse: int | None
    schema: Schema
    suffix: str

    def paths(self, folder: Path) -> list[Path]:
        """The files of the sources, and the manifest."""
        return [*(folder / f"{miner.name}{self.suffix}" for miner in self.miners), folder / MANIFEST]


def mine_all(
    plan: Plan,
    pairs: str | None,
    split: str | None,
    load: Callable[[], tuple[Encoder, EncoderInfo]] | None,
    settings: Settings,
    folder: Path,
    work: Path,
    progress: Progress,
) -> Mined:
    """Reads the queries, mines and writes. pairs, split : as in `secid.api.mine`.   load : None without an encoder.

    What cannot work is refused before anything is read, and an encoder is loaded only for queries and candidates that
    are there. Raises SecidError.
    """
    _refuse(plan, load, split, pairs, settings)
    check_folder(folder)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    questions = _questions(pairs, split, settings, work, progress)
    try:
        sources, info = mine_sources(plan, questions, load, settings, folder, work, progress)
        n_rows, n_candidates, skipped = len(questions.query), questions.n_candidates, questions.skipped
    finally:
        questions.close()
    return Mined(
        schema_version=MINE_SCHEMA_VERSION,
        secid_version=VERSION,
        folder=str(folder),
        encoder=info,
        n_rows=n_rows,
        n_candidates=n_candidates,
        skipped=skipped,
        k=plan.k,
        seed=plan.seed,
        on_short=plan.on_short,
        max_reuse=plan.max_reuse,
        schema=plan.schema,
        settings=settings_of(settings),
        sources=sources,
        next_command=score_command([source.path for source in sources], settings.encoder, settings.collection),
    )


def _questions(pairs: str | None, split: str | None, settings: Settings, work: Path, progress: Progress) -> Questions:
    if pairs is None:
        files, labels = label_files(None, split, settings), label_files(None, None, settings)
        progress.start("read", None, "")
        return questions_of_collection(open_collection(settings), files, labels, work, settings.max_bad_fraction)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(closing(open_source(source, settings, keep=True, without_negatives=True)))
            for source in resolve_sources([pairs], settings)
        ]
        given = settings.collection or settings.corpus
        collection = open_collection(settings) if given else None
        tick = bytes_read_by(readers, progress)
        return questions_of_pairs(readers, collection, settings, work, tick)


def _refuse(plan: Plan, load: object, split: str | None, pairs: str | None, settings: Settings) -> None:
    """Raises UsageError for what cannot work together."""
    dense = [miner.name for miner in plan.miners if isinstance(miner.method, Dense)]
    if dense and load is None:
        raise UsageError(f"{dense[0]} needs an encoder", remedy="--encoder e5-base, a local folder, or minilm")
    if settings.tokenizer not in SPLITTERS and any(isinstance(miner.method, Bm25) for miner in plan.miners):
        raise UsageError(
            f"bm25 has no tokenizer {settings.tokenizer!r}",
            where=flag_of("tokenizer"),
            remedy=f"one of {', '.join(SPLITTERS)}",
        )
    if split is not None and pairs is not None:
        raise UsageError("has no effect with --pairs, which names the queries", where="--split")
    if plan.max_reuse is not None and plan.max_reuse < 1:
        raise UsageError(f"at least 1, got {plan.max_reuse}", where="--max-reuse")
    if plan.on_short not in get_args(OnShort):
        raise UsageError(
            f"unknown choice {plan.on_short!r}", where="--on-short", remedy=f"one of {', '.join(get_args(OnShort))}"
        )


def check_folder(folder: Path) -> None:
    """Raises OutputError for a folder that holds anything but what a killed run left."""
    if folder.is_dir():
        files = [path.name for path in folder.iterdir() if not PARTIAL.search(path.name)]
        if files:
            raise OutputError(
                f"is not empty (it holds {files[0]})",
                where=str(folder),
                remedy="name a new directory; nothing is overwritten",
            )
    elif folder.exists() or folder.is_symlink():
        raise OutputError("is not a directory", where=str(folder))


def mine_sources(
    plan: Plan,
    questions: Questions,
    load: Callable[[], tuple[Encoder, EncoderInfo]] | None,
    settings: Settings,
    folder: Path,
    work: Path,
    progress: Progress,
) -> tuple[tuple[MinedSource, ...], EncoderInfo | None]:
    """Mines all sources and writes their files and the manifest to `folder`, which is created.

    load : gives the encoder and its recipe; None to mine without one, and then nothing is known of margins.
    work : an empty folder for temporary files. Raises InputError where there is no candidate, OutputError where the
    files cannot be written, and what encoding raises.
    """
    if not questions.n_candidates:
        raise InputError("the corpus has no passage with text", remedy="candidates are the passages of --collection")
    exclusions = Exclusions(questions, progress)
    encoder, info = load() if load else (None, None)
    with ExitStack() as stack:
        embedder = None
        if encoder is not None:
            embedder = Embedder(questions.queries, questions.passages, encoder, settings, work, progress)
            stack.callback(embedder.close)
        miner = _Mine(plan, questions, exclusions, embedder, settings, progress)
        picks = miner.picks()
        s_qn = [miner.scores(own) for own in picks]
        sources = _write(plan, questions, picks, miner.s_qp, s_qn, info, settings, folder, progress)
    return sources, info


class _Mine:
    """The search for all sources."""

    def __init__(
        self,
        plan: Plan,
        questions: Questions,
        exclusions: Exclusions,
        embedder: Embedder | None,
        settings: Settings,
        progress: Progress,
    ) -> None:
        self._plan, self._questions, self._exclusions = plan, questions, exclusions
        self._embedder, self._settings, self._progress = embedder, settings, progress
        n_rows = len(questions.query)
        self.s_qp = np.full(n_rows, np.nan)
        if embedder is not None:
            dense = any(isinstance(miner.method, Dense) for miner in plan.miners)
            candidates = np.arange(questions.n_candidates if dense else 0)
            passages = distinct(np.concatenate([candidates, questions.positive]))
            embedder.need(distinct(questions.query), passages)
            self.s_qp = dots(embedder.vectors, questions.query, questions.positive)

    def picks(self) -> list[Picks]:
        """The negatives of each source, in the order of the plan."""
        plan, questions = self._plan, self._questions
        n_rows, n = len(questions.query), questions.n_candidates
        picks = [Picks.empty(n_rows, plan.k, n) for _ in plan.miners]
        keys = questions.queries.keys, questions.passages.keys[:n]
        # Rows in the order of a hash of their texts: which ones a cap leaves out depends on no order of files.
        order = np.lexsort((questions.positive, sample_order(keys[0], plan.seed)[questions.query]))
        groups = self._groups()
        self._progress.start("mine", n_rows, "queries")
        for start in range(0, n_rows, ROWS_AT_ONCE):
            rows = order[start : start + ROWS_AT_ONCE]
            query, s_qp = questions.query[rows], self.s_qp[rows]
            for ranking, numbers in groups:
                miners = [plan.miners[number] for number in numbers]
                capped = plan.max_reuse is not None
                lists = deep_enough(ranking, self._exclusions, query, s_qp, miners, plan.k, capped, n)
                for number, miner in zip(numbers, miners, strict=True):
                    own = keys[0][query], keys[1]
                    choose(miner, number, picks[number], rows, lists, s_qp, own, plan.seed, plan.max_reuse)
            for number, miner in enumerate(plan.miners):
                if isinstance(miner.method, Hybrid):
                    parts = [(self._number(name), count) for name, count in miner.method.parts]
                    combine(parts, picks, number, rows, self._exclusions, plan.max_reuse)
            self._progress.advance(len(rows))
        if plan.on_short == "random":
            self._fill(picks, order)
        return picks

    def _fill(self, picks: Sequence[Picks], order: Index) -> None:
        short = [order[own.why[order] > 0] for own in picks]
        self._progress.start("fill", sum(map(len, short)), "queries")
        ranking = self._random()
        for own, rows in zip(picks, short, strict=True):
            fill(own, rows, self._questions.query[rows], ranking, self._exclusions, self._plan.max_reuse)
            self._progress.advance(len(rows))

    def _number(self, name: str) -> int:
        return [miner.name for miner in self._plan.miners].index(name)

    def _random(self) -> RandomRanking:
        return RandomRanking(self._questions.queries, self._questions.n_candidates, self._plan.seed)

    def _groups(self) -> list[tuple[Ranking, list[int]]]:
        """Each order that is needed, with the numbers of the sources that take from it."""
        questions, embedder = self._questions, self._embedder

        def bm25() -> Ranking:
            self._progress.start("index", questions.n_candidates, "texts")
            stores = questions.queries, questions.passages
            return Bm25Ranking(*stores, questions.n_candidates, self._settings.tokenizer, self._progress.advance)

        def dense() -> Ranking:
            if embedder is None:
                raise UsageError("needs an encoder", where="dense")
            return DenseRanking(embedder.vectors, questions.n_candidates)

        makers: Mapping[type, Callable[[], Ranking]] = {RandomMethod: self._random, Bm25: bm25, Dense: dense}
        groups = []
        for kind, maker in makers.items():
            numbers = [place for place, miner in enumerate(self._plan.miners) if isinstance(miner.method, kind)]
            if numbers:
                groups.append((maker(), numbers))
        return groups

    def scores(self, picks: Picks) -> Floats:
        """(R, K) s_qn of the negatives, NaN where there is none, or no encoder."""
        scores = np.full(picks.ids.shape, np.nan)
        taken = picks.ids >= 0
        if self._embedder is not None and taken.any():
            ids = picks.ids[taken].astype(np.int64)
            self._embedder.need(np.zeros(0, np.int64), distinct(ids))
            query = np.repeat(self._questions.query, picks.counts)
            scores[taken] = dots(self._embedder.vectors, query, ids)
        return scores


def _write(
    plan: Plan,
    questions: Questions,
    picks: Sequence[Picks],
    s_qp: Floats,
    s_qn: Sequence[Floats],
    info: EncoderInfo | None,
    settings: Settings,
    folder: Path,
    progress: Progress,
) -> tuple[MinedSource, ...]:
    """The files of all sources and the manifest, together or not at all."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    sources = []
    progress.start("write", len(plan.miners), "files")
    paths = plan.paths(folder)
    with new_files(*paths) as partials:
        for number, (miner, path, partial) in enumerate(zip(plan.miners, paths, partials, strict=False)):
            own, margin = picks[number], s_qp[:, None] - s_qn[number]
            kept = own.counts > 0
            n_missing = int((~kept).sum())
            if plan.on_short == "drop":
                kept &= own.why == 0
            if not kept.any():
                counts = _by_name(WHY, np.bincount(own.why, minlength=len(WHY) + 1))
                why = ", ".join(f"{name} {n:,}" for name, n in counts.items())
                raise InputError(f"no negative for any of the {len(kept):,} queries ({why})", where=miner.name)
            rows = _Rows(plan, questions, own, margin, kept)
            with writing(path):
                written = write_rows(rows, plan.schema, partial, plan.suffix)
            of_rows = own, kept, n_missing, s_qn[number], margin
            sources.append(_source(miner, path, partial, *of_rows, settings, written.not_held))
            progress.advance(1)
        document = _manifest(plan, questions, sources, info, settings)
        with writing(paths[-1]):
            partials[-1].write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return tuple(sources)


@dataclass(frozen=True)
class _Rows:
    """The rows of a file, the same at each call. kept: (R,) which of the input's rows are in it."""

    plan: Plan
    questions: Questions
    picks: Picks
    margin: Floats
    kept: npt.NDArray[np.bool_]

    def __call__(self) -> Iterator[Row]:
        ids = self.picks.ids.astype(np.int64)
        used = distinct(ids[self.kept].ravel())
        used = used[used >= 0]
        names = dict(zip(used.tolist(), self.questions.ids(used), strict=True))
        miners = {FILL: FILLED, **{number: miner.name for number, miner in enumerate(self.plan.miners)}}
        rows = (item for item in enumerate(self.questions.rows()) if self.kept[item[0]])
        while part := list(islice(rows, WRITTEN_AT_ONCE)):
            places = np.array([place for place, _ in part])
            own = ids[places]
            texts = iter(self.questions.passages.take(own[own >= 0]))
            for place, row in part:
                n = int((self.picks.ids[place] >= 0).sum())
                cells = zip(
                    *(getattr(self.picks, name)[place, :n].tolist() for name in ("ids", "ranks", "scores", "by")),
                    self.margin[place, :n].tolist(),
                    strict=True,
                )
                negatives = [
                    Passage(
                        next(texts), names[key], "", _known(score), max(0, rank) or None, _known(margin), miners[by]
                    )
                    for key, rank, score, by, margin in cells
                ]
                yield row._replace(negatives=negatives)


def _known(value: float) -> float | None:
    return None if value != value else value


def _source(
    miner: Miner, path: Path, partial: Path, picks: Picks, kept: npt.NDArray[np.bool_], n_missing: int,
    s_qn: Floats, margin: Floats, settings: Settings, not_held: Mapping[str, int],
) -> MinedSource:  # fmt: skip
    with partial.open("rb") as handle:
        sha256 = hashlib.file_digest(handle, "sha256").hexdigest()
    ids = picks.ids[kept]
    taken = ids >= 0
    scored = s_qn[kept][taken]
    margins = margin[kept][taken]
    known = len(scored) > 0 and not np.isnan(scored).any()
    _, served = np.unique(ids[taken], return_counts=True)
    return MinedSource(
        name=miner.name,
        path=str(path),
        sha256=sha256,
        method=described(miner),
        n_rows=int(kept.sum()),
        n_missing=n_missing,
        n_dropped=len(kept) - int(kept.sum()) - n_missing,
        n_negatives=int(taken.sum()),
        n_filled=int((picks.by[kept][taken] == FILL).sum()),
        n_short=int((picks.why > 0).sum()),
        short=_by_name(WHY, np.bincount(picks.why, minlength=len(WHY) + 1)),
        excluded=_by_name(EXCLUDED, picks.excluded),
        s_query_negative=float(scored.mean()) if known else None,
        consistency=float(torch.sigmoid(torch.from_numpy(margins / settings.temperature)).mean()) if known else None,
        inverted_share=float((margins < 0).mean()) if known else None,
        n_passages=len(served),
        most_used=int(served.max()),
        not_held=not_held,
    )


def described(miner: Miner) -> dict[str, Any]:
    """The method by its name, with every option that it has."""
    kind = type(miner.method).__name__.lower()
    options = {name: value for name, value in asdict(miner.method).items() if value is not None}
    return {"typed": miner.text, "method": kind, **options}


def _by_name(names: Sequence[str], counts: Index) -> dict[str, int]:
    """What was counted under the numbers from 1 on, by name, but for zeros."""
    return {name: n for name, n in zip(names, counts[1:].tolist(), strict=True) if n}


def _manifest(
    plan: Plan, questions: Questions, sources: Sequence[MinedSource], info: EncoderInfo | None, settings: Settings
) -> dict[str, Any]:
    """What the files were made of: no time and no absolute path, so that the same input and seed give the same."""
    keys = questions.passages.keys[: questions.n_candidates]
    name = None if info is None else Path(info.name).name if Path(info.name).is_absolute() else info.name
    return {
        "schema_version": MINE_SCHEMA_VERSION,
        "secid_version": VERSION,
        "encoder": None
        if info is None
        else {
            "name": name,
            "revision": info.revision,
            "weights_sha256": info.weights_sha256,
            "fingerprint": info.fingerprint,
        },
        "k": plan.k,
        "seed": plan.seed,
        "on_short": plan.on_short,
        "max_reuse": plan.max_reuse,
        "schema": plan.schema,
        "settings": settings_of(settings),
        "n_rows": len(questions.query),
        "n_candidates": questions.n_candidates,
        "candidates_sha256": hashlib.sha256(keys.tobytes()).hexdigest(),
        "skipped": dict(sorted(questions.skipped.items())),
        "files": {
            Path(source.path).name: {key: value for key, value in asdict(source).items() if key != "path"}
            for source in sources
        },
    }


def settings_of(settings: Settings) -> dict[str, Any]:
    """The settings that decide what is mined, but for those that are part of the encoder's fingerprint."""
    return {"tokenizer": settings.tokenizer, "titles": settings.titles, "temperature": settings.temperature}
