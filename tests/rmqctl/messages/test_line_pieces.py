"""Lines of JSON as rows for a bulk append against the same lines one by one, stored; and blocks of lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.messages import line_pieces
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.rmqctl.looking import run


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


def test_few_lines_are_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_pieces, "_piece", lambda *_: pytest.fail("rows"))
    (tmp_path / "lines").write_bytes(b'{"topic": "T", "body": "x"}\n' * 100)
    assert run("append", "-s", tmp_path / "store", "--create", "--from", tmp_path / "lines").code == 0


def test_where_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_pieces, "is_compiled", lambda: False)
    monkeypatch.setattr(line_pieces, "_PLAIN_BYTES", 0)
    [piece] = line_pieces.pieces_of_lines(io.BytesIO(b'{"topic": "T", "body": "x"}\n'), as_stored=False)
    assert isinstance(piece.content, list)
