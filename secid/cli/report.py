"""`secid report` and `secid compare`: show finished runs, and compare them with training results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from secid.cli.command import Json, Legend, check_outputs, flag, print_json, print_json_text, print_screen, print_stderr
from secid.errors import UsageError
from secid.results import Run
from secid.results.commands import with_run_folder

# `secid report`.


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or their report.json files.", metavar="RUN", show_default=False)
    ],
    out: Annotated[
        list[Path] | None,
        flag(
            "-o",
            "--out",
            text="File to write: .html, .md, .json, or metrics.json for only the numbers.",
            metavar="FILE",
        ),
    ] = None,
    json: Json = False,
    legend: Legend = False,
) -> None:
    """Render a run's pages again, or compare several runs.

    It needs neither encoder nor data.

    Example: secid report secid-runs/monday secid-runs/friday -o changes.html -o changes.md
    """
    from secid.analyses.registry import read_run
    from secid.files import write_whole
    from secid.pages.comparison import COMPARISON_FORMATS, compare, labels, page_of_comparison
    from secid.pages.formats import METRICS_FORMAT, format_of, run_formats
    from secid.pages.screen import screen_of
    from secid.pages.sections import run_screen
    from secid.results.document import read_probe

    files = out or []
    _refuse_pages(runs)
    folder = runs[0] if len(runs) == 1 and runs[0].is_dir() else None
    probe = None if folder is None else read_probe(folder)
    of_run = {**run_formats(probe), **METRICS_FORMAT}
    inputs = (path / "report.json" if path.is_dir() else path for path in runs)
    check_outputs(files, of_run if len(runs) == 1 else COMPARISON_FORMATS, inputs)
    named = [(label, _with_typed_folder(read_run(path), path)) for label, path in zip(labels(runs), runs, strict=True)]
    run = named[0][1]
    comparison = compare(named) if len(named) > 1 else None

    def rendered(name: str) -> str:
        return of_run[name](run) if comparison is None else COMPARISON_FORMATS[name](comparison)

    for path in files:
        write_whole(path, rendered(format_of(path)))
        print_stderr(f"wrote {path}: {path.stat().st_size:,} bytes")
    if json:
        print_json_text(rendered(".json"))
    elif files:
        return
    elif comparison is None:
        print_screen(run_screen(run, legend=legend, probe=probe))
    else:
        print_screen(screen_of(page_of_comparison(comparison)))


def _with_typed_folder(run: Run, path: Path) -> Run:
    """Return the run with repair commands that name its folder as typed; without a run folder, return it unchanged."""
    folder = path if path.is_dir() else path.parent
    if not (folder / "negatives.parquet").exists():
        return run
    name = str(folder)
    sources = tuple(
        replace(source, repair=None if source.repair is None else with_run_folder(source.repair, name))
        for source in run.sources
    )
    return replace(run, folder=name, sources=sources)


def _refuse_pages(runs: Sequence[Path]) -> None:
    """Raise UsageError for a page or a missing report among the runs. It is probably meant as an output."""
    for path in runs:
        if (path.suffix in (".html", ".md") and not path.is_dir()) or (path.suffix == ".json" and not path.exists()):
            raise UsageError("not a run", where=str(path), remedy=f"to write this file, use -o {path}")


# `secid compare`.


def compare(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run folder of `secid score`, or its report.json.", show_default=False)
    ],
    against: Annotated[
        Path,
        flag(
            "--against",
            metavar="FILE",
            text="CSV file with a column source and a column for each metric, split and run. A column COLUMN_se has "
            "the standard errors of COLUMN. Or the probe.json of `secid probe`.",
        ),
    ],
    json: Json = False,
    legend: Annotated[bool, flag("--legend", text="Also print every comparison, and what the numbers mean.")] = False,
) -> None:
    """Compare a run's scores with your own training results.

    Does a score order the sources as training did? The output has the comparisons that differ significantly from
    chance. --json has all of them, with Kendall's tau, Spearman's rho, pairs in order and top-1 regret. The 95 %
    intervals include the standard errors of the metric (COLUMN_se) and of the score that the run ranks by.

    Results of a single split and a single training run prove nothing. Nor do results on a split whose test queries
    share relevant passages with training queries. secid check --against-eval counts these passages.

    Example: secid compare secid-runs/mine --against results.csv
    """
    from dataclasses import asdict

    from secid.analyses.agreement import agree, outcomes_of, unmatched_names
    from secid.analyses.registry import read_run
    from secid.pages.evidence import agreement_screen, conclusion

    scored, outcomes = read_run(run), outcomes_of(against)
    agreements = agree(scored, outcomes)
    for note in unmatched_names(scored, outcomes):
        print_stderr(f"{against}: {note}")
    if json:
        print_json([asdict(item) for item in agreements])
        print_stderr(conclusion(agreements))
    else:
        print_screen(agreement_screen(agreements, legend))
