"""Runs to render: the golden run, and hostile, long, empty or large versions of it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from secid.analyses.budgets import Budgets
from secid.analyses.cost import Cost
from secid.analyses.equal_hardness import EqualHardness, EqualMargins
from secid.analyses.guide import GuideResult, GuideSource, MarginCurve, SourceMargins
from secid.analyses.in_batch import BatchSize, InBatch
from secid.analyses.objectives import Narrowing, ObjectiveLens, ObjectiveResult, RecordSize
from secid.analyses.profile import GapToRandom, GateProfile, Mean, Profiles
from secid.analyses.ranking import letter
from secid.analyses.registry import ANALYSES, from_json
from secid.analyses.separation import CorpusSeparation, Separation, SourceSeparation
from secid.analyses.slices import Slice, SliceSource
from secid.records import Fact
from secid.results import Against, Comparison, ControlResult, EarlyPair, EarlyStop, Example, Look, Run, SourceReport

NEGATIVE, NO_ENDS = Mean(value=-0.2, interval_95=(-0.3, -0.1)), Mean(value=0.1, interval_95=None)

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = (
    '<script>document.title="owned"</script>',
    "</script></style></title><img src=x onerror=\"document.title='owned'\">",
    '"><svg onload="document.title=\'owned\'"><iframe src="https://example.org"></iframe>',
    "\x1b[31mred\x1b[0m \x07 \x1b]8;;https://example.org\x07link",
    "a \u202eevil\u202c \u2066isolated\u2069 \u2068first-strong",
    "[click](javascript:alert(1)) ![i](https://example.org/i.png) @octocat #12 GH-34 `code` | cell | $x^2$",
    "https://example.org www.example.org me@example.org 0123456789abcdef0123456789abcdef01234567",
    "{{ 7*7 }} {% raw %} &lt;b&gt; [bold]rich[/bold]",
    "שלום עולם",
)


def reported(version: str = "1.0") -> Run:
    """Return a golden report as a run. It does not rank `random`."""
    return from_json((GOLDEN / f"{version}.json").read_bytes())


def golden() -> Run:
    """Return the run of the golden report with all sources ranked, `random` first."""
    run = reported()
    by_score = sorted(run.sources, key=lambda source: -source.scored.nats)
    return unranked(replace(run, sources=tuple(by_score)))


def renamed(run: Run, names: dict[str, str]) -> Run:
    """Return the run with renamed sources, wherever a name occurs."""
    text = json.dumps(_mapped(json.loads(json.dumps(_document(run))), names))
    return from_json(text)


def _document(run: Run) -> Any:
    from secid.analyses.registry import to_json

    return json.loads(to_json(run))


def _mapped(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {names.get(key, key): _mapped(item, names) for key, item in value.items()}
    return [_mapped(item, names) for item in value] if isinstance(value, list) else value


def hostile(run: Run) -> Run:
    """Return the run with markup in names, passages, paths, reasons and settings, wherever text comes from users."""
    names = {source.name: HOSTILE[place % len(HOSTILE)] + str(place) for place, source in enumerate(run.sources)}
    document = _mapped(_document(run), names)
    for control, kept in zip(document["controls"], run.controls, strict=True):
        control["kind"] = kept.kind
    everything = " ".join(HOSTILE)
    fact = {"kind": "unknown_id", "values": {"of": everything, "id": everything}}
    for place, source in enumerate(document["sources"]):
        source |= {
            "status": "repair",
            "repair": everything,
        }
        source["rows"] |= {
            "skipped": {everything: 12},
            "n_used": source["rows"]["n_read"] - 12,
            "dropped_negatives": {everything: 3},
            "examples": [{"fact": fact, "reason": everything, "path": everything, "line": 1}],
        }
        for file in source["files"]:
            file |= {"path": everything, "mapping": everything, "schema": everything, "container": everything}
        for finding in source["findings"]:
            for example in finding["examples"]:
                texts = {
                    name: HOSTILE[(2 * place + shift) % len(HOSTILE)]
                    for shift, name in enumerate(("query", "positive", "negative"))
                }
                example |= {**texts, "path": everything, "matched_terms": [[everything, 1.0]]}
    examples = [example for finding in document["sources"][0]["findings"] for example in finding["examples"]]
    if examples:
        examples[0]["negative"] = "W" * 1_000_000
    document["encoder"] |= {
        "name": everything,
        "query_prefix": everything,
        "facts": [{"kind": "package", "values": {"package": everything}}],
        "rules": {everything: everything},
    }
    document["settings"]["encoder"] = document["settings"][everything] = {"value": everything, "from": everything}
    document["not_evaluated"] = {everything: everything}
    document["environment"] = {everything: everything}
    document["timing"] = {everything: {everything: everything}}
    for ablation in document["analyses"]["ablations"]:
        ablation["note"] = everything
    return from_json(json.dumps(document))


def replaced(run: Run, **changes: Any) -> Run:
    """Return the run with changed fields, or changed results of analyses by name."""
    names = {analysis.name for analysis in ANALYSES} & changes.keys()
    results = {**run.analyses, **{name: changes.pop(name) for name in names}}
    return replace(run, **changes, analyses=results)


def changed(item: Any, **changes: Any) -> Any:
    """Return a source or control with changed fields, including those of its score and row counts, by name."""
    if isinstance(changes.get("hardness"), float):
        changes["hardness"] = replace(item.hardness, value=changes["hardness"])
    for part in ("score", "rows"):
        whole = getattr(item, part, None)
        own = {name: changes.pop(name) for name in list(changes) if hasattr(whole, name) and not hasattr(item, name)}
        changes |= {part: replace(whole, **own)} if own else {}
    return replace(item, **changes)


def bare(run: Run) -> Run:
    """Return the run with every optional part empty."""
    sources = tuple(
        changed(source, gate_histograms={}, findings=(), finding_overlaps={}, budget_curve=(), top_eigenvalue_shares=())
        for source in run.sources[:1]
    )
    return replace(
        run,
        sources=sources,
        controls=(),
        comparisons=(),
        analyses={},
        early_stop=None,
        settings={},
        timing={},
        environment={},
    )


def large(run: Run, n_sources: int = 6, word: str = "long-name-of-a-source-" * 6) -> Run:
    """Return the run with n long-named sources, three examples of 600 characters per finding, and every part filled."""
    originals = run.sources
    names = [f"{word}{place}" for place in range(n_sources)]
    chosen = [originals[place % len(originals)] for place in range(n_sources)]

    def filled(source: SourceReport) -> SourceReport:
        example = next(finding.examples[0] for finding in source.findings if finding.examples)
        long = replace(example, query="q" * 300, positive="p " * 300, negative="n " * 300)
        items = (replace(item, examples=(long,) * 3 * (item.n_negatives > 0)) for item in source.findings)
        return replace(source, findings=tuple(items))

    sources = tuple(
        changed(filled(source), name=name, rank=place + 1, repair=source.repair and f"secid select RUN --source {name}")
        for place, (name, source) in enumerate(zip(names, chosen, strict=True))
    )
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    comparison, overlap = run.comparisons[0], run.analyses["overlap"][0]
    controls = tuple(
        replace(control, against=tuple(replace(control.against[0], source=name) for name in names))
        for control in run.controls
        if control.of is None
    )
    shuffled = next(control for control in run.controls if control.of is not None)
    kept = {name: run.analyses[name] for name in ("overlap", "budgets", "ablations")}
    made = replaced(
        replace(run, analyses=kept),
        sources=sources,
        controls=controls
        + tuple(replace(shuffled, of=name, against=(replace(shuffled.against[0], source=name),)) for name in names),
        comparisons=tuple(replace(comparison, first=a, second=b) for a, b in pairs),
        overlap=tuple(replace(overlap, first=a, second=b) for a, b in pairs),
        budgets=Budgets(crossings=(), equal_numbers=None),
        ablations=tuple(
            replace(
                item,
                rows=tuple(
                    replace(
                        row,
                        scores=dict(zip(names, [*row.scores.values()] * n_sources, strict=False)),
                        order=tuple(names),
                        swapped=(),
                    )
                    for row in item.rows
                ),
            )
            for item in run.analyses["ablations"]
        ),
    )
    return profiled(made)


def early(run: Run) -> Run:
    """Return the run as if it had stopped early."""
    a, b, c = (source.name for source in run.sources[:3])
    return replace(
        run,
        early_stop=EarlyStop(
            confidence=0.95,
            tie_nats=0.01,
            looks=(Look(n_queries=20, n_texts_encoded=100, alpha=0.01, n_decided=1),),
            pairs=(EarlyPair(first=a, second=b, outcome="ordered", n_queries=20, difference_nats=0.16),),
            undecided=((b, c),),
            n_texts_encoded=100,
            n_texts=557,
        ),
    )


def guided(run: Run, sample: int | None = None, **numbers: Any) -> Run:
    """Return the run with a guide that suspects more in each source than in the last. numbers : of all sources."""
    curves = tuple(
        MarginCurve(kind=kind, values=(0.0, 0.05, 0.1, 0.8), shares=(0.1, 0.2, 0.3, 0.4))
        for kind in ("absolute", "relative", "maximum")
    )
    sources = tuple(
        GuideSource(
            name=source.name,
            n_scored=source.n_triplets if sample is None else sample,
            suspect_share=0.1 * number,
            interval_95=(0.1 * number - 0.05, 0.1 * number + 0.05),
            agreement=0.9,
            rank_correlation=0.8,
            n_random=300,
            random_share=0.02,
            random_interval_95=(0.009, 0.045),
            excess_interval_95=(0.1 * number - 0.07, 0.1 * number),
            without_suspects=source.scored.without_flagged if sample is None else None,
        )
        for number, source in enumerate(run.sources, 1)
    )
    sources = tuple(replace(source, **numbers) for source in sources)
    return replaced(
        run,
        guide=GuideResult(
            encoder=replace(run.encoder, name="guide"),
            min_hardness=0.9,
            random_score=0.1,
            sample=sample,
            sources=sources,
        ),
        margins=tuple(SourceMargins(name=source.name, target=curves, guide=curves) for source in run.sources),
    )


def sliced(run: Run) -> Run:
    """Return the run with two slices, one without the first source and with a hostile value."""
    sources = tuple(
        SliceSource(
            name=source.name,
            rank=source.scored.rank,
            tie="A",
            n_queries=9,
            n_triplets=45,
            score_nats=source.scored.nats,
            interval_95=source.scored.interval_95,
            trace=source.scored.trace,
            consistency_mean=0.9,
            locality_mean=0.5,
            coverage_mean=0.1,
            finding_shares={"inversion": 0.25, "truncated": 0.0},
        )
        for source in run.sources
    )
    return replaced(
        run,
        slices=(
            Slice(field="language", value="", sources=sources, stability=1.0),
            Slice(field="language", value=HOSTILE[1], sources=sources[1:], stability=None),
        ),
    )


def lensed(run: Run) -> Run:
    """Return the run with objectives on its first two sources; the first has several positives per record."""
    a, b = (source.name for source in run.sources[:2])
    several = ("single_lh", "joint_lh", "sum_marg_lh", "lse_pair", "lse_pair_max_n", "mw")
    objectives = [
        ObjectiveResult(
            source=name,
            objective=objective,
            loss_nats=0.5 + place,
            gradient_shares={"inversion": 0.1 * (place + 1), "copy": 0.0, "margin": 0.9, "valid": None},
            effective_negatives=120.4,
            strongest_positive=0.7 if name == a and place else None,
            weakest_positive=0.2 if name == a and place else None,
        )
        for name in (a, b)
        for place, objective in enumerate(several)
        if name == a or objective not in several[1:4]
    ]
    sizes = [
        RecordSize(
            source=a,
            n_positives=n_positives,
            n_negatives=n_negatives,
            n_queries=60,
            n_triplets=120,
            eci_nats=0.25,
            interval_95=(0.2, 0.3),
            inversion_share=0.125,
            margin_share=0.25,
            gradient_on_inversions=0.5,
            effective_negatives=None,
        )
        for n_positives, n_negatives in ((None, 1), (None, 2), (1, None), (3, None))
    ]
    narrowing = (
        Narrowing(source=a, one_more_negative=0.05, one_more_positive=0.1),
        Narrowing(source=b, one_more_negative=0.02, one_more_positive=None),
    )
    lens = ObjectiveLens(
        margin=0.05, most_queries=250, objectives=tuple(objectives), sizes=tuple(sizes), narrowing=narrowing
    )
    return replaced(run, objectives=lens)


def against(source: str, difference: float, half: float) -> Against:
    """Return a source's difference from a control."""
    return Against(
        source=source,
        difference_nats=difference,
        interval_95=(difference - half, difference + half),
        z=1.96 * difference / half,
    )


def with_control(run: Run, kind: str, *differences: tuple[str, float]) -> Run:
    """Return the run with only one control, of this kind. The half-width of all intervals is 0.02."""
    control = next(item for item in run.controls if item.kind == "random")
    kept = tuple(item for item in run.controls if item.kind != kind)
    made: ControlResult = replace(
        control, kind=kind, against=tuple(against(name, value, 0.02) for name, value in differences)
    )
    return replace(run, controls=(*kept, made))


def compared(run: Run, established: bool) -> Run:
    """Return the run with all pairs established, or none, and letters that match."""
    comparisons: tuple[Comparison, ...] = tuple(
        replace(pair, established=established, p_holm=0.001 if established else 0.4, queries_needed_80=1234)
        for pair in run.comparisons
    )
    sources = tuple(
        changed(source, tie=letter(place) if established else "A") for place, source in enumerate(run.sources)
    )
    return replace(run, comparisons=comparisons, sources=sources)


EXAMPLE = Example(reason="broken_line", path="a.jsonl", line=3, fact=Fact("syntax", {"parser": "cut"}))


COMMON = {
    "n_queries": 40,
    "n_positives": 40,
    "n_negatives": 400,
    "auc": 0.871,
    "auc_interval_95": (0.85, 0.892),
    "within_auc": 0.954,
    "within_auc_interval_95": (0.94, 0.968),
    "gap": 0.083,
    "gap_interval_95": (0.07, 0.096),
    "aoc": 0.13,
    "mw_loss": 0.412,
    "mw_bound": 1e-10,
}
SEPARATION = SourceSeparation(
    source="dense",
    contrastive_loss=1.5,
    low=-0.2,
    high=1.0,
    positive_histogram=(0, 0, 10, 30),
    negative_histogram=(100, 200, 90, 10),
    **COMMON,
)
SIZES = tuple(
    BatchSize(batch_size=size, false_negatives_mean=size / 1e5, affected_share=size / 1e5) for size in (32, 64, 128)
)
BATCHES = InBatch(
    source="dense",
    n_rows=200,
    sizes=SIZES,
    largest_batch=140,
    relative_margin=0.05,
    flagged_share=0.0123,
    flagged_interval_95=(0.009, 0.016),
    n_compared=48_384,
    n_batches=3,
    batch_rows=64,
)
COST = Cost(
    scoring_seconds=12.0, tokens_per_second=1e4, epoch_tokens={"dense": 400_000}, epoch_seconds=120.0, epoch_share=0.1
)


def separated(run: Run) -> Run:
    """Return the run with separation, batches and cost, each with a source that has a hostile name."""
    return replaced(
        run,
        separation=Separation(
            sources=(SEPARATION, replace(SEPARATION, source=HOSTILE[0], gap_interval_95=None)),
            corpus=CorpusSeparation(n_passages=5183, n_per_query=500, **COMMON),
        ),
        in_batch=(
            BATCHES,
            replace(BATCHES, source=HOSTILE[0], largest_batch=200, flagged_share=None, flagged_interval_95=None),
            replace(BATCHES, source="bm25", largest_batch=None, sizes=SIZES[:1]),
        ),
        cost=COST,
    )


def profiled(run: Run) -> Run:
    """Return the run with gate profiles and pairs at equal hardness: last source not ranked, one pair not compared."""
    half = Mean(value=0.5, interval_95=(0.4, 0.6))
    gap = GapToRandom(n_queries=40, weight=NEGATIVE, consistency=NEGATIVE, locality=half, residual=NO_ENDS)
    of = {"n_queries": 40, "consistency": half, "locality": half, "residual": half, "weight": half}
    names = [source.name for source in run.sources]
    pairs = [
        EqualMargins(
            first=first,
            second=second,
            n_queries=40,
            overlap=0.5,
            difference=0.1,
            interval_95=(0.05, 0.15),
            p_holm=0.01,
            established=True,
        )
        for first, second in pairwise(names)
    ]
    apart = {"overlap": 0.1, "difference": None, "interval_95": None, "p_holm": None, "established": False}
    pairs[-1:] = [replace(pair, **apart) for pair in pairs[-1:]]
    run = replaced(
        run,
        profile=Profiles(
            sources=tuple(GateProfile(source=name, gap=gap, **of) for name in names),
            controls={kind: GateProfile(source=kind, **of) for kind in ("random", "known_positive")},
        ),
        equal_hardness=EqualHardness(pairs=tuple(pairs), unranked={}),
    )
    return unranked(run, *names[1:][-1:])


def unranked(run: Run, *names: str, reason: str = "too_easy") -> Run:
    """Return the run with only these sources not ranked."""
    equal = replace(run.analyses["equal_hardness"], unranked=dict.fromkeys(names, reason))
    by_name = {source.name: source for source in run.sources}
    ranked = equal.ranked(by_name)
    sources = [changed(by_name[name], rank=place, tie="A") for place, name in enumerate(ranked, 1)]
    sources += [changed(by_name[name], rank=None, tie=None, probability_first=None) for name in names]
    return replaced(replace(run, sources=tuple(sources)), equal_hardness=equal)
