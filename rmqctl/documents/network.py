"""docs/network.md, from the tables of services of `serve`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from rmqctl.network.broker.services import SERVICES, services_of
from rmqctl.network.broker.settings import BrokerSettings, is_changeable, is_cleaning
from rmqctl.network.ha.master import SlaveLimits
from rmqctl.network.nameserver import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.remoting.requests import Service, WhenReadOnly
from rmqctl.network.remoting.server import Limits
from rmqctl.store.config.config import KEYS
from rmqctl.store.config.releases import RELEASES

_SERVED = """\
# Network

`rmqctl serve -s STORE` is a name server and a broker in one process, for unmodified clients and mqadmin. Tests
run Java clients of 5.5.0, 5.3.3 and 4.9.8 against it, and its own clients against real brokers (`tests/interop`).

## Read-only

- No byte of the store changes. Sends are refused with 14 (SERVICE_NOT_AVAILABLE), routes show topics as read-only.
- It shows the store as it was at start. A store at rest whose queues or index lag, are torn or lost is served as
  `recover` would leave it, from a temporary folder ([Recovery](recovery.md#the-store-as-recovered)).
- Topics come from `topics.json` and from the queues. Committed offsets stay in memory until `serve` ends.

## With --writable

- The store is opened under the broker's lock and must be intact; after a crash, run `recover` or give `--recover`.
- Messages are checked and stored as by a broker, with its codes and properties. Settings come from broker.conf and the
  list below.
- Consumer offsets are written every 5 s, delay offsets every 10 s, only for messages on disk. An offset past the log is
  reset at start and reported.
- Delayed messages, retries and transactions continue after a restart; deliveries since the last save repeat.
- Messages with a delivery time (`TIMER_DELAY_SEC`, `TIMER_DELAY_MS`, `TIMER_DELIVER_MS`) are delivered within a second;
  `TIMER_DEL_UNIQKEY` recalls one, and with `recallMessageEnable=true` the handle of a send (370). A kill loses none and
  repeats the last second. `serve` continues a broker's wheel, a broker continues `timerlog`.
- A deleted topic disappears with its offsets; its messages stay until they expire. A topic created again continues
  after them. `topics.json` lists it with the log's end under `rmqctlDeletedTopics`, which brokers ignore.
- Expired files are removed only with `--clean`.
- `--as VERSION` selects headers, configuration keys, topic attributes and remarks of that version; as 5.5.0 also
  queries for tags (`indexType=T`). As 4.9.8 requests of 5.x are answered with 3, and a reset of a group without
  members is left to mqadmin (206). The offset for a time is the first message at or after it, where 4.x takes the
  nearest one.
- POP works, ordered or not, for clients of 5.x and groups that `setConsumeMode` sets to POP. Checkpoints and
  acknowledgements are stored in the revive topic, last ordered pops in consumerOrderInfo.json: brokers of 5.x continue
  from them, and `serve` from theirs. Checkpoints are stored before messages leave, enablePopBufferMerge or not. What is
  in flight in kvStore/ moves to the revive topic; kvStore/ becomes kvStore.moved/. A
  handle of no message in flight changes nothing.
- A reply (324, 325) is pushed to the producer (326), and stored unless `storeReplyMessageEnable=false`.

## Both modes

- Each frame is checked (size, offset, CRC, queue) and sent as it is on disk. A damaged one is skipped and reported on
  stderr; asked for by offset, it is reported as damaged.
- Clients look up offset ids at the address in the id. `serve` also listens there if it is a loopback address or the
  host of `--listen`.
- Both ports listen on 127.0.0.1 by default. **Without `--auth` there is no authentication.** With it the broker asks
  users and ACLs of the store (5.3 and later), or of `--auth plain_acl.yml`, as RocketMQ does; what RocketMQ has no rule
  for takes access to the cluster. They are read once. Name server, slaves and metrics are not guarded.
- With `--tls-cert` and `--tls-key` they also accept TLS 1.2 and later.
- `--register HOST:PORT` registers the broker with other name servers, every 30 s and at changes.
- SQL92 filters work with `enablePropertyFilter=true` in `-c`, as in RocketMQ; with `--writable` they are kept in
  `consumerFilter.json`.

## gRPC

`--grpc HOST:PORT` (extra `grpc`, default 127.0.0.1:8081) serves the clients of RocketMQ 5 with all calls and statuses
of its proxy. Lite topics get NOT_IMPLEMENTED.

- The rules are those of remoting. A send needs a topic of the message's type (`--topic NAME:FIFO`) and creates none.
- A receipt handle that the group was not given gets INVALID_RECEIPT_HANDLE. Bodies that only remoting clients can
  unpack leave unpacked.
- Read-only, a group without an offset begins at the first message, what is in flight is in memory, and there are no
  dead letters.
- Limits: 5,000 connections, 10,000 calls, 16 MiB a request, 16 KiB of metadata. When memory grows by 256 MiB, calls
  that take over 0.1 s end with RESOURCE_EXHAUSTED. With `--tls-cert` it takes TLS too, slower.

## Clients

`rmqctl produce` and `consume` work with any broker. The same code is a library, over sockets or, with
`LocalBroker`, in one process with an open store.

**Producer.** A message is tried up to three times within 3 s, each time on another broker. Bodies of 4096 bytes and
more are compressed. Heartbeats and route lookups run every 30 s.
`--setting NAME=VALUE` and `ProducerSettings` take the settings of Java's DefaultMQProducer; an unknown name lists them.

- With `--namespace`, or a name server address such as `http://MQ_INST_user_name.host:9876`, brokers see NAMESPACE%NAME.
- `send_soon` waits while 65,535 messages or 100 MiB are in flight; enableBackpressureForAsyncMode=true sets own limits.
- `--latency-fault` avoids a failed broker for 10 s and a slow one for up to 30 s.
- `--order-key KEY` selects a queue as Java's SelectMessageQueueByHash; `@NAME` takes the key from a property.
- `--from FILE --batch N` sends batches up to 1,000,000 bytes; delayed, timed and retry messages go alone.
- `Producer.request` waits for a reply (`Producer.reply`).

**Consumer.** A subscription is an expression of tags, or `BySql("a > 5")` of `rmqctl.store.read.filter`. Members of a
group share queues with the strategies of Java clients (`rmqctl.network.clients.membership`), commit every 5 s
and read the retry topic. If live members subscribe differently, it refuses to join unless `--force` is given. It waits
for name servers, brokers and topics that are missing, and survives their loss; `consume` fails at once at its start,
later after 30 s. `close` reports offsets that could not be committed (`uncommitted`); `consume` then exits with 3. A
consumer pulls from the suggested slave and commits to the master. It answers brokers (220, 221, 307). Warnings go to
`warn`, by default to the log `rmqctl.network`.

**Hooks and traces.** `producer.hooks` (`sending`, `forbidding`, `ending`) and `consumer.hooks` run before and after
sends and consumption. `--trace` sends message traces in RocketMQ's format in the background (to `--trace-topic`);
`mqadmin queryMsgTraceById`, `rmqctl query --traces` and `rmqctl cat` read them. More than 2048 waiting records are
discarded and reported.

`PushConsumer` calls a function for every message, as DefaultMQPushConsumer (`consume --exec`, `--ordered`,
`--broadcast`):

```python
from rmqctl.formats.message import Message
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import ConsumeStatus, PushSettings
from rmqctl.network.serving import LocalBroker
from rmqctl.store import MessageStore


def pay(messages, context):
    return ConsumeStatus.CONSUME_SUCCESS if messages[0].body == b"one" else ConsumeStatus.RECONSUME_LATER


with MessageStore.open("push-store", "rw", create=True) as store, LocalBroker(store) as local:
    with Producer(local.namesrv, dial=local.dial) as producer:
        producer.send(Message("Orders", b"one"))
    options = MemberOptions(begin="first", dial=local.dial)
    settings = PushSettings(threads=4)
    with PushConsumer(local.namesrv, "paying", {"Orders": "*"}, pay, settings=settings, options=options) as consumer:
        consumer.wait_to_the_end()
        print(consumer.count)
```

- Only CONSUME_SUCCESS acknowledges. Other results and exceptions send the message back: it returns after 10 s, 30 s,
  1 min and so on, and becomes a dead letter after `max_reconsume_times` (-1: the group's 16).
- The committed offset is the smallest one without a result. A callback longer than `consume_timeout` (15 min) counts as
  failed.
- Pulls of a queue wait while it holds more than 1000 messages, 100 MiB or a span of 2000 offsets.
- `on_ordered` locks queues and renews locks every 20 s. A failed message blocks its queue for `suspend_seconds`.
- With `broadcast` each member gets all messages and keeps offsets in `~/.rocketmq_offsets`, as RocketMQ's clients do.
- With `MemberOptions(client_rebalance=False)` (`consume --no-client-rebalance`) brokers of 5.x share out the queues, by
  `averagely` or `by_circle`. Groups that a broker has set to POP are refused.
- Queues are shared out every 20 s and when members change. `close` waits 30 s for callbacks (`close_seconds`).

`rmqctl topics`, `groups -n` and `cluster` answer as
mqadmin's topicList, consumerProgress and clusterList; a broker that does not answer is named, and the exit
code is 3.
"""

_SLAVES = """\
## Slaves and mirrors

`rmqctl mirror HOST:PORT DIR` follows a master of 4.x or 5.x at its HA port (haListenPort, default 10912), and
`serve --ha-listen HOST:PORT` lets RocketMQ's slaves and mirrors follow a store.
Masters under a controller and DLedger are refused with `--broker`.

A mirror

- is the master's log byte for byte. `--broker HOST:PORT` (remoting port) supplies bounds, file sizes, topics, groups
  and offsets every 10 s. Without it, a log that no longer begins at 0 is available only from its last file (`--from
  last-file`). Timer wheels are not copied.
- does not acknowledge unless `--acknowledge` is given; then a SYNC_MASTER counts it as a slave. A SYNC_MASTER of 4.x
  without another slave delays its producers by up to 3 s: it is refused with `--broker` unless `--force` is given.
- continues after a break. The master resends the last 64 KiB; if they differ, or the logs do not meet, nothing is
  written.
- is a complete store when it ends, also after Ctrl-C or when the master is gone for `--give-up` seconds. After a
  kill, run it again or run `recover`. Damage of the master's log is copied; the exit code is then 1.

A master (`--ha-listen`)

- sends files from the kernel to the socket, in frames of 32 KiB, one thread per slave.
- answers slaves (906, 103, 21, 43, 45, 201, 402), also two ports below the broker's port.
- suggests slaves as RocketMQ does (slaveReadEnable, accessMessageInMemoryMaxRatio, and the group's brokerId and
  whichBrokerWhenConsumeSlowly): consumers go on there.
- with `--writable` and `brokerRole=SYNC_MASTER` waits for inSyncReplicas - 1 slaves, at least one: 12
  (FLUSH_SLAVE_TIMEOUT) after slaveTimeout, 11 (SLAVE_NOT_AVAILABLE) without a slave. The message is stored anyway.
"""

_BOUNDS = """\
## Metrics and limits

On a terminal, a line on stderr shows connections, requests, bytes and waiting pulls each second; with `--json` it is an
object. `--metrics HOST:PORT` serves `GET /metrics` for Prometheus. `rmqctl_slave_lag_bytes` is what a slave has not
acknowledged, `rmqctl_slave_unsent_bytes` what was not sent yet, `rmqctl_pop_messages` what pops
have in flight.

| what | limit |
|---|---|
| connections to each of the two | {connections:,}, further ones are closed |
| a frame | {frame} MiB, else the connection is closed |
| a header | 1 MiB |
| incomplete frames, all connections | {buffered} MiB |
| an idle connection | {idle:.0f} s |
| waiting pulls | {suspended:,}, further ones get 2 (SYSTEM_BUSY) |
| waiting slow requests, all clients | {slow}, further ones get 2 |
| unread answers of a client | its requests wait |
| slaves | {slaves}, further ones are closed |
| a slave without a report | {silence:.0f} s |"""


_DIFFERENCES = """\
## Differences from the real broker

`tests/interop/test_frames.py` sends the same requests to the real broker and to `serve --writable`, and compares codes,
remarks, fields and bodies. These differ:

- An acknowledgement by a handle of no message in flight is not stored, a change of its invisible time gets 208. An
  invisible time beyond timerMaxDelaySec is refused with 29; a broker hands out messages that never come again.
- Every group that has offsets has its retry topic; a broker makes it when the first member comes.
- A missing field is named; a broker reports a NullPointerException.
- A missing message and one past the end of the log have different answers.
- Remarks of sends name the status of the put and the error.
- A setting that cannot be changed at run time is refused with 16; a broker answers 0 and ignores it.
- A request without effect here is an error; a broker answers 0: a limit of cold data (2001), a check of queues in a
  RocksDB (354), and, without `--clean`, the removal of expired files (306, 329).
- A change of an invisible time names an offset that no queue has.
- Units of a missing queue are refused with 1; a broker answers 0 without a body.
- In 317 pullOffset is set for all groups; a broker leaves it 0, and the sum negative.
- 223 names a group without members; a broker reports a NullPointerException.
- A topic is deleted without a timer wheel too; a broker fails with 1.
- As 4.9.8 a batch for a retry topic is refused with 13, where 4.x reports a BufferUnderflow.
- As 4.9.8 the black list is that of 4.9.8.
"""


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
        slaves=SlaveLimits().connections,
        silence=SlaveLimits().silence,
    )
    lines = [
        _SERVED,
        _SLAVES,
        bounds,
        "",
        "## Settings of broker.conf, with --writable",
        "",
        *_settings(),
        "",
        "## Requests to the name server",
        "",
        *_table(NAME_SERVER_SERVICES),
        "",
        "## Requests to the broker",
        "",
        *_table(services_of(writable=False, release=RELEASES["5.5.0"])),
        "",
        "### With --writable: additional",
        "",
        *_table({code: one for code, one in SERVICES.items() if one.when_read_only is not WhenReadOnly.SERVED}),
        "",
        "The broker sends clients 40 (NOTIFY_CONSUMER_IDS_CHANGED) when members of their group change, and",
        "39 (CHECK_TRANSACTION_STATE) to a producer with an open transaction.",
        "All others get 3 (REQUEST_CODE_NOT_SUPPORTED).",
        "",
        "A header field that is missing or no number is named in the answer (1).",
        "",
        _DIFFERENCES,
    ]
    return "\n".join(lines)


# of requests with one answer so many have their names, too
_NAMED = 1


def _settings() -> Iterator[str]:
    """Yield the settings; `*` marks those that can be changed at run time."""
    found = []
    for name in BrokerSettings._fields:
        first, *others = name.split("_")
        key = f"{first}{''.join(map(str.capitalize, others))}"
        found.append(f"{key}{'*' if is_changeable(key) else ''}")
    yield from textwrap.wrap(f"{', '.join(found)}.", 120, break_long_words=False)
    yield ""
    fixed = " and ".join(one.name for one in KEYS if is_cleaning(one.name) and not is_changeable(one.name))
    yield from textwrap.wrap(
        "`mqadmin updateBrokerConfig` (25) changes those with `*` until `serve` ends; with `--clean` also "
        f"those of [cleaning](config.md#cleaning) but {fixed}. All keys of a request apply, or none. Others are "
        "refused with 16, invalid values with 29.",
        120,
    )


def _table(services: Mapping[int, Service[Any]]) -> Iterator[str]:
    """Yield the codes that are answered as by RocketMQ, then a table of the others; one answer has one row."""
    usual: list[str] = []
    answers: dict[str, list[str]] = {}
    for code, service in sorted(services.items()):
        is_other = re.match(r"refused|-?\d+:|no |always", service.about)
        if is_other:
            known = answers.setdefault(service.about, [])
            known.append(f"{code} {RequestCode(code).name}" if len(known) < _NAMED else str(code))
        else:
            usual.append(str(code))
    yield from textwrap.wrap(f"Answered: {', '.join(usual)}.", 120, break_long_words=False)
    if answers:
        yield from ("", "| request | answer |", "|---|---|")
    for about, requests in answers.items():
        yield f"| {', '.join(requests)} | {about} |"
