"""Runs in which pages say something else: the logic is tested on them by kinds and numbers, the wording kept once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from secid.results import Ablation, AblationRow, Run, SourceFinding
from tests.unit.pages import samples
from tests.unit.pages.samples import against, compared, golden, with_control

RUN = golden()
NAMES = tuple(source.name for source in RUN.sources)


def without_findings(run, **fields):
    sources = tuple(replace(source, findings=(), skipped={}, **fields) for source in run.sources)
    return replace(run, sources=sources, overlaps=(), ablations=(), not_evaluated={}, warnings=())


CLEAN = without_findings(RUN)


def row(setting, *swapped):
    return AblationRow(setting=setting, scores={}, order=(), stability=0.5, block_stability={}, swapped=swapped)


def ablation(name, *rows):
    return Ablation(name=name, base="base", rows=rows, range_nats={}, conclusion="told")


def finding(name, share, n=90):
    return SourceFinding(
        name=name, n_negatives=n, share=share, standard_error=0.01, interval_95=(0.0, 1.0), examples=()
    )


def varied(*ablations: Ablation) -> Run:
    """A run without findings, in which these settings were tried."""
    return replace(CLEAN, ablations=ablations)


# Ranking: which place the pairs establish


def _pairs(**changes):
    return tuple(replace(pair, **changes) for pair in RUN.comparisons)


def open_against(name: str) -> Run:
    """Every order is established but that of this source with others."""
    pairs = tuple(replace(pair, established=pair.second != name) for pair in RUN.comparisons)
    return replace(RUN, comparisons=pairs)


ONE = replace(RUN, sources=RUN.sources[:1], comparisons=())
RANKINGS: Mapping[str, Run] = {
    "golden": RUN,
    "established": compared(RUN, True),
    "open": compared(RUN, False),
    "open against dense alone": open_against("dense"),
    "open against bm25, beyond 0": open_against("bm25"),
    "open against bm25, around 0": replace(
        RUN,
        comparisons=tuple(
            replace(pair, established=pair.second != "bm25", interval_95=(-0.1, 0.1)) for pair in RUN.comparisons
        ),
    ),
    "equal scores": replace(RUN, comparisons=_pairs(established=False, difference_nats=1e-17)),
    "one source": ONE,
    "one source at B = 100": replace(ONE, budget=100.0),
    "not compared": replace(RUN, comparisons=()),
    "established at B = 100": replace(compared(RUN, True), budget=100.0),
    "open at B = 100": replace(compared(RUN, False), budget=100.0),
    "no controls and no findings": replace(compared(CLEAN, False), controls=()),
    "one source above random passages": with_control(
        replace(CLEAN, sources=CLEAN.sources[:1]), "random", ("random", 0.3)
    ),
    "not compared, one of two above random passages": with_control(
        replace(CLEAN, comparisons=()), "random", ("random", 0.01), ("bm25", 0.3)
    ),
}

# Controls: whom they outscore

RANDOM_CASES = (
    [-0.1] * 5,
    [0.0, -0.1, -0.1, -0.1, -0.1],
    [0.01] * 5,
    [0.3, 0.2, 0.1, 0.1, 0.05],
    [0.3, 0.2, 0.01, -0.1, -0.2],
    [0.3, 0.2, 0.2, 0.2, 0.01],
)


def alone(run: Run, kind: str, *differences: tuple[str, float]) -> Run:
    """The run with the random control and this one."""
    made = with_control(run, kind, *differences)
    return replace(made, controls=tuple(item for item in made.controls if item.kind in ("random", kind)))


def random_passages(*differences: float) -> Run:
    return alone(RUN, "random", *zip(NAMES, differences, strict=True))


BEYOND = random_passages(*[0.3] * 5)


def shuffled(*differences: tuple[str, float]) -> Run:
    """The run with the shuffled controls of these sources alone."""
    control = next(item for item in RUN.controls if item.of is not None)
    made = (replace(control, of=name, against=(against(name, value, 0.02),)) for name, value in differences)
    return replace(RUN, controls=tuple(made))


def few_known_positives(run: Run) -> Run:
    """Its control of known positives has 3 queries and no errors."""
    return replace(
        run,
        controls=tuple(
            replace(item, n_queries=3, against=tuple(replace(one, z=None) for one in item.against))
            if item.kind == "known_positive"
            else item
            for item in run.controls
        ),
    )


ECHO = replace(RUN, controls=(replace(RUN.controls[0], kind="query_echo", of=None),))
MISSING = {"control random": "fewer than two queries", "x": "y"}
POOLS = ("bm25_pool", "dense_pool")
CONTROLS: Mapping[str, Run] = {
    **{f"random passages {place}": random_passages(*differences) for place, differences in enumerate(RANDOM_CASES)},
    "random passages above the one source": alone(ONE, "random", ("random", -0.1)),
    "known positives above bm25": alone(BEYOND, "known_positive", ("random", 0.2), ("bm25", -0.1)),
    "known positives and random passages above": alone(RUN, "known_positive", ("random", 0.2), ("bm25", -0.1)),
    "known positives level with bm25": alone(BEYOND, "known_positive", ("random", 0.2), ("bm25", 0.01)),
    "known positives of too few queries": few_known_positives(
        alone(BEYOND, "known_positive", ("random", 0.2), ("bm25", 0.01))
    ),
    **{
        f"{kind}: {how} bm25": alone(BEYOND, kind, ("random", 0.2), ("bm25", value))
        for kind in POOLS
        for how, value in (("level with", 0.01), ("below", 0.1), ("above", -0.1))
    },
    "no random control": replace(ECHO, not_evaluated={}),
    "no control": replace(RUN, controls=(), not_evaluated=MISSING),
    "random control compared with none": with_control(
        replace(RUN, controls=tuple(item for item in RUN.controls if item.kind == "random")), "random"
    ),
    "shuffled, level with all": shuffled(*((name, 0.01) for name in NAMES)),
    "shuffled, level with bm25": shuffled(("random", 0.3), ("bm25", 0.01)),
    "at B = 1,000": replace(with_control(RUN, "random", *((name, -0.1) for name in NAMES)), budget=1000.0),
}

# Settings: which pairs change places

_KEPT = ablation("temperature", row("0.2"))
_SWAPPING = ablation("tokenizer", row("whitespace", ("random", "dense")), row("trigrams"))
_BLIND, _UNORDERED = (replace(row(name), stability=None) for name in ("own", "0.2"))
_OPEN_DENSE = replace(
    RUN,
    comparisons=tuple(
        replace(pair, established=pair.established and {pair.first, pair.second} != {"random", "dense"})
        for pair in RUN.comparisons
    ),
)
SWAPPED = replace(RUN, ablations=(_KEPT, _SWAPPING, ablation("idf", row("uniform"))))
SWAPPED_OPEN = replace(_OPEN_DENSE, ablations=(_SWAPPING, ablation("idf", _BLIND)))
SHAKY = varied(ablation("temperature", row("0.2", ("random", "bm25")), row("0.05")))
SETTINGS: Mapping[str, Run] = {
    "golden": RUN,
    "steady": replace(RUN, ablations=(_KEPT, ablation("weight", row("fisher")))),
    "one weight": replace(RUN, ablations=(ablation("weight", row("fisher", ("bm25", "dense"))),)),
    "one kind swaps": SWAPPED,
    "an open order swaps": SWAPPED_OPEN,
    "no order at all": replace(
        RUN, ablations=(ablation("temperature", _UNORDERED, row("base")), ablation("weight", _UNORDERED))
    ),
}

# What to watch out for

KNOWN, PARTLY = row("0.1"), replace(row("0.2"), scores={"dense": None})
UNKNOWN = replace(row("9"), stability=None)
SAMPLED = ablation("sample", row("1 %", ("random", "bm25")))


def tried(*rows: AblationRow) -> Run:
    return varied(ablation("temperature", *rows))


ALIKE = {"negative_jaccard_mean": 0.95, "shared_query_fraction": 1.0, "shared_document_fraction": 0.97}
SAME = replace(CLEAN, overlaps=(replace(RUN.overlaps[0], **ALIKE),))
REMEDY = f"use --tokenizer multilingual for {'n' * 200}"
REASON = f"the lexical gate is inactive, {'as it is ' * 20}"
WARNINGS: Mapping[str, Run] = {
    "golden": RUN,
    "of all scores, after what is grave": replace(RUN, warnings=("use --tokenizer multilingual: it cuts words",)),
    "of all scores alone": replace(CLEAN, warnings=("the lexical gate is inactive",)),
    "the leader changes places": SHAKY,
    "the leader changes places twice": tried(
        row("0.2", ("random", "bm25")), row("0.1", ("dense", "random"), ("bm25", "dense"))
    ),
    "the leader changes places, order open": SWAPPED_OPEN,
    "other weights move the leader": varied(
        ablation("weight", *(row(name, ("random", "bm25")) for name in ("residual_only", "gradient_weighted")))
    ),
    "two equal sources": SAME,
    "rows left out": replace(
        CLEAN, sources=(replace(CLEAN.sources[0], n_read=400, skipped={"broken_line": 4}), *CLEAN.sources[1:])
    ),
    "not evaluated": replace(CLEAN, not_evaluated=MISSING),
    "nothing tried": CLEAN,
    "samples tried": varied(SAMPLED),
    "steady but for samples": varied(SAMPLED, ablation("temperature", row("0.2"), row("base"))),
    "steady": tried(KNOWN),
    "steady where every source has a score": tried(KNOWN, PARTLY, UNKNOWN, row("base")),
    "no setting scores every source": tried(PARTLY, UNKNOWN),
    "one source": replace(CLEAN, sources=CLEAN.sources[:1], ablations=(ablation("temperature", _UNORDERED),)),
}


def changed():
    """Every run of this page, and those of other kinds. A budget makes a sentence longer, so one kind alone has it."""
    for said in (RANKINGS, CONTROLS, SETTINGS):
        yield from (run for run in said.values() if run.budget == 1.0)
    yield from (CLEAN, WARNINGS["not evaluated"], replace(CLEAN, ablations=RUN.ablations), samples.bare(RUN))
    yield replace(RUN, budget=1000.0)
    for differences in RANDOM_CASES:
        random = with_control(RUN, "random", *zip(NAMES, differences, strict=True))
        yield random
        for value in (-0.1, 0.01, 0.1):
            yield with_control(random, "known_positive", ("bm25", value), ("dense", 0.3))
