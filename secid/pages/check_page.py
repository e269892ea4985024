"""Show a check as a page, and as one screen on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from secid.pages.findings import advice, drops, form_table, heat_table, repeated_rows, sentence, with_drop_count
from secid.pages.formats import formats
from secid.pages.glossary import ONE_LABEL, reason_list, skipped_lines
from secid.pages.page import (
    QUOTED_CHARACTERS,
    Item,
    Page,
    Section,
    ShownFindings,
    Table,
    foreign,
    match_words,
    number,
    showing_equal_positive,
    status,
    text,
)
from secid.pages.screen import SHOWN_FINDINGS, Line, Screen, bullet, command, screen, strong, warning
from secid.pages.sections.overlap import overlap_section
from secid.pages.statuses import MISREADS, REPAIR_FIRST, STATUS, above_limits, damaged_positives, statuses_line, urgency
from secid.pages.text import capital, code, count, fraction, listed, named, percent, plain, plural, short
from secid.results import Example, SourceFinding, SourceReport, TripletExample
from secid.results.catalogue import CAUTIONS, DEFECTS, FINDINGS
from secid.results.check import Check, SourceCaution, Spread, TextFacts, repair_defects
from secid.results.commands import no_command
from secid.results.document import json_of
from secid.settings import flag_of

# The page shows the status of each source, its findings with examples, and the files that were read.

SHOWN_PLACES = 3
"""Maximum number of rows that a caution names."""
SHOWN_TEXT = 100
"""Maximum characters of a text of the evaluation set."""
REPAIR_OFFER = "To drop the defects, save the check first"
LABELS_OFFER = f"If these queries have relevance judgements, add {code('--collection DIR')} to use them."
SCORE_GUIDE_OFFER = (
    f"{code('secid score')} with {code('--guide NAME')} lists negatives that look relevant to a second model."
)
SCORE_ADVICE = f"Hardness and the score need an encoder: {code('secid score … --encoder minilm')}."
TEXT_ROLES = ("query", "positive", "negative")


TOKEN_NOTES = {"bytes": "token counts are estimates"}
"""Note on how tokens were counted, by the kind of count."""


def check_page(check: Check) -> Page:
    tokens = TOKEN_NOTES.get(check.tokens_by) or f"tokens of {plain(check.tokens_by)}"
    return Page(
        title="Check of hard negatives",
        subtitle=f"{plural(len(check.sources), 'source')}, no encoder; {tokens}",
        verdict=(*verdict(check), *([f"{REPAIR_OFFER}: {code(plain(check.save))}."] if check.save else [])),
        answer=answer(check.sources, check.texts),
        findings=tuple(
            group
            for source in sorted(check.sources, key=lambda source: REPAIR_FIRST.index(source.status))
            if (group := _findings(source, check.texts[source.name])).items
        ),
        heat=heat_table(check.sources),
        details=(
            _files(check.sources),
            *_form(check.sources),
            _lengths(check),
            *filter(None, [overlap_section(check, check.overlaps)]),
        ),
        footer=f"Made by secid {plain(check.secid_version)}, check schema {plain(check.schema_version)}.",
    )


def verdict(check: Check) -> list[str]:
    """Return sentences on the status of sources, what was compared, and what is unknown, the headline first."""
    label = f" {ONE_LABEL}" if check.one_positive else ""
    lines = [f"{statuses_line(check.sources)}{label}"]
    if check.failed:
        lines.append(f"Above a limit of --fail-on: {plain(listed(check.failed, len(check.failed)))}.")
    evaluation = check.evaluation
    if evaluation is not None:
        lines.append(
            f"Compared with {plural(evaluation.n_queries, 'evaluation query', 'evaluation queries')} and "
            f"{plural(evaluation.n_relevant_passages, 'relevant passage')} of {named(evaluation.folder)}."
        )
    has_collection = bool(check.settings.get("collection", {}).get("value"))
    if check.one_positive:
        lines.append(SCORE_GUIDE_OFFER if has_collection else LABELS_OFFER)
    else:
        labels = "the labels in these files"
        if check.n_of_qrels:
            labels = f"{labels} and {count(check.n_of_qrels)} more in the qrels"
        if has_collection:
            lines.append(f"False negatives are found with {labels}. There may be others.")
        else:
            lines.append(
                f"False negatives are found with {labels}. To use more labels, add {code('--collection DIR')}."
            )
    lines += [*damaged_positives(check.sources), *filter(None, [_no_command(check)])]
    return [*lines, SCORE_ADVICE]


def _no_command(check: Check) -> str:
    """Return why no command can repair the sources; "" if a command can, or if no source needs a repair."""
    if check.save or not any(map(repair_defects, check.sources)):
        return ""
    reasons = (no_command(source.name, source.files, names_files=True) for source in check.sources)
    return next(filter(None, reasons), "")


class Problem(NamedTuple):
    """A finding or caution above its limit in a source.

    place : sort key, by urgency, then by share (largest first), then by the order of the catalogue.
    """

    place: tuple[float, float]
    source: SourceReport
    item: SourceFinding | SourceCaution


def problems(source: SourceReport, facts: TextFacts) -> list[Problem]:
    """List the findings above their limit in a source, the most urgent first, and then its cautions."""
    every = [Problem(urgency(item), source, item) for item in above_limits(source)]
    every += [Problem((len(FINDINGS), -item.fraction), source, item) for item in facts.cautions if item.exceeded]
    return sorted(every, key=lambda one: one.place)


def answer(sources: Sequence[SourceReport], texts: Mapping[str, TextFacts]) -> Table:
    """Return a table with the status of each source. It fits a terminal with 60 columns."""
    rows = tuple(
        (
            short(source.name),
            STATUS[source.status],
            percent(source.flagged_share),
            count(texts[source.name].n_listed),
            next((one.item.name for one in problems(source, texts[source.name])), "none"),
        )
        for source in sources
    )
    columns = (foreign("source"), status("status"), number("defects"), number("listed"), text("top problem"))
    return Table(
        caption="Defects: share of the listed negatives with at least one counted defect", columns=columns, rows=rows
    )


def _findings(source: SourceReport, facts: TextFacts) -> ShownFindings:
    """Show the findings above their limit, the most urgent first, and then the cautions."""
    items = [
        _caution(item) if isinstance(item, SourceCaution) else _finding(source, item)
        for _, _, item in problems(source, facts)
    ]
    return ShownFindings(
        source=short(source.name),
        status=STATUS[source.status],
        items=tuple(with_drop_count(items, source)),
        command=plain(source.repair or ""),
    )


def _finding(source: SourceReport, item: SourceFinding) -> Item:
    return Item(
        name=item.name,
        sentence=sentence(item),
        command="" if item.name in repair_defects(source) and source.repair else f"secid explain {item.name}",
        examples=tuple(map(showing_equal_positive, item.examples)),
        n_negatives=item.n_negatives,
    )


def _caution(item: SourceCaution) -> Item:
    entry, words = CAUTIONS[item.name], caution_words(item)
    places = [f"{named(example.path)}:{example.line}{evaluation_words(example)}" for example in item.examples]
    amount = plural(item.n, "file") if entry.of == "files" else f"{percent(item.fraction)} of the {entry.of}"
    sentences = (
        f"{amount} {entry.says}: {words}." if words else f"{amount} {entry.says}.",
        f"{capital(entry.do)}.",
        *([f"For example {listed(places[:SHOWN_PLACES])}."] if places else []),
    )
    return Item(name=item.name, sentence=" ".join(sentences), command="", examples=(), n_negatives=0)


def evaluation_words(example: Example) -> str:
    """Return the text of the evaluation set that an example repeats or nearly repeats; "" for any other example."""
    if example.fact is None or example.fact.kind != "evaluation_text":
        return ""
    values = example.fact.values
    text, other = (f"“{plain(str(values.get(name, '')), SHOWN_TEXT)}”" for name in ("text", "evaluation_text"))
    where, near = named(str(values.get("id", ""))), values.get("similarity")
    return (
        f": {text} is {where}"
        if near is None
        else f": {text} is {where}, {fraction(float(near), 2)} similar to {other}"
    )


def caution_words(item: SourceCaution) -> str:
    """Return details of a caution; "" if there are none."""
    values: Mapping[str, Any] = item.values
    if not item.n:
        return ""
    if item.name == "tokenizer_misfit":
        does = MISREADS.get(values["effect"], "misreads words")
        return f"in a sample of {plural(values['n_texts'], 'text')}, {plain(values['tokenizer'])} {does}"
    if item.name == "inactive_lexical_gate":
        coverage = f"mean coverage {fraction(values['coverage'])}"
        if "best" not in values:
            return coverage
        return f"{coverage}; {fraction(values['best_coverage'])} with {flag_of('tokenizer', values['best'])}"
    if item.name in ("eval_query", "eval_passage"):
        n, of = values["n_exact"], f"{count(values['n_evaluation'])} of {count(values['n_evaluation_all'])}"
        roles = [f"{count(values[f'n_{role}s'])} as {role}s" for role in TEXT_ROLES if f"n_{role}s" in values]
        words = f"{count(n)} exactly, {count(item.n - n)} nearly; {of} of the evaluation set"
        return "; ".join([words, *([", ".join(roles)] if roles else [])])
    return reason_list(values) if item.name == "malformed_rows" else ""


def _files(sources: Sequence[SourceReport]) -> Section:
    rows = tuple(
        (short(file.path, 80), short(source.name), plain(file.schema), plain(file.container), plain(file.mapping))
        for source in sources
        for file in source.files
    )
    columns = (foreign("file"), foreign("source"), text("schema"), text("container"), foreign("columns"))
    table = Table(caption="Files, and how each was read", columns=columns, rows=rows)
    bullets = tuple(skipped_lines(sources, rows_alone=True))
    return Section(anchor="files", title="What was read", bullets=bullets, tables=(table,))


def _form(sources: Sequence[SourceReport]) -> tuple[Section, ...]:
    table = form_table(sources)
    title = "Form of negatives and positives"
    return (Section(anchor="form", title=title, tables=(table,)),) if table.rows else ()


def _lengths(check: Check) -> Section:
    rows = tuple(
        (short(name), role, count(lengths.n_texts), _spread(lengths.characters), _spread(lengths.tokens))
        for name, facts in check.texts.items()
        for role, lengths in facts.lengths.items()
    )
    heads = ("texts", "characters", "tokens")
    columns = (foreign("source"), text("role"), *map(number, heads))
    bullets = tuple(
        f"{named(name)}: {_spread(facts.negatives_per_query)} negatives a query (min, median, 95 %, max); "
        f"mean lexical coverage of the positives {fraction(facts.positive_coverage_mean)}."
        for name, facts in check.texts.items()
    )
    table = Table(caption="Lengths of the texts", columns=columns, rows=rows)
    return Section(
        anchor="lengths",
        title="Lengths of the distinct texts: minimum, median, 95 %, maximum",
        bullets=bullets,
        tables=(table,),
    )


def _spread(spread: Spread) -> str:
    return ", ".join(map(count, (spread.minimum, spread.median, spread.p95, spread.maximum)))


CHECK_FORMATS = formats(check_page, json_of)


# The terminal shows one screen, with the findings of all sources together. The page and the JSON have the rest.

SHOWN_SOURCES = 3
"""Maximum number of sources that a finding names."""
MAX_ROWS = 10
"""Maximum number of sources in the table. If there are more, it has only sources with a finding above its limit."""


def check_screen(check: Check, pages: Sequence[Path] = ()) -> Screen:
    """Show verdict, table, urgent findings, repair commands, and where the rest is. pages: files written."""
    headline, *others = verdict(check)
    is_long = len(check.sources) > MAX_ROWS
    rows = [one for one in check.sources if not is_long or problems(one, check.texts[one.name])]
    groups = _groups(check)
    n_more = len(groups) - SHOWN_FINDINGS
    rest = listed([named(str(path)) for path in pages], len(pages)) if pages else "add -o check.html"
    return screen(
        (strong(headline), " ".join(others)),
        (
            answer(rows[:MAX_ROWS], check.texts),
            _folded("Shown only on the page", rows[MAX_ROWS:], check.texts),
            _folded("No finding above its limit", [one for one in check.sources if one not in rows], check.texts),
        ),
        (
            strong(f"Findings ({count(n_more)} more on the page)" if n_more > 0 else "Findings" if groups else ""),
            *(line for group in groups[:SHOWN_FINDINGS] for line in _group_lines(group)),
            *map(warning, skipped_lines(check.sources, rows_alone=True)),
        ),
        (*_repairs(check), f"All examples, lengths and overlaps: {rest}."),
    )


def _repairs(check: Check) -> Iterator[Line]:
    if not check.save:
        return
    repairs = [source.repair for source in check.sources if source.repair]
    yield Line(f"{REPAIR_OFFER}:")
    dropped = (drops(source, f"The repair of {named(source.name)}") for source in check.sources if source.repair)
    yield Line(" ".join(filter(None, dropped)), indent=2)
    yield from (command(line, 2) for line in (check.save, *repairs[:SHOWN_FINDINGS]))
    if len(repairs) > SHOWN_FINDINGS:
        yield Line(f"The page has {plural(len(repairs) - SHOWN_FINDINGS, 'more command')}.", indent=2)


def _folded(what: str, sources: Sequence[SourceReport], texts: Mapping[str, TextFacts]) -> str:
    names = listed([named(source.name) for source in sources], SHOWN_SOURCES)
    n = sum(texts[source.name].n_listed for source in sources)
    return f"{what}: {plural(len(sources), 'source')} ({names}; {plural(n, 'negative')})." if sources else ""


def _groups(check: Check) -> list[list[Problem]]:
    """Group the findings of all sources by name, most urgent first. Each group starts with the largest share."""
    every = [one for source in check.sources for one in problems(source, check.texts[source.name])]
    every.sort(key=lambda one: (one.item.name, one.place))
    groups = [list(group) for _, group in groupby(every, key=lambda one: one.item.name)]
    return sorted(groups, key=lambda group: group[0].place)


def _group_lines(group: Sequence[Problem]) -> Iterator[Line]:
    """Yield lines about a finding or caution: its sources, what to do, and one example. Traits have no example."""
    item = group[0].item
    amounts = [_amount(one) for one in group]
    if isinstance(item, SourceCaution):
        caution, words = CAUTIONS[item.name], caution_words(item)
        what, do = f"{caution.of} that {caution.says}", f"{capital(caution.do)}."
        amounts[0] += f" ({words})" if words else ""
    else:
        what, do = f"negatives that {FINDINGS[item.name].says}", advice(item)
    rows = sum(one.item.n_rows or 0 for one in group if isinstance(one.item, SourceFinding))
    sentences = (f"{item.name}: {what}.", f"{listed(amounts, SHOWN_SOURCES)}.", repeated_rows(rows), do)
    yield bullet(" ".join(filter(None, sentences)))
    for example in item.examples[: isinstance(item, SourceCaution) or item.name in DEFECTS]:
        words = evaluation_words(example) if isinstance(example, Example) else _quoted(example)
        yield Line(f"{example.path}:{example.line}{words}", indent=2)


def _amount(problem: Problem) -> str:
    """Format the share of a source with the problem; for a formal finding, also that of the positives."""
    name, item = named(problem.source.name), problem.item
    if isinstance(item, SourceCaution):
        return f"{count(item.n) if CAUTIONS[item.name].of == 'files' else percent(item.fraction)} of {name}"
    positives = f"; {percent(item.positives.share)} of its positives" if item.positives else ""
    return f"{count(item.n_negatives)} of {name} ({percent(item.share)}{positives})"


def _quoted(example: TripletExample) -> str:
    words, match = plain(example.negative, QUOTED_CHARACTERS), match_words(example.match)
    return (f": “{words}”" if words else "") + (f" ({match})" if match else "")
