"""`offsets salvage-client`: what can be read of a client's torn offsets.json and of its backup, in a new file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.output import outcome as exit_codes
from rmqctl.store.config.client_offsets import read_client_offsets
from tests.rmqctl.looking import run

# as LocalFileOffsetStore of 4.9.8 and 5.3.3 writes it (RemotingSerializable#toJson)
_WHOLE = (
    '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"Orders"\n\t\t}:17,'
    '{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"Orders"\n\t\t}:20\n\t}\n}'
)
_OLDER = _WHOLE.replace(":17", ":11").replace(":20", ":12")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that was cut within its second entry."""
    path = tmp_path / "offsets.json"
    path.write_text(_WHOLE[: _WHOLE.index(":20") - 3], encoding="utf-8")
    return path


def _offsets(path: Path) -> dict[int | None, int]:
    found = read_client_offsets(path.read_bytes())
    assert (found.damage, found.why_not) == (None, "")
    return {one.queue_id: one.offset for one in found.offsets}


def test_the_readable_part_and_the_backup_for_the_rest(file: Path) -> None:
    file.with_name("offsets.json.bak").write_text(_OLDER, encoding="utf-8")
    before = {path: path.read_bytes() for path in file.parent.iterdir()}
    new = file.parent / "new.json"
    done = run("offsets", "salvage-client", file, "--to", new, "--json")
    assert done.code == exit_codes.OK, done.err
    assert _offsets(new) == {0: 17, 1: 12}
    sources = {row["queue_id"]: row["source"] for row in done.objects[0]["offsets"]}
    assert sources == {0: "file", 1: "backup"}
    assert {path: path.read_bytes() for path in before} == before


def test_without_a_backup_the_readable_part(file: Path) -> None:
    new = file.parent / "new.json"
    shown = run("offsets", "salvage-client", file, "--to", new)
    assert (shown.code, _offsets(new)) == (exit_codes.OK, {0: 17})
    assert "offsets.json.bak: the file is not there" in shown.err


def test_a_file_that_is_there_is_refused_and_nothing_is_an_answer(file: Path) -> None:
    there = file.parent / "there"
    there.touch()
    assert run("offsets", "salvage-client", file, "--to", there).code == exit_codes.REFUSED
    assert there.read_bytes() == b""
    file.write_bytes(b"")
    done = run("offsets", "salvage-client", file, "--to", file.parent / "new")
    assert (done.code, (file.parent / "new").exists()) == (exit_codes.DAMAGE_OR_NOTHING, False)


def test_clients_of_5_5_refuse_queues_in_a_table_that_they_do_not_know() -> None:
    found = read_client_offsets(b'{"offsetTabl":{{"brokerName":"b","queueId":0,"topic":"T"}:1}}')
    assert (found.offsets, found.damage) == ([], None)
    assert found.why_not == "5.5.0: a name without quotes in a table that it does not know"
