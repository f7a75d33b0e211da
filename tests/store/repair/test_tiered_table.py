"""The lost table of tiered storage is written as RocketMQ 5.5.0 had it; what a broker would not take is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.config_json import format_config_json
from rmqctl.output import outcome as exit_codes
from rmqctl.store.config.config_files import read_config
from rmqctl.store.config.tiered_table import TABLE
from rmqctl.store.repair.tiered_table import REFUSAL
from tests.goldens import log_golden, tree_state
from tests.rmqctl.looking import run

_LOST = ("--only", "RMQ-TIER-006")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return log_golden("v55-tiered", tmp_path).store


def _lose_table(store: Path) -> None:
    for path in (store / "config").glob(f"{TABLE}*"):
        path.unlink()


def _without_times(content: Any) -> Any:
    """What the files do not say: when a broker made its entries."""
    if not isinstance(content, dict):
        return content
    left = {key: _without_times(value) for key, value in content.items()}
    return {key: value for key, value in left.items() if key not in ("createTimestamp", "updateTimestamp")}


@pytest.mark.parametrize("name", ["v55-tiered", "v55-tiered-crash"])
@pytest.mark.parametrize("left", [None, b"", b"{{"])
def test_a_lost_table_is_written_as_it_was(tmp_path: Path, name: str, left: bytes | None) -> None:
    store = log_golden(name, tmp_path).store
    (store / "abort").unlink(missing_ok=True)
    wanted = read_config(store / "config" / TABLE)
    _lose_table(store)
    if left is not None:
        (store / "config" / TABLE).write_bytes(left)
    before = tree_state(store)
    done = run("repair", "-s", store, *_LOST, "--json")
    assert (done.code, done.objects[0]["mended"]) == (exit_codes.OK, {"RMQ-TIER-006": 1})
    assert _without_times(read_config(store / "config" / TABLE)) == _without_times(wanted)
    assert not [row for row in run("check", "-s", store, "--json").objects if "-TIER-" in row.get("code", "")]
    assert run("undo", "-s", store, "--yes").code == exit_codes.OK
    assert tree_state(store) == before


def test_it_is_a_decision(store: Path) -> None:
    _lose_table(store)
    done = run("repair", "-s", store, "--json")
    assert (done.code, done.objects[0]["operations"]) == (exit_codes.DAMAGE_OR_NOTHING, [])
    assert [one["fix"] for one in done.objects[0]["left"]] == ["rmqctl repair --only RMQ-TIER-006"]
    assert not (store / "config" / TABLE).exists()


def _segment(store: Path, kind: str, base: int = 0) -> Path:
    (path,) = store.glob(f"tiered/*/golden/%DLQ%GroupA/0/{kind}/*{base:020d}")
    return path


def _cut(kind: str, base: int, size: int) -> Callable[[Path], None]:
    def cut(store: Path) -> None:
        path = _segment(store, kind, base)
        path.write_bytes(path.read_bytes()[:-size])

    return cut


def _another_broker(store: Path) -> None:
    shutil.copytree(next(store.glob("tiered/*/golden")), next(store.glob("tiered/*")) / "other")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_cut("COMMIT_LOG", 0, 1), "it ends at 65334, and the next one begins at 65335"),
        (_cut("COMMIT_LOG", 65335, 1), "message 20 is damaged or missing"),
        (_cut("CONSUME_QUEUE", 0, 7), "it ends within a unit"),
        (_another_broker, "several brokers"),
    ],
)
def test_segments_that_do_not_fit_are_refused(store: Path, change: Callable[[Path], None], text: str) -> None:
    change(store)
    _lose_table(store)
    before = tree_state(store)
    done = run("repair", "-s", store, *_LOST)
    assert (done.code, text in done.err) == (exit_codes.REFUSED, True)
    assert tree_state(store) == before


@pytest.mark.parametrize("table", ["queueMetadataTable", "topicMetadataTable"])
def test_a_queue_gets_its_entry(store: Path, table: str) -> None:
    path = store / "config" / TABLE
    wanted = read_config(path)
    content = read_config(path)
    del content[table]["a"]
    content["queueMetadataTable"]["TopicTest"][2].update(minOffset=0, maxOffset=99)
    path.write_text(format_config_json(content))
    done = run("repair", "-s", store, "--only", "RMQ-TIER-008", "--json")
    assert (done.code, done.objects[0]["mended"]) == (exit_codes.OK, {"RMQ-TIER-008": 2})
    assert _without_times(read_config(path)) == _without_times(wanted)


def test_what_is_never_written_is_explained(store: Path) -> None:
    path = _segment(store, "COMMIT_LOG")
    data = bytearray(path.read_bytes())
    data[90] ^= 0xFF
    path.write_bytes(data)
    before = tree_state(store)
    done = run("repair", "-s", store, "--json")
    assert (done.code, done.objects[0]["notes"]) == (exit_codes.DAMAGE_OR_NOTHING, [REFUSAL])
    assert REFUSAL in run("repair", "-s", store, "--dry-run").err
    assert tree_state(store) == before
