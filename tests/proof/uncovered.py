"""The bytes of a store that no checksum and no second copy covers, by file and field; docs/durability.md has the list.

`python -m tests.proof.uncovered` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator

_ONLY_HERE = "stands here alone; only `__CRC32#` covers it (enabledAppendPropCRC, 5.x)"
_WITHIN = "told only where it becomes impossible: it lies before or behind what it has to"
_JSON = "told where it is no JSON any more, or not possible in this store; another value that is possible is not"
_TIMER = "the timer's own file, which check does not read"

UNCOVERED: dict[tuple[str, str], str] = {
    ("message", "flag"): _ONLY_HERE,
    ("message", "sys_flag"): f"{_ONLY_HERE}, but the bits that change the frame's shape or take it out of its queue",
    ("message", "born_timestamp"): f"{_ONLY_HERE}; {_WITHIN}",
    ("message", "born_host"): _ONLY_HERE,
    ("message", "store_timestamp"): f"{_ONLY_HERE}; {_WITHIN}, or the index has another second",
    ("message", "store_host"): _ONLY_HERE,
    ("message", "reconsume_times"): _ONLY_HERE,
    ("message", "prepared_transaction_offset"): _ONLY_HERE,
    ("message", "properties"): f"{_ONLY_HERE}; tag and keys stand in queue and index as well, and are told",
    ("checkpoint", "physic_msg_timestamp"): _WITHIN,
    ("checkpoint", "logics_msg_timestamp"): _WITHIN,
    ("checkpoint", "index_msg_timestamp"): _WITHIN,
    ("checkpoint", "master_flushed_offset"): "of replicas; nothing here says what it should be",
    ("checkpoint", "confirm_physical_offset"): _WITHIN,
    ("unit with an ext address", "tags_code"): "told unless it leads to another ext unit with the same code",
    ("ext unit", "store_timestamp"): "the broker filters by it; nothing reads it afterwards",
    ("index header", "begin_timestamp"): "to the second only: entries count seconds from it",
    ("index header", "end_timestamp"): _WITHIN,
    ("index entry 0", ""): "never used: entries are numbered from 1",
    ("config/consumerOffset.json", ""): _JSON,
    ("config/delayOffset.json", ""): _JSON,
    ("config/subscriptionGroup.json", ""): _JSON,
    ("config/topics.json", ""): _JSON,
    ("config/timermetrics", ""): "numbers that the broker shows, and counts anew",
    ("config/transactionMetrics", ""): "numbers that the broker shows, and counts anew",
    ("config/timercheck", ""): _TIMER,
    ("timerlog", ""): _TIMER,
    ("timerwheel", ""): _TIMER,
    ("lock", ""): "a word that a broker leaves there; nobody reads it",
}
"""(structure, field) -> why a change of it may go unseen by `check --full`."""

MISSED_BY_KEY: dict[tuple[str, str], str] = {
    ("index slot", "entry"): "a slot that is zero, or leads to an older entry of its chain, looks like one",
    ("index entry", "key_hash"): "another hash of the same slot looks like another key",
    ("index entry", "previous_entry"): "a chain that ends early, or leaves entries of its own out, looks like one",
}
"""(structure, field) -> why a query by key can miss a message after a change of it, which `check` tells."""


def table() -> Iterator[str]:
    """Both lists as tables of Markdown."""
    yield "| of | field | why a change may go unseen by `check --full` |"
    yield "|---|---|---|"
    for (structure, field), why in UNCOVERED.items():
        yield f"| {structure} | {f'`{field}`' if field else 'all of it'} | {why} |"
    yield ""
    yield "| of | field | why a query by key can miss a message after a change of it, which `check` tells |"
    yield "|---|---|---|"
    for (structure, field), why in MISSED_BY_KEY.items():
        yield f"| {structure} | `{field}` | {why} |"


if __name__ == "__main__":
    print("\n".join(table()))
