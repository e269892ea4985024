"""What each number means, said once: its range, its unit, and which way is better."""

from __future__ import annotations

import re

from secid.pages.numbers import budget as budget_text
from secid.pages.numbers import fraction, listed, plural
from secid.pages.sanitize import named, plain
from secid.results import BudgetPoint, ControlResult, EncoderInfo, Measurement, Run, SourceResult, control_name
from secid.results.catalogue import FINDINGS

CAUTION = (
    "The score prefers negatives that the encoder ranks safely below the positive and that lie near it; it does not "
    "reward hardness. In our measurements random passages scored highest on four collections of four, and relevant "
    "passages offered as negatives outscored BM25 on three of them. Whether this score, or any training-free number, "
    "predicts what training on a source gives is an open question: our experiments without leakage between training "
    "and test queries (two collections, short training) established no difference between sources. Read the rank "
    "together with the controls, the findings and the intervals."
)
EXPLANATIONS = {
    "ECI_sem": "log det(I + M), in nats, from 0 to tr M. Higher ranks first: more negatives that the encoder "
    "sees as safe, "
    "near the positive and not word-alike, in more directions. M is the mean of weight times direction squared.",
    "95 % interval": "95 % confidence interval, in nats; queries are the sampling unit. Narrower is surer.",
    "rank": "place by score, 1 or more; 1 is the highest and best.",
    "rank group": (
        "sources with the same number are statistically tied, 1 or more; 1 is the highest and best. The order of "
        "groups is established; within one, see the table of pairs."
    ),
    "P(first)": "chance of the highest score among these sources, 0 to 100 %, given the sampling of queries alone; "
    "nearer to 100 % is surer.",
    "new texts": "texts that are in no source and are encoded for the control alone, 0 or more; fewer cost less.",
    "negatives": "triplets (query, positive, negative) scored; up to B = 1 a higher count only narrows the interval, "
    "beyond it moves the score, so ranks there go by equal numbers.",
    "queries": "distinct queries, 1 or more: the sampling unit; more of them narrow the intervals.",
    "tr M": "the mean weight, in which a copy of the positive counts 0, 0 to 1 and higher is more: the score is "
    "at most this, and usually within 1 % of it.",
    "π": "target consistency, 0 to 1: probability that the encoder prefers the positive to the negative. "
    "Near 1 the negative is easy, below ½ it outscores the positive.",
    "ρ": (
        "semantic locality, 0 to 1: above ½ the negative lies nearer to the positive than to the query; the "
        "score rewards more."
    ),
    "c": "lexical coverage, 0 to 1: IDF share of the query's words that the negative repeats; the score rewards less.",
    "c of positives": (
        "the same of the scored positives, 0 to 1: what coverage is normal in these texts; neither way is better."
    ),
    "weight": "π · ρ · (1 − c), 0 to 1: what a negative adds to the score; higher counts more. A copy of the positive "
    "has no direction: it adds weight, and nothing to M or the score.",
    "P(π < ½)": "inversions: share of negatives that outscore the positive, 0 to 100 %. Fewer is safer: they are false "
    "negatives, or exactly what training would correct.",
    "Holm p": "two-sided p value of the difference, 0 to 1, raised for the number of pairs; below 0.05 the "
    "order counts as "
    "established. Lower is surer; read it with the interval.",
    "queries for 80 %": "distinct queries, 1 or more, with which a true difference of this size would be found "
    "four times "
    "in five; fewer is better.",
    "difference": "first score minus second, of two sources or of a source and a control, in nats, over the queries "
    "that both have, with its 95 % interval: above 0 the first scores higher; where the interval holds 0, neither is "
    "shown to.",
    "queries shared": "queries that both sources have, 0 or more; more make the difference surer.",
    "negatives in a bin": "count of a source's negatives whose gate or weight lies from this value to the next, 0 or "
    "more; neither way is better.",
    "negatives with both": "negatives that have two findings at once, 0 or more; fewer is better, as for each finding.",
    "cosine": "product of two unit vectors, −1 to 1; nearer to 1 the texts are more alike to the encoder. "
    "s_pn is that of positive and negative.",
    "IDF of a word": "its rarity in the scoring corpus, 1 or more; the higher, the more it counts in c.",
    "share": "share of a source's negatives that have the finding, 0 to 100 %, of a finding of the texts among those "
    "that its records list, else among those scored. Findings overlap; fewer is better, unless you know why.",
    "95 % CI of the share": "95 % confidence interval, 0 to 100 %; queries are the sampling unit. Narrower is surer.",
    "share of weight": "share of a source's total weight that negatives with the finding hold, 0 to 100 %; the higher, "
    "the more of the score rests on it, but for copies of the positive: they have weight, and no part of the score.",
    "part of the score": "what negatives with the finding hold of the score, to first order, in nats, 0 to the score; "
    "the parts of findings that overlap add up to more.",
    "hardness": "how near negatives are to their query: 0 as random passages, 1 as the positives. In brackets its 95 % "
    "confidence interval. Higher is harder; it says nothing of false negatives.",
    "ECI_B": "log det(I + B·M), in nats, 0 or more, higher is more: the score of B negatives drawn from the "
    "source. Small B "
    "goes by total weight, large B by variety.",
    "B = N": "the budget of as many negatives as the source has, 1 or more; neither way is better.",
    "relative to the highest": "ECI_B over the highest of a source at that budget, 0 to 1 for sources; nearer to 1 is "
    "nearer to the lead.",
    "shortfall": "how much a sample of this size understates ECI_B on average, in nats, 0 or more; smaller is better.",
    "order": "the sources by score under the setting, highest and best first, each by its rank in this run, 1 or more.",
    "stability": "share of source pairs ordered as in this run, 0 to 1; of several runs, as in the first. Nearer to 1 "
    "the order is steadier.",
    "shade": "place of a score between the lowest and the highest of its row, 1 to 10: deeper is higher.",
    "range": "highest minus lowest score of a source over the settings, in nats, 0 or more; smaller is steadier.",
    "pair, record": "forms of a proxy: of 1 negative at a time, or of all negatives of a record at once; neither is "
    "better.",
    "gradient energy": (
        "mean squared length of the loss gradient on the query, 0 or more; others rank by it, higher first."
    ),
    "MNRL loss": "mean contrastive loss at this temperature, in nats, 0 or more; others rank by it, higher is harder.",
    "ambiguity": (
        "share of pairs or records in which a negative outscores the positive, 0 to 100 %; others rank "
        "by it, higher is harder."
    ),
    "effective rank": (
        "number of directions that carry the weight, 1 to the dimension of the vectors; higher is more varied."
    ),
    "diversity fraction": "1 − ECI_sem/tr M, 0 to 100 %: what repeated directions take off tr M. Near 0 ECI_sem is tr "
    "M, a mean weight, and says nothing of variety; of ECI_B at larger budgets it does not speak.",
    "‖M‖": "Frobenius norm of M, 0 to tr M; nearer to tr M means fewer directions.",
    "eigenvalue share": "share of tr M on one direction, 0 to 100 %, largest first; flatter is more varied.",
    "shared": "queries and documents in both sources over the smaller one's, 0 to 100 %; neither way is better.",
    "rows, records": "counts, 0 or more; the more of the rows read are used, the better.",
    "same negatives": "mean Jaccard overlap of the negatives of shared queries, 0 to 1; near 1 both give those "
    "queries the same. Few shared queries say little of the sources.",
}
DRAWN = frozenset({"negatives in a bin", "relative to the highest", "shade"})
"""Terms of numbers that stand on the HTML page alone: in shades, and in the tables behind charts."""
SETTINGS = {
    "temperature": (
        "temperatures",
        (
            "τ, above 0, by which differences of cosines are divided in π and ρ: a low one makes both near 0 or "
            "1; neither way is better."
        ),
    ),
    "tokenizer": (
        "tokenizers",
        (
            "what counts as a word in c. Alphanumeric: runs of letters and digits; ≥ 2: of two or more. White "
            "space: what stands between it. Character trigrams: windows of three characters. Words of any script: "
            "alphanumeric with vowel signs kept, scripts without spaces in pairs of characters. Word pieces: the "
            "encoder's own."
        ),
    ),
    "idf": (
        "IDF corpora",
        (
            "the texts over which the IDF of a word in c is counted. Pooled documents: of all sources; own: of "
            "the source; pooled queries + documents: both. Uniform weights: every word counts 1."
        ),
    ),
    "weight": (
        "weights",
        (
            "what each direction is multiplied by. Full: π · ρ · (1 − c), and “without” leaves one factor out. "
            "Residual only: 1 for every negative. Margin hardness: 1 − π. Fisher: 4 · π · (1 − π) · ρ · (1 − c). "
            "Gradient-weighted: ((1 − π)/τ)² times the squared distance of positive and negative, which has no "
            "upper end, so it is divided by its mean over all sources of the run. Scores under other weights are "
            "other numbers: compare orders alone."
        ),
    ),
    "sample": (
        "samples",
        ("shares of the run's queries that are scored, above 0 to 100 %, each within the next; larger ones are surer."),
    ),
    "encoder": ("encoders", "models whose vectors are scored, each by its own recipe; compare orders alone."),
}
"""What an ablation varies: the plural, and what its settings are."""
CONTROL_MEANINGS = {
    "random": (
        "passages of other queries, drawn at random. A source below it is not harder in a way that this score sees."
    ),
    "known_positive": (
        "other labelled positives of the query, passed off as negatives. The score should be low, and often is not."
    ),
    "shuffled": "the source's own negatives dealt to other queries: its style without its relation to the query.",
    "query_echo": "the query itself as the negative. Its score is 0 by construction.",
    "bm25_pool": "the best passages of the run's own texts by BM25. A source that does not differ adds cost and "
    "nothing that this "
    "score sees.",
    "dense_pool": "the same by the encoder.",
}


def terms(*names: str) -> tuple[tuple[str, str], ...]:
    """The named explanations, in order. A page says each once, where it is first needed."""
    return tuple((name, EXPLANATIONS[name]) for name in names)


def brief(name: str) -> str:
    """What a number is, and its range, without what follows from it."""
    return re.split("[.;]( |$)", EXPLANATIONS[name])[0]


def kind_name(kind: str) -> str:
    """A kind of control as pages write it."""
    return plain(control_name(kind, None))


def told_control(control: ControlResult) -> str:
    """A control for a table."""
    kind = plain(control.kind)
    return control_name(kind, None if control.of is None else named(control.of))


def score_name(run: Run) -> str:
    """The number that the ranking is made by."""
    return "ECI_sem" if run.budget == 1.0 else f"ECI at B = {budget_text(run.budget)}"


def compares(run: Run, control: ControlResult, at: float) -> bool:
    """Whether a control's ECI_B may stand beside the sources': up to B = 1, or with as many negatives as each."""
    numbers = [run.equal_numbers] if run.equal_numbers else run.sources
    return at <= 1.0 or {item.n_triplets for item in numbers} == {control.n_triplets}


def equal_numbers(run: Run) -> str:
    """The numbers that sources are compared on beyond budget 1, where their own differ; else ""."""
    numbers = run.equal_numbers
    if numbers is None:
        return ""
    return f"{plural(numbers.n_queries, 'query', 'queries')} and {plural(numbers.n_triplets, 'negative')} of each"


def score_point(item: Measurement, budget: float) -> BudgetPoint:
    """Score, interval and bias at a budget, those that a source is ranked by: beyond budget 1 on equal numbers. Those
    of B = 1 where the curve lacks the budget.
    """
    for point in item.compared_curve if budget > 1.0 and isinstance(item, SourceResult) else item.budget_curve:
        if point.budget == budget:
            return point
    return BudgetPoint(budget=1.0, nats=item.eci_nats, interval_95=item.interval_95, bias_nats=item.bias_nats)


def skipped_lines(run: Run) -> list[str]:
    """A line per source that left something out: rows by reason, then negatives by reason."""
    lines = []
    for source in run.sources:
        rows = ", ".join(f"{in_plain_words(reason)} ({count})" for reason, count in source.skipped.items())
        dropped = source.dropped_negatives.items()
        negatives = ", ".join(f"{in_plain_words(reason)} ({count})" for reason, count in dropped)
        parts = [f"rows: {rows}" if rows else "", f"negatives: {negatives}" if negatives else ""]
        if any(parts):
            lines.append(f"{named(source.name)}: left out " + "; ".join(filter(None, parts)))
    return lines


def missing_lines(run: Run, of: str = "", besides: str = "") -> list[str]:
    """A line per part that was not evaluated, with the reason. of, besides: the first word of those named, left out."""
    return [
        f"{part_name(name)}: not evaluated: {plain(reason)}"
        for name, reason in run.not_evaluated.items()
        if (not of or name.split()[:1] == [of]) and (not besides or name.split()[:1] != [besides])
    ]


def hardness_text(source: SourceResult) -> str:
    """Hardness with its confidence interval, for a table."""
    if source.hardness is None:
        return "–"
    ends = source.hardness_interval_95
    within = "" if ends is None else f"\n({fraction(ends[0])} to {fraction(ends[1])})"
    return f"{fraction(source.hardness)}{within}"


def rule_of(name: str, run: Run) -> str:
    """The rule of a finding, with the settings of this run that are thresholds in it."""
    entry = FINDINGS.get(name)
    if entry is None:
        return "–"
    given = [f"{in_plain_words(key)} {run.settings[key]['value']}" for key in entry.settings if key in run.settings]
    return f"{entry.rule}; here {listed(given)}" if given else entry.rule


def part_name(name: str) -> str:
    """A part of a run, such as `control known_positive`, as pages write it."""
    return in_plain_words(name)


def in_plain_words(name: str) -> str:
    """A name such as `duplicate_negative`, as report.json has it, in words."""
    return plain(name.replace("_", " "))


def recipe_line(encoder: EncoderInfo) -> str:
    """The encoder in one line."""
    prefixes = f"query prefix {encoder.query_prefix!r}, passage prefix {encoder.passage_prefix!r}"
    return plain(
        f"{encoder.name}: {encoder.pooling} pooling, {prefixes}, max length {encoder.max_length}, "
        f"{'unit' if encoder.normalize else 'raw'} vectors of {encoder.dim}, {encoder.dtype} on {encoder.device}"
    )
