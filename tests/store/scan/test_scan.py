"""The scan held against the plain walk: every column of every message, damage, selections and columns."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from rmqctl.formats.errors import CorruptError, UnsupportedError, UsageError
from rmqctl.formats.message import Host, Message, StoredMessage
from rmqctl.store.files.mapped_file_queue import MappedFileQueue
from rmqctl.store.log.columns import MessageColumns
from rmqctl.store.log.walk import walk
from rmqctl.store.message_store import MessageStore
from rmqctl.store.options import Events
from rmqctl.store.read.filter import Criteria
from rmqctl.store.read.select import Selection, in_log_order
from rmqctl.store.scan import batches as maker
from rmqctl.store.scan.scan import Scan
from rmqctl.store.scan.schema import COLUMNS
from tests.formats.frames import HOSTS, LONG, MESSAGES, frame_of
from tests.goldens import GOLDENS, truth
from tests.opened import reader, store_path
from tests.processes import run
from tests.quick import examples, goldens_of
from tests.store.columns.comparing import FORMS, use_form
from tests.store.logs import log_of
from tests.store.scan.rows import arrow_rows, plain_row


def plain(log: MappedFileQueue, selection: Selection) -> tuple[list[dict[str, Any]], list[str]]:
    damage: list[CorruptError] = []
    rows = [plain_row(message) for message in in_log_order(log, selection, Events(damage=damage.append))]
    return rows, [str(error) for error in damage]


def scanned(log: MappedFileQueue, selection: Selection, **how: Any) -> tuple[list[dict[str, Any]], list[str]]:
    damage: list[CorruptError] = []
    scan = Scan(log, None, selection.begin, selection.end, criteria=selection.criteria, **how)
    return arrow_rows(scan.batches(Events(damage=damage.append))), [str(error) for error in damage]


@pytest.mark.parametrize("name", goldens_of(GOLDENS))
def test_goldens(name: str) -> None:
    log = reader(name).files.log
    assert scanned(log, Selection()) == plain(log, Selection())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("views", [True, False])
def test_every_rung_gives_the_same(form: str, views: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    use_form(form, monkeypatch)
    for name in ("features", "crc-flip-third"):
        log = reader(name).files.log
        assert scanned(log, Selection(), views=views) == plain(log, Selection())


def chosen() -> list[Selection]:
    messages = [record for record in walk(reader("clean").files.log) if isinstance(record, StoredMessage)]
    first, last = messages[700].store_timestamp, messages[900].store_timestamp
    unique = messages[5].properties()["UNIQ_KEY"]
    criteria = [
        Criteria(topic="OrderTopic"),
        Criteria(topic="OrderTopic", queue_id=3),
        Criteria(queue_id=1, begin_time=first, end_time=last),
        Criteria(tags="TagA || 标签1"),
        Criteria(tags="TagA", topic="OrderTopic"),
        Criteria(key="hot"),
        Criteria(key=unique),
        Criteria(key="hot", tags="TagB", begin_time=first),
        Criteria(topic="Nowhere"),
        Criteria(key="no such key"),
    ]
    begin, end = messages[10].physical_offset, messages[400].physical_offset
    return [
        *(Selection(one) for one in criteria),
        Selection(begin=begin, end=end),
        Selection(begin=begin + 1, end=end + 1),
        Selection(Criteria(topic="OrderTopic"), begin + 1, end),
        Selection(begin=1 << 40),
        Selection(end=0),
    ]


@pytest.mark.parametrize("number", range(15))
def test_selections(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    selection = chosen()[number]
    for name in ("clean", "features", "gap"):
        log = reader(name).files.log
        expected = plain(log, selection)
        assert scanned(log, selection) == expected
        # and the way by which `cat` leaves the plain walk for the columns
        monkeypatch.setattr("rmqctl.store.read.select.PLAIN_BYTES", 100_000)
        assert plain(log, selection) == expected
        monkeypatch.undo()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_alone(name: str) -> None:
    log = reader("features").files.log
    expected = [{name: row[name]} for row in plain(log, Selection())[0]]
    assert arrow_rows(Scan(log, [name]).batches()) == expected


def test_a_scan_of_the_library() -> None:
    with MessageStore.open(store_path("clean")) as store:
        [batch] = store.scan(["topic", "body"], 0, 1000)
        assert batch.schema.names == ["topic", "body"]
        assert batch.schema.field("topic").type == pa.dictionary(pa.int32(), pa.string())
        assert batch.schema.field("body").type == pa.binary_view()
        [copied] = store.scan(["body"], 0, 1000, views=False)
        assert copied.column("body").to_pylist() == batch.column("body").to_pylist()


def test_wrong_columns() -> None:
    log = reader("clean").files.log
    for wrong in (["topik"], [], ["topic", "topic"]):
        with pytest.raises(UsageError):
            Scan(log, wrong)


def test_damage_is_raised_where_nobody_wants_to_be_told() -> None:
    scan = Scan(reader("crc-flip-third").files.log, ["physical_offset"])
    rows: list[Any] = []
    with pytest.raises(CorruptError) as caught:
        rows += (offset for batch in scan.batches() for offset in batch.column(0).to_pylist())
    assert caught.value.physical_offset == 1695806


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedError, match=r"rmqctl\[fast\]"):
        Scan(reader("clean").files.log)


def test_progress_is_told_every_byte_of_the_log_once() -> None:
    """Zeros after the last message are no work."""
    told: list[int] = []
    for _ in Scan(reader("clean").files.log, ["size"]).batches(Events(told.append)):
        pass
    last = truth("clean").messages[-1]
    assert sum(told) == last["phyOffset"] + last["storeSize"]


def log_with(
    folder: Path, messages: list[tuple[Message, Host, int]], change: Callable[[bytes], bytes]
) -> MappedFileQueue:
    data = b""
    for number, (message, host, time) in enumerate(messages):
        data += frame_of(message, host, queue_offset=number, physical_offset=len(data), store_timestamp=time)
    return log_of(folder, change(data + bytes(64)))


STORED = st.tuples(MESSAGES, HOSTS, LONG)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STORED, min_size=1, max_size=12), st.integers(0, 1 << 20), st.integers(0, 255), st.booleans())
def test_any_messages_whole_and_damaged(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[Message, Host, int]],
    place: int,
    byte: int,
    is_damaged: bool,
) -> None:
    def change(data: bytes) -> bytes:
        if not is_damaged:
            return data
        at = place % len(data)
        return data[:at] + bytes([byte]) + data[at + 1 :]

    log = log_with(tmp_path_factory.mktemp("log"), messages, change)
    for views in (True, False):
        assert scanned(log, Selection(), views=views) == plain(log, Selection())


def test_bodies_that_unpack_to_much_come_in_batches_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "UNPACKED_BYTES", 100_000)
    packed = Message("T", zlib.compress(bytes(60_000)), sys_flag=1)
    broken = Message("T", b"no zlib at all", sys_flag=1)
    short = Message("T", b"plain")
    log = log_with(
        tmp_path, [(one, Host(bytes(4), 1), 7) for one in (short, packed, packed, broken, packed, short)], bytes
    )
    sizes = [batch.num_rows for batch in Scan(log).batches()]
    assert sizes == [3, 3]
    assert scanned(log, Selection()) == plain(log, Selection())


def test_what_was_checked_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise AssertionError("the file may hold something else by now")

    monkeypatch.setattr(MessageColumns, "message", gone)
    messages = [Message("T", b"body", properties={"TAGS": tag, "KEYS": "k"}) for tag in ("a", "b", "a")]
    log = log_with(tmp_path, [(one, Host(bytes(4), 1), 7) for one in messages], bytes)
    for criteria, count in ((Criteria(tags="a"), 2), (Criteria(topic="T", key="k"), 3)):
        for columns in (["topic"], ["physical_offset", "tags"]):
            assert sum(batch.num_rows for batch in Scan(log, columns, criteria=criteria).batches()) == count


@pytest.mark.parametrize("size", [*range(15), 16, 40])
def test_bodies_of_every_short_length(size: int, tmp_path: Path) -> None:
    messages = [
        Message("T", bytes(range(1, size + 1))),
        Message("T", b""),
        Message("T", zlib.compress(b"x" * size), sys_flag=1),
    ]
    log = log_with(tmp_path, [(one, Host(bytes(4), 1), 7) for one in messages], bytes)
    for views in (True, False):
        assert scanned(log, Selection(), views=views) == plain(log, Selection())


def test_without_pyarrow_the_first_scan_of_a_process_says_so_too() -> None:
    code = (
        "import sys\nsys.modules['pyarrow'] = None\n"
        "from rmqctl.store import MessageStore\nfrom rmqctl.formats.errors import UnsupportedError\n"
        "try: MessageStore.open(sys.argv[1]).scan()\nexcept UnsupportedError as error: print(error)"
    )
    done = run([sys.executable, "-c", code, str(store_path("clean"))])
    assert "pip install" in done.stdout, done.stderr
