"""Parse the sources to mine, NAME=METHOD:option=value,…

    random                  random candidates
    bm25                    the best candidates of a lexical search
    dense                   the nearest candidates by the encoder that score below 95 % of the positive
    hybrid:bm25=5,dense=5   the first negatives of other sources
    llm:model=NAME          negatives that a language model writes

A preset is a method with options from a paper. Source: METHOD 10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, FiniteFloat, TypeAdapter

from secid.errors import UsageError, suggest_name
from secid.measure.false_negatives import RELATIVE_MARGIN, Margin
from secid.results.mine import PRESETS
from secid.settings import Settings, flag_of

if TYPE_CHECKING:
    from secid.write.writer import Schema


Pick = Literal["top", "random", "simans"]
OnShort = Literal["keep", "drop", "random"]
MINING_WINDOW_END = 200
"""Last rank of the default window, or K if that is larger."""
MAX_RANK = 2**31 - 1
"""Maximum rank and K, since ranks are stored in 32 bits. No collection has more candidates."""
SOURCE_NAME = re.compile(r"[\w][\w.+-]*")


@dataclass(frozen=True, kw_only=True)
class Random:
    """Negatives drawn uniformly, without replacement."""


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """The best candidates by BM25. ranks: first and last rank that may be taken, from 1."""

    ranks: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Dense:
    """The nearest candidates by the encoder.

    A candidate passes if s_qn < s_qp - relative * |s_qp|, s_qn < s_qp - absolute and s_qn < maximum. A test whose value
    is None is skipped. A source that is typed without any of the three has relative = RELATIVE_MARGIN. Source: METHOD
    10.

    ranks : as in `Bm25`.   pick : how to choose among the candidates in the window that pass.
    a, b : parameters of pick=simans.
    """

    ranks: tuple[int, int]
    relative: float | None = None
    absolute: float | None = None
    maximum: float | None = None
    pick: Pick = "top"
    a: float | None = None
    b: float | None = None


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """Negatives of other sources. parts: (name of the source, number of negatives from it)."""

    parts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Llm:
    """Negatives that a language model writes.

    url   : base URL of the endpoint; None for that in OPENAI_BASE_URL, or OpenAI's if it is not set.
    price : price of a million tokens of prompt and of answer, in any currency.
    thinking : False to ask the model not to think first.
    """

    model: str = ""
    url: str | None = None
    temperature: float | None = None
    price: tuple[float, float] | None = None
    thinking: bool = True


Method = Random | Bm25 | Dense | Hybrid | Llm
METHODS: Mapping[str, type[Method]] = {"random": Random, "bm25": Bm25, "dense": Dense, "hybrid": Hybrid, "llm": Llm}


SIMANS_DEFAULTS = {"a": 0.5, "b": 0.0}
"""Defaults of a and b. p(n) is proportional to exp(-a (s_qn - s_qp - b)^2). Source: METHOD 10."""
FILL_MINER = "random"
"""Name of the miner for negatives that fill short rows."""


@dataclass(frozen=True)
class Miner:
    """A source to mine. name : name of the source.   text : the method as the user typed it."""

    name: str
    text: str
    method: Method

    @property
    def window(self) -> tuple[int, int]:
        """Return the first and the last rank that may be taken."""
        return self.method.ranks if isinstance(self.method, Bm25 | Dense) else (1, MAX_RANK)

    @property
    def pick(self) -> Pick:
        return self.method.pick if isinstance(self.method, Dense) else "top"


JOURNAL, REJECTED = ".llm-{}.jsonl", ".{}.rejected.jsonl"
"""Hidden files of all answers of a language model, and of the rejected texts. FOLDER/* matches only files of rows."""


@dataclass(frozen=True)
class MiningPlan:
    """The plan of a mining run. For its fields see `secid.mine`.

    max_reuse : maximum number of rows with the same passage in one source; None for no limit.
    suffix : suffix of the files.   prompt : prompt for language models; None for the built-in one.
    """

    miners: tuple[Miner, ...]
    k: int
    seed: int
    pairs: Any = None
    split: str | None = None
    on_short: OnShort = "keep"
    max_reuse: int | None = None
    schema: Schema = "flagembedding"
    suffix: str = ".jsonl"
    prompt: str | None = None
    concurrency: int = 8

    def paths(self, folder: Path) -> list[Path]:
        return [folder / f"{miner.name}{self.suffix}" for miner in self.miners]

    def check(self, settings: Settings, has_encoder: bool) -> None:
        """Raise UsageError if options are invalid or do not work together."""
        from secid.pool import SPLITTERS

        dense = [miner.name for miner in self.miners if isinstance(miner.method, Dense)]
        if dense and not has_encoder:
            raise UsageError(
                f"{dense[0]} needs an encoder", remedy="name one with --encoder: e5-base, a local folder, or minilm"
            )
        if settings.tokenizer not in SPLITTERS and any(isinstance(miner.method, Bm25) for miner in self.miners):
            raise UsageError(
                f"bm25 has no tokenizer {settings.tokenizer!r}",
                where=flag_of("tokenizer"),
                remedy=f"use one of {', '.join(SPLITTERS)}",
            )
        if self.split is not None and self.pairs is not None:
            raise UsageError(
                "has no effect with --pairs, which names the queries", where="--split", remedy="remove one of the two"
            )
        for flag, number in {"--max-reuse": self.max_reuse, "--concurrency": self.concurrency}.items():
            if number is not None and number < 1:
                raise UsageError(f"{number} is too small", where=flag, remedy="give at least 1")
        if self.prompt is not None and not any(isinstance(miner.method, Llm) for miner in self.miners):
            raise UsageError(
                "has no effect without a source with the method llm", where="--prompt", remedy="remove it, or add one"
            )
        if self.prompt is not None and "{query}" not in self.prompt:
            remedy = "add {query} at the place of the query's text"
            raise UsageError("the prompt does not contain {query}", where="--prompt", remedy=remedy)
        if self.on_short not in get_args(OnShort):
            choices = ", ".join(get_args(OnShort))
            raise UsageError(f"unknown choice {self.on_short!r}", where="--on-short", remedy=f"use one of {choices}")


def parse_miners(specs: str | Sequence[str], k: int) -> tuple[Miner, ...]:
    """Parse the sources to mine, in order. A str is a single source. k: number of negatives of each row, >= 1.

    Raises UsageError for an invalid name, method, option or value, with a list of valid ones.
    """
    if not 1 <= k <= MAX_RANK:
        raise UsageError(f"{k} is out of range", where="-k", remedy=f"give a number from 1 to {MAX_RANK}")
    if isinstance(specs, str):
        specs = [specs]
    if not specs:
        raise UsageError("no source named", remedy=f"name one as NAME=METHOD, such as bm25=bm25; {_known_methods()}")
    miners = [_miner(spec, k) for spec in specs]
    names: set[str] = set()
    for name in (miner.name for miner in miners):
        if name.casefold() in names:  # some file systems ignore case
            raise UsageError(f"{name!r} is the name of two sources", remedy="give each source another name")
        names.add(name.casefold())
    for miner in miners:
        if isinstance(miner.method, Hybrid):
            _check_parts(miner, miners, k)
    return tuple(miners)


def _miner(spec: str, k: int) -> Miner:
    name, separator, text = spec.partition("=")
    if not separator or not text:
        raise UsageError(
            f"{spec!r} is not NAME=METHOD", remedy=f"write, for example, near=dense:ranks=1-50; {_known_methods()}"
        )
    if not SOURCE_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a file name",
            where=spec,
            remedy="use letters, digits, _ . - and +, and start with a letter, a digit or _",
        )
    kind, _, rest = text.partition(":")
    base = PRESETS[kind].method if kind in PRESETS else kind
    kind, _, preset = base.partition(":")
    if kind not in METHODS:
        raise UsageError(
            f"unknown method {kind!r}", where=spec, remedy=suggest_name(kind, [*METHODS, *PRESETS], _known_methods())
        )
    if name == FILL_MINER and kind != FILL_MINER:
        raise UsageError(
            f"the name {name!r} is reserved for negatives that fill short rows", where=spec, remedy="use another name"
        )
    options = {**_options(spec, kind, preset), **_options(spec, kind, rest)}
    if options.get("pick") == "simans":
        options = {**SIMANS_DEFAULTS, **options}
    elif options.keys() & SIMANS_DEFAULTS.keys():
        raise UsageError("a and b need pick=simans", where=spec, remedy="add pick=simans, or remove a and b")
    if kind == "dense" and not options.keys() & get_args(Margin):
        options["relative"] = RELATIVE_MARGIN
    if kind == "llm" and "model" not in options:
        raise UsageError(
            "no model named", where=spec, remedy="write llm:model=NAME, and add url=http://… unless it is OpenAI's"
        )
    if "ranks" in option_names(METHODS[kind]):
        first, last = options.setdefault("ranks", (1, max(MINING_WINDOW_END, k)))
        if last - first + 1 < k:
            raise UsageError(
                f"ranks={first}-{last} has fewer than {k} ranks", where=spec, remedy="use more ranks, or a smaller -k"
            )
    return Miner(name, text, METHODS[kind](**options))


def option_names(method: type[Method]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(method))


def _options(spec: str, kind: str, text: str) -> dict[str, Any]:
    values: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, separator, value = part.partition("=")
        if not separator or not value:
            raise UsageError(
                f"{part!r} is not option=value",
                where=spec,
                remedy="write each option as option=value, separated by commas",
            )
        if name in values:
            raise UsageError(f"{name} has two values", where=spec, remedy="give each option once")
        values[name] = value
    if METHODS[kind] is Hybrid:
        return {"parts": (*((name, _value(spec, name, value, COUNT)) for name, value in values.items()),)}
    names = option_names(METHODS[kind])
    for name in values:
        if name not in names:
            remedy = f"options of this method: {', '.join(names)}" if names else "remove it: this method has no options"
            raise UsageError(f"unknown option {name!r}", where=spec, remedy=suggest_name(name, names, remedy))
    return {name: _value(spec, name, value, OPTIONS[name]) for name, value in values.items()}


def _value(spec: str, name: str, value: str, option: Option) -> Any:
    try:
        return option.read(value)
    except ValueError:
        raise UsageError(f"{name}={value} is not {option.kind}", where=spec, remedy=option.remedy) from None


@dataclass(frozen=True)
class Option:
    """An option of a method.

    read : function that parses a value, or raises ValueError.
    kind : description of a value, for messages.   remedy : how to write it.
    """

    read: Callable[[str], Any]
    kind: str
    remedy: str | None = None


def _count(value: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]*", value):
        raise ValueError
    return min(int(value), MAX_RANK)


def _ranks(value: str) -> tuple[int, int]:
    first, _, last = value.partition("-")
    if _count(first) > _count(last):
        raise ValueError
    return _count(first), _count(last)


OptionFraction = Annotated[float, Field(ge=0, lt=1)]
Amount = Annotated[FiniteFloat, Field(ge=0)]


PICKS: tuple[Pick, ...] = get_args(Pick)
NUMBER_REMEDY = "write a number, such as 0.5, or leave the option out"
COUNT = Option(_count, "a number of negatives", "give a count for each part, such as bm25=5")
OPTIONS: Mapping[str, Option] = {
    "ranks": Option(_ranks, "a window of ranks", "write first-last, from 1, such as ranks=11-20"),
    "pick": Option(lambda value: PICKS[PICKS.index(value)], "a way to pick", f"use one of {', '.join(PICKS)}"),
    "relative": Option(
        lambda value: None if value == "none" else TypeAdapter(OptionFraction).validate_python(value),
        "a share of at least 0 and below 1",
        "write relative=0.05 for 5 %, or relative=none for no margin",
    ),
    "a": Option(TypeAdapter(Amount).validate_python, "a number of 0 or more", NUMBER_REMEDY),
    **dict.fromkeys(
        ("absolute", "maximum", "b", "temperature"),
        Option(TypeAdapter(FiniteFloat).validate_python, "a number", NUMBER_REMEDY),
    ),
    **dict.fromkeys(("model", "url"), Option(str, "a text")),
    "thinking": Option(
        lambda value: bool(("off", "on").index(value)), "on or off", "write thinking=on or thinking=off"
    ),
    "price": Option(
        lambda value: TypeAdapter(tuple[Amount, Amount]).validate_python(tuple(value.split("/"))),
        "IN/OUT, each 0 or more",
        "give the prices of a million tokens, such as price=0.15/0.60",
    ),
}


def _check_parts(miner: Miner, miners: Sequence[Miner], k: int) -> None:
    names = {other.name for other in miners if not isinstance(other.method, Hybrid)}
    parts = miner.method.parts if isinstance(miner.method, Hybrid) else ()
    for name, _ in parts:
        if name not in names:
            raise UsageError(
                f"{name!r} is not another source of this run",
                where=f"{miner.name}={miner.text}",
                remedy=f"add {name}=METHOD; a part of a hybrid cannot be a hybrid itself",
            )
    if sum(n for _, n in parts) != k:
        raise UsageError(
            f"the parts add up to {sum(n for _, n in parts)} negatives, expected {k}",
            where=f"{miner.name}={miner.text}",
            remedy="give counts that add up to -k, such as hybrid:bm25=5,dense=5 with -k 10",
        )


def _known_methods() -> str:
    return f"methods are {', '.join(METHODS)}; presets are {', '.join(PRESETS)}"
