"""Orders are placed, and billed once each."""

from collections.abc import Callable

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)


def place_order(proxy: str, number: str) -> str:
    """Send an order; return its message id."""
    producer = Producer(ClientConfiguration(proxy, Credentials()), ["Orders"])
    producer.startup()
    try:
        message = Message()
        message.topic, message.body, message.keys = "Orders", number.encode(), number
        return str(producer.send(message).message_id)
    finally:
        producer.shutdown()


class Billing(MessageListener):
    """Bills each order that it gets; one that cannot be billed comes again."""

    def __init__(self, proxy: str, bill: Callable[[str], None]) -> None:
        self.bill = bill
        self.consumer = PushConsumer(
            ClientConfiguration(proxy, Credentials()), "billing", self, {"Orders": FilterExpression()}
        )

    def consume(self, message: Message) -> ConsumeResult:
        """Bill an order."""
        try:
            self.bill(message.body.decode())
        except ConnectionError:
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS

    def __enter__(self) -> "Billing":
        self.consumer.startup()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.shutdown()
