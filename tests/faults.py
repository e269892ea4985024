"""One-line faults that `tests.mutation` injects: expressions, their replacements, and faults without effect."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

TARGETS = [
    *("measure/*", "triplets/*", "analyses/*", "findings/*"),
    *(f"pool/{name}" for name in ("coverage", "tokens", "normal_form")),
    *(
        "tools/gating/checks",
        "tools/gating/limits",
        "tools/mining/choose",
        "tools/probing/schedule",
        "tools/probing/task",
    ),
]
SWAPS: dict[type, tuple[Any, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.And: (ast.Or,), ast.Or: (ast.And,),
}  # fmt: skip
CALLS = {"min": "max", "minimum": "maximum", "argmin": "argmax", "amin": "amax", "any": "all"}
CALLS |= {other: name for name, other in CALLS.items()}
FIXED_KEYWORDS = {
    "strict",
    "zero_copy_only",
    "keepdim",
    "keepdims",
    "maxsize",
    "stacklevel",
    "copy",
    "frozen",
    "stable",
}
EQUIVALENT: dict[str, str] = {
    "measure/sweep.py : STORED_PANELS = 9": "how many panels hold a sum: they are slices of one product",
    "measure/blocks.py : ACCELERATOR_PLAN = BlockPlan(32_768, 1 << 30, 512 << 19, None, in_threads=False)": (
        "bytes that are in memory together, on devices other than the CPU"
    ),
    "measure/sweep.py _Totals._family(): return replace(variant, coverage=self._equal[variant.coverage], sample=1.1)": (
        "a key, made in one place and looked up by the same function"
    ),
    (
        "measure/uncertainty.py _amounts(): return np.where(usable, np.maximum(weight, 0.0) / "
        "np.where(usable, squared_distance, 1.1), 0.0)"
    ): "a divisor where the outer where takes 0",
    (
        "analyses/budgets.py crossings(): signs = np.where(np.abs(gaps) >= EQUAL_CURVES_FRACTION * curve, "
        "np.sign(gaps), 0)"
    ): "equal only where both are 0, whose sign is 0 as well, or by a rounding error",
    "analyses/overlap.py _shared_queries(): n_own = np.where(of_source > a, n_negatives[of_query], 1)": (
        "only pairs with a later source are read"
    ),
    "analyses/ranking.py rank_early(): alpha = 1.0 - (settings.until_ranked or 0.1)": (
        "called only with a confidence, which is above 0.5"
    ),
    "triplets/random_reference.py random_like(): flags[keep] = score[keep] < limit + DOT_ROUNDING": (
        "no cosine exceeds a percentile by exactly 1e-12"
    ),
    (
        "triplets/random_reference.py near_positive(): return usable & (s_query_negative - random > NEAR_HARDNESS * "
        "span - DOT_ROUNDING), h"
    ): "no negative lies exactly 1e-12 below the limit",
    "triplets/random_reference.py near_positive(): usable = span >= DOT_ROUNDING": "likewise",
    "triplets/random_reference.py : REFERENCE_ROWS_AT_ONCE = 1025": "how many rows are added up together",
    (
        "tools/probing/task.py copies_among(): rare = place < (1 - MIN_SHARED_FRACTION) * "
        "runs.sizes[owner] + SHARE_ROUNDING"
    ): ("a place is whole, and the bound is none: it is a multiple of 0.2, and a rounding error more"),
    "tools/gating/limits.py _hardness(): easiest, before = _extreme(known, n, -1.1)": "the sign alone counts",
    (
        "triplets/measure_set.py variant_scores().score(): inside = rows.query[places < variant.sample] if "
        "variant.sample <= 1.0 else rows.query"
    ): "every scored query has a place below 1",
    (
        "tools/mining/choose.py Choice.lists(): self._last(m) if self.capped or m.pick == 'top' else "
        "min(self._last(m), m.window[0] + self.k - 1)"
    ): "the length of the first lists; they are made longer until they hold enough",
    (
        "findings/openings.py shared_openings(): in_positives = positives.counts_of(negatives.keys) / max(0, "
        "positives.n_documents)"
    ): "a source with a negative has a positive, and without negatives nothing is divided",
    (
        "pool/normal_form.py loops(): flags: Flags = (counts >= LOOP_TOKENS) & (n_returns > np.maximum(1, "
        "counts // 10 - 1))"
    ): "a loop has more returns than either asks for, by trial of all patterns of 20 to 23 tokens",
    "pool/normal_form.py loops(): for gap in range(2, LOOP_REACH + 1):": (
        "a loop has enough returns over gaps of 2 to 4 as well, by trial of all patterns of 20 to 23 tokens"
    ),
    "pool/tokens.py : BLOB_BYTES = 1 << 18": "how much is split at once",
    "analyses/in_batch.py _batches(): place = np.full(len(heads), -2, np.int64)": (
        "any number below 0 says that a row is in another batch"
    ),
    "triplets/measure_set.py : NO_MATRIX = torch.empty(1, 0, dtype=torch.float64)": "as empty as without",
    (
        "triplets/embedding.py FileRows.reserve(): os.posix_fallocate(file.fileno(), self._n_rows * "
        "self._row_bytes, max(0, n_bytes))"
    ): "the system refuses to reserve no byte, which is passed over",
    (
        "tools/mining/choose.py Choice.lists(): complete[pending] = (depth >= n_candidates) | "
        "(order.ids < 0).all(axis=1)"
    ): "lists that end early are made longer until they hold all candidates",
    "measure/blocks.py : ROWS_HINT = 1023": "rows that the layout is chosen for; others work as well",
    (
        "findings/copies.py LabelledPositives.of_queries(): starts = np.where(known, np.append(self.offsets, "
        "1)[place], 0)"
    ): "beyond the last offset only where there is no query, and none is known",
    "measure/sweep.py SymmetricSums.matrix(): total = self._panels[-0].new_empty(d, d)": (
        "all panels have one device and one type"
    ),
    (
        "measure/interval.py error_spent(): density = _normal_density((places[:, None] + points[None, :]), now - "
        "before) @ density"
    ): "the density is symmetric, and so are the nodes and the masses before it",
    "scoring/audit.py : SCORE_DECIMALS = 13": "far above the error of a dot product, and below the distance of scores",
}
"""Reasons why some faults change no result. Key: module, function, and the line with the fault."""


class Fault(NamedTuple):
    """One replaced expression, from byte start to byte end of the module.

    owner : enclosing function.   first, last : lines of the expression, from 0.   line : text of the first faulty line.
    """

    path: str
    owner: str
    first: int
    last: int
    start: int
    end: int
    new: str
    line: str

    @property
    def name(self) -> str:
        return f"{self.path.removeprefix('secid/')} {self.owner}: {self.line}"

    def within(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


def replacements(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the faulty versions of an expression; none for texts, paths and joined lists."""
    match node:
        case ast.Compare(left, [operator], right):
            for other in SWAPS.get(type(operator), ()):
                yield ast.Compare(left, [other()], right)
        case ast.BinOp(left, operator, right) if not is_text(left) and not is_text(right):
            for other in SWAPS.get(type(operator), ()):
                yield ast.BinOp(left, other(), right)
            if isinstance(operator, ast.Sub) and isinstance(left, ast.Constant) and left.value == 1:
                yield right
        case ast.BoolOp(operator, values):
            yield from (ast.BoolOp(other(), values) for other in SWAPS[type(operator)])
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
            if value > 0:
                yield ast.Constant(value - 1)
        case ast.Constant(float(value)):
            yield ast.Constant(value * 1.1 if value else 0.1)
        case ast.Call(ast.Name(name), arguments, keywords) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name]), arguments, keywords)
        case ast.Call(ast.Attribute(value, name), arguments, keywords) if name in CALLS:
            yield ast.Call(ast.Attribute(value, CALLS[name]), arguments, keywords)


def is_text(node: ast.expr) -> bool:
    """Return whether an operand is a text, list, set or path, for which no other operator works."""
    if isinstance(node, ast.BinOp):
        return is_text(node.left)
    words = ast.unparse(node).lower()
    return words[0] in "'\"[({" or words[:2] in ("f'", 'f"') or any(w in words for w in ("folder", "path", "keys()"))


def expressions(node: ast.AST, owner: str) -> Iterator[tuple[Any, str]]:
    """Yield every expression that a fault may change, and the enclosing function's name followed by ()."""
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Slice):
        return
    if isinstance(node, ast.expr):
        yield node, owner
    inner = owner
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        inner = f"{owner}.{node.name}".lstrip(".") + "()" * isinstance(node, ast.FunctionDef)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (isinstance(child, ast.keyword) and child.arg in FIXED_KEYWORDS):
                yield from expressions(child, inner if field == "body" else owner)


def drawn(tree: Path, seed: int) -> list[Fault]:
    """Return one fault per line in random order: by a hash, so that changing one module moves no other fault."""
    found: dict[tuple[str, str], tuple[str, Fault]] = {}
    for path in targets(tree):
        source = (tree / path).read_bytes()
        lines = source.splitlines(keepends=True)
        offsets = [0, *accumulate(map(len, lines))]
        for node, owner in expressions(ast.parse(source), ""):
            first, last = node.lineno - 1, node.end_lineno - 1
            start, end = offsets[first] + node.col_offset, offsets[last] + node.end_col_offset
            for new in replacements(node):
                text = ast.unparse(ast.fix_missing_locations(new))
                text = text if isinstance(new, ast.Constant | ast.Call | ast.Compare) else f"({text})"
                line = lines[first][: node.col_offset] + text.encode() + lines[last][node.end_col_offset :]
                fault = Fault(path, owner, first, last, start, end, text, line.decode().strip())
                ranked = hashlib.sha256(f"{seed} {fault.name}".encode()).hexdigest(), fault
                place = path, lines[first].decode().strip()
                found[place] = min(found.get(place, ranked), ranked)
    return [fault for _, fault in sorted(found.values())]


def targets(tree: Path) -> list[str]:
    return sorted({str(path.relative_to(tree)) for name in TARGETS for path in tree.glob(f"secid/{name}.py")})
