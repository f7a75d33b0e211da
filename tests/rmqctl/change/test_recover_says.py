"""What `rmqctl recover` mends beside the log, asks for, or leaves and names."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import UnreadableError
from rmqctl.main import main
from rmqctl.store.files.reading import Descriptors
from rmqctl.store.store_files import StoreFiles
from tests.goldens import GoldenStore, tree_state
from tests.store.check.breaking import messages, put_field
from tests.store.rocksdb.stores import INDEXED, unpacked

DEFAULT = 6_000_000


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_entries_of_another_time_are_made_anew(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    """A flipped bit in a store time: nobody can tell which is right, but log and index agree again."""
    store = golden_store("clean")
    message = messages(store)[700]
    put_field(store, message.physical_offset, "store_timestamp", message.store_timestamp ^ 1 << 20)
    assert "RMQ-IDX-017" in run(capsys, "check", "-s", store)[1]
    assert run(capsys, "recover", "-s", store)[0] == 0
    code, out, _ = run(capsys, "check", "-s", store)
    assert (code, "RMQ-IDX" in out) == (0, False)
    before = tree_state(store)
    assert "nothing to change" in run(capsys, "recover", "-s", store)[2]
    assert tree_state(store)["index"] == before["index"]


def test_a_queue_offset_that_cannot_be_is_said(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("clean")
    message = messages(store)[700]
    put_field(store, message.physical_offset, "queue_offset", message.queue_offset ^ 1 << 32)
    _, _, err = run(capsys, "recover", "-s", store)
    assert "1 message has a queue offset" in err
    assert "salvage --offsets renumber" in err


def test_a_folder_among_the_files_of_the_log(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("torn-zero")
    (store / "commitlog" / "kept").mkdir()
    code, _, err = run(capsys, "recover", "-s", store)
    assert code == 1
    assert f"{store}/commitlog/kept is a folder" in err
    assert "repair --only RMQ-FILE-009" in err
    assert run(capsys, "repair", "-s", store, "--only", "RMQ-FILE-009", "-y")[0] == 0
    assert run(capsys, "recover", "-s", store)[0] == 0


def test_a_queue_file_that_cannot_be_read(
    golden_store: GoldenStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden_store("clean")
    bad = next(path for path in sorted(store.glob("consumequeue/TopicTest/*/*")) if path.is_file())
    read = Descriptors.read

    def failing(self: Descriptors, path: Path, position: int, length: int) -> bytes:
        if path == bad:
            raise UnreadableError(f"cannot be read: {errno.errorcode[errno.EIO]}", file=path, hint="the disk")
        return read(self, path, position, length)

    monkeypatch.setattr(Descriptors, "read", failing)
    code, _, err = run(capsys, "recover", "-s", store)
    assert code == 3
    assert str(bad) in err
    assert "rmqctl rebuild --queues" in err
    assert run(capsys, "rebuild", "-s", store, "--queues", "-y")[0] == 0
    monkeypatch.undo()
    assert run(capsys, "recover", "-s", store)[0] == 0


MAKING = {"recover": (), "rebuild": (), "repair": (), "truncate": ("--at", "2135612", "-y")}


@pytest.mark.parametrize("verb", MAKING)
@pytest.mark.parametrize("way", ["size", "default", "config"])
def test_without_queues_their_size_is_asked_for(
    golden_store: GoldenStore, capsys: pytest.CaptureFixture[str], tmp_path: Path, way: str, verb: str
) -> None:
    """Commitlog files far from 1 GiB show a broker with sizes of its own: it does not start with queues of others."""
    store = golden_store("clean")
    shutil.rmtree(store / "consumequeue")
    before = tree_state(store)
    code, _, err = run(capsys, verb, "-s", store, *MAKING[verb])
    assert (code, tree_state(store) == before) == (5, True)
    assert "--queue-file-size" in err
    assert "-c" in err
    if way == "config":
        conf = tmp_path / "broker.conf"
        conf.write_text("mappedFileSizeConsumeQueue=2000\n")
        given = ["-c", str(conf)]
    else:
        given = ["--queue-file-size", "default" if way == "default" else "1999"]
    assert run(capsys, verb, "-s", store, *MAKING[verb], *given)[0] == 0
    sizes = {path.stat().st_size for path in store.glob("consumequeue/*/*/*")}
    assert sizes == {DEFAULT if way == "default" else 2000}
    assert run(capsys, "recover", "-s", store)[0] == 0


@pytest.mark.parametrize("verb", MAKING)
def test_a_default_that_is_assumed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """With commitlog files of RocketMQ's own size nothing speaks against its own size of queue files."""
    store = tmp_path / "store"
    assert run(capsys, "append", "-s", store, "--create", "-t", "T", "--body", "x")[0] == 0
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    given = ["--at", "0", "-y"] if verb == "truncate" else []
    code, _, err = run(capsys, verb, "-s", store, "--dry-run", *given)
    assert code == 0
    assert f"{DEFAULT} bytes are assumed" in err
    assert "--queue-file-size" in err
    assert "mappedFileSizeConsumeQueue" in err
    if verb in ("recover", "rebuild"):  # a missing index is nothing that `repair` has to fix
        assert "5000000 slots and 20000000 entries" in err
        assert "maxHashSlotNum" in err
    assert run(capsys, verb, "-s", store, *given)[0] == 0
    if verb == "truncate":
        return
    code, _, err = run(capsys, verb, "-s", store, *given)
    assert (code, "are assumed" in err, "no index file" in err) == (0, False, False)
    with StoreFiles(store) as files:
        assert files.queues.consumequeue_file_size() == DEFAULT


@pytest.mark.parametrize("verb", [verb for verb in MAKING if verb != "repair"])
@pytest.mark.parametrize("way", ["size", "default", "config", "none"])
def test_without_index_its_sizes_are_asked_for(
    golden_store: GoldenStore, capsys: pytest.CaptureFixture[str], tmp_path: Path, way: str, verb: str
) -> None:
    """A broker with other sizes of its own finds nothing in the new files."""
    store = golden_store("clean")
    shutil.rmtree(store / "index")
    before = tree_state(store)
    code, _, err = run(capsys, verb, "-s", store, *MAKING[verb])
    assert (code, tree_state(store) == before) == (5, True)
    assert "--index-size" in err
    assert "-c" in err
    conf = tmp_path / "broker.conf"
    conf.write_text("messageIndexEnable=false\n" if way == "none" else "maxHashSlotNum=500\nmaxIndexNum=2000\n")
    ways = {"size": ["--index-size", "500,2000"], "default": ["--index-size", "default"]}
    given = ways.get(way, ["-c", str(conf)])
    if verb == "rebuild" and way == "none":
        given = ["--queues"]
    assert run(capsys, verb, "-s", store, *MAKING[verb], *given)[0] == 0
    sizes = {path.stat().st_size for path in store.glob("index/*")}
    made = 40 + 4 * 5_000_000 + 20 * 20_000_000 if way == "default" else 42040
    assert sizes == (set() if way == "none" else {made})


@pytest.mark.parametrize("sizes", ["500", "500,", "0,2000", "500,1", "a,b", "500,200000000", "1,2,3"])
def test_sizes_of_index_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], sizes: str) -> None:
    code, _, err = run(capsys, "recover", "-s", tmp_path, "--index-size", sizes)
    assert (code, "--index-size" in err) == (2, True)


def test_keys_in_a_rocksdb_are_no_missing_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = unpacked(INDEXED, tmp_path)
    code, out, _ = run(capsys, "check", "-s", store, "--json")
    assert (code, [json.loads(line)["code"] for line in out.splitlines()]) == (0, ["RMQ-IDX-031"])
    before = tree_state(store)
    code, _, err = run(capsys, "recover", "-s", store)
    assert (code, tree_state(store) == before) == (0, True), err
    code, _, err = run(capsys, "append", "-s", store, "-t", "T", "--body", "x")
    assert (code, "rocksdbstore" in err, "messageIndexEnable=false" in err) == (5, True, True)
    assert run(capsys, "rebuild", "-s", store, "--index")[0] == 5
    assert run(capsys, "rebuild", "-s", store, "--index", "--index-size", "500,2000")[0] == 0
    assert run(capsys, "check", "-s", store)[0] == 0


def test_what_makes_no_queue_asks_for_no_size(golden_store: GoldenStore, capsys: pytest.CaptureFixture[str]) -> None:
    store = golden_store("clean")
    shutil.rmtree(store / "consumequeue")
    for command in (("rebuild", "--index"), ("repair", "--only", "RMQ-CFG-001"), ("repair", "--only", "RMQ-IDX-001")):
        assert run(capsys, command[0], "-s", store, *command[1:], "--dry-run")[0] in (0, 1), command
    # what lies in the log decides what the queues have to hold
    for code in ("RMQ-CQ-001", "RMQ-LOG-005"):
        assert run(capsys, "repair", "-s", store, "--only", code, "--dry-run")[0] == 5, code
