"""Entries of kvStore/ read many at once are those that are read one by one, in both forms of store/native."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from rmqctl.store.pop import columns, entries
from rmqctl.store.pop.entries import KvReader
from rmqctl.store.pop.records import KvEntry, doubts_of_entry, kv_entry
from tests.store.native.forms import compiled_form, plain_form

_ODD: tuple[Any, ...] = (None, True, False, "", "7", "x", 1.5, -1, 3, 1 << 31, 1 << 40, 1 << 62, 10**19, [], {}, "gé")


def _entry(lot: random.Random) -> tuple[bytes, bytes]:
    """An entry with its key: as brokers write it, or with something else in one field, or another key."""
    topic, flag = lot.choice((("T", 0), ("Tä", 0), ("%RETRY%g_T", 1), ("%RETRY%g+T", 2)))
    one = KvEntry(
        lot.choice(("g", "group")), topic, lot.randrange(3), lot.randrange(99), 10**12, 60_000, flag, 0, False
    )
    fields: dict[str, Any] = {
        "popTime": one.popped_at, "groupId": one.group, "topicId": one.topic, "queueId": one.queue_id,
        "retryFlag": flag, "invisibleTime": one.invisible, "offset": one.offset, "attemptTimes": 0, "suspend": False,
    }  # fmt: skip
    kind, key = lot.random(), one.key()
    if kind < 0.3:
        fields[lot.choice([*fields, "attemptId"])] = lot.choice(_ODD)
    elif kind < 0.4:
        fields.pop(lot.choice([*fields]))
    elif kind < 0.5:
        at = lot.randrange(len(key))
        key = lot.choice((key[:at] + bytes((key[at] ^ 1,)) + key[at + 1 :], key[:at], key + b"x"))
    text = json.dumps(fields, ensure_ascii=lot.random() < 0.5, separators=(",", ":"))
    if kind > 0.95:
        text = lot.choice((text[:-1], "", text + " ", text.replace('"offset"', '"\\u006fffset"')))
    return key, text.encode()


@pytest.mark.parametrize("form", ["compiled", "plain"])
def test_entries_read_many_at_once_are_those_read_one_by_one(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = (compiled_form if form == "compiled" else plain_form)("json_fields")
    monkeypatch.setattr(columns, "FieldReader", module.FieldReader)
    monkeypatch.setattr(entries, "same_spans", module.same_spans)
    lot, reader, taken = random.Random(5), KvReader(), 0
    for count in (1, 400, 30, 1000):
        keys, values = map(list, zip(*(_entry(lot) for _ in range(count)), strict=True))
        rows, left = reader.read(keys, values)
        chosen = sorted({*range(count)} - {*left})
        taken += len(chosen)
        for row, at in enumerate(chosen):
            entry = kv_entry(values[at])
            assert doubts_of_entry(keys[at], entry) is None
            owner = rows.owners[rows.owner[row]]
            assert (owner.group, owner.topic, owner.queue_id) == (entry.group, entry.topic, entry.queue_id)
            assert (rows.offset[row], rows.popped_at[row]) == (entry.offset, entry.popped_at)
            assert (rows.invisible[row], rows.suspend[row]) == (entry.invisible, entry.suspend)
    assert taken > 500


def test_no_values_are_left() -> None:
    assert KvReader().read([b"", b"k"], [b"", b""])[1] == [0, 1]
