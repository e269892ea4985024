"""Openings that are no passages, and passages that only look alike."""

from __future__ import annotations

import pytest

from secid.pool.boilerplate import Openings, common_openings, is_preamble, opening, words

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
    "Unfortunately, I can't find the manual any more.",
    "Output grew by three percent.",
    "Output: 15",
    "System: the kidney filters blood.",
    "User: see also drug addiction.",
    "Response: the authors agree with the letter.",
    "Negative: the test shows no virus.",
    "As a language, Latin is taught in few schools.",
    "As an AI researcher, she worked on planning.",
    "As an AI system, Watson played Jeopardy! in 2011.",
    "As an artificial intelligence pioneer, McCarthy coined the term.",
    "Here is an example of a dangling modifier:",
    "Here are some examples.",
    "Here's the answer to the riddle of the Sphinx.",
    "Here is a modified version of the script:",
    "Here's an article about it: goats",
    "Below is the text of the treaty.",
    "The following is the text of the speech given on Monday.",
    "The following answers were given in court.",
    "OK, here is the code I have so far:",
    "Okay, here's the thing about goats.",
    "Of course, here is the catch.",
    "Great, I can finally climb.",
    "I'm sorry to hear that your goat is ill.",
    "I apologize for the late reply.",
]
TITLES = [
    "I Can't Make You Love Me",
    "Okay, I'm done",
    "Sure, I'd Love To",
    "I Can't Help Falling in Love",
    "I Can't Help Myself (Sugar Pie, Honey Bunch)",
    "I Can't Get No Satisfaction",
    "I Can't Give You Anything but Love",
    "I Can't Write Left Handed",
    "I Can't Go for That (No Can Do)",
    "I Can't Do This",
    "I Cannot Tell a Lie",
    "I Won't Back Down",
    "I Will Not Be Broken",
    "I Could Not Ask for More",
    "I'm Sorry",
    "I'm Sorry, I Love You",
    "I'm Afraid of Americans",
    "I'm Not Able",
    "I Am Unable",
    "I Apologize",
    "Here Is the News",
    "Here Are the Young Men",
    "Here's to You, Mrs. Robinson",
    "Here Is What Is",
    "Here's a Health to the Company",
    "Below Is the Sea",
    "Of Course, of Course",
    "Absolutely (Story of a Girl)",
    "Absolutely! A Jazz Suite",
    "Certainly, Lord",
    "Sure Thing",
    "Great, the Mighty One",
    "OK Computer",
    "As an Artificial Mind",
    "A Passage to India",
    "Negative Capability",
    "Document (album)",
    "Unfortunately, I Married a Goat",
    "System of a Down",
    "The Following",
]
PREAMBLES = [
    "Here is a passage about goats:",
    "Here's a passage that looks relevant but does not answer the query: goats",
    "Here are three hard negative passages.",
    "Here is a document about goats that does not answer the question: goats",
    "Below is a 100-word passage on goats.",
    "Below is a plausible but incorrect document.",
    "The following is a hypothetical document about goats.",
    "Sure, here is a passage about goats:",
    "Sure, here's the text you asked for: goats",
    "Sure! Here are some documents:",
    "Sure! Goats climb well.",
    "Sure thing! Here's a passage:",
    "Sure, I'll write a passage on goats.",
    "Sure, I'd be happy to help you with that.",
    "Absolutely! Here's a passage on goats.",
    "Certainly! Below is a document.",
    "Certainly, here is a paragraph on goats:",
    "Of course, here's one:",
    "Of course! Here is your passage.",
    "Okay, here's a passage about goats:",
    "Okay, I will generate a hard negative.",
    "Great! I've written a passage on goats.",
    "Here's a hard negative passage: goats",
    "Here is a relevant but wrong document:",
    "Here is the rewritten passage.",
    "Here is the requested text: goats",
    "As an AI language model, I",
    "As an AI language model developed by a company, I cannot",
    "As an AI, I don't have opinions on goats",
    "As an AI assistant, my knowledge of goats",
    "As a large language model I",
    "I'm sorry, but I can't help",
    "I’m sorry, but as an AI language model",
    "I am sorry for the trouble, but I cannot provide this",
    "I'm afraid I can't do that.",
    "I’m unable to do so",
    "I cannot create this",
    "I can't assist with that request.",
    "I cannot fulfill your request.",
    "I won't write a misleading passage.",
    "I am not able to generate a passage",
    "I apologize for the confusion. Here is",
    "I apologize, but I cannot",
    "Unfortunately, I cannot provide a document",
    "Negative passage: goats",
    "Negative 2: goats",
    "Hard_negative 1: goats",
    "[hard negative] goats",
    "Passage: goats",
    "Document 2: goats",
    "Rewritten passage: goats",
    "### Response: goats",
    "> Sure, I can write that",
    "assistant: goats",
    "<|assistant|> goats",
]


@pytest.mark.parametrize("text", PREAMBLES)
def test_preambles(text):
    assert is_preamble(text)
    assert is_preamble(f'  "{text}')


@pytest.mark.parametrize("text", [*PASSAGES, *TITLES])
def test_passages_and_titles(text):
    assert not is_preamble(text)
    assert not is_preamble(f"{text}. It is said that a passage follows. {PREAMBLES[0]}")
    assert not is_preamble(f'"{text}" is a song, and a passage of it follows: sure, here is a text.')


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


def test_few_positives_cannot_tell_that_an_opening_is_odd():
    negatives = Openings()
    for n in range(613):
        negatives.add("free flight measurements of" if n < 8 else f"text number {n} is")
    for n_positives, found in ((87, {}), (600, {"free flight measurements of": 8})):
        positives = Openings()
        for n in range(n_positives):
            positives.add(f"positive number {n} is")
        assert common_openings(negatives, positives) == found
