"""One RocketMQ store on one machine: open, put, get, query, recover, rebuild, clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.store.message_store import MessageStore as MessageStore


def __getattr__(name: str) -> object:
    # on first use only: whoever imports one module of the store must not pay for all of them
    if name == "MessageStore":
        from rmqctl.store.message_store import MessageStore

        return MessageStore
    raise AttributeError(f"module 'rmqctl.store' has no attribute {name!r}")
