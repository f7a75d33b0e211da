"""The order of a java.util.HashMap, against what real brokers and clients wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.formats.checksums import java_hash
from rmqctl.formats.properties import BUILT, PARSED, in_java_order


def test_orders_that_were_seen() -> None:
    # as a 5.3.3 broker stored a plain message, and as its clients send one
    stored = ["MSG_REGION", "UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT", "TRACE_ON"]
    put = ["KEYS", "UNIQ_KEY", "WAIT", "TAGS", "MSG_REGION", "TRACE_ON", "CLUSTER"]
    assert list(in_java_order(dict.fromkeys(put, "x"))) == stored
    assert list(in_java_order(dict.fromkeys(["TAGS", "WAIT", "KEYS", "UNIQ_KEY"], "x"), BUILT)) == [
        "KEYS", "UNIQ_KEY", "WAIT", "TAGS",
    ]  # fmt: skip


def test_a_map_grows_when_it_is_full() -> None:
    names = [chr(ord("a") + number) for number in range(13)]
    assert next(iter(in_java_order(dict.fromkeys(names[:12], "x"), BUILT))) == "a"
    # with 12 names there are 16 buckets, where p (112) is in the first; with more there are 32, and a (97) is
    twelve = dict.fromkeys([*names[:11], "p"], "x")
    assert next(iter(in_java_order(twelve, BUILT))) == "p"
    assert next(iter(in_java_order(twelve | dict.fromkeys(names, "x"), BUILT))) == "a"


def a_hash_map(names: list[str], buckets: int) -> list[str]:
    """Put one by one into a map as java.util.HashMap keeps it: chains in buckets, twice as many when it is full."""
    table: list[list[str]] = [[] for _ in range(buckets)]
    for number, name in enumerate(names, start=1):
        spread = java_hash(name) % (1 << 32)
        table[(spread ^ spread >> 16) % len(table)].append(name)
        if number > len(table) * 0.75:
            again = [one for chain in table for one in chain]
            table = [[] for _ in range(2 * len(table))]
            for one in again:
                spread = java_hash(one) % (1 << 32)
                table[(spread ^ spread >> 16) % len(table)].append(one)
    return [name for chain in table for name in chain]


@given(st.lists(st.text(max_size=6), unique=True, max_size=30), st.sampled_from((1, 4, BUILT)))
def test_any_names_are_in_the_order_of_a_map_they_are_put_into(names: list[str], buckets: int) -> None:
    assert list(in_java_order(dict.fromkeys(names, "x"), buckets)) == a_hash_map(names, buckets)


@pytest.mark.parametrize("count", [11, 12, 13, 24, 25, 96, 97])
def test_it_grows_at_three_quarters(count: int) -> None:
    names = [chr(0x100 + 37 * number) for number in range(count)]
    for buckets in (BUILT, PARSED):
        assert list(in_java_order(dict.fromkeys(names, "x"), buckets)) == a_hash_map(names, buckets)
