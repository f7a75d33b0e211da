"""Freshly broken stores: what `predict` says against what the real brokers do when they start on them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rmqctl.store.config.config import read_broker_conf
from rmqctl.store.predict import Prediction
from rmqctl.store.predict.prediction import Start
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests import goldens
from tests.goldens import broker_conf, properties
from tests.interop import harness
from tests.interop.harness import NEWEST, Job
from tests.interop.starts import differences, simulated, waits_for_ever
from tests.store.check.breaking import HEAD, flip, messages

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("rocketmq")]

Breaking = Callable[[Path], None]
_LOG = 262144


def _log(store: Path, number: int) -> Path:
    return sorted((store / "commitlog").iterdir())[number]


def _poke(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _flip_in(number: int, position: int) -> Breaking:
    return lambda store: _poke(_log(store, number), position, b"\xa5\x5a\xa5\x5a")


def _abort(then: Breaking) -> Breaking:
    def broken(store: Path) -> None:
        (store / "abort").write_text("1")
        then(store)

    return broken


def _both(*steps: Breaking) -> Breaking:
    def broken(store: Path) -> None:
        for step in steps:
            step(store)

    return broken


def _remove(pattern: str) -> Breaking:
    def broken(store: Path) -> None:
        for path in sorted(store.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return broken


def _drop_units_from(start: int) -> Breaking:
    """As if the queues had not been flushed since: no unit of a message from `start` on."""

    def broken(store: Path) -> None:
        for path in store.glob("consumequeue/*/*/*"):
            data = bytearray(path.read_bytes())
            for at in range(0, len(data), 20):
                if int.from_bytes(data[at : at + 8], "big") >= start:
                    data[at : at + 20] = bytes(20)
            path.write_bytes(data)

    return broken


def _write(name: str, data: bytes) -> Breaking:
    def broken(store: Path) -> None:
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return broken


def _other_position(store: Path) -> None:
    """A frame that claims to stand elsewhere: the broker does not compare."""
    _poke(_log(store, -1), 28, (7).to_bytes(8, "big"))


def _small_blank(store: Path) -> None:
    """A blank frame in the middle of a file: the broker goes on with the next file."""
    _poke(_log(store, -2), 0, (64).to_bytes(4, "big") + bytes.fromhex("CBD43194"))


def _swapped(store: Path) -> None:
    first, second = _log(store, -2), _log(store, -3)
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])


def _body(store: Path) -> None:
    """One bit of a body of the last file: nothing but its checksum tells."""
    last = [one for one in messages(store) if one.physical_offset >= 8 * _LOG and len(one.body) > 50]
    flip(store, last[5], HEAD.size + 20)


def _nothing(store: Path) -> None:
    """As it is."""


def _large_blank(store: Path) -> None:
    """A blank frame that does not fit into its file: 4.9.8 goes by the magic alone."""
    path = _log(store, 2)
    at = path.read_bytes().rindex(bytes.fromhex("CBD43194")) - 4
    _poke(path, at, b"\x40")


def _large_frame(store: Path) -> None:
    """A message of the last file that claims to be 1 MiB larger than it is, and than all that follows."""
    last = [one for one in messages(store) if one.physical_offset >= 8 * _LOG]
    _poke(_log(store, -1), last[3].physical_offset - 8 * _LOG, b"\x00\x10")


def _gap_before_an_empty_file(store: Path) -> None:
    """The last file is full, the next one missing, and one of zeros follows it."""
    path = _log(store, -1)
    end = messages(store)[-1].end - int(path.name)
    _poke(path, end, (_LOG - end).to_bytes(4, "big") + bytes.fromhex("CBD43194"))
    (path.parent / f"{int(path.name) + 2 * _LOG:020d}").write_bytes(bytes(_LOG))


CASES: dict[str, Breaking] = {
    "untouched": _nothing,
    "abort only": _abort(_nothing),
    "flip in the last file": _flip_in(-1, 5000),
    "flip in the last file, abort": _abort(_flip_in(-1, 5000)),
    "flip two files back": _flip_in(-3, 100_000),
    "flip two files back, abort": _abort(_flip_in(-3, 100_000)),
    "flip in the first file, abort": _abort(_flip_in(0, 1000)),
    "flip in the first file, no checkpoint": _abort(_both(_flip_in(0, 1000), _remove("checkpoint"))),
    "body in the last file": _body,
    "body in the last file, abort": _abort(_body),
    "queues behind": _drop_units_from(_LOG * 8 + 9000),
    "queues behind, abort": _abort(_drop_units_from(_LOG * 8 + 9000)),
    "queues far behind": _drop_units_from(_LOG * 3 + 70_001),
    "queues far behind, flip": _both(_drop_units_from(_LOG * 3 + 70_001), _flip_in(-2, 50_000)),
    "one topic lost": _remove("consumequeue/OrderTopic"),
    "first queue files lost": _remove("consumequeue/*/*/" + "0" * 20),
    "queue file of zeros": _write("consumequeue/New/0/" + "0" * 20, bytes(2000)),
    "queue file empty": _write("consumequeue/New/0/" + "0" * 20, b""),
    "queue file without number": _write("consumequeue/New/0/notes", bytes(2000)),
    "queue of another name": _write("consumequeue/New/x/" + "0" * 20, bytes(100)),
    "units of garbage": _write("consumequeue/New/0/" + "0" * 20, bytes(range(250)) * 8),
    "log file without number": _write("commitlog/copy", bytes(_LOG)),
    "log file with a short name": _write("commitlog/3000000", bytes(_LOG)),
    "folder in the log": lambda store: (store / "commitlog" / "kept").mkdir(),
    "last log file lost": lambda store: _log(store, -1).unlink(),
    "last log file lost, abort": _abort(lambda store: _log(store, -1).unlink()),
    "middle log file lost": lambda store: _log(store, -2).unlink(),
    "middle log file lost, abort": _abort(lambda store: _log(store, 6).unlink()),
    "first log files lost, abort": _abort(
        _both(lambda store: _log(store, 0).unlink(), lambda store: _log(store, 0).unlink())
    ),
    "frame of another place": _other_position,
    "frame of another place, abort": _abort(_other_position),
    "blank frame inside": _small_blank,
    "blank frame inside, abort": _abort(_small_blank),
    "blank frame too large": _large_blank,
    "blank frame too large, abort": _abort(_both(_large_blank, _remove("checkpoint"))),
    "frame too large, queues behind": _both(_large_frame, _drop_units_from(_LOG * 8 + 100)),
    "frame too large, abort": _abort(_large_frame),
    "files swapped": _swapped,
    "files swapped, abort": _abort(_swapped),
    "no index": _remove("index"),
    "no index, abort": _abort(_remove("index")),
    "folder among the index": lambda store: (store / "index" / "20250101000000000").mkdir(),
    "log zeroed at a frame": lambda store: _poke(_log(store, -1), 0, bytes(_LOG)),
    "log zeroed at a frame, abort": _abort(lambda store: _poke(_log(store, -1), 0, bytes(_LOG))),
    "checkpoint of zeros, abort": _abort(_write("checkpoint", bytes(4096))),
    "checkpoint far ahead, abort": _abort(_write("checkpoint", (1 << 44).to_bytes(8, "big") * 3 + bytes(4072))),
    "checkpoint ahead of the index, abort": _abort(
        _write("checkpoint", (1 << 44).to_bytes(8, "big") * 2 + bytes(4080))
    ),
    "everything lost but the log": _both(_remove("consumequeue"), _remove("index"), _remove("checkpoint")),
}


def test_a_broker_that_waits_for_its_dispatch_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4.9.8 alone: its dispatch finds nothing in a gap, and its start waits for it."""
    name, version = "v4-clean", "4.9.8"
    store = goldens.golden(name, tmp_path)
    _abort(_both(_gap_before_an_empty_file, _remove("checkpoint")))(store)
    _, found = _predicted(store, tmp_path, name, version)
    assert not found.loads
    assert waits_for_ever(found)
    shutil.copytree(store, tmp_path / "mended")
    with monkeypatch.context() as shorter:
        shorter.setattr(harness, "START_SECONDS", 30)
        shorter.setattr(harness, "STORE_SECONDS", 0)
        with pytest.raises(harness.HarnessError, match="did not end within"):
            harness.open_store(version, store, properties(name))
    with StoreFiles(tmp_path / "mended", read_broker_conf(broker_conf(name, tmp_path))) as files:
        recover(files)
    assert harness.open_store(version, tmp_path / "mended", properties(name)).load_ok


SETTINGS: tuple[dict[str, str], ...] = ({"messageIndexSafe": "true"}, {"checkCRCOnRecover": "false"})
OF_5_5: tuple[dict[str, str], ...] = (
    *SETTINGS,
    {"commitLogRecoverMaxNum": "2"},
    {"enableAcceleratedRecovery": "true"},
    {"checkCommitLogOffsetOnRecover": "true"},
    {"indexRocksDBEnable": "true"},
    {"indexRocksDBEnable": "true", "commitLogRecoverMaxNum": "3"},
)
CONFIGURED = (
    "abort only",
    "body in the last file",
    "body in the last file, abort",
    "flip two files back, abort",
    "no index, abort",
    "checkpoint far ahead, abort",
    "checkpoint ahead of the index, abort",
    "queues far behind",
    "frame of another place, abort",
    "files swapped, abort",
)
"""Cases that come out otherwise with one of these settings, or might."""


def _predicted(
    store: Path, folder: Path, name: str, version: str, settings: Mapping[str, str] | None = None
) -> tuple[Start, Prediction]:
    conf = broker_conf(name, folder)
    with conf.open("a") as file:
        file.writelines(f"{key}={value}\n" for key, value in (settings or {}).items())
    return simulated(store, read_broker_conf(conf), version)


def _with_sixth_long(store: Path) -> None:
    """As 5.5.0 leaves the checkpoint: with the last message that has a unit."""
    _poke(store / "checkpoint", 40, messages(store)[-1].physical_offset.to_bytes(8, "big"))


LINES = (("5.3.3", _nothing), ("4.9.8", _nothing), (NEWEST, _nothing), (NEWEST, _with_sixth_long))
"""Versions that start, and what is done to the store before it is broken."""


def _store_for(version: str) -> str:
    return "v4-clean" if version == "4.9.8" else "clean"


@pytest.mark.parametrize(("version", "before"), LINES)
def test_freshly_broken_stores(version: str, before: Breaking, tmp_path: Path) -> None:
    name = _store_for(version)
    predictions, jobs = [], []
    for number, breaking in enumerate(CASES.values()):
        folder = tmp_path / str(number)
        store = goldens.golden(name, folder)
        before(store)
        breaking(store)
        predictions.append(_predicted(store, folder, name, version))
        jobs.append(Job(store, properties(name)))
    wrong = {}
    views = harness.open_many(version, jobs)
    for case, (start, found), view in zip(CASES, predictions, views, strict=True):
        if found_wrong := differences(start, found, view):
            wrong[case] = found_wrong
    assert wrong == {}


@pytest.mark.parametrize(("version", "before"), LINES)
def test_settings_that_alter_a_start(version: str, before: Breaking, tmp_path: Path) -> None:
    name = _store_for(version)
    predictions, jobs = [], []
    chosen = OF_5_5 if version == NEWEST else SETTINGS
    for number, (case, settings) in enumerate((case, settings) for case in CONFIGURED for settings in chosen):
        folder = tmp_path / str(number)
        store = goldens.golden(name, folder)
        before(store)
        CASES[case](store)
        predictions.append((case, settings, *_predicted(store, folder, name, version, settings)))
        told = {f"store.{key}": value for key, value in settings.items()}
        jobs.append(Job(store, {**properties(name), **told}))
    views = harness.open_many(version, jobs)
    wrong = {
        (case, *settings): found_wrong
        for (case, settings, start, found), view in zip(predictions, views, strict=True)
        if (found_wrong := differences(start, found, view))
    }
    assert wrong == {}
    if version == NEWEST:
        assert len({(found.start_offset, found.error) for *_, found in predictions}) > 3
        return
    starts = {(case, *settings): found.start_offset or 0 for case, settings, _, found in predictions}
    ahead = "checkpoint ahead of the index, abort"
    assert starts[ahead, "messageIndexSafe"] < starts[ahead, "checkCRCOnRecover"]
    ends = {(case, *settings): found.end_offset or 0 for case, settings, _, found in predictions}
    body = "body in the last file"
    assert ends[body, "messageIndexSafe"] < ends[body, "checkCRCOnRecover"]


def test_duplication_cuts_the_log_where_recovery_begins(tmp_path: Path) -> None:
    predictions, jobs = [], []
    for case in ("abort only", "no breaking"):
        folder = tmp_path / case.replace(" ", "-")
        store = goldens.golden("clean", folder)
        CASES.get(case, _nothing)(store)
        predictions.append(_predicted(store, folder, "clean", "5.3.3", {"duplicationEnable": "true"}))
        jobs.append(Job(store, {**properties("clean"), "store.duplicationEnable": "true"}))
    views = harness.open_many("5.3.3", jobs)
    for (start, found), view in zip(predictions, views, strict=True):
        assert differences(start, found, view) == []
        assert found.messages_lost > 0
        assert found.end_offset == found.start_offset


@pytest.mark.parametrize("version", ["5.3.3", NEWEST])
def test_batch_queues_whose_messages_were_cleaned_away(version: str, tmp_path: Path) -> None:
    store = goldens.golden("innerbatch", tmp_path)
    (store / "commitlog" / f"{_LOG:020d}").write_bytes(bytes(_LOG))
    _log(store, 0).unlink()
    start, found = _predicted(store, tmp_path, "innerbatch", version)
    view = harness.open_store(version, store, properties("innerbatch"))
    assert differences(start, found, view) == []


def test_an_index_in_rocksdb_decides_where_recovery_begins(tmp_path: Path) -> None:
    indexed = {"store.indexRocksDBEnable": "true"}
    filled = goldens.golden("clean", tmp_path)
    # removing the queues has the log dispatched, which fills the index
    _both(_remove("consumequeue"), _with_sixth_long)(filled)
    half = messages(filled)[-1].physical_offset // 2
    assert harness.open_store(NEWEST, filled, properties("clean") | indexed).load_ok
    predictions, jobs = [], []
    for number, case in enumerate(("abort only", "queues far behind", "untouched", "last log file lost, abort")):
        for settings in ({}, {"enableAcceleratedRecovery": "true"}):
            folder = tmp_path / f"{number}{len(settings)}"
            store = folder / "clean"
            shutil.copytree(filled, store)
            CASES[case](store)
            given = {"indexRocksDBEnable": "true", **settings}
            predictions.append((case, *_predicted(store, folder, "clean", NEWEST, given)))
            jobs.append(Job(store, properties("clean") | {f"store.{key}": value for key, value in given.items()}))
    views = harness.open_many(NEWEST, jobs)
    assert {
        case: wrong
        for (case, start, found), view in zip(predictions, views, strict=True)
        if (wrong := differences(start, found, view))
    } == {}
    assert {case: (found.start_offset or 0) > half for case, _, found in predictions}["abort only"]
