"""`query --traces`: what the traces in a store say of a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.formats.message import Message
from rmqctl.messages.json import trace_text
from rmqctl.network.clients.hooks import ConsumeReturn, MessageType
from rmqctl.network.clients.tracing import TraceBean, TraceRecord, TraceType, encode
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.message_store import MessageStore
from tests.rmqctl.looking import run

BEAN = TraceBean("Orders", "ID1", "paid", "k1 k2", "10.0.0.1:10911", 5, MessageType.NORMAL, "OFF")
OTHER = BEAN._replace(message_id="ID2,ID3", keys=None)
RECORDS = [
    TraceRecord(TraceType.PUB, (BEAN,), 1000, "makes", cost=7),
    TraceRecord(TraceType.PUB, (OTHER,), 1001, "makes"),
    TraceRecord(
        TraceType.END_TRANSACTION,
        (BEAN._replace(transaction_id="ID1", transaction_state="ROLLBACK_MESSAGE"),),
        1002,
        "makes",
    ),
    TraceRecord(TraceType.SUB_BEFORE, (BEAN, OTHER), 1003, "gets", request_id="R"),
    TraceRecord(TraceType.SUB_AFTER, (BEAN,), 1010, "gets", None, 7, False, "R", ConsumeReturn.EXCEPTION),
    TraceRecord(TraceType.RECALL, (BEAN._replace(message_id="ID9"),), 1004, "makes"),
]
HALF = TraceRecord(TraceType.PUB, (BEAN._replace(message_id="half"),), 1000, "makes")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traced") / "store"
    config = StoreConfig(mapped_file_size_commit_log=1 << 16, max_hash_slot_num=100, max_index_num=400)
    with MessageStore.open(path, "rw", config, create=True) as store:
        body = "".join(map(encode, RECORDS)).encode()
        store.put(Message("RMQ_SYS_TRACE_TOPIC", body, properties={"KEYS": "ID1 k1 k2 ID2,ID3 ID9"}))
        store.put(Message("RMQ_SYS_TRACE_TOPIC", b"no trace", properties={"KEYS": "broken"}))
        store.put(Message("RMQ_SYS_TRACE_TOPIC", encode(HALF).encode(), properties={"KEYS": "half"}))
        store.put(Message("RMQ_SYS_TRACE_TOPIC", b"no trace", properties={"KEYS": "half"}))
        store.put(Message("Own", encode(RECORDS[5]).encode(), properties={"KEYS": "ID9"}))
    return path


def test_the_traces_of_a_message_are_shown(traced: Path) -> None:
    rows = run("query", "-s", traced, "-k", "ID1", "--traces", "--json").objects
    assert [(one["event"], one["group"], one["result"], one["cost_ms"]) for one in rows] == [
        ("sent", "makes", "success", 7),
        ("transaction ended", "makes", "rolled back", None),
        ("consumption began", "gets", None, None),
        ("consumption ended", "gets", "exception", 7),
    ]
    assert {(one["message_id"], one["keys"]) for one in rows} == {("ID1", "k1 k2")}
    assert [one["trace_timestamp"] for one in rows] == [1000, 1002, 1003, 1010]
    done = run("query", "-s", traced, "-k", "k2", "--traces")
    assert (done.code, len(done.out.splitlines())) == (0, 5)
    assert "consumption ended" in done.out
    (recalled,) = run("query", "-s", traced, "-k", "ID9", "--traces", "-t", "Own", "--json").objects
    assert recalled["event"] == "recalled"


def test_a_batch_is_found_by_all_its_ids(traced: Path) -> None:
    rows = run("query", "-s", traced, "-k", "ID2,ID3", "--traces", "--json").objects
    assert [one["event"] for one in rows] == ["sent", "consumption began"]


def test_a_trace_that_cannot_be_decoded_is_not_absent(traced: Path) -> None:
    done = run("query", "-s", traced, "-k", "broken", "--traces")
    assert (done.code, "not made of trace records" in done.err) == (7, True)
    done = run("query", "-s", traced, "-k", "half", "--traces", "--json")
    assert (done.code, "not made of trace records" in done.err) == (1, True)
    assert [one["event"] for one in done.objects] == ["sent"]
    done = run("query", "-s", traced, "-k", "nothing", "--traces")
    assert (done.code, "has the key 'nothing'" in done.err) == (1, True)


def test_traces_go_with_a_key(traced: Path) -> None:
    for options in (("-i", "ID1"), ("-o", "0"), ("-k", "x", "-t", "A", "-t", "B")):
        done = run("query", "-s", traced, *options, "--traces")
        assert (done.code, "--traces goes with -k" in done.err) == (2, True)


def test_cat_decodes_trace_records(traced: Path) -> None:
    done = run("cat", "-s", traced, "-t", "RMQ_SYS_TRACE_TOPIC", "--columns", "body")
    first, broken, half, again = done.out.splitlines()[1:]
    assert "\x01" not in first
    assert "\\x01" not in first
    assert first.strip() == (
        "sent ID1 of Orders by makes: success, 7 ms; sent ID2,ID3 of Orders by makes: success, 0 ms; "
        "transaction ended ID1 of Orders by makes: rolled back; and 4 more"
    )
    assert broken.strip() == again.strip() == "(not trace records) no trace"
    assert half.strip() == "sent half of Orders by makes: success, 0 ms"
    assert done.code == 0
    # what looks like one in another topic is a message
    (own,) = run("cat", "-s", traced, "-t", "Own", "--columns", "body").out.splitlines()[1:]
    assert "recalled" not in own
    (listed,) = run("query", "-s", traced, "-k", "ID9", "-t", "RMQ_SYS_TRACE_TOPIC", "--json").objects
    assert "traces" not in listed
    shown = run("query", "-s", traced, "-o", listed["physical_offset"]).out
    assert "consumption ended ID1 by gets: exception, 7 ms" in shown


def test_cat_gives_trace_records_as_a_field(traced: Path) -> None:
    plain = run("cat", "-s", traced, "--json").objects
    assert all("traces" not in one and "traces_error" not in one for one in plain)
    rows = run("cat", "-s", traced, "--json", "--traces").objects
    assert [{name: one[name] for name in one if not name.startswith("traces")} for one in rows] == plain
    first, broken, half, again, own = rows
    assert [one["event"] for one in first["traces"]] == [
        "sent", "sent", "transaction ended", "consumption began", "consumption began", "consumption ended", "recalled",
    ]  # fmt: skip
    assert first["traces"][0] == {
        "trace_timestamp": 1000, "event": "sent", "group": "makes", "result": "success", "cost_ms": 7,
        "retry_times": None, "message_id": "ID1", "keys": "k1 k2", "topic": "Orders", "request_id": None,
        "store_host": "10.0.0.1:10911", "region": "DefaultRegion", "tags": "paid", "offset_message_id": "OFF",
        "body_size": 5,
    }  # fmt: skip
    assert "traces" not in broken
    assert (
        broken["traces_error"] == again["traces_error"] == "the body of the trace message is not made of trace records"
    )
    assert [one["message_id"] for one in half["traces"]] == ["half"]
    assert "traces" not in own
    # a trace topic with another name
    (own,) = run("cat", "-s", traced, "-t", "Own", "--json", "--traces").objects
    assert own["traces"][0]["event"] == "recalled"
    (line,) = run("cat", "-s", traced, "-t", "Own", "--traces", "--columns", "body").out.splitlines()[1:]
    assert line.strip() == "recalled ID9 of Orders by makes: success"
    assert run("cat", "-s", traced, "--traces", "--format-string", "%s").code == 2
    assert run("cat", "-s", traced, "--traces", "--format", "csv").code == 2


def test_a_listing_decodes_what_it_shows() -> None:
    """A body may have thousands of records, and a later one may be broken."""
    body = (encode(RECORDS[0]) * 50).encode()
    text = trace_text(body)
    assert text is not None
    assert text.endswith("; and 47 more")
    assert trace_text(body + b"broken\x02") == text.replace("47", "48")
