"""Where training objectives would put their gradient on each source."""

from __future__ import annotations

from secid.pages.glossary import terms
from secid.pages.numbers import count, nats, percent
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.sanitize import named, plain
from secid.results import ObjectiveResult, Run

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
    "lse_pair_max_p": "LSEPair on the strongest positive alone, the easiest of the labels.",
    "lse_pair_max_n": "LSEPair on the nearest negative alone: a false negative takes all of its record's gradient.",
    "lse_pair_min_p": "LSEPair on the weakest positive alone, which may be a wrong label.",
    "lse_pair_min_p_max_n": "the weakest positive against the nearest negative: the hardest pair of each record alone.",
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


def objectives_section(run: Run) -> Section | None:
    """A row for each source and objective; None for a run without --objectives."""
    lens = run.objectives
    if lens is None:
        return None
    items = lens.objectives
    classes = [name for name in CLASSES if any(name in item.gradient_shares for item in items)]
    allocated = any(item.strongest_positive is not None for item in items)
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
        for item in items
    )
    used = dict.fromkeys(item.objective for item in items)
    return Section(
        anchor="objectives",
        link="Objectives",
        title="Where training objectives would put their gradient",
        paragraphs=(_extremes(items),),
        tables=(
            Table(
                caption=f"Loss, and shares of the gradient, at the frozen scores; margin: {percent(lens.margin)} "
                "of the positive's score",
                columns=(foreign("source"), text("objective"), *map(number, heads)),
                rows=rows,
            ),
        ),
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


def _shares(classes: list[str], *, allocated: bool) -> str:
    suspects = ", are suspects by the guide" if "suspect" in classes else ""
    ends = " Positives: the part on the best- and the worst-scored one of records with several." if allocated else ""
    return (
        f"part of the negatives' gradient, 0 to 100 %, on those that outscore their positive, copy a labelled "
        f"positive, score within the margin of it{suspects}, or are valid: none of these and no defect.{ends}"
    )


def _extremes(items: tuple[ObjectiveResult, ...]) -> str:
    """Where outscoring negatives take most and least of the gradient."""
    shares = [(share, item) for item in items if (share := item.gradient_shares.get("inversion")) is not None]
    if not shares:
        return "No objective has a gradient on these negatives."
    (least, low), (most, high) = (choose(shares, key=lambda pair: pair[0]) for choose in (min, max))
    return (
        f"Negatives that outscore their positive take from {percent(least)} of the gradient ({_place(low)}) to "
        f"{percent(most)} ({_place(high)}); where these are false negatives, training learns what is wrong."
    )


def _place(item: ObjectiveResult) -> str:
    return f"{NAMES.get(item.objective, plain(item.objective))} on {named(item.source)}"
