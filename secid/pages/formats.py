"""Write a result as HTML, Markdown, JSON or metrics, and its verdict as one line for scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

from markupsafe import Markup, escape

from secid.analyses.registry import to_json
from secid.pages.explain import head_words
from secid.pages.glossary import DEFAULTS_CAPTION
from secid.pages.page import (
    STATUSES,
    ExampleRow,
    Item,
    Page,
    Section,
    ShownFindings,
    Table,
    each_example_once,
    match_words,
)
from secid.pages.sections import page_of
from secid.pages.statuses import NOT_RANKED, status_of
from secid.pages.text import (
    CODE,
    END_ISOLATE,
    ISOLATE,
    fraction,
    markdown_code,
    markdown_html,
    markdown_sentence,
    plain,
    plural,
    short,
    without_commands,
)
from secid.pages.text import markdown as safe
from secid.records import encodable
from secid.results import Run, Status, TripletExample
from secid.results.check import Audit, Check
from secid.results.gate import GateVerdict, Outcome
from secid.results.probe import Probe

if TYPE_CHECKING:
    from jinja2 import Environment

# A page is one HTML file. It loads nothing, has no script but page.js, and is readable without script and style.

MAX_OPEN_FINDINGS = 3
"""Maximum number of unfolded findings of a source that its command repairs."""
MAX_CHARACTERS = 2_000
"""Maximum length of a passage or sentence. secid's sentences are shorter; untrusted texts can have any length."""
CLAMPED_CHARACTERS = 150
"""Shorter texts are shown completely on a wide screen; page.css clamps longer ones."""
MAX_ROW_BYTES = 600_000
"""Maximum size of all rows to browse, fewer than 1,000 rows. A page with ten sources then stays below 1 MB."""
ROW_MARKUP_BYTES = 600
"""Approximate size of a row without its texts."""
MAX_ROW_CHARACTERS = 400
"""Maximum length of a text in a row to browse."""
MIN_MARKED_IDF = 3.0
"""Minimum IDF of a marked word that negative and query share. Below it, more than one text in eight has the word."""
MARK_TAG, END_MARK_TAG = Markup("<mark>"), Markup("</mark>")
MIN_MARKED_CHARACTERS = 4
"""Minimum length of a marked word if no IDF is known."""


def to_html(page: Page, *, framed: bool = False) -> str:
    """Return the page as one HTML file. Every text in it is escaped.

    framed : leave out links to sections. In the srcdoc of a frame they would lead to the outer document.
    """
    style, script = _template("page.css"), _template("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            rows=_browsed(page.rows),
            groups=_groups([*map(each_example_once, page.findings)]),
            style=Markup(style),  # noqa: S704  our own file
            script=Markup(script),  # noqa: S704  our own file
            policy=policy,
            links=[] if framed else _links(page),
        )
    )


def _browsed(rows: Sequence[ExampleRow]) -> list[ExampleRow]:
    """Return the first rows that fit, with cut texts, by rising margin. Rows without a margin come last."""
    shown, room = [], MAX_ROW_BYTES
    for row in rows:
        words = shared_words(row.example)
        texts = (row.example.query, row.example.positive, row.example.negative)
        query, positive, negative = shown_texts = [plain(text, MAX_ROW_CHARACTERS) for text in texts]
        room -= ROW_MARKUP_BYTES + sum(len(_marked(text, words).encode()) for text in shown_texts)
        if room < 0:
            break
        shown.append(replace(row, example=replace(row.example, query=query, positive=positive, negative=negative)))
    return sorted(shown, key=lambda row: inf if row.margin is None else row.margin)


@cache
def _template(name: str) -> str:
    return files("secid.pages").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the source expression by which a content security policy allows exactly this style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _links(page: Page) -> list[tuple[str, str]]:
    parts = (
        ("verdict", "Verdict", True),
        *([(page.second.anchor, page.second.title, True)] if page.second else []),
        ("charts", "Charts", page.pictures),
        ("findings", page.findings_title, page.findings),
        ("shares", "Shares", page.heat),
        ("details", "Method and diagnostics", page.details),
    )
    return [(anchor, title) for anchor, title, shown in parts if shown]


def _groups(findings: Sequence[ShownFindings]) -> list[tuple[ShownFindings, tuple[Item, ...], tuple[Item, ...]]]:
    """Return each source with its unfolded and its folded findings.

    Findings that the source's command repairs are unfolded, up to MAX_OPEN_FINDINGS. If there are none, the first
    finding is unfolded, unless it is already unfolded for an earlier source.
    """
    groups, shown_findings = [], set[str]()
    for source in findings:
        repaired = takewhile(lambda item: source.command and not item.command, source.items)  # noqa: B023  read at once
        n = min(MAX_OPEN_FINDINGS, sum(1 for _ in repaired)) or int(source.items[0].name not in shown_findings)
        shown_findings |= {item.name for item in source.items[:n]}
        groups.append((source, source.items[:n], source.items[n:]))
    return groups


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("secid.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "bdi": _bdi,
        "direction": lambda cell, kind: "auto" if kind == "foreign" and ISOLATE not in cell else None,  # untrusted text
        "breakable": lambda cell: cell.replace("_", Markup("_<wbr>")),
        "fraction": fraction,
        "head": head_words,
        "is_long": _is_long,
        "marked": _marked,
        "match": match_words,
        "place": lambda name, names: names.index(name),
        "plain": plain,
        "shared_words": shared_words,
        "short": short,
    }
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False}
    environment.globals |= {"plural": plural, "statuses": STATUSES}
    return environment


def _bdi(text: str) -> Markup:
    """Return a sentence as escaped HTML. Names are in elements that isolate their direction, and code is marked."""
    if len(text) > MAX_CHARACTERS:
        text = text[: MAX_CHARACTERS - 1]
        text = f"{text}{END_ISOLATE * (text.count(ISOLATE) - text.count(END_ISOLATE))}…"
    return Markup(  # noqa: S704  escaped first
        CODE.sub(r"<code>\1</code>", str(escape(text)))
        .replace(ISOLATE, '<bdi class="name">')
        .replace(END_ISOLATE, "</bdi>")
    )


def _is_long(example: TripletExample) -> bool:
    return max(map(len, (example.query, example.positive, example.negative))) > CLAMPED_CHARACTERS


def shared_words(example: TripletExample) -> tuple[str, ...]:
    """Return the words of the query that the negative repeats, without frequent or short ones."""
    if example.matched_terms:
        return tuple(word for word, idf in example.matched_terms if word and idf >= MIN_MARKED_IDF)
    query, negative = (set(re.findall(r"\w+", text.casefold())) for text in (example.query, example.negative))
    return tuple(sorted(word for word in query & negative if len(word) >= MIN_MARKED_CHARACTERS))


def _marked(text: str, words: Sequence[str]) -> Markup:
    text = plain(text, MAX_CHARACTERS)
    pattern = "|".join(map(_pattern, sorted(words, key=len, reverse=True)))
    parts = re.split(f"({pattern})", text, flags=re.IGNORECASE) if words else [text]
    return Markup("").join(
        MARK_TAG + escape(part) + END_MARK_TAG if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def _pattern(word: str) -> str:
    """Return a pattern for a whole word. In scripts without case, which may have no spaces, it matches anywhere."""
    return rf"(?<!\w){re.escape(word)}(?!\w)" if word.lower() != word.upper() or word.isdigit() else re.escape(word)


# A page as Markdown, for a pull request or a step summary. Untrusted text cannot act as markup.

MAX_PAGE_BYTES = 60_000
"""Maximum size of a page. GitHub allows 65,536 characters in a comment, and a step summary may have several reports."""
REQUESTED_SECTIONS = frozenset({"guide", "early", "ablations", "slices", "objectives"})
"""Anchors of the sections that are shown only with a flag."""
EXAMPLE_CHARACTERS, SHOWN_EXAMPLES = 200, 2
"""Maximum length of a passage, and maximum number of examples of a finding, to leave room for the tables."""
SENTENCE_CHARACTERS, CELL_CHARACTERS = 2_000, 300
"""Maximum length of a sentence and of a cell. secid's texts are shorter; untrusted texts can have any length."""
CUT_NOTE = "\n\nThe rest was cut to save space; the HTML page has all of it.\n"
METHOD_HEADING = "Method and diagnostics"
HASH_OR_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def to_markdown(page: Page) -> str:
    """Return the page as Markdown, with at most MAX_PAGE_BYTES.

    If it is larger, leave out settings at their defaults, then one section after another, the largest first, then all
    examples. Sections that a flag requested are kept.
    """
    text, smaller = _fill(page), _smaller(page)
    while len(text.encode()) > MAX_PAGE_BYTES and (part := next(smaller, None)):
        missing = ["Examples"] if part.findings != page.findings else []
        anchors = {section.anchor for section in part.details}
        missing += [DEFAULTS_CAPTION] * (_without_defaults(page) != page)
        missing += [section.title for section in page.details if section.anchor not in anchors]
        text = f"{_fill(part)}\nLeft out to save space: {safe(', '.join(missing))}. The HTML page has all of it.\n"
    return hard_cut(text, MAX_PAGE_BYTES, CUT_NOTE)


def _smaller(page: Page) -> Iterator[Page]:
    short_page = _without_defaults(page)
    if short_page != page:
        yield short_page
    spare = [section for section in short_page.details if section.anchor not in REQUESTED_SECTIONS]
    for section in sorted(spare, key=lambda section: -len("".join(_section(section)).encode())):
        short_page = replace(short_page, details=tuple(item for item in short_page.details if item is not section))
        yield short_page
    if any(item.examples for group in page.findings for item in group.items):
        groups = ((group, tuple(replace(item, examples=()) for item in group.items)) for group in page.findings)
        yield replace(short_page, findings=tuple(replace(group, items=items) for group, items in groups))


def _without_defaults(page: Page) -> Page:
    details = (
        replace(section, tables=tuple(table for table in section.tables if table.caption != DEFAULTS_CAPTION))
        for section in page.details
    )
    return replace(page, details=tuple(details))


def _fill(page: Page) -> str:
    headline, *others = page.verdict
    parts = [
        f"# {safe(page.title)}",
        _sentence(page.subtitle),
        f"**{_sentence(headline)}**",
        *map(_sentence, others),
        table(page.answer),
        "\n".join(f"- {_sentence(line)}" for line in page.below),
        *([f"**{_sentence(page.gaps.caption)}**", table(page.gaps)] if page.gaps else []),
        *_open(page.second),
        *([f"## {page.findings_title}"] if page.findings else []),
        *(block for group in page.findings for block in _source(each_example_once(group, SHOWN_EXAMPLES))),
        *([f"**{_sentence(page.heat.caption)}**", table(page.heat)] if page.heat else []),
        *([f"## {METHOD_HEADING}"] if page.details else []),
        *(block for section in page.details for block in _section(section)),
        safe(page.footer),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _source(group: ShownFindings) -> list[str]:
    """Return the findings of one source. The repair command follows its name."""
    blocks = [f"### {safe(group.source)}: {safe(group.status)}", code_block(group.command)]
    for item in group.items:
        blocks += [
            f"- **{safe(item.name)}**: {_sentence(item.sentence)}",
            code_block(item.command or item.rows),
            _examples(item),
        ]
    return blocks


def _examples(item: Item) -> str:
    lines = [*map(_example, item.examples)]
    return _folded(plural(len(lines), "example"), "\n".join(lines))


def _example(item: TripletExample) -> str:
    texts = (("query", item.query), ("positive", item.positive), ("negative", item.negative))
    match = match_words(item.match)
    lines = [f"- {safe(short(item.path))}, line {item.line}{f': {safe(match)}' if match else ''}{_cosines(item)}"]
    lines += [f"  - {name}: {safe(text, EXAMPLE_CHARACTERS)}" for name, text in texts if text]
    return "\n".join(lines)


def _cosines(item: TripletExample) -> str:
    known = {"positive": item.s_query_positive, "negative": item.s_query_negative}
    shown = [f"{name} {fraction(value)}" for name, value in known.items() if value is not None]
    return f"; cosine to the query: {', '.join(shown)}" if shown else ""


def _open(section: Section | None) -> list[str]:
    """Return a section with unfolded tables; [] for None."""
    if section is None:
        return []
    return [f"## {safe(section.title)}", *map(_sentence, section.paragraphs), *map(table, section.tables)]


def _section(section: Section) -> list[str]:
    return [
        f"### {safe(section.title)}",
        *map(_sentence, section.paragraphs),
        "\n".join(f"- {_sentence(bullet)}" for bullet in section.bullets),
        *(_folded(item.caption, table(item)) for item in section.tables),
        _folded("Terms", "\n".join(f"- **{safe(term)}**: {safe(meaning)}" for term, meaning in section.terms)),
    ]


def table(shown: Table) -> str:
    head = [safe(column.title, CELL_CHARACTERS) for column in shown.columns]
    ruler = ["---:" if column.kind in ("number", "wrapped") else "---" for column in shown.columns]
    return "\n".join(_line(cells) for cells in (head, ruler, *(map(_cell, row) for row in shown.rows)))


def code_block(text: str) -> str:
    """Return a command as a code block; "" for no command."""
    line = plain(text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence}sh\n{line}\n{fence}" if text else ""


def _cell(text: str) -> str:
    """Return a cell with its code marked. A hash is marked as code too, so that sites do not make it a link."""
    is_hash = HASH_OR_COMMIT.fullmatch(text) and not text.isdigit()
    return markdown_code(text) if is_hash else markdown_sentence(_clip(text, CELL_CHARACTERS))


def _sentence(text: str) -> str:
    return markdown_sentence(_clip(text, SENTENCE_CHARACTERS))


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _folded(summary: str, body: str) -> str:
    """Return HTML that GitHub folds; elsewhere it is unfolded."""
    return f"<details><summary>{markdown_html(summary, 100)}</summary>\n\n{body}\n\n</details>" if body else ""


def hard_cut(text: str, limit: int, note: str) -> str:
    """Cut a text at the end of a line to at most `limit` bytes with a note; "" if not even the note fits."""
    whole = text.encode()
    if len(whole) <= limit:
        return text
    room = limit - len(note.encode())
    part = whole[: max(0, room)].decode("utf-8", "ignore")
    return part[: part.rfind("\n") + 1] + note if room >= 0 else ""


# The formats of a result, by the suffix of a file name.

Result = TypeVar("Result")


def formats(page: Callable[[Result], Page], document: Callable[[Result], str]) -> Mapping[str, Callable[[Result], str]]:
    """Return the formats of one kind of result. page, document: functions that make its page and its JSON document."""
    return {
        ".html": lambda result: to_html(page(result)),
        ".json": document,
        ".md": lambda result: to_markdown(page(result)),
    }


METRICS = "metrics.json"
"""Name of a file of metrics, or the end of its name after a dot."""


def format_of(path: Path) -> str:
    """Return the format for a file name: its suffix, or METRICS."""
    return METRICS if f".{path.name}".endswith(f".{METRICS}") else path.suffix


def run_formats(probe: Probe | None) -> Mapping[str, Callable[[Run], str]]:
    """Return the formats of a run. The pages include its probe; the JSON document does not."""
    return formats(lambda run: page_of(run, probe), to_json)


RUN_FORMATS = run_formats(None)
"""Formats of a run without a probe. A run folder has a file of each."""
METRICS_FORMAT: Mapping[str, Callable[[Run], str]] = {
    METRICS: lambda run: encodable(json.dumps(run.metrics(), indent=2, ensure_ascii=False)) + "\n"
}


# The verdict of a command as one line for scripts. It uses the same fields as the JSON document.

Judged = Run | Check | GateVerdict | Audit | Probe


def verdict_line(result: Judged) -> str:
    """Return "VERDICT: WORD key=value …". Values are quoted as in a shell, so that shlex.split can parse the line.

    docs/agents.md lists words and keys. Names are untrusted, so hidden characters become U+FFFD.
    """
    word, facts = _verdict(result)
    values = (plain(f"{name}={value}") for name, value in facts.items() if value is not None)
    return f"VERDICT: {without_commands(f'{word} {shlex.join(values)}')}"


def _verdict(result: Judged) -> tuple[str, dict[str, object]]:
    n_sources = len(result.names if isinstance(result, Probe) else result.sources)
    facts: dict[str, object] = {"n_sources": n_sources}
    if isinstance(result, Run | Check):
        statuses = [source.status for source in result.sources]
        counts = _counts(statuses, get_args(Status))
        word = next(status for status in reversed(get_args(Status)) if status in statuses)
        if isinstance(result, Run):
            n_not_ranked = sum(status_of(result, source) == NOT_RANKED for source in result.sources)
            counts["n_no_defects"] -= n_not_ranked
            return word, {"command": "score", **facts, **counts, "run": result.folder, "n_not_ranked": n_not_ranked}
        facts |= counts
        return "fail" if result.failed else word, {"command": "check", **facts, "n_failed": len(result.failed)}
    if isinstance(result, GateVerdict):
        outcomes = [source.outcome for source in result.sources]
        return result.outcome, {"command": "gate", **facts, **_counts(outcomes, get_args(Outcome))}
    if isinstance(result, Audit):
        relevant = sum(source.n_labelled_relevant for source in result.sources)
        judged = relevant + sum(source.n_labelled_non_relevant for source in result.sources)
        word = "relevant" if relevant else "none_relevant" if judged else "unjudged"
        return word, {"command": "audit", **facts, "n_labelled_relevant": relevant, "n_judged": judged}
    if result.abstained:
        return "abstained", {"command": "probe", **facts, "reason": result.abstained}
    word = "gain" if n_sources == 1 else "tied" if result.best else "depends"
    if n_sources > 1 and result.best and not any(dose.tied_with_first for dose in result.ranked):
        word = "best"
    facts |= {"n_best": len(result.best), "first": next(iter(result.best), None)}
    return word, {"command": "probe", **facts, "caution": ",".join(result.doubts) or None}


def _counts(items: Collection[str], kinds: Collection[str]) -> dict[str, int]:
    """Return the number of items of each kind, by n_KIND."""
    return {f"n_{kind}": sum(item == kind for item in items) for kind in kinds}
