"""What was read, what sources share, and how the run was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secid.pages.glossary import in_plain_words, recipe_line, terms
from secid.pages.numbers import count, fraction, percent, seconds
from secid.pages.page import Part, Section, Table, foreign, number, text
from secid.pages.sanitize import named, plain, short
from secid.records import REASONS
from secid.results import Run
from secid.settings import value_text

PATH_LIMIT, VALUE_LIMIT, DETAIL_LIMIT = 120, 200, 160


def overlap_section(run: Run) -> Section | None:
    """What pairs of sources share."""
    if not run.overlaps:
        return None
    rows = tuple(
        (
            f"{named(item.first, 40)} and {named(item.second, 40)}",
            percent(item.shared_query_fraction),
            percent(item.shared_document_fraction),
            fraction(item.negative_jaccard_mean),
        )
        for item in run.overlaps
    )
    head = ("shared queries", "shared documents", "same negatives")
    table = Table(caption="Overlap of pairs of sources", columns=(foreign("pair"), *map(number, head)), rows=rows)
    return Section(
        anchor="overlaps",
        link="Overlap",
        title="What the sources share",
        parts=(Part(table=table),),
        terms=terms("shared", "same negatives"),
    )


def read_section(run: Run) -> Section:
    """Rows by source: read = used + left out."""
    rows = tuple(
        (
            short(source.name),
            plain(source.schema, 60),
            count(source.n_read),
            count(source.n_used),
            count(source.n_records),
            count(source.n_queries),
            count(source.n_triplets),
            ", ".join(
                (f"{in_plain_words(reason)} {count(n)}")
                for reason, n in {**source.skipped, **source.dropped_negatives}.items()
            )
            or "nothing",
        )
        for source in run.sources
    )
    columns = (
        foreign("source"),
        foreign("schema"),
        *map(number, ("rows read", "rows used", "records", "queries", "negatives")),
        text("left out"),
    )
    reasons = dict.fromkeys(reason for source in run.sources for reason in source.skipped if reason in REASONS)
    return Section(
        anchor="read",
        link="Input",
        title="What was read",
        paragraphs=(
            "Rows read are used, or left out with a reason; rows with the same query and positive form one record.",
        ),
        bullets=tuple(f"{in_plain_words(reason)}: {REASONS[reason].text}" for reason in reasons),
        parts=(
            Part(table=Table(caption="Rows and negatives by source", columns=columns, rows=rows)),
            *_left_out(run),
            _files(run),
        ),
        terms=terms("rows, records", "queries", "negatives"),
    )


def _left_out(run: Run) -> tuple[Part, ...]:
    rows = tuple(
        (
            short(source.name),
            in_plain_words(item.reason),
            plain(f"{_tail(item.path)}:{item.line}"),
            plain(item.detail, DETAIL_LIMIT),
        )
        for source in run.sources
        for item in source.examples
    )
    columns = (foreign("source"), text("reason"), foreign("where"), foreign("what"))
    return (
        (Part(table=Table(caption="Examples of what was left out", columns=columns, rows=rows, folded=True)),)
        if rows
        else ()
    )


def _files(run: Run) -> Part:
    rows = tuple(
        (_tail(file.path), short(source.name), plain(file.mapping, VALUE_LIMIT), count(file.n_bytes), file.sha256[:16])
        for source in run.sources
        for file in source.paths
    )
    columns = (foreign("file"), foreign("source"), foreign("columns"), number("bytes"), text("SHA-256, its start"))
    return Part(table=Table(caption="Files", columns=columns, rows=rows, folded=True))


def _tail(path: str) -> str:
    """A path that keeps its end, where the file's name stands."""
    return plain(path if len(path) <= PATH_LIMIT else "…" + path[len(path) - PATH_LIMIT + 1 :])


def made_section(run: Run) -> Section:
    """Encoder, IDF table, settings, time and versions."""
    told = [(plain(name, VALUE_LIMIT), *_setting(entry)) for name, entry in run.settings.items()]
    changed = [row for row in told if row[2] != "default"]
    default = [row for row in told if row[2] == "default"]
    encoder, idf = run.encoder, run.idf
    facts = [
        ("encoder", recipe_line(run.encoder)),
        ("revision", plain(str(encoder.revision or "none"))),
        ("weights SHA-256", plain(str(encoder.weights_sha256 or "unknown"))),
        ("rules", "; ".join(f"{plain(name)} from {plain(rule)}" for name, rule in encoder.rules.items()) or "none"),
        *(("note", plain(note, VALUE_LIMIT)) for note in encoder.notes),
        (
            "IDF",
            (
                f"{plain(idf.corpus)} corpus of {count(idf.n_texts)} texts, {plain(idf.tokenizer)} tokens "
                f"({count(idf.n_tokens)} distinct)"
            ),
        ),
        ("IDF table SHA-256", plain(idf.sha256)),
    ]
    settings = (text("setting"), foreign("value"), text("set by"))
    return Section(
        anchor="made",
        link="Origin",
        title="How this was made",
        parts=(
            Part(
                table=Table(
                    caption=("Encoder and IDF table"), columns=(text("what"), foreign("value")), rows=tuple(facts)
                )
            ),
            Part(
                table=Table(
                    caption=("Settings that are not defaults"),
                    columns=settings,
                    rows=tuple(changed or [("none", "–", "–")]),
                )
            ),
            Part(
                table=Table(
                    caption=("Settings left at their defaults"), columns=settings, rows=tuple(default), folded=True
                )
            ),
            Part(
                table=Table(
                    caption=("Time and counts by stage"),
                    columns=(text("stage"), foreign("value")),
                    rows=_timing(run),
                    folded=True,
                )
            ),
            Part(
                table=Table(
                    caption=("Machine and versions"),
                    columns=(text("what"), foreign("value")),
                    rows=_environment(run),
                    folded=True,
                )
            ),
        ),
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
    return f"{value:,}" if isinstance(value, int) else plain(str(value), VALUE_LIMIT)


def _environment(run: Run) -> tuple[tuple[str, str], ...]:
    rows = []
    for name, value in run.environment.items():
        if isinstance(value, Mapping):
            rows.append(
                (plain(str(name)), ", ".join(f"{plain(str(key))} {plain(str(item))}" for key, item in value.items()))
            )
        else:
            rows.append((plain(str(name)), plain(str(value), VALUE_LIMIT)))
    return tuple(rows)
