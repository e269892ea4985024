"""An audit as a page: how many negatives of each source are labelled relevant, and what finds them."""

from __future__ import annotations

from collections.abc import Iterator

from secid.pages.formats import formats
from secid.pages.glossary import terms, why_not
from secid.pages.numbers import (
    count,
    fraction,
    listed,
    percent,
    plural,
    with_interval,
)
from secid.pages.page import Page, Section, Table, foreign, number, text, wrapped
from secid.pages.sanitize import code, named, plain, short
from secid.results.audit import Audit, AuditedRule, AuditedSource
from secid.results.document import json_of

RULES = {
    "consistency": "π below {}",
    "absolute": "absolute margin {}",
    "relative": "relative margin {} %",
}
"""The rules with a default threshold, as pages write them."""
UNKNOWN_LABELS = {
    "unknown_query": ("names a query", "name queries"),
    "unknown_passage": ("names a passage", "name passages"),
}
"""Judgements that label nothing, by reason."""
INCOMPLETE = (
    "Labels are incomplete: an unjudged negative may be relevant too, so counts and precision are lower bounds."
)
AUROC = (
    "chance that a labelled relevant negative looks more suspect than another one, ties counting half, 0 to 1: at ½ a "
    "rule is blind, below ½ they look safer than the rest. It depends on no threshold."
)
ABSOLUTE = "score at least the positive's: it orders negatives as π does, and is shown where ties make it flag more."
ONCE = (
    f"Each negative of a record counts once here; {code('secid score')} and {code('secid check')} divide by all that a "
    "record lists."
)
OWN_QUALITY = (
    "The guide is {}. A negative is suspect where its score is at most 5 % below the positive's; how many of the "
    "suspects are relevant is known for these labels alone."
)
FINDERS = {
    "above": "finds them better than chance: AUROC {}.",
    "level": "does not find them: AUROC {}, where 0.5 is chance.",
    "below": "does not find them: AUROC {}, below 0.5, so they look safer than the other negatives.",
}
"""How a score orders the labelled relevant negatives and the others, by where the interval of its AUROC lies."""
WHO = {"The encoder's π": "consistency", "The guide": "relative"}
"""Whose score, and the rule that orders by it."""
TERMS = (
    ("AUROC", AUROC),
    ("absolute margin", ABSOLUTE),
    ("precision", "share of the flagged negatives that are labelled relevant, 0 to 100 %; higher is better."),
    ("recall", "share of the labelled relevant negatives that are flagged, 0 to 100 %; higher is better."),
    *terms("95 % CI"),
)


def audit_page(audit: Audit) -> Page:
    """What the labels say of all sources."""
    labels = audit.labels
    guide = "" if audit.guide is None else f", guide {short(audit.guide.name)}"
    split = f", split {plain(labels.split)}" if labels.split else ""
    judgements = f"{plural(labels.n_judgements, 'judgement')} of {plural(labels.n_queries, 'query', 'queries')}{split}"
    return Page(
        title="Audit against labels",
        subtitle=f"{plural(len(audit.sources), 'source')}, {judgements}, encoder {short(audit.encoder.name)}{guide}",
        verdict=(_headline(audit), *_finders(audit), INCOMPLETE),
        answer=_counts(audit),
        details=(_rules(audit), _labels(audit)),
        footer=f"Made by secid {plain(audit.secid_version)}, audit schema {plain(audit.schema_version)}.",
    )


def _headline(audit: Audit) -> str:
    having = sorted(
        (source for source in audit.sources if source.n_labelled_relevant),
        key=lambda source: -(source.labelled_relevant_share or 0.0),
    )
    if not having:
        return "No negative of a judged query is labelled relevant."
    shares = [
        f"{count(source.n_labelled_relevant)} of {named(source.name)} ({percent(source.labelled_relevant_share)})"
        for source in having
    ]
    one = having[0].n_labelled_relevant == 1
    shares[0] = shares[0].replace(" of ", f" {'negative' if one else 'negatives'} of ", 1)
    return f"{listed(shares)} {'is' if one and len(having) == 1 else 'are'} labelled relevant."


def _finders(audit: Audit) -> Iterator[str]:
    """Whether π and the guide find them: a sentence for the sources in which one does, one for those in which not."""
    for who, rule_name in WHO.items():
        groups: dict[str, list[str]] = {}
        for source in audit.sources:
            rules = source.guide_rules if rule_name == "relative" else source.rules
            auroc = {rule.name: (rule.auroc, rule.auroc_interval_95) for rule in rules}.get(rule_name, (None, None))
            if auroc[1] is not None:
                low, high = auroc[1]
                where = f" ({named(source.name)})" if len(audit.sources) > 1 else ""
                kind = "above" if low > 0.5 else "below" if high < 0.5 else "level"
                groups.setdefault(kind, []).append(f"{fraction(auroc[0], 2)}{where}")
        for kind, words in FINDERS.items():
            if kind in groups:
                yield f"{who} {words.format(listed(groups[kind]))}"


def _counts(audit: Audit) -> Table:
    rows = tuple(
        (
            short(source.name),
            count(source.n_negatives - source.n_of_unjudged_queries),
            count(source.n_labelled_relevant),
            with_interval(source.labelled_relevant_share, source.labelled_relevant_interval_95, percent),
            count(source.n_labelled_non_relevant),
            count(source.n_unjudged),
            with_interval(source.auroc_consistency, source.auroc_consistency_interval_95, fraction),
        )
        for source in audit.sources
    )
    columns = (
        foreign("source"), number("n"), number("relevant"), wrapped("share (95 % CI)"), number("non-relevant"),
        number("unjudged"), wrapped("AUROC of π (95 % CI)"),
    )  # fmt: skip
    return Table(caption="Negatives of judged queries by their label", columns=columns, rows=rows)


def _rules(audit: Audit) -> Section:
    """What each rule flags at its default threshold, and how it orders the negatives."""
    rows = tuple(
        (
            short(source.name),
            f"{whose}{_rule_name(rule)}",
            count(rule.n_flagged),
            with_interval(rule.precision, rule.precision_interval_95, percent),
            with_interval(rule.recall, rule.recall_interval_95, percent),
            "as π"
            if rule.name == "absolute" and not whose
            else with_interval(rule.auroc, rule.auroc_interval_95, fraction),
        )
        for source in audit.sources
        for whose, rules in (("", _shown(source)), ("guide's ", source.guide_rules))
        for rule in rules
        if rule.auroc is not None and rule.threshold is not None
    )
    columns = (
        foreign("source"), text("rule"), number("flagged"), wrapped("precision"), wrapped("recall"), wrapped("AUROC"),
    )  # fmt: skip
    finders = listed(["π", "the margins", *([] if audit.guide is None else ["the guide"])])
    table = Table(caption="Rules that could find them, with 95 % CI", columns=columns, rows=rows)
    return Section(
        anchor="rules",
        title=f"How well {finders} find them",
        link="Rules",
        paragraphs=(OWN_QUALITY.format(named(audit.guide.name)),) if audit.guide else (),
        bullets=tuple(_missing(audit)),
        tables=(table,) if rows else (),
        terms=TERMS,
    )


def _shown(source: AuditedSource) -> list[AuditedRule]:
    """The rules of the target; the absolute margin of 0 only where ties make it flag others than π does."""
    flagged = {rule.n_flagged for rule in source.rules if rule.name in ("consistency", "absolute")}
    return [rule for rule in source.rules if rule.name != "absolute" or len(flagged) > 1]


def _rule_name(rule: AuditedRule) -> str:
    return RULES[rule.name].format(f"{(rule.threshold or 0.0) * (100 if rule.name == 'relative' else 1):g}")


def _missing(audit: Audit) -> Iterator[str]:
    """Which numbers are missing, a line for all sources of one reason; no maximum score has a default threshold."""
    names: dict[str, list[str]] = {}
    for source in audit.sources:
        for kind in dict.fromkeys(source.not_evaluated.values()):
            names.setdefault(kind, []).append(named(source.name))
    for kind, own in names.items():
        if kind != "no_threshold":
            yield f"Not evaluated for {listed(own)}: {why_not(kind)}."


def _labels(audit: Audit) -> Section:
    """Where the labels are from, and what they do not cover."""
    labels = audit.labels
    files = listed([named(path) for path in labels.files])
    n = plural(labels.n_judgements, "judgement")
    bullets = [f"{n} from {files}, {count(labels.n_relevant)} of them relevant (a grade above 0)."]
    bullets += [
        f"{plural(n, 'judgement')} {UNKNOWN_LABELS[reason][n > 1]} that the collection lacks."
        for reason, n in labels.unknown.items()
        if n
    ]
    bullets.append(ONCE)
    for source in audit.sources:
        parts = []
        if source.n_unjudged_queries:
            queries = plural(source.n_unjudged_queries, "query", "queries")
            parts.append(f"{queries} without judgements left out ({plural(source.n_of_unjudged_queries, 'negative')})")
        if source.n_outside:
            parts.append(f"{plural(source.n_outside, 'negative')} that the collection lacks, which no label can match")
        if parts:
            bullets.append(f"{named(source.name)}: {listed(parts)}.")
    return Section(anchor="labels", title="Labels", link="Labels", bullets=tuple(bullets))


AUDIT_FORMATS = formats(audit_page, json_of)
