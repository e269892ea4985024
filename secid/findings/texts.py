"""The findings that need nothing but texts, for every negative of a run at once.

Negatives that say nothing new are found here: listed twice in their record, the query's own text, or listed for many
queries. The other rules have modules of their own. Source: METHOD 14.

Read in this order: copies (a negative against the positives of its query), preambles, form, openings and languages
(how a passage is written), texts (repeats, echoes and hubs, and all of these as one mask), rows (what needs the
encoder, and all findings of one measured source), status and summary (from flags to numbers and examples).
`secid check` also shows lexical_gate and judgements.

In: pooled texts and sources. Out: `texts.text_rules`, masks per source, bit i of each for the catalogue's i-th finding:

    record                                negative            findings
    query     "where do goats live"       "Goats live here!"  false_negative: equal but for case and punctuation
    positive  "goats live here"           "n/a"               empty
                                          "N/A."              empty, repeat
                                          "cats live there"   none

`status.ListedNegatives` makes of it: empty 2 of 4 (0.5), false_negative and repeat 1 of 4 (0.25 each).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from unicodedata import normalize

import ftfy
import numpy as np
import numpy.typing as npt
from ftfy.badness import badness
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from secid.arrays import Flags, Index, among, distinct
from secid.findings.copies import CopyFinder, Positives
from secid.findings.openings import (
    NO_KEYS,
    BothFlags,
    LengthRange,
    PassageFacts,
    RunOpenings,
    opening_flags,
    used_passages,
)
from secid.findings.status import ListedNegatives
from secid.pool import DocumentFrequencies, Keys, PlannedSource, first_sampled
from secid.pool.normal_form import EMPTY_FORM, TextForms, text_forms
from secid.pool.plan import Mask, TextFindings
from secid.pool.texts import TextStore
from secid.results import Languages
from secid.results.catalogue import BITS

HUB_SHARE = 0.05
"""Share of the queries above which a text that serves them is a hub. Source: METHOD 14."""
HUB_QUERIES = 100
"""Number of queries for which the share is estimated. Source: METHOD 14."""

COMMON_PHRASES = "common_phrases"
"""Of the arrays of `RunTexts`."""


def text_rules(
    queries: TextStore,
    passages: TextStore,
    sources: Sequence[PlannedSource],
    known: Positives | None = None,
    run: RunTexts | None = None,
) -> list[TextFindings]:
    """All findings of the texts of a run, of each source's negatives; of its labelled positives the formal ones.

    queries, passages, sources : all that was read, before a sample or a positive policy leaves anything out.
    known : labelled positives from outside the run, such as a baseline's; they count as the run's own do.
    run   : what was counted over a whole run, of which the sources are a part; counted here where None.
    The order of sources, records and texts, and the size of batches, change nothing but the order of the result.
    """
    of_queries, of_passages = text_forms(queries), text_forms(passages)
    copies = CopyFinder(of_queries, of_passages, passages, sources, known)
    facts = PassageFacts.of(passages, used_passages(sources), of_passages)
    found = []
    for source, openings in zip(
        sources, opening_flags(passages, sources, None if run is None else run.openings), strict=True
    ):
        hubs = hub_forms(served(source, of_queries, of_passages)) if run is None else run.hubs.get(source.name, NO_KEYS)
        formal = facts.of_source(source, None if run is None else run.lengths.get(source.name))
        flags = {
            **copies.flags(source),
            **openings,
            "empty": of_passages.empty[source.negatives],
            "repeat": listed_before(source, of_passages),
            "query_echo": echo_flags(source, of_queries, of_passages),
            "hub": among(of_passages.form[source.negatives], hubs),
        }
        own = formal_masks(source, formal)
        excess = run.excess.get(source.name, {}) if run is not None else excess_of(source, own, queries)
        found.append(TextFindings(own.negatives | mask_of(flags, source.n_triplets), own.positives, excess))
    return found


def formal_masks(source: PlannedSource, formal: Mapping[str, BothFlags]) -> TextFindings:
    """The formal findings of a source alone. formal: by name, as `PassageFacts.of_source` gives them."""
    of_negatives, of_positives = ({name: flags[side] for name, flags in formal.items()} for side in (0, 1))
    positives = mask_of(of_positives, len(source.positives)).astype(np.uint16)
    return TextFindings(mask_of(of_negatives, source.n_triplets), positives)


def excess_of(source: PlannedSource, formal: TextFindings, queries: TextStore) -> dict[str, bool]:
    """The formal defects that count in a source with these formal findings, and whether dropping them helps."""
    return ListedNegatives(source.with_findings(formal), queries.keys).excess()


def mask_of(flags: Mapping[str, Flags], n: int) -> Mask:
    """(n,) uint32 with bit i set where flags[TEXT_FINDINGS[i]] is; a finding without flags sets none.

    Raises ValueError for a name that is no text finding.
    """
    mask = np.zeros(n, np.uint32)
    for name, values in flags.items():
        mask |= values.astype(np.uint32) << np.uint32(BITS[name])
    return mask


def listed_before(source: PlannedSource, passages: TextForms) -> Flags:
    """(T,) the record lists a negative of the same normal form at an earlier place.

    Copies of one text are one row: `copies` counts them, and all but the first are repeats too.
    """
    keys = source.triplet_record() * max(1, passages.n_forms) + passages.number[source.negatives]
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(keys), np.bool_)
    again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    return again


def echo_flags(source: PlannedSource, queries: TextForms, passages: TextForms) -> Flags:
    """(T,) the negative's normal form equals its query's; no text without words equals another."""
    own = passages.form[source.negatives]
    return np.asarray((own == queries.form[source.query[source.triplet_record()]]) & (own != EMPTY_FORM))


@dataclass(frozen=True)
class RunTexts:
    """What the rules need to know of all texts of a run.

    By source: hubs, sorted keys of the forms that are hubs; lengths, the shortest and the longest ordinary one; excess,
    the formal defects that count, and whether dropping them helps.
    """

    openings: RunOpenings
    hubs: Mapping[str, Keys]
    lengths: Mapping[str, LengthRange]
    excess: Mapping[str, Mapping[str, bool]]

    def stored(self, names: Sequence[str]) -> dict[str, Keys]:
        """As arrays; `restored_texts` is the inverse. names: of the sources."""
        arrays = {COMMON_PHRASES: self.openings.common_phrases}
        for number, name in enumerate(names):
            arrays[f"shared_{number}"] = self.openings.shared.get(name, NO_KEYS)
            arrays[f"hubs_{number}"] = self.hubs.get(name, NO_KEYS)
            arrays[f"lengths_{number}"] = np.array(self.lengths.get(name, ()), np.uint64)
            excess = self.excess.get(name, {})
            arrays[f"excess_{number}"] = np.array([2 * BITS[each] + helps for each, helps in excess.items()], np.uint64)
        return arrays


def restored_texts(arrays: Mapping[str, Keys], names: Sequence[str]) -> RunTexts:
    """What `RunTexts.stored` made arrays of, for sources that have these names now. Raises KeyError for others."""
    shared, hubs, lengths, excess = (
        {name: arrays[f"{kind}_{n}"] for n, name in enumerate(names)}
        for kind in ("shared", "hubs", "lengths", "excess")
    )
    finding_of_bit = tuple(BITS)
    return RunTexts(
        RunOpenings(arrays[COMMON_PHRASES], shared),
        hubs,
        {name: (int(ends[0]), int(ends[1])) for name, ends in lengths.items() if len(ends)},
        {name: {finding_of_bit[key >> 1]: bool(key & 1) for key in keys.tolist()} for name, keys in excess.items()},
    )


def served(source: PlannedSource, queries: TextForms, passages: TextForms) -> DocumentFrequencies:
    """For how many of a source's queries each normal form is listed. Queries count by their normal form."""
    n_forms = max(1, passages.n_forms)
    query = queries.number[source.query[source.triplet_record()]]
    pairs = distinct(query * n_forms + passages.number[source.negatives])
    form, number = np.unique(passages.form[source.negatives], return_index=True)
    counts = np.bincount(pairs % n_forms, minlength=n_forms)[passages.number[source.negatives][number]]
    return DocumentFrequencies(form, counts.astype(np.int64), len(distinct(pairs // n_forms)))


def hub_forms(served: DocumentFrequencies) -> Keys:
    """Sorted keys of the forms that serve more than HUB_SHARE of HUB_QUERIES queries, as estimated from a source.

    A form that serves k of the source's Q queries serves k / Q of a random sample of HUB_QUERIES of them on average
    (the mean of a hypergeometric count, which is what rarefaction takes). A source of fewer queries is its own sample:
    the queries that it lacks count as not served, so the estimate k / max(Q, HUB_QUERIES) is a lower bound, and a form
    needs six queries to be a hub however small the source is.
    """
    return served.keys[served.counts > HUB_SHARE * max(served.n_documents, HUB_QUERIES)]


LANGUAGES = (
    "am", "ar", "az", "be", "bg", "bn", "ca", "cs", "da", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "gu",
    "ha", "he", "hi", "hu", "hy", "id", "is", "it", "ja", "ka", "kk", "km", "kn", "ko", "lo", "lt", "lv", "mk", "ml",
    "mn", "mr", "my", "ne", "nl", "no", "pa", "pl", "ps", "pt", "ro", "ru", "si", "sk", "sl", "so", "sq", "sr", "sv",
    "sw", "ta", "te", "th", "tl", "tr", "uk", "ur", "uz", "vi", "yo", "zh", "zu", "zxx",
)  # fmt: skip
"""Of the library's 139: languages with retrieval data, none a variety of another. Egyptian Arabic, Wu, Nigerian Pidgin
or Malay are given as Arabic, Chinese, English or Indonesian: a dialect is no other language than its language, and
with all 139, 4.6 % of Chinese paragraphs were "Wu"."""
NO_LANGUAGE = "zxx"
"""The library's class for numbers, markup and identifiers."""
UNDECIDED = -1
MIN_CONFIDENCE = 0.9
"""Least probability of a decision. Of passages cut to eight words none in six languages was given another one, at 0.7
up to 0.4 %; of whole passages 99 to 100 % are decided (docs/decisions/languages.md)."""
FIRST_CHARACTERS, MORE_CHARACTERS = 128, 256
"""Decides 95 % of English abstracts at half of the time; the others are read on. Time grows with what is read."""
RAW_CHARACTERS = 1024
"""Holds MORE_CHARACTERS of code, too, when white space is collapsed."""
ENCODING_CHARACTERS = 512
"""From the first character beyond ASCII: wrong decoding spoils all of them, so that a passage need not be read to its
end."""
MIN_REPAIRED = 0.5
MIN_BADNESS = 0.1
"""Least share of the characters beyond ASCII that ftfy's repair replaces, or least number of sequences that it calls
unlikely for each of them (some damage it sees and cannot repair). A wrongly decoded text has no sound ones; a passage
that quotes a damaged name keeps nearly all of its own: 13 of 240 Arabic paragraphs do, which the bare library would
flag; they have 0.013 such sequences a character at most, text read as Latin-1 or Windows-1252 has 0.2 or more."""
SAMPLED_TEXTS = 1_000
"""Texts of a source whose languages the report gives: a share then has a standard error of 1.6 points at most."""
BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def languages_of(passages: TextStore, negatives: Index, seed: int) -> Languages:
    """Languages of a sample of the distinct texts among a source's negatives. negatives: (T,) ids."""
    texts = passages.take(first_sampled(distinct(negatives), passages.keys, seed, SAMPLED_TEXTS))
    counts = Counter("" if number == UNDECIDED else LANGUAGES[number] for number in language_numbers(texts).tolist())
    n = max(1, len(texts))
    return Languages(
        n_texts=len(texts),
        shares={code: n_texts / n for code, n_texts in sorted(counts.items(), key=lambda item: (-item[1], item[0]))},
    )


def language_numbers(texts: Sequence[str]) -> npt.NDArray[np.int16]:
    """(n,) place of each text's language in LANGUAGES, UNDECIDED where the library is not sure of one.

    >>> [LANGUAGES[number] for number in language_numbers(["Die Sonne scheint heute über den Bergen und dem See."])]
    ['de']
    """
    heads = [_head(text) for text in texts]
    numbers, confidence = _model().classify([head[:FIRST_CHARACTERS] for head in heads])
    long = np.array([len(head) > FIRST_CHARACTERS for head in heads], np.bool_)
    more = np.flatnonzero((confidence < MIN_CONFIDENCE) & long)
    numbers[more], confidence[more] = _model().classify([heads[place] for place in more])
    decided = (confidence >= MIN_CONFIDENCE) & (numbers != LANGUAGES.index(NO_LANGUAGE))
    return np.where(decided, numbers, UNDECIDED).astype(np.int16)


def _head(text: str) -> str:
    """The first characters of a text, each stretch of white space one blank."""
    head = text[:MORE_CHARACTERS]
    if head.isprintable() and "  " not in head and head == head.strip():  # nothing to collapse, as mostly
        return head
    return " ".join(text[:RAW_CHARACTERS].split())[:MORE_CHARACTERS]


@dataclass(frozen=True)
class _Model:
    """The library's model as arrays, and its `classify` for many texts at once: 10 µs a text instead of 90.

    The library follows each text byte by byte through an automaton, whose states name features, and adds up
    log(1 + count) times the weights of the features. Here all texts take a step at once.

    next_state : by row << 8 | byte.   row, feature : (n_states,); feature n_features where a state names none.
    weights    : (n_features + 1, n_columns) float32, the last row zeros.   prior : (n_columns,).
    language   : (n_columns, len(LANGUAGES)) 1 where a column is of a language: some have one for each script.
    """

    next_state: npt.NDArray[np.uint32]
    row: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    prior: npt.NDArray[np.float32]
    language: npt.NDArray[np.float32]

    @staticmethod
    def of(library: LanguageIdentifier) -> _Model:
        """The arrays of the library's model."""
        feature, no_feature = np.array(library.tk_output, np.int32), len(library.nb_ptc)
        return _Model(
            np.asarray(library.tk_nextmove),
            np.asarray(library.tk_row).astype(np.int32) << 8,
            np.where(feature < 0, no_feature, feature).astype(np.int32),
            np.pad(library.nb_ptc.astype(np.float32, order="C"), ((0, 1), (0, 0))),
            library.nb_pc,
            np.equal.outer(library.nb_classes, LANGUAGES).astype(np.float32),
        )

    def classify(self, texts: Sequence[str]) -> tuple[Index, npt.NDArray[np.float32]]:
        """(n,) the most likely language of each text, by its place in LANGUAGES, and the probability of it."""
        from scipy.sparse import csr_array

        parts = [_as_trained(text) for text in texts]
        n_bytes = np.fromiter(map(len, parts), np.int64, len(parts))
        features = self._features(parts, n_bytes)
        features.sort(axis=1)
        new = np.ones(features.shape, np.bool_)
        new[:, 1:] = features[:, 1:] != features[:, :-1]
        counts = np.diff(np.flatnonzero(new), append=features.size)
        rows = np.concatenate([[0], np.cumsum(new.sum(axis=1))])
        shape = len(parts), len(self.weights)
        scores = csr_array((np.log1p(counts.astype(np.float32)), features[new], rows), shape) @ self.weights
        scores += (features[:, :1] < shape[1] - 1) * self.prior  # a text without features is of no language
        scores /= np.sqrt(np.maximum(n_bytes, 1), dtype=np.float32)[:, None]
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = scores @ self.language / scores.sum(axis=1, keepdims=True)
        return shares.argmax(axis=1), shares.max(axis=1)

    def _features(self, parts: Sequence[bytes], n_bytes: Index) -> npt.NDArray[np.int32]:
        """(n, longest + 1) the feature at each byte of each text, n_features where there is none and behind its end.

        The longest texts come first while they are read, so that those that have not ended are the first n.
        """
        order = np.argsort(-n_bytes, kind="stable")
        starts = (np.cumsum(n_bytes) - n_bytes)[order]
        width = int(n_bytes.max(initial=0)) + 1
        n_left = np.searchsorted(-n_bytes[order], -np.arange(width))
        letters = np.frombuffer(b"".join([*parts, b" "]), np.uint8)
        features = np.full((len(parts), width), len(self.weights) - 1, np.int32)
        state = np.zeros(len(parts), np.uint32)
        for place, n in enumerate(n_left.tolist()):
            state = self.next_state[self.row[state[:n]] + letters[starts[:n] + place]]
            features[:n, place] = self.feature[state]
        features[order] = features.copy()
        return features


def _as_trained(text: str) -> bytes:
    """The bytes that the library's model was trained on: letters in one form, capitals alone in lower case."""
    return normalize("NFC", text.lower() if text.isupper() else text).encode()


def is_mojibake(text: str) -> bool:
    """True where most of the text beyond ASCII was decoded with the wrong encoding (MIN_REPAIRED, MIN_BADNESS).

    >>> is_mojibake("Ã¼ber den DÃ¤chern"), is_mojibake("über den Dächern")
    (True, False)
    """
    first = None if text.isascii() else BEYOND_ASCII.search(text)
    part = text[first.start() : first.start() + ENCODING_CHARACTERS] if first else ""
    n_unlikely = badness(part) if part else 0
    if not n_unlikely:
        return False
    before, after = _beyond_ascii(part), _beyond_ascii(ftfy.fix_encoding(part))
    n_replaced = (before - after).total()
    return n_unlikely >= MIN_BADNESS * before.total() or n_replaced >= MIN_REPAIRED * before.total()


def damage_start(text: str) -> int:
    """Where the damage of a text begins: the first character that repairing changes, else the first beyond ASCII.

    >>> damage_start("on the DÃ¤chern")
    8
    """
    fixed = ftfy.fix_encoding(text)
    if fixed != text:
        return next(
            (at for at, pair in enumerate(zip(text, fixed, strict=False)) if pair[0] != pair[1]),
            min(len(text), len(fixed)),
        )
    first = BEYOND_ASCII.search(text)
    return first.start() if first else 0


def _beyond_ascii(text: str) -> Counter[str]:
    return Counter(BEYOND_ASCII.findall(text))


@cache
def _model() -> _Model:
    """The library's model, read once (0.4 s)."""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(LANGUAGES)
    return _Model.of(identifier)
