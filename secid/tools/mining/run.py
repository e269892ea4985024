"""`secid mine` and `secid.mine`: several sources of hard negatives over one encoding of queries and candidates, written
whole or not at all; and what other margins and windows would give, with nothing written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from secid.arrays import Floats, Index, distinct
from secid.encode import Encoder
from secid.encode.precomputed import PrecomputedEncoder
from secid.errors import OutputError, UsageError
from secid.files import PARTIAL, locked, make_folder, work_folder
from secid.measure.blocks import Triplets
from secid.measure.in_batch import MARGIN
from secid.pool.texts import TextSpool
from secid.progress import Progress
from secid.read.sources import left_by_a_kill
from secid.results import EncoderInfo
from secid.results.inputs import score_command, typed
from secid.results.mine import MINE_SCHEMA_VERSION, Mined, Suspects, Sweep, Swept, SweptSource
from secid.scoring.encoders import begun, fitting_texts, load_guide, load_noted, refuse_missing
from secid.settings import DEFAULTS, RECIPE_FIELDS, Resolved, Settings, SettingsDict
from secid.tools.mining.choose import Picks
from secid.tools.mining.find import find_negatives, options_of, score_means
from secid.tools.mining.methods import JOURNAL, REJECTED, Bm25, Dense, Llm, Method, Miner, MiningPlan, Random
from secid.tools.mining.questions import Questions, read_questions
from secid.triplets.estimates import comparable_keys, wilson_interval
from secid.triplets.guide import GuideScores, guide_scores
from secid.version import VERSION

if TYPE_CHECKING:
    from secid.encode import EncoderLike
    from secid.results.mine import Mined, Sweep
    from secid.tools.mining.llm import Endpoint
    from secid.tools.mining.methods import OnShort
    from secid.write.writer import Schema


Load = Callable[[], tuple[Encoder, EncoderInfo]]
SCORE_SETTINGS = (*RECIPE_FIELDS, "dtype", "trust_remote_code", "allow_pickle", "tokenizer", "temperature")


def mine_sources(
    plan: MiningPlan,
    load: Load | None,
    resolved: Resolved,
    folder: Path,
    work: Path,
    progress: Progress,
    refuse: Callable[[], None],
) -> Mined:
    """Reads the queries, mines all sources, and writes their files and the manifest to `folder`, which is created.

    load : gives the encoder and its recipe; None to mine without one, and then nothing is known of margins.
    work : an empty folder for temporary files.   refuse : as for `read_questions`.
    What cannot work is refused before anything is read, and an encoder is loaded only for queries and candidates that
    are there. Raises SecidError; then nothing is left but what a language model was paid for.
    """
    settings = resolved.values
    plan.check(settings, load is not None)
    check_folder(folder)
    journals = [folder / JOURNAL.format(miner.name) for miner in plan.miners]
    with ExitStack() as stack:
        endpoints = _endpoints(plan, progress, stack)
        stack.enter_context(_alone_in(folder))
        questions = stack.enter_context(closing(read_questions(plan, settings, work, progress, refuse)))
        settings = _with_tokenizer(plan, questions, resolved, progress)
        from secid.tools.mining.answers import kept_answers
        from secid.tools.mining.find import MinedNegatives, find_negatives, write_sources
        from secid.tools.mining.llm import ask

        stack.enter_context(kept_answers(journals, progress))
        encoder, info = load() if load else (None, None)
        if endpoints and isinstance(encoder, PrecomputedEncoder):
            problem = "has no vectors for texts that a language model writes"
            raise UsageError(problem, where="--encoder", remedy="name a model, or mine llm in a run without --encoder")
        spool = TextSpool("passage", work / "written.txt")
        stack.callback(spool.close)
        answers = {
            number: ask(questions, endpoint, plan, journals[number], spool, work / f"{number}.rejected", progress)
            for number, endpoint in endpoints.items()
        }
        written = {}
        if answers:
            questions, ids = questions.with_texts(spool)
            stack.callback(questions.close)
            written = {number: np.where(own.texts >= 0, ids[own.texts], -1) for number, own in answers.items()}
        found = find_negatives(plan, questions, written, encoder, settings, work, progress)
        sources = [
            MinedNegatives(plan, questions, found, number, answers.get(number), settings.temperature)
            for number in range(len(plan.miners))
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


def _endpoints(plan: MiningPlan, progress: Progress, stack: ExitStack) -> dict[int, Endpoint]:
    """The endpoints of the language models by place of their miner, which the stack closes."""
    methods = {number: miner.method for number, miner in enumerate(plan.miners) if isinstance(miner.method, Llm)}
    if not methods:
        return {}
    from secid.tools.mining.llm import Endpoint

    return {number: stack.enter_context(closing(Endpoint(own, plan.seed, progress))) for number, own in methods.items()}


def _with_tokenizer(plan: MiningPlan, questions: Questions, resolved: Resolved, progress: Progress) -> Settings:
    """The settings, with a tokenizer that fits the texts if bm25 will split them and none was set. Source: METHOD 4."""
    if not any(isinstance(miner.method, Bm25) for miner in plan.miners):
        return resolved.values
    queries = questions.queries, distinct(questions.query)
    candidates = questions.passages, np.arange(questions.n_candidates)
    name = plan.pairs if isinstance(plan.pairs, str) else resolved.values.collection or "the pairs"
    return fitting_texts(queries, candidates, name, resolved, progress).values


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
    """Creates the folder, and keeps other runs out of it until the block ends. Raises OutputError.

    Where the block fails, removes the folders that it created, if nothing is in them.
    """
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        make_folder(folder / JOURNAL)
        with locked(folder) as is_locked:
            if not is_locked and sys.platform != "win32":
                remedy = "wait until it has ended, or name a new directory"
                raise OutputError("another run is writing to it", where=str(folder), remedy=remedy)
            check_folder(folder)  # a run may have ended since it was looked at
            yield
    except BaseException:
        with suppress(OSError):
            for path in created:
                path.rmdir()
        raise


def _encoder_flags(settings: Settings) -> list[str]:
    """The words of a command line for the settings that decide what a score is, where they are not the defaults."""
    values = {name: getattr(settings, name) for name in SCORE_SETTINGS}
    return [word for name, value in values.items() if value != getattr(DEFAULTS, name) for word in typed(name, value)]


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


def mine(
    miners: str | Sequence[str],
    folder: str | PathLike[str],
    encoder: EncoderLike | None = None,
    *,
    k: int = 10,
    pairs: Any = None,
    split: str | None = None,
    on_short: OnShort = "keep",
    max_reuse: int | None = None,
    schema: Schema = "flagembedding",
    parquet: bool = False,
    prompt: str | None = None,
    concurrency: int = 8,
    progress: Progress | None = None,
    **settings: Unpack[SettingsDict],
) -> Mined:
    """Finds negatives by several methods over one encoding, and writes a file of training rows for each.

    miners   : "NAME=METHOD:option=value,…", one or several; see secid.tools.mining.methods.
    folder   : a new or empty one, for NAME.jsonl of each source and a hidden .manifest.json.
    encoder  : as for `score`; may be None where no source is dense, and then nothing is known of margins.
    k        : negatives of each row.
    pairs    : a source with queries and positives, as for `score`; else the queries are those that the qrels of
               `collection` judge.
    split    : only the judgements of this split of the collection; all by default.
    on_short : what becomes of a row with fewer than k: keep it, drop it, or fill it up with random candidates.
    max_reuse: how many rows one passage may serve in a source; any number by default. Qrels give a row for each query.
    schema   : st-ntuple, flagembedding, tevatron or nvidia.   parquet : write Parquet instead of JSON lines.
    prompt, concurrency : what language models are asked, with {query}, {positive} and {n}, and how often at once.
    settings : those of the files and the encoder, tokenizer (of bm25), temperature and seed; others have no effect.
    Returns the same as `secid mine --json` prints. Raises SecidError, and then writes nothing.

    >>> import secid
    >>> mined = secid.mine(["near=dense", "far=dense:ranks=21-40"], "runs/mined", "minilm",
    ...                    collection="fixtures/collection", k=4)
    >>> [(source.name, source.n_negatives) for source in mined.sources]
    [('near', 264), ('far', 264)]

    Source: METHOD 10.
    """
    from secid.tools.mining.methods import MiningPlan, parse_miners
    from secid.write.writer import schema_of

    sources = parse_miners(miners, k)
    load, resolved, progress = _opened(encoder, settings, progress)
    values = resolved.values
    plan = MiningPlan(
        sources, k, values.seed, pairs, split, on_short, max_reuse,
        schema_of(schema, ()), ".parquet" if parquet else ".jsonl", prompt, concurrency,
    )  # fmt: skip

    def refuse() -> None:
        if load is not None:
            refuse_missing(encoder, replace(values, guide=None, guide_reranker=None), progress)

    with work_folder() as work:
        return mine_sources(plan, load, resolved, Path(folder), work, progress, refuse)


def mine_sweep(
    miners: str | Sequence[str],
    encoder: EncoderLike | None = None,
    *,
    k: int = 10,
    pairs: Any = None,
    split: str | None = None,
    max_reuse: int | None = None,
    progress: Progress | None = None,
    **settings: Unpack[SettingsDict],
) -> Sweep:
    """What dense sources would give under other margins and windows of ranks; writes nothing.

    miners : as for `mine`; those that are not dense are left out.   The other parameters are those of `mine`. Of the
    settings guide, guide_reranker and guide_sample count too: a second scorer of a sample of each method's negatives.
    Returns the same as `secid mine --sweep --json` prints. Raises SecidError.

    >>> import secid
    >>> sweep = secid.mine_sweep(["near=dense"], "minilm", collection="fixtures/collection", k=4)
    >>> [(way.n_negatives, way.n_short) for way in sweep.sources[0].variants if way.method["ranks"] == (1, 4)]
    [(200, 23), (194, 25), (190, 26), (177, 30), (137, 40)]

    Source: METHOD 10.
    """
    from secid.tools.mining.methods import Dense, MiningPlan, parse_miners
    from secid.tools.mining.questions import read_questions

    sources = parse_miners(miners, k)
    load, resolved, progress = _opened(encoder, settings, progress)
    values = resolved.values
    plan = MiningPlan(sources, k, values.seed, pairs, split, max_reuse=max_reuse)
    plan.check(values, load is not None)
    if load is None or not any(isinstance(miner.method, Dense) for miner in sources):
        names = ", ".join(miner.name for miner in sources)
        raise UsageError(f"no dense source among {names}", where="--sweep", remedy="name one, such as near=dense")

    def refuse() -> None:
        refuse_missing(encoder, values, progress)

    with work_folder() as work, closing(read_questions(plan, values, work, progress, refuse)) as questions:
        return sweep_all(plan, questions, load, values, work, progress)


def _opened(
    encoder: EncoderLike | None, settings: SettingsDict, progress: Progress | None
) -> tuple[Load | None, Resolved, Progress]:
    """What loads the encoder, None without one; the settings; and who hears of the progress."""
    resolved, watcher = begun(encoder, settings, progress)
    values = resolved.values
    has_encoder = encoder is not None or values.encoder is not None
    return (lambda: load_noted(encoder, values, watcher)) if has_encoder else None, resolved, watcher


RELATIVE = (0.0, 0.02, 0.05, 0.1, 0.2)
WINDOWS = ((11, 50), (51, 100))
"""Beside the source's own and ranks 1 to K."""
SAMPLE = 300
"""Negatives of each method that a guide scores: a share of 10 % then has a standard error of 1.7 points."""


def swept_methods(miner: Miner, k: int) -> list[Miner]:
    """The variants of a dense source by window and margin, each method once; the source itself may be among them.

    They have its maximum and its choice within the window; a relative margin replaces its own margins.
    """
    own, methods = miner.method, dict[tuple[tuple[int, int], float], Dense]()
    if isinstance(own, Dense):
        for ranks in (miner.window, (1, k), *WINDOWS):
            for relative in RELATIVE:
                methods[ranks, relative] = replace(own, ranks=ranks, relative=relative, absolute=None)
    return [Miner(miner.name, miner.text, method) for method in methods.values()]


def sweep_all(
    plan: MiningPlan, questions: Questions, load: Load, settings: Settings, work: Path, progress: Progress
) -> Sweep:
    """Searches once for all variants of all dense sources, at least one.

    load : as in `mine_sources`.   work : an empty folder for temporary files. Raises SecidError.
    """
    dense = [miner for miner in plan.miners if isinstance(miner.method, Dense)]
    grids = [swept_methods(miner, plan.k) for miner in dense]
    at_random = Miner("random", "random", Random())
    # Sources that share a method are searched once.
    every = tuple({each.method: each for each in (*dense, *chain(*grids), at_random)}.values())
    encoder, info = load()
    guide = load_guide(settings, encoder, progress)
    found = find_negatives(
        replace(plan, miners=every, on_short="keep"), questions, {}, encoder, settings, work, progress
    )
    guided: Sequence[Suspects | None] = [None] * len(every)
    size = settings.guide_sample or SAMPLE
    if guide is not None:
        rows = [_triplets(questions, found.positive, own) for own in found.picks]
        near = [s_qn[own.ids >= 0] for own, s_qn in zip(found.picks, found.s_qn, strict=True)]
        sampled, sets = replace(settings, guide_sample=size), list(zip(rows, near, strict=True))
        scores = guide_scores(questions, sets, guide, sampled, work / "guide", progress, {})
        guided = [_suspects(questions, own, each) for own, each in zip(rows, scores, strict=True)]
    swept = {
        miner.method: _swept(miner.method, own, s_qn, found.s_first, plan.k, settings.temperature, suspects)
        for miner, own, s_qn, suspects in zip(every, found.picks, found.s_qn, guided, strict=True)
    }
    sources = tuple(
        SweptSource(
            name=miner.name,
            own=swept[miner.method],
            variants=tuple(swept[each.method] for each in variants),
        )
        for miner, variants in zip(dense, grids, strict=True)
    )
    return Sweep(
        **asked_of(plan, questions, settings),
        encoder=info,
        guide=None if guide is None else guide.info,
        guide_margin=MARGIN,
        guide_sample=size,
        random=swept[at_random.method],
        sources=sources,
        unswept=tuple(miner.name for miner in plan.miners if miner not in dense),
    )


def _triplets(questions: Questions, positive: Index, picks: Picks) -> Triplets:
    """Each negative with a positive of its row. positive : (R,)."""
    counts = picks.counts
    filled = np.flatnonzero(counts)
    return Triplets(
        query=np.repeat(questions.query, counts),
        positive=np.repeat(positive, counts),
        negative=picks.ids[picks.ids >= 0].astype(np.int64),
        record_offsets=np.concatenate([[0], np.cumsum(counts[filled])]),
        record=np.repeat(np.arange(len(counts)), counts),
        place=np.arange(int(counts.sum())),
    )


def _suspects(questions: Questions, rows: Triplets, guide: GuideScores) -> Suspects | None:
    """None where there is no negative."""
    if not len(rows):
        return None
    queries, cluster = np.unique(rows.query, return_inverse=True)
    flags = guide.suspect().astype(np.float64)
    estimate = guide.mean(flags, cluster, comparable_keys(questions.queries.keys[queries]), None)
    return Suspects(n_scored=int(guide.scored.sum()), share=estimate.value, interval_95=wilson_interval(estimate))


def _swept(
    method: Method, picks: Picks, s_qn: Floats, s_first: Floats, k: int, temperature: float, suspects: Suspects | None
) -> Swept:
    counts = picks.counts
    n = int(counts.sum())
    return Swept(
        method=options_of(method),
        n_negatives=n,
        n_short=int((counts < k).sum()),
        n_lacking=k * len(counts) - n,
        n_missing=int((counts == 0).sum()),
        **score_means(s_qn, s_first, picks.ids >= 0, temperature),
        suspects=suspects,
    )
