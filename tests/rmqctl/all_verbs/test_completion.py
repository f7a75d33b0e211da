"""Completion scripts, and what they ask rmqctl for."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqctl.commands.more.help import SHELLS, script
from rmqctl.flags import options as completing
from rmqctl.main import VERBS, main
from rmqctl.store import MessageStore
from rmqctl.store.check.catalogue import catalogue
from tests.goldens import GoldenStore
from tests.opened import store_path
from tests.processes import run


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert shown == script(shell)
    assert f"_RMQCTL_COMPLETE={shell}_complete" in shown


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_accepts_the_script(shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    ended = run([found, "-n"], input=script(shell))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rmqctl ", list(VERBS)),
        ("rmqctl re", ["report", "recover", "rebuild", "repair", "resume"]),
        ("rmqctl --ver", ["--version"]),
        ("rmqctl completion ", list(SHELLS)),
        ("rmqctl completion z", ["zsh"]),
    ],
)
def test_what_is_offered(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split(" ")
    monkeypatch.setenv("_RMQCTL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert main([]) == 0
    assert [offer.partition(",")[2] for offer in capsys.readouterr().out.split()] == expected


def offered(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = line.split(" ")
    monkeypatch.setenv("_RMQCTL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert main([]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return [offer.partition(",")[2] for offer in shown.out.split()]


Offered = Callable[[str], list[str]]


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offered:
    return lambda line: offered(line, monkeypatch, capsys)


def test_topics_of_the_store_that_is_named(offers: Offered, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_path("clean")
    assert offers(f"rmqctl cat -s {store} -t Order") == ["OrderTopic"]
    assert offers(f"rmqctl ls -s {store} -t t") == ["topic-with-dash", "topic_under_score"]
    assert offers(f"rmqctl cat -s {store} -t OrderTopic -t TopicT") == ["TopicTest"]
    monkeypatch.setenv("RMQCTL_STORE", str(store))
    assert offers("rmqctl query -t Order") == ["OrderTopic"]


def test_groups(offers: Offered) -> None:
    names = offers(f"rmqctl groups -s {store_path('broker-real')} -g ")
    assert len(names) > 1
    assert names == sorted(set(names))
    for name in names:
        assert (
            name
            in (store_path("broker-real") / "config" / "subscriptionGroup.json").read_text()
            + (store_path("broker-real") / "config" / "consumerOffset.json").read_text()
        )


def test_codes_of_findings(offers: Offered) -> None:
    for typed in ("RMQ-CQ-", "rmq-file-00"):
        assert offers(f"rmqctl check --explain {typed}") == [
            code for code in catalogue() if code.startswith(typed.upper())
        ]
    assert "RMQ-CQ-009" in offers("rmqctl repair --only RMQ-CQ")


def test_ids_of_changes(offers: Offered, golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    assert offers(f"rmqctl undo -s {store} ") == []
    with MessageStore.open(store) as opened:
        opened.recover()
    (name,) = offers(f"rmqctl undo -s {store} ")
    assert name.endswith("-recover")
    assert offers(f"rmqctl log -s {store} {name[:6]}") == [name]


@pytest.mark.parametrize("broken", ["nothing", "a file", "bad json", "wild names"])
def test_it_never_fails(broken: str, offers: Offered, tmp_path: Path) -> None:
    store = tmp_path / "store"
    if broken == "a file":
        store.touch()
    elif broken != "nothing":
        (store / "config").mkdir(parents=True)
        for name in ("topics", "subscriptionGroup", "consumerOffset"):
            (store / "config" / f"{name}.json").write_text('{"x": [' if broken == "bad json" else "[1]")
    if broken == "wild names":
        for name in ("a b", "a\nb", "a\x1b[31m", "a"):
            (store / "consumequeue" / name).mkdir(parents=True)
    assert offers(f"rmqctl cat -s {store} -t ") == (["a"] if broken == "wild names" else [])
    for line in ("groups -s {} -g ", "undo -s {} ", "cat -c {} -t "):
        assert offers("rmqctl " + line.format(store)) == []


def test_it_is_never_slow(offers: Offered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(completing, "SECONDS", 0.01)
    monkeypatch.setattr(completing, "_topics", lambda layout: iter(lambda: hangs.wait(60) and "x", None))
    try:
        assert offers(f"rmqctl cat -s {tmp_path} -t ") == []
    finally:
        hangs.set()


def test_so_many_at_most(offers: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "MOST", 7)
    for number in range(20):
        (tmp_path / "consumequeue" / f"T{number}").mkdir(parents=True)
    assert len(offers(f"rmqctl cat -s {tmp_path} -t T")) == 7
