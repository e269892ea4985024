"""`secid.mine` mines sources of hard negatives from queries and candidates, `secid.mine_sweep` counts other settings.

    methods      parse NAME=METHOD:option=value,…        questions   queries, positives and candidates
    llm          ask a language model for texts          answers     the negatives in its answers
    choose       rankings, exclusions and windows        find        search for all sources, and write their files

Example: K = 2, and the candidates a, b, c, d have s_qn = 0.9, 0.8, 0.6, 0.5. The positive is a, so s_qp = 0.9, and a
has no rank. `dense` takes b (rank 1) and c (rank 2), which score below 95 % of a: 0.855. `dense:absolute=0.2` takes c
and d, since 0.8 is not below 0.7.
`dense:absolute=0.2,ranks=1-2` takes only c, since the margin rejects b. The row is then short.
Source: METHOD 10.
"""

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

from secid import __version__
from secid.arrays import Floats, Index, distinct
from secid.encode import Encoder
from secid.encode.precomputed import PrecomputedEncoder
from secid.errors import OutputError, UsageError
from secid.files import PARTIAL, locked, make_folder, work_folder
from secid.findings.lexical_gate import misread_texts
from secid.pool.texts import TextSpool
from secid.progress import Progress
from secid.read.sources import files_of_killed_run
from secid.results import EncoderInfo
from secid.results.catalogue import NEAR_HARDNESS
from secid.results.commands import flag_words, score_command
from secid.results.mine import MINE_SCHEMA_VERSION, Mined, Suspects, Sweep, Swept, SweptSource
from secid.scoring.encoders import load_guide, load_noted, refuse_missing, start_command, with_better_tokenizer
from secid.settings import DEFAULTS, RECIPE_FIELDS, Resolved, Settings, SettingsDict
from secid.tools.mining.methods import (
    JOURNAL,
    REJECTED,
    Bm25,
    Dense,
    Llm,
    Method,
    Miner,
    MiningPlan,
    Random,
    parse_miners,
)
from secid.tools.mining.questions import Questions, read_questions
from secid.triplets.estimates import comparable_keys, wilson_interval

if TYPE_CHECKING:
    from secid.encode import EncoderLike
    from secid.measure.blocks import Triplets
    from secid.tools.mining.choose import Picks
    from secid.tools.mining.llm import Endpoint
    from secid.tools.mining.methods import OnShort
    from secid.triplets.guide import GuideScores
    from secid.write.writer import Schema

LoadEncoder = Callable[[], tuple[Encoder, EncoderInfo]]
SCORE_SETTINGS = (*RECIPE_FIELDS, "dtype", "trust_remote_code", "allow_pickle", "tokenizer", "temperature")
SWEEP_MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2)
SWEEP_WINDOWS = ((11, 50), (51, 100))
"""Windows of ranks in addition to the source's own and 1 to K."""
SWEEP_SAMPLE = 300
"""Number of negatives of each variant that a guide scores. A share of 10 % then has a standard error of 1.7 points."""


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
    """Mine negatives by one or several methods, and write a file of training rows for each. Texts are encoded once.

    miners   : "NAME=METHOD:option=value,…", one or several; see secid.tools.mining.methods.
    folder   : a new or empty folder for NAME.jsonl of each source and a hidden .manifest.json.
    encoder  : as for `score`. It may be None if no source is dense; then margins are unknown.
    k        : number of negatives of each row.
    pairs    : a source with queries and positives, as for `score`. By default the queries are those that the qrels of
               `collection` judge, one row for each.
    split    : use only the judgements of this split of the collection; all by default.
    on_short : what to do with a row that has fewer than k negatives: "keep" it, "drop" it, or fill it with "random"
               candidates.
    max_reuse: maximum number of rows with the same passage in a source; no limit by default.
    schema   : st-ntuple, flagembedding, tevatron or nvidia.   parquet : write Parquet instead of JSON lines.
    prompt   : prompt for language models, with {query}, {positive} and {n}.
    concurrency : number of requests to a language model at once.
    settings : settings of the files and the encoder, tokenizer (for bm25), temperature and seed. Others have no effect.
    Return the result that `secid mine --json` prints. If it raises SecidError, it has written nothing.

    >>> import secid
    >>> mined = secid.mine(["near=dense", "far=dense:ranks=21-40"], "runs/mined", "minilm",
    ...                    collection="fixtures/collection", k=4)
    >>> [(source.name, source.n_negatives) for source in mined.sources]
    [('near', 264), ('far', 259)]

    Source: METHOD 10.
    """
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
    """Count the negatives of dense sources with other margins and windows of ranks. Nothing is written.

    miners : as for `mine`; those that are not dense are ignored. For the other parameters see `mine`.
    settings : as for `mine`, and guide, guide_reranker and guide_sample: a guide scores a sample of the negatives with
               each margin and window.
    Return the result that `secid mine --sweep --json` prints. Raises SecidError.

    >>> import secid
    >>> sweep = secid.mine_sweep(["near=dense"], "minilm", collection="fixtures/collection", k=4)
    >>> [(way.n_negatives, way.n_short) for way in sweep.sources[0].variants if way.method["ranks"] == (1, 4)]
    [(200, 23), (194, 25), (190, 26), (177, 30), (137, 40)]

    Source: METHOD 10.
    """
    sources = parse_miners(miners, k)
    load, resolved, progress = _opened(encoder, settings, progress)
    values = resolved.values
    plan = MiningPlan(sources, k, values.seed, pairs, split, max_reuse=max_reuse)
    plan.check(values, load is not None)
    if load is None or not any(isinstance(miner.method, Dense) for miner in sources):
        names = ", ".join(miner.name for miner in sources)
        raise UsageError(f"no dense source among {names}", where="--sweep", remedy="add one, such as near=dense")

    def refuse() -> None:
        refuse_missing(encoder, values, progress)

    with work_folder() as work, closing(read_questions(plan, values, work, progress, refuse)) as questions:
        return sweep_all(plan, questions, load, values, work, progress)


def _opened(
    encoder: EncoderLike | None, settings: SettingsDict, progress: Progress | None
) -> tuple[LoadEncoder | None, Resolved, Progress]:
    """Return a function that loads the encoder, or None without one, the settings, and the progress."""
    resolved, watcher = start_command(encoder, settings, progress)
    values = resolved.values
    has_encoder = encoder is not None or values.encoder is not None
    return (lambda: load_noted(encoder, values, watcher)) if has_encoder else None, resolved, watcher


def mine_sources(
    plan: MiningPlan,
    load: LoadEncoder | None,
    resolved: Resolved,
    folder: Path,
    work: Path,
    progress: Progress,
    refuse: Callable[[], None],
) -> Mined:
    """Read the queries, mine all sources, and write their files and the manifest to a new folder.

    An invalid plan is refused before anything is read. The encoder is loaded after queries and candidates were read.

    load : returns the encoder and its recipe; None to mine without an encoder. Then margins are unknown.
    work : an empty folder for temporary files.   refuse : as for `read_questions`.
    Raises SecidError. Then only the answers of a language model, which are paid for, stay in the folder.
    """
    settings = resolved.values
    plan.check(settings, load is not None)
    check_folder(folder)
    journals = [folder / JOURNAL.format(miner.name) for miner in plan.miners]
    with ExitStack() as stack:
        endpoints = _endpoints(plan, progress, stack)
        stack.enter_context(_locked_folder(folder))
        questions = stack.enter_context(closing(read_questions(plan, settings, work, progress, refuse)))
        settings = _with_tokenizer(plan, questions, resolved, progress)
        from secid.tools.mining.answers import resume_hint
        from secid.tools.mining.find import MinedNegatives, find_negatives, write_sources
        from secid.tools.mining.llm import ask

        stack.enter_context(resume_hint(journals, progress))
        encoder, info = load() if load else (None, None)
        if endpoints and isinstance(encoder, PrecomputedEncoder):
            problem = "a vectors file has no vectors for the texts that a language model writes"
            remedy = "name a model, or mine the llm source in a separate run without --encoder"
            raise UsageError(problem, where="--encoder", remedy=remedy)
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
            written = {number: np.where(answer.texts >= 0, ids[answer.texts], -1) for number, answer in answers.items()}
        lists = find_negatives(plan, questions, written, encoder, settings, work, progress)
        sources = [
            MinedNegatives(plan, questions, lists, number, answers.get(number), settings.temperature)
            for number in range(len(plan.miners))
        ]
        run = Mined(
            **run_fields(plan, questions, settings),
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
    """Return the endpoints of the language models, by the number of their miner. The stack closes them."""
    methods = {number: miner.method for number, miner in enumerate(plan.miners) if isinstance(miner.method, Llm)}
    if not methods:
        return {}
    from secid.tools.mining.llm import Endpoint

    return {
        number: stack.enter_context(closing(Endpoint(method, plan.seed, progress)))
        for number, method in methods.items()
    }


def _with_tokenizer(plan: MiningPlan, questions: Questions, resolved: Resolved, progress: Progress) -> Settings:
    """Return the settings. If bm25 needs a tokenizer and none was set, it is chosen for the texts. Source: METHOD 4."""
    settings = resolved.values
    if resolved.origin["tokenizer"] != "default" or not any(isinstance(miner.method, Bm25) for miner in plan.miners):
        return settings
    queries = questions.queries, distinct(questions.query)
    candidates = questions.passages, np.arange(questions.n_candidates)
    name = plan.pairs if isinstance(plan.pairs, str) else settings.collection or "the pairs"
    fit = misread_texts(queries, candidates, settings.tokenizer, settings.seed)
    return with_better_tokenizer(resolved, [(fit, name)], progress).values


def run_fields(plan: MiningPlan, questions: Questions, settings: Settings) -> dict[str, Any]:
    """Return the fields that `Mined` and `Sweep` have in common, except the encoder."""
    return {
        "schema_version": MINE_SCHEMA_VERSION,
        "secid_version": __version__,
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
def _locked_folder(folder: Path) -> Iterator[None]:
    """Create and lock a folder during the block. If that fails, remove new empty folders. Raises OutputError."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        make_folder(folder / JOURNAL)
        with locked(folder) as is_locked:
            if not is_locked and sys.platform != "win32":
                remedy = "wait until that run has ended, or name a new directory"
                raise OutputError("another run is writing to this folder", where=str(folder), remedy=remedy)
            check_folder(folder)  # another run may have ended since the first check
            yield
    except BaseException:
        with suppress(OSError):
            for path in created:
                path.rmdir()
        raise


def _encoder_flags(settings: Settings) -> list[str]:
    """Return command-line words for the settings that change a score and differ from the defaults."""
    values = {name: getattr(settings, name) for name in SCORE_SETTINGS}
    return [
        word for name, value in values.items() if value != getattr(DEFAULTS, name) for word in flag_words(name, value)
    ]


def check_folder(folder: Path) -> None:
    """Raise OutputError if a folder has files, other than those of a killed run."""
    if folder.is_dir():
        names = sorted(path.name for path in {*folder.iterdir()}.difference(files_of_killed_run(folder)))
        patterns = (JOURNAL.format("*"), REJECTED.format("*"))
        files = [n for n in names if not (PARTIAL.search(n) or any(fnmatchcase(n, pattern) for pattern in patterns))]
        if files:
            raise OutputError(
                f"is not empty (it has {files[0]})",
                where=str(folder),
                remedy="name a new directory; secid overwrites nothing"
                if not any(fnmatchcase(path.name, patterns[0]) for path in folder.iterdir())
                else f"remove all files except {patterns[0]}, whose answers you would pay for again in a new directory",
            )
    elif folder.exists() or folder.is_symlink():
        raise OutputError("is not a directory", where=str(folder), remedy="name a new directory")


# The sweep: a margin that suits one encoder does not suit another, and this table helps to choose one.


def swept_methods(miner: Miner, k: int) -> list[Miner]:
    """Return the variants of a dense source by window and relative margin, without repeats.

    They have the source's maximum and pick. The relative margin replaces its own margins.
    """
    dense, methods = miner.method, dict[tuple[tuple[int, int], float], Dense]()
    if isinstance(dense, Dense):
        for ranks in (miner.window, (1, k), *SWEEP_WINDOWS):
            for relative in SWEEP_MARGINS:
                methods[ranks, relative] = replace(dense, ranks=ranks, relative=relative, absolute=None)
    return [Miner(miner.name, miner.text, method) for method in methods.values()]


def sweep_all(
    plan: MiningPlan, questions: Questions, load: LoadEncoder, settings: Settings, work: Path, progress: Progress
) -> Sweep:
    """Search the negatives of all variants of all dense sources, of which there is at least one. Raises SecidError.

    load : as in `mine_sources`.   work : an empty folder for temporary files.
    """
    from secid.tools.mining.find import find_negatives
    from secid.triplets.guide import guide_scores, sample_of

    dense = [miner for miner in plan.miners if isinstance(miner.method, Dense)]
    grids = [swept_methods(miner, plan.k) for miner in dense]
    at_random = Miner("random", "random", Random())
    # A method that several sources share is searched once.
    every = tuple({each.method: each for each in (*dense, *chain(*grids), at_random)}.values())
    encoder, info = load()
    guide = load_guide(settings, encoder, progress)
    lists = find_negatives(
        replace(plan, miners=every, on_short="keep"), questions, {}, encoder, settings, work, progress
    )
    guided: Sequence[Suspects | None] = [None] * len(every)
    size = settings.guide_sample or SWEEP_SAMPLE
    if guide is not None:
        rows = [_triplets(questions, lists.positive, picks) for picks in lists.picks]
        near = [s_qn[picks.ids >= 0] for picks, s_qn in zip(lists.picks, lists.s_qn, strict=True)]
        sampled, sets = replace(settings, guide_sample=size), list(zip(rows, near, strict=True))
        # The random row's own sample sets the lower end of the guide's scale, so it costs nothing further.
        random_triplets, s_random = sets[[miner.method for miner in every].index(at_random.method)]
        drawn = random_triplets.take(sample_of(questions, random_triplets, s_random, size, settings.seed)[0])
        scores = guide_scores(questions, sets, guide, sampled, work / "guide", progress, {}, [drawn])
        guided = [_suspects(questions, triplets, each) for triplets, each in zip(rows, scores, strict=True)]
    swept = {
        miner.method: _swept(miner.method, picks, s_qn, lists.s_first, plan.k, settings.temperature, suspects)
        for miner, picks, s_qn, suspects in zip(every, lists.picks, lists.s_qn, guided, strict=True)
    }
    sources = tuple(
        SweptSource(name=miner.name, own=swept[miner.method], variants=tuple(swept[each.method] for each in variants))
        for miner, variants in zip(dense, grids, strict=True)
    )
    return Sweep(
        **run_fields(plan, questions, settings),
        encoder=info,
        guide=None if guide is None else guide.info,
        guide_min_hardness=NEAR_HARDNESS,
        guide_sample=size,
        random=swept[at_random.method],
        sources=sources,
        unswept=tuple(miner.name for miner in plan.miners if miner not in dense),
    )


def _triplets(questions: Questions, positive: Index, picks: Picks) -> Triplets:
    """Return triplets of each negative. positive: (R,) positive of each row."""
    from secid.measure.blocks import Triplets

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
    """Return the number of negatives that the guide scored and the share that it suspects; None without negatives."""
    if not len(rows):
        return None
    queries, cluster = np.unique(rows.query, return_inverse=True)
    flags = guide.suspect().astype(np.float64)
    estimate = guide.mean(flags, cluster, comparable_keys(questions.queries.keys[queries]), None)
    return Suspects(n_scored=int(guide.scored.sum()), share=estimate.value, interval_95=wilson_interval(estimate))


def _swept(
    method: Method, picks: Picks, s_qn: Floats, s_first: Floats, k: int, temperature: float, suspects: Suspects | None
) -> Swept:
    from secid.tools.mining.find import options_of, score_means

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
