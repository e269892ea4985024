"""Files of the sources, their provenance and the manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import Floats, Index, distinct
from secid.errors import InputError
from secid.export.rows import Passage, Row
from secid.export.writer import Schema, Written, new_files, write_rows, writing
from secid.mining.ask import Answers
from secid.mining.choose import FILL, WHY, OnShort, Picks
from secid.mining.exclusions import EXCLUDED
from secid.mining.methods import FILLED, Method, Miner
from secid.mining.questions import Questions
from secid.progress import Progress
from secid.read.manifest import MANIFEST, sha256_of
from secid.results import EncoderInfo
from secid.results.mine import MINE_SCHEMA_VERSION, MinedSource
from secid.settings import Settings
from secid.version import VERSION

WRITTEN_AT_ONCE = 1_024
JOURNAL, REJECTED = ".llm-{}.jsonl", ".{}.rejected.jsonl"
"""Hidden, so that FOLDER/* names the sources alone: all answers of a language model, and what is no negative."""


@dataclass(frozen=True)
class Plan:
    """What to mine. max_reuse: rows that a passage may serve in one source; None for any number.

    prompt : for language models; None for the built-in one.   concurrency : requests to one at once.
    """

    miners: tuple[Miner, ...]
    k: int
    seed: int
    on_short: OnShort
    max_reuse: int | None
    schema: Schema
    suffix: str
    prompt: str | None = None
    concurrency: int = 8

    def paths(self, folder: Path) -> list[Path]:
        """The files of the sources, and the manifest."""
        return [*(folder / f"{miner.name}{self.suffix}" for miner in self.miners), folder / MANIFEST]


def write_sources(
    plan: Plan,
    questions: Questions,
    picks: Sequence[Picks],
    answers: Mapping[int, Answers],
    s_qp: Floats,
    s_qn: Sequence[Floats],
    info: EncoderInfo | None,
    settings: Settings,
    folder: Path,
    progress: Progress,
) -> tuple[MinedSource, ...]:
    """The files of all sources and the manifest, together or not at all."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    sources = []
    progress.start("write", len(plan.miners), "files")
    paths, n = plan.paths(folder), len(plan.miners)
    rejected = [folder / REJECTED.format(plan.miners[number].name) for number in answers]
    with new_files(*paths[:n], *rejected, paths[-1]) as partials:
        for own_answers, partial in zip(answers.values(), partials[n:-1], strict=True):
            with writing(partial):
                shutil.copyfile(own_answers.rejected, partial)
        for number, (miner, path, partial) in enumerate(zip(plan.miners, paths, partials, strict=False)):
            own, margin = picks[number], s_qp[:, None] - s_qn[number]
            kept = own.counts > 0
            n_missing = int((~kept).sum())
            if plan.on_short == "drop":
                kept &= own.why == 0
            if not kept.any():
                counts = _by_name(WHY, np.bincount(own.why, minlength=len(WHY) + 1))
                why = ", ".join(f"{name} {n:,}" for name, n in counts.items())
                raise InputError(f"no negative for any of the {len(kept):,} queries ({why})", where=miner.name)
            rows = _Rows(plan, questions, number, own, answers.get(number), margin, kept)
            with writing(path):
                written = write_rows(rows, plan.schema, partial, plan.suffix)
            of_rows = own, kept, n_missing, s_qn[number], margin
            sources.append(_source(miner, path, partial, *of_rows, answers.get(number), settings, written))
            progress.advance(1)
        document = _manifest(plan, questions, sources, info, settings)
        with writing(paths[-1]):
            partials[-1].write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return tuple(sources)


@dataclass(frozen=True)
class _Rows:
    """The rows of a file, the same at each call. kept: (R,) which of the input's rows are in it."""

    plan: Plan
    questions: Questions
    number: int
    picks: Picks
    answers: Answers | None
    margin: Floats
    kept: npt.NDArray[np.bool_]

    def __call__(self) -> Iterator[Row]:
        ids = self.picks.ids.astype(np.int64)
        used = distinct(ids[self.kept].ravel())
        used = used[used >= 0]
        names = dict(zip(used.tolist(), self.questions.ids(used), strict=True))
        miners = {FILL: FILLED, **{number: miner.name for number, miner in enumerate(self.plan.miners)}}
        written = repeat(()) if self.answers is None else self.answers.texts()
        every = zip(self.questions.rows(), written, strict=False)
        rows = ((place, *item) for place, item in enumerate(every) if self.kept[place])
        while part := list(islice(rows, WRITTEN_AT_ONCE)):
            places = np.array([place for place, *_ in part])
            own = ids[places]
            texts = iter(self.questions.passages.take(own[own >= 0]))
            for place, row, own_texts in part:
                n = int((self.picks.ids[place] >= 0).sum())
                cells = zip(
                    *(getattr(self.picks, name)[place, :n].tolist() for name in ("ids", "ranks", "scores", "by")),
                    self.margin[place, :n].tolist(),
                    strict=True,
                )
                negatives = [
                    Passage(
                        next(texts), names[key], "", _known(score), max(0, rank) or None, _known(margin), miners[by]
                    )
                    for key, rank, score, by, margin in cells
                ]
                by_model = [Passage(text, miner=miners[self.number]) for text in own_texts]
                yield row._replace(negatives=by_model + negatives)


def _known(value: float) -> float | None:
    return None if value != value else value


def _source(
    miner: Miner, path: Path, partial: Path, picks: Picks, kept: npt.NDArray[np.bool_], n_missing: int,
    s_qn: Floats, margin: Floats, answers: Answers | None, settings: Settings, written: Written,
) -> MinedSource:  # fmt: skip
    ids = picks.ids[kept]
    taken = ids >= 0
    scored = s_qn[kept][taken]
    margins = margin[kept][taken]
    known = len(scored) > 0 and not np.isnan(scored).any() and answers is None
    _, served = np.unique(ids[taken], return_counts=True)
    return MinedSource(
        name=miner.name,
        path=str(path),
        sha256=sha256_of(partial),
        method=described(miner),
        layout=written.layout,
        n_rows=int(kept.sum()),
        n_missing=n_missing,
        n_dropped=len(kept) - int(kept.sum()) - n_missing,
        n_negatives=int(picks.counts[kept].sum()),
        n_filled=int((picks.by[kept][taken] == FILL).sum()),
        n_short=int((picks.why > 0).sum()),
        short=_by_name(WHY, np.bincount(picks.why, minlength=len(WHY) + 1)),
        excluded=_by_name(EXCLUDED, picks.excluded),
        s_query_negative=float(scored.mean()) if known else None,
        consistency=mean_consistency(margins, settings.temperature) if known else None,
        inverted_share=float((margins < 0).mean()) if known else None,
        n_passages=len(served),
        most_used=int(served.max(initial=0)),
        not_held=written.not_held,
        kept_beside={} if answers is None else answers.reasons,
        usage=None if answers is None else answers.usage,
    )


def described(miner: Miner) -> dict[str, Any]:
    """The method by its name, with every option that it has."""
    return {"typed": miner.text, **options_of(miner.method)}


def options_of(method: Method) -> dict[str, Any]:
    """A method's name, and the options that it has."""
    options = {name: value for name, value in asdict(method).items() if value is not None}
    return {"method": type(method).__name__.lower(), **options}


def mean_consistency(margins: Floats, temperature: float) -> float:
    """Mean π of some negatives. margins : (n,) s_qp - s_qn, at least one. Source: METHOD 2."""
    return float(torch.sigmoid(torch.from_numpy(margins / temperature)).mean())


def _by_name(names: Sequence[str], counts: Index) -> dict[str, int]:
    """What was counted under the numbers from 1 on, by name, but for zeros."""
    return {name: n for name, n in zip(names, counts[1:].tolist(), strict=True) if n}


def _manifest(
    plan: Plan, questions: Questions, sources: Sequence[MinedSource], info: EncoderInfo | None, settings: Settings
) -> dict[str, Any]:
    """What the files were made of: no time and no absolute path, so that the same input and seed give the same."""
    keys = questions.passages.keys[: questions.n_candidates]
    name = None if info is None else Path(info.name).name if Path(info.name).is_absolute() else info.name
    return {
        "schema_version": MINE_SCHEMA_VERSION,
        "secid_version": VERSION,
        "encoder": None
        if info is None
        else {
            "name": name,
            "revision": info.revision,
            "weights_sha256": info.weights_sha256,
            "fingerprint": info.fingerprint,
            "max_length": info.max_length,
            "pooling": info.pooling,
            "query_prefix": info.query_prefix,
            "passage_prefix": info.passage_prefix,
        },
        "k": plan.k,
        "seed": plan.seed,
        "on_short": plan.on_short,
        "max_reuse": plan.max_reuse,
        "schema": plan.schema,
        "prompt_sha256": None if plan.prompt is None else hashlib.sha256(plan.prompt.encode()).hexdigest(),
        "settings": settings_of(settings),
        "n_rows": len(questions.query),
        "n_candidates": questions.n_candidates,
        "candidates_sha256": hashlib.sha256(keys.tobytes()).hexdigest(),
        "skipped": dict(sorted(questions.skipped.items())),
        "files": {
            Path(source.path).name: {key: value for key, value in asdict(source).items() if key != "path"}
            for source in sources
        },
    }


def settings_of(settings: Settings) -> dict[str, Any]:
    """The settings that decide what is mined, but for those that are part of the encoder's fingerprint."""
    return {"tokenizer": settings.tokenizer, "titles": settings.titles, "temperature": settings.temperature}
