"""Records read many at once are those that are read one by one, in both forms of store/native."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rmqctl.formats import properties as names
from rmqctl.formats.errors import CorruptError
from rmqctl.store import Message, MessageStore
from rmqctl.store.check.deliveries import _Seen
from rmqctl.store.options import Events
from rmqctl.store.pop import columns
from rmqctl.store.pop.load import load_columns
from rmqctl.store.pop.records import REVIVE_PREFIX, HandedOut, PopCheckpoint
from rmqctl.store.read.reader import StoreReader
from tests.store.native.forms import compiled_form, plain_form

_POPPED = 1_700_000_000_000
_ODD: tuple[Any, ...] = (
    None, True, "", "7", "x", 1.5, -1, 33, 1 << 40, 1 << 62, 10**19, [], [0], [1, 2], [2, 1], [5, 9], [True], ["1"],
    [0] * 40, {}, "g\u00e9", "g\u2028",
)  # fmt: skip


def _record(lot: random.Random) -> tuple[str, bytes, str | None]:
    """A record with its tag and TIMER_DELIVER_MS: as brokers write it, or with something else in one field."""
    number = lot.choice((1, 2, 3))
    distances = tuple(range(number)) if lot.random() < 0.8 else tuple(sorted(lot.sample(range(9), number)))
    group, topic = lot.choice(("g", "h")), lot.choice(("T", "U"))
    one = PopCheckpoint(group, topic, lot.randrange(2), lot.randrange(6), _POPPED, "b", 100, distances, number=number)
    tag = lot.choice(("ck", "ack", "bAck", "ack", "other"))
    offsets = [one.start + distance for distance in distances]
    is_batch = tag == "bAck"
    fields = json.loads(one.body() if tag == "ck" else one.key.ack_body(offsets[: 1 + 9 * is_batch], is_batch=is_batch))
    kind = lot.random()
    name = lot.choice([*fields, "queueOffsetDiff", "consumerGroup", "extra", "sp", "bm"])
    if kind < 0.3:
        fields[name] = lot.choice(_ODD)
    elif kind < 0.4:
        fields.pop(name, None)
    elif kind < 0.45 and "d" in fields:
        fields["queueOffsetDiff"] = fields.pop("d")
    body = json.dumps(fields, ensure_ascii=kind > 0.35, separators=(",", ":"), sort_keys=kind < 0.9)
    if kind > 0.95:
        body = lot.choice((body[:-1], body + " ", " " + body, body.replace('"t"', '"\\u0074"'), body[:-1] + ',"q":1}'))
    deliver = lot.choice((None, one.deliver_at, one.deliver_at, one.popped_at, 5, "x"))
    return tag, body.encode("utf-8", "replace"), None if deliver is None else str(deliver)


@pytest.mark.parametrize("form", ["compiled", "plain"])
def test_records_read_many_at_once_are_those_read_one_by_one(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = (compiled_form if form == "compiled" else plain_form)("json_fields")
    monkeypatch.setattr(columns, "FieldReader", module.FieldReader)
    lot = random.Random(7)
    with MessageStore.open(tmp_path, "rw", create=True) as store:
        for at in range(600):
            tag, body, deliver = _record(lot)
            own = {names.TAGS: tag, "UNIQ_KEY": str(at)} | ({} if deliver is None else {"TIMER_DELIVER_MS": deliver})
            store.put(Message(f"{REVIVE_PREFIX}c", body, queue_id=at % 3, properties=own))
    taken = [_columns(tmp_path, sees_all=sees_all) for sees_all in (True, False)]
    assert taken[0][1:] == taken[1][1:]
    assert len(taken[0][1]) > 100
    # it is most of them that need no look at each
    assert 0 < taken[1][0] < taken[0][0] / 2


def _columns(path: Path, *, sees_all: bool) -> tuple[int, list[HandedOut], list[str], list[object]]:
    """How many records were looked at, and what was found: messages, damage and doubts."""
    damage: list[str] = []
    with MessageStore.open(path) as store:
        seen, looked = _Seen(store.reader.files), [0]

        def damaged(error: CorruptError) -> None:
            damage.append(str(error))

        def look(where: object, record: object) -> None:
            looked[0] += 1
            seen.look(where, record)  # type: ignore[arg-type]

        reader = StoreReader(store.reader.files, Events(damage=damaged))
        found = load_columns(reader, lambda group, topic, queue_id: None, look, sees_all=sees_all)
        messages = sorted(found.messages(lambda owner: True))
        counts = [found.unmatched, found.early, found.lost_acks, seen.odd_count, sorted(found.totals(_POPPED).items())]
    return looked[0], messages, sorted(damage), counts
