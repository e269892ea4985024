"""Text findings against plain sets, and with one kind of defect planted at a time."""

from __future__ import annotations

import random
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.findings import copies
from secid.findings.copies import RunBits, near_copies, restored, run_sets, stored_positives
from secid.findings.openings import NO_KEYS, RunOpenings
from secid.findings.texts import RunTexts, mask_of, restored_texts
from secid.pool import normal_form as forms_module
from secid.pool import select_records
from secid.pool.normal_form import EMPTY_FORM, FormKeys, is_empty, normal_form
from secid.pool.texts import Packed
from secid.results.catalogue import BITS
from tests.unit.findings import slow_texts
from tests.unit.findings.pooled import names_in, plain, pooled, text_masks

PARTS = (
    "Alpha", "alpha", "BETA", "gamma-delta", "x", "Straße", "STRASSE", "ｆｕｌｌ", "naïve", "nai\u0308ve", "नदी", "ﬁn",
    "7", "&amp;", "AT&T", "n/a", "None", "…", "_", "\n", "\u0301", "soft\u00adhyphen", "ΟΔΟΣ", "İ", "水", "東京", "은",
    "\u200b", "C++", "c#", "a<b", "a > b", "€ 5", "5%", "5", "=>", "½", "−5", "|",
)  # fmt: skip
WORDS = ("one", "Two", "three", "FOUR", "five")
SIGNS = "水火木金土日月の、 กขคงจ่้"


@st.composite
def texts(draw):
    """A text of odd parts, of few words, or of few characters without spaces: short, so that many are alike."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return " ".join(draw(st.lists(st.sampled_from(PARTS), max_size=5)))
    if kind == 1:
        return draw(st.text(st.sampled_from(SIGNS), max_size=24))
    start, length = draw(st.integers(0, 4)), draw(st.integers(0, 16))
    words = [WORDS[(start + i * i) % 5] for i in range(length)]
    if words and draw(st.booleans()):
        words[draw(st.integers(0, len(words) - 1))] = draw(st.sampled_from(PARTS))
    return draw(st.sampled_from((" ", ", "))).join(words)


QUERIES = st.sampled_from(("What?", "what", "水は？", "one two three five", "…", ""))
ROWS = st.lists(
    st.tuples(QUERIES, st.lists(texts(), min_size=1, max_size=3), st.lists(texts(), min_size=1, max_size=4)),
    min_size=1,
    max_size=4,
)


def compared(plan, found, expected) -> int:
    """Count the negatives that have a finding. Fail if the masks differ from the expected ones."""
    n = 0
    for mask, names in zip(found, expected, strict=True):
        assert [names_in(int(value)) for value in mask] == names
        n += sum(map(bool, names))
    return n


def flags_of(mask, name):
    return (mask >> np.uint32(BITS[name])) & np.uint32(1) > 0


@given(st.lists(ROWS, min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_masks_equal_plain_sets(sources):
    with pooled(*sources) as plan:
        masks = text_masks(plan.queries, plan.passages, plan.sources)
        compared(plan, masks, slow_texts.findings(plain(plan)))


@given(st.lists(texts(), min_size=1, max_size=8))
@settings(max_examples=75, deadline=None)
def test_keys_of_many_texts_are_those_of_their_normal_forms(many):
    forms = FormKeys.of(Packed.of(many))
    expected = [slow_texts.form(text) for text in many]
    assert [normal_form(text) for text in many] == expected
    assert [forms.form(place) for place in range(len(many))] == expected
    assert forms.n_words.tolist() == [len(text.split()) for text in expected]
    hashes = forms.hashes()
    same = hashes[:, None] == hashes[None, :]
    assert same.tolist() == [[one == other for other in expected] for one in expected]
    assert (hashes == EMPTY_FORM).tolist() == [text == "" for text in expected]
    assert [is_empty(text) for text in expected] == [slow_texts.is_empty(text) for text in many]
    for text, value in zip(many, hashes, strict=True):  # whatever a text is packed with
        assert FormKeys.of(Packed.of([text])).hashes()[0] == value


ODD = "aAeE\u0301\u0316\u0323\u0345\u0308ǖéÅΐßﬁﬃÇＡｶﾞㅏㅎ각가ᄀ\u1161\u11a8"
ODD += "क\u093c\u094dक़ำุ่日々〇㍿①½²Ⅷʰªİıſς\u00ad\ufe0f\u200d\u200b\U0001f600𝔸"


@given(st.lists(st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_categories=("Cs",)))), max_size=4))
@settings(max_examples=125, deadline=None)
def test_normal_forms_are_unicode_normalization(many):
    assert [normal_form(text) for text in many] == [slow_texts.form(text) for text in many]
    forms = FormKeys.of(Packed.of(many))
    assert [forms.form(place) for place in range(len(many))] == [slow_texts.form(text) for text in many]


def changes(char: str) -> bool:
    """Return True if normalisation may change a character, alone or among others."""
    folds = unicodedata.normalize("NFKC", char).casefold() != char or unicodedata.combining(char)
    return bool(folds) or unicodedata.category(char) not in ("Lo", "Co")


def test_characters_alone_and_behind_a_letter_fold_as_unicode_says():
    """All that change, and of the 260,000 others every 32nd."""
    codes = [
        code for code in range(0x110000)
        if unicodedata.category(chr(code)) not in ("Cn", "Cs") and (code % 32 == 0 or changes(chr(code)))
    ]  # fmt: skip
    for frame in ("{}", "e{}\u0301", "각{}", "क{}\u093c"):
        texts = [frame.format(chr(code)) for code in codes if chr(code) != "&"]
        forms = FormKeys.of(Packed.of(texts))
        wrong = [text for place, text in enumerate(texts) if forms.form(place) != slow_texts.form(text)]
        assert wrong == []


def test_hashes_are_the_same_on_every_machine():
    found = FormKeys.of(Packed.of(["Hard negatives, mined.", "水の都 ベネチア", "…", "a" * 65])).hashes()
    assert [f"{int(value):016x}" for value in found] == HASHES


HASHES = ["5d69a3707ddca985", "45ee91880cccb778", "0000000000000000", "fb9a9a5f752e7e8e"]


def passage(seed: int, n: int = 60, language: str = "en") -> str:
    """Return a passage of two sentences. Passages of different seeds share no run."""
    draw = random.Random(f"{language} {seed}")
    first, last = {"en": "az", "de": "aü", "hi": "कह", "zh": "一龥", "th": "กฮ"}[language]
    letters = [chr(code) for code in range(ord(first), ord(last) + 1) if chr(code).isalpha()]
    if language in ("zh", "th"):
        text = "".join(draw.choices(letters, k=3 * n))
        return f"{text[:n]}，{text[n:]}。" if language == "zh" else f"{text[:n]} {text[n:]}"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(n)]
    return f"{' '.join(words[: n // 3]).capitalize()}. {' '.join(words[n // 3 :]).capitalize()}."


LANGUAGES = ("en", "de", "hi", "zh", "th")
TITLE = {"en": "On a title", "de": "Über den Titel", "hi": "एक नाम", "zh": "題名一則", "th": "ชื่อเรื่อง"}
PLANTED = {
    "the positive itself": ("false_negative", lambda text, title: text),
    "other case and spaces": ("false_negative", lambda text, title: f"  {text.upper()}\n".replace(" ", "  ")),
    "composed otherwise": ("false_negative", lambda text, title: unicodedata.normalize("NFD", text)),
    "entities": ("false_negative", lambda text, title: text.replace(".", "&period;").replace("，", "&#44;")),
    "a title added": ("near_copy", lambda text, title: f"{title}: {text}"),
    "cut short to 85 %": ("near_copy", lambda text, title: text[: len(text) * 85 // 100]),
    "its beginning lost": ("near_copy", lambda text, title: text[len(text) // 4 :]),
    "a word replaced in the middle": ("near_copy", lambda text, title: text[:50] + title[:4] + text[54:]),
    "inside a longer text": ("near_copy", lambda text, title: f"{title} {title} {text} {title} {title}"),
    "half of it and another text": (None, lambda text, title: text[: len(text) // 2] + passage(902, 120)),
}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", PLANTED)
def test_one_kind_of_planted_copy(kind, language):
    name, change = PLANTED[kind]
    positives = [passage(n, language=language) for n in range(8)]
    clean = [passage(100 + n, language=language) for n in range(8)]
    rows = [(f"query {n}", [positives[n], passage(200 + n, language=language)], [clean[n]]) for n in range(8)]
    for n in range(0, 8, 4):
        rows[n][2].append(change(positives[n], TITLE[language]))
    with pooled(rows) as plan:
        (mask,) = text_masks(plan.queries, plan.passages, plan.sources)
        compared(plan, [mask], slow_texts.findings(plain(plan)))
        expected = np.arange(10) % 5 == 1
        for each in ("false_negative", "near_copy"):
            assert np.array_equal(flags_of(mask, each), expected & (each == name))


def test_a_positive_of_another_query_is_not_a_false_negative():
    with pooled([("a", [passage(1)], [passage(2)]), ("b", [passage(2)], [passage(1)])]) as plan:
        assert text_masks(plan.queries, plan.passages, plan.sources)[0].tolist() == [0, 0]


def test_labels_of_other_records_and_sources_count_and_are_named():
    rows = [("other", [passage(9)], [passage(8)]), ("What now?", [passage(1)], [passage(2).upper(), passage(3)])]
    labels = [("other", [passage(7)], [passage(6)]), ("what NOW", [passage(4), passage(2)], [passage(5)])]
    with pooled(rows, labels) as plan:
        masks = text_masks(plan.queries, plan.passages, plan.sources)
        assert [names_in(int(value)) for value in masks[0]] == [set(), {"false_negative"}, set()]
    with pooled(rows) as plan:
        assert text_masks(plan.queries, plan.passages, plan.sources)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "empty"),
    [
        *((t, True) for t in ("", "  ", "N/A", "NA", "a", "[removed]", "…", "\u0301", "😀", "_", "&nbsp;", "\u200b")),
        *((t, True) for t in ("ｎ／ａ", "None.", "<null>", "< n/a >", "#N/A", "+", "a.", "€")),
        *((t, False) for t in ("C#", "c++", "+5", "x >", "©x", "№", "n/a \u0301 =>")),
        *((t, False) for t in ("UK", "42", "- 7 -", "a 7", "DNA", "北京", "水", "나무", "नदी", "की", "да", "no text")),
    ],
)  # fmt: skip
def test_empty(text, empty):
    with pooled([("q", [passage(0)], [text, passage(1)])]) as plan:
        (mask,) = text_masks(plan.queries, plan.passages, plan.sources)
    assert flags_of(mask, "empty").tolist() == [empty, False]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        *((*pair, False) for pair in (("C++", "C#"), ("C", "C#"), ("+5", "-5"), ("a<b", "a>b"), ("50%", "50"))),
        *((*pair, False) for pair in (("€5", "$5"), ("x = y", "x + y"), ("好👍", "好👎"))),
        *((*pair, True) for pair in (("a<b", "A &lt; b"), ("€5", "€ 5"), ("x=1", "x  = 1."), ("−5", "-5"),
            ("½", "1/2"))),
        *((*pair, True) for pair in (("“Yes,” he said…", "yes -- he said"), ("A | b", "a: b"),
            ("*Not* (so)", "not so"))),
    ],
)  # fmt: skip
def test_symbols_tell_texts_apart_and_punctuation_does_not(one, other, same):
    assert (normal_form(one) == normal_form(other)) == same
    first, second = FormKeys.of(Packed.of([one, other])).hashes()
    assert (first == second) == same


@pytest.mark.parametrize("language", LANGUAGES)
def test_repeats_and_echoes(language):
    text, query = passage(1, language=language), passage(2, 8, language)
    rows = [(query, [passage(3)], [text, text, passage(4), f"{text} !", query.upper()]), ("b", [passage(5)], [text])]
    with pooled(rows) as plan:
        masks = text_masks(plan.queries, plan.passages, plan.sources)
        names = [names_in(int(value)) for value in masks[0]]
        assert names == [set(), set(), {"repeat"}, {"query_echo"}, set()]


@pytest.mark.parametrize(
    ("n_queries", "n_served", "is_hub"),
    [(8, 2, False), (5, 5, False), (8, 8, True), (100, 5, False), (100, 6, True), (400, 20, False), (400, 21, True)],
)
def test_a_hub_serves_more_than_5_of_100_queries(n_queries, n_served, is_hub):
    rows = [(f"query {n}", [f"positive {n}"], [f"negative {n}"]) for n in range(n_queries)]
    for n in range(n_served):
        rows[n][2].append("The hub" if n % 2 else "the HUB!")
    with pooled(rows) as plan:
        (mask,) = text_masks(plan.queries, plan.passages, plan.sources)
    assert flags_of(mask, "hub").sum() == (n_served if is_hub else 0)
    assert flags_of(mask, "hub").sum() == (mask > 0).sum()


def test_a_text_that_serves_6_percent_of_2_000_queries_is_a_hub_and_4_percent_none():
    rows = [(f"query {n}", [f"positive {n}"], [f"negative {n}"]) for n in range(2_000)]
    for n in range(120):
        rows[n][2].append("often")
    for n in range(80):
        rows[n][2].append("less often")
    with pooled(rows) as plan:
        (mask,) = text_masks(plan.queries, plan.passages, plan.sources)
    assert flags_of(mask, "hub").sum() == 120


def test_the_order_of_sources_and_rows_and_the_sizes_of_batches_change_nothing(monkeypatch):
    draw = random.Random(3)
    pool = [passage(n, 20, LANGUAGES[n % 5]) for n in range(30)]
    pool += [text[: len(text) * 9 // 10] for text in pool[:20]] + ["n/a", "query 1"]
    sources = [
        [(f"query {draw.randrange(9)}", draw.sample(pool, 2), draw.sample(pool, 5)) for _ in range(15)]
        for _ in range(3)
    ]

    def flagged(sources) -> dict[tuple[int, int, str], set[str]]:
        with pooled(*sources) as plan:
            masks = text_masks(plan.queries, plan.passages, plan.sources)
            records = plain(plan)
        found = {}
        for rows, mask in zip(records, masks, strict=True):
            texts = [(row.query, tuple(sorted(row.positives)), text) for row in rows for text in row.negatives]
            found |= {(texts[i][0], texts[i][1], texts[i][2]): names_in(int(value)) for i, value in enumerate(mask)}
        return found

    expected = flagged(sources)
    assert {"near_copy", "false_negative", "empty", "query_echo"} <= set().union(*expected.values())
    assert flagged(sources[::-1]) == expected
    monkeypatch.setattr(copies, "COMPARED_PAIRS_AT_ONCE", 7)
    monkeypatch.setattr(copies, "BYTES_AT_ONCE", 100)
    monkeypatch.setattr(forms_module, "FORMS_AT_ONCE", 3)
    assert flagged([rows[::-1] for rows in sources]) == expected


def test_near_copies_of_texts_of_all_lengths():
    rows = []
    for n in range(40):
        text = passage(n, 30 + 10 * n)
        rows.append((f"q {n}", [text], [text[: int(len(text) * 0.83)], text[len(text) // 3 :], passage(500 + n)]))
    with pooled(rows) as plan:
        masks = text_masks(plan.queries, plan.passages, plan.sources)
        assert compared(plan, masks, slow_texts.findings(plain(plan))) >= 40


@pytest.mark.parametrize("name", slow_texts.NAMES)
def test_a_damaged_mask_is_noticed(name):
    rows = [("query", [passage(1)], [passage(2), passage(1), "n/a", "Query", "query!", passage(1) + " more"])]
    with pooled(rows) as plan:
        (mask,) = text_masks(plan.queries, plan.passages, plan.sources)
        expected = slow_texts.findings(plain(plan))
        assert compared(plan, [mask], expected) == 5
        damaged = mask.copy()
        damaged[0] ^= mask_of({name: np.ones(1, np.bool_)}, 1)[0]
        with pytest.raises(AssertionError):
            compared(plan, [damaged], expected)


def stored(*sources) -> dict[str, np.ndarray]:
    with pooled(*sources) as plan:
        return stored_positives(plan.queries, plan.passages, plan.sources)


@pytest.mark.parametrize("language", LANGUAGES)
def test_positives_that_only_a_baseline_knows(language):
    texts = [passage(n, language=language) for n in range(4)]
    known = restored(stored([("The query!", [texts[0], texts[1]], [texts[3]]), ("b", [texts[2]], [texts[3]])]))
    cut = texts[1][: len(texts[1]) * 9 // 10]
    rows = [
        ("the query", [passage(50)], [texts[0].upper(), cut, texts[2], texts[3]]),
        ("new", [passage(51)], [texts[0]]),
    ]
    with pooled(rows) as plan:
        (alone,) = text_masks(plan.queries, plan.passages, plan.sources)
        masks = text_masks(plan.queries, plan.passages, plan.sources, known)
        assert not alone.any()
        expected = [{"false_negative"}, {"near_copy"}, set(), set(), set()]
        assert [names_in(int(value)) for value in masks[0]] == expected


def test_stored_positives_do_not_depend_on_the_order_and_leave_out_what_nothing_equals():
    one = [("q", [passage(1), passage(1).upper(), "…"], [passage(3)]), ("r", [passage(2)], [passage(3)])]
    first, second = stored(one, one[:1]), stored(one[::-1])
    assert {name: values.tolist() for name, values in first.items()} == {n: v.tolist() for n, v in second.items()}
    assert len(first["positive_forms"]) == 2
    n_runs = len(passage(1).split()) - 4 + len(passage(2).split()) - 4
    assert 0.1 * n_runs < len(first["positive_runs"]) < 0.45 * n_runs


def test_what_a_run_knows_of_its_texts_is_restored():
    lengths, excess = {"a": (40, 900)}, {"a": {"loop": True, "wrapper": False}, "b": {}}
    run = RunTexts(RunOpenings(NO_KEYS, {}), {}, lengths, excess)
    found = restored_texts(run.stored(["a", "b"]), ["a", "b"])
    assert (found.lengths, found.excess) == (lengths, excess)


def test_stored_positives_of_nothing_know_nothing():
    known = restored(stored([("q", ["…"], [passage(1)])]))
    assert len(known.forms) == 0
    with pooled([("q", [passage(1)], [passage(1), passage(2)])]) as plan:
        assert names_in(int(text_masks(plan.queries, plan.passages, plan.sources, known)[0][0])) == {"false_negative"}


@pytest.mark.parametrize("name", ["positive_offsets", "positive_run_offsets", "positive_forms", "positive_runs"])
def test_stored_positives_that_do_not_fit_are_refused(name):
    arrays = stored([("q", [passage(1)], [passage(2)]), ("r", [passage(3)], [passage(2)])])
    with pytest.raises(ValueError, match="do not match each other"):
        restored({**arrays, name: arrays[name][:-1]})
    with pytest.raises(ValueError, match="not sorted and distinct"):
        restored({**arrays, "positive_queries": arrays["positive_queries"][::-1]})


def test_a_source_without_triplets_has_an_empty_mask():
    with pooled([("q", [passage(1)], [passage(2)])]) as plan:
        (source,) = plan.sources
        nothing = select_records(source, np.zeros(1, np.bool_), np.zeros(1, np.bool_))
        assert [len(mask) for mask in text_masks(plan.queries, plan.passages, [nothing])] == [0]
        assert text_masks(plan.queries, plan.passages, []) == []
        assert (
            text_masks(plan.queries.only(np.zeros(0, np.int64)), plan.passages.only(np.zeros(0, np.int64)), [nothing])[
                0
            ].tolist()
            == []
        )


def test_the_bits_of_runs_rule_out_no_near_copy_and_nearly_all_else():
    """Texts of 2 to 400 words, some with words left out, some within a longer one, some unlike, some without spaces."""
    generator, vocabulary = random.Random(0), [f"w{number}" for number in range(3000)]
    pairs = []
    for number in range(1500):
        words = generator.choices(vocabulary, k=generator.choice([2, 6, 8, 60, 400]))
        left_out = generator.choice([0.0, 0.02, 0.05, 0.2])
        other = [word for word in words if generator.random() >= left_out]
        more = generator.choices(vocabulary, k=generator.choice([0, 1, 20]))
        pair = [" ".join(part) for part in (words, more if number % 3 else other + more)]
        pairs.append(pair if number % 5 else [part.replace("w", "山羊").replace(" ", "") for part in pair])
    forms = FormKeys.of(Packed.of([text for side in zip(*pairs, strict=True) for text in side]))
    left, right = np.arange(1500), np.arange(1500, 3000)
    near = near_copies(run_sets(forms).take(left), run_sets(forms).take(right))
    may_be = RunBits.of(forms).may_be_near(left, right)
    assert near.sum() > 200
    assert not (near & ~may_be).any()
    assert (may_be & ~near).sum() < 0.1 * (~near).sum()


@pytest.mark.parametrize(("union_bits", "pairs_at_once"), [(22, 1 << 16), (1, 1 << 16), (22, 7)])
def test_negatives_of_queries_with_many_positives_are_compared_with_all_of_them(union_bits, pairs_at_once, monkeypatch):
    """Negatives lack some words of one positive, contain a positive, join halves of two positives, or are unlike."""
    generator, vocabulary = random.Random(1), [f"w{number}" for number in range(3000)]

    def words(low: int, high: int) -> list[str]:
        return generator.choices(vocabulary, k=generator.randint(low, high))

    rows = []
    for query in range(6):
        positives = [words(5, 80) for _ in range(15)]
        negatives = [words(5, 80) for _ in range(20)]
        for one, other in pairwise(positives):
            left_out = generator.choice([0.0, 0.02, 0.05, 0.2])
            negatives.append([word for word in one if generator.random() >= left_out] + ["more"])
            negatives.append([*words(0, 200), *one, *words(0, 200)])
            negatives.append(one[: len(one) // 2] + other[len(other) // 2 :])
        spelled = ([" ".join(text) for text in part] for part in (positives, negatives))
        rows.append((f"Question {query}?", *spelled))
    rows.append(("Question 0?", [rows[1][1][0]], rows[1][2]))  # the first query has a positive of the second
    n_pairs = []

    def counted(negatives, positives, min_runs):
        n_pairs.append(len(negatives.sizes))
        return near_copies(negatives, positives, min_runs)

    monkeypatch.setattr(copies, "near_copies", counted)
    monkeypatch.setattr(copies, "UNION_BITS", union_bits)
    monkeypatch.setattr(copies, "COMPARED_PAIRS_AT_ONCE", pairs_at_once)
    with pooled(rows) as plan:
        found = text_masks(plan.queries, plan.passages, plan.sources)
        assert compared(plan, found, slow_texts.findings(plain(plan))) > 150
    if union_bits > 1:
        assert sum(n_pairs) < 300
