"""Pages as files: well-formed HTML that asks for nothing, written whole, and made without anything heavy."""

from __future__ import annotations

import html.parser
import os
import re
from pathlib import Path

import pytest

from secid.cli.command import check_outputs
from secid.errors import OutputError, UsageError
from secid.files import check_writable, write_whole
from secid.pages.comparison import COMPARISON_FORMATS, compare, labels
from secid.pages.formats import RUN_FORMATS
from tests.test_architecture import loaded_by
from tests.unit.pages import samples


@pytest.fixture(scope="module")
def run():
    return samples.golden()


class Outline(html.parser.HTMLParser):
    """Parses what a browser would see: tags with attributes, headings, and text outside tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.headings, self.unclosed = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in ("meta", "br", "wbr", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


SAMPLES = {
    "golden": lambda run: run,
    "hostile": samples.hostile,
    "bare": samples.bare,
    "large": samples.large,
    "early": samples.early,
    "sliced": samples.sliced,
    "no ablations": lambda run: samples.replaced(run, ablations=()),
}


@pytest.fixture(scope="module", params=sorted(SAMPLES))
def page(request, run):
    """The HTML page of a sample."""
    return RUN_FORMATS[".html"](SAMPLES[request.param](run))


def test_html_is_well_formed_and_outlined(page):
    outline = Outline(page)
    assert outline.open == []
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(outline.headings, outline.headings[1:], strict=False))
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"][1:] for tag, attributes in outline.tags if tag == "a"}
    assert targets <= set(ids)


def test_html_requests_nothing_and_runs_only_our_own_script(page):
    outline = Outline(page)
    tags = [tag for tag, _ in outline.tags]
    assert tags.count("script") == 1
    assert not {*tags} & {"img", "iframe", "link", "object", "embed", "form", "base", "foreignobject"}
    for tag, attributes in outline.tags:
        assert not any(name.startswith("on") or name in ("style", "src", "srcset") for name in attributes), (
            tag,
            attributes,
        )
    references = [attributes.get("href") or attributes.get("xlink:href") for _, attributes in outline.tags]
    assert all(reference.startswith("#") for reference in references if reference)
    policy = next(attributes["content"] for tag, attributes in outline.tags if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_every_table_has_caption_and_scopes(page):
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        assert re.search(r"<caption[^>]*>[^<]", table)
        head, body = table.split("<tbody>", 1)
        assert head.count("<th ") == head.count('scope="col"') > 0
        rows = re.findall(r"<tr>.*?</tr>", body, re.DOTALL)
        assert all(row.count('scope="row"') == 1 for row in rows)
        assert {row.count("<td") + 1 for row in rows} <= {head.count("<th ")}


def test_foreign_text_does_not_leave_its_place(run):
    page = RUN_FORMATS[".html"](samples.hostile(run))
    assert page.count("<script") == 1  # our own
    assert "7*7" in page  # shown as it is, not calculated
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.HTML"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(tmp_path, name):
    with pytest.raises(UsageError, match=r"\.html, \.json, \.md"):
        check_outputs([tmp_path / name], RUN_FORMATS, ())


def test_a_page_that_could_not_be_written_is_refused_early(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.md").mkdir()
    for name in ("file/a.md", "folder.md"):
        with pytest.raises(OutputError) as caught:
            check_writable(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
    for name in ("a.md", "file", "no/such/a.md"):
        check_writable(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.md"]


def test_a_page_is_written_whole_or_not_at_all_and_its_folder_created(run, tmp_path):
    write_whole(tmp_path / "no" / "such" / "a.html", RUN_FORMATS[".html"](run))
    assert (tmp_path / "no" / "such" / "a.html").read_text(encoding="utf-8") == RUN_FORMATS[".html"](run)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        write_whole(tmp_path / "file" / "a.html", "page")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "no"]


def test_a_label_of_a_folder_that_is_not_utf_8_can_be_written(run):
    (label, _) = labels([Path(os.fsdecode(b"d\xff")), Path("other")])
    assert label == "d\ufffd"
    COMPARISON_FORMATS[".json"](compare([(label, run), ("other", run)])).encode("utf-8")


def test_a_file_of_the_longest_name_is_written(run, tmp_path):
    path = tmp_path / f"{'a' * 250}.json"
    check_writable(path)
    write_whole(path, RUN_FORMATS[".json"](run))
    assert path.stat().st_size


def test_labels_tell_runs_apart(tmp_path):
    assert labels([tmp_path / "a", tmp_path / "b" / "report.json"]) == ["a", "b"]
    assert labels([tmp_path / "x" / "a", tmp_path / "y" / "a"]) == [
        str(tmp_path / "x" / "a"),
        str(tmp_path / "y" / "a"),
    ]


@pytest.mark.parametrize("second", ["a", "a/report.json", "linked"])
def test_one_run_named_twice_is_refused(tmp_path, second):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "report.json").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    with pytest.raises(UsageError, match="named twice"):
        labels([tmp_path / "a", tmp_path / second])


def test_rendering_again_loads_nothing_heavy(tmp_path):
    targets = [part for suffix in RUN_FORMATS for part in ("-o", str(tmp_path / f"out{suffix}"))]
    words = ["report", str(samples.GOLDEN / "1.0.json"), *targets]
    assert loaded_by(f"from secid.cli.app import main\nassert main({words!r}) == 0") == "['numpy']"
    assert {path.name for path in tmp_path.iterdir()} == {f"out{suffix}" for suffix in RUN_FORMATS}
