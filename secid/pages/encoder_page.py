"""Screens of `secid encoder` and `secid cache`: an encoder's recipe and self-test, and the content of the cache."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING

from secid.pages.page import Table, foreign, number, text
from secid.pages.screen import Line, Screen, screen, strong
from secid.pages.text import count
from secid.records import Fact, fact_sentence
from secid.settings import flag_of

if TYPE_CHECKING:
    from secid.encode import Description
    from secid.encode.cache_folder import CacheInfo

UNITS = {"GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1}
ENCODER_LABEL_WIDTH = 16
"""Width of a label."""

FACTS: Mapping[str, str] = {
    "architecture": "config.json names {architecture}, which is a backbone to fine-tune or a sparse encoder, not a "
    "dense retriever",
    "backbone": "this is a backbone to fine-tune, not a retriever",
    "code_elsewhere": "some of that code is in another repository that no hash covers, so rows are not cached",
    "dense_head": "only the dense head is used",
    "dot_product": "trained with plain dot products; the score needs unit vectors (METHOD 2), so its rows are scaled",
    "incomplete": "{files} may be missing from the hub cache, and the hub cannot be reached, so the recipe may be "
    f"wrong; run once online, or set --query-prefix, --passage-prefix, --max-length and {flag_of('pooling', 'NAME')}",
    "in_memory": "a SentenceTransformer object with its current weights; its name is that of the files that it was "
    "first loaded from",
    "length_reduced": "maximum length {length} ({rule}) reduced to the model's {positions} positions",
    "lower_case": "texts are lower-cased first (do_lower_case in sentence_bert_config.json)",
    "no_fingerprint": "a Python function without a fingerprint, so its rows are not cached",
    "no_prefix": "no prefix: secid has none for this name, and the repository has none, or only the empty one that "
    "sentence-transformers writes into every model. If the encoder was trained without a prefix, confirm it with "
    "--query-prefix ''. A copy of E5, BGE or Nomic needs their prefixes; for E5, --query-prefix 'query: ' "
    "--passage-prefix 'passage: '",
    "other_pooling": "sentence-transformers would use {pooling} pooling for this folder, because of `architectures` in "
    f"its config.json; if training starts from it, use {flag_of('pooling', '{pooling}')}",
    "own_code": "the repository's own Python code was allowed to run",
    "own_code_unused": "the repository has its own code for this architecture, but transformers' code is used; to run "
    f"the repository's code, use {flag_of('trust_remote_code')}",
    "package": "weights from the package {package}",
    "pickle": "weights loaded from pickle",
    "plain_http": "the key was sent over plain http",
    "prefix_not_pooled": "the prefix's tokens are excluded from pooling (include_prompt of the Pooling module)",
    "raw_rows": "this encoder does not normalise; scoring scales its rows to unit length (METHOD 2)",
    "stored_raw_rows": "the stored rows do not have unit length; scoring scales them (METHOD 2)",
    "truncated": "vectors are truncated to their first {n} dimensions, then scaled to unit length",
    "unknown_weights": "the weights behind an endpoint are unknown, so the cache identifies them only by address and "
    "model name",
    "unused_by_endpoint": "not used with an endpoint: {flags}",
    "unused_by_file": "not used with a file of vectors: {flags}",
    "unused_by_object": "not used with an encoder object: {flags}",
}
"""Notes on an encoder, by kind."""


CHECK_RESULTS: Mapping[str, str] = {
    "finite": "{bad} of {n} rows contain NaN or infinity",
    "half_precision": "{bad} of {n} rows contain NaN or infinity; use --dtype float32 (now {dtype})",
    "any_length": "not normalised, as the recipe says; scoring scales the rows (shortest {measured:.2g})",
    "unit_length": "lengths within {measured:.1e} of 1",
    "texts": "rows of different texts differ by at least {measured:.2g}",
    "one_row": "the file has a single row",
    "stored_texts": "rows differ from the first by at most {measured:.2g}",
    "reference": "rows differ from encode_query and encode_document by at most {measured:.1e} (limit {limit:.2g})",
    "other_prefixes": "query and passage rows differ by at least {measured:.2g} (limit {limit:.2g})",
    "own_prefixes": "the function sets its own prefixes",
    "same_prefixes": "prefixes are the same; query and passage rows differ by at most {measured:.1g} "
    "(limit {limit:.2g})",
    "batch": "a batch of one and a batch of {n} differ by at most {measured:.1e} (limit {limit:.2g})",
}
"""Result of each check of the self-test, by kind. measured: its number."""


def fact_lines(facts: Iterable[Fact]) -> list[str]:
    """Return a line for each note on an encoder. Kinds from another version of secid are left out."""
    return [text for fact in facts if (text := fact_sentence(FACTS, fact))]


def encoder_screen(encoder: Description) -> Screen:
    """Show an encoder: its identity, its recipe with the rule that set each field, its self-test, and notes."""
    info = encoder.info
    identity = {
        "encoder": info.name,
        "revision": info.revision or "none",
        "parameters": "unknown" if encoder.n_parameters is None else count(encoder.n_parameters),
        "dimension": count(info.dim),
        "number format": f"{info.dtype} on {info.device}",
        "weights sha256": info.weights_sha256 or "unknown",
        "fingerprint": info.fingerprint or "none, so its rows are not cached",
    }
    checks = [(check.name, f"{check.outcome}: {fact_sentence(CHECK_RESULTS, check.fact)}") for check in encoder.checks]
    return screen(
        starmap(_labelled, identity.items()),
        (_recipe(encoder),),
        (strong("Self-test"), *starmap(_labelled, checks)),
        (_labelled("note", note) for note in fact_lines(info.facts)),
        (_verdict(encoder),),
    )


def _recipe(encoder: Description) -> Table:
    info = encoder.info
    fields = {
        "pooling": info.pooling,
        "normalize": "yes" if info.normalize else "no",
        "max_length": "no limit known" if info.max_length is None else f"{count(info.max_length)} tokens",
        "query_prefix": _quoted(info.query_prefix),
        "passage_prefix": _quoted(info.passage_prefix),
    }
    if "truncate_dim" in info.rules:
        n = encoder.truncate_dim
        fields["truncate_dim"] = "none" if n is None else f"first {count(n)} dimensions"
    rows = [(name, value, info.rules.get(name, "default")) for name, value in fields.items()]
    rows += [("after pooling", head, "modules.json") for head in encoder.heads]
    return Table(caption="Recipe", columns=(text("recipe"), foreign("value"), foreign("set by")), rows=tuple(rows))


def _labelled(label: str, text: str) -> Line:
    return Line(text, mark=f"{label:<{ENCODER_LABEL_WIDTH}}")


def _quoted(prefix: str) -> str:
    return json.dumps(prefix, ensure_ascii=False) if prefix else "none"


def _verdict(encoder: Description) -> str:
    if encoder.unsettled:
        return f"did not pass: {', '.join(encoder.unsettled)}"
    skipped = f"; not possible with stored rows: {', '.join(encoder.not_asked)}" if encoder.not_asked else ""
    return f"all {len(encoder.checks)} checks pass{skipped}"


def cache_screen(usage: CacheInfo) -> Screen:
    """Show the cache: its folder, its size, and the encoders whose rows it has."""
    missing = "" if Path(usage.folder).is_dir() else " (does not exist yet)"
    facts = {
        "folder": f"{usage.folder}{missing}",
        "size": f"{bytes_text(usage.n_bytes)} of {bytes_text(usage.limit_bytes)}",
        "damaged": f"{usage.n_damaged} segments set aside",
        "training runs": f"{usage.n_trainings} of `secid probe`",
        "encoders": count(len(usage.encoders)),
    }
    rows = tuple(
        (
            use.name or "unknown",
            use.fingerprint[:16],
            count(use.n_segments),
            count(use.n_rows),
            bytes_text(use.n_bytes),
            datetime.fromtimestamp(use.last_used, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
        for use in usage.encoders
    )
    columns = (
        foreign("encoder"), text("fingerprint"), number("segments"), number("rows"), number("size"), text("last used"),
    )  # fmt: skip
    table = Table(caption="Encoders", columns=columns, rows=rows)
    return screen(
        (Line(f"{label:<{ENCODER_LABEL_WIDTH}}{value}", kind="literal") for label, value in facts.items()), (table,)
    )


def bytes_text(n_bytes: int) -> str:
    """Format a number of bytes in the largest unit that leaves a digit before the point."""
    unit = next((unit for unit in UNITS if n_bytes >= UNITS[unit]), "B")
    return f"{n_bytes / UNITS[unit]:,.{0 if unit == 'B' else 1}f} {unit}"
