"""Show evidence for or against a ranking: an audit, agreement with downstream results, and a probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial

from secid.analyses.agreement import ERROR_RATE, unlike_chance
from secid.pages.charts import gains_chart
from secid.pages.formats import formats
from secid.pages.glossary import EXPLANATIONS, HARDNESS_ENDS, SETTING_MEANINGS, TERM_WORDS, reason_text, terms
from secid.pages.page import Page, Section, Table, foreign, number, text, wrapped
from secid.pages.screen import Screen, ScreenBlock, screen, strong
from secid.pages.sections.probe import cautions, details, gains_table, probe_headline, protocol, scope, verdict
from secid.pages.text import (
    NO_BREAK_SPACE,
    code,
    count,
    fraction,
    listed,
    named,
    percent,
    plain,
    plural,
    short,
    with_interval,
)
from secid.results import Agreement
from secid.results.catalogue import NEAR_HARDNESS
from secid.results.check import Audit, AuditedRule, AuditedSource
from secid.results.document import json_of
from secid.results.probe import Probe
from secid.results.run import PROBE_METRIC
from secid.settings import display_name

# The page of an audit shows how many negatives of each source are labelled relevant, and which rules find them.

RULES = {
    "consistency": "π below {}",
    "absolute": "absolute margin {}",
    "relative": "relative margin {} %",
    "hardness": "hardness from {}",
}
"""Words for the rules with a default threshold."""
UNKNOWN_LABELS = {"unknown_query": "queries", "unknown_passage": "passages"}
"""Texts that are missing for a judgement, by reason."""
INCOMPLETE_LABELS_NOTE = (
    "Labels are incomplete. An unjudged negative may be relevant too, so counts and precision are lower bounds."
)
ABSOLUTE_RULE = (
    "score not below the positive's. It orders negatives as π does, and is shown only if it flags more because of ties."
)
COUNTED_ONCE_NOTE = (
    f"A repeated negative of a record counts once here. {code('secid score')} and {code('secid check')} count all that "
    "a record lists."
)
GUIDE_QUALITY_NOTE = (
    "The guide is {}. A negative is suspect if its hardness under the guide is at least "
    f"{NEAR_HARDNESS} ({HARDNESS_ENDS}). The share of suspects that are relevant is known only for these labels."
)
SCORE_QUALITY_TEXTS = {
    "above": "finds them better than chance: AUROC {}.",
    "level": "does not find them: AUROC {}, where 0.5 is chance.",
    "below": "does not find them: AUROC {}, below 0.5, so they look safer than the other negatives.",
}
"""Position of the interval of a score's AUROC -> sentence on how well the score finds labelled relevant negatives."""
RULE_OF_SCORE = {"The encoder's π": "consistency", "The guide": "hardness"}
"""Name of a score in sentences -> rule that orders negatives by it."""
AUDIT_TERMS = (
    ("AUROC", TERM_WORDS["AUROC"]),
    ("absolute margin", ABSOLUTE_RULE),
    ("precision", TERM_WORDS["precision"]),
    ("recall", TERM_WORDS["recall"]),
    *terms("95 % CI"),
)


def audit_page(audit: Audit) -> Page:
    labels = audit.labels
    guide = "" if audit.guide is None else f", guide {short(audit.guide.name)}"
    split = f", split {plain(labels.split)}" if labels.split else ""
    judgements = f"{plural(labels.n_judgements, 'judgement')} of {plural(labels.n_queries, 'query', 'queries')}{split}"
    return Page(
        title="Audit against labels",
        subtitle=f"{plural(len(audit.sources), 'source')}, {judgements}, encoder {short(audit.encoder.name)}{guide}",
        verdict=(_headline(audit), *_finders(audit), INCOMPLETE_LABELS_NOTE),
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
    return f"Negatives labelled relevant: {listed(shares)}."


def _finders(audit: Audit) -> Iterator[str]:
    """Yield sentences on how well π and the guide find relevant negatives. Sources with the same result share one."""
    for who, rule_name in RULE_OF_SCORE.items():
        groups: dict[str, list[str]] = {}
        for source in audit.sources:
            rules = source.guide_rules if rule_name == "hardness" else source.rules
            auroc = {rule.name: (rule.auroc, rule.auroc_interval_95) for rule in rules}.get(rule_name, (None, None))
            if auroc[1] is not None:
                low, high = auroc[1]
                where = f" ({named(source.name)})" if len(audit.sources) > 1 else ""
                kind = "above" if low > 0.5 else "below" if high < 0.5 else "level"
                groups.setdefault(kind, []).append(f"{fraction(auroc[0], 2)}{where}")
        for kind, words in SCORE_QUALITY_TEXTS.items():
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
    """Show the negatives that each rule flags at its default threshold, and how well it orders them."""
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
        paragraphs=(GUIDE_QUALITY_NOTE.format(named(audit.guide.name)),) if audit.guide else (),
        bullets=tuple(_missing(audit)),
        tables=(table,),
        terms=AUDIT_TERMS,
    )


def _shown(source: AuditedSource) -> list[AuditedRule]:
    """Return the encoder's rules. The absolute margin of 0 is left out if it flags as many negatives as π."""
    flagged = {rule.n_flagged for rule in source.rules if rule.name in ("consistency", "absolute")}
    return [rule for rule in source.rules if rule.name != "absolute" or len(flagged) > 1]


def _rule_name(rule: AuditedRule) -> str:
    return RULES[rule.name].format(f"{(rule.threshold or 0.0) * (100 if rule.name == 'relative' else 1):g}")


def _missing(audit: Audit) -> Iterator[str]:
    """Yield a line for each reason why numbers are missing, with its sources.

    A maximum score has no default threshold, so it is not mentioned.
    """
    names: dict[str, list[str]] = {}
    for source in audit.sources:
        for kind in dict.fromkeys(source.not_evaluated.values()):
            names.setdefault(kind, []).append(named(source.name))
    for kind, sources in names.items():
        if kind != "no_threshold":
            yield f"Not evaluated for {listed(sources)}: {reason_text(kind)}."


def _labels(audit: Audit) -> Section:
    labels = audit.labels
    files = listed([named(path) for path in labels.files])
    n = plural(labels.n_judgements, "judgement")
    bullets = [f"{n} from {files}, {count(labels.n_relevant)} of them relevant (a grade above 0)."]
    bullets += [
        f"Judgements of {UNKNOWN_LABELS[reason]} that the collection lacks: {count(n)}."
        for reason, n in labels.unknown.items()
        if n
    ]
    bullets.append(COUNTED_ONCE_NOTE)
    for source in audit.sources:
        parts = {
            "queries without judgements, left out": source.n_unjudged_queries,
            "negatives of these queries": source.n_of_unjudged_queries,
            "negatives that are not in the collection, so that no label can match": source.n_outside,
        }
        shown = [f"{what}: {count(n)}" for what, n in parts.items() if n]
        bullets += [f"{named(source.name)}, {'; '.join(shown)}."] if shown else []
    return Section(anchor="labels", title="Labels", bullets=tuple(bullets))


AUDIT_FORMATS = formats(audit_page, json_of)


# The screen of `secid compare` shows the conclusion first, then the comparisons that differ from chance.

LEGEND = {
    "tau": "Kendall's τ-b, −1 to 1: 1 is the order of the metric, −1 its reverse.",
    "regret": "loss in the metric if you use the source that the number puts first, 0 or more; lower is better.",
    "ECI_sem": EXPLANATIONS["ECI_sem"],
    "ECI at B": EXPLANATIONS["ECI_B"],
    "weight": SETTING_MEANINGS["weight"][1],
    **{name: EXPLANATIONS[name] for name in ("gradient energy", "MNRL loss", "ambiguity", "pair, record")},
    "--json": "adds Spearman, pairs in order and the intervals of every number.",
}
ONE_COLUMN_ADVICE = (
    "Results of a single split and a single training run prove nothing. Add a column for each further split and run."
)
SEVERAL_COLUMNS_ADVICE = (
    "Trust an order only if it holds across several splits and training runs. Several metrics of one run count as one "
    "result."
)
LEAKAGE_ADVICE = (
    "Make sure that no test query shares a relevant passage with a training query: `secid check TRAINING_FILES "
    "--against-eval EVALUATION_FOLDER` counts such passages (eval_passage, as positives)."
)
PROBE_METRIC_NOTE = (
    "The probe is a short training. Its folds share no relevant passage. Sources that it ties have no order that a "
    "number could agree with."
)


def conclusion(items: Sequence[Agreement]) -> str:
    """Return sentences on what these results can show. Source: METHOD 5, 12."""
    return " ".join(filter(None, (abstention(items), chance(items), choice_advice(items))))


def abstention(items: Sequence[Agreement]) -> str:
    """Return sentences on the learning rates at which the probe ranks nothing, and why; "" if it ranks at all rates."""
    reasons = {item.metric: item.abstained for item in items if item.abstained}
    if not reasons:
        return ""
    whys = listed([f"{reason_text(reason)} ({metric})" for metric, reason in reasons.items()])
    return f"The probe does not rank the sources: {whys}. So these gains have no established order and no best source."


def choice_advice(items: Sequence[Agreement]) -> str:
    """Return sentences on the results that are needed to choose a source."""
    n_columns = len({item.metric for item in items})
    if items and all(item.metric.startswith(PROBE_METRIC) for item in items):
        return PROBE_METRIC_NOTE
    return f"{ONE_COLUMN_ADVICE if n_columns == 1 else SEVERAL_COLUMNS_ADVICE} {LEAKAGE_ADVICE}"


def chance(items: Sequence[Agreement]) -> str:
    """Return a sentence with the numbers that differ from chance (exact permutation test of Kendall's tau, Holm).

    With few sources no number can differ from chance; then the sentence says so.
    """
    n_sources = max((item.n_sources for item in items), default=0)
    compared = plural(len(items), "comparison")
    if 2 * len(items) / factorial(n_sources) >= ERROR_RATE:
        return (
            f"With {plural(n_sources, 'source')} and {compared}, even perfect agreement would not differ significantly "
            "from chance. So these results cannot show which number to trust."
        )
    unlike = unlike_chance(items)
    names = ", ".join(dict.fromkeys(plain(number_name(item.number)) for item in unlike))
    first = "Comparisons that differ significantly from chance (permutation test, Holm)"
    return f"{first}: {count(len(unlike))} of {count(len(items))}{f' ({names})' if names else ''}."


def agreement_screen(items: Sequence[Agreement], legend: bool = False) -> Screen:
    """Show the conclusion, and a table for each metric with the comparisons that differ from chance."""
    unlike, abstained = unlike_chance(items), abstention(items)
    shown = [item for item in items if legend or item in unlike]
    metrics = dict.fromkeys(item.metric for item in shown)
    return screen(
        (strong(abstained), chance(items) if abstained else strong(chance(items)), choice_advice(items)),
        *(_of_metric([item for item in shown if item.metric == metric]) for metric in metrics),
        (
            "" if legend else f"--legend prints {plural(len(items), 'comparison')} and explains the numbers.",
            *(f"{term}: {meaning}" for term, meaning in LEGEND.items() if _is_shown(term, shown, legend)),
        ),
    )


def _is_shown(term: str, shown: Sequence[Agreement], legend: bool) -> bool:
    """Return True to explain a term: with the legend, if it is in the tables; without it, only the budget."""
    names = [number_name(item.number) for item in shown]
    if not legend:
        return term == "ECI at B" and any(name.startswith(term) for name in names)
    if term == "pair, record":
        return any(name.endswith((", pair", ", record")) for name in names)
    return term in ("tau", "regret", "--json") or any(name.startswith(term) for name in names)


def _of_metric(items: Sequence[Agreement]) -> tuple[ScreenBlock | str, ...]:
    first = items[0]
    best = ", no single best" if first.best is None else f", best is {named(first.best)}"
    sources = plural(first.n_sources, "source")
    head = f"{plain(first.metric)}: {sources}{'' if first.abstained else best}"
    return strong(head), _intervals(first), _table(items)


def _intervals(item: Agreement) -> str:
    """Format the 95 % CI for the score that the run ranks by; "" without errors."""
    parts = (
        ("tau", item.kendall_interval_95, "+.2f"),
        ("Spearman", item.spearman_interval_95, "+.2f"),
        ("regret", item.regret_interval_95, ".3g"),
    )
    known = [f"{name} {_written(ends[0], form)} to {_written(ends[1], form)}" for name, ends, form in parts if ends]
    return f"95{NO_BREAK_SPACE}% CI of {plain(number_name(item.number))}: {', '.join(known)}" if known else ""


def _table(items: Sequence[Agreement]) -> Table:
    rows = tuple(
        (
            plain(number_name(item.number)),
            "several tie" if item.first is None else plain(item.first),
            _written(item.kendall_tau_b, "+.2f"),
            _written(item.top_1_regret, ".3g"),
        )
        for item in items
    )
    columns = (foreign("number"), foreign("puts first"), number("tau"), number("regret"))
    return Table(caption="Agreement with the results", columns=columns, rows=rows)


def number_name(name: str) -> str:
    """Return a number's name in words. name: a key, such as "weight no_residual" or "mnrl_loss_pair"."""
    kind, _, rest = name.partition(" ")
    if kind == "weight":
        setting, space, at = rest.partition(" ")
        return f"weight: {display_name(setting)}{space}{at}"
    for form in ("pair", "record"):
        if name.endswith(f"_{form}"):
            return f"{name.removesuffix(f'_{form}').replace('_', ' ').replace('mnrl', 'MNRL')}, {form}"
    return name


def _written(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}".replace("-", "−")


# The page and the screen of a probe.


def probe_page(probe: Probe) -> Page:
    return Page(
        title="Probe: which source trains better",
        subtitle=f"{plural(len(probe.files), 'file')}, encoder {named(probe.encoder.name)}",
        verdict=verdict(probe),
        answer=gains_table(probe),
        pictures=tuple(filter(None, (gains_chart(probe),))),
        details=(details(probe),),
        footer=f"Made by secid {plain(probe.secid_version)}, probe schema {plain(probe.schema_version)}.",
    )


PROBE_FORMATS = formats(probe_page, json_of)


def probe_screen(probe: Probe) -> Screen:
    return screen(
        (strong(probe_headline(probe)), *cautions(probe)), (gains_table(probe),), (*protocol(probe), scope(probe))
    )
