"""End ordered pops that lock their queue: release what they handed out, or take it for consumed."""

from __future__ import annotations

from typing import Any

from rmqctl.formats.config_json import format_config_json
from rmqctl.formats.errors import NotFoundError, RefusedError, counted
from rmqctl.store.answers.config_offsets import offset_key
from rmqctl.store.config.config_files import load_config
from rmqctl.store.offsets.change import Deciding, Decision, OffsetChange
from rmqctl.store.pop.load import order_entries
from rmqctl.store.pop.records import KV, KV_FOLDER, ORDER_FILE, OrderedPop
from rmqctl.store.pop.state import PopState


def end_pops(group: str, topic: str | None = None, queue_id: int | None = None, *, finish: bool = False) -> Decision:
    """Remove the group's last ordered pop of each queue from consumerOrderInfo.json, which unlocks the queue.

    Without `finish` the next pop hands the messages out again from the committed offset on. With it the offset goes to
    the end of the pop, so messages without acknowledgement are skipped. Raises: RefusedError for a group whose pops are
    kept in messages or in kvStore/; NotFoundError where nothing is locked.
    """

    def decide(deciding: Deciding) -> list[OffsetChange]:
        path = deciding.reader.files.layout.config / ORDER_FILE
        loaded = load_config(path)
        content: dict[str, Any] = {} if loaded is None or not isinstance(loaded.content, dict) else loaded.content
        table = content.get("table")
        table = table if isinstance(table, dict) else {}
        rows: list[OffsetChange] = []
        kept: dict[Any, Any] = {}
        for name, by_queue in table.items():
            owner = offset_key(name)
            is_named = owner is not None and owner.group == group and topic in (None, owner.topic)
            if not is_named or owner is None or not isinstance(by_queue, dict):
                kept[name] = by_queue
                continue
            left = dict(by_queue)
            for key, entry in by_queue.items():
                ((_, number, pop),) = order_entries({name: {key: entry}})
                if number is None or queue_id not in (None, number):
                    continue
                if isinstance(pop, OrderedPop):
                    del left[key]
                    rows.append(_row(deciding, group, owner.topic, number, pop, finish=finish))
                else:
                    deciding.tell(f"{name} queue {number} is no ordered pop ({pop}): it stays")
            if left:
                kept[name] = left
        if not rows:
            _refuse(deciding, group, topic)
        deciding.write(path, format_config_json({**content, "table": kept}).encode("utf-8"))
        return sorted(rows, key=lambda row: row[:3])

    return decide


def _row(deciding: Deciding, group: str, topic: str, queue_id: int, pop: OrderedPop, *, finish: bool) -> OffsetChange:
    before = deciding.file.offsets(group, topic).get(queue_id)
    open_ones = [offset for at, offset in enumerate(pop.offsets) if not pop.is_acked(at)]
    last = pop.offsets[-1] + 1
    row = deciding.row(group, topic, queue_id, last if finish else before)
    if finish:
        done = "taken for consumed: " + counted(len(open_ones), "message")
        return row._replace(skipped=len(open_ones), again=0, detail=done)
    again = last - (pop.next_offset if before is None else before)
    return row._replace(
        again=max(0, again), skipped=0, detail=f"unlocked, {counted(max(0, again), 'message')} to come again"
    )


def _refuse(deciding: Deciding, group: str, topic: str | None) -> None:
    found = [one for one in PopState(deciding.reader, 0).groups() if one.group == group and topic in (None, one.topic)]
    kept = {one.way for one in found}
    if KV in kept:
        raise RefusedError(
            f"what {group} has in flight is kept in {KV_FOLDER}/, a RocksDB that rmqctl does not write",
            hint="start the broker: clients acknowledge, and revive hands out again what is overdue",
        )
    if kept:
        raise RefusedError(
            f"what {group} has in flight is kept in messages of the log, which no change takes back",
            hint="start the broker: clients acknowledge, and revive puts what is overdue into the retry topic",
        )
    raise NotFoundError(f"no queue is locked for group {group!r}", hint="`rmqctl groups --pop` shows what is in flight")
