"""Explain findings, cautions, checks of the gate, mining presets, and the columns, statuses and terms of pages.

`secid explain` and docs/findings.md use it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from secid.errors import UsageError, suggest_name
from secid.pages.glossary import EXPLANATIONS, OTHER_NAMES, SETTING_MEANINGS, STATUS_TERMS, TERM_WORDS, TYPICAL
from secid.pages.screen import Line, Screen, command, screen
from secid.pages.statuses import STATUS
from secid.pages.text import NO_BREAK_SPACE, listed
from secid.results.catalogue import CAUTIONS, FINDINGS, Caution, Finding
from secid.results.mine import PRESETS, Preset

FINDING_DOCS = "docs/findings.md"
NEEDS = {
    "texts": "only the texts",
    "tokens": "a tokenizer",
    "rows": "an encoder",
    "guide": "--guide or --guide-reranker",
}
"""Words for `Finding.needs`."""
VARIED_TERMS = {
    **{name: SETTING_MEANINGS[name][1] for name in ("temperature", "tokenizer", "idf", "sample")},
    "weights": SETTING_MEANINGS["weight"][1],
}
TERMS: Mapping[str, str] = {**EXPLANATIONS, **STATUS_TERMS, **TERM_WORDS, **VARIED_TERMS}
"""Explanations of columns, statuses and terms, by the words on pages."""
TERM_ALIASES: Mapping[str, str] = {**OTHER_NAMES, **{str(name): title for name, title in STATUS.items()}}
"""Other names of terms."""
SYMBOLS: Mapping[str, str] = {symbol: TERMS[OTHER_NAMES[symbol]] for symbol in ("π", "ρ", "λ")}
EXPLAIN_LABEL_WIDTH = 9
"""Width of the labels of facts, in characters."""
GATE_REQUIREMENTS: Mapping[str, str] = {
    "queries": "the source has at least the required number of distinct queries",
    "hardness": "the negatives are close enough to their queries; 0 means as close as random passages, 1 as close as "
    "the positives",
    "languages": "the share of negatives in new languages is at most its limit; a language is new if the predecessor, "
    "or for a new source the whole baseline, does not have it",
    "findings": "the share of negatives with the finding is at most its limit; `secid explain NAME` explains it",
    "new_source": "the source has a predecessor in the baseline; checked if the policy holds new sources for review",
    "drift": "the source is like its predecessor in the baseline; ECI_sem and the share of unrelated negatives have "
    "not changed by more than the tolerance",
}
"""Requirement of each check of the gate, by its name up to the first dot. Limits are in the policy, `[gate]`."""
GATE_DOCS, MINE_DOCS, METHOD_DOCS = "docs/gate.md", "docs/mine.md", "docs/method.md"
EXPLAINED_NAMES = tuple(dict.fromkeys((*CAUTIONS, *GATE_REQUIREMENTS, *PRESETS, *TERMS, *TERM_ALIASES)))
"""All names except findings."""
BY_CASEFOLD = {name.casefold(): name for name in (*FINDINGS, *EXPLAINED_NAMES)}
MIN_SIMILARITY = 0.75
"""Minimum similarity of a suggested name. With difflib's 0.6, "negatives" would be suggested for "gate"."""
HEADING_SUFFIX = re.compile(r"(?<=.)( \(.*\)| ± CI| in \S.*)$")
"""Text after the name of a number in a heading: its unit, its interval, or its block."""
TRAILING_NUMBER = re.compile(r"( =| at)? [0-9.,e+-]+( %)?$")


def term_of(head: str) -> str | None:
    """Return the term or finding that explains the heading of a column; None if there is none.

    Numbers, units and intervals in a heading are ignored, so "gain at 5e-05" is the gain.
    """
    title = unicodedata.normalize("NFKC", head)
    shorter = HEADING_SUFFIX.sub("", title)
    for name in (
        title,
        shorter,
        shorter.split(", ")[0],
        shorter.split("; ")[-1],
        shorter.split(" at ")[0],
        TRAILING_NUMBER.sub("", shorter),
    ):
        known = BY_CASEFOLD.get(name.casefold(), "")
        known = TERM_ALIASES.get(known, known)
        if known in TERMS or known in FINDINGS:
            return known
    return None


def head_words(head: str) -> str:
    """Return the meaning of a column's heading as one sentence; "" for a name."""
    term = term_of(head)
    if term is None:
        return ""
    words = TERMS.get(term) or f"share of the negatives that {FINDINGS[term].says}."
    return f"{words.split('. ')[0].rstrip('.')}."


def explained(name: str | None) -> dict[str, dict[str, str]]:
    """Return facts about a name, by name and label; about all names for None. Raises UsageError for an unknown name."""
    if name is None:
        return {each: facts for each in (*FINDINGS, *EXPLAINED_NAMES) for facts in explained(each).values()}
    name = BY_CASEFOLD.get(name.casefold()) or term_of(name) or name
    family, _, part = name.partition(".")
    if family == "findings" and part:
        name = part
    elif family in GATE_REQUIREMENTS:
        return {family: check_facts(name, family)}
    elif name in PRESETS:
        return {name: preset_facts(name, PRESETS[name])}
    elif name in TERMS or name in TERM_ALIASES:
        return {name: {"title": name, **term_facts(TERM_ALIASES.get(name, name)), "docs": METHOD_DOCS}}
    if name not in FINDINGS and name not in CAUTIONS:
        remedy = suggest_name(name, [*FINDINGS, *EXPLAINED_NAMES], "secid explain lists all names", MIN_SIMILARITY)
        raise UsageError(f"unknown name {name!r}", where="secid explain", remedy=remedy)
    facts = finding_facts(FINDINGS[name]) if name in FINDINGS else caution_facts(CAUTIONS[name])
    symbols = {symbol: text for symbol, text in SYMBOLS.items() if any(symbol in fact for fact in facts.values())}
    return {name: {"title": name, **facts, **symbols, "docs": f"{FINDING_DOCS}#{name}"}}


def entry_groups() -> dict[str, dict[str, str]]:
    """Return one line about each finding, caution, check and preset, by group and name."""
    return {
        "Defects: negatives that": {name: entry.says for name, entry in FINDINGS.items() if entry.counted},
        "Other findings, which may be intended: negatives that": {
            name: entry.says for name, entry in FINDINGS.items() if not entry.counted
        },
        "Cautions about a whole source, from `secid check`": {
            name: f"{caution.of} that {caution.says}" for name, caution in CAUTIONS.items()
        },
        "Checks of `secid gate`": dict(GATE_REQUIREMENTS),
        "Presets of `secid mine`": {name: preset.takes for name, preset in PRESETS.items()},
    }


def explained_screen(name: str | None) -> Screen:
    """Show the facts about one name; for None, list all names with one line each."""
    if name is not None:
        (facts,) = explained(name).values()
        return screen((facts.pop("title"), *(_fact(label, text) for label, text in facts.items())))
    width = max(map(len, (*FINDINGS, *CAUTIONS, *GATE_REQUIREMENTS, *PRESETS)))
    return screen(
        *(
            (Line(head), *(Line(says, mark=f"  {each:<{width}}  ") for each, says in entries.items()))
            for head, entries in entry_groups().items()
        ),
        (
            "Columns, statuses and terms on pages",
            Line("; ".join(term.replace(" ", NO_BREAK_SPACE) for term in TERMS), indent=2),
        ),
        ("For more about a name: `secid explain NAME`.",),
    )


def _fact(label: str, text: str) -> Line:
    mark = f"{label + ':':<{EXPLAIN_LABEL_WIDTH}} "
    return command(mark + text) if label == "command" else Line(text, mark=mark)


def finding_facts(entry: Finding) -> dict[str, str]:
    settings = f"; thresholds are the settings {listed(entry.settings)}" if entry.settings else ""
    return {
        "rule": entry.rule + settings,
        "needs": NEEDS[entry.needs],
        "defect": "yes" if entry.counted else "no, a source with it can still have no defects",
        "limit": "none" if entry.limit is None else default_limit(entry.limit, "source's negatives"),
        "do": entry.do,
        **typical(entry.name),
        "command": command_of(entry),
    }


def typical(name: str) -> dict[str, str]:
    """Return typical values of a number, if there are any."""
    return {"typical": TYPICAL[name]} if name in TYPICAL else {}


def term_facts(term: str) -> dict[str, str]:
    """Return the facts about a column, status or term, by label."""
    return {"is": TERMS[term], **typical(term)}


def check_facts(name: str, check: str) -> dict[str, str]:
    """Return the facts about a check of the gate, by label. If it is also a column, those of the column come first."""
    what, column = "a check of secid gate", term_facts(check) if check in TERMS else {}
    title = f"{name}, a column, and {what}" if column else f"{name}, {what}"
    return {"title": title, **column, "asks": GATE_REQUIREMENTS[check], "docs": GATE_DOCS}


def caution_facts(caution: Caution) -> dict[str, str]:
    return {
        "rule": f"{caution.of} that {caution.says}",
        "needs": "--against-eval" if caution.name.startswith("eval_") else NEEDS["texts"],
        "limit": default_limit(caution.limit, caution.of),
        "do": caution.do,
        "command": f"secid check SOURCE --fail-on {caution.name}",
    }


def preset_facts(name: str, preset: Preset) -> dict[str, str]:
    return {
        "title": f"{name}, a preset of secid mine",
        "takes": preset.takes,
        "is": f"{preset.method}; other options follow its name, such as {name}:ranks=1-500",
        "from": preset.source,
        "command": f"secid mine SOURCE={name} --collection DIR --encoder NAME -o FOLDER",
        "docs": MINE_DOCS,
    }


def command_of(entry: Finding) -> str:
    """Return the command that drops the negatives with a defect, or that lists the negatives with another finding."""
    if entry.counted:
        return f"secid select RUN --source NAME --drop {entry.name} -o FILE"
    return f"secid flagged RUN --source NAME --finding {entry.name} -o rows.jsonl"


def default_limit(limit: float | None, of: str) -> str:
    """Describe a default limit. limit: None for the setting max_bad_fraction.   of: what the share is taken of."""
    return f"reported above {'max_bad_fraction' if limit is None else f'{100 * limit:g} %'} of the {of}"
