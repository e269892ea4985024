"""Three sentences in plain words, made from the numbers by rule: who is first, what the controls say, what to mind.

Nothing is called better without its interval, and nothing first without saying whether that is established.
"""

from __future__ import annotations

from secid.report.findings import findings
from secid.report.foreign import named, plain
from secid.report.numerals import count, interval, listed, nats, p_text, plural
from secid.report.unstable import leader_kept, unstable
from secid.report.words import score_name, score_point
from secid.results import Against, Comparison, ControlResult, Run

WARNING_LIMIT = 400
MANY_QUERIES = 1_000_000
"""Beyond this a needed number of queries is as good as never."""


def verdict(run: Run) -> tuple[tuple[str, str], ...]:
    """(label, sentence) three times. Needs at least one source."""
    return (("Ranking", ranking(run)), ("Controls", controls(run)), ("Watch out", warning(run)))


def top(run: Run) -> tuple[tuple[str, str], ...]:
    """What stands first on a page: the verdict, and the pairs that change places where settings were varied."""
    told = unstable(run)
    return (*verdict(run), *([("Settings", told)] if told else []))


def ranking(run: Run) -> str:
    """Who is first, and whether that is established."""
    leader = run.sources[0]
    point = score_point(leader, run.budget)
    score = f"{score_name(run)} {nats(point.nats)} nats, 95 % interval {interval(point.interval_95)}"
    if len(run.sources) == 1:
        return f"{named(leader.name)} has {score}; one source alone has no rank."
    open_pairs = [pair for pair in run.comparisons if leader.name in (pair.first, pair.second) and not pair.established]
    if not open_pairs and _compared(run):
        pair = _pair(run, leader.name, run.sources[1].name)
        others = "the other source" if len(run.sources) == 2 else f"all {len(run.sources) - 1} others"
        return (
            f"{named(leader.name)} ranks first ({score}) and its lead over {others} is established: "
            f"{_lead(pair)} ahead of {named(run.sources[1].name)}."
        )
    group = [source.name for source in run.sources if source.rank_group == leader.rank_group]
    if not open_pairs:
        return f"{named(leader.name)} has the highest score ({score}), but the sources were not compared."
    pair = open_pairs[0]
    other = pair.second if pair.first == leader.name else pair.first
    return (
        f"No source is established as first: the order of {_names(group)} is open; {named(leader.name)} has the "
        f"highest score "
        f"({score}), {_lead(pair)} ahead of {named(other)}{_needed(pair)}."
    )


def _compared(run: Run) -> bool:
    leader = run.sources[0].name
    return sum(leader in (pair.first, pair.second) for pair in run.comparisons) == len(run.sources) - 1


def _pair(run: Run, first: str, second: str) -> Comparison:
    return next(pair for pair in run.comparisons if {pair.first, pair.second} == {first, second})


def _lead(pair: Comparison) -> str:
    return f"{nats(pair.difference_nats)} nats (interval {interval(pair.interval_95)}, Holm {p_text(pair.p_holm)})"


def _needed(pair: Comparison) -> str:
    if pair.queries_needed_80 is None:
        return ""
    if pair.queries_needed_80 > MANY_QUERIES:
        return ", too little for any number of queries to tell apart"
    return f", which would take about {plural(_rounded(pair.queries_needed_80), 'query', 'queries')} to tell apart"


def _rounded(number: int) -> int:
    """Two significant digits: an estimate is no more exact than that."""
    step: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // step) * step


def _names(names: list[str]) -> str:
    return listed([named(name) for name in names])


def controls(run: Run) -> str:
    """What the controls say of the ranking."""
    if not run.controls:
        reasons = [plain(reason) for name, reason in run.not_evaluated.items() if name.startswith("control")]
        why = f" ({listed(reasons)})" if reasons else ""
        return f"No control was scored{why}, so nothing here shows whether the score rewards more than easy negatives."
    compared = [clause for clause in (_random(run), _known_positive(run) or _no_difference(run)) if clause]
    if compared and run.budget != 1.0:
        compared[0] = f"at B = 1, where controls are compared, {compared[0]}"
    clauses = [*_without_random(run), *compared]
    if not clauses:
        return "No random control was scored, so nothing here shows whether the score rewards more than easy negatives."
    text = "; ".join(clauses) + "."
    return text[0].upper() + text[1:]


def _without_random(run: Run) -> list[str]:
    reason = run.not_evaluated.get("control random")
    return [] if reason is None else [f"the random control could not be scored ({plain(reason)})"]


def _random(run: Run) -> str:
    control = _control(run, "random")
    if control is None:
        return ""
    above = [item.source for item in control.against if item.interval_95[0] > 0]
    below = [item.source for item in control.against if item.interval_95[1] < 0]
    level = [item.source for item in control.against if item.source not in {*above, *below}]
    if not control.against:
        return "the random control was compared with no source, so it shows nothing"
    score = f"the random control ({nats(control.eci_nats)}, interval {interval(control.interval_95)})"
    if not above:
        whom = (
            "every source" if not level else f"{_names(below)} and cannot be told from {_names(level)}" if below else ""
        )
        if not whom:
            return (
                f"{score} cannot be told from any source: none is shown to score higher than passages drawn at random"
            )
        return (
            f"{score} outscores {whom}: with this encoder the score rewards easy negatives here, so do not "
            f"choose by rank alone, "
            "and see the budget curve"
        )
    if not below and not level:
        least = min(control.against, key=lambda item: item.difference_nats)
        return f"every source outscores the random control, by {_gap(least)} or more"
    parts = [f"{_names(above)} outscore" + ("s" if len(above) == 1 else "") + f" {score}"]
    if below:
        parts.append(f"{_names(below)} fall" + ("s" if len(below) == 1 else "") + " below it")
    if level:
        parts.append(f"{_names(level)} cannot be told from it")
    return ", ".join(parts)


def _known_positive(run: Run) -> str:
    control = _control(run, "known_positive")
    if control is None:
        return ""
    below = [item.source for item in control.against if item.interval_95[1] < 0]
    level = [item.source for item in control.against if item.interval_95[0] <= 0 <= item.interval_95[1]]
    covers = f"of only the {plural(control.n_queries, 'query', 'queries')} with two or more labelled positives"
    score = f"({nats(control.eci_nats)}, interval {interval(control.interval_95)}; {covers})"
    if below:
        return (
            f"relevant passages passed off as negatives {score} outscore {_names(below)}: the score does not "
            f"see false negatives"
        )
    if level and all(item.z is None for item in control.against):
        return (
            f"queries with a further labelled positive are too few ({control.n_queries}) to say whether the score "
            f"sees false negatives"
        )
    if level:
        return (
            f"relevant passages passed off as negatives {score} cannot be told from {_names(level)}: nothing "
            f"here shows that the score sees false negatives"
        )
    return ""


def _no_difference(run: Run) -> str:
    """Sources that cannot be told from what anyone gets from the same texts."""
    for kind, name in (("bm25_pool", "BM25 of the run's own texts"), ("dense_pool", "the encoder's own nearest texts")):
        control = _control(run, kind)
        level = [] if control is None else [item for item in control.against if _level(item)]
        if level:
            return f"{_names([item.source for item in level])} cannot be told from {name} (difference {_gap(level[0])})"
    shuffled = [
        item.source
        for control in run.controls
        if control.kind == "shuffled"
        for item in control.against
        if not item.interval_95[0] > 0
    ]
    if len(shuffled) == len(run.sources):
        return "no source is shown to score higher than its own negatives dealt to other queries"
    if not shuffled:
        return ""
    are = "is" if len(shuffled) == 1 else "are"
    return f"{_names(shuffled)} {are} not shown to score higher than the same negatives dealt to other queries"


def _level(item: Against) -> bool:
    return item.interval_95[0] <= 0 <= item.interval_95[1]


def _gap(item: Against) -> str:
    return f"{nats(item.difference_nats)} nats (interval {interval(item.interval_95)})"


def _control(run: Run, kind: str) -> ControlResult | None:
    return next((control for control in run.controls if control.kind == kind), None)


def warnings(run: Run) -> list[str]:
    """What concerns all scores, then the findings, the worst first; a sentence each."""
    told = [_sentence(run, plain(text, WARNING_LIMIT)) for text in run.warnings]
    return told + [_sentence(run, f"{item.text}; {item.remedy}") for item in findings(run)]


def _sentence(run: Run, text: str) -> str:
    """The text from a capital to a full stop. A name keeps its letters."""
    text = text.rstrip(".")
    named_first = any(text.startswith(plain(source.name)) for source in run.sources)
    return f"{text if named_first else text[:1].upper() + text[1:]}."


def warning(run: Run) -> str:
    """What changes how all scores are to be read, else the worst finding, else the main thing that was left out."""
    told = warnings(run)
    if told:
        return told[0] + (f" {plural(len(told) - 1, 'more finding')} below." if len(told) > 1 else "")
    if run.not_evaluated:
        name, reason = next(iter(run.not_evaluated.items()))
        more = len(run.not_evaluated) - 1
        rest = f", and {count(more)} more" if more else ""
        return f"Not evaluated: {plain(name)} ({plain(reason)}){rest}."
    return f"No defect of the files stands out, {leader_kept(run)}."
