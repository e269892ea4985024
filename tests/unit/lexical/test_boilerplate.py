"""Openings that are no passages, and passages that only look alike."""

from __future__ import annotations

import pytest

from secid.lexical.boilerplate import Openings, common_openings, is_empty, is_preamble, opening, words

PASSAGES = [
    "Sure-footed goats climb where others fall.",
    "Certain results of the theory are given.",
    "Here the river turns south and widens.",
    "Here is where the treaty was signed in 1648.",
    "I am the way into the doleful city.",
    "As an aid to navigation, lights were set.",
    "Passage of the Red Sea is told in Exodus.",
    "Negative feedback steadies an amplifier.",
    "Documents of the trial are lost.",
    "Of course he refused.",
    "Okay is a word of uncertain origin.",
    "Unfortunately, the sample was small.",
    "Output grew by three percent.",
]
PREAMBLES = [
    "Sure, here is a passage about goats:",
    "Sure! Goats climb well.",
    "Certainly! Below is a document.",
    "Of course, here's one:",
    "Here's a hard negative passage: goats",
    "Here is a relevant but wrong document:",
    "Here is the rewritten passage.",
    "As an AI language model, I",
    "As a large language model I",
    "I'm sorry, but I can't help",
    "I’m unable to do so",
    "I cannot create this",
    "I apologize for",
    "Unfortunately, I can",
    "Negative passage: goats",
    "Hard_negative 1: goats",
    "**Passage:** goats".replace("**", "", 2),
    "Document 2: goats",
    "> Sure, I can write that",
    "assistant: goats",
]


@pytest.mark.parametrize("text", PREAMBLES)
def test_preambles(text):
    assert is_preamble(text)
    assert is_preamble(f'  "{text}')


@pytest.mark.parametrize("text", PASSAGES)
def test_passages(text):
    assert not is_preamble(text)
    assert not is_preamble(f"{text} {PREAMBLES[0]}")


@pytest.mark.parametrize(
    ("text", "empty"), [("", True), ("N/A", True), ("ab", True), ("DNA", False), ("猫は寝る", False)]
)
def test_empty(text, empty):
    assert is_empty(words(text)) is empty


def test_common_openings_are_relative_to_the_positives():
    negatives, positives = Openings(), Openings()
    for n in range(20):
        negatives.add(opening(words(f"please find the text {n}")))
        negatives.add(opening(words(f"the present invention relates {n}")))
        positives.add(opening(words(f"the present invention relates {n} too")))
    assert common_openings(negatives, positives) == {"please find the text": 20}
    assert common_openings(Openings(), positives) == {}


def test_a_text_of_few_words_has_no_opening():
    assert opening(words("only three words")) is None
