"""Show the origin of a run: its files and rows, its encoder and settings, and the machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secid.pages.encoder_page import fact_lines
from secid.pages.glossary import (
    DEFAULTS_CAPTION,
    merged_sentence,
    missing_lines,
    reason_list,
    reason_words,
    recipe_line,
    terms,
)
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.text import count, plain, seconds, short
from secid.records import SKIP_REASONS, fault_text
from secid.results import Run
from secid.settings import value_text

PATH_LIMIT, VALUE_LIMIT, DETAIL_LIMIT = 120, 200, 160


def read_section(run: Run) -> Section:
    """Show the rows of each source: read, used, and left out by reason."""
    rows = tuple(
        (
            plain(source.name),
            plain(source.schema, 60),
            count(source.rows.n_read),
            count(source.rows.n_used),
            count(source.rows.n_records),
            count(source.n_queries),
            count(source.n_triplets),
            reason_list({**source.rows.skipped, **source.rows.dropped_negatives}) or "nothing",
        )
        for source in run.sources
    )
    columns = (
        foreign("source"),
        foreign("schema"),
        *map(number, ("rows read", "rows used", "records", "queries", "negatives")),
        text("left out"),
    )
    reasons = dict.fromkeys(
        reason for source in run.sources for reason in source.rows.skipped if reason in SKIP_REASONS
    )
    return Section(
        anchor="read",
        title="What was read",
        bullets=(
            *(f"{reason_words(reason)}: {SKIP_REASONS[reason].text}" for reason in reasons),
            *missing_lines(run),
        ),
        tables=(
            Table(caption="Rows and negatives by source", columns=columns, rows=rows),
            _left_out(run),
            _files(run),
        ),
        terms=terms("rows, records", "queries", "negatives"),
    )


def _left_out(run: Run) -> Table:
    rows = tuple(
        (
            plain(source.name),
            reason_words(item.reason),
            plain(f"{short(item.path, PATH_LIMIT)}:{item.line}"),
            plain(fault_text(item.fact), DETAIL_LIMIT),
        )
        for source in run.sources
        for item in source.rows.examples
    )
    columns = (foreign("source"), text("reason"), foreign("where"), foreign("what"))
    return Table(caption="Examples of what was left out", columns=columns, rows=rows)


def _files(run: Run) -> Table:
    rows = tuple(
        (
            short(file.path, PATH_LIMIT),
            plain(source.name),
            plain(file.mapping, VALUE_LIMIT),
            count(file.n_bytes),
            file.sha256[:16],
        )
        for source in run.sources
        for file in source.files
    )
    columns = (foreign("file"), foreign("source"), foreign("columns"), number("bytes"), text("start of SHA-256"))
    return Table(caption="Files", columns=columns, rows=rows)


def origin_section(run: Run) -> Section:
    """Show encoder, IDF table, settings, time and versions."""
    every = [(plain(name, VALUE_LIMIT), *_setting(entry)) for name, entry in run.settings.items()]
    changed = [row for row in every if row[2] != "default"]
    default = [row for row in every if row[2] == "default"]
    encoder, idf = run.encoder, run.idf
    facts = [
        ("encoder", recipe_line(run.encoder)),
        ("revision", plain(str(encoder.revision or "none"))),
        ("weights SHA-256", plain(str(encoder.weights_sha256 or "unknown"))),
        ("rules", "; ".join(f"{plain(name)} from {plain(rule)}" for name, rule in encoder.rules.items()) or "none"),
        *(("note", plain(note, VALUE_LIMIT)) for note in fact_lines(encoder.facts)),
        (
            "IDF",
            (
                f"{plain(idf.corpus)} corpus of {count(idf.n_texts)} texts, {plain(idf.tokenizer)} tokens "
                f"({count(idf.n_tokens)} distinct)"
            ),
        ),
        ("IDF table SHA-256", plain(idf.sha256)),
    ]
    what, settings = (text("what"), foreign("value")), (text("setting"), foreign("value"), text("set by"))
    tables = (
        ("Encoder and IDF table", what, tuple(facts)),
        ("Changed settings", settings, tuple(changed)),
        (DEFAULTS_CAPTION, settings, tuple(default)),
        ("Time and counts by stage", (text("stage"), foreign("value")), _timing(run)),
        ("Machine and versions", what, _environment(run)),
    )
    return Section(
        anchor="origin",
        title="How this run was made",
        paragraphs=() if run.merged is None else (merged_sentence(run.merged),),
        tables=tuple(Table(caption=caption, columns=columns, rows=rows) for caption, columns, rows in tables),
    )


def _setting(entry: Any) -> tuple[str, str]:
    if not isinstance(entry, Mapping):
        return plain(value_text(entry), VALUE_LIMIT), "unknown"
    return plain(value_text(entry.get("value")), VALUE_LIMIT), plain(str(entry.get("from", "unknown")), VALUE_LIMIT)


def _timing(run: Run) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            plain(str(stage)),
            ", ".join(
                seconds(value)
                if name == "seconds"
                else f"{plain(str(name)).removeprefix('n_').replace('_', ' ')} {_number(value)}"
                for name, value in (entry.items() if isinstance(entry, Mapping) else [("value", entry)])
            ),
        )
        for stage, entry in run.timing.items()
    )


def _number(value: Any) -> str:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return f"{int(value):,}" if whole else plain(str(value), VALUE_LIMIT)


def _environment(run: Run) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            plain(str(name)),
            ", ".join(f"{plain(str(key))} {plain(str(item))}" for key, item in value.items())
            if isinstance(value, Mapping)
            else plain(str(value), VALUE_LIMIT),
        )
        for name, value in run.environment.items()
    )
