"""The Python API: each command as a function that returns its result.

Run the examples in order, in the folder that contains `fixtures`. Some functions live elsewhere: `mine` and
`mine_sweep` in `tools/mining/`; `score_shard`, `merge` and `score_on_ray` in `tools/shards/`; `describe_encoder` in
`scoring/`. A function imports its tool when it is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, Unpack

from secid.errors import NothingToScoreError, OutputError, RunNotWrittenError, UsageError
from secid.files import check_writable, work_folder
from secid.progress import Clock, Progress, Silent
from secid.results.document import PROBE_NAME, read_check, settings_of
from secid.run_folder.write import Recorder, RunFolder, add_probe
from secid.scoring.encoders import (
    command_of_probe,
    load_noted,
    refuse_invalid_combinations,
    refuse_missing,
    refuse_no_encoder,
    refuse_one_encoder_twice,
    start_command,
)
from secid.scoring.encoders import describe_encoder as describe_encoder
from secid.settings import SettingsDict

if TYPE_CHECKING:
    from secid.encode import EncoderLike
    from secid.results import Run
    from secid.results.check import Audit, Check
    from secid.results.gate import GateVerdict
    from secid.results.probe import Probe
    from secid.tools.export.left_out import By, Selection
    from secid.tools.export.mixture import Blend, MixtureScore
    from secid.tools.export.select import Flagged
    from secid.tools.gating.baseline import Baseline
    from secid.write.writer import Schema


def score(
    sources: Any,
    encoder: EncoderLike | None = None,
    *,
    run: str | PathLike[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    other_encoders: Sequence[str] = (),
    **settings: Unpack[SettingsDict],
) -> Run:
    """Rank sources of hard negatives by ECI_sem under a frozen encoder.

    sources  : a source, a list of sources, or a dict of sources by name. A source is a file, a glob, a folder of
               shards, "name=path", "-" for standard input, or a Python object. An object may be a DataFrame or another
               table that exports an Arrow stream, a dataset, or an iterable of dicts; (name, object) names it.
    encoder  : short name, hub name, folder, vectors file, endpoint, SentenceTransformer, or Encoder object.
    run      : folder for report.json, report.md, report.html, negatives.parquet and state/; by default nothing is
               written.
    force    : replace an existing run folder.
    other_encoders : encoders that also score these sources, for the ablation "encoder". Each uses its own recipe:
               settings such as prefixes and pooling apply only to the target encoder.
    settings : any setting of the command line. SECID_* variables and secid.toml apply here too.
    Returns the run that `secid score --json` prints, with sources in rank order.
    Raises SecidError. If the folder cannot be written at the end, raises RunNotWrittenError, which holds the result.

    >>> import secid
    >>> sources = ["fixtures/sources/bm25.jsonl.gz", "fixtures/sources/poisoned.jsonl"]
    >>> run = secid.score(sources, encoder="minilm", first_k=3, run="runs/doc", force=True)
    >>> [source.rows.n_read for source in run.sources]
    [66, 66]

    Source: METHOD 2.
    """
    resolved, progress = start_command(encoder, settings, progress)
    values = resolved.values
    refuse_no_encoder(encoder, values)
    refuse_invalid_combinations(values, other_encoders)
    if other_encoders:
        refuse_one_encoder_twice([values.encoder if encoder is None else encoder, *other_encoders])
    clock = Clock()
    from secid.read import open_sources, sources_and_words

    recorder = Recorder(progress)
    files, words = sources_and_words(sources, recorder)
    recorder.start("open files", None, "")
    with (
        RunFolder(None if run is None else Path(run), force) as folder,
        work_folder(folder.work) as work,
        open_sources(files, values) as readers,
    ):
        refuse_missing(encoder, values, recorder, other_encoders)  # before torch is imported, which takes seconds
        from secid.pool.plan import QuerySubset
        from secid.scoring.encoders import load_guide
        from secid.scoring.run import assemble_run, read_sources, with_other_encoders
        from secid.scoring.stages import Background, measure

        loaded, info = load_noted(encoder, values, recorder)
        run_name = None if run is None else fspath(run)
        clock.loaded()
        guide = load_guide(values, loaded, recorder)
        subset, background = QuerySubset.of(values), Background()
        with read_sources(readers, resolved, subset, background, work, clock, recorder) as read:
            context = measure(read, loaded, guide, background, work, clock, recorder)
            scored = assemble_run(context, read, loaded, background, clock, run_name)
            command = command_of_probe(words, encoder, values, settings, scored.run)
            scored = replace(scored, run=replace(scored.run, encoder=info, probe=command))
            if other_encoders:
                with clock.stage("other encoders"):
                    scored = with_other_encoders(scored, read, other_encoders, work, recorder)
        try:
            folder.write(scored, recorder, clock)
        except OutputError as error:
            raise RunNotWrittenError(error, scored.run) from error
    return scored.run


def mix(run: str | PathLike[str], shares: Mapping[str, float], *, budget: float | None = None) -> MixtureScore:
    """Return the score of a mixture of a run's sources. Only the run's saved states are read.

    run    : a run folder of `secid score`.   budget : B; by default the run's budget.
    shares : proportion of each source, >= 0. They must add up to 1 except for rounding, and are divided by their sum.
    Raises SecidError.

    >>> import secid
    >>> mixture = secid.mix("runs/doc", {"bm25": 0.6, "poisoned": 0.4})
    >>> [part.name for part in mixture.parts]
    ['bm25', 'poisoned']

    Source: METHOD 7.
    """
    from secid.analyses.registry import read_run_folder
    from secid.tools.export.mixture import score_of_mixture

    folder, report = read_run_folder(run)
    return score_of_mixture(folder, report, shares, report.budget if budget is None else budget)


def write_mixture(
    run: str | PathLike[str],
    shares: Mapping[str, float],
    path: str | PathLike[str],
    *,
    base: str | None = None,
    schema: Schema | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Blend:
    """Write the rows of one source with negatives drawn from several sources, and PATH.provenance.jsonl.

    run    : a run folder whose input files are unchanged.
    shares : as in `mix`; their order does not matter.
    path   : a new .jsonl, .jsonl.gz or .parquet file.   schema : as in `select`, applied to the base.
    base   : source whose rows are written; by default the highest-ranked source that has a share.
    seed   : seed of the draws; by default the run's seed.
    Raises SecidError. Source: METHOD 7.
    """
    from secid.analyses.registry import read_run_folder
    from secid.tools.export.mixture import write_blend

    folder, report = read_run_folder(run)
    draw_seed = settings_of(report).seed if seed is None else seed
    with work_folder() as work:
        return write_blend(report, folder, shares, base, Path(path), schema, work, progress or Silent(), draw_seed)


def select(
    run: str | PathLike[str],
    path: str | PathLike[str],
    *,
    source: str | None = None,
    drop: str | Sequence[str] | None = None,
    top: int | None = None,
    min_weight: float | None = None,
    max_negatives: int | None = None,
    by: By = "similarity",
    schema: Schema | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Selection:
    """Write a filtered copy of one source of a run. Nothing is encoded or scored.

    run     : a run folder whose input files are unchanged, or a check.json of `secid check`. From a check, only
              findings that need no encoder can be dropped.
    path    : a new .jsonl, .jsonl.gz or .parquet file. PATH.left-out.jsonl lists each omitted negative and the reason.
    source  : name of the source; may be None if the run has only one.
    drop    : names of findings whose negatives are dropped. With a ranking rule the default is every counted defect;
              "none" or () drops nothing.
    top, min_weight, max_negatives, by : ranking rules, see secid.tools.export.left_out.Rule. By default the hardest
              negatives stay, and negatives within 5 % of their positive rank last.
    schema  : st-ntuple, flagembedding, tevatron or nvidia. By default the source's own schema if it is one of these,
              else flagembedding.
    force   : write the copy even if its status is worse than the source's. Otherwise that is an error.
    Raises SecidError.

    >>> import secid
    >>> clean = secid.select("runs/doc", "runs/clean.jsonl", source="poisoned", drop="false_negative")
    >>> clean.left_out, clean.schema
    ({'false_negative': 37}, 'flagembedding')

    Source: METHOD 7, 8, 14.
    """
    from secid.analyses.registry import read_run_folder
    from secid.tools.export.left_out import Request, Rule, defects_of_ranking, findings_to_drop
    from secid.tools.export.select import select as write_copy

    rule = Rule(top, min_weight, max_negatives, by, findings_to_drop(drop))
    origin = Path(run)
    report: Run | Check
    if origin.is_file() and origin.suffix == ".json" and origin.name != "report.json":
        folder, report = origin.parent, read_check(origin)
    else:
        folder, report = read_run_folder(run)
        if drop is None and rule.ranked:
            findings = [item for part in report.sources if source in (None, part.name) for item in part.findings]
            rule = replace(rule, drop=defects_of_ranking(findings))
    with work_folder() as work:
        request = Request(source, rule, Path(path), schema, force)
        return write_copy(report, folder, request, work, progress or Silent())


def flagged(
    run: str | PathLike[str], finding: str, path: str | PathLike[str] | TextIO, *, source: str | None = None
) -> Flagged:
    """Write a run's negatives that have a finding, one JSON line each, with their texts and numbers.

    run     : a run folder whose input files are unchanged.   finding : name of a finding in the catalogue.
    path    : a new .jsonl file, or an open text file.   source : one of the run's sources; by default all.
    A line has source, path, line, ordinal, query, positive, negative, findings, s_query_positive, s_query_negative,
    consistency, locality, coverage and weight. Raises SecidError.

    >>> import secid
    >>> secid.flagged("runs/doc", "false_negative", "runs/rows.jsonl").n_rows
    {'bm25': 0, 'poisoned': 37}

    Source: METHOD 14.
    """
    from secid.analyses.registry import read_run_folder
    from secid.tools.export.select import write_flagged

    (folder, report), out = read_run_folder(run), Path(path) if isinstance(path, str | PathLike) else path
    with work_folder() as work:
        return write_flagged(report, folder, finding, source, out, work)


def check(
    sources: Any,
    *,
    against_eval: str | PathLike[str] | None = None,
    fail_on: Sequence[str] = (),
    progress: Progress | None = None,
    **settings: Unpack[SettingsDict],
) -> Check:
    """Describe sources and their defects, without an encoder and without torch.

    sources      : as for `score`.
    against_eval : evaluation set whose queries and relevant passages must not occur in the sources: a BEIR folder,
                   hf://datasets/OWNER/NAME or mteb:TASK.
    fail_on      : findings as "name" or "name=limit". Check.failed lists the findings above their limit.
    settings     : settings of the files, the tokenizer and the examples; others have no effect.
    Returns the result that `secid check --json` prints. Raises SecidError for a source that cannot be read.

    >>> import secid
    >>> report = secid.check(["fixtures/sources/poisoned.jsonl"], fail_on=["false_negative"])
    >>> report.failed
    ('poisoned: false_negative',)
    """
    from secid.results.check import failures, parse_limits

    limits = parse_limits(fail_on)
    resolved, progress = start_command(None, settings, progress)
    values = resolved.values
    from secid.read import open_sources, sources_and_words
    from secid.read.evaluation import read_evaluation

    files, words = sources_and_words(sources, progress)
    evaluation = None if against_eval is None else read_evaluation(fspath(against_eval), titles=values.titles)
    progress.start("open files", None, "")
    with work_folder() as work, open_sources(files, values) as readers:
        from secid.scoring.check import check_sources, with_commands

        report = check_sources(readers, resolved, work, progress, evaluation)
    return with_commands(replace(report, failed=failures(report, limits)), words, settings)


def audit(
    sources: Any,
    encoder: EncoderLike | None = None,
    *,
    qrels: str | PathLike[str] | None = None,
    split: str | None = None,
    progress: Progress | None = None,
    **settings: Unpack[SettingsDict],
) -> Audit:
    """Count negatives that are labelled relevant, and measure how well π, margins and a guide find them.

    sources, encoder : as for `score`.
    qrels    : file of relevance judgements. The settings corpus and queries resolve its ids. By default the judgements
               of `collection`.
    split    : use only this split of the collection's judgements; by default all.
    settings : settings of the files, the encoder, the guide (which scores every negative) and the sample (positives,
               first_k, max_records, seed); others have no effect.
    Returns the result that `secid audit --json` prints. Raises SecidError. Labels that do not fit the sources are
    reported before the encoder is loaded.

    >>> import secid
    >>> report = secid.audit(["fixtures/sources/poisoned.jsonl"], "minilm", collection="fixtures/collection")
    >>> report.sources[0].n_labelled_relevant
    37

    Source: METHOD 10.
    """
    resolved, progress = start_command(encoder, settings, progress)
    values = resolved.values
    refuse_no_encoder(encoder, values)
    clock = Clock()
    from secid.findings.judgements import label_files
    from secid.read import open_sources, sources_and_words

    files, _ = sources_and_words(sources, progress)
    labels = label_files(None if qrels is None else fspath(qrels), split, values)
    progress.start("open files", None, "")
    with work_folder() as work, open_sources(files, values) as readers:
        refuse_missing(encoder, values, progress)
        from secid.scoring.audit import audit_sources

        return audit_sources(
            readers, labels, split, lambda: load_noted(encoder, values, progress), values, work, clock, progress
        )


def probe(
    sources: Any,
    encoder: EncoderLike | None = None,
    *,
    steps: int = 100,
    seeds: int = 3,
    folds: int = 3,
    lora: bool = False,
    rate: float | Sequence[float] | None = None,
    held_out: int = 500,
    batch: int = 32,
    loss: str = "infonce",
    passages: str = "batch",
    estimate: bool = False,
    run: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    **settings: Unpack[SettingsDict],
) -> Probe:
    """Fine-tune the encoder briefly on each source, and compare nDCG@10 on held-out queries.

    sources, encoder : as for `score`, but the encoder must have weights: no endpoint, vectors file or function.
    steps, batch : number of training steps, and of queries per step. Each query is trained with one of its negatives.
    seeds, folds : number of seeds and folds. Each source is trained once per seed and fold. Intervals need at least two
               seeds.
    lora     : train adapters instead of all weights; needs the extra `probe`.
    rate     : learning rate. Every source is trained at this rate and at four times this rate. A list of rates is used
               unchanged.
    held_out : maximum number of held-out queries to rank.
    loss     : infonce, mw, lsepair, sum_marginal, joint, or gist with a `guide`.
    passages : "own": a query is trained only against its own negatives. "batch": passages of the other rows in the
               batch are negatives too.
    estimate : train nothing. `timing["train"]["expected_seconds"]` estimates the duration.
    run      : a run folder of `score` on the same files. probe.json is written there, and the run's pages get a
               section on the probe.
    settings : temperature, seed, and the settings of the files, the encoder and the guide. Others have no effect.
    Returns the result that `secid probe --json` prints. If nothing is ranked, `not_evaluated["sources"]` says why.
    Raises SecidError; NotEvaluatedError if nothing could be trained. Finished training runs are kept in the cache
    folder, so a repeated call resumes after an interruption.

    >>> import secid
    >>> tried = secid.probe(["fixtures/sources/bm25.jsonl.gz", "fixtures/sources/poisoned.jsonl"], "minilm")
    >>> tried.n_queries, tried.not_evaluated["sources"]
    (66, 'few_queries')

    Source: METHOD 13.
    """
    resolved, progress = start_command(encoder, settings, progress)
    values = resolved.values
    refuse_no_encoder(encoder, values)
    from secid.read import open_sources, sources_and_words
    from secid.tools.probing.options import Options, rates_of, refuse_guide, refuse_untrainable

    options = Options(
        steps=steps, n_seeds=seeds, n_folds=folds, batch=batch, n_held_out=held_out, lora=lora,
        rates=rates_of(rate, lora), loss=loss, passages=passages, estimate=estimate,
    )  # fmt: skip
    options.check()
    refuse_guide(loss, values.guide, named_here=settings.get("guide") is not None)
    refuse_untrainable(values.encoder if encoder is None else encoder)
    from secid.analyses.registry import read_run_folder

    folder, parent_run = (None, None) if run is None else read_run_folder(run)
    if folder is not None:
        check_writable(folder / PROBE_NAME)
    files, _ = sources_and_words(sources, progress)
    progress.start("open files", None, "")
    clock = Clock()
    with work_folder() as work, open_sources(files, values) as readers:
        refuse_missing(encoder, values if loss == "gist" else replace(values, guide=None), progress)
        from secid.tools.probing.run import probe_sources

        result = probe_sources(
            readers, lambda: load_noted(encoder, values, progress), options, values, work, clock, progress, parent_run
        )
    if folder is not None and parent_run is not None and not estimate:
        add_probe(folder, parent_run, result)
    return result


def gate(
    sources: Any,
    against: str | PathLike[str],
    *,
    policy: str | PathLike[str] | Mapping[str, Any] | None = None,
    paired: str | PathLike[str] | None = None,
    encoder: EncoderLike | None = None,
    progress: Progress | None = None,
    **settings: Unpack[SettingsDict],
) -> GateVerdict:
    """Judge new sources of negatives against a baseline. They are scored in the baseline's pool.

    sources  : as for `score`.   against : a file written by `baseline`.
    policy   : a policy file, or the keys of a [gate] table. By default the table in secid.toml, else a policy derived
               from the baseline.
    paired   : the baseline's run folder, to compare query by query.
    encoder  : as for `score`; by default the baseline's encoder.
    settings : as for `score`; by default the baseline's. Values that would make scores incomparable are rejected.
    Returns the verdict that `secid gate --json` prints; its exit_code is the command's exit code.
    Raises SecidError. Errors in the policy or the baseline are reported before torch is loaded.

    >>> import secid
    >>> baseline = secid.baseline("runs/doc", "runs/doc.json")
    >>> secid.gate(["fixtures/sources/random.jsonl"], "runs/doc.json").exit_code
    1
    """
    from secid.tools.gating.baseline import read_baseline
    from secid.tools.gating.policy import parse_policy, read_policy

    if isinstance(policy, Mapping):
        rules, origin = parse_policy(policy, "policy"), "given"
    else:
        rules, origin = read_policy(None if policy is None else Path(policy))
    reference = read_baseline(Path(against))
    resolved, progress = start_command(encoder, settings, progress)
    from secid.encode import ignored
    from secid.pages.encoder_page import fact_lines
    from secid.read import open_sources, resolve_sources
    from secid.tools.gating.baseline import refuse_encoders_of_baseline, settings_for

    for line in fact_lines(ignored(resolved.values, encoder)):
        progress.note(line)
    resolved = settings_for(reference, resolved)
    refuse_encoders_of_baseline(resolved, encoder, str(against))
    files = resolve_sources(sources)
    if not files:
        raise NothingToScoreError("no source given", remedy="secid gate new.jsonl --against secid-baseline.json")
    with open_sources(files, resolved.values) as readers:
        refuse_missing(encoder, resolved.values, progress)  # before torch is imported, which takes seconds
        from secid.tools.gating.judge import judge, prepare

        prepared = prepare(Path(against), rules, origin, None if paired is None else Path(paired))
        return judge(readers, prepared, resolved, progress, encoder)


def baseline(
    run: str | PathLike[str], path: str | PathLike[str] = "secid-baseline.json", *, update: bool = False
) -> Baseline:
    """Write a baseline for `gate`: NAME.json, and NAME.idf.safetensors in the same folder.

    run    : a run folder of `score`.   path : a .json file.
    update : True to replace an existing baseline; False if the file must not exist yet.
    Returns the content of NAME.json. tools.gating.baseline.changes compares two baselines. Raises SecidError.

    >>> import secid
    >>> sorted(secid.baseline("runs/doc", "runs/first.json").sources)
    ['bm25', 'poisoned']
    """
    from secid.tools.gating.baseline import read_baseline

    target = Path(path)
    if target.suffix != ".json":
        raise UsageError("a baseline must be a .json file", where=str(path), remedy=f"use {target.stem}.json")
    if update:
        read_baseline(target)
    elif target.exists():
        raise UsageError("already exists", where=str(path), remedy="replace it with `secid baseline update RUN`")
    from secid.tools.gating.collect import collect_baseline, write_baseline

    return write_baseline(*collect_baseline(Path(run)), target)
