"""What the numbers mean, each explained once, and the verdict in plain words."""

from __future__ import annotations

from secid.results import Run

EXPLANATIONS = {
    "eci_nats": "ECI_sem, log det(I + M) in nats, 0 to tr M; higher ranks first. Training-free, not label-free.",
    "trace": "tr M, 0 to 1: the mean weight. The score is at most this, and usually within 1 % of it.",
    "consistency_mean": "π, mean target consistency, 0 to 1: how surely the positive outscores the negative.",
    "locality_mean": "ρ, mean semantic locality, 0 to 1: above ½ the negative lies nearer to the positive than to the query.",
    "coverage_mean": "c, mean lexical coverage, 0 to 1: IDF share of the query's words that the negative repeats.",
    "positive_coverage_mean": "the same of the scored positives: what coverage is normal here.",
    "inversion_fraction": "share of triplets whose negative outscores the positive (π below ½).",
}


def verdict(run: Run) -> str:
    """One line: which source comes first, and by how much."""
    first = run.sources[0]
    if len(run.sources) == 1:
        return f"{first.name}: ECI_sem {first.eci_nats:.4f} nats; one source alone has no rank to compare."
    second = run.sources[1]
    lead = first.eci_nats - second.eci_nats
    return f"{first.name} ranks first with ECI_sem {first.eci_nats:.4f}, {lead:.4f} nats above {second.name}."


def skipped_lines(run: Run) -> list[str]:
    """A line per source that left something out: rows by reason, then negatives by reason."""
    lines = []
    for source in run.sources:
        rows = ", ".join(f"{reason} {count}" for reason, count in source.skipped.items())
        negatives = ", ".join(f"{reason} {count}" for reason, count in source.dropped_negatives.items())
        parts = [f"rows {rows}" if rows else "", f"negatives {negatives}" if negatives else ""]
        if any(parts):
            lines.append(f"{source.name}: left out " + "; ".join(filter(None, parts)))
    return lines


def recipe_line(run: Run) -> str:
    """The encoder in one line."""
    encoder = run.encoder
    prefixes = f"query prefix {encoder.query_prefix!r}, passage prefix {encoder.passage_prefix!r}"
    return (
        f"{encoder.name}: {encoder.pooling} pooling, {prefixes}, max length {encoder.max_length}, "
        f"{'unit' if encoder.normalize else 'raw'} vectors of {encoder.dim}, {encoder.dtype} on {encoder.device}"
    )
