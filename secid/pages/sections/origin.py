"""How a run was made: what was read, what sources share, and the encoder with its recipe and self-test."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from secid.pages.glossary import by_reason, in_plain_words, merged_sentence, missing_lines, recipe_line, terms
from secid.pages.page import Section, Table, foreign, number, text
from secid.pages.text import count, plain, seconds, short
from secid.records import REASONS, Fact, fault_text, words
from secid.results import Run
from secid.settings import flag_of, value_text

if TYPE_CHECKING:
    from secid.encode import Description

# An encoder's resolved recipe and its self-test as plain text of 80 columns, and as one JSON document.

COLUMNS = 80
LABEL, VALUE = 16, 34
"""Widths of the first two columns; a SHA-256 fits the rest of a line after the first."""


FACTS: Mapping[str, str] = {
    "architecture": "config.json names {architecture}: a backbone to be fine-tuned, or a sparse encoder, not a dense "
    "retriever",
    "backbone": "a backbone to be fine-tuned, not a retriever",
    "code_elsewhere": "some of that code is from another repository, which no hash covers: rows are not cached",
    "dense_head": "dense head only",
    "dot_product": "trained with plain dot products; the score needs unit vectors (METHOD 2), so its rows are scaled",
    "flash_attention": "FlashAttention failed on a short text; PyTorch's attention is used: {error}",
    "incomplete": "{files} may be missing from the hub cache, and the hub cannot be reached: the recipe may be wrong; "
    f"run once online, or give --query-prefix, --passage-prefix, --max-length, {flag_of('pooling', 'NAME')}",
    "in_memory": "a SentenceTransformer object, with the weights that it has now; its name is that of the files it was "
    "first loaded from",
    "length_reduced": "maximum length {length} ({rule}) reduced to the model's {positions} positions",
    "lower_case": "texts are lower-cased first (do_lower_case of sentence_bert_config.json)",
    "no_fingerprint": "a Python function without a fingerprint: its rows are not cached",
    "no_prefix": "no prefix: secid knows none for this name, and the repository states none, or the empty one that "
    "sentence-transformers writes into every model. If the encoder was trained without, confirm that by --query-prefix "
    "''; a copy of E5, BGE or Nomic needs its own: for E5 --query-prefix 'query: ' --passage-prefix 'passage: '",
    "other_pooling": "sentence-transformers would pool this folder by {pooling}, from `architectures` of its "
    f"config.json: {flag_of('pooling', '{pooling}')} if training starts from that",
    "own_code": "the repository's own Python code was allowed to run",
    "own_code_unused": "the repository has its own code for this architecture, which is not run: transformers' own is "
    f"used; {flag_of('trust_remote_code')} runs it",
    "package": "weights from the package {package}",
    "pickle": "weights loaded from pickle",
    "plain_http": "the key was sent over plain http",
    "prefix_not_pooled": "the prefix's tokens are excluded from pooling (include_prompt of the Pooling module)",
    "raw_rows": "this encoder does not normalise; scoring scales its rows to unit length (METHOD 2)",
    "stored_raw_rows": "the stored rows are not of unit length; scoring scales them (METHOD 2)",
    "truncated": "vectors truncated to their first {n} dimensions, then scaled to unit length",
    "unknown_weights": "the weights behind an endpoint are unknown: the cache identifies them by address and model "
    "name alone",
    "unused_by_endpoint": "not used with an endpoint: {flags}",
    "unused_by_file": "not used with a file of vectors: {flags}",
    "unused_by_object": "not used with an encoder object: {flags}",
}
"""What to know of an encoder, by kind."""


CHECKS: Mapping[str, str] = {
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
"""What a check of the self-test compared, by kind. measured: its number."""


def fact_lines(facts: Iterable[Fact]) -> list[str]:
    """What to know of an encoder, a line each; without those that only another version knows."""
    return [text for fact in facts if (text := words(FACTS, fact))]


def encoder_text(encoder: Description) -> str:
    """What a person reads: identity, recipe with the rule that set each field, self-test, notes."""
    info = encoder.info
    parameters = "unknown" if encoder.n_parameters is None else count(encoder.n_parameters)
    lines = [
        *_line("encoder", info.name),
        *_line("revision", info.revision or "none"),
        *_line("parameters", parameters),
        *_line("dimension", count(info.dim)),
        *_line("number format", f"{info.dtype} on {info.device}"),
        *_line("weights sha256", info.weights_sha256 or "unknown"),
        *_line("fingerprint", info.fingerprint or "none: its rows are not cached"),
        "",
        _columns("recipe", "value", "set by"),
        *_recipe(encoder),
        "",
        _columns("self-test", "outcome", ""),
    ]
    for check in encoder.checks:
        lines += _line(check.name, f"{check.outcome}: {words(CHECKS, check.fact)}")
    if info.facts:
        lines.append("")
    for note in fact_lines(info.facts):
        lines += _line("note", note)
    lines += ["", _verdict(encoder)]
    return "\n".join(lines) + "\n"


def _recipe(encoder: Description) -> Iterator[str]:
    info = encoder.info
    fields = {
        "pooling": info.pooling,
        "normalize": "yes" if info.normalize else "no",
        "max_length": "no limit known" if info.max_length is None else f"{count(info.max_length)} tokens",
        "query_prefix": _quoted(info.query_prefix),
        "passage_prefix": _quoted(info.passage_prefix),
    }
    if "truncate_dim" in info.rules:
        fields["truncate_dim"] = _truncation(encoder.truncate_dim)
    for name, value in fields.items():
        yield from _cells(name, value, info.rules.get(name, "default"))
    for head in encoder.heads:
        yield from _cells("after pooling", head, "modules.json")


def _truncation(truncate_dim: int | None) -> str:
    return "none" if truncate_dim is None else f"first {count(truncate_dim)} dimensions"


def _quoted(prefix: str) -> str:
    """A prefix with its spaces and line feeds made visible."""
    return json.dumps(prefix, ensure_ascii=False) if prefix else "none"


def _verdict(encoder: Description) -> str:
    if encoder.unsettled:
        return f"did not pass: {', '.join(encoder.unsettled)}"
    skipped = f"; not asked of stored rows: {', '.join(encoder.not_asked)}" if encoder.not_asked else ""
    return f"all {len(encoder.checks)} checks pass{skipped}"


def _line(label: str, text: str) -> list[str]:
    """A label and a text, the text's further lines indented under it."""
    parts = _wrapped(text, COLUMNS - LABEL)
    return [f"{label if place == 0 else '':<{LABEL}}{part}" for place, part in enumerate(parts)]


def _cells(label: str, value: str, rule: str) -> Iterator[str]:
    values, rules = _wrapped(value, VALUE - 1), _wrapped(rule, COLUMNS - LABEL - VALUE)
    for place in range(max(len(values), len(rules))):
        yield _columns(
            label if place == 0 else "",
            values[place] if place < len(values) else "",
            rules[place] if place < len(rules) else "",
        )


def _columns(first: str, second: str, third: str) -> str:
    return f"{first:<{LABEL}}{second:<{VALUE}}{third}".rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, one at least; no space is lost but at the end of a line."""
    return textwrap.wrap(plain(text).replace("\u00a0", " "), width, break_on_hyphens=False) or [""]


# What was read, what sources share, and how the run was made.

PATH_LIMIT, VALUE_LIMIT, DETAIL_LIMIT = 120, 200, 160


def read_section(run: Run) -> Section:
    """Rows by source: read = used + left out."""
    rows = tuple(
        (
            plain(source.name),
            plain(source.schema, 60),
            count(source.rows.n_read),
            count(source.rows.n_used),
            count(source.rows.n_records),
            count(source.n_queries),
            count(source.n_triplets),
            by_reason({**source.rows.skipped, **source.rows.dropped_negatives}) or "nothing",
        )
        for source in run.sources
    )
    columns = (
        foreign("source"),
        foreign("schema"),
        *map(number, ("rows read", "rows used", "records", "queries", "negatives")),
        text("left out"),
    )
    reasons = dict.fromkeys(reason for source in run.sources for reason in source.rows.skipped if reason in REASONS)
    return Section(
        anchor="read",
        link="Input",
        title="What was read",
        bullets=(*(f"{in_plain_words(reason)}: {REASONS[reason].text}" for reason in reasons), *missing_lines(run)),
        tables=(
            Table(caption="Rows and negatives by source", columns=columns, rows=rows),
            *_left_out(run),
            _files(run),
        ),
        terms=terms("rows, records", "queries", "negatives"),
    )


def _left_out(run: Run) -> tuple[Table, ...]:
    rows = tuple(
        (
            plain(source.name),
            in_plain_words(item.reason),
            plain(f"{short(item.path, PATH_LIMIT)}:{item.line}"),
            plain(fault_text(item.fact), DETAIL_LIMIT),
        )
        for source in run.sources
        for item in source.rows.examples
    )
    columns = (foreign("source"), text("reason"), foreign("where"), foreign("what"))
    return (Table(caption="Examples of what was left out", columns=columns, rows=rows),) if rows else ()


def _files(run: Run) -> Table:
    rows = tuple(
        (
            short(file.path, PATH_LIMIT),
            plain(source.name),
            plain(file.mapping, VALUE_LIMIT),
            count(file.n_bytes),
            file.sha256[:16],
        )
        for source in run.sources
        for file in source.files
    )
    columns = (foreign("file"), foreign("source"), foreign("columns"), number("bytes"), text("SHA-256, its start"))
    return Table(caption="Files", columns=columns, rows=rows)


def origin_section(run: Run) -> Section:
    """Encoder, IDF table, settings, time and versions."""
    every = [(plain(name, VALUE_LIMIT), *_setting(entry)) for name, entry in run.settings.items()]
    changed = [row for row in every if row[2] != "default"]
    default = [row for row in every if row[2] == "default"]
    encoder, idf = run.encoder, run.idf
    facts = [
        ("encoder", recipe_line(run.encoder)),
        ("revision", plain(str(encoder.revision or "none"))),
        ("weights SHA-256", plain(str(encoder.weights_sha256 or "unknown"))),
        ("rules", "; ".join(f"{plain(name)} from {plain(rule)}" for name, rule in encoder.rules.items()) or "none"),
        *(("note", plain(note, VALUE_LIMIT)) for note in fact_lines(encoder.facts)),
        (
            "IDF",
            (
                f"{plain(idf.corpus)} corpus of {count(idf.n_texts)} texts, {plain(idf.tokenizer)} tokens "
                f"({count(idf.n_tokens)} distinct)"
            ),
        ),
        ("IDF table SHA-256", plain(idf.sha256)),
    ]
    what, settings = (text("what"), foreign("value")), (text("setting"), foreign("value"), text("set by"))
    tables = (
        ("Encoder and IDF table", what, tuple(facts)),
        ("Settings that are not defaults", settings, tuple(changed)),
        ("Settings left at their defaults", settings, tuple(default)),
        ("Time and counts by stage", (text("stage"), foreign("value")), _timing(run)),
        ("Machine and versions", what, _environment(run)),
    )
    return Section(
        anchor="origin",
        link="Origin",
        title="How this run was made",
        paragraphs=(*(() if run.merged is None else (merged_sentence(run.merged),)),),
        tables=tuple(Table(caption=caption, columns=columns, rows=rows) for caption, columns, rows in tables if rows),
    )


def _setting(entry: Any) -> tuple[str, str]:
    if not isinstance(entry, Mapping):
        return plain(value_text(entry), VALUE_LIMIT), "unknown"
    return plain(value_text(entry.get("value")), VALUE_LIMIT), plain(str(entry.get("from", "unknown")), VALUE_LIMIT)


def _timing(run: Run) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            plain(str(stage)),
            ", ".join(
                seconds(value)
                if name == "seconds"
                else f"{plain(str(name)).removeprefix('n_').replace('_', ' ')} {_number(value)}"
                for name, value in (entry.items() if isinstance(entry, Mapping) else [("value", entry)])
            ),
        )
        for stage, entry in run.timing.items()
    )


def _number(value: Any) -> str:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return f"{int(value):,}" if whole else plain(str(value), VALUE_LIMIT)


def _environment(run: Run) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            plain(str(name)),
            ", ".join(f"{plain(str(key))} {plain(str(item))}" for key, item in value.items())
            if isinstance(value, Mapping)
            else plain(str(value), VALUE_LIMIT),
        )
        for name, value in run.environment.items()
    )
