"""What the benchmarks stand on: the stores they write are what RocketMQ would have written, and medians are medians."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import child, measure, stores
from rmqctl.formats.message import StoredMessage
from rmqctl.store.log.walk import Blank, Empty, walk
from rmqctl.store.store_files import StoreFiles
from tests.quick import sample


@pytest.mark.parametrize("kind", stores.BODIES)
def test_a_generated_store_is_sound(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FILE_SIZE", 1 << 20)
    written = stores.write_store(tmp_path, kind, 2_500_000)
    with StoreFiles(written.path) as files:
        records = list(walk(files.log))
    messages = [record for record in records if isinstance(record, StoredMessage)]
    others = [type(record) for record in records if not isinstance(record, StoredMessage)]
    assert others == [Blank, Blank, Empty]
    assert len(messages) == written.messages
    assert sum(message.total_size for message in messages) == written.bytes >= 2_500_000
    offsets: dict[int, int] = {}
    for number, message in enumerate(messages):
        expected = {"KEYS": stores.key(number), "TAGS": "TagA", "UNIQ_KEY": stores.unique_key(number)}
        assert message.properties() == expected
        assert message.queue_id == number % stores.QUEUES
        assert message.queue_offset == offsets.setdefault(message.queue_id, 0)
        offsets[message.queue_id] += 1


@pytest.mark.thorough
def test_reset_leaves_the_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FILE_SIZE", 1 << 20)
    written = stores.write_store(tmp_path, "small", 100_000)
    log = written.path / "commitlog"
    before = {file.name: file.read_bytes() for file in log.iterdir()}
    assert child.run("rebuild", written.path).messages == written.messages
    assert (written.path / "index").is_dir()
    (log / f"{1 << 20:020d}").touch()
    written.reset(crashed=True)
    assert {file.name: file.read_bytes() for file in log.iterdir()} == before
    assert sorted(entry.name for entry in written.path.iterdir()) == ["abort", "commitlog"]
    assert child.run("recover", written.path).messages == written.messages
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "small"] == ["small.rmqctl"]
    written.reset()
    assert [entry.name for entry in tmp_path.iterdir()] == ["small"]


@pytest.mark.parametrize("work", sample(["check", "scan"], ["scan"]))
def test_reading_work_in_a_child(work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FILE_SIZE", 1 << 20)
    written = stores.write_store(tmp_path, "large", 100_000)
    outcome = child.run(work, written.path)
    assert outcome.messages == written.messages
    assert outcome.seconds > 0
    assert outcome.anonymous > 0
    assert outcome.resident > 0


@pytest.mark.parametrize("work", sample(["put", "put_many"], ["put_many"]))
def test_writing_work_in_a_child(work: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    outcome = child.run(work, store, 3000, 100)
    assert outcome.drained >= outcome.seconds > 0
    with StoreFiles(store) as files:
        assert sum(queue.max_offset for queue in files.queues.all()) >= 3000


def test_a_failing_child_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"there is no such directory"):
        child.run("check", tmp_path / "absent")


def test_in_turns_alternates_and_takes_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    order = ""
    values = iter([3.0, 1.0, 2.0])

    def ours() -> float:
        nonlocal order
        order += "A"
        return next(values)

    def other() -> float:
        nonlocal order
        order += "B"
        return 4.0

    assert measure.in_turns(ours, other) == (2.0, 4.0, 3)
    assert order == "ABABAB"
    monkeypatch.setattr(measure, "PATIENCE", -1.0)
    assert measure.in_turns(lambda: 5.0, None) == (5.0, None, 1)


def test_ratios_say_how_much_better_ours_is(capsys: pytest.CaptureFixture[str]) -> None:
    pair = measure.Pair(2.0, 4.0, 3)
    assert measure.times("t", pair, "x", 5, 10).ratio == 2.0
    assert measure.rates("r", pair, "GB/s", "x", 5, 10).ratio == 0.5
    measure.tell(measure.rates("r", measure.Pair(1 / 3, None, 3), "GB/s", "x", None, None))
    row = json.loads(capsys.readouterr().out)
    assert {name: row[name] for name in ("bench", "ours", "other", "ratio", "unit", "n")} == {
        "bench": "r", "ours": 0.3333, "other": None, "ratio": None, "unit": "GB/s", "n": 3,
    }  # fmt: skip
    assert "| t | 2 | 4 | s | 2 | 5 | 10 | 3 | x |" in measure.table([measure.times("t", pair, "x", 5, 10)])
