"""Unique ids of new messages: as `UniqueIds.given_to` gives them to one, whether lines and rows are read as columns."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from rmqctl.formats.errors import UsageError
from rmqctl.formats.message import Message
from rmqctl.messages import line_pieces
from rmqctl.messages.input import MessagePiece, identified
from rmqctl.messages.message_source import pieces_of_table
from rmqctl.network.unique_ids import UniqueIds
from rmqctl.store.message_store import MessageStore
from rmqctl.store.native import is_compiled
from rmqctl.store.write.bulk.arrow import rows_of_batch
from rmqctl.store.write.bulk.bulk import BulkRows
from tests.quick import examples
from tests.rmqctl.looking import run
from tests.store.native.test_json_in import json_lines

NOW = 1_700_000_000_000
# each way that a message comes by its properties, new and stored before
RECORDS: list[dict[str, Any]] = [
    {"keys": ["a", "b"], "tags": "t"},
    {},
    {"msg_id": "7F00", "tags": "u"},
    {"properties": {"UNIQ_KEY": "mine", "x": "y"}},
    {"properties": {"a": "b"}, "unique_key": ""},
    {"unique_key": "K", "properties": {}},
    {"properties": {}, "msg_id": None, "keys": ["not", "these"]},
    {"properties_base64": "eAF5Ag==", "tags": "u"},
    {"tags": "é", "keys": []},
]
LINES = [json.dumps({"topic": "T", "body": str(number), **more}).encode() for number, more in enumerate(RECORDS)]


def ids_near_the_turn() -> UniqueIds:
    """Ids of one moment whose counter soon comes round."""
    ids = UniqueIds(lambda: NOW)
    ids._number = 7
    ids.place = ids.place._replace(counter=65534)
    return ids


def messages_of(piece: MessagePiece) -> list[Message]:
    if isinstance(piece.content, list):
        return piece.content
    try:
        rows = piece.content if isinstance(piece.content, BulkRows) else rows_of_batch(piece.content)
    except UsageError:
        assert piece.plain is not None
        return messages_of(piece.plain())
    return [rows.message(row) for row in range(len(rows))]


def of_lines(text: bytes, plain_bytes: int) -> tuple[list[Message], bool]:
    """The messages of lines, and whether they were read as columns."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(line_pieces, "_PLAIN_BYTES", plain_bytes)
        pieces = identified(line_pieces.pieces_of_lines(io.BytesIO(text), False, True), ids_near_the_turn())
        found, as_columns = [], False
        for piece in pieces:
            as_columns = as_columns or not isinstance(piece.content, list)
            found += messages_of(piece)
        return found, as_columns


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.one_of(json_lines(), st.sampled_from(LINES)), max_size=8))
def test_lines_get_the_same_ids_either_way(lines: list[bytes]) -> None:
    text = b"\n".join(lines)
    try:
        found = of_lines(text, 0)[0]
    except UsageError:
        reject()  # flags of a compression that does not exist: refused only when it is put
    assert found == of_lines(text, len(text) + 1)[0]


def test_every_kind_of_line() -> None:
    text = b"\n".join(LINES)
    (found, as_columns), (expected, never) = of_lines(text, 0), of_lines(text, len(text) + 1)
    assert (as_columns, never) == (is_compiled(), False)
    assert found == expected
    assert [list(one.properties) for one in found] == [
        ["KEYS", "TAGS", "UNIQ_KEY"],
        ["UNIQ_KEY"],
        ["TAGS"],
        ["UNIQ_KEY", "x"],
        ["a", "UNIQ_KEY"],
        [],
        ["UNIQ_KEY"],
        ["TAGS"],
        ["TAGS", "UNIQ_KEY"],
    ]
    given_out = [one.properties["UNIQ_KEY"] for one in found if one.properties.get("UNIQ_KEY", "mine") != "mine"]
    assert [one[-4:] for one in given_out] == ["FFFE", "FFFF", "0000", "0001", "0002"]
    # as the counter has come round, time has gone on
    assert int(given_out[2][20:28], 16) == int(given_out[1][20:28], 16) + 1


def test_rows_of_a_table_get_the_same_ids_either_way() -> None:
    maps: list[Any] = [one.get("properties") for one in RECORDS]
    columns = {
        "topic": ["T"] * len(RECORDS),
        "body": [b"x"] * len(RECORDS),
        "properties": pa.array([one and list(one.items()) for one in maps], pa.map_(pa.string(), pa.string())),
        "stored_properties": pa.array([b"x\x01y\x02" if "properties_base64" in one else None for one in RECORDS]),
        **{name: pa.array([one.get(name) for one in RECORDS]) for name in ("keys", "tags", "msg_id", "unique_key")},
    }
    for names in (columns, ["topic", "body"], ["topic", "body", "tags"], ["topic", "body", "keys", "properties"]):
        table = pa.table({name: columns[name] for name in names})
        sink = io.BytesIO()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
        found: list[Message] = []
        expected: list[Message] = []
        ids, others = ids_near_the_turn(), ids_near_the_turn()
        for piece in identified(pieces_of_table(sink, False), ids):
            assert not isinstance(piece.content, list)
            assert piece.plain is not None
            found += messages_of(piece)
            # what is read once more has the ids that it had
            assert piece.plain().content == found[-len(piece.numbers) :]
        sink.seek(0)
        for piece in pieces_of_table(sink, False):
            assert piece.plain is not None
            expected += messages_of(next(identified([piece.plain()], others)))
        assert found == expected
        assert sum("UNIQ_KEY" in one.properties for one in found) >= 6


def test_many_ids_at_once_are_those_one_by_one() -> None:
    one_by_one, at_once = ids_near_the_turn(), ids_near_the_turn()
    at_once._address = one_by_one._address
    expected = [one_by_one.next() for _ in range(300)]
    assert [row.tobytes().decode() for row in at_once.take(300)] == expected
    assert at_once.place == one_by_one.place
    assert len({row.tobytes() for row in at_once.take(200_000)} | set(map(str.encode, expected))) == 200_300


def test_append_stores_new_lines_as_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"\n".join([json.dumps({"topic": "T", "body": "x", "tags": "t"}).encode()] * 400))
    taken: list[int] = []
    put = MessageStore.put_columns

    def put_columns(store: MessageStore, batch: BulkRows, as_stored: bool = False) -> Any:
        taken.append(len(batch))
        return put(store, batch, as_stored=as_stored)

    monkeypatch.setattr(MessageStore, "put_columns", put_columns)
    monkeypatch.setattr(line_pieces, "_PLAIN_BYTES", 0)
    assert run("append", "-s", tmp_path / "store", "--create", "--from", lines).code == 0
    assert sum(taken) == 400 * is_compiled()
    found = [one["properties"] for one in run("cat", "-s", tmp_path / "store", "--json").objects]
    assert {tuple(one) for one in found} == {("TAGS", "UNIQ_KEY")}
    assert len({one["UNIQ_KEY"] for one in found}) == 400
