"""Gradient of training objectives on each source, and what more passages a record would change."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from secid.analyses.objectives import ObjectiveLens, ObjectiveResult, RecordSize
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.text import count, named, nats, percent, plain, plural, score_text
from secid.results import Run

NAMES = {
    "single_lh": "InfoNCE",
    "rand1_lh": "Rand1LH",
    "joint_lh": "JointLH",
    "sum_marg_lh": "SumMargLH",
    "lse_pair": "LSEPair",
    "lse_pair_max_p": "LSEPair maxP",
    "lse_pair_max_n": "LSEPair maxN",
    "lse_pair_min_p": "LSEPair minP",
    "lse_pair_min_p_max_n": "LSEPair minP·maxN",
    "mw": "MW",
    "gist": "GIST-masked InfoNCE",
}
SENTENCES = {
    "single_lh": "softmax of the scored positive over the record's negatives (SingleLH): the nearest of them take "
    "the gradient.",
    "rand1_lh": "InfoNCE on one labelled positive drawn at random; the numbers are expectations over the draw.",
    "joint_lh": "mean log-likelihood of all positives in one softmax: it evens them out, pulling the weak and holding "
    "back the strong.",
    "sum_marg_lh": "likelihood of any positive: the strongest positive takes the gradient and weak ones are given up.",
    "lse_pair": "all pairs of a positive and a negative in one log-sum: the weakest positive takes the gradient.",
    "lse_pair_max_p": "LSEPair on only the strongest positive, the easiest of the labels.",
    "lse_pair_max_n": "LSEPair on only the nearest negative: a false negative takes all of its record's gradient.",
    "lse_pair_min_p": "LSEPair on only the weakest positive, which may be a wrong label.",
    "lse_pair_min_p_max_n": "the weakest positive against the nearest negative: only the hardest pair of each record.",
    "mw": "logistic loss over all pairs of all queries: it also compares scores between queries, which a softmax per "
    "record never sees.",
    "gist": "InfoNCE without the negatives that the guide flags.",
}
"""What each objective does, in one sentence."""
CLASSES = {
    "inversion": "on outscoring",
    "copy": "on copies",
    "margin": "within margin",
    "suspect": "on suspects",
    "valid": "on valid",
}
TWICE_THE_QUERIES = 1.0 - sqrt(0.5)
"""What as many queries again take off an interval: its width goes with one over the root of their number."""

NO_SECOND = (
    "What a second positive per record would bring cannot be estimated, because no record lists two; positives of "
    "qrels count once a record lists them."
)


def objectives_section(_: Run, lens: ObjectiveLens) -> Section:
    """Rows by source and objective, and by number of passages used."""
    items = lens.objectives
    classes = [name for name in CLASSES if any(name in item.gradient_shares for item in items)]
    allocated = any(item.strongest_positive is not None for item in items)
    used = dict.fromkeys(item.objective for item in items)
    return Section(
        anchor="objectives",
        link="Objectives",
        title="How training losses would spread their gradient",
        paragraphs=(_extremes(items), next_label(lens)),
        tables=(_by_objective(lens, classes, allocated=allocated), _by_size(lens.sizes)),
        terms=(
            *((NAMES[name], SENTENCES[name]) for name in used if name in NAMES),
            ("shares of the gradient", _shares(classes, allocated=allocated)),
            (
                "effective negatives",
                "negatives that share the gradient, 1 to all: exp of its entropy; with few, a few rows decide.",
            ),
            *terms("outscoring"),
        ),
    )


def _by_objective(lens: ObjectiveLens, classes: list[str], *, allocated: bool) -> Table:
    ends = ("strongest positive", "weakest positive") if allocated else ()
    heads = ("loss (nats)", *(CLASSES[name] for name in classes), "effective negatives", *ends)
    rows = tuple(
        (
            plain(item.source),
            NAMES.get(item.objective, plain(item.objective)),
            nats(item.loss_nats),
            *(percent(item.gradient_shares.get(name)) for name in classes),
            count(item.effective_negatives),
            *(percent(share) for share in (item.strongest_positive, item.weakest_positive)[: len(ends)]),
        )
        for item in lens.objectives
    )
    margin = f"margin: {percent(lens.margin)} of the positive's score"
    caption = f"Loss, and shares of the gradient, at the frozen scores; {margin}"
    columns = (foreign("source"), text("objective"), *map(number, heads))
    return Table(caption=caption, columns=columns, rows=rows)


def _by_size(sizes: Sequence[RecordSize]) -> Table:
    heads = ("negatives", "score ± CI", "outscoring", "within margin", "gradient on outscoring", "effective negatives")
    rows = tuple(
        (
            plain(item.source),
            _used(item),
            count(item.n_triplets),
            score_text(item.eci_nats, item.interval_95),
            percent(item.inversion_share),
            percent(item.margin_share),
            percent(item.gradient_on_inversions),
            count(item.effective_negatives),
        )
        for item in sizes
    )
    n_queries = max((item.n_queries for item in sizes), default=0)
    caption = f"With the first passages of each record only, as listed; at most {count(n_queries)} queries"
    columns = (foreign("source"), text("used"), *map(number, heads))
    objective = "JointLH" if any(item.n_positives for item in sizes) else "InfoNCE"
    return Table(caption=f"{caption}; gradient of {objective}", columns=columns, rows=rows)


def _shares(classes: list[str], *, allocated: bool) -> str:
    suspects = ", are suspects by the guide" if "suspect" in classes else ""
    ends = " Positives: the part on the best- and the worst-scored one of records with several." if allocated else ""
    return (
        f"part of the negatives' gradient, 0 to 100 %, on those that outscore their positive, copy a labelled "
        f"positive, score within the margin of it{suspects}, or are valid: none of these and no defect.{ends}"
    )


def _extremes(items: tuple[ObjectiveResult, ...]) -> str:
    """Name the objectives under which outscoring negatives take most and least of the gradient."""
    shares = [(share, item) for item in items if (share := item.gradient_shares.get("inversion")) is not None]
    if not shares:
        return "No objective has a gradient on these negatives."
    least, most = (
        f"{percent(share)} ({NAMES.get(item.objective, plain(item.objective))} on {named(item.source)})"
        for share, item in (choose(shares, key=lambda pair: pair[0]) for choose in (min, max))
    )
    return (
        f"Share of the gradient on negatives that outscore their positive: from {least} to {most}. If those are false "
        "negatives, training pushes relevant passages away."
    )


def _used(item: RecordSize) -> str:
    if item.n_positives is not None:
        return f"first {plural(item.n_positives, 'positive')}"
    return f"first {plural(item.n_negatives or 0, 'negative')}"


def next_label(lens: ObjectiveLens) -> str:
    """Say which annotation narrows the intervals most, and what one more passage a record would do."""
    positives = [part for item in lens.narrowing if (part := item.one_more_positive) is not None]
    negatives = [part for item in lens.narrowing if (part := item.one_more_negative) is not None]
    several, width = any(item.n_positives is not None for item in lens.sizes), percent(TWICE_THE_QUERIES)
    sentences = (
        f"Label new queries first: doubling the queries narrows the confidence interval by {width}.",
        f"One more positive for each record narrows it by {_range(positives)}." if positives else "",
        "" if several else NO_SECOND,
        f"One more negative for each query, which needs no label, narrows it by {_range(negatives)}."
        if negatives
        else "",
    )
    return " ".join(filter(None, sentences))


def _range(parts: Sequence[float]) -> str:
    low, high = percent(min(parts)), percent(max(parts))
    return low if low == high else f"{low} to {high}"
