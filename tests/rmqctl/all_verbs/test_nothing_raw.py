"""Law 7 over all verbs: whatever names, texts and files a store holds, no raw control character gets to a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import rich.console  # noqa: F401 - it keeps the environment that it finds when it is imported

from rmqctl.main import VERBS, main
from rmqctl.output import outcome, terminal
from rmqctl.output import outcome as exit_codes
from rmqctl.output.table import UNSAFE_RANGES
from rmqctl.store import Message, MessageStore, StoreConfig
from rmqctl.store.answers.undispatched import HALF_TOPIC
from tests.goldens import tree_state
from tests.network.serving import serving
from tests.quick import sample
from tests.terminal import TerminalText

# a C0 and a C1 escape, a bidi override, no width, a line of its own, a tab, and what Python reads for bytes that are
# no text
NASTY = "\x1b[2J\x9b31m\u202e\u200b\nINJECTED\t"
TOPIC = f"Topic{NASTY}"
KEY = "k\x1b]0;title\x07\u200b\u202e"
TAG = "tag\x1b[31m"
GROUP = f"Group{NASTY}"
FILE_SIZE = 65536
_UNSAFE = re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in UNSAFE_RANGES) + "]")
# our own: the end of a line, and on a terminal bold headings
_OURS = re.compile(r"\n|\x1b\[(0|1|1;31|32|33|36)m")
SIZES = StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=2000, max_hash_slot_num=100, max_index_num=400
)


def _filled(store: Path) -> int:
    """A store of hostile messages, with hostile names all over it; the offset of its last message."""
    last: int | None = None
    with MessageStore.open(store, "rw", SIZES, create=True) as opened:
        for number in range(100):
            properties = {"KEYS": KEY, "TAGS": TAG, f"name{NASTY}": f"value{NASTY}", "UNIQ_KEY": f"u{number}\x1b[0m"}
            # where a dead letter and a half message come from and go to
            properties |= {"RETRY_TOPIC": TOPIC, "ORIGIN_MESSAGE_ID": NASTY, "PGROUP": GROUP}
            properties |= {"DELAY": "1"} if number % 20 == 0 else {"REAL_TOPIC": TOPIC}
            body = f"body {NASTY}".encode() + bytes(range(256)) * 2
            topic = (TOPIC, "%RETRY%" + GROUP, "Plain", "%DLQ%" + GROUP, HALF_TOPIC)[number % 5]
            put = opened.put(Message(topic, body, properties=properties))
            assert put.physical_offset is not None, put
            last = put.physical_offset
    config = store / "config"
    config.mkdir(exist_ok=True)
    topics = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1} for name in (TOPIC, f"Gone{NASTY}")}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}, ensure_ascii=False))
    offsets = {f"{TOPIC}@{GROUP}": {"0": 10**6, "77": 1}, f"No{NASTY}@{GROUP}": {"0": 5}, "strange\x1b[0m": {"0": 1}}
    (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}, ensure_ascii=False))
    (config / "consumerOffset.json.bak").write_text("{\x1b[2J")
    groups = {GROUP: {"groupName": GROUP, "brokerId": 0}}
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}, ensure_ascii=False))
    (config / "delayOffset.json").write_text('{"offsetTable": {"\x1b[2J": 1}')
    for folder in (
        "commitlog",
        "index",
        "config",
        "consumequeue",
        f"consumequeue/{TOPIC}",
        f"consumequeue/{TOPIC}/0",
        ".",
    ):
        (store / folder / f"stray{NASTY.replace('/', '')}").write_bytes(b"\x1b[2J" * 4)
    (store / "commitlog" / "folder\x1b[2J").mkdir()
    assert last is not None
    return last


def _broken(store: Path, last: int) -> None:
    """Damage among good messages, a queue that is cut, a unit of elsewhere, no clean stop."""
    log = sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())
    with log[0].open("r+b") as file:
        file.seek(4000)
        file.write(b"\x1b[31m" * 40)
    queue = store / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    with queue.open("r+b") as file:
        file.seek(200)
        file.write(bytes(60))
    (store / "abort").write_text("\x1b[2J")
    (store / "consumequeue" / f"NotAQueue{NASTY}").mkdir()
    (store / "consumequeue" / f"NotAQueue{NASTY}" / "x\x1b[2J").mkdir()


_WITHOUT_A_STORE: tuple[list[object], ...] = (
    ["produce", "-n", f"{NASTY}:x", "-t", TOPIC, "--body", "x"],
    ["consume", "-n", f"{NASTY}:x", "-t", TOPIC],
    ["consume", "-n", f"{NASTY}:1", "-t", TOPIC],
    ["topics", "-n", f"{NASTY}:1"],
    ["cluster", "-n", f"{NASTY}:1"],
    ["groups", "-n", f"{NASTY}:1"],
    ["mirror", "127.0.0.1:1", f"mirror{NASTY}"],
    ["mirror", f"{NASTY}:1", "mirror"],
    [f"verb{NASTY}"],
    ["cat", f"--flag{NASTY}"],
)


_COUNTS: tuple[list[object], ...] = (
    ["sql", "select * from messages"],
    ["sql", f"select '{NASTY}' as \"{NASTY}\", * from topics"],
    ["sql", f'select "{NASTY}" from findings; select 1'],
    ["sql", "select * from findings"],
    ["stats"],
    ["stats", "--by", "topic,tag"],
    ["stats", "--by", "topic,tag", "--plot"],
)


def _on_the_wire(namesrv: str, more: list[str]) -> Iterator[list[object]]:
    yield ["cluster", "-n", namesrv, *more]
    yield ["topics", "-n", namesrv, *more]
    yield ["groups", "-n", namesrv, *more]
    yield ["groups", "-n", namesrv, "-g", NASTY, *more]
    for topic in (TOPIC, "Plain", f"None{NASTY}"):
        yield ["topics", "-n", namesrv, "-t", topic, *more]
        yield ["consume", "-n", namesrv, "-t", topic, *more]
        yield ["produce", "-n", namesrv, "-t", topic, "--body", NASTY, *more]


def _questions(last: int) -> Iterator[list[object]]:
    """The same of where a message is, and how far groups have come."""
    yield ["where", KEY]
    yield ["where", KEY, "-t", f"None{NASTY}", "-g", NASTY]
    yield ["where", NASTY, "-g", NASTY, "--tag", NASTY]
    yield ["where", last]
    yield ["where", TOPIC, 0, 1, "-g", GROUP, "--tag", NASTY]
    yield ["where", TOPIC, 0, 99]
    yield ["where", f"None{NASTY}", 0, 1]
    yield ["groups"]
    yield ["groups", "--queues", "--plot"]
    yield ["groups", "-g", GROUP, "-t", TOPIC]
    yield ["groups", "-g", NASTY, "--tag", NASTY]


def _of_groups(store: Path) -> tuple[list[object], ...]:
    """The same of what belongs to groups."""
    return (
        ["dlq list"],
        ["dlq redrive", "-g", GROUP, "--dry-run"],
        ["dlq redrive", "-g", GROUP, "--dry-run", "--into", "origin"],
        ["dlq redrive", "-g", NASTY, "--dry-run"],
        ["offsets show"],
        ["offsets show", "-g", NASTY],
        ["offsets lint"],
        ["offsets set", "-g", GROUP, "-t", TOPIC, "-q", 0, "-o", 10**9, "--dry-run", "--anywhere"],
        ["offsets set", "-g", NASTY, "-t", TOPIC, "-q", 0, "-o", 1, "--dry-run"],
        ["offsets reset", "-g", GROUP, "-t", TOPIC, "--to", "earliest", "--dry-run"],
        ["offsets reset", "-g", GROUP, "-t", NASTY, "--to", NASTY, "--dry-run"],
        ["offsets copy", "-g", GROUP, "--to", NASTY, "--new-group", "--dry-run"],
        ["offsets merge", store / "config" / "consumerOffset.json", "--dry-run"],
        ["offsets merge", store.parent / f"bad{NASTY}.jsonl", "--dry-run"],
        ["clean", "--forecast"],
    )


def _looks(store: Path, last: int) -> tuple[list[object], ...]:
    """What is asked of the store, and changes that are only planned."""
    plain: list[list[object]] = [
        [verb] for verb in ("doctor", "watch", "info", "ls", "du", "cat", "check", "predict", "delays", "halves", "acl")
    ]
    plain += [["report", "-o", "-"], ["du", "--map"], ["delays", "--plot"]]
    quick: list[list[object]] = [[verb, "--quick"] for verb in ("info", "du", "check")]
    return (
        *plain,
        *quick,
        ["ls", "--queues"],
        ["ls", "--files"],
        ["cat", "--columns", "topic,tags,keys,properties,body"],
        ["cat", "-n", -5],
        ["cat", "--order", "queue"],
        ["cat", "-t", TOPIC, "-k", KEY],
        ["cat", "-t", f"None{NASTY}"],
        ["cat", "--grep", NASTY],
        ["predict", "--broker", "4.9.8"],
        ["query", "-o", last],
        ["query", "-o", 4000],
        ["query", "-t", TOPIC, "-k", KEY],
        ["query", "-t", TOPIC, "-k", KEY, "--scan"],
        ["query", "-t", TOPIC, "-k", NASTY],
        ["query", "-i", f"u3\x1b[0m{NASTY}"],
        ["query", "-t", TOPIC, "-q", 0, "-o", 1],
        ["query", "-t", TOPIC, "-q", 0, "-o", 10],
        ["query", "-t", TOPIC, "--at", 0],
        ["log"],
        ["recover", "--dry-run"],
        ["recover", "--dry-run", "--full"],
        ["recover", "--dry-run", "--full", "--cut"],
        ["recover", "--dry-run", "--bridge"],
        ["rebuild", "--dry-run"],
        ["rebuild", "--dry-run", "-t", f"None{NASTY}"],
        ["repair", "--dry-run"],
        ["repair", "--dry-run", "--only", f"RMQ{NASTY}"],
        ["purge", "--dry-run", "-t", TOPIC],
        ["purge", "--dry-run", "-t", f"None{NASTY}"],
        ["truncate", "--dry-run", "--at", 4001],
        ["truncate", "--dry-run", "--at", last],
        ["clean", "--dry-run", "--at-once", "--crashed"],
        ["undo", "--dry-run"],
        ["undo", f"20{NASTY}", "--dry-run"],
        ["resume", "--dry-run"],
        ["log", "--prune", NASTY],
    )


def _commands(store: Path, last: int, more: list[str]) -> Iterator[list[object]]:
    at: list[object] = ["-s", store]
    for look in (*_looks(store, last), *_of_groups(store), *_questions(last), *_COUNTS):
        yield [*str(look[0]).split(" "), *at, *look[1:], *more]
    if more:
        return
    yield ["export", *at, "-", "--format", "jsonl"]
    yield ["export", *at, "-", "--format", "csv", "-t", TOPIC]
    yield ["export", *at, store / "commitlog" / "x.csv"]
    yield ["append", *at, "-t", TOPIC, "--body", "x"]
    yield ["append", *at, "--from", store.parent / f"bad{NASTY}.jsonl"]
    yield ["snapshot", *at, store / "commitlog"]
    yield ["salvage", store, "--to", store]
    yield ["twin", store, store, "--anonymise"]
    yield ["recover", *at]
    yield ["truncate", *at, "--at", last]
    yield ["diff", store, store]
    yield ["diff", store, store.parent / "other"]
    for path in [path for path in sorted(store.rglob("*")) if path.is_file()]:
        yield ["dump", path, "-n", 3, *(["--hex"] if "stray" in path.name else [])]
    yield ["dump", store / "commitlog" / f"{0:020d}", "--at", 3900, "-n", 3]
    yield ["serve", *at, "--listen", f"{NASTY}:1"]
    yield ["produce", "-n", "127.0.0.1:1", "-t", TOPIC, "--from", store.parent / f"bad{NASTY}.jsonl"]
    yield from _WITHOUT_A_STORE


def _raw(text: str, ours: re.Pattern[str], is_csv: bool) -> list[str]:
    """The pieces around characters that a terminal would obey or hide; and lines that a text of the store began."""
    rest = ours.sub("", text)
    found = [rest[max(0, found.start() - 60) : found.end() + 10] for found in _UNSAFE.finditer(rest)]
    # in CSV a newline within quotes is part of a value
    return found + [line for line in text.split("\n") if not is_csv and line.startswith("INJECTED")]


@pytest.mark.parametrize("way", sample(["on a terminal", "", "--json", "--format csv"], ["on a terminal"]))
def test_nothing_raw_reaches_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    store = tmp_path / f"store{NASTY}" / "s"
    on_terminal = way == "on a terminal"
    more = way.split() if way.startswith("--") else []
    last = _filled(store)
    shutil.copytree(store, store.parent / "other")
    (store.parent / f"bad{NASTY}.jsonl").write_text(
        json.dumps({"topic": TOPIC, f"field{NASTY}": NASTY}) + f"\n{NASTY}\n"
    )
    _broken(store, last)
    before = tree_state(store.parent)
    monkeypatch.setattr(outcome, "_is_terminal", lambda: on_terminal)
    monkeypatch.setattr(click, "confirm", lambda question, **_: told.append(question))
    monkeypatch.setattr(
        os, "environ", {**os.environ, "TERM": "xterm", "PAGER": ""}
    )  # a pager would take what is looked at
    monkeypatch.setattr(terminal, "SHOWN_AFTER", 1e9)  # its bar is ours, and so are its colours
    ours = _OURS if on_terminal else re.compile("\n")
    wrong: list[tuple[list[object], list[str]]] = []
    seen: set[str] = set()
    codes: dict[int, int] = {}
    with serving(store.parent / "other") as served:
        for command in (*_on_the_wire(served.namesrv, more), *_commands(store, last, more)):
            told: list[str] = []
            out, err = (TerminalText(), TerminalText()) if on_terminal else (io.StringIO(), io.StringIO())
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main([str(argument) for argument in command])
            codes[code] = codes.get(code, 0) + 1
            seen.add(str(command[0]))
            assert code != exit_codes.BUG, (str(command), err.getvalue()[:500])
            told += [out.getvalue(), err.getvalue()]
            if raw := [piece for text in told for piece in _raw(text, ours, "csv" in command)]:
                wrong.append((command, raw[:3]))
    # short, whatever is wrong
    assert [(str(command)[:300], ascii(raw)[:300]) for command, raw in wrong[:5]] == []
    if not more:
        assert {name for name in VERBS if name not in ("browse", "completion", "config", "help", "mcp")} <= seen
        assert codes[exit_codes.OK] > 20
    assert tree_state(store.parent) == before, codes
