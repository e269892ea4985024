"""The table of `secid compare` for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from secid.pages.sanitize import plain
from secid.pages.trimmed import Trimmed
from secid.results import Agreement
from secid.settings import in_words

SHARED = "(several tie)"
LEGEND = (
    "Kendall tau and Spearman: -1 reversed, 1 the same order. pairs: those that the number orders as the metric does, "
    "of all. Regret, 0 or more, lower is better: what is lost of the metric by taking the source that the number puts "
    "first. In brackets: intervals that hold the true value with a chance of 95 % or more, where errors are known: "
    "those of the metric, and for the correlations of the score that the run ranks by those of the scores. Where "
    "sources differ in size, scores beyond B = 1 are those on equal numbers; where they cannot be cut to "
    "these, only the run's own budget is compared."
)

ONE_COLUMN = (
    "There is only one result for each source: if it comes from one split and one training run, it proves nothing, "
    "however narrow the intervals are. Give one column for each split and run."
)
SEVERAL_COLUMNS = (
    "Each column of results was compared separately. Trust an order only if it holds across several splits and several "
    "training runs; several metrics of one run count as one result."
)
LEAKAGE = (
    "Before you trust any result, make sure that no test query shares a relevant passage with a training query. "
    "`secid check TRAINING_FILES --against-eval EVALUATION_FOLDER` counts such passages: eval_passage, as positives."
)


def conclusion(found: Sequence[Agreement]) -> str:
    """How far these results can be trusted, from the number of columns they came in. Source: METHOD 5, 12."""
    columns = {item.metric for item in found}
    return f"{ONE_COLUMN if len(columns) == 1 else SEVERAL_COLUMNS} {LEAKAGE}"


def table(found: Sequence[Agreement]) -> RenderableType:
    """One table a metric, the numbers in the order of the run, with intervals below them; then the conclusion."""
    parts: list[RenderableType] = []
    for metric in dict.fromkeys(item.metric for item in found):
        rows = [item for item in found if item.metric == metric]
        shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
        shown.add_column("number, what it puts first", overflow="fold", min_width=12)
        for name in ("Kendall tau", "Spearman", "pairs", "regret"):
            shown.add_column(name, justify="right", no_wrap=True)
        for item in rows:
            shown.add_row(
                Text(f"{plain(number_name(item.number))}\n  {SHARED if item.first is None else plain(item.first)}"),
                _with_interval(item.kendall_tau_b, item.kendall_interval_95, "+.2f"),
                _with_interval(item.spearman_rho, item.spearman_interval_95, "+.2f"),
                f"{item.n_pairs_alike}/{item.n_pairs}",
                _with_interval(item.top_1_regret, item.regret_interval_95, ".3g"),
            )
        best = "no single best" if rows[0].best is None else f"best {rows[0].best}"
        head = f"{metric}: {rows[0].n_sources} sources, {best}"
        parts += [Text(plain(head), style="bold"), shown, Text("")]
    return Trimmed(Group(*parts, Text(f"Conclusion: {conclusion(found)}"), Text(""), Text(LEGEND)))


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


def _with_interval(value: float | None, interval: tuple[float, float] | None, form: str) -> Text:
    if value is None:
        return Text("-")
    ends = "" if interval is None else f"\n[{interval[0]:{form}}, {interval[1]:{form}}]"
    return Text(f"{value:{form}}{ends}", justify="right")
