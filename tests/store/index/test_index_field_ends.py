"""Index files of messages whose store times are at the ends of 63 bits: no time overflows, and all writers agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqctl.main import main
from rmqctl.store.check.check import check
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.files.layout import file_name
from rmqctl.store.index.index_file import time_difference
from rmqctl.store.log.implied import time_differences
from rmqctl.store.message_store import MessageStore
from rmqctl.store.recover.rebuild import rebuild
from rmqctl.store.recover.recover import recover
from rmqctl.store.store_files import StoreFiles
from tests.goldens import tree_state
from tests.store.logs import frame

LONG = 1 << 63
INT = 1 << 31
CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400, max_hash_slot_num=10, max_index_num=20
)
TIMES = {
    "last": [LONG - 1, LONG - 1],
    "far apart": [1, LONG - 1],
    "back": [LONG - 1, 1, LONG - 2],
    "no begin": [0, LONG - 1],
    "negative": [-LONG, LONG - 1, -1],
    "before the end of the field": [1000, 1000 * (INT - 1) + 999, 1000 * INT, 1000 * (INT + 1)],
}


def store_of(root: Path, times: list[int]) -> Path:
    log = b""
    for number, time in enumerate(times):
        properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}"}
        log += frame(len(log), queue_offset=number, store_timestamp=time, properties=properties)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / file_name(0)).write_bytes(log.ljust(65536, b"\0"))
    return root


def entries(root: Path) -> list[tuple[int, int, int]]:
    with StoreFiles(root, CONFIG) as files:
        (file,) = files.index.files
        return [(entry.key_hash, entry.physical_offset, entry.timestamp) for entry in file.entries()]


def expected(times: list[int]) -> list[int]:
    """Return the time that each message's entries read as: IndexFile#putKey with a begin of their own."""
    begin = times[0]
    if begin <= 0:
        return [begin] * len(times)
    return [begin + min(max(0, (time - begin) // 1000), INT - 1) * 1000 for time in times]


@pytest.mark.parametrize("name", TIMES)
def test_all_writers_of_an_index_agree_on_times_at_the_ends(name: str, tmp_path: Path) -> None:
    times = TIMES[name]
    wanted = [time for time in expected(times) for _ in range(2)]
    root = store_of(tmp_path / "store", times)
    with StoreFiles(root, CONFIG) as files:
        recover(files)
    recovered = entries(root)
    assert [time for _, _, time in recovered] == wanted
    with StoreFiles(root, CONFIG) as files:
        rebuild(files)
    assert entries(root) == recovered
    before = tree_state(root)
    with StoreFiles(root, CONFIG) as files:
        assert not [finding.code for finding in check(files) if finding.code.startswith("RMQ-IDX")]
        recover(files)
    index = {path: state for path, state in tree_state(root).items() if path.startswith("index/")}
    assert index == {path: state for path, state in before.items() if path.startswith("index/")}
    with MessageStore.open(root, "r", CONFIG) as store:
        for number, time in enumerate(times):
            assert [found.store_timestamp for found in store.query("T", f"k{number}").messages] == [time]


def test_one_difference_and_many_are_the_same_at_the_ends() -> None:
    times = [-LONG, -1, 0, 1, 999, 1000, 1001, 1000 * INT - 1, 1000 * INT, 1000 * INT + 1, LONG - 1000, LONG - 1]
    for begin in times:
        many = time_differences(np.array(times, np.int64), begin).tolist()
        assert many == [time_difference(begin, time) for time in times]
    # the last second that the field holds, and the first that it does not
    assert time_differences(np.array([1 + 1000 * (INT - 2), 1 + 1000 * (INT - 1), 1 + 1000 * INT]), 1).tolist() == [
        INT - 2,
        INT - 1,
        INT - 1,
    ]


@pytest.mark.parametrize("arguments", [["where"], ["query", "-k"], ["query", "-t", "T", "-k"]])
def test_a_message_with_a_store_time_below_0_is_found(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flipped bit in a store time, which no checksum covers, must not make a message absent."""
    root = store_of(tmp_path / "store", TIMES["negative"])
    with StoreFiles(root, CONFIG) as files:
        recover(files)
    verb, *flags = arguments
    for number in range(3):
        assert main([verb, "-s", str(root), "--json", *flags, f"k{number}"]) == 0
        assert f"k{number}" in capsys.readouterr().out
