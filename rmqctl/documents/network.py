"""docs/network.md: what `serve` gives over the wire, made of the tables of its services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rmqctl.network.broker.services import SERVICES as BROKER_SERVICES
from rmqctl.network.nameserver.name_server import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.remoting.codes import RequestCode
from rmqctl.network.remoting.server import Limits
from rmqctl.network.remoting.services import Service

_SERVED = """\
# On the wire

Generated from the tables of services by `make docs`.

`rmqctl serve -s STORE` is a name server and a broker in one process. Unmodified clients of RocketMQ pull the store's
messages from it and mqadmin looks at it; Java clients of 5.3.3 and 4.9.8 are part of the tests
(`tests/interop/test_served.py`).

## What it is, and what it is not

- It serves for reading only. Not one byte of the store changes, and it needs no right to write. Sends are refused with
  14 (SERVICE_NOT_AVAILABLE), oneway ones are dropped; routes show topics as readable only, and `TBW102` does not exist,
  so that producers learn it early.
- It shows the store as it was when `serve` began. What another process writes into it meanwhile is not seen.
- Topics are those of `topics.json` and those that only the consume queues know. A queue that has files is readable even
  if its topic is configured with fewer. Every group that is known has its `%RETRY%` topic, in memory.
- Frames leave as they lie in the commitlog. Each is held against its size, place, CRC and queue first: a damaged one is
  passed over, as a filtered one is, and told on stderr; asked for by its offset, it is called damaged, not absent.
- A call gives at most 32 messages and 256 KiB, wherever in the log they are.
- Offsets that groups commit are kept in memory until `serve` ends. A group without an offset is told so (22), and its
  own policy says where it begins; a RocketMQ broker says 0 instead as long as the first message is in memory.
- A pull at the end of a queue waits as long as its client bears, up to 30 s: nobody writes, and clients would spin.
- Clients look messages up by offset id at the address inside the id. If that is a loopback address, or the host of
  `--listen`, `serve` listens there too; else it says so.
- There is no authentication and no TLS. Both listen at 127.0.0.1 unless told otherwise, and another address is warned
  of. Listening at all addresses, they tell each client the address that it came to.
- Queues in a RocksDB are refused. SQL92 filters, POP, transactions and high availability are not served.
"""

_BOUNDS = """\
## Bounds

| what | at most |
|---|---|
| connections to each of the two | {connections:,}, further ones are closed |
| a frame | {frame} MiB, else the connection is closed |
| a header | 1 MiB |
| frames that are not whole yet, all connections | {buffered} MiB |
| a connection without a byte in either direction | {idle:.0f} s |
| pulls that wait | {suspended:,}, further ones get 2 (SYSTEM_BUSY) |
| slow requests that wait, of all clients | {slow}, further ones get 2 |
| answers that a client does not read | it is not heard until it does |

Slow requests are answered one by one beside the others, so that no client waits for them."""


def network_document() -> str:
    """The text of docs/network.md."""
    limits = Limits()
    bounds = _BOUNDS.format(
        connections=limits.connections,
        frame=limits.largest_frame >> 20,
        buffered=limits.buffered >> 20,
        idle=limits.idle_seconds,
        suspended=limits.suspended,
        slow=limits.slow_requests,
    )
    lines = [
        _SERVED,
        bounds,
        "",
        "## Requests to the name server",
        "",
        *_table(NAME_SERVER_SERVICES),
        "",
        "## Requests to the broker",
        "",
        *_table(BROKER_SERVICES),
        "",
        "The broker sends its clients 40 (NOTIFY_CONSUMER_IDS_CHANGED) when a member of their group comes or goes.",
        "Every other request is answered with 3 (REQUEST_CODE_NOT_SUPPORTED).",
        "",
    ]
    return "\n".join(lines)


def _table(services: Mapping[int, Service[Any]]) -> Iterator[str]:
    yield "| code | request | answer |"
    yield "|---|---|---|"
    for code, service in sorted(services.items()):
        slow = " (slow)" if service.is_slow else ""
        yield f"| {code} | {RequestCode(code).name} | {service.about}{slow} |"
