"""`rmqctl log`, `undo` and `resume`: what they print and end with, and that other verbs wait for them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.files.layout import StoreLayout
from rmqctl.store.options import ChangeOptions
from tests.goldens import GoldenStore, tree_state
from tests.rmqctl.looking import run
from tests.store.files.crashing import crashed, recorded


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """All but the lock file, which taking the broker's lock makes."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {".", "lock"}


def interrupted(store: Path, *, part: float = 0.5) -> None:
    """A recovery that was killed on its way."""
    copy = store.with_name("copy")
    shutil.copytree(store, copy)
    from rmqctl.store.recover.recover import recover
    from rmqctl.store.store_files import StoreFiles

    def work(path: Path) -> None:
        with StoreFiles(path) as files:
            recover(files)

    total = len(recorded(lambda: work(copy)))
    shutil.rmtree(copy)
    shutil.rmtree(copy.with_name("copy.rmqctl"))
    assert crashed(lambda: work(store), int(total * part))
    # the process is gone, and with it its lock
    from rmqctl.store.files import lock

    lock._held.clear()


def test_recover_log_undo(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("crash")
    before = tree_state(store)
    monkeypatch.setattr("sys.argv", ["rmqctl", "recover", "-s", "a b"])
    assert run("recover", "-s", store)[0] == 0
    code, out, _ = run("log", "-s", store, "--json")
    [change] = rows(out)
    assert code == 0
    assert (change["verb"], change["state"], change["undoable"]) == ("recover", "applied", True)
    assert change["command_line"] == "rmqctl recover -s 'a b'"
    assert change["files"] > 30
    assert change["kept_bytes"] > 0
    assert Path(change["folder"]).name == change["id"]
    code, out, err = run("undo", "-s", store, "--dry-run")
    assert (code, "it can be undone" in err) == (0, True)
    assert not same(before, tree_state(store))
    code, out, err = run("undo", "-s", store, change["id"])
    assert (code, "as it was before" in err) == (0, True)
    assert same(before, tree_state(store))
    [change] = rows(run("log", "-s", store, "--json")[1])
    assert (change["state"], change["undoable"]) == ("undone", False)
    assert run("undo", "-s", store)[0] == 1
    assert run("undo", "-s", store, change["id"])[0] == 5
    assert run("resume", "-s", store)[0] == 1


@pytest.mark.parametrize(
    "verb",
    [
        ("append", "-t", "T", "--body", "x"),
        ("recover",),
        ("recover", "--dry-run"),
        ("recover", "--bridge"),
        ("rebuild",),
        ("clean", "--at-once", "--yes"),
        ("truncate", "--at", "0", "--yes"),
        ("repair",),
    ],
)
def test_every_change_waits_until_an_interrupted_one_is_ended(golden_store: GoldenStore, verb: tuple[str, ...]) -> None:
    store = golden_store("crash")
    interrupted(store)
    before = tree_state(store.parent)
    code, out, err = run(verb[0], "-s", store, *verb[1:])
    assert (code, out) == (5, "")
    assert "was interrupted" in err
    assert "rmqctl undo" in err
    assert "rmqctl resume" in err
    assert same(before, tree_state(store.parent))


def test_looking_goes_on_and_says_so(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    assert json.loads(run("info", "-s", store, "--json")[1])["unfinished_change"] is None
    interrupted(store)
    _, out, err = run("info", "-s", store, "--json")
    assert json.loads(out)["unfinished_change"].endswith("-recover")
    assert "rmqctl undo" in err
    code, out, _ = run("log", "-s", store)
    assert (code, "prepared" in out) == (0, True)
    # its queues end before its log, which makes their numbers uncertain
    assert run("ls", "-s", store)[0] == 1


def test_the_library_waits_too(golden_store: GoldenStore) -> None:
    from rmqctl.formats.errors import RefusedError
    from rmqctl.store.message_store import MessageStore

    store = golden_store("crash")
    interrupted(store)
    with pytest.raises(RefusedError, match="was interrupted"):
        MessageStore.open(store, "rw")
    with MessageStore.open(store, "r") as opened:
        assert opened.get("TopicTest", 0, 0).messages


@pytest.mark.parametrize("part", [0.5, 0.7, 0.95])
def test_interrupted_changes_end_either_way(golden_store: GoldenStore, part: float, tmp_path: Path) -> None:
    store = golden_store("crash")
    before = tree_state(store)
    interrupted(store, part=part)
    assert run("undo", "-s", store)[0] == 0
    assert same(before, tree_state(store))
    interrupted(store, part=part)
    code, _, err = run("resume", "-s", store, "--dry-run")
    assert (code, "interrupted" in err) == (0, True)
    code, _, err = run("resume", "-s", store)
    assert (code, "complete" in err) == (0, True)
    assert json.loads(run("recover", "-s", store, "--json")[1])["operations"] == []
    assert run("undo", "-s", store)[0] == 0
    assert same(before, tree_state(store))


def test_an_append_after_a_recovery_bars_its_undo(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    run("recover", "-s", store)
    assert run("append", "-s", store, "-t", "TopicTest", "--body", "x")[0] == 0
    before = tree_state(store)
    code, _, err = run("undo", "-s", store)
    assert code == 5
    assert str(store) in err
    assert "has written to the store" in err
    assert tree_state(store) == before


def test_pruning(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    run("recover", "-s", store)
    code, _, err = run("log", "-s", store, "--prune")
    assert (code, "--yes" in err) == (5, True)
    code, out, _ = run("log", "-s", store, "--prune", "--older-than", "1d", "--yes", "--json")
    assert rows(out) == [{"forgotten": [], "bytes_freed": 0}]
    [change] = rows(run("log", "-s", store, "--json")[1])
    code, out, _ = run("log", "-s", store, "--prune", change["id"][:10], "--yes", "--json")
    assert rows(out) == [{"forgotten": [change["id"]], "bytes_freed": change["kept_bytes"]}]
    [change] = rows(run("log", "-s", store, "--json")[1])
    assert (change["state"], change["kept_bytes"], change["undoable"]) == ("forgotten", 0, False)
    assert not Path(store.with_name("crash.rmqctl") / change["id"]).exists()
    code, _, err = run("undo", "-s", store)
    assert (code, "cannot be undone any more" in err) == (5, True)
    assert run("log", "-s", store, "--older-than", "1d")[0] == 2
    assert run("log", "-s", store, "nothing")[0] == 1


def test_an_unfinished_change_is_not_pruned(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    interrupted(store)
    [change] = rows(run("log", "-s", store, "--json")[1])
    code, _, err = run("log", "-s", store, "--prune", change["id"], "--yes")
    assert (code, "end it first" in err) == (5, True)
    assert rows(run("log", "-s", store, "--prune", "--yes", "--json")[1]) == [{"forgotten": [], "bytes_freed": 0}]
    assert run("undo", "-s", store)[0] == 0


def test_changes_that_keep_nothing_say_so(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    code, _, err = run("recover", "-s", store, "--no-journal")
    assert (code, "--yes" in err) == (5, True)
    code, _, err = run("recover", "-s", store, "--no-journal", "--yes")
    assert (code, "cannot be undone" in err) == (0, True)
    code, _, err = run("rebuild", "-s", store, "--no-journal", "--yes")
    assert (code, "cannot be undone" in err) == (0, True)
    assert run("clean", "-s", store, "--at-once", "--yes")[0] == 0
    states = [(change["verb"], change["state"]) for change in rows(run("log", "-s", store, "--json")[1])]
    assert states == [("recover", "permanent"), ("rebuild", "permanent"), ("clean", "permanent")]
    assert [path.name for path in store.with_name("crash.rmqctl").iterdir()] == ["history.jsonl"]
    code, _, err = run("undo", "-s", store)
    assert (code, "was made with --no-journal" in err) == (5, True)


def test_rebuild_is_undone_with_directories(golden_store: GoldenStore) -> None:
    store = golden_store("cq-truncated")
    before = tree_state(store)
    assert run("rebuild", "-s", store)[0] == 0
    assert run("undo", "-s", store)[0] == 0
    assert same(before, tree_state(store))


def test_a_store_that_was_never_changed(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    before = tree_state(store.parent)
    code, out, err = run("log", "-s", store)
    assert (code, out) == (0, "")
    assert "no change" in err
    assert run("log", "-s", store, "--json")[:2] == (0, "")
    assert tree_state(store.parent) == before
    for verb in ("undo", "resume"):
        assert run(verb, "-s", store)[0] == 1
        assert run(verb, "-s", store.with_name("missing"))[0] == 3


def test_names_from_a_journal_are_sanitised(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    kept = StoreLayout(store, ()).kept
    kept.mkdir()
    (kept / "history.jsonl").write_text(
        json.dumps({"id": "a\x1b[31m", "verb": "x", "state": "permanent", "arguments": ["\x1b]0;"]}) + "\n{"
    )
    code, out, err = run("log", "-s", store)
    assert code == 0
    assert "\x1b" not in out + err
    assert "\\x1b" in out


def test_a_store_named_by_a_dot(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("crash")
    before = tree_state(store)
    monkeypatch.chdir(store)
    assert run("recover", "-s", ".")[0] == 0
    assert store.with_name("crash.rmqctl").is_dir()
    assert run("undo", "-s", "../crash")[0] == 0
    assert same(before, tree_state(store))


def test_a_change_without_a_journal_that_was_interrupted(golden_store: GoldenStore) -> None:
    from rmqctl.store.files import lock
    from rmqctl.store.recover.recover import recover
    from rmqctl.store.store_files import StoreFiles

    store = golden_store("crash")

    def work(path: Path) -> None:
        with StoreFiles(path) as files:
            recover(files, change=ChangeOptions(keep_undo=False, command_line=["recover", "--no-journal"]))

    copy = shutil.copytree(store, store.with_name("copy"))
    total = len(recorded(lambda: work(copy)))
    assert crashed(lambda: work(store), total * 2 // 3)
    lock._held.clear()
    [change] = rows(run("log", "-s", store, "--json")[1])
    assert (change["state"], change["undoable"]) == ("interrupted", False)
    for verb in (("append", "-t", "T", "--body", "x"), ("clean", "--at-once", "--yes"), ("undo",), ("resume",)):
        code, out, err = run(verb[0], "-s", store, *verb[1:])
        assert (code, out, "run it again (`rmqctl recover --no-journal`)" in err) == (5, "", True)
    finding = next(row for row in rows(run("check", "-s", store, "--json")[1]) if row.get("code") == "RMQ-STATE-002")
    assert finding["fix"].startswith("rmqctl recover")
    assert run("recover", "-s", store)[0] == 0
    assert "interrupted" not in [row["state"] for row in rows(run("log", "-s", store, "--json")[1])]
    assert json.loads(run("recover", "-s", store, "--dry-run", "--json")[1])["operations"] == []
    assert run("append", "-s", store, "-t", "T", "--body", "x")[0] == 0
