"""Runs for which pages differ: tests check kinds and numbers on them, snapshots check the wording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from secid.analyses.ablations import Ablation, AblationRow
from secid.analyses.budgets import Budgets
from secid.results import Run, RunWarning, SourceFinding
from secid.results.catalogue import FINDINGS
from tests.unit.pages import samples
from tests.unit.pages.samples import against, compared, golden, with_control

RUN = golden()
WARNINGS = (
    RunWarning(kind="noisy_encoder", values={"distance": 0.02, "limit": 0.001}),
    *(
        RunWarning(kind="few_queries", source=name, values={"n_queries": n})
        for name, n in (("b", 1), ("c", 4), ("d", 2))
    ),
)
NAMES = tuple(source.name for source in RUN.sources)


def finding(name: str, share: float, n: int = 90) -> SourceFinding:
    return SourceFinding(
        name=name, n_negatives=n, share=share, standard_error=0.01, interval_95=(0.0, 1.0), examples=()
    )


ABSENT = tuple(finding(name, 0.0, 0) for name in FINDINGS)
"""Every finding, evaluated and without negatives."""


def clean(run: Run) -> Run:
    """Return the run with sources without findings, overlaps and ablations."""
    sources = tuple(
        samples.changed(
            item, findings=ABSENT, skipped={}, status="no_defects", n_flagged=0, flagged_share=0.0, repair=None
        )
        for item in run.sources
    )
    return samples.replaced(run, sources=sources, overlap=(), ablations=(), not_evaluated={}, warnings=())


CLEAN = clean(RUN)
ONE = samples.replaced(
    RUN,
    sources=(samples.changed(RUN.sources[1], tie=None),),
    comparisons=(),
    budgets=Budgets(crossings=(), equal_numbers=None),
)


def with_status(*statuses: str) -> Run:
    """Return a run whose sources have these statuses. Those to repair or not to use only have false negatives."""
    defect = tuple(finding(item.name, 0.2 if item.name == "false_negative" else 0.0, 66) for item in ABSENT)
    sources = tuple(
        replace(
            item,
            status=status,
            findings=ABSENT if status == "no_defects" else defect,
            repair=f"secid select RUN --source {item.name}" if status == "repair" else None,
        )
        for item, status in zip(CLEAN.sources, statuses, strict=False)
    )
    return replace(CLEAN, sources=sources, controls=(), comparisons=())


def random_passages(run: Run, *differences: float) -> Run:
    """Return the run with a random control from which its sources have these differences."""
    names = [source.name for source in run.sources]
    return with_control(replace(run, controls=RUN.controls[:1]), "random", *zip(names, differences, strict=True))


def without_defects_evaluated(run: Run) -> Run:
    """Return the run with mojibake not evaluated for one source."""
    rest = tuple(item for item in ABSENT if item.name != "mojibake")
    return replace(run, sources=(replace(run.sources[0], findings=rest), *run.sources[1:]))


BEYOND = random_passages(CLEAN, *[0.3] * 5)
"""Every source scores above random passages."""
VERDICTS: Mapping[str, Run] = {
    "golden": RUN,
    "all without defects, all tied": compared(BEYOND, False),
    "all without defects, the first significant": compared(BEYOND, True),
    "one of each status": with_status("no_defects", "repair", "unusable"),
    "none without defects": with_status("repair", "unusable"),
    "one source": ONE,
    "one source to repair": replace(ONE, sources=with_status("no_defects", "repair").sources[1:2]),
    "one source not to use": replace(ONE, sources=with_status("no_defects", "unusable").sources[1:2]),
    "level with random passages": random_passages(CLEAN, *[0.01] * 5),
    "random passages above one": random_passages(CLEAN, 0.3, 0.2, 0.1, 0.1, -0.1),
    "random passages above all": random_passages(CLEAN, *[-0.1] * 5),
    "no control": replace(CLEAN, controls=()),
    "not compared": replace(BEYOND, comparisons=()),
    "at B = 100": replace(compared(BEYOND, False), budget=100.0),
    "a defect not evaluated": without_defects_evaluated(BEYOND),
    "warnings": replace(BEYOND, warnings=WARNINGS),
}


def shuffled(*differences: tuple[str, float]) -> Run:
    """Return the run with shuffled controls of only these sources."""
    control = next(item for item in RUN.controls if item.of is not None)
    controls = (replace(control, of=name, against=(against(name, value, 0.02),)) for name, value in differences)
    return replace(RUN, controls=tuple(controls))


CONTROLS: Mapping[str, Run] = {
    "golden": RUN,
    "above all": random_passages(RUN, *[-0.1] * 5),
    "below all": random_passages(RUN, *[0.1] * 5),
    "below, level and above": random_passages(RUN, 0.3, 0.2, 0.01, -0.1, -0.2),
    "one source": random_passages(ONE, 0.3),
    "shuffled, level with all": shuffled(*((name, 0.01) for name in NAMES)),
    "shuffled, level with one": shuffled(("random", 0.3), ("bm25", 0.01)),
    "none": replace(RUN, controls=()),
    "at B = 100": replace(RUN, budget=100.0),
}


def row(setting: str, *swapped: tuple[str, str]) -> AblationRow:
    return AblationRow(setting=setting, scores={}, order=(), stability=0.5, block_stability={}, swapped=swapped)


def ablation(name: str, *rows: AblationRow) -> Ablation:
    return Ablation(name=name, base="base", rows=rows)


def varied(*ablations: Ablation) -> Run:
    """Return a run without findings, with these ablations."""
    return samples.replaced(CLEAN, ablations=ablations)


SETTINGS: Mapping[str, Run] = {
    "golden": RUN,
    "steady": varied(ablation("temperature", row("0.2")), ablation("weight", row("fisher"))),
    "one swaps others": varied(ablation("tokenizer", row("whitespace", ("bm25", "dense")), row("trigrams"))),
    "the leader swaps": varied(ablation("temperature", row("0.2", ("random", "bm25")), row("0.05"))),
    "samples alone": varied(ablation("sample", row("1 %", ("random", "bm25")))),
    "nothing tried": CLEAN,
}
