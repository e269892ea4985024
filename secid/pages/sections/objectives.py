"""Show the gradient of training losses on each source, and the effect of more passages per record."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from secid.analyses.objectives import ObjectiveLens, ObjectiveResult, RecordSize
from secid.pages.glossary import terms
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.text import count, named, nats, percent, plain, plural, score_text, span
from secid.results import Run

OBJECTIVE_NAMES = {
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
OBJECTIVE_SENTENCES = {
    "single_lh": "softmax of the scored positive against the record's negatives (SingleLH). The nearest negatives get "
    "most of the gradient.",
    "rand1_lh": "InfoNCE with one labelled positive drawn at random. The numbers are expectations over the draw.",
    "joint_lh": "mean log-likelihood of all positives in one softmax. It pulls weak positives more than strong ones, "
    "so that their scores become more equal.",
    "sum_marg_lh": "likelihood of any positive. The strongest positive gets most of the gradient, and weak ones get "
    "little.",
    "lse_pair": "log-sum over all pairs of a positive and a negative. The weakest positive gets most of the gradient.",
    "lse_pair_max_p": "LSEPair with only the strongest positive, the easiest label.",
    "lse_pair_max_n": "LSEPair with only the nearest negative. A false negative gets all of its record's gradient.",
    "lse_pair_min_p": "LSEPair with only the weakest positive, which may be a wrong label.",
    "lse_pair_min_p_max_n": "LSEPair with only the weakest positive and the nearest negative, the hardest pair of each "
    "record.",
    "mw": "logistic loss over all pairs of all queries. It also compares scores of different queries; a softmax for "
    "each record does not.",
    "gist": "InfoNCE without the negatives that the guide scores above the positive.",
}
"""Description of each objective."""
CLASS_NAMES = {
    "inversion": "on outscoring",
    "copy": "on copies",
    "margin": "within margin",
    "suspect": "on suspects",
    "valid": "on valid",
}
TWICE_THE_QUERIES = 1.0 - sqrt(0.5)
"""Share by which an interval gets narrower with twice the queries. Its width is proportional to 1 / sqrt(queries)."""

NO_SECOND_POSITIVE_NOTE = (
    "The effect of a second positive per record cannot be estimated, because no record lists two. Positives of qrels "
    "count only if a record lists them."
)


def objectives_section(_: Run, lens: ObjectiveLens) -> Section:
    """Show a table by source and objective, and one by number of passages per record."""
    items = lens.objectives
    classes = [name for name in CLASS_NAMES if any(name in item.gradient_shares for item in items)]
    allocated = any(item.strongest_positive is not None for item in items)
    used = dict.fromkeys(item.objective for item in items)
    return Section(
        anchor="objectives",
        title="How training losses would spread their gradient",
        paragraphs=(_extremes(items), next_label(lens)),
        tables=(_by_objective(lens, classes, allocated=allocated), _by_size(lens.sizes)),
        terms=(
            *((OBJECTIVE_NAMES[name], OBJECTIVE_SENTENCES[name]) for name in used if name in OBJECTIVE_NAMES),
            ("shares of the gradient", _shares(classes, allocated=allocated)),
            (
                "effective negatives",
                "number of negatives that share the gradient, 1 to all (exp of its entropy); if low, few rows decide.",
            ),
            *terms("outscoring"),
        ),
    )


def _by_objective(lens: ObjectiveLens, classes: list[str], *, allocated: bool) -> Table:
    ends = ("strongest positive", "weakest positive") if allocated else ()
    heads = ("loss (nats)", *(CLASS_NAMES[name] for name in classes), "effective negatives", *ends)
    rows = tuple(
        (
            plain(item.source),
            OBJECTIVE_NAMES.get(item.objective, plain(item.objective)),
            nats(item.loss_nats),
            *(percent(item.gradient_shares.get(name)) for name in classes),
            count(item.effective_negatives),
            *(percent(share) for share in (item.strongest_positive, item.weakest_positive)[: len(ends)]),
        )
        for item in lens.objectives
    )
    margin = percent(lens.margin)
    caption = f"Loss and shares of the gradient with the frozen encoder; margin: {margin} of the positive's score"
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
    columns = (foreign("source"), text("used"), *map(number, heads))
    objective = "JointLH" if any(item.n_positives for item in sizes) else "InfoNCE"
    of = f"at most {count(n_queries)} queries, gradient of {objective}"
    caption = f"Results with only the first passages of each record, as listed ({of})"
    return Table(caption=caption, columns=columns, rows=rows)


def _shares(classes: list[str], *, allocated: bool) -> str:
    suspects = " on those that the guide suspects," if "suspect" in classes else ""
    text = (
        "share of the negatives' gradient, 0 to 100 %, on negatives that score above their positive, on copies of a "
        f"labelled positive, on those within the margin below it,{suspects} and on valid negatives, which have none of "
        "these properties and no defect."
    )
    if allocated:
        return f"{text} For positives: the share on the strongest and the weakest, in records with several."
    return text


def _extremes(items: tuple[ObjectiveResult, ...]) -> str:
    """Return a sentence on the objectives with the smallest and the largest gradient on outscoring negatives."""
    shares = [(share, item) for item in items if (share := item.gradient_shares.get("inversion")) is not None]
    if not shares:
        return "No objective has a gradient on these negatives."
    least, most = (
        f"{percent(share)} ({OBJECTIVE_NAMES.get(item.objective, plain(item.objective))} on {named(item.source)})"
        for share, item in (choose(shares, key=lambda pair: pair[0]) for choose in (min, max))
    )
    return (
        f"Share of the gradient on negatives that score above their positive: from {least} to {most}. If these are "
        "false negatives, training pushes relevant passages away from the query."
    )


def _used(item: RecordSize) -> str:
    if item.n_positives is not None:
        return f"first {plural(item.n_positives, 'positive')}"
    return f"first {plural(item.n_negatives or 0, 'negative')}"


def next_label(lens: ObjectiveLens) -> str:
    """Return sentences on what to label next: how much more queries or passages narrow the intervals."""
    positives = [part for item in lens.narrowing if (part := item.one_more_positive) is not None]
    negatives = [part for item in lens.narrowing if (part := item.one_more_negative) is not None]
    several, width = any(item.n_positives is not None for item in lens.sizes), percent(TWICE_THE_QUERIES)
    sentences = (
        f"Label new queries first. Twice the queries narrow the confidence interval by {width}.",
        f"One more positive for each record narrows it by {span(positives)}." if positives else "",
        "" if several else NO_SECOND_POSITIVE_NOTE,
        f"One more negative for each query needs no label and narrows it by {span(negatives)}." if negatives else "",
    )
    return " ".join(filter(None, sentences))
