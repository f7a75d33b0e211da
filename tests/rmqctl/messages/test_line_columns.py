"""Lines of JSON as columns against the same lines one by one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("numba")

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.messages import line_pieces
from rmqctl.messages.input import message_from_line
from rmqctl.messages.lines import LineColumns, columns_of_lines, reader_of_lines
from rmqctl.store.compiled.available import NO_NUMBA
from rmqctl.store.write.bulk.arrow import rows_of_batch
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.opened import store_path
from tests.quick import examples
from tests.rmqctl.looking import run

TEXTS = st.one_of(st.text(max_size=12), st.text(st.sampled_from('ab"\\/\n\t\x00\x01\x02\x7fé\u2028😀 '), max_size=8))
HOSTS = st.sampled_from(["1.2.3.4:5", "[::1]:9", "here", "", None, 7])
INTEGERS = st.one_of(
    st.integers(-3, 100), st.integers(-(1 << 65), 1 << 65), st.sampled_from([1.0, 1e3, True, None, "1", 1 << 31])
)
BASE64 = st.sampled_from(["", "/w==", "YQ==", "YWI=", "YWJj", "YR==", "YQ=", "Y", "????", "YQ==YQ==", "Y Q=", None, 3])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.one_of(TEXTS, st.just("Topic")),
    "body": st.one_of(TEXTS, st.none()),
    "body_base64": BASE64,
    **dict.fromkeys(("queue_id", "flag", "sys_flag", "reconsume_times"), INTEGERS),
    **dict.fromkeys(("prepared_transaction_offset", "born_timestamp", "store_timestamp"), INTEGERS),
    **dict.fromkeys(("born_host", "store_host"), HOSTS),
    "tags": st.one_of(TEXTS, st.none(), st.just(5)),
    "keys": st.one_of(st.lists(st.one_of(TEXTS, st.sampled_from(["k", "k l", "", 4]))), st.none(), st.just("k")),
    "properties": st.one_of(
        st.dictionaries(st.one_of(TEXTS, st.sampled_from(["KEYS", "TAGS"])), st.one_of(TEXTS, st.just(1)), max_size=4),
        st.none(),
        st.just([]),
    ),
    **dict.fromkeys(("properties_base64", "stored_body_base64"), BASE64),
    "body_error": st.sampled_from([None, "it is broken"]),
    "size": st.sampled_from([1, -1.5e-7, "x", True, False, None, [], {}, 1 << 70]),
    "msg_id": TEXTS,
    "unknown": st.just(1),
}
REQUIRED = st.fixed_dictionaries({"topic": VALUES["topic"], "body": TEXTS})
OPTIONAL = st.fixed_dictionaries({}, optional={name: VALUES[name] for name in VALUES if name != "topic"})


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """Lines as programs write them, and now and then with a byte too many, too few or wrong."""
    record = draw(st.one_of(OPTIONAL, st.tuples(REQUIRED, OPTIONAL).map(lambda both: both[1] | both[0])))
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " : ")]))
    line = json.dumps(record, ensure_ascii=draw(st.booleans()), separators=separators).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(line)))
        put = draw(
            st.sampled_from([b"", b'"', b"\\", b"\\ud800", b"\\u00e9", b"\xff", b"\x01", b"0", b",", b" ", b"}"])
        )
        line = line[:at] + put + line[at + draw(st.integers(0, 1)) :]
    return draw(st.sampled_from([b"", b" ", b""])) + line + draw(st.sampled_from([b"", b"\r", b" \t"]))


def plain(line: bytes, as_stored: bool) -> Message | None:
    try:
        return message_from_line(line, as_stored)[0]
    except UsageError:
        return None


def columns(text: bytes, as_stored: bool) -> LineColumns:
    read = reader_of_lines()
    assert read is not None
    return columns_of_lines(read, text, as_stored)


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(st.one_of(json_lines(), st.sampled_from([b"", b" \r", b"{}", b"\x0b"])), max_size=6), st.booleans())
def test_what_is_taken_is_what_the_line_says(lines: list[bytes], as_stored: bool) -> None:
    text = b"\n".join(lines)
    lines = text.split(b"\n")
    found = columns(text, as_stored)
    left = {number: text[begin:end] for number, begin, end in found.odd}
    assert left == {number: lines[number] for number in left}
    taken = found.lines.tolist()
    blank = [number for number, line in enumerate(lines) if not line.strip(b" \t\r")]
    assert sorted([*taken, *left, *blank]) == list(range(len(lines)))
    try:
        rows = rows_of_batch(found.batch, as_stored)
    except UsageError:
        # a host that is none, or properties that are no UTF-8: all lines are read plainly then
        assert any(name in lines[number] for number in taken for name in (b"_host", b"properties_base64"))
        return
    assert [rows.message(row) for row in range(len(rows))] == [plain(lines[number], as_stored) for number in taken]


@pytest.mark.parametrize("name", ["clean", "features", "v4-features", "longtopic"])
def test_all_that_cat_prints_is_taken(name: str) -> None:
    text = run("cat", "-s", store_path(name), "--json", "--stored-bodies").out.encode()
    found = columns(text, True)
    assert found.batch.num_rows == text.count(b"\n") > 0
    assert not [text[begin:end] for _, begin, end in found.odd if b'"body_error"' not in text[begin:end]]


def appended(store: Path, lines: Path, *more: object) -> tuple[int, str, str, dict[str, str]]:
    done = run("append", "-s", store, "--create", "--from", lines, "--json", *more).without_notices
    return done.code, done.out, done.err, {
        path: state[2] for path, state in tree_state(store).items() if not path.startswith("checkpoint")
    }  # fmt: skip


@pytest.mark.parametrize("name", ["features", "clean"])
def test_a_copy_is_the_same_either_way(
    golden_store: GoldenStore, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store(name)
    lines = tmp_path / "lines"
    lines.write_text(run("cat", "-s", store, "--json", "--stored-bodies").out, encoding="utf-8")
    more = ["-c", broker_conf(name, store.parent), "--as-stored"]
    expected = appended(tmp_path / "plain", lines, *more)
    monkeypatch.setattr(line_pieces, "_PLAIN_BYTES", 20_000)
    monkeypatch.setattr(line_pieces, "_BLOCK_BYTES", 30_000)
    assert appended(tmp_path / "columns", lines, *more) == expected


@pytest.mark.parametrize("more", [["--keep-going"], []])
def test_bad_lines_are_told_alike(tmp_path: Path, more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.rmqctl.change.test_append import BAD_LINES

    stamp = {"born_timestamp": 1, "store_timestamp": 1_700_000_000_000, "store_host": "1.2.3.4:5"}
    good = [json.dumps({"topic": f"T{number % 3}", "body": f"b{number}", **stamp}).encode() for number in range(900)]
    for number, (line, _) in enumerate(BAD_LINES.values()):
        good.insert(20 * number + 7, line if b"topic" not in line else line[:-1] + b', "store_timestamp": 5}')
    good.insert(300, b"")
    good.insert(500, b'{"topic": "T", "body": "cut')
    good.insert(700, json.dumps({"topic": "Compressed", "body": "x" * 100, "sys_flag": 1, **stamp}).encode())
    lines = tmp_path / "lines"
    lines.write_bytes(b"\n".join(good))
    config = tmp_path / "small.conf"
    config.write_text(
        "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=50\nmaxIndexNum=200\n"
    )
    more = ["-c", str(config), "--as-stored", *more]
    expected = appended(tmp_path / "plain", lines, *more)
    monkeypatch.setattr(line_pieces, "_PLAIN_BYTES", 0)
    monkeypatch.setattr(line_pieces, "_BLOCK_BYTES", 10_000)
    assert appended(tmp_path / "columns", lines, *more) == expected
    assert (expected[0], "line 8: " in expected[2]) == (2, True)
    assert "it is not JSON: it is nested too deeply" in expected[2]


def test_lines_are_numbered_however_they_are_read() -> None:
    text = b"one\n\ntwo\n" * 40 + b"cut off"

    class Pipe(io.BytesIO):
        def readinto1(self, buffer: Any) -> int:
            return self.readinto(memoryview(buffer)[:7])

    for stream in (io.BytesIO(text), Pipe(text)):
        for block in (1, 50, 1 << 20):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(line_pieces, "_BLOCK_BYTES", block)
                stream.seek(0)
                found = list(line_pieces.blocks_of_lines(stream))
            assert b"".join(part for _, part in found) == text
            for number, part in found:
                assert text.startswith(bytes(part), sum(map(len, text.splitlines(keepends=True)[: number - 1])))
                assert bytes(part).endswith((b"\n", b"cut off"))


def test_a_line_without_end_is_refused_before_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_pieces, "MAXIMUM_LINE", 1000)
    monkeypatch.setattr(line_pieces, "_BLOCK_BYTES", 100)
    stream = io.BytesIO(b"{}\n" * 50 + b"x" * 100_000)
    with pytest.raises(UsageError, match="line 51 is longer"):
        list(line_pieces.blocks_of_lines(stream))
    assert stream.tell() < 3000


def test_nothing_is_compiled_for_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_pieces, "_reader", lambda: pytest.fail("loaded"))
    (tmp_path / "lines").write_bytes(b'{"topic": "T", "body": "x"}\n' * 100)
    assert run("append", "-s", tmp_path / "store", "--create", "--from", tmp_path / "lines").code == 0


def test_where_nothing_can_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NO_NUMBA, "1")
    assert reader_of_lines() is None
    monkeypatch.setattr(line_pieces, "_PLAIN_BYTES", 0)
    [piece] = line_pieces.pieces_of_lines(io.BytesIO(b'{"topic": "T", "body": "x"}\n'), as_stored=False)
    assert isinstance(piece.content, list)
