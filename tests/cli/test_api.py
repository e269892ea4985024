"""The Python API takes every path as text and as any os.PathLike."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import secid
from tests.cli.conftest import rows, write_rows


@dataclass(frozen=True)
class Place:
    """An os.PathLike that is not a Path."""

    name: str

    def __fspath__(self) -> str:
        return self.name


@pytest.mark.parametrize("of", [str, Place])
def test_every_path_may_be_text_or_path_like(tmp_path, tiny, of):
    for style in ("plain", "terse"):
        write_rows(tmp_path / f"{style}.jsonl", rows(12, 4, style))
    sources, run = [of("plain.jsonl"), of("terse.jsonl")], of("run")
    scored = secid.score(sources, str(tiny), run=run, controls="none", cache_dir="cache")
    assert secid.read_run(run).sources == secid.read_run(of("run/report.json")).sources == scored.sources
    assert secid.mix(run, {"plain": 0.5, "terse": 0.5}, budget=10.0).parts
    assert secid.write_mixture(run, {"plain": 0.5, "terse": 0.5}, of("mixed.jsonl")).n_rows == 12
    assert secid.select(run, of("kept.jsonl"), source="plain", top=2).path == "kept.jsonl"
    assert secid.baseline(run, of("b.json")).sources.keys() == {"plain", "terse"}
    assert secid.baseline(run, of("b.json"), update=True).sources.keys() == {"plain", "terse"}
    (tmp_path / "policy.toml").write_text("minimum_queries = 5\n", encoding="utf-8")
    verdict = secid.gate([of("plain.jsonl")], of("b.json"), policy=of("policy.toml"), paired=run, encoder=str(tiny))
    assert [source.report.name for source in verdict.sources] == ["plain"]
    collection = tmp_path / "beir"
    (collection / "qrels").mkdir(parents=True)
    (collection / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tp\t1\n", encoding="utf-8")
    for name, item in (("queries", '{"_id": "q", "text": "a"}'), ("corpus", '{"_id": "p", "title": "", "text": "b"}')):
        (collection / f"{name}.jsonl").write_text(f"{item}\n", encoding="utf-8")
    assert [source.name for source in secid.check(sources, against_eval=of("beir")).sources] == ["plain", "terse"]
    assert secid.describe_encoder(str(tiny)).info.dim > 0
