"""Negatives in a script that the encoder's tokenizer does not know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from secid.encode.batching import Tokeniser
from secid.encode.locate import offline_minilm
from secid.findings.lexical_gate import SCRIPT_SAMPLE_CHARACTERS, UNKNOWN_SCRIPT_SHARE, unknown_scripts
from secid.pages.formats import verdict_line
from secid.pages.glossary import REASON_TEXTS
from secid.pages.statuses import STATUS, statuses_line
from tests.fake_encoder import HashEncoder, PieceEncoder
from tests.unit.findings.planned import pool_of
from tests.unit.scoring.made_rows import clean_rows
from tests.unit.scoring.runs import scored

SENTENCES = {
    "English": "The ferry leaves the old harbour every morning and returns at night.",
    "German": "Die Fähre verlässt jeden Morgen den alten Hafen und kommt nachts zurück.",
    "Thai": "เรือข้ามฟากออกจากท่าเรือเก่าทุกเช้าและกลับมาในตอนกลางคืน",
    "Hindi": "नौका हर सुबह पुराने बंदरगाह से निकलती है और रात को लौटती है।",
    "Chinese": "渡轮每天早晨离开旧港口，晚上返回，乘客们在码头等候。",
    "Japanese": "フェリーは毎朝古い港を出て、夜になると乗客を乗せて戻ってくる。",
}
KNOWN = ("English", "German")


def minilm() -> Tokeniser:
    folder = offline_minilm()
    assert folder is not None
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.no_padding()
    core.no_truncation()
    return Tokeniser(core, frozenset(), 0, core.token_to_id("[UNK]"))


def test_minilm_knows_only_latin_script():
    shares = dict(zip(SENTENCES, minilm().unknown_shares(list(SENTENCES.values())), strict=True))
    assert [name for name, share in shares.items() if share < UNKNOWN_SCRIPT_SHARE] == list(KNOWN)
    assert all(shares[name] < 0.05 for name in KNOWN)
    assert min(share for name, share in shares.items() if name not in KNOWN) > 0.55


def trained(*languages: str, fallback: bool = False) -> Tokeniser:
    """A tokenizer of bytes, or with bytes to fall back on, that has seen these languages."""
    texts = [SENTENCES[name] for name in languages] * 20
    if fallback:
        core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        core.normalizer = normalizers.Replace(" ", "▁")
        special = ["<unk>", *(f"<0x{code:02X}>" for code in range(256))]
        trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=special, show_progress=False)
    else:
        core = Tokenizer(models.BPE())
        core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        core.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(texts, trainer)
    return Tokeniser(core, frozenset(), 0, core.token_to_id("<unk>"))


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("language", ["Thai", "Chinese", "Japanese"])
def test_a_tokenizer_that_has_learned_a_script_knows_it_and_one_of_english_does_not(language, fallback):
    known, unknown = trained("English", language, fallback=fallback), trained("English", fallback=fallback)
    assert known.unknown_shares([SENTENCES[language]])[0] < 0.2
    assert unknown.unknown_shares([SENTENCES[language]])[0] > 0.9
    assert unknown.unknown_shares([SENTENCES["English"], "", "12 + 3 …"]).tolist() == [0.0, 0.0, 0.0]


def test_what_lies_beyond_the_maximum_length_does_not_count():
    tokeniser = minilm()
    text = f"A short English opening. {SENTENCES['Thai'] * 3}"
    assert tokeniser.unknown_shares([text])[0] > UNKNOWN_SCRIPT_SHARE
    tokeniser._core.enable_truncation(5)
    assert tokeniser.unknown_shares([text])[0] == 0.0


def test_a_passage_mostly_of_ascii_is_not_tokenised_again(tmp_path):
    asked: list[str] = []

    def shares(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.ones(len(texts))

    mixed = f"{SENTENCES['English']} {SENTENCES['Thai'][:20]}"
    long = SENTENCES["Chinese"] * 40
    with pool_of(tmp_path, [("q", ["p"], [*SENTENCES.values(), mixed, long])]) as plan:
        texts = plan.passages.get(0, len(plan.passages))
        flags = unknown_scripts(plan.passages, np.arange(len(texts)), shares)
    foreign = {SENTENCES[name] for name in ("Thai", "Hindi", "Chinese", "Japanese")} | {long}
    assert {text for text, flag in zip(texts, flags, strict=True) if flag} == foreign
    assert set(asked) == {text[:SCRIPT_SAMPLE_CHARACTERS] for text in foreign}


@pytest.mark.parametrize(("n_foreign", "status"), [(9, "no_defects"), (10, "no_verdict"), (20, "no_verdict")])
def test_a_source_whose_negatives_the_encoder_cannot_read_has_no_verdict_unless_it_has_defects(
    tmp_path, n_foreign, status
):
    rows = clean_rows(20)
    for row in rows[:n_foreign]:
        row["neg"] = [f"Поезд отправляется от вокзала каждый час {text[-9:]}" for text in row["neg"]]
    spoiled = [{**row, "neg": [*row["neg"], row["pos"][0]]} for row in rows]
    run = scored(tmp_path, {"a": rows, "b": spoiled}, PieceEncoder()).run
    assert {source.name: source.status for source in run.sources} == {"a": status, "b": "repair"}
    assert verdict_line(run).startswith("VERDICT: repair ")
    alone = replace(run, sources=tuple(source for source in run.sources if source.name == "a"))
    assert verdict_line(alone).startswith(f"VERDICT: {status} ")
    assert statuses_line(alone.sources).lower().startswith(STATUS[status])
    assert "without defects" not in statuses_line(run.sources)


def test_a_run_counts_such_negatives_and_says_why_it_cannot(tmp_path):
    rows = clean_rows(20)
    for row in rows[:5]:
        row["neg"][0] = f"Поезд отправляется от вокзала каждый час {row['query'][-6:]}"
    run = scored(tmp_path, {"a": rows}, PieceEncoder()).run
    finding = run.sources[0].finding("unknown_script")
    assert finding is not None
    assert (finding.n_negatives, finding.share) == (5, pytest.approx(5 / 60))
    assert run.sources[0].status == "no_defects"
    without = scored(tmp_path, {"a": rows}, HashEncoder()).run
    assert without.sources[0].finding("unknown_script") is None
    assert without.not_evaluated["unknown_script"] == "no_tokenizer"
    assert {*without.not_evaluated.values()} <= {*REASON_TEXTS}
