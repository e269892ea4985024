"""Test what a plan of a sample keeps of the other rows: their labels, but no texts."""

from __future__ import annotations

from secid.findings.texts import text_rules
from secid.pool import collect_sources, draft_plan
from secid.records import Record, Source
from secid.settings import Settings
from tests.planning import make_plan

N_ROWS, N_SAMPLED = 30, 4


def streams():
    """Each query's second positive is labelled by a source of many queries, and listed as a negative by one of few."""
    miner = [Record(f"query {n}", (f"answer {n}",), (f"second {n}", f"mined {n}"), "m", n) for n in range(N_ROWS // 3)]
    labels = [Record(f"query {n}", (f"answer {n}", f"second {n}"), (f"other {n}",), "l", n) for n in range(N_ROWS)]
    return [(Source("miner", ("m",)), miner), (Source("labels", ("l",)), labels)]


def test_labels_outside_the_sample_still_mark_negatives(tmp_path):
    for folder, max_records in (("all", None), ("some", N_SAMPLED)):
        (tmp_path / folder).mkdir()
        read = collect_sources(streams(), tmp_path / folder, lambda: None)
        draft = draft_plan(read, Settings(max_records=max_records))
        plan = draft.with_text_findings(text_rules(*draft.texts)).plan
        miner, labels = plan.sources
        sampled = set(labels.query.tolist())
        assert max_records is None or not set(miner.query.tolist()) <= sampled  # labels alone hold what marks the rest
        known_relevant = miner.has("false_negative")
        assert known_relevant.mean() == 0.5
        texts = plan.passages.get(0, len(plan.passages))
        marked = {texts[negative] for negative in miner.negatives[known_relevant]}
        assert all(text.startswith("second") for text in marked)
        known = {texts[code % len(texts)] for code in plan.known_positives.tolist()}
        assert marked <= known  # so no control offers them either
        plan.close()


def test_a_sample_plans_no_positive_of_a_query_outside_it(tmp_path):
    plan = make_plan(streams(), Settings(max_records=N_SAMPLED), tmp_path, with_positives=True)
    numbers = {text.split()[1] for text in plan.queries.get(0, len(plan.queries))}
    texts = plan.passages.get(0, len(plan.passages))
    assert {text for text in texts if text.startswith("second")} == {f"second {number}" for number in numbers}
    assert {text.split()[1] for text in texts} == numbers
    plan.close()
