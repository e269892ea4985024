"""`secid gate`."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secid.cli.options import ENCODING, READING, SCORING, Quiet, takes_settings

if TYPE_CHECKING:
    from secid.results.gate import GateVerdict


FORMATS = (".html", ".json", ".md", ".xml")


class Annotations(StrEnum):
    """Services whose log annotations are supported."""

    github = "github"


@takes_settings("encoder", *READING, *ENCODING, *SCORING)
def gate(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Files, globs, folders of shards, or name=path.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Baseline written by `secid baseline`.",
            rich_help_panel="Gate",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="Policy file [default: the [gate] table of secid.toml].",
            rich_help_panel="Gate",
        ),
    ] = None,
    paired: Annotated[
        Path | None,
        typer.Option(
            "--paired",
            metavar="RUN",
            help="Run folder of the baseline, to compare query by query.",
            rich_help_panel="Gate",
        ),
    ] = None,
    init: Annotated[
        bool,
        typer.Option("--init", help="Write a commented policy derived from the baseline.", rich_help_panel="Gate"),
    ] = False,
    exit_zero: Annotated[
        bool,
        typer.Option("--exit-zero", help="Exit 0 whatever the verdict, for a trial period.", rich_help_panel="Gate"),
    ] = False,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Also write the verdict here: .html, .json, .md or .xml (JUnit)."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    annotations: Annotated[
        Annotations | None,
        typer.Option("--annotations", help="Also print annotations for a CI service."),
    ] = None,
    quiet: Quiet = False,
    **settings: Any,
) -> int:
    """Check new sources of negatives against a baseline.

    Exit codes: 0 pass, 1 fail, 2 usage error, 3 undecided.

    Settings not given are the baseline's. A step summary is appended to $GITHUB_STEP_SUMMARY if that is set.

    Example: secid gate new.jsonl --against secid-baseline.json
    """
    from secid.errors import UsageError

    if against is None:
        raise UsageError(
            "no baseline given", remedy="use --against secid-baseline.json; `secid baseline RUN` writes it"
        )
    if init:
        return _init(against, policy or Path("secid.toml"), sources)
    if not sources:
        raise UsageError("no source given", remedy="secid gate new.jsonl --against secid-baseline.json")
    from secid.gating.policy import read_policy

    read_policy(policy)  # an invalid one is reported before anything else is loaded
    if out:
        _check_outputs(out)
        _refuse_inputs(out, sources, settings, against, policy, paired)
    from secid.api import gate as judge
    from secid.cli.console import ConsoleProgress

    with ConsoleProgress(quiet) as progress:
        verdict = judge(sources, against, policy=policy, paired=paired, progress=progress, **settings)
    verdict = replace(verdict, exit_zero=exit_zero)
    _show(verdict, json, out or [], annotations)
    return verdict.exit_code


def _init(against: Path, path: Path, sources: list[str] | None) -> int:
    from secid.errors import UsageError
    from secid.gating.baseline import read_baseline
    from secid.gating.init import write_policy

    if sources:
        raise UsageError("--init takes no source", remedy="secid gate --init --against secid-baseline.json")
    write_policy(read_baseline(against), against.name, path)
    typer.echo(f"policy written to {path}")
    return 0


def _check_outputs(paths: list[Path]) -> None:
    from secid.errors import UsageError
    from secid.files import check_writable

    for path in paths:
        if path.suffix not in FORMATS:
            raise UsageError(
                f"unknown verdict format {path.suffix!r}", where=str(path), remedy="use .html, .json, .md or .xml"
            )
        check_writable(path)


def _refuse_inputs(
    out: list[Path],
    sources: list[str],
    settings: dict[str, Any],
    against: Path,
    policy: Path | None,
    paired: Path | None,
) -> None:
    from secid.cli.outputs import refuse_inputs
    from secid.gating.baseline import table_path
    from secid.pages.pages import check_not_read

    check_not_read(out, [against, table_path(against), *(path for path in (policy, paired) if path is not None)])
    refuse_inputs(out, sources, settings)


def _show(verdict: GateVerdict, json: bool, out: list[Path], annotations: Annotations | None) -> None:
    """Writes and prints the requested pages. Annotations stay out of the JSON on stdout.

    A reader of stdout may stop early, as `head` does, without changing the verdict.
    """
    from secid.cli.console import stdout
    from secid.files import write_whole
    from secid.pages.annotations import append_step_summary, github_annotations
    from secid.pages.junit import to_junit
    from secid.pages.verdict_pages import print_verdict, verdict_html, verdict_json, verdict_markdown

    pages = {".html": verdict_html, ".json": verdict_json, ".md": verdict_markdown, ".xml": to_junit}
    for path in out:
        write_whole(path, pages[path.suffix](verdict))
    with suppress(BrokenPipeError):
        if json:
            sys.stdout.write(verdict_json(verdict))
        else:
            print_verdict(stdout(), verdict)
        if annotations is Annotations.github:
            stream = sys.stderr if json else sys.stdout
            stream.write("".join(f"{line}\n" for line in github_annotations(verdict)))
    append_step_summary(verdict)  # last, so that the verdict is shown even if this fails
