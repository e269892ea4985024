"""Formal findings of sources: negatives against positives, what counts, and which repair is offered."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from secid.pages.check_page import check_page
from secid.pages.formats import to_markdown
from secid.results import SourceReport
from tests.unit.scoring.made_rows import clean_rows, passage
from tests.unit.scoring.runs import checked, scored

Rows = list[dict[str, Any]]


def spoiled(text: str) -> str:
    return f"“Für {text}”".encode().decode("cp1252", errors="ignore")


def cut(text: str) -> str:
    return text.rsplit(" ", 3)[0]


def damaged(n: int, change: Any, of_negatives: float, of_positives: float) -> Rows:
    """n rows of five negatives, with these shares of negatives and positives damaged at random."""
    draw, rows = random.Random(7), clean_rows(n, 5)
    for row in rows:
        row["neg"] = [change(text) if draw.random() < of_negatives else text for text in row["neg"]]
        row["pos"] = [change(text) if draw.random() < of_positives else text for text in row["pos"]]
    return rows


def check_page_of(tmp_path, rows: Rows) -> tuple[SourceReport, str]:
    check = checked(tmp_path / "own", {"own": rows})
    return check.sources[0], to_markdown(check_page(check))


def test_damage_that_positives_share_is_not_a_defect_and_no_repair_widens_the_gap(tmp_path):
    source, page = check_page_of(tmp_path, damaged(250, spoiled, 0.16, 0.22))
    finding = source.finding("mojibake")
    assert finding.share == pytest.approx(0.16, abs=0.02)
    assert finding.positives.share == pytest.approx(0.22, abs=0.04)
    assert finding.positives.difference == pytest.approx(finding.share - finding.positives.share)
    assert (source.status, source.n_flagged, source.repair) == ("no_defects", 0, None)
    assert "--drop" not in page
    assert "positives of own are damaged" in page
    assert not finding.dropping_helps


def test_more_damage_than_the_positives_have_counts_and_is_dropped_only_where_that_helps(tmp_path):
    far, page = check_page_of(tmp_path, damaged(250, spoiled, 0.3, 0.02))
    assert (far.status, far.repair is None) == ("repair", False)
    assert "--drop mojibake" in page
    near, page = check_page_of(tmp_path, damaged(250, spoiled, 0.3, 0.2))
    assert (near.status, near.repair) == ("repair", None)
    assert near.n_flagged == near.finding("mojibake").n_negatives > 0
    assert "--drop" not in page
    assert "widen the difference" in page


def test_a_source_that_dropping_cannot_repair_is_to_be_repaired(tmp_path):
    rows = damaged(60, spoiled, 1.0, 0.6)
    source, page = check_page_of(tmp_path, rows)
    assert (source.status, source.repair) == ("repair", None)
    assert source.n_flagged == source.finding("mojibake").n_negatives == 300
    assert "Repair the texts of both negatives and positives" in page
    assert scored(tmp_path, {"own": rows}).run.sources[0].status == "repair"
    (tmp_path / "alone").mkdir()
    alone, _ = check_page_of(tmp_path / "alone", damaged(60, spoiled, 1.0, 0.0))
    assert alone.status == "unusable"  # the positives are sound, and without the damaged negatives nothing is left


def test_texts_cut_in_mid_sentence_are_shown_and_not_counted(tmp_path):
    source, page = check_page_of(tmp_path, damaged(200, cut, 0.44, 0.03))
    assert source.finding("unfinished").share == pytest.approx(0.44, abs=0.04)
    assert source.finding("unfinished").positives.excess > 0.3
    assert (source.status, source.n_flagged) == ("no_defects", 0)
    assert "in mid-sentence" in page


@pytest.mark.parametrize("shares", [(0.44, 0.44), (0.0, 0.0)])
def test_texts_cut_like_their_positives_are_no_finding(tmp_path, shares):
    _, page = check_page_of(tmp_path, damaged(200, cut, *shares))
    assert "in mid-sentence" not in page


def test_negatives_sounder_than_the_positives_are_a_tell_too(tmp_path):
    source, page = check_page_of(tmp_path, damaged(200, spoiled, 0.0, 0.5))
    assert source.status == "no_defects"
    assert "- **mojibake" in page or "mojibake" in page.split("Form of negatives")[0]


KINDS = {
    "unfinished": (20, cut),
    "trailing_note": (15, lambda text: f"{text} (Note: this passage on {text[:8]} does not answer the query.)"),
    "wrapper": (15, lambda text: json.dumps({"hard_negative": text}) if len(text) % 2 else f"```\n{text}\n```"),
    "markup": (15, lambda text: f"<div class='passage'><p>{text}</p></div>"),
    "loop": (15, lambda text: f"{text[:30]} {'the ' * 40}"),
}


@pytest.mark.parametrize("name", KINDS)
def test_planted_generator_artefacts_are_found_by_name_and_clean_rows_give_no_alarm(tmp_path, name):
    n, change = KINDS[name]
    rows = clean_rows(240, 1)
    clean = checked(tmp_path / "clean", {"own": rows}).sources[0]
    assert {each: clean.finding(each).n_negatives for each in KINDS} == dict.fromkeys(KINDS, 0)
    for row in rows[::12][:n]:
        row["neg"] = [change(row["neg"][0])]
    source, page = check_page_of(tmp_path, rows)
    assert source.finding(name).n_negatives == n
    assert f"{name}" in page.split("Form of negatives")[0]
    counted = name in ("trailing_note", "wrapper", "loop")
    assert source.status == ("repair" if counted else "no_defects")


def test_lengths_are_held_against_the_source_own_positives(tmp_path):
    rows = clean_rows(200, 2)
    for number, row in enumerate(rows):
        row["pos"] = [passage(number, 10 + number % 20)]
        row["neg"] = [passage(1000 + number, 10 + number % 20), passage(2000 + number, 200 if number % 4 else 20)]
    finding = checked(tmp_path, {"own": rows}).sources[0].finding("length")
    assert finding.share == pytest.approx(150 / 400, abs=0.1)
    assert 0 < finding.positives.share <= 0.02


def test_score_says_what_check_says_of_positives_also_of_a_sample(tmp_path):
    rows = damaged(120, spoiled, 0.3, 0.1)
    of_check = {item.name: item.positives for item in checked(tmp_path, {"own": rows}).sources[0].findings}
    run = scored(tmp_path, {"own": rows}, max_records=40).run
    assert {item.name: item.positives for item in run.sources[0].findings if item.name in of_check} == of_check
    assert of_check["mojibake"].n_labelled == 120
    assert of_check["hub"] is None


def test_the_difference_has_the_error_of_paired_queries(tmp_path):
    rows = damaged(60, spoiled, 0.3, 0.3)
    for row in rows[::3]:  # queries that are damaged on both sides
        row["neg"], row["pos"] = [*map(spoiled, row["neg"])], [*map(spoiled, row["pos"])]
    run = scored(tmp_path, {"own": rows})
    finding, share = run.run.sources[0].finding("mojibake"), run.findings["own"].shares["mojibake"]
    asked, hit = {row["query"] for row in rows}, {row["query"] for row in rows if "Ã" in row["pos"][0]}
    assert finding.positives.share == pytest.approx(len(hit) / len(asked))
    apart = (finding.standard_error**2 + finding.positives.share * (1 - finding.positives.share) / 60) ** 0.5
    assert finding.positives.standard_error < 0.95 * apart
    assert share.estimate.value - finding.positives.share == pytest.approx(finding.positives.difference)
