"""Compare pages with tests/snapshots: those of the golden run, and of runs for which a rule says something else."""

from __future__ import annotations

import html
import re
from dataclasses import replace

from secid.pages.charts import hardness_chart
from secid.pages.formats import RUN_FORMATS, table
from secid.pages.sections.ablations import ablations_section, ablations_sentence
from secid.pages.sections.guide import guide_section, margins_section, suspects_sentences
from secid.pages.sections.ranking import controls_line, early_sentences
from secid.pages.sections.slices import slices_sentence
from secid.pages.sections.verdict import verdict
from secid.pages.text import without_isolates
from tests.snapshots import situations
from tests.unit.pages import samples
from tests.unit.pages.situations import CONTROLS, SETTINGS, VERDICTS
from tests.unit.pages.test_terminal import printed

REPORTED = samples.reported()


def lines(*sentences):
    return [without_isolates(sentence).replace("\u00a0", " ") for sentence in sentences]


def test_the_terminal(snapshot):
    snapshot("terminal-80.txt", printed(replace(REPORTED, folder="secid-runs/x"), 80, legend=True))
    snapshot("terminal-60.txt", printed(replace(REPORTED, folder="secid-runs/x"), 60))


def shortened(text):
    """Return the page with only the first row of each table."""
    every = text.splitlines()
    is_row = [line.startswith("| ") for line in every]
    is_rule = [line.startswith("| --") for line in every]
    kept = [
        line
        for place, line in enumerate(every)
        if not is_row[place] or is_rule[place] or not is_row[place - 1] or is_rule[place - 1]
    ]
    return "\n".join(kept) + "\n"


def test_the_report_in_markdown(snapshot):
    snapshot("report.md", shortened(RUN_FORMATS[".md"](REPORTED)))


def test_what_screen_readers_say_of_charts(snapshot):
    texts = re.findall(
        r'(?:aria-label="|<(?:title|desc) id=[^>]*>)([^<"]{20,}|[^<"]+(?=<))', RUN_FORMATS[".html"](REPORTED)
    )
    snapshot("charts.txt", "\n".join(map(html.unescape, texts)) + "\n")


def test_verdicts(snapshot):
    snapshot("verdict.txt", situations({name: lines(*verdict(run)) for name, run in VERDICTS.items()}))


def test_controls(snapshot):
    snapshot("controls.txt", situations({name: lines(controls_line(run)) for name, run in CONTROLS.items()}))


def test_settings(snapshot):
    said = {
        name: lines(ablations_sentence(run, own), *ablations_section(run, own).bullets)
        for name, run in SETTINGS.items()
        if (own := run.analyses.get("ablations"))
    }
    snapshot("settings.txt", situations(said))


def test_early_stop(snapshot):
    stop = samples.early(REPORTED).early_stop
    stops = {"one pair undecided": stop, "all decided": replace(stop, undecided=())}
    snapshot("early-stop.txt", situations({name: lines(*early_sentences(one)) for name, one in stops.items()}))


def test_guide(snapshot):
    one = replace(REPORTED, sources=REPORTED.sources[:1])
    runs = {
        "all negatives": samples.guided(REPORTED),
        "a sample of one source": samples.guided(one, sample=300),
        "scores of another range": samples.replaced(
            samples.guided(one),
            margins=tuple(
                replace(source, guide=tuple(replace(curve, values=(0.0, 0.5, 1.0, 8.0)) for curve in source.guide))
                for source in samples.guided(one).analyses["margins"]
            ),
        ),
        "no more than of random passages": samples.guided(one, excess_interval_95=(-0.01, 0.02)),
        "a guide that flags random passages": samples.guided(
            REPORTED, random_share=0.5, random_interval_95=(0.45, 0.55)
        ),
        "one that flags those of a source": _blind_in_the_last(samples.guided(REPORTED)),
        "no random passages": samples.guided(
            one, n_random=0, random_share=None, random_interval_95=None, excess_interval_95=None
        ),
        "a copy of the encoder": samples.guided(REPORTED, agreement=1.0, rank_correlation=1.0),
    }
    said = {}
    for name, run in runs.items():
        sections = (guide_section(run, run.analyses["guide"]), margins_section(run, run.analyses["margins"]))
        shown = [text for part in sections for text in (*part.paragraphs, *map(table, part.tables))]
        said[name] = lines(*suspects_sentences(run.analyses["guide"]), hardness_chart(run).description, *shown)
    snapshot("guide.txt", situations(said))


def _blind_in_the_last(run):
    *others, last = run.analyses["guide"].sources
    return samples.replaced(
        run, guide=replace(run.analyses["guide"], sources=(*others, replace(last, random_share=0.3)))
    )


def test_slices(snapshot):
    first = samples.sliced(REPORTED).analyses["slices"][0]
    turned = replace(first, value="x", sources=tuple(reversed(first.sources)), lead_interval_95=(-0.1, 0.2))
    sure = replace(turned, lead_interval_95=(0.01, 0.2))
    slices = {
        "one, the same leader": (first,),
        "two of four, one significant": (first, turned, replace(first, value="y"), sure),
        "one without the leader": samples.sliced(REPORTED).analyses["slices"],
    }
    said = {name: lines(slices_sentence(REPORTED, made)) for name, made in slices.items()}
    snapshot("slices.txt", situations(said))
