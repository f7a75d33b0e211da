"""Whatever is read, nothing but an error of ours comes out; and that this can fail."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rmqctl.formats.errors import UsageError
from rmqctl.messages.message_source import MessageSource, message_source
from rmqctl.network.remoting import codec as command
from tests.proof.fuzz import cases, readers
from tests.proof.proving import assert_proved, prove


@pytest.mark.timeout(1800)
def test_nothing_but_an_error_of_ours_comes_out(tmp_path: Path) -> None:
    assert_proved("fuzz", tmp_path)


def test_every_reader_has_its_turns(tmp_path: Path) -> None:
    with readers(tmp_path) as found:
        turns = {name: reader.turns for name, reader in found.items()}
    assert Counter(name.rpartition("-")[0] for name, _ in cases(1, sum(turns.values()))) == turns


def test_it_fails_where_an_error_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(header: bytes, position: int, length: int, _: str) -> tuple[str, int]:
        return header[position : position + length].decode("ascii"), position + length

    def careless(header: bytes, body: bytes) -> command.RemotingCommand:
        return command.RemotingCommand(code=int(header[:1]), body=body)

    monkeypatch.setattr(command, "_binary_text", trusting)
    monkeypatch.setattr(command, "_from_json", careless)
    outcome = prove("fuzz", 100, 1, tmp_path)
    assert outcome.failures
    assert all(failure.startswith("wire-") for failure in outcome.failures)
    assert "python -m tests.proof fuzz --seed 1 --count 100 --only 'wire-" in outcome.failures[0]


def test_an_arrow_file_with_wild_offsets_is_refused() -> None:
    """Arrow believes the offsets of a file: it would end the process by reading far outside of it."""
    table = pa.table({"topic": ["T"] * 3, "body": [b"body"] * 3})
    written = io.BytesIO()
    with pa.ipc.new_file(written, table.schema) as writer:
        writer.write_table(table)
    sound = b"".join(number.to_bytes(4, "little") for number in (0, 4, 8, 12))
    data = written.getvalue()
    assert sound in data
    wild = data.replace(sound, sound[:8] + (0x7FFFFFF0).to_bytes(4, "little") + sound[12:])
    with message_source(io.BytesIO(wild), once=False, unique_keys=False) as source, pytest.raises(UsageError):
        list(source.pieces(as_stored=False))


def test_a_parquet_file_with_a_damaged_description_is_refused() -> None:
    """The end of a file describes its columns. Where sizes in it contradict each other Arrow ends the process, unless
    it is asked for rows first."""
    written = io.BytesIO()
    pq.write_table(pa.table({"topic": ["T"] * 3, "body": [b"body"] * 3, "queue_id": [1, 2, 3]}), written)
    data = written.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    told = 0
    for at in range(len(data) - 8 - size, len(data) - 8):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            with message_source(io.BytesIO(damaged), once=False, unique_keys=False) as source:
                list(source.pieces(as_stored=False))
        except UsageError:
            told += 1
    assert told > 100


def _read_all(source: MessageSource) -> None:
    for piece in source.pieces(as_stored=False):
        assert piece.plain is not None
        piece.plain()


def test_a_parquet_file_with_texts_that_are_none_is_refused() -> None:
    written = io.BytesIO()
    pq.write_table(pa.table({"topic": ["T"] * 3, "body": [b"body"] * 3, "keys": ["first", "other", "third"]}), written)
    damaged = written.getvalue().replace(b"other", b"ot\xc3er")
    with message_source(io.BytesIO(damaged), once=False, unique_keys=False) as source, pytest.raises(UsageError):
        _read_all(source)


def test_a_table_whose_columns_have_no_utf8_names_is_refused() -> None:
    written = io.BytesIO()
    table = pa.table({"topic": ["T"], "body": [b"body"], "queue_id": [1]})
    with pa.ipc.new_file(written, table.schema) as writer:
        writer.write_table(table)
    broken = written.getvalue().replace(b"queue_id", b"que\xff\xffe_id"[:8])
    with message_source(io.BytesIO(broken), once=False, unique_keys=False) as source, pytest.raises(UsageError):
        list(source.pieces(as_stored=False))
