"""Values of other types than a message has are refused on every way into the store, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.message import Message
from rmqctl.store.message_store import MessageStore
from rmqctl.store.status import PutStatus
from tests.store.write.writing import SMALL, message

WRONG: list[dict[str, Any]] = [
    {"topic": None},
    {"topic": b"Topic"},
    {"topic": ["Topic"]},
    {"body": None},
    {"body": "text"},
    {"queue_id": None},
    {"queue_id": "1"},
    {"queue_id": [1]},
    {"flag": None},
    {"flag": 1.0},
    {"properties": None},
    {"properties": [("KEYS", "k")]},
    {"properties": {"KEYS": None}},
    {"properties": {1: "k"}},
    {"property_bytes": "text"},
    {"sys_flag": None},
    {"born_timestamp": "now"},
    {"born_timestamp": 1.5},
    {"born_host": None},
    {"born_host": "127.0.0.1:1"},
    {"store_timestamp": 1.5},
    {"store_host": "127.0.0.1:1"},
    {"reconsume_times": None},
    {"prepared_transaction_offset": None},
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """One that knows the topic, so that the short way is tried."""
    with MessageStore.open(tmp_path_factory.mktemp("types") / "store", "rw", SMALL, create=True) as opened:
        for _ in range(3):
            opened.put(message())
        yield opened


@pytest.mark.parametrize("changes", WRONG, ids=str)
def test_a_field_of_another_type_is_illegal(changes: dict[str, Any], store: MessageStore) -> None:
    wrong = message()._replace(**changes)
    end = store.files.log.max_offset
    for as_stored in (False, True):
        result = store.put(wrong, as_stored=as_stored)
        assert result.status is PutStatus.MESSAGE_ILLEGAL
        assert next(iter(changes)).rstrip("s") in result.detail or "property" in result.detail
        assert store.check_message(wrong, as_stored=as_stored) == result
        many = store.put_many([wrong] * 2, as_stored=as_stored)
        assert [one.status for one in many] == [PutStatus.MESSAGE_ILLEGAL] * 2
        assert store.check_many([wrong] * 70, as_stored=as_stored).keys() == set(range(70))
    assert store.put_many([wrong], batch=True)[0].status is PutStatus.MESSAGE_ILLEGAL
    assert store.files.log.max_offset == end


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topic": None}, "topic is missing"),
        ({"topic": b"Topic"}, "topic is of type bytes"),
        ({"properties": {"KEYS": None}}, "property 'KEYS' is missing, where names and values are texts"),
        ({"properties": {1: "k"}}, "property 1 is of type str, where names and values are texts"),
    ],
)
def test_it_is_told_what_there_is_instead(changes: dict[str, Any], said: str, store: MessageStore) -> None:
    assert store.put(message()._replace(**changes)).detail == said


def test_what_is_no_message_at_all_is_illegal(store: MessageStore) -> None:
    for wrong in (None, "text", ("Topic", b"body")):
        assert store.put(wrong).status is PutStatus.MESSAGE_ILLEGAL  # type: ignore[arg-type]


def test_wrong_messages_among_many_leave_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.store.write.writer._BULK_AFTER", 0)
    messages: list[Message] = [message() for _ in range(70)]
    wrong = {3 * place: message()._replace(**changes) for place, changes in enumerate(WRONG[:20])}
    for place, one in wrong.items():
        messages[place] = one
    with MessageStore.open(tmp_path / "store", "rw", SMALL, create=True) as store:
        store.put(message())
        results = store.put_many(messages)
        refused = [place for place, result in enumerate(results) if not result.status.is_stored]
    assert refused == list(wrong)


def test_the_topic_of_delayed_messages_takes_none_without_a_delay(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", "rw", SMALL, create=True) as store:
        waiting = message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"})
        bare = message(topic="SCHEDULE_TOPIC_XXXX")
        for _ in range(2):
            assert store.put(waiting).status is PutStatus.PUT_OK
            assert store.put(bare).status is PutStatus.MESSAGE_ILLEGAL
        assert store.put(bare, as_stored=True).status is PutStatus.PUT_OK
        assert store.put(bare).status is PutStatus.MESSAGE_ILLEGAL
