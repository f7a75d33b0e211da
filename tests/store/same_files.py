"""Two ways into a store that must leave the same files: what the tests of fast and plain puts share."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Host, Message
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native.put import OrdinaryPuts
from rmqctl.store.write import put, writer
from rmqctl.store.write.put import PutResult
from tests.formats.frames import new_message
from tests.store.native.forms import plain_form
from tests.store.write.writing import files_below

NOW = 1_700_000_000_000


def ticking() -> Callable[[], int]:
    """A clock that gains a second every time it is asked."""
    return itertools.count(NOW, 1000).__next__


def standing() -> int:
    """A clock that stands."""
    return NOW


Way = Callable[[MessageStore, Sequence[Message]], list[PutResult]]


def one_by_one(store: MessageStore, messages: Sequence[Message]) -> list[PutResult]:
    """The slow path, message by message; a UsageError counts as an answer."""
    assert store._writer is not None
    store._put = store._writer._put_and_wait
    return by_put(store, messages)


def by_put(store: MessageStore, messages: Sequence[Message]) -> list[PutResult]:
    """Whatever path a put takes."""
    results = []
    for message in messages:
        try:
            results.append(store.put(message))
        except UsageError as error:
            results.append(PutResult(store.put(Message("", b"")).status, detail=error.message))
    return results


@contextlib.contextmanager
def plain_puts() -> Iterator[None]:
    """Stores that are opened meanwhile put in the plain form, whatever else this process uses."""
    form = plain_form("put")
    with pytest.MonkeyPatch.context() as patch:
        for module in (put, writer):
            for name in ("KnownTopic", "NextOffset", "OrdinaryPuts", "PutParts", "PutState"):
                patch.setattr(module, name, getattr(form, name), raising=False)
        yield


def fast_of(store: MessageStore) -> OrdinaryPuts:
    """The fast path of a store that is open for writing."""
    assert store._writer is not None
    return store._writer._ordinary


def files_after(root: Path, messages: Sequence[Message], way: Way, config: StoreConfig) -> dict[str, object]:
    """The files of a new store after `messages` were put, and the answers."""
    store = MessageStore.open(root, "rw", config, create=True, allocate_ahead=False, clock=standing)
    with store:
        answers = way(store, messages)
    found: dict[str, object] = dict(files_below(root))
    found.pop("lock", None)
    return found | {"answers": answers}


# most messages alike, some of every other kind
_VALUES = st.sampled_from(["a", "k1 k2", "", "ö€😀", "x\x01y", "%s", "7"])
_SPECIAL = st.sampled_from(
    [
        {"DELAY": "2"},
        {"TAGS": "a\x02b"},
        {"a\x01b": "c"},
        {"INNER_NUM": "2"},
        {"__CRC32#": "1"},
        {"__RMQ.TRANSIENT.X": "gone"},
        {"TIMER_DELAY_MS": "5000"},
        {"TAGS": "\ud800"},
        {"A": "x" * 40_000},
    ]
)
_PROPERTIES = st.one_of(
    st.dictionaries(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "100%", "ä"]), _VALUES, max_size=4), _SPECIAL
)
_HOSTS = st.sampled_from([Host(b"\x7f\0\0\x01", 10911), Host(b"\x0a\0\0\x01", -1), Host(b"\0" * 15 + b"\x01", 9)])
MESSAGES = st.lists(
    st.builds(
        new_message,
        topic=st.sampled_from(["TopicA", "TopicA", "TopicB", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "T" * 130, "ü"]),
        body=st.one_of(st.binary(max_size=50), st.sampled_from([b"", b"z" * 300, b"y" * 9000, b"w" * 70_000])),
        queue_id=st.sampled_from([0, 0, 0, 1, 2, -1, 1 << 31]),
        flag=st.sampled_from([0, 0, 5, -1, 1 << 31]),
        properties=_PROPERTIES,
        property_bytes=st.sampled_from([None, None, None, b"KEYS\x01q\x02"]),
        sys_flag=st.sampled_from([0, 0, 0, 1, 2, 4, 8, 12]),
        born_timestamp=st.sampled_from([None, None, 0, NOW, 1 << 62, 1 << 63]),
        born_host=_HOSTS,
        store_host=st.sampled_from([None, None, None, Host(b"\x01\x02\x03\x04", 5)]),
        reconsume_times=st.sampled_from([0, 0, 3]),
        prepared_transaction_offset=st.sampled_from([0, 0, 9, 1 << 63]),
    ),
    max_size=40,
)
