"""Odd forms of config files, held against what the config loaders of RocketMQ 4.9.8, 5.3.3 and 5.5.0 made of each.

Each line of config_forms.jsonl.xz is one file: its name, its bytes as Latin-1, and for each version whether
ConfigManager#load took it as a backup (`loads`) and the table it had then. The 4.9.8 rows come from the broker of 4.9.7
over common, store and fastjson of 4.9.8, as no broker of 4.9.8 is published.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats.errors import CorruptError
from rmqctl.store.config.config_tables import TABLES, is_white_space, load_config_text, white_space_read_by
from rmqctl.store.config.config_text import read_torn_text
from rmqctl.store.config.releases import VERSIONS

_ROWS = [
    json.loads(line)
    for line in lzma.decompress((Path(__file__).parent / "config_forms.jsonl.xz").read_bytes()).decode().splitlines()
]
# (form, why): what is not followed. Nobody writes these, and each is called unread, never read wrongly.
_CALLED_UNREAD = {
    "empty-text": "two quotes alone load as an empty table",
    "offset-key-true": "`true` for a queue id",
    "offset-ref-entry": "fastjson's references",
    "offset-ref-in-map": "fastjson's references",
    "offset-type-in-map": "fastjson's type names",
    "table-empty-text": "an empty text for the table",
    "value-NaN": "NaN for a field keeps its default",
    "value-e30": "numbers beyond Java's long",
    "value-list": "5.5.0 unpacks a list of one number",
    "value-object": "5.5.0 takes an object for 0",
}
# fastjson passes over one character of any kind behind an object
_CALLED_UNREAD |= {f"no-break-space-behind-brace-{number}": "" for number in range(4)}
_CALLED_UNREAD |= {f"no-break-space-line-{number}": "" for number in (7, 9, 12, 13)}
_CALLED_READ = {
    "offset-group-null": "a bare null for a group",
}
_FIELDS = {
    "topics.json": (("topicName", None), ("readQueueNums", 16), ("writeQueueNums", 16), ("perm", 6), ("order", False)),
    "subscriptionGroup.json": (
        ("groupName", None),
        ("consumeEnable", True),
        ("retryQueueNums", 1),
        ("retryMaxTimes", 16),
        ("brokerId", 0),
    ),
}


def _table(name: str, value: Any) -> Any:
    table = value.get(TABLES[name].name, {}) if isinstance(value, dict) else {}
    if name in _FIELDS:
        return {key: [entry.get(field, default) for field, default in _FIELDS[name]] for key, entry in table.items()}
    return json.loads(json.dumps(table))


def test_there_are_forms_of_every_file_and_version() -> None:
    for name in TABLES.keys() - {"lmqConsumerOffset.json"}:
        rows = [row for row in _ROWS if row["file"] == name]
        assert len(rows) > 100, name
        for version in VERSIONS:
            taken = [row[version]["loads"] for row in rows if version in row]
            assert len(taken) > 100, (name, version)
            assert {True, False} <= set(taken), (name, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(TABLES.keys() - {"lmqConsumerOffset.json"}))
def test_each_form_is_taken_as_that_version_takes_it(name: str, version: str) -> None:
    for row in _ROWS:
        data = row["bytes"].encode("latin-1")
        if row["file"] != name or version not in row or not data:
            continue
        truth, form = row[version], row["form"]
        if is_white_space(data):
            assert (version in white_space_read_by(name, data)) == truth["loads"], form
            continue
        try:
            found = load_config_text(name, data)
        except CorruptError:
            assert not truth["loads"] or form in _CALLED_UNREAD, form
            continue
        is_read = version in found.read_by
        if is_read and not truth["loads"]:
            assert form in _CALLED_READ, form
        elif truth["loads"] and not is_read:
            assert form in _CALLED_UNREAD, (form, found.why_not)
        elif is_read and version not in found.passed_over:
            # null is a table that a broker has and fails on; `check` reports it
            assert (_table(name, found.value) or {}) == (truth["table"] or {}), form


def test_what_one_version_refuses_is_said() -> None:
    found = load_config_text("consumerOffset.json", b'{offsetTable:{"T@g":{0:15}}}')
    assert found.read_by == {"4.9.8", "5.3.3"}
    assert found.why_not == "5.5.0: a name without quotes"


@pytest.mark.parametrize(
    ("torn", "expected"),
    [
        (b'{"offsetTable":{"T@g":{0:15,1:1', {"offsetTable": {"T@g": {0: 15}}}),
        (b'{"offsetTable":{"T@g":{0:15,1:16}, "U@', {"offsetTable": {"T@g": {0: 15, 1: 16}}}),
        (b'{"offsetTable":{"T@g":{0:15}}}\n"x"}', {"offsetTable": {"T@g": {0: 15}}}),
        (b"\0" * 40, None),
        (b"", None),
    ],
)
def test_whole_members_of_torn_text_are_read(torn: bytes, expected: Any) -> None:
    assert read_torn_text(torn) == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("null", "null, not a number"),
        ("{}", "object, not a number"),
        (f"{1 << 64}", f"{1 << 64}, which is out of range"),
        ("1" + "0" * 40, "a number that is out of range"),
    ],
)
def test_what_is_no_offset_is_named(value: str, said: str) -> None:
    with pytest.raises(CorruptError, match=f"no broker loads it: T@g 0 is {said}"):
        load_config_text("consumerOffset.json", b'{"offsetTable":{"T@g":{0:%s}}}' % value.encode())
