"""Config files of a real broker, read and written by its rules for backups."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import parse_config_json
from rmqctl.formats.errors import CorruptError, UnreadableError, WriteFailedError
from rmqctl.store.config.config_files import (
    GOOD,
    UNREADABLE,
    backup_of,
    load_config,
    look_at,
    parse_config_file,
    read_config,
    write_config,
)
from rmqctl.store.files import io
from rmqctl.store.message_store import MessageStore
from tests.goldens import GoldenStore, tree_state


@pytest.fixture
def config(golden_store: GoldenStore) -> Path:
    return golden_store("broker-real") / "config"


def json_files(config: Path) -> list[Path]:
    return [path for path in sorted(config.glob("*.json")) if path.read_bytes().strip()]


def test_every_config_file_of_the_broker_comes_back_byte_for_byte(config: Path) -> None:
    files = json_files(config)
    assert len(files) >= 4
    for path in files:
        before = path.read_bytes()
        write_config(path, read_config(path))
        assert path.read_bytes() == before, path.name
        assert backup_of(path).read_bytes() == before


def test_bare_integer_keys_are_integers(config: Path) -> None:
    levels = read_config(config / "delayOffset.json")["offsetTable"]
    assert levels == {1: 71, 14: 0}


def test_the_file_itself_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{1:2}")
    backup_of(path).write_text("{1:1}")
    loaded = load_config(path)
    assert loaded is not None
    assert (loaded.content, loaded.source) == ({1: 2}, path)


@pytest.mark.parametrize("state", ["missing", "empty", "blank", "damaged", "cut"])
def test_its_backup_stands_in_for_a_file_that_is_no_use(tmp_path: Path, state: str) -> None:
    path = tmp_path / "a.json"
    content = {"empty": b"", "blank": b"\n", "damaged": b"{]", "cut": b'{"a":{1:'}
    if state in content:
        path.write_bytes(content[state])
    backup_of(path).write_text('{"a":1}')
    loaded = load_config(path)
    assert loaded is not None
    assert (loaded.content, loaded.source) == ({"a": 1}, backup_of(path))


def test_neither_file_nor_backup_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert load_config(path) is None
    path.write_bytes(b"")
    backup_of(path).write_bytes(b"")
    assert load_config(path) is None
    assert read_config(path) is None


def test_a_bad_backup_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    backup_of(path).write_text("{")
    with pytest.raises(CorruptError) as caught:
        load_config(path)
    assert caught.value.file == str(backup_of(path))


def test_a_damaged_file_without_backup_is_damage_not_absence(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{")
    with pytest.raises(CorruptError) as caught:
        load_config(path)
    assert caught.value.file == str(path)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.mkdir()
    backup_of(path).write_text("{}")
    with pytest.raises(UnreadableError):
        load_config(path)


def test_reading_changes_nothing(config: Path) -> None:
    before = tree_state(config)
    for path in sorted(config.iterdir()):
        if path.suffix == ".json":
            read_config(path)
    assert tree_state(config) == before


def test_writing_keeps_the_last_content_as_backup(tmp_path: Path) -> None:
    path = tmp_path / "config" / "a.json"
    write_config(path, {"offsetTable": {"T@G": {0: 1}}})
    assert not backup_of(path).exists()
    first = path.read_bytes()
    assert parse_config_json(first.decode()) == {"offsetTable": {"T@G": {0: 1}}}
    write_config(path, {})
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (b"{}", first)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["a.json", "a.json.bak"]


@pytest.mark.parametrize("useless", [b"", b"{", b"\xff"])
def test_a_useless_file_does_not_replace_a_good_backup(tmp_path: Path, useless: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(useless)
    backup_of(path).write_text('{"good":1}')
    write_config(path, {"new": 2})
    assert backup_of(path).read_text() == '{"good":1}'
    assert read_config(path) == {"new": 2}


@pytest.mark.parametrize("failing", [1, 2])
def test_a_write_that_fails_leaves_the_old_file(config: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    path = config / "topics.json"
    before = path.read_bytes()
    seen: list[str] = []

    def fail(operation: str, *_: object) -> None:
        seen.append(operation)
        if operation == "write" and seen.count("write") == failing:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(io, "observer", fail)
    with pytest.raises(WriteFailedError):
        write_config(path, {})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert read_config(path) == parse_config_json(before.decode())
    assert not [entry for entry in config.iterdir() if entry.name.startswith(".")]


def test_the_broker_writes_what_it_kept_in_the_same_form(config: Path, tmp_path: Path) -> None:
    for path in sorted(config.glob("*.bak")):
        data = path.read_bytes()
        if data.strip() and path.name.endswith(".json.bak"):
            target = tmp_path / path.name.removesuffix(".bak")
            shutil.copy(path, backup_of(target))
            write_config(target, read_config(target))
            assert target.read_bytes() == data, path.name


def test_what_is_too_large_to_be_read_is_not_called_damaged(golden_store: GoldenStore, monkeypatch: Any) -> None:
    store = golden_store("broker-real")
    path = store / "config" / "subscriptionGroup.json"
    size = path.stat().st_size
    for module in ("formats.config_json", "store.config.config_files", "store.config.config_text"):
        monkeypatch.setattr(f"rmqctl.{module}.MAXIMUM_SIZE", size)
    assert look_at(path).state == GOOD
    path.write_bytes(path.read_bytes() + b" ")
    assert look_at(path).state == UNREADABLE
    with pytest.raises(UnreadableError, match="all that rmqctl reads"):
        parse_config_file(path)
    with MessageStore.open(store, "r") as opened:
        found = {one.code for one in opened.check() if one.file == path}
        assert found == {"RMQ-FILE-006"}  # which the backup is no remedy for
