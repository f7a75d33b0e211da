"""Dumps of offsets.json as Java clients write it and read it (LocalFileOffsetStore, OffsetSerializeWrapper)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqctl.store.dump.dump_file import dump_file
from rmqctl.store.dump.items import DumpItem
from rmqctl.store.dump.recognise import FileKind

# OffsetSerializeWrapper#toJson(true) of clients 4.9.8 and 5.3.3 (fastjson 1.2), and of 5.5.0 (fastjson2), byte for byte
WRITTEN_BY_4 = """{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":3,
\t\t\t"topic":"Orders"
\t\t}:0,{
\t\t\t"brokerName":"broker-b",
\t\t\t"queueId":1,
\t\t\t"topic":"%RETRY%g \\"q\\""
\t\t}:5000000000,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"Orders"
\t\t}:17
\t}
}"""
WRITTEN_BY_5 = WRITTEN_BY_4.replace("{{", "{\n\t\t{").replace(",{", ",\n\t\t{")
EMPTY = '{\n\t"offsetTable":{}\n}'
HELD = [
    ("Orders", "broker-a", 3, 0),
    ('%RETRY%g "q"', "broker-b", 1, 5_000_000_000),
    ("Orders", "broker-a", 0, 17),
]


def place(folder: Path) -> Path:
    home = folder / ".rocketmq_offsets" / "10.0.0.7@DEFAULT" / "g-bc"
    home.mkdir(parents=True)
    return home / "offsets.json"


def offsets(items: list[DumpItem]) -> list[tuple[Any, ...]]:
    rows = []
    for item in items:
        if item.kind == "client offset":
            values = {one.name: one.value for one in item.fields}
            rows.append(tuple(values[name] for name in ("topic", "broker_name", "queue_id", "offset")))
    return rows


def dumped(path: Path) -> list[DumpItem]:
    return list(dump_file(path)[1])


@pytest.mark.parametrize(
    "written", [WRITTEN_BY_4, WRITTEN_BY_5, "\ufeff" + WRITTEN_BY_4], ids=["4.9.8", "5.5.0", "mark"]
)
def test_what_a_client_wrote_is_sound(tmp_path: Path, written: str) -> None:
    path = place(tmp_path)
    path.write_text(written, encoding="utf-8")
    kind, found = dump_file(path)
    items = list(found)
    assert kind is FileKind.CLIENT_OFFSETS
    assert offsets(items) == HELD
    assert all(item.damage is None for item in items)
    values = {one.name: one.value for one in items[0].fields}
    assert (values["client_id"], values["group"]) == ("10.0.0.7@DEFAULT", "g-bc")


def test_each_offset_is_shown_with_its_bytes(tmp_path: Path) -> None:
    path = place(tmp_path)
    path.write_text(WRITTEN_BY_5.replace("Orders", "Größe"), encoding="utf-8")
    data = path.read_bytes()
    for item in dumped(path):
        assert item.raw == data[item.offset : item.offset + item.size]
        assert item.raw.startswith(b"{\n")
        assert item.raw.rsplit(b":", 1)[1] == str(item.fields[-1].value).encode()
    first, second, _ = dumped(path)
    assert next(one.offset for one in dump_file(path, at=first.offset + first.size)[1]) == second.offset


@pytest.mark.parametrize("name", ["saved", "offsets-of-host-1.json", "offsets.json"])
def test_a_loose_copy_is_read_and_names_no_group(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(WRITTEN_BY_4)
    items = dumped(path)
    assert offsets(items) == HELD
    assert {one.name: one.value for one in items[0].fields}["group"] is None


@pytest.mark.parametrize("text", [EMPTY, "{}", '{"offsetTable":null}'])
def test_a_table_without_offsets_is_sound(tmp_path: Path, text: str) -> None:
    path = place(tmp_path)
    path.write_text(text)
    (item,) = dumped(path)
    assert item.damage is None
    assert item.note == "no offsets are kept"


def test_wherever_it_is_torn_it_is_damaged_and_only_whole_offsets_are_shown(tmp_path: Path) -> None:
    path = place(tmp_path)
    whole = WRITTEN_BY_4.encode()
    ends = [
        whole.index(text)
        for text in (b',{\n\t\t\t"brokerName":"broker-b', b',{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0')
    ]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        items = dumped(path)
        assert items[-1].damage is not None, size
        assert items[-1].offset + items[-1].size == size
        # the third offset's digits may go on until the line ends
        complete = sum(size > end for end in ends) + (size > whole.rindex(b"17") + 2)
        assert offsets(items) == HELD[:complete], size


def test_the_backup_decides_what_the_client_does(tmp_path: Path) -> None:
    path = place(tmp_path)
    backup = path.with_name("offsets.json.bak")
    path.write_text(WRITTEN_BY_4[:200])
    assert "no offsets.json.bak" in str(dumped(path)[-1].note)
    backup.write_bytes(b"")
    assert "offsets.json.bak is empty" in str(dumped(path)[-1].note)
    backup.write_text(WRITTEN_BY_4)
    assert "loads offsets.json.bak instead" in str(dumped(path)[-1].note)
    assert "holds 3 offsets" in str(dumped(path)[-1].note)
    assert offsets(dumped(backup)) == HELD
    backup.write_text(WRITTEN_BY_4[:-10])
    assert "the client does not start" in str(dumped(path)[-1].note)
    assert "only while offsets.json is missing" in str(dumped(backup)[-1].note)
    backup.unlink()
    backup.mkdir()
    assert "cannot be read here" in str(dumped(path)[-1].note)


# as clients 4.9.8, 5.3.3 and 5.5.0 took them: None where all refuse
QUEUE = '{"brokerName":"b","queueId":3,"topic":"T"}'
TAKEN = {
    f'{{"offsetTable":{{{QUEUE}:0,}}}}': [("T", "b", 3, 0)],
    f'{{"offsetTable":{{{QUEUE}:"12"}}}}': [("T", "b", 3, 12)],
    f'{{"offsetTable":{{{QUEUE}:1.5}}}}': [("T", "b", 3, 1)],
    '{"offsetTable":{{"brokerName":"b","queueId":"3","topic":"T"}:-1}}': [("T", "b", 3, -1)],
    '{"offsetTable":{{"topic":"T","brokerName":"b","queueId":3}:7,' + QUEUE + ":8}}": [("T", "b", 3, 8)],
    '{"offsetTable":{{"brokerName":"b","queueId":3}:0}}': [(None, "b", 3, 0)],
    f'{{"offsetTable":{{{QUEUE}:null}}}}': None,
    f'{{"offsetTable":{{{QUEUE}:1e999}}}}': None,
    '{"offsetTable":{"T@g":{0:5}}}': None,
    '{"offsetTable":{5:5}}': None,
    '{"offsetTable":[]}': None,
    '{"offsetTable":' + "{" * 5000: None,
}


@pytest.mark.parametrize("text", TAKEN, ids=range(len(TAKEN)))
def test_forms_are_taken_as_clients_take_them(tmp_path: Path, text: str) -> None:
    path = place(tmp_path)
    path.write_text(text)
    items = dumped(path)
    expected = TAKEN[text]
    assert (items[-1].damage is not None) == (expected is None)
    assert offsets(items) == (expected or [])


def test_a_queue_in_quotes_is_said_not_to_load_everywhere(tmp_path: Path) -> None:
    path = place(tmp_path)
    path.write_text('{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":3,\\"topic\\":\\"T\\"}":9}}')
    items = dumped(path)
    assert offsets(items) == [("T", "b", 3, 9)]
    assert items[-1].damage is None
    assert "5.5.0" in str(items[-1].note)
