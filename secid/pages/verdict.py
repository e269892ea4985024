"""Three sentences in plain words, made from the numbers by rule: who is first, what the controls say, what to mind.

Nothing is called better without its interval, and nothing first without saying whether that is established. Each is one
sentence of at most MOST_WORDS words where names and budgets allow; the sections below tell the rest.
"""

from __future__ import annotations

import re

from secid.pages.ablation_summary import leader_kept
from secid.pages.controls_text import Outcome, outcome
from secid.pages.findings import notices
from secid.pages.glossary import part_name, score_point
from secid.pages.numbers import ROUNDING, SPACE, budget, count, interval, listed, nats, plural
from secid.pages.sanitize import named, plain, short
from secid.results import Comparison, Run

BRIEF_LIMIT = 150
"""Characters of a warning on the run where it is told in brief; its first clause, what to do, is told whole."""
CLAUSE = re.compile(r"(?=[:;,] )")
MOST_WORDS = 25
SHOWN_NAMES = 3
ONLY_EASY = "so nothing here shows whether the score rewards more than easy negatives"


def verdict(run: Run) -> tuple[tuple[str, str], ...]:
    """(label, sentence) three times. Needs at least one source."""
    return (("Ranking", ranking(run)), ("Controls", controls(run)), ("Watch out", warning(run)))


def in_a_line(run: Run) -> str:
    """The verdict for a terminal: who is first, whom random passages outscore, how much there is to mind."""
    leader, n_found = run.sources[0], len(warnings(run))
    place = {
        "alone": f"{named(leader.name)} alone has no rank",
        "first": f"{named(leader.name)} ranks first",
        "open": "first place is open",
        "unknown": "sources were not compared",
    }[standing(run)]
    found = f"{plural(n_found, 'finding')}" if n_found else "no finding"
    return f"{place}; {_passages(run)}; {found}."


def _passages(run: Run) -> str:
    """Whom random passages outscore, in a few words."""
    found = outcome(run, "random")
    if found is None or not found.n:
        return "no random control to judge by"
    if found.above:
        return f"random passages outscore {_some(found.above, found.n).removesuffix(' sources')}"
    some = _some(found.below, found.n).removesuffix(" sources") if found.below else "no source"
    return f"{some} outscore{'' if found.below and found.n > 1 else 's'} random passages"


def standing(run: Run) -> str:
    """How sure the first place is: "first" (its lead over every other is established), "open", "unknown" where not
    all others were compared with it, or "alone".
    """
    leader = run.sources[0].name
    if len(run.sources) == 1:
        return "alone"
    if _open_pairs(run):
        return "open"
    n_compared = sum(leader in (pair.first, pair.second) for pair in run.comparisons)
    return "first" if n_compared == len(run.sources) - 1 else "unknown"


def ranking(run: Run) -> str:
    """Who is first, and whether that is established."""
    leader, how = run.sources[0], standing(run)
    point = score_point(leader, run.budget)
    on = " on equal numbers" if run.equal_numbers and run.budget > 1.0 else ""
    at = "" if run.budget == 1.0 else f"at B{SPACE}={SPACE}{budget(run.budget)}{on} "
    score = f"{nats(point.nats)} nats {at}(95{SPACE}% interval {interval(point.interval_95, budget=run.budget)})"
    if how == "alone":
        return f"{named(leader.name)} scores {score}; one source alone has no rank."
    if how == "unknown":
        return f"{named(leader.name)} scores highest, {score}, but the sources were not compared."
    if how == "first":
        pair = _pair(run, leader.name, run.sources[1].name)
        lead = _lead(pair, run.sources[1].name, run.budget)
        return f"{named(leader.name)} ranks first {at}and its lead is established: {lead}."
    rivals = [pair.second if pair.first == leader.name else pair.first for pair in _open_pairs(run)]
    pair = _open_pairs(run)[0]
    between = f"First place is open {at}between {_names([leader.name, *rivals])}"
    if abs(pair.difference_nats) < ROUNDING:
        return f"{between}: {named(leader.name)} and {named(rivals[0])} score the same."
    return f"{between}: {named(leader.name)} is {_lead(pair, rivals[0], run.budget, _tested(run, pair))}."


def _tested(run: Run, pair: Comparison) -> str:
    """Why a difference is open whose own interval is beyond 0: many are tested at once."""
    beyond = not pair.interval_95[0] <= 0 <= pair.interval_95[1]
    return f"; {plural(len(run.comparisons), 'pair')} tested" if beyond else ""


def _open_pairs(run: Run) -> list[Comparison]:
    """Pairs of the leader whose order is not established."""
    leader = run.sources[0].name
    return [pair for pair in run.comparisons if leader in (pair.first, pair.second) and not pair.established]


def _pair(run: Run, first: str, second: str) -> Comparison:
    return next(pair for pair in run.comparisons if {pair.first, pair.second} == {first, second})


def _lead(pair: Comparison, other: str, at: float, remark: str = "") -> str:
    ahead = f"{nats(pair.difference_nats)} nats (95{SPACE}% interval {interval(pair.interval_95, budget=at)}{remark})"
    return f"{ahead} ahead of {named(other)}"


def _names(names: list[str]) -> str:
    return listed([named(name) for name in names], SHOWN_NAMES)


def _some(names: tuple[str, ...], n: int) -> str:
    """How many of n sources."""
    if n == 1:
        return "the source" if names else "no source"
    if len(names) == n == 2:
        return "both sources"
    return f"all {count(n)} sources" if len(names) == n else f"{count(len(names))} of {count(n)} sources"


def _which(names: tuple[str, ...], n: int) -> str:
    """One or two sources by name, more by their number."""
    return _names(list(names)) if len(names) < SHOWN_NAMES and (n == 1 or len(names) < n) else _some(names, n)


def controls(run: Run) -> str:
    """The gravest of what the controls say; all of it stands in the section on controls."""
    text = _controls(run)
    text = text if run.budget == 1.0 or not run.controls else f"at B{SPACE}={SPACE}1, {text}"
    return f"{text[0].upper()}{text[1:]}."


def _controls(run: Run) -> str:
    easy, false = outcome(run, "random"), outcome(run, "known_positive")
    doubt = _outscored(easy, false)
    if doubt:
        return doubt
    if easy is None:
        return f"no {'random control' if run.controls else 'control'} was scored, {ONLY_EASY}"
    if not easy.n:
        return "the random control was compared with no source, so it shows nothing"
    if not easy.below:
        return "no source is shown to score higher than passages drawn at random"
    if easy.level:
        outscore = f"{_which(easy.below, easy.n)} outscore{'s' if len(easy.below) == 1 else ''} random passages"
        return f"{outscore}; {_which(easy.level, easy.n)} cannot be told from them"
    return _level_with(false) or _like_the_pool(run) or _all_above(easy)


def _outscored(easy: Outcome | None, false: Outcome | None) -> str:
    """Sources below random passages, or below relevant ones that are passed off as negatives."""
    if easy is not None and easy.above and false is not None and false.above:
        return (
            f"random passages outscore {_some(easy.above, easy.n)} and known positives "
            f"{_some(false.above, false.n).removesuffix(' sources')}: "
            "here the score rewards easy negatives and overlooks false ones"
        )
    if easy is not None and easy.above:
        return (
            f"random passages outscore {_some(easy.above, easy.n)}: here the score rewards easy negatives"
            f"{', so do not choose by rank alone' if easy.n > 1 else ''}"
        )
    if false is not None and false.above:
        random = "" if easy is not None else "; no random control was scored"
        return (
            f"known positives offered as negatives outscore {_which(false.above, false.n)}: "
            f"here the score overlooks false negatives{random}"
        )
    return ""


def _level_with(false: Outcome | None) -> str:
    if false is None or not false.level or not false.known:
        return ""
    return (
        f"known positives offered as negatives cannot be told from {_which(false.level, false.n)}: "
        "nothing shows that the score sees false negatives"
    )


def _like_the_pool(run: Run) -> str:
    for kind, name in (("bm25_pool", "BM25 of the run's own texts"), ("dense_pool", "the encoder's own nearest texts")):
        found = outcome(run, kind)
        if found is not None and found.level:
            return f"{_which(found.level, found.n)} cannot be told from {name}, which costs nothing"
    return ""


def _all_above(easy: Outcome) -> str:
    least = min(easy.against, key=lambda item: item.difference_nats)
    whom = "the source outscores" if easy.n == 1 else f"{_some(easy.below, easy.n)} outscore"
    return (
        f"{whom} passages drawn at random, by {nats(least.difference_nats)} nats "
        f"(95{SPACE}% interval {interval(least.interval_95)}) or more"
    )


def warnings(run: Run, *, brief: bool = False) -> list[str]:
    """Positives among the negatives, what concerns all scores, other findings, the worst first; a sentence each.

    brief: without reasons and settings, where the page has the whole elsewhere.
    """
    of_all = [_sentence(run, _clauses(plain(text)) if brief else plain(text)) for text in run.warnings]
    notes = [(item.urgency, _sentence(run, item.brief if brief else item.whole)) for item in notices(run)]
    gravest = [text for urgency, text in notes if urgency == 0]
    return [*gravest, *of_all, *(text for urgency, text in notes if urgency > 0)]


def _clauses(text: str) -> str:
    """The first clauses of a text, as many as have room and at least one: no remedy is cut in the middle."""
    first, *others = CLAUSE.split(text)
    for clause in others:
        if len(first) + len(clause) > BRIEF_LIMIT:
            break
        first += clause
    return first


def _sentence(run: Run, text: str) -> str:
    """The text from a capital to a full stop. A name keeps its letters."""
    text = text.rstrip(".")
    names = {form for source in run.sources for form in (short(source.name), plain(source.name))}
    named_first = any(begins(text, name) for name in names)
    return f"{text if named_first else text[:1].upper() + text[1:]}."


def begins(text: str, name: str) -> bool:
    """Whether the text begins with the name as a word of its own."""
    return re.match(rf"{re.escape(name)}(?!\w)", text) is not None


def warning(run: Run) -> str:
    """The first of `warnings`, else the main thing that was left out."""
    told = warnings(run, brief=True)
    if told:
        others = f" ({plural(len(told) - 1, 'more finding')} below)" if len(told) > 1 else ""
        return f"{told[0].removesuffix('.')}{others}."
    if run.not_evaluated:
        name, reason = next(iter(run.not_evaluated.items()))
        more = len(run.not_evaluated) - 1
        rest = f", and {count(more)} more" if more else ""
        return f"Not evaluated: {part_name(name)} ({_clauses(plain(reason))}){rest}."
    return f"No defect of the files stands out, {leader_kept(run)}."
