"""pytest finds the fixture `rocketmq` of rmqctl by itself: a broker with a gRPC port, without Java or a container."""

import queue

from orders import Billing, place_order

from rmqctl.testing import RocketMQ


def test_an_order_is_sent(rocketmq: RocketMQ) -> None:
    rocketmq.create_topics("Orders:NORMAL")
    order = place_order(rocketmq.grpc, "order-7")
    (stored,) = rocketmq.expect("Orders")
    assert (stored.body, stored.properties()["KEYS"]) == (b"order-7", "order-7")
    assert stored.properties()["UNIQ_KEY"] == order


def test_an_order_that_cannot_be_billed_is_billed_later(rocketmq: RocketMQ) -> None:
    rocketmq.create_topics("Orders:NORMAL:1")
    calls: queue.Queue[str] = queue.Queue()
    failures = [ConnectionError("no bank")]

    def bill(number: str) -> None:
        calls.put(number)
        if failures:
            raise failures.pop()

    with Billing(rocketmq.grpc, bill):
        rocketmq.send("Orders", "order-8")
        assert calls.get(timeout=20) == "order-8"
        assert calls.get(timeout=20) == "order-8"
    assert calls.empty()
    assert rocketmq.reports == []
