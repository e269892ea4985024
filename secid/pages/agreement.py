"""The text of `secid compare`: the conclusion first, then the comparisons that differ from chance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import factorial
from operator import itemgetter

from rich.console import Console

from secid.pages.glossary import EXPLANATIONS, SETTINGS, why_not
from secid.pages.numbers import SPACE, count, plural
from secid.pages.page import Table, foreign, number
from secid.pages.sanitize import named, plain
from secid.pages.terminal import print_table, write
from secid.results import Agreement
from secid.results.orders import PROBE_METRIC
from secid.settings import in_words

ALPHA = 0.05
LEGEND = {
    "tau": "Kendall's τ-b, −1 to 1: 1 is the order of the metric, −1 its reverse.",
    "regret": "what the metric loses where the source is used that the number puts first, 0 or more; lower is better.",
    "ECI_sem": EXPLANATIONS["ECI_sem"],
    "ECI at B": EXPLANATIONS["ECI_B"],
    "weight": SETTINGS["weight"][1],
    **{name: EXPLANATIONS[name] for name in ("gradient energy", "MNRL loss", "ambiguity", "pair, record")},
    "--json": "adds Spearman, pairs in order and the intervals of every number.",
}
ONE_COLUMN = (
    "One result for each source, if from one split and one training run, proves nothing: give one column for each "
    "split and run."
)
SEVERAL_COLUMNS = (
    "Trust an order only if it holds across several splits and training runs; several metrics of one run count as one "
    "result."
)
LEAKAGE = (
    "Make sure that no test query shares a relevant passage with a training query: `secid check TRAINING_FILES "
    "--against-eval EVALUATION_FOLDER` counts such passages (eval_passage, as positives)."
)
OF_PROBE = (
    "The probe is a short training, in folds that share no relevant passage: sources that it ties have no order for a "
    "number to agree with."
)


def conclusion(items: Sequence[Agreement]) -> str:
    """What these results can show, from the number of sources, numbers and columns. Source: METHOD 5, 12."""
    return " ".join(filter(None, (abstention(items), chance(items), advice(items))))


def abstention(items: Sequence[Agreement]) -> str:
    """That the probe compared with ranks nothing, and why; "" where it does."""
    reason = next((item.abstained for item in items if item.abstained), None)
    if reason is None:
        return ""
    why = why_not(reason)
    return f"The probe abstains: {why}. The order of its gains is not established, and it names no best source."


def advice(items: Sequence[Agreement]) -> str:
    """What results a choice needs."""
    n_columns = len({item.metric for item in items})
    if {item.metric for item in items} == {PROBE_METRIC}:
        return OF_PROBE
    return f"{ONE_COLUMN if n_columns == 1 else SEVERAL_COLUMNS} {LEAKAGE}"


def chance(items: Sequence[Agreement]) -> str:
    """Which numbers differ from chance, if any could: exact permutation test of Kendall's tau, Holm."""
    n_sources = max((item.n_sources for item in items), default=0)
    compared = plural(len(items), "comparison")
    if 2 * len(items) / factorial(n_sources) >= ALPHA:
        return (
            f"With {plural(n_sources, 'source')} and {compared}, even perfect agreement would not differ significantly "
            "from chance: these results cannot show which number to trust."
        )
    unlike = unlike_chance(items)
    if not unlike:
        return f"None of {compared} differs significantly from chance (permutation test, Holm)."
    names = ", ".join(dict.fromkeys(plain(number_name(item.number)) for item in unlike))
    differ = f"differ{'s' if len(unlike) == 1 else ''} significantly from chance (permutation test, Holm)"
    return f"{count(len(unlike))} of {compared} {differ}: {names}."


def unlike_chance(items: Sequence[Agreement]) -> list[Agreement]:
    """The comparisons that differ significantly from chance, the smallest p value first."""
    by_p = sorted(items, key=lambda item: (permutation_p(item), number_name(item.number)))
    holds = (permutation_p(item) * (len(by_p) - place) < ALPHA for place, item in enumerate(by_p))
    return [item for item, _ in takewhile(itemgetter(1), zip(by_p, holds, strict=True))]


def permutation_p(item: Agreement) -> float:
    """Chance that a random order of the sources agrees or disagrees with the metric at least as much; 1.0 unknown.

    By the distribution of the number of reversed pairs over all orders; ties count as half a pair.
    """
    if item.kendall_tau_b is None:
        return 1.0
    orders = [1]  # orders by their number of reversed pairs
    for n in range(2, item.n_sources + 1):
        orders = [sum(orders[max(0, place - n + 1) : place + 1]) for place in range(len(orders) + n - 1)]
    most = len(orders) - 1
    n_extreme = int((1 - abs(item.kendall_tau_b)) / 2 * most + 1e-9)
    return min(1.0, 2 * sum(orders[: n_extreme + 1]) / factorial(item.n_sources))


def print_agreement(console: Console, items: Sequence[Agreement], legend: bool) -> None:
    """Prints the conclusion, and one table a metric with the comparisons that differ from chance in the run's order.

    legend: with every comparison, and what the numbers mean.
    """
    head = abstention(items)
    write(console, head, "bold")
    write(console, chance(items), "" if head else "bold")
    write(console, advice(items))
    unlike = unlike_chance(items)
    shown = [item for item in items if legend or item in unlike]
    for metric in dict.fromkeys(item.metric for item in shown):
        rows = [item for item in shown if item.metric == metric]
        best = ", no single best" if rows[0].best is None else f", best is {named(rows[0].best)}"
        best = "" if rows[0].abstained else best
        console.print()
        write(console, f"{plain(metric)}: {plural(rows[0].n_sources, 'source')}{best}", "bold")
        write(console, _intervals(rows[0]))
        print_table(console, _table(rows), heads=2)
    console.print()
    if not legend:
        write(console, f"--legend prints {plural(len(items), 'comparison')}, and what the numbers mean.")
    for term, meaning in LEGEND.items():
        if legend or any(item.number.startswith(f"{term} = ") for item in shown):
            write(console, f"{term}: {meaning}")


def _intervals(item: Agreement) -> str:
    """The 95 % CI of the score that the run ranks by, where errors are known."""
    parts = (
        ("tau", item.kendall_interval_95, "+.2f"),
        ("Spearman", item.spearman_interval_95, "+.2f"),
        ("regret", item.regret_interval_95, ".3g"),
    )
    known = [f"{name} {_written(ends[0], form)} to {_written(ends[1], form)}" for name, ends, form in parts if ends]
    return f"95{SPACE}% CI of {plain(number_name(item.number))}: {', '.join(known)}" if known else ""


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
    """A number of a run in words: "weight no_residual" and "mnrl_loss_pair" are keys."""
    kind, _, rest = name.partition(" ")
    if kind == "weight":
        setting, space, at = rest.partition(" ")
        return f"weight: {in_words(setting)}{space}{at}"
    for form in ("pair", "record"):
        if name.endswith(f"_{form}"):
            return f"{name.removesuffix(f'_{form}').replace('_', ' ').replace('mnrl', 'MNRL')}, {form}"
    return name


def _written(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}".replace("-", "−")
