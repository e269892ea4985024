"""Files as they occur: odd bytes, cut ends, limits. Each gives a counted reason or one clear error."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from secid.errors import InputError, SchemaError
from secid.read import containers, stream, textrows
from secid.read.clean import Cleaner
from secid.read.containers import sniff
from secid.read.stream import ByteStream
from secid.records import Defect, Record, fault_text
from tests.encrypted import save_encrypted
from tests.snapshots import Snapshot, situations

from .conftest import read, refused, write, zstd

GOOD = b'{"query": "q", "pos": ["p"], "neg": ["n"]}\n'
Items = Callable[..., list[Record | Defect]]


def reasons(found: list[Record | Defect]) -> list[str]:
    """ "" for a record, the reason for a defect."""
    return [item.reason if isinstance(item, Defect) else "" for item in found]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"query": "q", "pos": ["p"], "neg": ["n', "broken_line"),
        (b"not json", "broken_line"),
        (b'{"query": "q\xff", "pos": ["p"], "neg": ["n"]}', "broken_line"),
        (b'{"query": "q\x00", "pos": ["p"], "neg": ["n"]}', "broken_line"),
        (b"\x00" * 100, "broken_line"),
        (b'{"query": "\\ud800", "pos": ["p"], "neg": ["n"]}', "broken_line"),
        (b'{"query": "q", "pos": ["p"], "neg": ["\\udc00 n"], "x": NaN}', "broken_line"),
        (b'{"query": "q", "query": "r", "pos": ["p"], "neg": ["n"]}', "duplicate_key"),
        (b'{"query" : "q", "query" : "r", "pos": ["p"], "neg": ["n"]}', "duplicate_key"),
        (b'{"query": "q", "pos": ["p"], "neg": ["n"], "meta": {"a": 1, "a": 2}}', "duplicate_key"),
        (b'{"query": "q", "pos": ["p"], "neg": ["n"], "meta": [[{"a": 1, "\\u0061": 2}]]}', "duplicate_key"),
        (b'{"query": "q", "pos": ["p"], "neg": ["n"], "x": ' + b"[" * 5000 + b"]" * 5000 + b"}", "too_deep"),
        (b"[" * 100_000, "too_deep"),
        (GOOD[:-2] + b', "x": ' + b'{"a": ' * 1000 + b"1" + b"}" * 1001, "too_deep"),
        (b'{"query": "q", "pos": ["p"], "neg": ' + b"[" * 1000 + b"]" * 1000 + b"}", "wrong_type"),
        (b'"a text"', "wrong_type"),
        (b"17", "wrong_type"),
        (b'["q", "p", "n"]', "wrong_type"),
    ],
)
def test_a_bad_line_is_counted_and_the_next_one_read(line: bytes, reason: str, items: Items) -> None:
    found = items(GOOD + line + b"\n" + GOOD)
    assert reasons(found) == ["", reason, ""]
    assert [item.line for item in found] == [1, 2, 3]


@pytest.mark.parametrize(
    "line",
    [
        '{"query": "a \\": b", "pos": ["\\": "], "neg": [": n"]}',
        '{"query": "q", "pos": ["p"], "neg": ["n"], "meta": {"query": {"query": 1}}}',
        '{"query": "q", "pos": ["p"], "neg": ["n"], "list": [{"query": 1}, {"query": [{"query": 2}]}]}',
        '{"query\\\\": 1, "query": "q", "pos": ["p"], "neg": ["n"]}',
    ],
)
def test_what_only_looks_like_a_repeated_key_is_read(line: str, items: Items) -> None:
    assert reasons(items(line.encode() + b"\n")) == [""]


def test_lines_end_only_at_newline(items: Items) -> None:
    texts = ["a\u0085b", "a\u2028b", "a\u2029b", "a\x0bb", "a\x1cb"]
    row = {"query": "q", "pos": ["p"], "neg": texts}
    (record,) = items(json.dumps(row, ensure_ascii=False).encode().replace(b"\\u000b", b"\\u000b") + b"\n")
    assert record.negatives == tuple(texts)


def test_bom_crlf_blank_lines_and_a_last_line_without_newline(items: Items) -> None:
    content = b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") + b"\r\n \n" + GOOD.rstrip()
    found = items(content)
    assert reasons(found) == ["", ""]
    assert [item.line for item in found] == [1, 4]


@pytest.mark.parametrize("n_missing", [12, 28, 64])
@pytest.mark.parametrize("cell", ["n", ["n", "m"]])
def test_nan_for_a_missing_cell_is_null(n_missing: int, cell: Any, items: Items) -> None:
    def lines(missing: float | None) -> bytes:
        stream = [{"query": f"query {at}", "positive": f"text {at}", "negative": cell} for at in range(70)]
        if cell == "n":
            stream = [{**row, "negative_1": "m"} for row in stream]
        last = list(stream[0])[-1]
        stream = [{**row, last: missing} if at < n_missing else row for at, row in enumerate(stream)]
        return "".join(json.dumps(row) + "\n" for row in stream).encode()

    found = items(lines(float("nan")))
    assert found == items(lines(None))
    n_lost = n_missing if cell == "n" else 2 * n_missing
    assert sum(len(item.negatives) for item in found if isinstance(item, Record)) == 140 - n_lost


def test_nan_and_infinity_in_other_columns_do_no_harm(items: Items) -> None:
    content = b'{"query": "q", "pos": ["p"], "neg": ["n"], "pos_scores": [NaN], "neg_scores": [-Infinity, 1e999]}\n'
    assert reasons(items(content)) == [""]


def test_lines_in_another_encoding_are_reported(items: Items) -> None:
    row = {"query": "问题是什么", "pos": ["答案在这里"], "neg": ["另一个段落"]}
    lines = (json.dumps(row, ensure_ascii=False) + "\n").encode("gb18030") * 70
    with refused("source.jsonl:1") as caught:
        items(lines)
    assert "iconv" in str(caught.value.remedy)


def test_many_bad_lines_hide_no_good_ones(items: Items) -> None:
    assert reasons(items(b"{bad\n" * 60 + GOOD * 70)) == ["broken_line"] * 60 + [""] * 70


def test_a_bad_first_line_does_not_hide_the_schema(items: Items) -> None:
    assert reasons(items(b'{"query": "q", "po\n' + GOOD * 2)) == ["broken_line", "", ""]


@pytest.mark.parametrize(("name", "bad_line"), [("a.jsonl", b'{"query": "' + b"x" * 3000 + b'"}\n'), ("a.csv", None)])
def test_a_line_over_the_limit_is_passed_over(
    name: str, bad_line: bytes | None, items: Items, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textrows, "ROW_LIMIT", 1000)
    monkeypatch.setattr(textrows, "ROW_LIMIT", 1000)
    monkeypatch.setattr(stream, "CHUNK_BYTES", 256)
    if bad_line is None:
        content = b"query,positive,negative\nq,p,n\n" + b"q," + b"x" * 3000 + b",n\nq,p,n\n"
    else:
        content = GOOD + bad_line + GOOD
    assert reasons(items(content, name)) == ["", "too_large", ""]


@pytest.mark.parametrize("size", [999, 1000, 1001, 1255, 1256, 1257])
def test_the_limit_is_exact_and_no_line_is_lost_at_a_buffer_edge(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * size + b"\n" + b"y\n" * 3 + b"z")
    opened = ByteStream(str(path))
    found = list(opened.lines(1000))
    opened.close()
    assert (found[0] is None) == (size > 1000)
    assert found[1:] == [b"y\n"] * 3 + [b"z"]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compression_is_seen_without_the_suffix(suffix: str, tmp_path: Path) -> None:
    packed = write(tmp_path / f"b.jsonl{suffix}", [{"query": "q", "pos": ["p"], "neg": ["n"]}])
    plain = packed.rename(tmp_path / "a.jsonl")
    reader, found = read(plain)
    assert reasons(found) == [""]
    assert reader.files[0].container == f"jsonl, {suffix[1:]}"


def test_gzip_members_and_zstd_frames_one_after_another(items: Items) -> None:
    assert reasons(items(gzip.compress(GOOD) + gzip.compress(GOOD), "a.jsonl.gz")) == ["", ""]
    assert reasons(items(zstd(GOOD) + zstd(GOOD), "b.jsonl.zst")) == ["", ""]


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_compressed_data_cut_short_are_an_error(pack: Callable[[bytes], bytes], items: Items) -> None:
    content = pack(b"".join(GOOD.replace(b'"q"', b'"query %d"' % n) for n in range(5000)))
    with refused("source.jsonl"):
        items(content[: len(content) * 2 // 3])


def test_a_decompression_bomb_is_bounded(items: Items, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textrows, "ROW_LIMIT", 1 << 20)
    content = gzip.compress(GOOD + b" " * (64 << 20) + b"\n" + GOOD)
    assert reasons(items(content, "a.jsonl.gz")) == ["", "too_large", ""]


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf", b"[]", b"[ ]\n", b"query,positive,negative\n"])
def test_a_file_without_rows_is_an_error(content: bytes, items: Items) -> None:
    name = "a.csv" if b"," in content else "a.json"
    with refused(name):
        items(content, name)


ENGLISH = b"query,positive,negative\nq a,p a,n a\n"
UNREADABLE = {
    "UTF-16 with a mark": b"\xff\xfe" + ENGLISH.decode().encode("utf-16-le"),
    "UTF-16 without a mark": ENGLISH.decode().encode("utf-16-be"),
    "UTF-16 without a mark, JSON lines": GOOD.decode().encode("utf-16-le"),
    "zip": b"PK\x03\x04" + b"x" * 50,
    "bzip2": b"BZh91AY&SY" + b"x" * 50,
    "pickle": b"\x80\x05\x95\x16\0\0\0\0\0\0\0}.",
    "tar": b"a.jsonl".ljust(257, b"\0") + b"ustar\0" + b"00".ljust(249, b"\0") + GOOD,
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "TREC run": b"1 Q0 d1 1 20.5 bm25\n1 Q0 d2 2 19.5 bm25\n",
    "TREC judgements": b"1 0 d1 1\n1 0 d2 0\n",
    "header not UTF-8": "Frage,Antwort,Täuschung\n".encode("cp1252") * 3,
    "semicolons": b"query;positive;negative\nq a;p a;n a\n",
    "prose": b"Dear reader\nthis is prose.\n",
    "prose with two commas": b"The abstracts are about harbors, tides and the ships that use them, in plain text.\n",
    "several lists in an object": json.dumps({"train": [{"a": 1}], "test": [{"a": 1}]}).encode(),
    "array not UTF-8": json.dumps([json.loads(GOOD)], ensure_ascii=False).replace("q", "问").encode("gb18030"),
    "array with a repeated key": b'[{"query": "q", "query": "r", "pos": ["p"], "neg": ["n"]}]',
    "single quotes": b"{'query': 'q', 'pos': ['p'], 'neg': ['n']}\n" * 2,
    "commas between lines": GOOD.strip() + b",\n" + GOOD.strip() + b",\n",
    "values without newlines": GOOD.strip() * 3,
    "array cut short": b'[{"query": "q", "pos": ["p"], "neg": ["n"]}, {"query": ',
    "array with a comma too many": b'[{"query": "q", "pos": ["p"], "neg": ["n"]},\n]',
    "array with bytes that are not UTF-8": b'[{"query": "\xff", "pos": ["p"], "neg": ["n"]}]',
    "array nested too deep": b"[\n" + b"[" * 100_000,
    "object cut short": b'{\n"query": "q",\n',
    "Parquet": b"PAR1" + b"x" * 200,
    "Arrow file": b"ARROW1\x00\x00" + b"x" * 200,
    "Arrow stream": b"\xff\xff\xff\xff" + b"\x10\x00\x00\x00" + b"x" * 200,
    "lines that are not JSON": b'{"query": "q", "pos": ["p", "neg"\n' * 30,
}
BY_LIBRARY = re.compile(r"(?<=\()[^;(]*(?= at (line \d+, )?column \d)|(?<=cut short or damaged \().*(?=\))")
"""Words of orjson and pyarrow, which are theirs to change."""


def refusal(content: bytes, tmp_path: Path, name: str = "a.txt") -> InputError:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert type(caught.value) is InputError
    assert str(caught.value.where).startswith(str(path))
    return caught.value


def test_a_file_that_cannot_be_read_as_a_whole_is_one_error(tmp_path: Path, snapshot: Snapshot) -> None:
    errors = {name: str(refusal(content, tmp_path)) for name, content in UNREADABLE.items()}
    own = {name: BY_LIBRARY.sub("…", error.replace(f"{tmp_path}/", "")) for name, error in errors.items()}
    snapshot("unreadable-files.txt", situations(own))


def test_a_document_over_the_limit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textrows, "DOCUMENT_LIMIT", 500)
    assert "parse as a whole" in refusal(json.dumps([json.loads(GOOD)] * 20).encode(), tmp_path, "a.json").message


@pytest.mark.parametrize("line", ["1. ", "- ", "<p>", "Row: "])
def test_a_file_named_jsonl_is_not_a_table(line: str, items: Items) -> None:
    row = {"query": "q q, q", "positive": "p p, p", "negative": "n n, n"}
    content = "".join(f"{line}{json.dumps(row)}\n" for _ in range(9)).encode()
    with refused("source.jsonl"):
        items(content)


@pytest.mark.parametrize("before", ["```json", "Sure, here are 9 rows, as asked:\n", "\n# rows"])
def test_words_around_json_lines_are_bad_lines(before: str, items: Items) -> None:
    found = items(f"{before}\n".encode() + GOOD * 9 + b"```\n")
    assert reasons(found) == ["broken_line"] + [""] * 9 + ["broken_line"]


def test_zstd_may_begin_with_a_frame_without_data(items: Items) -> None:
    content = b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd(GOOD)
    assert reasons(items(content, "a.jsonl.zst")) == [""]


@pytest.mark.parametrize("part_bytes", [200, 1 << 20])
def test_a_json_array_is_handed_on_in_parts(part_bytes: int, items: Items, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textrows, "PART_BYTES", part_bytes)
    row = {"query": "q \u20ac", "pos": ["p"], "neg": ["n \U0001f600 [,]{}\\"]}
    content = json.dumps([row] * 50, ensure_ascii=False).encode()
    found = items(content, "a.json")
    assert reasons(found) == [""] * 50
    assert {item.negatives for item in found} == {("n \U0001f600 [,]{}\\",)}
    assert [item.line for item in found] == list(range(1, 51))


def test_an_element_of_an_array_that_is_not_a_record_is_counted(items: Items) -> None:
    row = GOOD.decode().strip()
    assert reasons(items(f"[{row}, 7, null, {row}]".encode(), "a.json")) == ["", "wrong_type", "wrong_type", ""]
    assert reasons(items(f'{{"data": [{row}, 7]}}'.encode(), "b.json")) == ["", "wrong_type"]


def test_nan_in_an_array_is_null_and_quoted_colons_are_text(items: Items) -> None:
    row = '{"query": "a \\": b", "pos": ["p"], "neg": ["n \\"x\\": 1", NaN]}'
    (record,) = items(f"[{row}]".encode(), "a.json")
    assert record.negatives == ('n "x": 1',)
    assert record.dropped == (("missing_field", 1),)


def test_array_lines_and_an_array_of_arrays(items: Items) -> None:
    line = b'["q", "p", "n one", "n two"]'
    assert items(line + b"\n" + line + b"\n", format="rows")[1].negatives == ("n one", "n two")
    for name, array in (
        ("b.json", b"[" + line + b",\n" + line + b"]"),
        ("c.json", b"[\n" + line + b",\n" + line + b"\n]"),
    ):
        assert items(array, name, format="rows")[1].negatives == ("n one", "n two")


def test_array_lines_of_different_lengths(items: Items) -> None:
    found = items([["a q", "a p", "a n"], ["b q", "b p", "b n", "c n"]], format="rows")
    assert [item.negatives for item in found] == [("a n",), ("b n", "c n")]


def test_array_lines_wider_than_the_first_ones_are_counted(items: Items) -> None:
    narrow = ["q q", "p p", "n n"]
    assert reasons(items([narrow] * 70 + [[*narrow, "m m"]])) == [""] * 70 + ["wrong_type"]


def test_csv_fields_may_hold_newlines_quotes_and_delimiters(items: Items) -> None:
    content = b'query,positive,negative\r\n"a, ""b""\nc",p,n\r\nq,p,n\r\n'
    found = items(content, "a.csv")
    assert [item.query for item in found] == ['a, "b"\nc', "q"]
    assert [item.line for item in found] == [2, 4]


def test_csv_rows_of_another_width_or_damaged_are_counted(items: Items) -> None:
    content = b'query,positive,negative\nq,p,n\nq,p\nq,p,n,x\nq\x00,p,n\nq\xff,p,n\n"q"x,p,n\nq,p,n\n'
    found = items(content, "a.csv")
    assert reasons(found) == ["", "extra_columns", "extra_columns", "broken_line", "broken_line", "broken_line", ""]
    assert [item.line for item in found] == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (b'q,"p,n\n', "broken_line", "unexpected end of data; a quotation mark joins 31 lines"),
        (b'"q,p,n\n', "broken_line", "unexpected end of data; a quotation mark joins 31 lines"),
        (b'q,"p,n\n' + b"q,p,n\n" * 29 + b'q,p",n,n\n', "extra_columns", "4 fields, 3 expected; a quo"),
    ],
)
def test_rows_behind_a_quotation_mark_without_end_are_counted(
    bad: bytes, reason: str, detail: str, items: Items
) -> None:
    content = b"query,positive,negative\n" + b"q,p,n\n" * 100 + bad + b"q,p,n\n" * (31 - bad.count(b"\n"))
    found = items(content, "a.csv")
    assert reasons(found) == [""] * 100 + [reason] * 31
    assert [item.line for item in found] == list(range(2, 133))
    assert isinstance(found[-1], Defect)
    assert fault_text(found[-1].fact).startswith(detail)


def test_a_row_of_many_lines_is_bounded(items: Items, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textrows, "ROW_LIMIT", 100)
    content = b"query,positive,negative\nq,p,n\n" + b'"x\n' + b'","y\n' * 100 + b"q,p,n\n"
    found = items(content, "a.csv")
    assert (reasons(found)[0], reasons(found)[-1], found[-1].line) == ("", "", 104)
    assert set(reasons(found)[1:20]) == {"too_large"}
    assert all(reasons(found)[1:-1])


def test_tsv_keeps_free_quotation_marks(items: Items) -> None:
    content = b'"Foo" is\tp "x"\tn\n"Bar\tp\t"n"\n'
    found = items(content, "a.tsv")
    assert found[0][:3] == ('"Foo" is', ('p "x"',), ("n",))
    assert found[1][:3] == ('"Bar', ("p",), ('"n"',))


def test_tsv_quoted_as_csv_asks_is_unquoted(items: Items) -> None:
    content = b'query\tpositive\tnegative\nq\t"say ""p"""\tn\n'
    assert items(content, "a.tsv")[0].positives == ('say "p"',)


@pytest.mark.parametrize("row", [b'"q"\t"p"\t"n"\n', b'"q"\t""\t7\n'])
def test_tsv_quoted_throughout_is_unquoted(row: bytes, items: Items) -> None:
    content = b'"query"\t"positive"\t"negative"\n"q"\t"p"\t"n"\n' + row
    assert items(content, "a.tsv")[0][:3] == ("q", ("p",), ("n",))


PLAIN = b"q\tp\tn\n"


@pytest.mark.parametrize("row", [b'q\tp\t"n one\nn two"\n', b'"q one\nq two"\tp\tn\n', b'q\tp\t"n one\n\nn two"\n'])
def test_a_line_break_within_a_tsv_field_makes_a_bad_line(row: bytes, items: Items) -> None:
    free = b'q\t"p" said\tn "m\n'
    found = items(b"query\tpositive\tnegative\n" + free + PLAIN * 60 + row + PLAIN * 20, "a.tsv")
    assert list(filter(None, reasons(found))) == ["extra_columns"]
    assert len(found) == 1 + 60 + 2 + 20


def test_lines_of_other_widths_with_free_quotation_marks_are_counted(items: Items) -> None:
    content = b"query\tpositive\tnegative\n" + PLAIN * 60 + b"q\tp\n" + PLAIN * 9 + b'"q\tp\tn\n' + PLAIN * 40
    found = items(content, "a.tsv")
    assert (len(found), [reason for reason in reasons(found) if reason]) == (111, ["extra_columns"])


def test_a_tsv_in_which_one_cell_quotes_is_not_unquoted(items: Items) -> None:
    content = b'"a title"\tp\tn\n' + b"q\tp\tn\n" * 60 + b'q\t"p has no end\tn\n' + b"q\tp\tn\n" * 9
    found = items(content, "a.tsv")
    assert (len(found), set(reasons(found)), found[0].query) == (71, {""}, '"a title"')
    assert found[61].positives == ('"p has no end',)


def test_crlf_tsv_without_header(items: Items) -> None:
    found = items(b"q one\tp one\tn one\r\nq two\tp two\tn two\r\n", "a.tsv")
    assert [item.negatives for item in found] == [("n one",), ("n two",)]


def test_a_first_line_with_all_columns_that_flags_name_is_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Frage,good one,schlecht\nq,p,n\nq2,p2,n2\n", encoding="utf-8")
    named = {"query_column": "Frage", "positive_column": "good one", "negative_column": "schlecht"}
    assert [record.query for record in read(path, **named)[1]] == ["q", "q2"]
    with refused(path, SchemaError):
        read(path, **{**named, "positive_column": "good"})


def test_a_parquet_file_cut_short_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [{"query": "q", "positive": "p", "negative": "n"}] * 100)
    path.write_bytes(path.read_bytes()[:-20])
    with refused(path):
        read(path)


FLIPPED = """
import io, sys
from pathlib import Path
from secid.read.containers import parquet_rows
from secid.errors import InputError

sound = Path(sys.argv[1]).read_bytes()
footer = int.from_bytes(sound[-8:-4], "little")
n_refused = 0
for at in range(len(sound) - 8 - footer, len(sound)):
    damaged = bytearray(sound)
    damaged[at] += 1 if damaged[at] < 255 else -1
    try:
        list(parquet_rows(io.BytesIO(damaged), "a.parquet", None))
    except InputError:
        n_refused += 1
print(n_refused)
"""


def test_no_damaged_footer_of_a_parquet_file_ends_the_process(tmp_path: Path) -> None:
    stream = [{"query": f"q {n}", "negatives": [f"n {n}", None, "m"]} for n in range(20)]
    pq.write_table(pa.Table.from_pylist(stream), tmp_path / "a.parquet")
    done = subprocess.run([sys.executable, "-c", FLIPPED, tmp_path / "a.parquet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


@pytest.mark.parametrize("problem", [pa.ArrowMemoryError("realloc of size 9"), MemoryError()])
def test_a_lack_of_memory_is_not_called_damage(
    problem: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.parquet", [{"query": "q", "positive": "p", "negative": "n"}])

    def fail(*_: object, **__: object) -> None:
        raise problem

    monkeypatch.setattr(containers, "_values", fail)
    with refused(path) as caught:
        read(path)
    assert "memory" in caught.value.message


def arrow_file(path: Path, negative: pa.Array) -> Path:
    texts = pa.array([f"text {n}" for n in range(len(negative))])
    table = pa.table({"query": texts, "positive": texts, "negative": negative})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path


@pytest.mark.parametrize("kind", ["list_view", "large_list_view", "run_end_encoded", "string_view"])
def test_arrow_types_that_share_values_are_read(kind: str, tmp_path: Path) -> None:
    if kind == "run_end_encoded":
        column: pa.Array = pa.RunEndEncodedArray.from_arrays(pa.array([9], pa.int32()), pa.array(["n n"]))
    elif kind == "string_view":
        column = pa.array(["n n"] * 9, pa.string_view())
    else:
        column = pa.array([["n n"]] * 9, getattr(pa, kind)(pa.string()))
    found = read(arrow_file(tmp_path / "a.arrow", column))[1]
    assert [item.negatives for item in found] == [("n n",)] * 9


def test_texts_that_share_views_are_read(tmp_path: Path) -> None:
    n, long = 100, b"word " * 2000
    views = np.array([[len(long), int.from_bytes(long[:4], "little"), 0, 0]] * n, np.int32)
    buffers = [None, pa.py_buffer(views.tobytes()), pa.py_buffer(long)]
    path = arrow_file(tmp_path / "a.arrow", pa.Array.from_buffers(pa.string_view(), n, buffers))
    assert [item.negatives for item in read(path)[1]] == [(long.decode(),)] * n


def test_nulls_in_a_list_cost_no_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.parquet", [{"query": "q", "pos": ["p"], "neg": ["n", *[None] * 50]}] * 9)
    looked_at: list[object] = []
    passage = Cleaner._passage
    monkeypatch.setattr(Cleaner, "_passage", lambda *a: looked_at.append(a[1]) or passage(*a))
    assert {item.dropped for item in read(path)[1]} == {(("missing_field", 50),)}
    assert set(looked_at) == {"p", "n"}


def test_parquet_columns_of_the_wrong_type_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [{"query": 1.5, "positive": b"p", "negative": "n"}])
    with refused(path, SchemaError) as caught:
        read(path)
    assert all(part in str(caught.value) for part in ("query: number, 1.5", "positive: bytes", "negative: text, n"))


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
    ids=str,
)
def test_every_arrow_text_type_is_read(kind: Any, tmp_path: Path) -> None:
    columns = {name: pa.array([name, "x y"]).cast(kind) for name in ("query", "positive", "negative")}
    path = tmp_path / "a.arrow"
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    assert [item.query for item in read(path)[1]] == ["query", "x y"]


@pytest.mark.parametrize(
    "kind", [pa.large_list(pa.string()), pa.list_(pa.large_string()), pa.list_(pa.string(), 2)], ids=str
)
def test_every_arrow_list_type_is_read(kind: Any, tmp_path: Path) -> None:
    lists = pa.array([["n", "m"], None, ["n", None]], type=kind)
    table = pa.table({"query": ["q"] * 3, "pos": lists, "neg": lists})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:  # pyarrow 24 writes no such Parquet
        file.write_table(table)
    found = read(tmp_path / "a.arrow")[1]
    assert reasons(found) == ["", "missing_field", ""]
    assert found[2].dropped == (("missing_field", 1), ("unusable_positive", 1))


@pytest.mark.parametrize(
    "times",
    [
        pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        pa.array([2**60], pa.timestamp("us")),
        pa.array([1_234_567], pa.duration("ns")),
        pa.array([1_234_567], pa.time64("ns")),
        pa.array([10**8], pa.date32()),
    ],
    ids=str,
)
def test_times_that_python_cannot_hold_do_no_harm(times: Any, tmp_path: Path) -> None:
    inside = pa.StructArray.from_arrays([pa.array(["p"]), times], ["text", "made"])
    columns = {"query": pa.array(["q"]), "pos": inside, "neg": pa.ListArray.from_arrays([0, 1], inside)}
    pq.write_table(pa.table({**columns, "made": times}), tmp_path / "a.parquet")
    table = pa.table(columns)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "a.arrow"):
        (record,) = read(tmp_path / name, query_column="query", positive_column="pos", negative_column="neg")[1]
        assert record[:3] == ("q", ("p",), ("p",))


def test_parquet_text_that_is_not_utf8_spoils_only_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"good", b"bad\xff", b"good"]).view(pa.binary())
    bad = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    good = pa.array(["a b"] * 3)
    pq.write_table(pa.table({"query": bad, "positive": good, "negative": good}), tmp_path / "a.parquet")
    assert reasons(read(tmp_path / "a.parquet")[1]) == ["", "broken_line", ""]


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    text = pa.array(["x y"])
    pq.write_table(pa.Table.from_arrays([text] * 4, ["query", "query", "positive", "negative"]), tmp_path / "a.parquet")
    with refused("a.parquet", SchemaError):
        read(tmp_path / "a.parquet")


def test_column_names_with_dots_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [{"query": "q", "positive": "p", "neg.a": "n"}])
    assert read(tmp_path / "a.parquet", negative_column="neg.a")[1][0].negatives == ("n",)


def test_arrow_ipc_files_as_well_as_streams(tmp_path: Path) -> None:
    table = pa.table({"query": ["q"], "positive": ["p"], "negative": ["n"]})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert reasons(read(tmp_path / "a.arrow")[1]) == [""]


def test_details_are_short(items: Items) -> None:
    found = items(GOOD + b'{"query": "q", "pos": ["p"], "neg": "' + b"x" * 5000 + b'"}\n')
    assert found[1].reason == "string_for_list"
    assert len(fault_text(found[1].fact)) <= stream.MAX_SHOWN_CHARS


def test_sniffing_takes_nothing_from_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(GOOD * 3)
    opened = ByteStream(str(path))
    assert sniff(opened).kind == "jsonl"
    assert opened.read() == GOOD * 3
    opened.close()


def test_a_missing_file_and_a_folder_are_input_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with refused(path):
            ByteStream(str(path))


def test_arrow_offsets_that_point_nowhere_are_an_error_not_a_crash(tmp_path: Path) -> None:
    """Found by fuzzing: unchecked, such a file read foreign memory and ended the process."""
    path = write(tmp_path / "a.arrow", [{"query": "abc", "positive": "p q", "negative": "n q"}] * 2)
    offsets, damaged = (
        (0).to_bytes(4, "little") + b"".join(n.to_bytes(4, "little") for n in (3, end)) for end in (6, 2**30)
    )
    content = path.read_bytes()
    assert offsets in content
    path.write_bytes(content.replace(offsets, damaged))
    with refused("a.arrow"):
        read(tmp_path / "a.arrow")


def test_arrow_text_that_is_not_utf8_spoils_only_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"good", b"bad\xff", b"good"], pa.binary())
    bad = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    table = pa.table({"query": bad, "positive": ["p q"] * 3, "negative": ["n q"] * 3})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    assert reasons(read(tmp_path / "a.arrow")[1]) == ["", "broken_line", ""]


def test_parquet_column_names_that_are_not_utf8_are_an_error(tmp_path: Path) -> None:
    """Found by fuzzing: pyarrow raises UnicodeDecodeError for the metadata, which is no row's trouble."""
    path = write(tmp_path / "a.parquet", [{"query": "q", "positive": "p", "negative": "n"}])
    path.write_bytes(path.read_bytes().replace(b"positive", b"positiv\xe5"))
    with refused(path):
        read(path)


@pytest.mark.parametrize("plain_footer", [False, True])
def test_encrypted_parquet_is_called_encrypted(plain_footer: bool, tmp_path: Path) -> None:
    table = pa.table({"query": ["q"], "positive": ["p"], "negative": ["n"]})
    path = save_encrypted(tmp_path / "a.parquet", table, plain_footer=plain_footer)
    message, _, remedy = (
        str(refusal(path.read_bytes(), tmp_path, "b.parquet")).replace(str(tmp_path), "").partition("\n")
    )
    assert "is encrypted" in message
    assert "decrypt it" in remedy


PROSE = "The abstracts are about harbors, tides and the ships that use them, in plain text.\n"


@pytest.mark.parametrize(("name", "header"), [("a.csv", None), ("a.csv.gz", None), ("a.txt", False)])
def test_a_line_with_two_commas_is_a_row_where_the_name_or_a_flag_says_so(
    name: str, header: bool | None, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(PROSE.encode()) if name.endswith(".gz") else PROSE.encode())
    _, found = read(path, header=header)
    assert len(found) == 1
