"""`rmqctl append`: one message, many messages, exact copies, and every kind of bad input."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rmqctl.main import main
from tests.goldens import GoldenStore, broker_conf, tree_state
from tests.rmqctl.change.writers import appending
from tests.unique_id import parse_unique_id

ROOT = Path(__file__).resolve().parents[3]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def new_store(tmp_path: Path) -> tuple[Path, Path]:
    """A place for a store, and a broker.conf with small files for it."""
    config = tmp_path / "small.conf"
    config.write_text(
        "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=50\nmaxIndexNum=200\n"
    )
    return tmp_path / "store", config


def test_one_message_is_found_again(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("clean")
    code, out, _ = run(
        capsys,
        *("append", "-s", store, "-t", "Orders", "-q", "3", "--tags", "paid", "-k", "o-1", "-k", "o-2"),
        *("--property", "shop=7", "--flag", "5", "--body", "hällo", "--json"),
    )
    assert code == 0
    [answer] = records(out)
    assert answer["status"] == "PUT_OK"
    assert (answer["queue_id"], answer["queue_offset"], answer["physical_offset"]) == (3, 0, 2135612)
    for arguments in (
        ("-t", "Orders", "-k", "o-2"),
        ("-i", answer["msg_id"]),
        ("-o", "2135612"),
        ("-t", "Orders", "-q", "3", "-o", "0"),
    ):
        code, out, _ = run(capsys, "query", "-s", store, *arguments, "--json")
        assert code == 0, arguments
        [found] = records(out)
        assert found["body"] == "hällo"
        unique_key = found["properties"].pop("UNIQ_KEY")
        assert found["properties"] == {"KEYS": "o-1 o-2", "TAGS": "paid", "shop": "7"}
        assert found["flag"] == 5
    assert not (store / "abort").exists()
    assert parse_unique_id(unique_key).process_id == os.getpid() & 0xFFFF
    _, out, _ = run(capsys, "query", "-s", store, "-i", unique_key, "--json")
    assert [one["physical_offset"] for one in records(out)] == [2135612]


def test_a_body_from_a_file_is_kept_byte_for_byte(
    golden_store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = golden_store("clean")
    body = bytes(range(256))
    (tmp_path / "body").write_bytes(body)
    assert run(capsys, "append", "-s", store, "-t", "T", "--body-file", tmp_path / "body")[0] == 0
    _, out, _ = run(capsys, "query", "-s", store, "-o", "2135612", "--json")
    import base64

    assert base64.b64decode(records(out)[0]["body_base64"]) == body


@pytest.mark.parametrize(
    "name", ["clean", "v4-clean", "features", "v4-features", "propcrc", "longtopic", "lmq", "broker-real"]
)
def test_cat_into_append_copies_a_store_exactly(
    golden_store: GoldenStore, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = golden_store(name)
    config = broker_conf(name, store.parent)
    code, out, _ = run(capsys, "cat", "-s", store, "--json", "--stored-bodies")
    assert code == 0
    lines = tmp_path / "lines"
    lines.write_text(out, encoding="utf-8")
    copy = tmp_path / "copy"
    code, out, _ = run(capsys, "append", "-s", copy, "-c", config, "--create", "--from", lines, "--as-stored", "--json")
    assert code == 0
    for path in sorted((store / "commitlog").iterdir()):
        assert (copy / "commitlog" / path.name).read_bytes() == path.read_bytes(), path.name
    ours = {path: state[2] for path, state in tree_state(copy).items() if path.startswith("consumequeue/")}
    theirs = {path: state[2] for path, state in tree_state(store).items() if path.startswith("consumequeue/")}
    assert ours == theirs


def test_a_copy_keeps_what_the_producer_set(
    golden_store: GoldenStore, new_store: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, config = new_store
    source = golden_store("clean")
    _, out, _ = run(capsys, "cat", "-s", source, "-t", "TopicTest", "--json")
    (tmp_path / "lines").write_text(out, encoding="utf-8")
    before = int(time.time() * 1000)
    assert run(capsys, "append", "-s", store, "-c", config, "--create", "--from", tmp_path / "lines")[0] == 0
    _, copied, _ = run(capsys, "cat", "-s", store, "--json")
    kept = (
        "topic",
        "queue_id",
        "flag",
        "properties",
        "body",
        "born_timestamp",
        "born_host",
        "tags",
        "keys",
        "unique_key",
    )
    assert [[row.get(name) for name in kept] for row in records(copied)] == [
        [row.get(name) for name in kept] for row in records(out)
    ]
    assert all(row["store_timestamp"] >= before for row in records(copied))


def test_stdin(
    new_store: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, config = new_store
    text = b'{"topic": "T", "body": "one"}\n\n{"topic": "T", "body": "two", "keys": ["k"], "tags": "x"}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    code, out, _ = run(capsys, "append", "-s", store, "-c", config, "--create", "--from", "-", "--json")
    assert (code, records(out)[0]["stored"]) == (0, 2)
    _, out, _ = run(capsys, "cat", "-s", store, "--json")
    assert [(row["body"], row["keys"], row["tags"]) for row in records(out)] == [("one", [], None), ("two", ["k"], "x")]


BAD_LINES = {
    "not json": (b"{nope", "not JSON"),
    "no object": (b"[1]", "no object"),
    "unknown field": (b'{"topic": "T", "body": "", "tpoic": 1}', "no field 'tpoic'"),
    "no topic": (b'{"body": "x"}', "topic must be a text"),
    "no body": (b'{"topic": "T"}', "neither body nor body_base64"),
    "two bodies": (b'{"topic": "T", "body": "a", "body_base64": "YQ=="}', "both body and body_base64"),
    "bad base64": (b'{"topic": "T", "body_base64": "???"}', "not base64"),
    "queue id": (b'{"topic": "T", "body": "", "queue_id": -1}', "queue_id must be a whole number"),
    "queue id text": (b'{"topic": "T", "body": "", "queue_id": "1"}', "queue_id must be a whole number"),
    "host": (b'{"topic": "T", "body": "", "born_host": "here"}', "neither IPv4:port nor"),
    "property": (b'{"topic": "T", "body": "", "properties": {"a": 1}}', "must be a text"),
    "separator": (b'{"topic": "T", "body": "", "properties": {"a": "\\u0002"}}', "separator"),
    "surrogate": (b'{"topic": "T\\ud800", "body": ""}', "surrogate"),
    "key that is no list": (
        b'{"topic": "T", "body": "", "keys": "k"}',
        'must be a list of texts, such as ["order-7"], not "k"',
    ),
    "key with space": (b'{"topic": "T", "body": "", "keys": ["a b"]}', "without spaces"),
    "long topic": (b'{"topic": "' + b"x" * 200 + b'", "body": ""}', "MESSAGE_ILLEGAL"),
    "path as topic": (b'{"topic": "../up", "body": ""}', "MESSAGE_ILLEGAL"),
    "deep json": (b'{"topic": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 2"),
    "not utf-8": (b'{"topic": "\xff", "body": ""}', "not JSON"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_is_named_and_nothing_is_written(
    golden_store: GoldenStore, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line, expected = BAD_LINES[kind]
    store = golden_store("clean")
    before = {path: state[2] for path, state in tree_state(store).items()}
    (tmp_path / "lines").write_bytes(b'{"topic": "Good", "body": "1"}\n' + line + b'\n{"topic": "Good", "body": "3"}\n')
    code, out, err = run(capsys, "append", "-s", store, "--from", tmp_path / "lines")
    assert code == 2
    assert "line 2: " in err
    assert expected in err
    assert "nothing was written" in err
    assert out == ""
    after = {path: state[2] for path, state in tree_state(store).items()}
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    # opening and closing for writing notes the time of the end of the log
    assert changed <= {"checkpoint"}


def test_keep_going_leaves_bad_lines_out(
    golden_store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = golden_store("clean")
    lines = [line for line, _ in BAD_LINES.values()]
    (tmp_path / "lines").write_bytes(
        b'{"topic": "Good", "body": "1"}\n' + b"\n".join(lines) + b'\n{"topic": "Good", "body": "3"}\n'
    )
    code, out, err = run(capsys, "append", "-s", store, "--from", tmp_path / "lines", "--keep-going", "--json")
    assert code == 2
    [summary] = records(out)
    assert (summary["stored"], summary["bad_lines"]) == (2, len(BAD_LINES))
    assert f"line {len(BAD_LINES) + 1}: " in err
    _, out, _ = run(capsys, "cat", "-s", store, "-t", "Good", "--json")
    assert [row["body"] for row in records(out)] == ["1", "3"]


def test_bad_lines_among_many(new_store: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, config = new_store
    lines = [json.dumps({"topic": "T", "body": str(number)}) for number in range(1, 6001)]
    lines[999] = "{nope"
    lines[2999] = ""
    lines[4999] = '{"topic": "../up", "body": ""}'
    (tmp_path / "lines").write_text("\n".join(lines))
    code, _, err = run(capsys, "append", "-s", store, "-c", config, "--create", "--from", tmp_path / "lines")
    assert code == 2
    assert [line.partition(":")[0] for line in err.splitlines() if line.startswith("line ")] == [
        "line 1000",
        "line 5000",
    ]
    assert run(capsys, "cat", "-s", store, "--json")[1] == ""
    code, out, _ = run(
        capsys, *("append", "-s", store, "-c", config, "--from", tmp_path / "lines", "--keep-going", "--json")
    )
    assert (code, records(out)[0]["stored"], records(out)[0]["bad_lines"]) == (2, 5997, 2)
    _, out, _ = run(capsys, "cat", "-s", store, "--json")
    assert [int(row["body"]) for row in records(out)] == [n for n in range(1, 6001) if n not in (1000, 3000, 5000)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "needs -t TOPIC"),
        (("-t", "T"), "either --body TEXT or --body-file"),
        (("-t", "T", "--body", "x", "--property", "novalue"), "is not NAME=VALUE"),
        (("-t", "T", "--body", "x", "-q", "-1"), "range"),
        (("-t", "T", "--body", "x", "--as-stored"), "go with --from"),
        (("-t", "T", "--from", __file__), "takes whole messages"),
        (("-t", "a/b", "--body", "x"), "MESSAGE_ILLEGAL"),
        (("-t", "T" * 128, "--body", "x"), "at most 127"),
    ],
)
def test_wrong_usage(
    golden_store: GoldenStore, arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "append", "-s", golden_store("clean"), *arguments)
    assert code == 2
    assert text in err


def test_places_that_are_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("x")
    for name in ("missing", "empty", "file", "other"):
        before = tree_state(tmp_path)
        code, _, err = run(capsys, "append", "-s", tmp_path / name, "-t", "T", "--body", "x")
        assert code == 3, name
        assert str(tmp_path / name) in err
        assert tree_state(tmp_path) == before


@pytest.mark.parametrize("name", ["crash", "crc-flip-last", "cq-lost", "stray-file", "torn-zero-clean"])
def test_a_store_that_is_not_whole_is_refused(
    golden_store: GoldenStore, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = golden_store(name)
    before = tree_state(store)
    code, _, err = run(capsys, "append", "-s", store, "-t", "T", "--body", "x")
    assert code == 5
    assert "recover" in err or "move it" in err
    assert tree_state(store) == before


def test_a_killed_writer_leaves_a_store_that_recover_completes(
    new_store: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    store, config = new_store
    with appending(store, config) as writer:
        os.kill(writer.pid, signal.SIGKILL)
    assert run(capsys, "append", "-s", store, "-t", "T", "--body", "x")[0] == 5
    # the kill may come before the first index file, which shows the sizes
    code, out, _ = run(capsys, "recover", "-s", store, "-c", config, "--json")
    assert code == 0
    stored = records(out)[0]["messages"]
    assert stored > 500
    code, out, _ = run(capsys, "cat", "-s", store, "--json", "--order", "queue")
    assert [row["keys"] for row in records(out)] == [[f"k{number}"] for number in range(stored)]
    assert run(capsys, "query", "-s", store, "-t", "T", "-k", f"k{stored - 1}", "--json")[0] == 0
    assert run(capsys, "append", "-s", store, "-t", "T", "--body", "x")[0] == 0


def test_a_new_store_is_only_made_when_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for store in (tmp_path / "none", tmp_path):
        code, _, err = run(capsys, "append", "-s", store, "-t", "T", "--body", "x")
        assert (code, "to make a new one there, say --create" in err) == (3, True)
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_a_hint_names_goes_by_the_same_configuration(
    golden_store: GoldenStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, conf = golden_store("crash"), tmp_path / "broker 1.conf"
    conf.write_text("mappedFileSizeConsumeQueue=2000\n")
    call = ("append", "-s", store, "-t", "T", "--body", "x", "--json")
    assert f"`rmqctl recover -s {store} -c '{conf}'`" in json.loads(run(capsys, *call, "-c", conf)[2])["hint"]
    assert f"`rmqctl recover -s {store}`" in json.loads(run(capsys, *call)[2])["hint"]
