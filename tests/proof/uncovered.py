"""The bytes of a store that no checksum and no second copy covers, by file and field; docs/durability.md has the list.

`python -m tests.proof.uncovered` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator

_ONLY_HERE = "covered by `__CRC32#` alone"
_WITHIN = "reported only if the value becomes impossible"
_JSON = "reported if it is invalid JSON or impossible in this store; another possible value is not"
_TIMER = "checked for what is delivered"

UNCOVERED: dict[tuple[str, str], str] = {
    ("message", "flag"): _ONLY_HERE,
    ("message", "sys_flag"): f"{_ONLY_HERE}, except bits that change the frame's shape or its queue",
    ("message", "born_timestamp"): f"{_ONLY_HERE}; {_WITHIN}",
    ("message", "born_host"): _ONLY_HERE,
    ("message", "store_timestamp"): f"{_ONLY_HERE}; {_WITHIN}, or differs from the index by a second or more",
    ("message", "store_host"): _ONLY_HERE,
    ("message", "reconsume_times"): _ONLY_HERE,
    ("message", "prepared_transaction_offset"): _ONLY_HERE,
    ("message", "properties"): f"{_ONLY_HERE}; tag and keys are also in queue and index, and are reported",
    ("checkpoint", "physic_msg_timestamp"): _WITHIN,
    ("checkpoint", "logics_msg_timestamp"): _WITHIN,
    ("checkpoint", "index_msg_timestamp"): _WITHIN,
    ("checkpoint", "master_flushed_offset"): "a value of replicas; the store has nothing to compare it with",
    ("checkpoint", "confirm_physical_offset"): _WITHIN,
    ("unit with an ext address", "tags_code"): "reported unless it points at another ext unit with the same code",
    ("ext unit", "store_timestamp"): "used by the broker to filter; not read afterwards",
    ("index header", "begin_timestamp"): "to the second only: entries count seconds from it",
    ("index header", "end_timestamp"): _WITHIN,
    ("index entry 0", ""): "never used: entries are numbered from 1",
    ("config/consumerOffset.json", ""): _JSON,
    ("config/delayOffset.json", ""): _JSON,
    ("config/subscriptionGroup.json", ""): _JSON,
    ("config/topics.json", ""): _JSON,
    ("config/timermetrics", ""): "statistics that the broker recounts",
    ("config/transactionMetrics", ""): "statistics that the broker recounts",
    ("config/timercheck", ""): _TIMER,
    ("timerlog", ""): _TIMER,
    ("timerwheel", ""): _TIMER,
    ("lock", ""): "a word that a broker writes and no program reads",
}
"""(structure, field) -> why `check --full` may miss a change of it."""

MISSED_BY_KEY: dict[tuple[str, str], str] = {
    ("index slot", "entry"): "a zero slot, or one that points at an older entry of its chain, looks valid",
    ("index entry", "key_hash"): "another hash of the same slot looks like another key",
    ("index entry", "previous_entry"): "a chain that ends early or skips its own entries looks valid",
}
"""(structure, field) -> why a query by key can miss a message after a change that `check` reports."""


def table() -> Iterator[str]:
    """Yield both lists as Markdown tables, fields with one reason in one row."""
    for head, found in (
        ("a change may be missed by `check --full`", UNCOVERED),
        ("a query by key can miss a message after a change that `check` reports", MISSED_BY_KEY),
    ):
        yield f"| fields | why {head} |"
        yield "|---|---|"
        for why in dict.fromkeys(found.values()):
            fields: dict[str, list[str]] = {}
            for structure, field in (place for place, reason in found.items() if reason == why):
                fields.setdefault(structure, []).append(f"`{field}`" if field else "all bytes")
            places = "; ".join(f"{one}: {', '.join(names)}" for one, names in fields.items())
            yield f"| {places} | {why} |"
        yield ""


if __name__ == "__main__":
    print("\n".join(table()))
