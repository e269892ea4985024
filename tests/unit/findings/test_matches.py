"""Compare the text that an example repeats with planted answers and with a plain search of the rows."""

from __future__ import annotations

from secid.pool.normal_form import normal_form
from secid.results import Match
from tests.unit.findings.test_summary import with_everything
from tests.unit.scoring.made_rows import clean_rows
from tests.unit.scoring.runs import checked, scored


def matches(source, name):
    return {(example.line, example.negative): example.match for example in source.finding(name).examples}


def test_planted_matches_are_named(tmp_path):
    rows, others = clean_rows(40), clean_rows(40)
    rows[3]["neg"].append(rows[3]["pos"][0].upper())
    others[5]["pos"] = ["A sentence that only the other file labels for this query."]
    rows[5]["neg"].append("a sentence that ONLY the other file labels, for this query!")
    rows[8]["neg"] += [rows[8]["neg"][1].upper() + " ."]
    rows[9]["neg"] += [rows[9]["neg"][0], rows[9]["neg"][0]]
    for number in range(10, 22):
        rows[number]["neg"].append("One passage for many queries" + "!" * (number % 2))
    rows[12]["query"], rows[13]["query"] = "The same query", "the SAME query?"
    sources = {"a": rows, "b": others}
    for run in (checked(tmp_path, sources, examples=20), scored(tmp_path, sources, examples=20).run):
        source = next(item for item in run.sources if item.name == "a")
        own, other = source.finding("false_negative").examples[0].path, "b.jsonl"
        equal = matches(source, "false_negative")
        assert equal[4, rows[3]["neg"][-1]] == Match(kind="positive", path=own, line=4, text=rows[3]["pos"][0])
        crossing = equal[6, rows[5]["neg"][-1]]
        assert (crossing.kind, crossing.path[-len(other) :], crossing.line) == ("positive", other, 6)
        assert crossing.text == others[5]["pos"][0]
        again = matches(source, "repeat")
        assert again[9, rows[8]["neg"][-1]] == Match(kind="earlier", path=own, line=9, n=2)
        assert again[10, rows[9]["neg"][0]] == Match(kind="copies", n=3)
        hubs = [example.match for example in source.finding("hub").examples]
        assert hubs
        assert set(hubs) == {Match(kind="queries", n=11)}
        assert all(example.match is None for example in source.finding("near_copy").examples)


def test_every_match_is_one_that_a_plain_search_confirms(tmp_path):
    rows = with_everything()
    source = scored(tmp_path, {"a": rows}, examples=60).run.sources[0]
    for example in source.finding("false_negative").examples:
        row = rows[example.match.line - 1]
        assert normal_form(row["query"]) == normal_form(example.query)
        assert normal_form(example.negative) in map(normal_form, row["pos"])
    for example in source.finding("repeat").examples:
        forms = list(map(normal_form, rows[example.line - 1]["neg"]))
        own = normal_form(example.negative)
        if example.match.kind == "copies":
            assert forms.count(own) == example.match.n > 1
        else:
            assert forms.index(own) == example.match.n - 1
    assert source.finding("false_negative").examples
    assert source.finding("repeat").examples
