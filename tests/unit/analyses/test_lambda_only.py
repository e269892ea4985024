"""The mean lexical residual: by hand on words, and its section."""

from __future__ import annotations

import pytest

from secid.analyses.lambda_only import LAMBDA_ONLY, MeanResidual
from secid.pages.sections.lambda_only import lambda_only_section
from tests.unit.pages import samples
from tests.unit.scoring.runs import scored

WORDS = ("red", "green", "blue", "white")


def rows(n_words: int) -> list[dict[str, object]]:
    """Queries of four words, each with a negative that repeats the first n of them."""
    return [
        {
            "query": " ".join(f"{word}{number}" for word in WORDS),
            "pos": [f"answer {number}"],
            "neg": [" ".join([f"other{number}", *(f"{word}{number}" for word in WORDS[:n_words])])],
        }
        for number in range(40)
    ]


def test_it_is_one_minus_the_share_of_the_query_that_the_negatives_repeat(tmp_path):
    run = scored(tmp_path, {"none": rows(0), "one": rows(1), "all": rows(4)}).run
    found = {item.source: item for item in LAMBDA_ONLY.of(run)}
    assert found["none"].residual_mean == 1.0
    assert found["all"].residual_mean == pytest.approx(0.0, abs=1e-12)
    for source in run.sources:
        item = found[source.name]
        assert item.residual_mean == pytest.approx(1.0 - source.score.coverage_mean)
        assert 0.0 <= item.interval_95[0] <= item.residual_mean <= item.interval_95[1] <= 1.0


def test_the_section_counts_the_pairs_that_it_orders_as_the_score_does():
    run = samples.golden()
    names = [source.name for source in run.sources]

    def said(values: list[float]) -> str:
        own = tuple(
            MeanResidual(source=name, residual_mean=value, interval_95=(0.0, 1.0))
            for name, value in zip(names, values, strict=True)
        )
        return lambda_only_section(run, own).paragraphs[0]

    n, places = len(names), [1.0 - 0.1 * place for place in range(len(names))]
    pairs = n * (n - 1) // 2
    assert f"orders {pairs} of {pairs} pairs" in said(places)
    assert f"orders 0 of {pairs} pairs" in said(places[::-1])
