"""Messages with numbers that do not parse: check, recover and append end the log there, as brokers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import RefusedError
from rmqctl.formats.layouts import SYS_FLAG_INNER_BATCH
from rmqctl.formats.message import Reason, StoredMessage
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.log.implied import Digest, Run, walk_runs
from rmqctl.store.log.walk import Damage, as_brokers_read, unreadable_number, walk
from rmqctl.store.message_store import MessageStore
from tests.store.logs import frame, log_of

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
FILE = 65536
CONFIG = StoreConfig(mapped_file_size_commit_log=FILE)
CASES: list[tuple[str, dict[str, str], int, bool]] = [
    (SCHEDULE, {"DELAY": "x"}, 0, True),
    (SCHEDULE, {"DELAY": " 3"}, 0, True),
    (SCHEDULE, {"DELAY": "2147483648"}, 0, True),
    (SCHEDULE, {"DELAY": "2147483647"}, 0, False),
    (SCHEDULE, {"DELAY": "+3"}, 0, False),
    (SCHEDULE, {"DELAY": "-1"}, 0, False),
    (SCHEDULE, {}, 0, False),
    ("T", {"DELAY": "x"}, 0, False),
    ("T", {"INNER_NUM": "32768", "INNER_BASE": "0"}, SYS_FLAG_INNER_BATCH, True),
    ("T", {"INNER_NUM": "3", "INNER_BASE": "x"}, 0, True),
    ("T", {"INNER_NUM": "x"}, 0, False),
    ("T", {"INNER_NUM": "3", "INNER_BASE": "0"}, SYS_FLAG_INNER_BATCH, False),
]


def _log_bytes(topic: str, properties: dict[str, str], sys_flag: int = 0, after: int = 2) -> tuple[bytes, int, int]:
    """Return a log of two ordinary messages, the one in question and `after` more; begin and end of that one."""
    data = b""
    for number in range(2):
        data += frame(len(data), b"before", topic="T", queue_offset=number)
    begin = len(data)
    data += frame(begin, b"this", topic=topic, properties=properties, sys_flag=sys_flag)
    end = len(data)
    for number in range(after):
        data += frame(len(data), b"after", topic="T", queue_offset=2 + number)
    return data, begin, end


@pytest.mark.parametrize(("topic", "properties", "sys_flag", "refused"), CASES)
def test_plain_and_columns_agree(
    tmp_path: Path, topic: str, properties: dict[str, str], sys_flag: int, refused: bool
) -> None:
    data, begin, end = _log_bytes(topic, properties, sys_flag)
    log = log_of(tmp_path, data.ljust(FILE, b"\0"))
    plain = [record for record in as_brokers_read(walk(log), log) if isinstance(record, Damage)]
    columns = [record for record in walk_runs(log, Digest(())) if isinstance(record, Damage)]
    assert plain == columns
    assert [(span.physical_offset, span.end, span.reason) for span in plain] == (
        [(begin, end, Reason.NUMBER)] if refused else []
    )
    runs = [(run.physical_offset, run.end) for run in walk_runs(log, Digest(())) if isinstance(run, Run)]
    assert runs == ([(0, begin), (end, len(data))] if refused else [(0, len(data))])
    [message] = [one for one in walk(log) if isinstance(one, StoredMessage) and one.body == b"this"]
    assert bool(unreadable_number(message)) == refused
    if "DELAY" not in properties:
        assert unreadable_number(message, knows_batches=False) == ""


def _store(folder: Path, after: int = 2) -> tuple[Path, int]:
    data, begin, _ = _log_bytes(SCHEDULE, {"DELAY": "x"}, after=after)
    store = folder / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(data.ljust(FILE, b"\0"))
    return store, begin


def _alarms(store: Path, **options: Any) -> list[tuple[str, int | None, bool | None]]:
    with MessageStore.open(store, config=CONFIG) as opened:
        found = opened.check(**options)
        return [(one.code, one.physical_offset, one.data_lost) for one in found if one.code.startswith("RMQ-LOG")]


def test_inside_the_log_check_names_it_and_recover_asks(tmp_path: Path) -> None:
    store, begin = _store(tmp_path)
    for level in ("quick", "full"):
        assert ("RMQ-LOG-033", begin, False) in _alarms(store, level=level), level
    with MessageStore.open(store, config=CONFIG) as opened, pytest.raises(RefusedError) as refusal:
        opened.recover()
    assert refusal.value.physical_offset == begin
    assert "is not a number" in str(refusal.value)
    with MessageStore.open(store, config=CONFIG) as opened:
        opened.recover(bridge=True)
    assert not [one for one in _alarms(store) if one[0] in ("RMQ-LOG-033", "RMQ-LOG-034")]
    with MessageStore.open(store, config=CONFIG) as opened:
        bodies = [message.body for message in opened.messages()]
    assert bodies.count(b"after") == 2
    assert b"this" not in bodies


def test_at_the_end_recover_ends_the_log_before_it(tmp_path: Path) -> None:
    store, begin = _store(tmp_path, after=0)
    for level in ("quick", "full"):
        assert ("RMQ-LOG-034", begin, False) in _alarms(store, level=level), level
    with MessageStore.open(store, config=CONFIG) as opened:
        assert opened.recover().end_offset == begin
    assert not [one for one in _alarms(store) if one[0] == "RMQ-LOG-034"]


def test_append_refuses(tmp_path: Path) -> None:
    store, begin = _store(tmp_path, after=0)
    with MessageStore.open(store, config=CONFIG) as opened:
        opened.rebuild()
    with pytest.raises(RefusedError) as refusal, MessageStore.open(store, "rw", CONFIG):
        pass
    assert refusal.value.physical_offset == begin
    assert "is not a number" in str(refusal.value)


def test_the_message_stays_readable(tmp_path: Path) -> None:
    store, _ = _store(tmp_path)
    with MessageStore.open(store, config=CONFIG) as opened:
        assert b"this" in [message.body for message in opened.messages()]
