"""`secid.mine` and `secid.mine_sweep` mine sources of hard negatives from queries and candidates.

    questions    rows of queries and positives, candidates, labels   methods   NAME=METHOD:option=value,…
    llm          the texts that a language model writes              answers   their negatives and their journal
    choose       orders, exclusions, and the window that passes      find      one search for all sources, and files
    run          the folder                                          sweep     other margins and windows

Worked example: K = 2, candidates a, b, c, d with s_qn = 0.9, 0.8, 0.6, 0.5, of which a is the positive (s_qp = 0.9).
`dense` takes b (rank 1) and c (rank 2): a has no rank. `dense:absolute=0.2` takes c and d, since 0.8 is not below 0.7.
`dense:absolute=0.2,ranks=1-2` takes only c: the query is short, since the margin rejects one of a window of two.
Source: METHOD 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from secid.errors import UsageError
from secid.files import work_folder
from secid.progress import Progress
from secid.scoring.encoders import load_noted, refuse_missing, start_command
from secid.settings import Resolved, SettingsDict

if TYPE_CHECKING:
    from secid.encode import EncoderLike
    from secid.results.mine import Mined, Sweep
    from secid.tools.mining.methods import OnShort
    from secid.tools.mining.run import Load
    from secid.write.writer import Schema


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
    """Find negatives by several methods over one encoding, and write a file of training rows for each.

    miners   : "NAME=METHOD:option=value,…", one or several; see secid.tools.mining.methods.
    folder   : a new or empty folder, for NAME.jsonl of each source and a hidden .manifest.json.
    encoder  : as for `score`. May be None if no source is dense; then margins are unknown.
    k        : negatives of each row.
    pairs    : a source with queries and positives, as for `score`; else the queries are those that the qrels of
               `collection` judge.
    split    : only the judgements of this split of the collection; all by default.
    on_short : for a row with fewer than k negatives: keep it, drop it, or fill it up with random candidates.
    max_reuse: largest number of rows with the same passage in a source; no limit by default. Qrels give a row for each
               query.
    schema   : st-ntuple, flagembedding, tevatron or nvidia.   parquet : write Parquet instead of JSON lines.
    prompt, concurrency : prompt for language models, with {query}, {positive} and {n}, and number of requests at once.
    settings : those of the files and the encoder, tokenizer (of bm25), temperature and seed; others have no effect.
    Return the result that `secid mine --json` prints. Raises SecidError, and then writes nothing.

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
    from secid.tools.mining.run import mine_sources

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
    """Count the negatives of dense sources under other margins and windows of ranks. Nothing is written.

    miners : as for `mine`; those that are not dense are left out.   The other parameters are those of `mine`. The
    settings guide, guide_reranker and guide_sample count too: a guide scores a sample of each method's negatives.
    Return the result that `secid mine --sweep --json` prints. Raises SecidError.

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
        from secid.tools.mining.sweep import sweep_all

        return sweep_all(plan, questions, load, values, work, progress)


def _opened(
    encoder: EncoderLike | None, settings: SettingsDict, progress: Progress | None
) -> tuple[Load | None, Resolved, Progress]:
    """Return a function that loads the encoder (None without one), the settings, and the progress."""
    resolved, watcher = start_command(encoder, settings, progress)
    values = resolved.values
    has_encoder = encoder is not None or values.encoder is not None
    return (lambda: load_noted(encoder, values, watcher)) if has_encoder else None, resolved, watcher
