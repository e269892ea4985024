"""Explain each number in one place: its meaning, range and unit, and which direction is better."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from secid.analyses.budgets import BUDGETS
from secid.analyses.equal_hardness import EQUAL_HARDNESS
from secid.pages.text import code, count, listed, named, plain, plural, short
from secid.results import ControlResult, EncoderInfo, Merged, Run, SourceReport, control_name
from secid.results.catalogue import FINDINGS, NEAR_HARDNESS
from secid.settings import flag_of

SCORE_CAUTION = (
    "The score prefers safe negatives near the positive. Which source trains better depends on how much you train, "
    "and no number here predicts it."
)
ONE_LABEL = "False negatives are checked against one label per query; unlabelled ones may remain."
GUIDE_OFFER = f"Add {code('--guide NAME')} to list negatives that look relevant to a second model."
CHECK_OFFER = (
    f"To check, add {code('--collection DIR')} if these queries have relevance judgements, otherwise "
    f"{code('--guide NAME')}."
)
"""Sentence on how to find more false negatives, the cheapest way first."""
NOT_RULED_OUT = (
    "False negatives are found only where a negative repeats a labelled positive of its query, in full, nearly or in "
    "part. Other relevant passages are not ruled out."
)
"""Sentence for runs without a guide whose queries have several positives. Other runs have ONE_LABEL."""
STATUS_TERMS = {
    "no defects": "no counted defect is above its limit, which does not make the source good for training; "
    "“no defects; NAME” has another finding above its limit.",
    "not ranked": "no defects, but the source is as easy as random passages, or too few of its negatives are as hard "
    "as those of other sources, or it has too few queries in common with them. So a high score does not recommend it.",
    "no verdict": "the encoder does not know the script of at least half of the negatives.",
    "repair first": "a defect is above its limit, and at least half of the records keep a negative without it.",
    "do not use": "a defect is above its limit, and fewer than half of the records keep a negative without it.",
}
"""Meaning of each status of a source, by its words."""
HARDNESS_ENDS = "random passages have 0, the positive has 1"
EXPLANATIONS = {
    "status": "what to do with the source before training, judged only by its defects. "
    + " ".join(f"{status}: {meaning}" for status, meaning in STATUS_TERMS.items()),
    "consistency": "how sure the encoder is of the positive (π), 0 to 1; tables have the mean. Near 1 the negative is "
    "easy, below ½ it outscores the positive.",
    "locality": "how near the negative is to the positive (ρ), 0 to 1; the score rewards more. Above ½ it is nearer "
    "to the positive than to the query.",
    "residual": "how little the negative repeats the query's words, by IDF (λ), 0 to 1; the score rewards more.",
    "score ± CI": "the score in nats ± half its 95 % confidence interval; queries are the sampling unit.",
    "tie": "sources share a letter if their difference is not significant, otherwise they have no letter in common; A "
    "is the highest. – marks a source that is not ranked, or not compared with every source that has a letter.",
    "hardness": "how close the negatives are to their query: 0 means as close as random passages, 1 as close as "
    "the positives. Higher is harder; false negatives also raise it.",
    "outscoring": "share of the negatives that the encoder scores above their positive (π < ½): false negatives, or "
    "what training should correct.",
    "defects": "share of the listed negatives with at least one defect, such as a false negative or a repeat.",
    "ECI_sem": "log det(I + M), in nats, from 0 to tr M: usually within 1 % of the mean of π · ρ · λ. It is higher "
    "with more negatives that the encoder sees as safe, near the positive and unlike the query in words. It does not "
    "reward hardness, so compare sources at equal hardness, and with the mean residual, which needs no encoder.",
    "ECI_B": "log det(I + B·M), in nats, 0 or more: the score of B negatives drawn from the source. With small B it "
    "depends on the total weight, with large B on variety.",
    "95 % CI": "95 % confidence interval; queries are the sampling unit.",
    "P(first)": "probability that the source has the highest score of all ranked sources, 0 to 100 %, given the "
    "sampling of queries; – for a source that is not ranked.",
    "new texts": "texts that are in no source and were encoded only for the control, 0 or more; fewer cost less.",
    "candidates": "documents of the run from which the control's negatives were drawn, or which were searched for "
    "them; at most 100,000 are searched.",
    "negatives": "triplets (query, positive, negative) scored, 1 or more.",
    "queries": "distinct queries, 1 or more: the sampling unit. 35/120: the row covers the 35 that all sources "
    "share, out of its 120. *: rows cover different queries, so compare only pairs.",
    "c": "lexical coverage, 1 − λ: IDF share of the query's words that the negative repeats, 0 to 1.",
    "c of positives": "lexical coverage of the scored positives, 0 to 1: the coverage that is normal in these texts.",
    "weight": "π · ρ · λ, 0 to 1: what a negative adds to the score; a copy of the positive adds 0. Its mean over the "
    "negatives is tr M. The score is at most tr M, and usually within 1 % of it.",
    "gap to random": "mean weight of a source minus that of random passages for the same queries; the parts of the "
    "gates (Shapley values) add up to it, and one can exceed the gap if another has the opposite sign.",
    "at equal hardness": "mean weight of one source minus that of another within each tenth of the margins s(q, p) − "
    "s(q, n), averaged over the margins that both have.",
    "overlap of margins": "share of the margins that two sources have in common, 0 to 100 %; below 20 % they are not "
    "compared.",
    "Holm p": "two-sided p value of the difference, 0 to 1, corrected for the number of pairs; below 0.05 the "
    "difference is significant.",
    "queries for 80 %": "distinct queries with which a true difference of this size would be found four times in five, "
    "1 or more.",
    "difference": "first score minus second, in nats, over the queries that both have; in tr M if marked so.",
    "hardness, outscoring of a pair": "difference between the first source and the second, over the queries that both "
    "have: in hardness, and in the share of negatives that outscore their positive, in points.",
    "source minus control": "score of the source minus that of the control, in nats, with errors paired by query; "
    "if sources have different queries, the control is scored on those of the source.",
    "share": "percentage of a source's negatives that have the finding, 0 to 100 %. Findings of the texts cover all "
    "listed negatives, the others all scored ones. A negative may have several findings.",
    "share of weight": "share of a source's total weight that negatives with the finding have, 0 to 100 %: how much of "
    "the score depends on them.",
    "part of the score": "what negatives with the finding add to the score, to first order, in nats.",
    "shortfall": "how much a sample of this size understates ECI_B on average, in nats, 0 or more; smaller is better.",
    "B = N": "a budget equal to the source's number of negatives.",
    "order": "the sources by score under this setting, highest first, each shown as its rank in this run; – for a "
    "source that is not ranked.",
    "stability": "share of source pairs ordered as in this run, 0 to 1; higher is steadier.",
    "shade": "place of a score between the lowest and the highest of its row: deeper is higher.",
    "pair, record": "two forms of a score: one negative at a time, or all negatives of a record at once.",
    "gradient energy": "mean squared length of the loss gradient on the query, 0 or more.",
    "MNRL loss": "mean contrastive loss at this temperature, in nats, 0 or more; higher is harder.",
    "ambiguity": "share of pairs or records in which a negative outscores the positive, 0 to 100 %; higher is harder.",
    "effective rank": "number of directions that carry the weight, 1 to the dimension of the vectors; higher is more "
    "varied.",
    "diversity fraction": "1 − ECI_sem/tr M, 0 to 100 %: what repeated directions take off tr M. Near 0 the score says "
    "nothing about variety.",
    "‖M‖": "Frobenius norm of M, 0 to tr M; nearer to tr M means fewer directions.",
    "eigenvalue share": "share of tr M on one direction, 0 to 100 %, largest first; flatter is more varied.",
    "AUC": "probability that a positive scores above a negative, over all pairs of all queries, 0 to 1. Ties count "
    "half, and 0.5 means no separation.",
    "AUC within queries": "AUC over pairs within a query, 0 to 1.",
    "gap": "AUC within queries minus AUC: how far the levels of scores differ between queries, which losses within a "
    "query cannot see. Near 0 one threshold serves all queries.",
    "MW loss": "mean of log(1 + exp(−(s⁺ − s⁻)/τ)) over all pairs of all queries, 0 or more; lower separates better. "
    "Divided by log 2, it is an upper bound on the share of pairs in wrong order. The MNRL loss is its counterpart "
    "within a record.",
    "largest batch below 1 %": "largest batch in which fewer than 1 % of the queries meet one of their own labelled "
    "positives as a negative.",
    "affected": "share of rows whose query meets one of its labelled positives in another row of the batch, for "
    "batches of that many rows drawn at random; 0 to 100 %.",
    "flagged in batch": "share of the passages of other rows whose cosine to the query is within 5 % of its "
    "positive's, or above; 0 to 100 %, in a sample of batches, with 95 % CI. A mask by this encoder's own "
    "scores would remove them. The run's guide does not score them. Some are valid negatives.",
    "shared": "queries and documents that both sources have, as a share of the smaller source's, 0 to 100 %.",
    "rows, records": "every row read is used or left out; used rows with the same query and positive form one record.",
    "suspects": f"share of the negatives whose hardness under the guide is at least {NEAR_HARDNESS} ({HARDNESS_ENDS}), "
    "0 to 100 %. How many of them are relevant depends on the guide.",
    "of random passages": "share of random passages for the same queries that the guide suspects by the same rule, 0 "
    "to 100 %: near 0 for a useful guide. Above 10 %, or if a source does not have significantly more, its suspects "
    "are not evidence.",
    "agreement": "share of the negatives that the encoder and the guide put on the same side of the positive, 0 to "
    "100 %.",
    "rank correlation": "Spearman correlation between encoder and guide, −1 to 1, of how far negatives score below "
    "their positive.",
    "relative margin": "share of the negatives that score above the positive, or below it by at most this fraction of "
    "its score.",
    "absolute margin": "share of the negatives that score above the positive, or below it by at most this difference.",
    "maximum": "share of the negatives that score at or above this threshold, whatever the score of their positive.",
    "same negatives": "mean Jaccard overlap of the negatives of shared queries, 0 to 1; near 1 the two are one source.",
}
SHORT_HEADS = {"consistency": "consist.", "locality": "local.", "residual": "resid.", "hardness": "hard."}
"""Headings for a terminal with 80 columns."""
TERM_WORDS = {
    "random passages": "a control: for each query, passages of other queries drawn at random.",
    "known positives": "a control: for queries with two or more labelled positives, the other positives, scored as "
    "if they were negatives.",
    "n": "number of negatives, each once per record.",
    "listed": "number of negatives that the rows list, with repeats and blanks; shares of negatives refer to it.",
    "rank": "place among the ranked sources by score, 1 the highest; – for a source that is not ranked.",
    "pair": "two sources; of two scores the first is the higher one.",
    "higher": "the source with the higher mean weight at equal margins; – if the difference is not significant.",
    "significant": "yes if the difference holds after Holm's correction for the number of pairs.",
    "finding": "a failure bucket, which is what negatives have in common: `secid explain NAME` says more.",
    "positives": "labelled positives of the same queries.",
    "control": "made from the run's own texts, scored like a source and never ranked: a reference for the scores.",
    "same order of all": "number of settings, of those tried, under which all sources keep their order, also those "
    "that do not differ significantly.",
    "rule": "what flags a negative: π below ½, a margin to the positive, or a guide.",
    "rows": "rows of the file, 0 or more; each lists the negatives of one query and positive.",
    "short": "rows with fewer negatives than asked for, 0 or more; fewer is better.",
    "by": "negatives that such rows lack in total, 0 or more.",
    "margin": "how much lower than its positive a negative must score, in per cent of the positive's score.",
    "s_qn": "mean cosine of negative and query, −1 to 1; higher is harder.",
    "passages": "distinct passages among the negatives, 1 or more; more is more varied.",
    "most used": "number of queries for which the most frequently mined passage is a negative; lower is more varied.",
    "relevant": "negatives that the labels call relevant, so false negatives; 0 is best.",
    "non-relevant": "negatives that the labels call non-relevant.",
    "unjudged": "negatives without a label: whether they are relevant is not known.",
    "flagged": "negatives that the rule flags at its default threshold.",
    "AUROC": "probability that a labelled relevant negative looks more suspect than another negative, 0 to 1; ties "
    "count half. At ½ a rule cannot tell them apart, and below ½ relevant negatives look safer. It needs no threshold.",
    "precision": "share of the flagged negatives that are labelled relevant, 0 to 100 %; higher is better.",
    "recall": "share of the labelled relevant negatives that are flagged, 0 to 100 %; higher is better.",
    "without suspects": "ECI_sem without the negatives that the guide suspects, in nats.",
    "score alone": "ECI_sem of the source by itself, in nats; it is not the source's part of the mixture.",
    "gain": "nDCG@10 minus the frozen encoder's, −1 to 1, over seeds that all sources finished; higher is better.",
    "±": "half of a 95 % confidence interval, which covers the choice of queries and the variation of training runs.",
    "vs random": "nDCG@10 minus that after training on random passages, over the seeds that both have.",
    "seeds": "number of training runs of each fold; fewer if a source was stopped.",
    "nDCG@10": "how high relevant passages rank among the first ten, 0 to 1; higher is better.",
    "MRR@10": "mean of 1/rank of the first relevant passage within ten, 0 to 1; higher is better.",
    "recall@100": "share of the relevant passages among the first hundred, 0 to 1; higher is better.",
    "number": "a number of the run that could order the sources.",
    "puts first": "the source for which this number is highest.",
    "tau": "Kendall's tau-b of the number with the results, −1 to 1; 1 is the same order.",
    "regret": "result of the best source minus that of the one that the number puts first, 0 or more; 0 is best.",
    "source": "the negatives of one origin, such as a miner or a generator, with their queries and positives.",
    "score without defects": "ECI_sem without the negatives that have a defect; – if none has one.",
    "gates": "consistency π, locality ρ and residual λ of a negative, each 0 to 1; the weight is their product.",
    "gate profile": "the mean gates of each source, next to those of random passages and known positives.",
    "M": "the information matrix: the mean of w · u · uᵀ over all negatives, with weight w and direction u from the "
    "positive to the negative.",
    "encoder": "the model that you are about to fine-tune, frozen: the gates compare its vectors.",
    "device": "where the encoder ran and M was summed, such as cpu or cuda.",
    "record": "a query with a positive and its negatives.",
    "pool": "the distinct texts of all sources, over which IDF is counted.",
    "nats": "the unit of the score, because its logarithm is the natural one.",
    "top problem": "the most urgent finding above its limit.",
    "accepted": "every check passed, or the policy excuses those that are undecided.",
    "rejected": "at least one check failed.",
    "undecided": "no check failed, and at least one is undecided: its interval contains the limit, or it could not be "
    "evaluated.",
    "check": "one test that the gate applies to a source, with a limit.",
    "outcome": "pass, fail, undecided, notice or excused.",
    "pass": "the measured number is within its limit.",
    "fail": "the measured number is beyond its limit by more than sampling explains.",
    "notice": "beyond the limit, but not a failure: a person should look at it.",
    "excused": "undecided, but the policy accepts that.",
    "failed": "number of checks that failed; one is enough to reject the source.",
    "notices": "number of checks that are beyond their limit without failing the source.",
    "value": "the measured number, in the unit of its limit; for drift, the difference from the predecessor.",
    "baseline": "the number that the limit comes from, with its source; – for a limit of the policy.",
    "limit": "the threshold, and the side of it on which the check passes; – for a check without a threshold.",
}
"""Other columns and terms, which no section of a page explains."""
OTHER_NAMES = {
    **{short: name for name, short in SHORT_HEADS.items()},
    "outsc.": "outscoring", "mean π": "consistency", "AUROC of π": "AUROC", "B": "ECI_B", "ECI": "ECI_B",
    "rows read": "rows, records", "rows used": "rows, records", "records": "rows, records",
    "eigenvalue": "eigenvalue share", "relative": "relative margin", "absolute": "absolute margin",
    "overlap": "overlap of margins", "shared queries": "shared", "shared documents": "shared", "score": "ECI_sem",
    "log det(I + M)": "ECI_sem", "mean weight": "weight", "tr M": "weight", "lexical residual": "residual",
    "π": "consistency", "ρ": "locality", "λ": "residual", "score ± CI tie": "score ± CI",
    "repaired": "score without defects", "failure bucket": "finding", "failure buckets": "finding", "bucket": "finding",
    "coverage": "c", "inversion_fraction": "outscoring", "interval_95": "95 % CI", "CI": "95 % CI",
    "n_queries": "queries", "n_triplets": "negatives", "flagged_share": "defects",
    **dict.fromkeys(
        (
            "full weight", "without consistency", "without locality", "without residual", "equal weights",
            "gradient-weighted", "margin hardness", "Fisher",
        ),
        "weights",
    ),
    **dict.fromkeys(
        ("alphanumeric", "alphanumeric ≥ 2", "white space", "character trigrams", "words of any script", "word pieces"),
        "tokenizer",
    ),
    **dict.fromkeys(("own documents", "pooled documents", "pooled queries + documents", "equal IDF"), "idf"),
}  # fmt: skip
"""Other names of terms: words of the method, and keys of report.json."""
TYPICAL = {
    "hardness": "with MiniLM on three collections: random passages 0, BM25 0.55 to 0.70, the nearest passages of a "
    "dense miner 0.85 to 1.07. Above 1 the negatives are on average closer to their query than the positive.",
    "random_like": "with MiniLM on three collections: random passages 87 to 88 % of a source, BM25 18 to 23 %, the "
    "nearest passages of a dense miner 0 %.",
    "ECI_sem": "no scale holds across collections or encoders: read it against the controls of its own run, of which "
    "random passages mostly have the highest score.",
    "defects": "0 % is clean; the status depends on the limit of each defect, not on this sum.",
    "outscoring": "near 0 % for random passages; above 50 % most negatives outscore the positive.",
}
"""Typical values of a number. Source: METHOD 10."""
DEFAULTS_CAPTION = "Settings left at their defaults"
"""Caption of the table that is left out first to save space."""
REFERENCES = {"random": "random passages", "known_positive": "known positives"}
"""Words for the controls that every score is compared with."""
ANSWER_TERMS = (
    "status", "consistency", "locality", "residual", "score ± CI", "tie", "hardness", "outscoring", "defects",
    "queries",
)  # fmt: skip
"""Terms of the answer table's columns, in order."""
SETTING_MEANINGS = {
    "temperature": (
        "temperatures",
        "τ, above 0, by which differences of cosines are divided in π and ρ: a low one makes both near 0 or 1.",
    ),
    "tokenizer": (
        "tokenizers",
        (
            "what counts as a word in λ. Alphanumeric: runs of letters and digits; ≥ 2: of two or more. White space: "
            "text between spaces. Character trigrams: windows of three characters. Words of any script: alphanumeric "
            "with vowel signs kept, scripts without spaces in pairs of characters. Word pieces: the encoder's own."
        ),
    ),
    "idf": (
        "IDF corpora",
        (
            "the texts from which the IDF of words in λ is counted. Pooled documents: those of all sources; own: those "
            "of the source; pooled queries + documents: both kinds. Equal IDF: every word counts 1."
        ),
    ),
    "weight": (
        "weights",
        (
            "the factor of each direction. Full: π · ρ · λ; “without” leaves one factor out. Equal weights (the "
            "paper's residual-only): 1 for every negative. Margin hardness: 1 − π. Fisher: 4 · π · (1 − π) · ρ · λ. "
            "Gradient-weighted: ((1 − π)/τ)² times the squared distance between positive and negative, divided by its "
            "mean. Scores under different weights are not comparable, so compare only orders."
        ),
    ),
    "sample": (
        "samples",
        "shares of the run's queries to score, above 0 to 100 %; each sample is part of the next larger one.",
    ),
    "encoder": ("encoders", "models whose vectors are scored, each by its own recipe; compare only orders."),
}
"""Name of an ablation -> (plural of the settings that it varies, explanation)."""


REASON_TEXTS: Mapping[str, str] = {
    "too_few_queries": "fewer than two queries, so there is nothing to draw from",
    "no_document": "no document of the run may be a negative of these queries",
    "no_second_positive": "no query has two labelled positives",
    "no_query_token": "no query has a token",
    "no_document_token": "no document has a token",
    "no_shared_token": "no query shares a token with a document other than its positives",
    "one_large_query": "one query has more than half of the negatives, so they cannot all go to others",
    "same_negatives": "the sources give every query the same negatives",
    "other_queries": "the sources share too few queries",
    "not_equal_size": f"the sources differ in size, and {flag_of('positives', 'all')} does not make them equal",
    "cuts_unknown": "a vectors file, an endpoint or a function does not say which texts it cut",
    "no_tokenizer": "a vectors file, an endpoint or a function has no tokenizer to ask",
    "no_reference": "no query has 10 passages of the run, other than its positives, to draw at random",
    "corpus_not_encoded": f"most of the corpus is not encoded yet: {flag_of('encode_corpus', True)} encodes it",
    "cost_of_sample": "a sample was scored",
    "cost_of_cached": f"texts were in the cache, so this run did not measure how fast they are encoded: "
    f"{flag_of('cache', False)} encodes them again",
    "no_rate": "this encoder does not count tokens",
    "one_row": "one record makes no batch",
    "one_positive": "no record lists two positives, and with one these equal InfoNCE; positives of qrels count once a "
    "record lists them",
    "no_guide": f"no second scorer was named: {flag_of('guide', 'NAME')}",
    "other_guide": "this is not the baseline's guide, and suspects of two guides cannot be compared; without "
    f"{flag_of('guide')} the gate uses the baseline's guide",
    "weak_baseline": "this baseline is too small or too varied to detect even 70 % random passages",
    "no_guide_before": "the baseline was made without a guide, so its suspects are not known",
    "guide_flags_random": "the guide also flags random passages, or there were none to test it on",
    "guide_repeats_target": "the guide orders all negatives as the encoder does",
    "guide_sample": "the guide scored a sample of the negatives",
    "no_judged_query": "the qrels judge none of its queries",
    "none_relevant": "no negative is labelled relevant",
    "all_relevant": "every negative is labelled relevant",
    "none_flagged": "a rule flags no negative",
    "no_threshold": "the rule has no default threshold",
    "few_second_positives": "too few queries have a second labelled positive",
    "no_span": "the positives are no nearer to their queries than random passages",
    "one_seed": "with one seed, the error between training runs is unknown",
    "no_gain": "training on no source was significantly better than the frozen encoder",
}
"""Reasons why a part was not evaluated, by the kind in Run.not_evaluated."""


def reason_text(kind: str) -> str:
    """Return the reason why a part was not evaluated. A kind from a newer version of secid is returned unchanged."""
    return REASON_TEXTS.get(kind) or plain(kind).rstrip(".")


def terms(*names: str) -> tuple[tuple[str, str], ...]:
    """Return (term, explanation) for these terms, in order."""
    return tuple((name, EXPLANATIONS[name]) for name in names)


def sources_listed(names: Sequence[str]) -> str:
    """Format the names of sources. If there are more than four, three are named."""
    return listed([named(name) for name in names])


def kind_name(kind: str) -> str:
    return REFERENCES.get(kind) or plain(control_name(kind, None))


def control_title(control: ControlResult) -> str:
    return kind_name(control.kind) if control.of is None else control_name(plain(control.kind), named(control.of))


def compares(run: Run, control: ControlResult, at: float) -> bool:
    """Return True if a control's ECI_B is comparable with the sources': up to B = 1, or with equal sample sizes."""
    budgets = BUDGETS.of(run)
    numbers = [budgets.equal_numbers] if budgets and budgets.equal_numbers else run.sources
    return at <= 1.0 or {item.n_triplets for item in numbers} == {control.n_triplets}


def equal_numbers_text(run: Run) -> str:
    """Return the equal sample size for comparisons above B = 1, in words; "" if the sources have equal sizes."""
    budgets = BUDGETS.of(run)
    if budgets is None or budgets.equal_numbers is None:
        return ""
    numbers = budgets.equal_numbers
    return f"{plural(numbers.n_queries, 'query', 'queries')} and {plural(numbers.n_triplets, 'negative')} of each"


def on_own_queries(run: Run) -> bool:
    """Return True if the sources have different queries, so that only pairs are comparable. Source: METHOD 16.1."""
    return any(warning.kind == "own_queries" for warning in run.warnings)


def skipped_lines(sources: Iterable[SourceReport], *, rows_alone: bool = False) -> list[str]:
    """Return lines on left-out rows and negatives; sources with equal counts share one. rows_alone: omit negatives."""
    names: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for source in sources:
        rows = source.rows
        reasons_of = {"row": rows.skipped} | ({} if rows_alone else {"negative": rows.dropped_negatives})
        parts = [
            f"{plural(sum(reasons.values()), thing)} ({reason_list(reasons)})"
            for thing, reasons in reasons_of.items()
            if any(reasons.values())
        ]
        if not parts:
            continue
        names.setdefault(what := " and ".join(parts), []).append(named(source.name))
        example = next((item for item in rows.examples if item.reason in rows.skipped), None)
        if example is not None:
            places.setdefault(what, f", for example {short(example.path)}:{example.line}")
    return [
        f"Left out of {'each of ' if len(group) > 1 else ''}{listed(group, len(group))}: {what}{places.get(what, '')}."
        for what, group in names.items()
    ]


def reason_list(reasons: Mapping[str, int]) -> str:
    """Format reasons why rows or negatives were left out, with counts: "5 × broken line, 2 × no positive"."""
    return ", ".join(f"{count(n)} × {reason_words(reason)}" for reason, n in reasons.items() if n)


def lost_lines(schema: str, n_made_ids: int, not_held: Mapping[str, int]) -> Iterator[str]:
    """Yield lines on what a written file lacks, or has in another form. Counts are as in `WrittenFile`."""
    if n_made_ids:
        yield f"{plural(n_made_ids, 'row lacks', 'rows lack')} an id; a hash of the text is written instead"
    if not_held:
        yield f"{schema} cannot hold: {', '.join(f'{name} ({count(n)})' for name, n in not_held.items())}"


def missing_lines(run: Run, *, without: Collection[str] = ()) -> list[str]:
    """Return lines on sources without triplets and parts not evaluated, with reasons. without: parts to leave out."""
    return [
        *(
            f"Not scored: {named(name)} has no triplet{f' ({reason_list(reasons)})' if reasons else ''}."
            for name, reasons in run.without_triplets.items()
        ),
        *(
            f"Not evaluated: {plain(name)} ({reason_text(why)})."
            for name, why in run.not_evaluated.items()
            if name not in ("suspect", *without)  # for a run without a guide, the verdict has its own sentence
        ),
    ]


def rule_of(name: str, run: Run) -> str:
    """Return the rule of a finding, with this run's values of the settings that are thresholds in it."""
    entry = FINDINGS.get(name)
    if entry is None:
        return "–"
    settings = [f"{key} {run.settings[key]['value']}" for key in entry.settings if key in run.settings]
    return f"{entry.rule}; here {listed(settings)}" if settings else entry.rule


def reason_words(name: str) -> str:
    """Return a reason in words. name: the reason in report.json, such as listed_again."""
    return plain(name.replace("_", " "))


def merged_sentence(merged: Merged) -> str:
    """Return sentences on the number of merged shards, and how often they encoded a text."""
    times = f"{merged.n_texts_held / merged.n_texts:.2f}"
    return (
        f"Merged from {plural(merged.n_shards, 'shard')}. Together they encoded {times} times the "
        f"{count(merged.n_texts)} distinct texts, because each shard encodes all texts that it lists."
    )


def recipe_line(encoder: EncoderInfo) -> str:
    prefixes = f"query prefix {encoder.query_prefix!r}, passage prefix {encoder.passage_prefix!r}"
    return plain(
        f"{encoder.name}: {encoder.pooling} pooling, {prefixes}, max length {encoder.max_length}, "
        f"{'unit' if encoder.normalize else 'raw'} vectors of {encoder.dim}, {encoder.dtype} on {encoder.device}"
    )


def not_ranked(run: Run) -> Mapping[str, str]:
    """Return the reason for each source that is not ranked, by name. Source: METHOD 16.3."""
    result = EQUAL_HARDNESS.of(run)
    return {} if result is None else result.unranked


def listing(run: Run) -> str:
    """Return the caption of a table whose sources have the order of the answer table."""
    return "Ranked sources by score; then those not ranked" if not_ranked(run) else "Sources by score"


def rank_text(source: SourceReport) -> str:
    """Format the rank of a source, from 1; "–" for a source that is not ranked."""
    return "–" if source.scored.rank is None else count(source.scored.rank)
