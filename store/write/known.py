"""What is looked up for ordinary messages instead of being made for each: topics, stored properties, hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from rmqctl.formats.hosts import Host
from rmqctl.formats.layouts import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TRANSACTION_MASK,
)
from rmqctl.formats.message import NO_PROPERTIES
from rmqctl.store.config.config import StoreConfig
from rmqctl.store.native.put import KnownTopic, NextOffset
from rmqctl.store.write.prepare import Writer, property_template, property_writer

# flags that make a message take the slow path
UNUSUAL_FLAGS = TRANSACTION_MASK | SYS_FLAG_INNER_BATCH | SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_REMEMBERED = 4096
_LARGEST_TOPIC = 127


def packed_host(host: Host | None) -> bytes | None:
    """The eight bytes of an IPv4 host in a frame; None for IPv6, and for what is no host at all."""
    if host is None:
        return None
    try:
        ip = host.as_written.ip
        return ip + host.port.to_bytes(4, "big", signed=True) if len(ip) == 4 else None
    except (AttributeError, OverflowError, TypeError):
        return None


class Known:
    """What one store knows of its ordinary messages.

    `is_possible`: whether there is a fast path in this store at all. `topics` by name, and `names` of properties, each
    with its stored bytes and the separator behind them: keys of both are plain texts, whose comparison runs no code
    of anybody's.
    """

    def __init__(self, config: StoreConfig, store_host: Host) -> None:
        self.is_possible = _is_ordinary_store(config) and not store_host.is_v6
        self.largest_body = config.max_message_size
        self.store_host = store_host
        self.packed_store_host = packed_host(store_host) or bytes(8)
        self.topics: dict[str, KnownTopic] = {}
        self.names: dict[str, bytes] = {}
        self._writers: dict[tuple[str, ...], Writer] = {}

    def learn(self, topic: str, queue_id: int, entry: NextOffset) -> None:
        """A message for this queue has taken the slow path, as new and into this very queue of 20-byte units. Under the
        put lock."""
        if type(topic) is not str or type(queue_id) is not int:
            return
        known = self.topics.get(topic)
        if known is None:
            encoded = topic.encode("utf-8")
            if len(encoded) > _LARGEST_TOPIC:
                return
            field = TOPIC_LENGTH_V1.struct.pack(len(encoded)) + encoded
            known = self.topics[topic] = KnownTopic(field, {})
        known.queues[queue_id] = entry

    def properties_of(self, properties: Mapping[str, str]) -> bytes | None:
        """The stored form of ordinary properties; None for any other, and for what is no text."""
        if type(properties) is not dict and properties is not NO_PROPERTIES:
            return None
        write = self._writer_of(tuple(properties))
        if write is None:
            return None
        try:
            text = write(properties)
            return None if text is None else text.encode()
        except (UnicodeError, TypeError):
            return None

    def learn_names(self, properties: Mapping[str, str]) -> None:
        """Know the names of these properties, if they are ordinary."""
        if len(self.names) < _REMEMBERED and property_template(tuple(properties)) is not None:
            # half of a surrogate pair: the slow path refuses such a message and tells why
            with contextlib.suppress(UnicodeError):
                self.names.update({name: f"{name}\x01".encode() for name in properties})

    def _writer_of(self, property_names: tuple[str, ...]) -> Writer | None:
        write = self._writers.get(property_names)
        if write is None:
            write = property_writer(property_names)
            if write is not None and len(self._writers) < _REMEMBERED:
                self._writers[property_names] = write
        return write


def _is_ordinary_store(config: StoreConfig) -> bool:
    """Whether messages of this store can take the fast path: not where frames go elsewhere or are completed late."""
    return (
        not config.uses_transient_store_pool
        and not config.enabled_append_prop_crc
        and (not config.is_slave or config.duplication_enable)
    )
