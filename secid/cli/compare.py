"""`secid compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secid.cli.options import Json, flag


def compare(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Run folder of `secid score`, or its report.json.", show_default=False)
    ],
    against: Annotated[
        Path,
        flag(
            "--against",
            of="FILE",
            text="CSV file with a column source, and a column for each metric, split and run (its standard error, if "
            "known, in COLUMN_se); or the probe.json of `secid probe`.",
        ),
    ],
    json: Json = False,
    legend: Annotated[bool, flag("--legend", text="Also print every comparison, and what the numbers mean.")] = False,
) -> None:
    """Compare a run's scores with your own training results.

    Does a score order the sources as training did? Prints the comparisons that differ significantly from chance;
    --json has all of them, with Kendall's tau, Spearman's rho, pairs in order and top-1 regret. A 95 % interval takes
    in the standard errors of the metric (COLUMN_se) and those of the score that the run ranks by.

    Results of a single split and training run prove nothing. Nor do results on a split whose test queries share
    relevant passages with training queries: secid check --against-eval counts these passages.

    Example: secid compare secid-runs/mine --against results.csv
    """
    from dataclasses import asdict

    from secid.analyses.agreement import agree, unmatched_names
    from secid.analyses.downstream import outcomes_of
    from secid.analyses.report import read_run
    from secid.cli.console import stdout
    from secid.cli.lines import complain
    from secid.cli.outputs import print_json
    from secid.pages.agreement import conclusion, print_agreement

    scored, outcomes = read_run(run), outcomes_of(against)
    agreements = agree(scored, outcomes)
    for note in unmatched_names(scored, outcomes):
        complain(f"{against}: {note}")
    if json:
        print_json([asdict(item) for item in agreements])
        complain(conclusion(agreements))
        return
    print_agreement(stdout(), agreements, legend)
