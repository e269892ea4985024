"""A check as a page, and as one screen of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from secid.pages.findings import (
    REPAIR_FIRST,
    STATUS,
    above_limit,
    advice,
    damaged_positives,
    drops,
    form_table,
    heat_table,
    repeated_rows,
    sentence,
    statuses_line,
    with_number,
)
from secid.pages.formats import formats
from secid.pages.glossary import ONE_LABEL, by_reason, skipped_lines
from secid.pages.page import (
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
from secid.pages.sections.verdict import MISREADS
from secid.pages.text import capital, code, count, fraction, listed, named, percent, plain, plural, short
from secid.results import Example, SourceFinding, SourceReport, TripletExample
from secid.results.catalogue import BITS, CAUTIONS, DEFECTS, FINDINGS
from secid.results.check import Check, SourceCaution, Spread, TextFacts, repair_defects
from secid.results.document import json_of
from secid.results.inputs import no_command
from secid.settings import flag_of

# A check as a page: the status of each source, what is wrong with it with examples, and what was read.

SHOWN_PLACES = 3
"""Rows that a caution names."""
SHOWN_TEXT = 100
"""Characters of a text of the evaluation set."""
TO_REPAIR = "To drop the defects, save the check first"
LABELS = f"To check, add {code('--collection DIR')} if these queries have relevance judgements."
SUSPECTS = f"{code('secid score')} with {code('--guide NAME')} lists negatives that look relevant to a second model."
SCORE = f"Hardness and the score need an encoder: {code('secid score')} with {code('--encoder minilm')}."
ROLES = ("query", "positive", "negative")


TOKENS = {"bytes": "token counts are estimates"}
"""Note on how tokens were counted, by kind."""


def check_page(check: Check) -> Page:
    """Build the page of a check: what the texts of all sources show without an encoder."""
    tokens = TOKENS.get(check.tokens_by) or f"tokens of {plain(check.tokens_by)}"
    return Page(
        title="Check of hard negatives",
        subtitle=f"{plural(len(check.sources), 'source')}, no encoder; {tokens}",
        verdict=(*verdict(check), *([f"{TO_REPAIR}: {code(plain(check.save))}."] if check.save else [])),
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
    """Say which sources may be trained on, what was compared, and what is unknown. The first line is the headline."""
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
        lines.append(SUSPECTS if has_collection else LABELS)
    else:
        more = f" and by {count(check.n_of_qrels)} more in the qrels" if check.n_of_qrels else ""
        rest = "others are not ruled out" if has_collection else f"{code('--collection DIR')} adds others"
        lines.append(f"False negatives are found by the labels in these files{more}; {rest}.")
    lines += [*damaged_positives(check.sources), *filter(None, [_no_command(check)])]
    return [*lines, SCORE]


def _no_command(check: Check) -> str:
    """Say why no command repairs the sources that need it; "" if one does or none needs it."""
    if check.save or not any(map(repair_defects, check.sources)):
        return ""
    reasons = (no_command(source.name, source.files, names_files=True) for source in check.sources)
    return next(filter(None, reasons), "")


class Problem(NamedTuple):
    """A finding or caution above its limit in a source, by urgency, then the larger share, then the catalogue."""

    place: tuple[int, float, int]
    source: SourceReport
    item: SourceFinding | SourceCaution


def problems(source: SourceReport, facts: TextFacts) -> list[Problem]:
    """List what is above its limit in a source, the most urgent first, cautions after the findings."""
    every = [
        Problem((FINDINGS[item.name].urgency, -item.share, BITS[item.name]), source, item)
        for item in source.findings
        if above_limit(item)
    ]
    every += [Problem((len(FINDINGS), -item.fraction, 0), source, item) for item in facts.cautions if item.exceeded]
    return sorted(every, key=lambda one: one.place)


def answer(sources: Sequence[SourceReport], texts: Mapping[str, TextFacts]) -> Table:
    """The status of each of these sources; it fits a terminal of 60 columns."""
    rows = tuple(
        (
            short(source.name),
            STATUS[source.status],
            percent(source.flagged_share),
            count(source.n_triplets),
            next((one.item.name for one in problems(source, texts[source.name])), "none"),
        )
        for source in sources
    )
    columns = (foreign("source"), status("status"), number("defects"), number("n"), text("top problem"))
    return Table(caption="Defects: negatives with at least one counted defect", columns=columns, rows=rows)


def numbers_to_drop(sources: Sequence[SourceReport]) -> str:
    """Say how many negatives the repairs drop, by source; "" if a repair drops only one defect."""
    every = (drops(source, f"The repair of {named(source.name)}") for source in sources if source.repair)
    return " ".join(filter(None, every))


def _findings(source: SourceReport, facts: TextFacts) -> ShownFindings:
    """Show what is above its limit, the most urgent first, cautions after the findings."""
    items = [
        _caution(item) if isinstance(item, SourceCaution) else _finding(source, item)
        for _, _, item in problems(source, facts)
    ]
    return ShownFindings(
        source=short(source.name),
        status=STATUS[source.status],
        items=tuple(with_number(items, source)),
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
    entry = CAUTIONS[item.name]
    words = caution_words(item)
    detail = f": {words}" if words else ""
    places = [f"{named(example.path)}:{example.line}{evaluation_words(example)}" for example in item.examples]
    where = f" For example {listed(places[:SHOWN_PLACES])}." if places else ""
    amount = plural(item.n, "file") if entry.of == "files" else f"{percent(item.fraction)} of the {entry.of}"
    return Item(
        name=item.name,
        sentence=f"{amount} {entry.says}{detail}. {capital(entry.do)}.{where}",
        command="",
        examples=(),
        n_negatives=0,
    )


def evaluation_words(example: Example) -> str:
    """Name the text of the evaluation set that an example equals or nearly equals; "" for another example."""
    if example.fact is None or example.fact.kind != "evaluation_text":
        return ""
    values = example.fact.values
    own, other = (f"“{plain(str(values.get(name, '')), SHOWN_TEXT)}”" for name in ("text", "evaluation_text"))
    near = values.get("similarity")
    nearly = f", {fraction(float(near), 2)} similar to {other}" if near is not None else ""
    return f": {own} is {named(str(values.get('id', '')))}{nearly}"


def caution_words(item: SourceCaution) -> str:
    """Describe the cases of a caution further; "" if there is nothing to add."""
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
        roles = [f"{count(values[f'n_{role}s'])} as {role}s" for role in ROLES if f"n_{role}s" in values]
        words = f"{count(n)} exactly, {count(item.n - n)} nearly; {of} of the evaluation set"
        return "; ".join([words, *([", ".join(roles)] if roles else [])])
    return by_reason(values) if item.name == "malformed_rows" else ""


def _files(sources: Sequence[SourceReport]) -> Section:
    rows = tuple(
        (short(file.path, 80), short(source.name), plain(file.schema), plain(file.container), plain(file.mapping))
        for source in sources
        for file in source.files
    )
    columns = (foreign("file"), foreign("source"), text("schema"), text("container"), foreign("columns"))
    table = Table(caption="Files, and how each was read", columns=columns, rows=rows)
    bullets = tuple(skipped_lines(sources, rows_alone=True))
    return Section(anchor="files", title="What was read", link="Files", bullets=bullets, tables=(table,))


def _form(sources: Sequence[SourceReport]) -> tuple[Section, ...]:
    tables = form_table(sources)
    title = "Form of negatives and positives"
    return (Section(anchor="form", title=title, link="Form", tables=tables),) if tables else ()


def _lengths(check: Check) -> Section:
    rows = tuple(
        (short(name), role, count(own.n_texts), _spread(own.characters), _spread(own.tokens))
        for name, facts in check.texts.items()
        for role, own in facts.lengths.items()
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
        link="Lengths",
        bullets=bullets,
        tables=(table,),
    )


def _spread(spread: Spread) -> str:
    return ", ".join(map(count, (spread.minimum, spread.median, spread.p95, spread.maximum)))


CHECK_FORMATS = formats(check_page, json_of)


# A check on the terminal: one screen, findings of all sources together. The page and the JSON have the rest.

SHOWN_SOURCES = 3
"""Sources that a finding names."""
MOST_ROWS = 10
"""Sources in the table; of more, only those with a finding above its limit."""
EXAMPLE_CHARACTERS = 60


def check_screen(check: Check, pages: Sequence[Path] = ()) -> Screen:
    """Verdict, table, the most urgent findings, the commands that repair the sources, and where all the rest is.

    pages : files that the check was written to.
    """
    headline, *others = verdict(check)
    many = len(check.sources) > MOST_ROWS
    rows = [one for one in check.sources if not many or problems(one, check.texts[one.name])]
    groups = _groups(check)
    n_more = len(groups) - SHOWN_FINDINGS
    rest = listed([named(str(path)) for path in pages], len(pages)) if pages else "add -o check.html"
    return screen(
        (strong(headline), " ".join(others)),
        (
            answer(rows[:MOST_ROWS], check.texts),
            _folded("Only on the page", rows[MOST_ROWS:]),
            _folded("Nothing above its limit", [one for one in check.sources if one not in rows]),
        ),
        (
            strong(f"Findings ({count(n_more)} more in the page)" if n_more > 0 else "Findings" if groups else ""),
            *(line for group in groups[:SHOWN_FINDINGS] for line in _group_lines(group)),
            *map(warning, skipped_lines(check.sources, rows_alone=True)),
        ),
        (*_repairs(check), f"All examples, lengths and overlaps: {rest}."),
    )


def _repairs(check: Check) -> Iterator[Line]:
    """The commands that drop the defects."""
    if not check.save:
        return
    repairs = [source.repair for source in check.sources if source.repair]
    yield Line(f"{TO_REPAIR}:")
    yield Line(numbers_to_drop(check.sources), indent=2)
    yield from (command(line, 2) for line in (check.save, *repairs[:SHOWN_FINDINGS]))
    if len(repairs) > SHOWN_FINDINGS:
        yield Line(f"The page has {plural(len(repairs) - SHOWN_FINDINGS, 'more such command')}.", indent=2)


def _folded(what: str, sources: Sequence[SourceReport]) -> str:
    """A line for sources without a row; "" for none."""
    names = listed([named(source.name) for source in sources], SHOWN_SOURCES)
    n = sum(source.n_triplets for source in sources)
    return f"{what}: {plural(len(sources), 'source')} ({names}; {plural(n, 'negative')})." if sources else ""


def _groups(check: Check) -> list[list[Problem]]:
    """The findings of all sources by name, the most urgent first, in each the source with the largest share first."""
    every = [one for source in check.sources for one in problems(source, check.texts[source.name])]
    every.sort(key=lambda one: (one.item.name, one.place))
    groups = [list(group) for _, group in groupby(every, key=lambda one: one.item.name)]
    return sorted(groups, key=lambda group: group[0].place)


def _group_lines(group: Sequence[Problem]) -> Iterator[Line]:
    """A finding or caution, its sources, what to do, and one example unless it is a trait, which `-o` shows."""
    item = group[0].item
    amounts = [_amount(one) for one in group]
    if isinstance(item, SourceCaution):
        caution, words = CAUTIONS[item.name], caution_words(item)
        what, do = f"{caution.of} that {caution.says}", f"{capital(caution.do)}."
        amounts[0] += f" ({words})" if words else ""
    else:
        what, do = f"negatives that {FINDINGS[item.name].says}", advice(item)
    rows = sum(one.item.n_rows or 0 for one in group if isinstance(one.item, SourceFinding))
    repeated = f" {capital(repeated_rows(rows))}." if rows else ""
    yield bullet(f"{item.name}: {what}. {listed(amounts, SHOWN_SOURCES)}.{repeated} {do}")
    for example in item.examples[: isinstance(item, SourceCaution) or item.name in DEFECTS]:
        words = evaluation_words(example) if isinstance(example, Example) else _quoted(example)
        yield Line(f"{example.path}:{example.line}{words}", indent=2)


def _amount(problem: Problem) -> str:
    """Say how much of a source has the problem; for a formal finding also the share of the positives."""
    name, item = named(problem.source.name), problem.item
    if isinstance(item, SourceCaution):
        return f"{count(item.n) if CAUTIONS[item.name].of == 'files' else percent(item.fraction)} of {name}"
    positives = f"; {percent(item.positives.share)} of its positives" if item.positives else ""
    return f"{count(item.n_negatives)} of {name} ({percent(item.share)}{positives})"


def _quoted(example: TripletExample) -> str:
    """The negative, and what it is near to."""
    words, match = plain(example.negative, EXAMPLE_CHARACTERS), match_words(example.match)
    return (f": “{words}”" if words else "") + (f" ({match})" if match else "")
