"""How negatives are found: NAME=METHOD:option=value,… to one frozen dataclass a source.

    random                  candidates at random
    bm25                    the best of the lexical search
    dense                   the nearest by the encoder; margins below the positive's score
    hybrid:bm25=5,dense=5   the first ones of other sources
    llm:model=NAME          written by a language model

A preset is a name for a method with options, with the paper that it is from. Source: METHOD 10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from math import isfinite
from typing import Any, Literal, get_args

from secid.errors import UsageError

Pick = Literal["top", "random", "simans"]
DEPTH = 200
"""Last rank of the default window; K where that is more."""
NAME = re.compile(r"[\w][\w.+-]*")


@dataclass(frozen=True, kw_only=True)
class Random:
    """Drawn uniformly, without replacement."""


@dataclass(frozen=True, kw_only=True)
class Bm25:
    """ranks: first and last rank that may be taken, from 1; None for the default window."""

    ranks: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Dense:
    """ranks : as of Bm25.   pick : which of the window that pass are taken; a, b : of simans alone.

    A candidate passes where s_qn < s_qp - relative * |s_qp|, s_qn < s_qp - absolute and s_qn < maximum, each where it
    is given. Source: METHOD 10.
    """

    ranks: tuple[int, int] | None = None
    relative: float | None = None
    absolute: float | None = None
    maximum: float | None = None
    pick: Pick = "top"
    a: float | None = None
    b: float | None = None


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """parts: names of other sources, and how many negatives are taken from each."""

    parts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Llm:
    """Written by a language model.   url: base URL of the endpoint; None for OPENAI_BASE_URL, else OpenAI's.

    price : of a million tokens in and out, in any currency.
    """

    model: str = ""
    url: str | None = None
    temperature: float | None = None
    price: tuple[float, float] | None = None


Method = Random | Bm25 | Dense | Hybrid | Llm
METHODS: Mapping[str, type[Method]] = {"random": Random, "bm25": Bm25, "dense": Dense, "hybrid": Hybrid, "llm": Llm}


@dataclass(frozen=True)
class Preset:
    """A method under the name that it has elsewhere. source: where it is from."""

    method: Method
    source: str


PRESETS: Mapping[str, Preset] = {
    "nv-retriever-95": Preset(Dense(relative=0.05), "NV-Retriever, arXiv 2407.15831: below 95 % of the positive"),
    "simans": Preset(Dense(pick="simans"), "SimANS, arXiv 2210.11773: near the positive's score"),
    "rank-10-210": Preset(Dense(ranks=(10, 210), pick="random"), "BGE (FlagEmbedding): random, ranks 10 to 210"),
    "rank-50-100": Preset(Dense(ranks=(50, 100), pick="random"), "KaLM-Embedding: random, ranks 50 to 100"),
    "qwen-0.1": Preset(Dense(absolute=-0.1), "Qwen3-Embedding: no score above the positive's + 0.1"),
}
SIMANS_A, SIMANS_B = 0.5, 0.0
"""p(n) is proportional to exp(-a (s_qn - s_qp - b)^2). Source: METHOD 10."""


@dataclass(frozen=True)
class Miner:
    """One source.   text: the method as it was typed.   window: first and last rank that may be taken."""

    name: str
    text: str
    method: Method
    window: tuple[int, int]

    @property
    def pick(self) -> Pick:
        return self.method.pick if isinstance(self.method, Dense) else "top"


def parse_miners(specs: str | Sequence[str], k: int) -> tuple[Miner, ...]:
    """The sources to mine, in the order given; a text is one. k: negatives of each query, >= 1.

    Raises UsageError where a name, method, option or value cannot be used, and lists what can.
    """
    if k < 1:
        raise UsageError(f"at least 1, got {k}", where="-k")
    if isinstance(specs, str):
        specs = [specs]
    if not specs:
        raise UsageError("no source named", remedy=f"NAME=METHOD, such as bm25=bm25; {_known()}")
    miners = [_miner(spec, k) for spec in specs]
    names: set[str] = set()
    for name in (miner.name for miner in miners):
        if name.casefold() in names:  # some file systems ignore case
            raise UsageError(f"{name!r} is the name of two sources", remedy="name each source once")
        names.add(name.casefold())
    for miner in miners:
        if isinstance(miner.method, Hybrid):
            _check_parts(miner, miners, k)
    return tuple(miners)


def _miner(spec: str, k: int) -> Miner:
    name, separator, text = spec.partition("=")
    if not separator or not text:
        raise UsageError(f"{spec!r} is not NAME=METHOD", remedy=f"such as near=dense:ranks=1-50; {_known()}")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a file name", where=spec, remedy="letters, digits, - . + and _, no . - + first"
        )
    kind, _, rest = text.partition(":")
    if kind in PRESETS:
        method: Any = PRESETS[kind].method
    elif kind in METHODS:
        method = METHODS[kind]()
    else:
        raise UsageError(f"unknown method {kind!r}", where=spec, remedy=_known())
    method = replace(method, **_options(spec, method, rest))
    if isinstance(method, Dense):
        method = _checked_dense(spec, method)
    if isinstance(method, Llm) and not method.model:
        raise UsageError("no model named", where=spec, remedy="llm:model=NAME, and url=http://… unless it is OpenAI's")
    window = getattr(method, "ranks", None) or (1, max(DEPTH, k))
    if window[1] - window[0] + 1 < k:
        raise UsageError(f"ranks={window[0]}-{window[1]} holds fewer than the {k} of -k", where=spec, remedy="widen it")
    if hasattr(method, "ranks"):
        method = replace(method, ranks=window)
    return Miner(name, text, method, window)


def _options(spec: str, method: Method, text: str) -> dict[str, Any]:
    """The values of the options of a method."""
    given: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, separator, value = part.partition("=")
        if not separator or not value:
            raise UsageError(f"{part!r} is not option=value", where=spec)
        if name in given:
            raise UsageError(f"{part!r} is a second value of {name}", where=spec)
        given[name] = value
    if isinstance(method, Hybrid):
        return {"parts": tuple((name, _count(spec, name, value)) for name, value in given.items())}
    kinds = {field.name: OPTIONS[field.name] for field in fields(method) if field.default is not MISSING}
    for name in given:
        if name not in kinds:
            remedy = f"its options are {', '.join(kinds)}" if kinds else "it has no options"
            raise UsageError(f"unknown option {name!r}", where=spec, remedy=remedy)
    return {name: kinds[name](spec, name, value) for name, value in given.items()}


def _ranks(spec: str, name: str, value: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})-(\d{1,9})", value)
    ends = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= ends[0] <= ends[1]:
        raise UsageError(
            f"{name}={value} is not a window of ranks", where=spec, remedy="first-last, from 1: ranks=11-20"
        )
    return ends


def _number(spec: str, name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise UsageError(f"{name}={value} is not a number", where=spec)
    return number


def _count(spec: str, name: str, value: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", value):
        raise UsageError(
            f"{name}={value} is not a number of negatives", where=spec, remedy="a share is a count, such as bm25=5"
        )
    return int(value)


def _pick(spec: str, name: str, value: str) -> str:
    if value not in get_args(Pick):
        raise UsageError(f"unknown {name} {value!r}", where=spec, remedy=f"one of {', '.join(get_args(Pick))}")
    return value


def _price(spec: str, name: str, value: str) -> tuple[float, float]:
    n_in, separator, n_out = value.partition("/")
    if not separator:
        raise UsageError(f"{name}={value} is not IN/OUT", where=spec, remedy="of a million tokens: price=0.15/0.60")
    return _number(spec, name, n_in), _number(spec, name, n_out)


OPTIONS: Mapping[str, Callable[[str, str, str], Any]] = {
    "ranks": _ranks,
    "pick": _pick,
    **dict.fromkeys(("relative", "absolute", "maximum", "a", "b", "temperature"), _number),
    **dict.fromkeys(("model", "url"), lambda spec, name, value: value),
    "price": _price,
}


def _checked_dense(spec: str, method: Dense) -> Dense:
    if method.pick == "simans":
        a, b = (SIMANS_A if method.a is None else method.a), (SIMANS_B if method.b is None else method.b)
        if a < 0:
            raise UsageError(f"a is 0 or more, got {a:g}", where=spec)
        return replace(method, a=a, b=b)
    if method.a is not None or method.b is not None:
        raise UsageError("a and b belong to pick=simans", where=spec)
    return method


def _check_parts(miner: Miner, miners: Sequence[Miner], k: int) -> None:
    own = {other.name for other in miners if not isinstance(other.method, Hybrid | Llm)}
    by_model = {other.name for other in miners if isinstance(other.method, Llm)}
    parts = miner.method.parts if isinstance(miner.method, Hybrid) else ()
    for name, _ in parts:
        if name in by_model:
            raise UsageError(
                f"{name!r} is written by a language model, which cannot be part of a hybrid",
                where=f"{miner.name}={miner.text}",
                remedy=f"leave {name} out of it: `secid score` and then `secid mix` combine the files",
            )
        if name not in own:
            raise UsageError(
                f"cannot take negatives from {name!r}",
                where=f"{miner.name}={miner.text}",
                remedy=f"name a random, bm25 or dense source of this name too, such as {name}=dense",
            )
    if sum(n for _, n in parts) != k:
        raise UsageError(
            f"its shares add up to {sum(n for _, n in parts)}, not to {k}",
            where=f"{miner.name}={miner.text}",
            remedy="shares are counts, such as hybrid:bm25=5,dense=5 with -k 10",
        )


def _known() -> str:
    return f"methods are {', '.join(METHODS)}; presets are {', '.join(PRESETS)}"
