"""Which stores may be appended to; a refused one is left as it was, byte for byte."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rmqctl.formats.errors import NotAStoreError, RefusedError, StoreInUseError, UnsupportedError
from rmqctl.store.config.config import StoreConfig, read_broker_conf
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from tests.goldens import GOLDENS, GoldenStore, broker_conf, is_broken, is_crashed, tree_state
from tests.quick import goldens_of
from tests.store.write.writing import SMALL, golden_config, lines_of, message, run_python, small, stored_messages

# damage that only a check of the whole log sees
_OLD_DAMAGE = ("crc-flip-old", "v4-crc-flip-old")
# the oldest files are gone as after their expiry: nothing is wrong with what is left
_EXPIRED = ("first-gone",)
_ROCKSDB = ("rocksdb",)
# damage beside log and queues that appending would make worse
_REFUSED = [name for name in GOLDENS if is_crashed(name) or (is_broken(name) and name not in (*_OLD_DAMAGE, *_EXPIRED))]
_FIT = [name for name in GOLDENS if name not in (*_REFUSED, *_ROCKSDB)]


def configured(name: str, store: Path) -> StoreConfig:
    return read_broker_conf(broker_conf(name, store.parent))


@pytest.mark.parametrize("name", goldens_of(_REFUSED))
def test_broken_stores_are_refused_and_left_alone(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    (store / "lock").unlink(missing_ok=True)
    before = tree_state(store)
    with pytest.raises(RefusedError) as caught:
        MessageStore.open(store, "rw", configured(name, store))
    assert f"rmqctl recover -s {store}" in (caught.value.hint or "")
    after = tree_state(store)
    del before["."], after["."]  # the broker.conf beside it is not below it, but its folder's time is
    assert after == before


@pytest.mark.parametrize("name", goldens_of(_FIT))
def test_fit_stores_take_messages_and_read_back(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    config = configured(name, store)
    before = stored_messages(store, config)
    with MessageStore.open(store, "rw", config) as opened:
        results = [
            opened.put(message(topic=topic, properties={"KEYS": "appended"}))
            for topic in ("TopicTest", "BrandNew", "TopicTest")
        ]
        opened.wait_for_dispatch()
        if config.message_index_enable:
            assert len(opened.query("TopicTest", "appended").messages) == 2
    assert {result.status for result in results} == {PutStatus.PUT_OK}
    after = stored_messages(store, config)
    assert after[: len(before)] == before
    assert [found.physical_offset for found in after[len(before) :]] == [result.physical_offset for result in results]
    assert not (store / "abort").exists()
    sizes = {path.stat().st_size for path in (store / "consumequeue" / "BrandNew").rglob("0*") if path.is_file()}
    assert sizes == {2000}
    with MessageStore.open(store, "rw", config):
        pass  # the checks hold after our own writing


def test_rocksdb_queues_are_named(golden_store: GoldenStore) -> None:
    store = golden_store("rocksdb")
    before = tree_state(store)
    with pytest.raises(UnsupportedError, match="RocksDB"):
        MessageStore.open(store, "rw")
    assert tree_state(store) == before


@pytest.mark.parametrize("name", _OLD_DAMAGE)
def test_old_damage_is_seen_by_a_full_check_only(name: str, golden_store: GoldenStore) -> None:
    store = golden_store(name)
    with pytest.raises(RefusedError, match="CRC"):
        MessageStore.open(store, "rw", full_check=True)
    MessageStore.open(store, "rw").close()


def test_queue_offsets_go_on_where_the_messages_are_gone(golden_store: GoldenStore) -> None:
    store = golden_store("first-gone")
    with MessageStore.open(store, "rw") as opened:
        result = opened.put(message(topic="BigQueues", queue_id=7))
        assert result.queue_offset == 2
        opened.wait_for_dispatch()
        assert len(opened.get("BigQueues", 7, 2).messages) == 1


def test_a_store_opened_and_closed_is_as_before(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    before = tree_state(store)
    MessageStore.open(store, "rw").close()
    after = tree_state(store)
    assert [path for path in before if before[path] != after.get(path)] == ["."]
    assert before.keys() == after.keys()


# ---- damage that no golden has


def write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def new_store(folder: Path, count: int = 3) -> Path:
    with MessageStore.open(folder / "s", "rw", SMALL, create=True) as store:
        for number in range(count):
            store.put(message(100 + number, properties={"KEYS": "k"}))
    return folder / "s"


def refused(store: Path) -> str:
    before = tree_state(store)
    with pytest.raises(RefusedError) as caught:
        MessageStore.open(store, "rw", SMALL)
    assert tree_state(store) == before
    return str(caught.value)


def test_units_that_point_elsewhere(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    queue = store / "consumequeue" / "TopicA" / "0" / f"{0:020}"
    write(queue, 20 + 8, (9999).to_bytes(4, "big"))
    assert "lacks this message in slot 1" in refused(store)


def test_a_queue_that_ends_too_far_on(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    queue = store / "consumequeue" / "TopicA" / "0" / f"{0:020}"
    write(queue, 60, bytes(7) + b"\1" + (5).to_bytes(4, "big"))
    assert "ends at 4, its messages at 3" in refused(store)


def test_queue_files_of_zeros(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    (store / "consumequeue" / "TopicA" / "0" / f"{2000:020}").write_bytes(bytes(2000))
    assert "ends with a file of zeros" in refused(store)
    (store / "consumequeue" / "TopicA" / "0" / f"{2000:020}").unlink()
    (store / "consumequeue" / "Ghost" / "0").mkdir(parents=True)
    MessageStore.open(store, "rw", SMALL).close()  # a directory without files is an empty queue
    (store / "consumequeue" / "Ghost" / "0" / f"{0:020}").write_bytes(bytes(2000))
    assert "has only zeros" in refused(store)


def test_a_file_of_zeros_right_behind_a_full_one(tmp_path: Path) -> None:
    store = new_store(tmp_path, 100)
    (store / "consumequeue" / "TopicA" / "0" / f"{2000:020}").write_bytes(bytes(2000))
    assert "ends with a file of zeros" in refused(store)


def test_a_refusal_names_the_part_that_is_wrong(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    queue = store / "consumequeue" / "TopicA" / "0"
    (queue / f"{2000:020}").write_bytes(bytes(2000))
    with pytest.raises(RefusedError) as caught:
        MessageStore.open(store, "rw", SMALL)
    assert (caught.value.file, caught.value.physical_offset) == (str(queue), None)
    (queue / f"{2000:020}").unlink()
    write(queue / f"{0:020}", 20 + 8, (9999).to_bytes(4, "big"))
    with pytest.raises(RefusedError) as caught:
        MessageStore.open(store, "rw", SMALL)
    second = stored_messages(store, SMALL)[1].physical_offset
    assert (caught.value.file, caught.value.physical_offset) == (str(store), second)
    assert caught.value.hint == f"run `rmqctl recover -s {store}` first"
    (store / "abort").write_text("1")
    with pytest.raises(RefusedError) as caught:
        MessageStore.open(store, "rw", SMALL)
    assert caught.value.file == str(store / "abort")


def test_a_queue_of_messages_that_the_log_never_had(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    ghost = store / "consumequeue" / "Ghost" / "0"
    ghost.mkdir(parents=True)
    (ghost / f"{0:020}").write_bytes((50).to_bytes(8, "big") + (120).to_bytes(4, "big") + bytes(1988))
    assert "points at no message" in refused(store)


def test_queues_whose_messages_have_expired_before_a_log_without_messages(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    (store / "commitlog" / f"{0:020}").rename(tmp_path / "expired")
    (store / "commitlog" / f"{65536:020}").write_bytes(bytes(65536))
    (store / "checkpoint").unlink()
    shutil.rmtree(store / "index")
    with MessageStore.open(store, "rw", SMALL) as opened:
        result = opened.put(message())
    assert (result.physical_offset, result.queue_offset) == (65536, 3)


def test_an_index_that_lags(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with MessageStore.open(store, "rw", small(message_index_enable=False)) as opened:
        opened.put(message(properties={"KEYS": "k"}))
    assert "index does not hold" in refused(store)
    MessageStore.open(store, "rw", small(message_index_enable=False)).close()


def test_zeros_before_the_end(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    # the second file begins although the first was never closed by a blank frame
    (store / "commitlog" / f"{65536:020}").write_bytes((store / "commitlog" / f"{0:020}").read_bytes())
    assert "the log is damaged" in refused(store)
    (store / "commitlog" / f"{65536:020}").write_bytes(bytes(65536))
    assert "a file of zeros" in refused(store)


def test_a_wrong_file_size_in_the_configuration(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with pytest.raises(RefusedError, match="65536 bytes instead of 131072"):
        MessageStore.open(store, "rw", small(mapped_file_size_commit_log=131072))


# ---- locks


def test_a_second_writer_is_shut_out(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with MessageStore.open(store, "rw", SMALL) as first:
        with pytest.raises(StoreInUseError):
            MessageStore.open(store, "rw", SMALL)
        # looking for the holder must not drop the lock
        assert first.files.lock_holder() == os.getpid()
        program = run_python(
            """
            import sys
            from rmqctl.formats.errors import StoreInUseError
            from rmqctl.store.message_store import MessageStore
            try:
                MessageStore.open(sys.argv[1], "rw")
            except StoreInUseError as error:
                print(error.message)
            """,
            store,
        )
        assert "has this file open" in next(lines_of(program))
        program.communicate()
        assert program.returncode == 0
        first.put(message())
    MessageStore.open(store, "rw", SMALL).close()


def test_who_only_reads_is_waited_for_and_is_no_broker(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    for mode, told in (("rb", "only reads: wait until it ends"), ("r+b", "stop the broker first")):
        script = f"import sys, time; f = open(sys.argv[1] + '/commitlog/' + '0' * 20, {mode!r})"
        program = run_python(script + "\nprint('ready', flush=True)\ntime.sleep(60)", store)
        try:
            assert next(lines_of(program)) == "ready"
            with pytest.raises(StoreInUseError) as refused:
                MessageStore.open(store, "rw", SMALL)
            assert told in str(refused.value.hint)
        finally:
            program.kill()
            program.communicate()


def test_another_process_s_lock_and_open_files(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    for script in (
        "import fcntl, sys; f = open(sys.argv[1] + '/lock', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)",
        "import os, sys; f = open(sys.argv[1] + '/commitlog/' + '0' * 20)",
        "import mmap, sys; f = open(sys.argv[1] + '/commitlog/' + '0' * 20, 'r+b'); "
        "m = mmap.mmap(f.fileno(), 0); f.close()",
    ):
        program = run_python(script + "\nprint('ready', flush=True)\nimport time\ntime.sleep(60)", store)
        try:
            assert next(lines_of(program)) == "ready"
            before = tree_state(store)
            with pytest.raises(StoreInUseError):
                MessageStore.open(store, "rw", SMALL)
            assert tree_state(store) == before
        finally:
            program.kill()
            program.communicate()
    MessageStore.open(store, "rw", SMALL).close()


# ---- new stores


def test_a_new_store_is_what_a_broker_would_make(tmp_path: Path) -> None:
    for name, prepare in (("missing", None), ("empty", ())):
        root = tmp_path / name
        if prepare is not None:
            root.mkdir()
        with MessageStore.open(root, "rw", create=True):
            assert (root / "abort").read_text() == str(os.getpid())
        assert sorted(path.name for path in root.iterdir()) == ["checkpoint", "commitlog", "consumequeue", "lock"]
        assert (root / "checkpoint").read_bytes() == bytes(4096)
        assert (root / "lock").read_bytes() == b"lock"
        MessageStore.open(root, "rw").close()


def test_default_sizes_are_rocketmq_s(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", "rw", create=True) as store:
        store.put(message(properties={"KEYS": "k"}))
        store.wait_for_dispatch()
    sizes = {path.parent.name: path.stat().st_size for path in (tmp_path / "s").rglob("*") if path.is_file()}
    assert sizes["commitlog"] == 1073741824
    assert sizes["0"] == 6000000
    assert sizes["index"] == 420000040
    assert sum(path.stat().st_blocks * 512 for path in (tmp_path / "s").rglob("*")) < 10_000_000


def test_several_commitlog_directories(tmp_path: Path) -> None:
    root = tmp_path / "s"
    config = small(store_path_commit_log=f"{root}/cl-a,{root}/cl-b")
    with MessageStore.open(root, "rw", config, create=True) as store:
        for _ in range(5):
            store.put(message(40000))
    assert not (root / "commitlog").exists()
    names = {folder: sorted(int(p.name) // 65536 for p in (root / folder).iterdir()) for folder in ("cl-a", "cl-b")}
    assert names == {"cl-a": [0, 2, 4], "cl-b": [1, 3]}
    assert len(stored_messages(root, config)) == 5


def test_what_is_no_store_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        MessageStore.open(tmp_path / "missing", "rw")
    assert not (tmp_path / "missing").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAStoreError):
        MessageStore.open(tmp_path / "file", "rw", create=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(NotAStoreError):
        MessageStore.open(tmp_path / "home", "rw", create=True)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]


def test_create_on_an_existing_store_goes_on_with_it(golden_store: GoldenStore) -> None:
    store = golden_store("clean")
    with MessageStore.open(store, "rw", golden_config("clean"), create=True) as opened:
        assert opened.put(message()).physical_offset == 2135612


def test_reading_never_locks(golden_store: GoldenStore) -> None:
    store = golden_store("crash")
    before = tree_state(store)
    with MessageStore.open(store) as opened:
        assert opened.get("TopicTest", 0, 0).messages
        with pytest.raises(RefusedError, match="reading only"):
            opened.put(message())
    assert tree_state(store) == before
