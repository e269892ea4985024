"""`secid gate` and `secid baseline`: compare new sources with a committed baseline."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secid.cli.command import (
    ENCODING_SETTINGS,
    GUIDE_SETTINGS,
    READING_SETTINGS,
    SCORING_SETTINGS,
    Json,
    Quiet,
    check_outputs,
    files_read,
    flag,
    print_lines,
    print_result,
    print_verdict,
    takes_settings,
    write_results,
)

if TYPE_CHECKING:
    from secid.results.gate import GateVerdict

# `secid gate`.


class Annotations(StrEnum):
    """Services whose log annotations are supported."""

    github = "github"


judging = partial(flag, group="Gate")


@takes_settings("encoder", *READING_SETTINGS, *ENCODING_SETTINGS, *GUIDE_SETTINGS, *SCORING_SETTINGS)
def gate(
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help="Files, globs, folders, or name=path.", show_default=False),
    ] = None,
    against: Annotated[
        Path | None, judging("--against", metavar="FILE", text="Baseline that `secid baseline` wrote.")
    ] = None,
    policy: Annotated[
        Path | None, judging("--policy", metavar="FILE", text="Policy file [default: the [gate] table of secid.toml].")
    ] = None,
    paired: Annotated[
        Path | None, judging("--paired", metavar="RUN", text="Run folder of the baseline, to compare by query.")
    ] = None,
    init: Annotated[bool, judging("--init", text="Write a commented policy for this baseline.")] = False,
    exit_zero: Annotated[bool, judging("--exit-zero", text="Exit 0 whatever the verdict, for a trial period.")] = False,
    out: Annotated[
        list[Path] | None,
        flag(
            "-o",
            "--out",
            metavar="FILE",
            text="Also write the verdict to this file: .html, .json, .md or .xml (JUnit).",
        ),
    ] = None,
    json: Json = False,
    annotations: Annotated[
        Annotations | None, flag("--annotations", text="Also print annotations for a CI service.")
    ] = None,
    quiet: Quiet = False,
    **settings: Any,
) -> int:
    """Check new sources of negatives against a baseline.

    Exit codes: 0 pass, 1 fail, 2 wrong usage, 3 undecided.

    By default the baseline's settings are used. If $GITHUB_STEP_SUMMARY is set, the verdict is appended to that file.

    Example: secid gate new.jsonl --against secid-baseline.json
    """
    from secid.errors import UsageError

    if against is None:
        raise UsageError(
            "no baseline named",
            remedy="use --against FILE; `secid score … --run RUN` and `secid baseline RUN` write secid-baseline.json",
        )
    if init:
        return _init(against, policy or Path("secid.toml"), sources)
    if not sources:
        raise UsageError("no source named", remedy="run secid gate new.jsonl --against secid-baseline.json")
    from secid.tools.gating.policy import read_policy

    read_policy(policy)  # reports an invalid policy before anything else is loaded
    if out:
        from secid.pages.gate_ci import GATE_FORMATS
        from secid.tools.gating.baseline import table_path

        inputs = filter(None, (against, table_path(against), policy, paired))
        check_outputs(out, GATE_FORMATS, chain(inputs, files_read(sources, settings)))
    from secid.api import gate as judge
    from secid.cli.console import ConsoleProgress

    with ConsoleProgress(quiet) as progress:
        verdict = judge(sources, against, policy=policy, paired=paired, progress=progress, **settings)
    verdict = replace(verdict, exit_zero=exit_zero)
    _show(verdict, json, out or [], annotations, quiet)
    print_verdict(verdict, quiet)
    return verdict.exit_code


def _init(against: Path, path: Path, sources: list[str] | None) -> int:
    from secid.errors import UsageError
    from secid.tools.gating.baseline import read_baseline
    from secid.tools.gating.limits import write_policy

    if sources:
        raise UsageError("--init takes no source", remedy="run secid gate --init --against secid-baseline.json")
    write_policy(read_baseline(against), against.name, path)
    print_lines(f"wrote the policy to {path}")
    return 0


def _show(verdict: GateVerdict, json: bool, out: list[Path], annotations: Annotations | None, quiet: bool) -> None:
    """Write and print the requested pages. With JSON on stdout, annotations go to stderr.

    If the reader of stdout stops early, as `head` does, the verdict is the same.
    """
    from secid.pages.gate_ci import GATE_FORMATS, append_step_summary, github_annotations
    from secid.pages.gate_page import gate_page
    from secid.pages.screen import screen_of

    write_results(out, GATE_FORMATS, verdict, quiet)
    with suppress(BrokenPipeError):
        print_result(verdict, json, lambda judged: screen_of(gate_page(judged)))
        if annotations is Annotations.github:
            stream = sys.stderr if json else sys.stdout
            stream.write("".join(f"{line}\n" for line in github_annotations(verdict)))
    append_step_summary(verdict)  # last, so that the verdict is shown even if this fails


# `secid baseline`.

UPDATE_WORD = "update"


def baseline(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[update] RUN",
            help="Run folder of `secid score`. Put the word `update` before it to update an existing baseline.",
        ),
    ],
    out: Annotated[
        Path | None, flag("-o", "--out", metavar="FILE", text="Baseline file to write [default: secid-baseline.json].")
    ] = None,
    quiet: Annotated[bool, flag("--quiet", "-q", text="Print nothing.")] = False,
) -> None:
    """Write or update the baseline that `secid gate` compares with.

    Commit both files that it writes: NAME.json, which you can review, and NAME.idf.safetensors. An update prints the
    changes. For a run folder that is named update, write ./update.

    Example: secid baseline secid-runs/today -o secid-baseline.json
    """
    from secid.errors import UsageError

    is_update = words[0] == UPDATE_WORD
    folders = words[1:] if is_update else words
    if len(folders) != 1:
        raise UsageError(
            f"{'baseline update' if is_update else 'baseline'} takes one run folder, got {len(folders)}",
            remedy="run secid baseline RUN, or secid baseline update RUN; write ./update for a folder named update",
        )
    from secid.api import baseline as write
    from secid.tools.gating.baseline import DEFAULT_NAME, changes, read_baseline

    path = out or Path(DEFAULT_NAME)
    before = read_baseline(path) if is_update else None
    after = write(folders[0], path, update=is_update)
    if quiet:
        return
    from secid.pages.text import plural
    from secid.tools.gating.limits import above_advice, above_sentence

    if before is None:
        print_lines(f"{path}: {plural(len(after.sources), 'source')}: {', '.join(after.sources)}")
    else:
        lines = changes(before, after)
        print_lines(f"{path}: {plural(len(lines), 'change')}" if lines else f"{path}: nothing changed")
        print_lines(*(f"  {line}" for line in lines))
    for name, above in above_advice(after).items():
        print_lines(above_sentence(name, above))
