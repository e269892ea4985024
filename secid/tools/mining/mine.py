"""`secid.mine` and `secid.mine_sweep` mine sources of hard negatives from queries and candidates.

    methods      parse NAME=METHOD:option=value,…        questions   queries, positives and candidates
    llm          ask a language model for texts          answers     the negatives in its answers
    choose       rankings, exclusions and windows        find        search for all sources, and write their files
    run          the whole command                       sweep       the counts for other margins and windows

Example: K = 2, and the candidates a, b, c, d have s_qn = 0.9, 0.8, 0.6, 0.5. The positive is a, so s_qp = 0.9, and a
has no rank. `dense` takes b (rank 1) and c (rank 2), which score below 95 % of a: 0.855. `dense:absolute=0.2` takes c
and d, since 0.8 is not below 0.7.
`dense:absolute=0.2,ranks=1-2` takes only c, since the margin rejects b. The row is then short.
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
    from secid.tools.mining.run import LoadEncoder
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
    from secid.tools.mining.methods import Dense, MiningPlan, parse_miners
    from secid.tools.mining.questions import read_questions

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
        from secid.tools.mining.sweep import sweep_all

        return sweep_all(plan, questions, load, values, work, progress)


def _opened(
    encoder: EncoderLike | None, settings: SettingsDict, progress: Progress | None
) -> tuple[LoadEncoder | None, Resolved, Progress]:
    """Return a function that loads the encoder, or None without one, the settings, and the progress."""
    resolved, watcher = start_command(encoder, settings, progress)
    values = resolved.values
    has_encoder = encoder is not None or values.encoder is not None
    return (lambda: load_noted(encoder, values, watcher)) if has_encoder else None, resolved, watcher
