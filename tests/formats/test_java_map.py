"""The order of a java.util.HashMap, against what real brokers and clients wrote."""

from __future__ import annotations

from rmqctl.formats.java_map import BUILT, in_java_order


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
