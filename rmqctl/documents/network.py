"""docs/network.md: what `serve` gives over the wire, made of the tables of its services."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from rmqctl.network.broker.services import SERVICES as BROKER_SERVICES
from rmqctl.network.broker.services import WRITING_SERVICES
from rmqctl.network.broker.settings import BrokerSettings, is_changeable, is_cleaning
from rmqctl.network.clients.producing.settings import NAMES as PRODUCER_SETTINGS
from rmqctl.network.ha.master import SlaveLimits
from rmqctl.network.nameserver import SERVICES as NAME_SERVER_SERVICES
from rmqctl.network.remoting.codec import RequestCode
from rmqctl.network.remoting.requests import Service
from rmqctl.network.remoting.server import Limits
from rmqctl.store.config.config import KEYS

_SERVED = """\
# On the wire

Generated from the tables of services by `make docs`.

`rmqctl serve -s STORE` is a name server and a broker in one process. Unmodified clients of RocketMQ pull the store's
messages from it and mqadmin looks at it; with `--writable` they send, commit, retry and end transactions as well. Java
clients of 5.5.0, 5.3.3 and 4.9.8 are part of the tests (`tests/interop/test_served.py`,
`tests/interop/test_served_writable.py`).

## For reading

- Not one byte of the store changes, and it needs no right to write. Sends are refused with 14 (SERVICE_NOT_AVAILABLE),
  oneway ones are dropped; routes show topics as readable only, and `TBW102` does not exist, so that producers learn it
  early.
- It shows the store as it was when `serve` began. What another process writes into it meanwhile is not seen.
- Consumers get what the queues know. What a killed broker left in the log alone is told of when `serve` begins:
  `rmqctl recover` brings it into the queues.
- Topics are those of `topics.json` and those that only the consume queues know. A queue that has files is readable even
  if its topic is configured with fewer. A group with offsets or members has its `%RETRY%` topic, in memory.
- Offsets that groups commit are kept in memory until `serve` ends. A group without an offset is told so (22), and its
  own policy says where it begins.
- A pull at the end of a queue waits as long as its client bears, up to 30 s: nobody writes, and clients would spin.

## With --writable

- The store is opened as `append` opens it, under the lock that brokers take: it must be whole, and after a crash
  `rmqctl recover` comes first. `--create` makes a new one. A damaged file of `config/` is refused, not written over.
- Messages are put as a broker puts them: its checks in its order with its codes, topics made after `TBW102`, the
  properties that it adds, in its order. `flushDiskType`, `messageDelayLevel` and what else concerns the store count as
  the broker.conf has them; of the broker's own settings those of the table below. With SYNC_FLUSH an answer waits for
  the disk, and all that wait share one flush.
- Consumer offsets are written to `consumerOffset.json` every 5 s, those of delay levels to `delayOffset.json` every
  10 s: each time only after all that they count is on disk. No offset there is ever beyond the log, and one that is
  when `serve` begins is set back and told.
- Delayed messages, retries and transactions go on after a restart where they were. Delayed messages that were delivered
  since the last save are delivered once more then, as by a broker.
- A half message that has no end is copied behind the others when its producer is asked; both end together. The mark of
  an end is written at once, not after up to 3 s.
- Pulls that wait are woken when a message comes whose tag they want.
- A topic that is deleted is seen by nobody any more, and groups lose their offsets in it. Its messages stay in log and
  queues, which have to agree, until they expire: created again, the topic goes on behind them, and who begins at the
  first message gets them. `topics.json` names it under `rmqctlDeletedTopics`, which a broker ignores.
- Expired files are removed only with `--clean`, because a store that was brought here may be old.
- Messages with a delivery time of their own (`TIMER_DELAY_SEC`, `TIMER_DELAY_MS`, `TIMER_DELIVER_MS`) are delivered in
  the second after it; `TIMER_DEL_UNIQKEY` takes one back. Limits are those of a broker (`timerMaxDelaySec`), and with
  `timerWheelEnable=false` they are refused. How far the timer is stands in `timercheck` every second, after what was
  delivered is on disk: a kill loses none, and repeats what came in the last second. What a broker has left on its wheel
  is delivered here, and what waits when `serve` ends is left to a broker in `timerlog`. A broker that starts after a
  crash of `serve`, before `serve` itself, repeats what was delivered while an older message waited. When `serve` begins
  it reads again what waits, from the first such message on, beside its clients: a second for 100,000 messages.
- Batches for topics of batch queues are refused with 13.
- What is put and pulled is counted as a broker counts it (28, 315, and the rates of 202 and 208). Threads that other
  requests wait for do not exist, so no queue of theirs has requests; slow ones wait for one thread (`query`).
- `--as` names a version: in every header and registration, in brokerStatus, by the keys of getBrokerConfig, by the
  attributes that topics may have, and, as 5.5.0, by queries for tags (`indexType=T`), which read the topic's queues.
- As 4.9.8 it answers requests of 5.x with 3 and refuses with the codes and remarks of 4.x, takes any name of a group,
  keeps offsets of unknown topics, stores no MSG_REGION and TRACE_ON, and leaves a reset of a group without members to
  mqadmin (206). A message with a delivery time is still not delivered at once. The offset for a time is the first
  message at or after it, where 4.x takes the nearest one. The black list is that of 4.9.8. A batch for a retry topic is
  refused with 13, where 4.x tells of a BufferUnderflow.
- A group whose settings are asked for (352) is created, unless `autoCreateSubscriptionGroup=false`, as by 5.x.
- Timed messages are taken back by the handle that a send gives (370) where `recallMessageEnable=true`.
- KV settings and write permissions of brokers are kept until the name server ends; of its settings
  `orderMessageEnable` can be changed. getNamesrvConfig names the files of `kvConfigPath` and `configStorePath`, which
  are not written. `rocketmqHome` is ROCKETMQ_HOME of the environment, else the user's home.
- Attributes of topics are those of the version that `serve` names, by RocketMQ's rules and with its remarks.
- A reply (324, 325) is pushed to the producer that asked (326), and stored unless `storeReplyMessageEnable=false`.

## In both

- Frames leave as they lie in the commitlog. Each is held against its size, place, CRC and queue first: a damaged one is
  passed over, as a filtered one is, and told on stderr; asked for by its offset, it is called damaged, not absent.
- A call gives at most 32 messages and 256 KiB, wherever in the log they are.
- Clients look messages up by offset id at the address inside the id. If that is a loopback address, or the host of
  `--listen`, `serve` listens there too; else it says so.
- There is no authentication. With `--tls-cert` and `--tls-key` both ports speak TLS (1.2 and later) to whoever begins
  with a handshake, and plainly to the others, as a broker's permissive mode does. Both listen at 127.0.0.1 unless told
  otherwise, and another address is warned of. Listening at all addresses, they tell each client the address that it
  came to.
- `--register HOST:PORT` tells other name servers of the broker, too: at once, when topics change, every 30 s, and when
  it ends. With a name of its own (brokerName) it is one broker among others of their cluster.
- Queues in a RocksDB are refused. SQL92 filters and POP are not served.

## Clients of our own

`rmqctl produce` and `rmqctl consume` talk to any broker, a real one or ours. What they are made of works in a program
as well, over sockets or, by the same code, in one process with an open store:

```python
from rmqctl.formats.message import Message
from rmqctl.network.clients.consumer import Consumer
from rmqctl.network.clients.producer import Producer
from rmqctl.network.serving import LocalBroker
from rmqctl.store import MessageStore

with MessageStore.open("new-store", "rw", create=True) as store, LocalBroker(store) as local:
    with Producer(local.namesrv, dial=local.dial) as producer:
        producer.send(Message("Orders", b"one", properties={"TAGS": "paid"}))
    with Consumer(local.namesrv, "billing", "Orders", begin="first", dial=local.dial) as consumer:
        print(consumer.poll(5))
```

A producer tries a message up to three times within 3 s in all, on another broker each time if there is one. It
compresses bodies from 4096 bytes on and gives each message a unique id. It starts once and ends once, and a process has
one running producer for each group, name server and instanceName. Brokers know it from its first message on, by
heartbeats every 30 s, until it ends. Routes are looked up every 30 s; a name server that is away leaves them as they
are. An unknown topic has the queues of the default topic (createTopicKey) on all brokers, so that each makes it.
Topic, size and body are checked before a server is asked. `ProducerSettings` has its settings, and `produce --setting
NAME=VALUE` takes them by RocketMQ's names:

@PRODUCER_SETTINGS@

The client id is the host's address, the instanceName, or process and time without one, and the unitName if there is
one. With vipChannelEnabled=true messages are sent to the broker's port minus 2. With a namespace (`--namespace`, of
`consume` too) brokers know topics and groups as NAMESPACE%NAME, and messages show their names without it; system topics
have no namespace, and retry topics have it after their prefix. A name server's address such as
`http://MQ_INST_user_name.host:9876` has the namespace MQ_INST_user_name in it. Topics that a producer with
unitMode=true creates, and retry topics of consumers in unit mode (`consume --unit-mode`), have RocketMQ's unit flags.

With enableBackpressureForAsyncMode=true at most backPressureForAsyncSendNum messages (10 at least) and
backPressureForAsyncSendSize bytes of bodies (1 MiB at least) of `send_soon` are on their way. The caller waits for its
turn, and that counts against its time-out. RocketMQ's clients hand asynchronous sends to a pool of threads
(asyncSenderExecutor). A producer here needs none: the caller's thread writes the request, one thread for each
connection reads the answers, and one thread watches all time-outs.

### Hooks and traces

`producer.hooks` has lists for hooks before and after each send (`sending`), for checks that forbid one (`forbidding`)
and for ends of transactions (`ending`). `consumer.hooks` of both consumers has those before and after messages are
consumed. A hook that fails is reported, and changes nothing.

`produce --trace` and `consume --trace` (`ProducerSettings(enable_trace=True)`, `PushSettings(enable_trace=True)`) send
message traces in RocketMQ's encoding to RMQ_SYS_TRACE_TOPIC, or to `--trace-topic`. `mqadmin queryMsgTraceById` reads
them, as do `rmqctl query --traces` and `rmqctl cat`. They are sent in the background by a producer of their own, in
batches of traceMsgBatchNum records (20 at most) or
after 5 s; what waits at the end is sent then, for 5 s at most. No send waits for them: more than 2048 waiting records
are discarded, and that is reported. A failed send has no trace, as in RocketMQ, and a batch has one for all its ids.

With `--latency-fault` (sendLatencyEnable) a broker that failed is avoided for 10 s, a slow one for up to 30 s. Two
brokers, one of them frozen, 16 messages in turn: 8 of them fail at their time-out without it, one with it. Where a
message is to be tried elsewhere within its time, sendMsgMaxTimeoutPerRequest limits each attempt.

`produce --order-key KEY` sends to the queue that Java's SelectMessageQueueByHash selects, and `@NAME` takes the key
from a property of each message. A message is sent when the one before it is stored, so a key keeps its order within its
queue. When the number of queues changes, a key may go to another queue; topics with an orderTopicConf keep theirs.
`produce --from FILE --batch N` sends batches of at most N messages and 1,000,000 bytes, as RocketMQ's ListSplitter
counts them. Delayed and timed messages and those of retry topics are sent alone.

`Producer.request` sends a message and gives the reply of its consumer, which sends that with
`Producer.reply`. A consumer shares the queues out with the other members of its group, as Java clients do it
(`rmqctl.network.clients.membership` has their strategies), and commits every 5 s and when it ends. It consumes the
group's retry topic too, as a push consumer does: the single queue of that topic belongs to one of the members. Where
live members of the group subscribe otherwise it refuses to join, unless `--force` (`force=True`) is given: it would
get a share of the queues of topics that it does not read. While its caller has
messages of a queue the next ones are asked for: one answer of each queue, 32 messages and 256 KiB at most. Where it
begins at a time it gives what was stored then and later, even if brokers of 4.x find the nearest message instead. With
`--tls` both encrypt, whatever certificate a server shows, as Java clients with `tls.enable=true` do; with `--tls-ca
FILE` it must be signed by one of those in the file. Whatever name it bears: RocketMQ's own clients do not ask for that,
and certificates made for them seldom bear the addresses by which name servers know brokers. With `--tls-check-name` too
it must be made for the host or address that is dialled (subjectAltName, `IP:10.0.0.1` for an address), that of the name
server as those of all brokers.

Consumers that have queues go on while name servers are away, or do not know the topic yet after a restart. They try
brokers that are away or refuse for ever, as RocketMQ's do; `rmqctl consume` ends with an error after 30 s
(`Consumer(failing_seconds=30)`), and at once where a broker refuses.
Both consumers pull from the slave that the last answer suggests (suggestWhichBrokerId, with slaveReadEnable) and commit
to the master. A slave that fails is avoided for 30 s. They answer brokers that ask for offsets and state (220, 221,
307), as `mqadmin consumerStatus` and resetOffsetByTime have them asked; a consumer without a callback refuses to
consume one message for an operator (309).

`PushConsumer` hands every message to a callback, as RocketMQ's DefaultMQPushConsumer does; `consume --exec`,
`--ordered` and `--broadcast` use it:

```python
from rmqctl.formats.message import Message
from rmqctl.network.clients.producer import Producer
from rmqctl.network.clients.push.settings import ConsumeStatus
from rmqctl.network.clients.push.push_consumer import MemberOptions, PushConsumer
from rmqctl.network.clients.push.settings import PushSettings
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

- Only CONSUME_SUCCESS acknowledges. RECONSUME_LATER, None and exceptions send the message back: the broker delivers it
  again after delay level 3 + n (10 s, 30 s, 1 min, ...), and makes a dead letter of it after `max_reconsume_times`
  (-1: the group's 16). A broker that does not take it back gets it as a message of the retry topic; failing that, it is
  consumed again after 5 s.
- The offset that is committed is the smallest one without a verdict. A callback that runs longer than
  `consume_timeout` (15 min) has its message sent back at level 3, and its late verdict does not count.
- Pulls of a queue wait while it holds more than 1000 messages, 100 MiB or a span of 2000 offsets.
- In order (`on_ordered`) queues are locked at their brokers, and locks renewed every 20 s. A failed message holds its
  queue for `suspend_seconds` and is tried again. A member that gives up a queue unlocks it when its callback has ended,
  or 20 s after the last renewal, as RocketMQ does.
- With `broadcast` each member gets all messages, keeps its progress in
  `~/.rocketmq_offsets/CLIENT_ID/GROUP/offsets.json`, as RocketMQ's clients do, and drops what fails.
- It answers what brokers ask of it: its state (307, `mqadmin consumerStatus`), its offsets (221), one message for an
  operator (309, `mqadmin queryMsgById -g -d`) and a reset of its offsets (220). Offsets that a broker of 5.x resets
  itself count from its next pull on, at most 15 s later.
- Queues are shared out every 20 s, and at once when a broker says that members came or went (request 40).
- `close` waits 30 s for callbacks that run (`close_seconds`); RocketMQ's default is not to wait.

`tests/interop/test_real_broker.py` holds both against the real broker, `tests/interop/test_real_cluster.py` over a real
broker and ours in one cluster, `tests/interop/test_encrypted.py` with TLS, `tests/interop/test_timed.py` with delivery
times and stores that go from broker to broker.

`rmqctl topics`, `rmqctl groups -n` and `rmqctl cluster` ask name servers and brokers as mqadmin's topicList,
consumerProgress and clusterList do, and agree with them. Each request is given 3 s. A broker that did not answer is
named once and not asked again, what the others say is shown, and the exit code is 3.
"""

_SLAVES = """\
## Slaves and mirrors

`rmqctl mirror HOST:PORT DIR` follows a master of 4.x or 5.x at its HA port (haListenPort, 10912 by default) as its
slave does (DefaultHAService), and `serve --ha-listen HOST:PORT` has RocketMQ's slaves and mirrors follow its store,
with and without `--writable`. Masters and slaves of 5.3.3 and 4.9.8 are part of the tests
(`tests/interop/test_mirrored.py`). Masters under a controller and DLedger have other protocols; with `--broker` they
are recognised and refused.

A mirror

- is the master's log byte for byte, in files of its names and size. `--broker HOST:PORT`, the master's remoting port,
  tells where the log begins and ends and how long files are; it gives topics, groups, offsets and delivered delay
  levels as well (codes 21, 43, 45, 201), every 10 s, so that they are there when the master dies. Without it the size
  is learned where the first file ends, and a log that does not begin at 0 any more can be had from its last file on
  only (`--from last-file`): a master has no other way to be asked. Queue and index files have the sizes that `--broker`
  or `-c` tells, else RocketMQ's own, with which alone a broker loads them then. Timer wheels are not fetched.
- tells the master nothing but where it wants the log from, again and again, unless `--acknowledge` is given: then it
  tells what is on disk. For a SYNC_MASTER that makes it a slave. A SYNC_MASTER of 4.x without another slave has its
  producers wait, up to 3 s each, for one that acknowledges nothing: with `--broker` such a master is refused, unless
  `--force` is given.
- goes on after every break, its own too: each time the master sends the last 64 KiB, or the last message if that is
  longer, once more. Where these are not what stands in the mirror, or the master's log ends before the mirror does, or
  begins behind its end, nothing is written, and it says so: the mirror may have what nobody else has.
- asks for the first byte of a log by asking for the second: a first report of 0 means the last file. That byte is 0 for
  every message of less than 16 MiB.
- is a store that brokers start with when it ended, also by Ctrl-C or because the master was gone for `--give-up`
  seconds: a message that came in part is cut, queues, index and checkpoint are made from the log, and offsets that
  count messages which did not come are set back to the ends of their queues. Killed, it has an `abort` file: run it
  again, or `rmqctl recover`. Damage that the master's log has, the mirror has too; the exit code is 1 then.

A master (`--ha-listen`)

- sends files as they lie on disk, from the kernel to the socket, in frames of 32 KiB; a store for reading up to the
  last byte that is not zero, one that is written up to its last message. Each slave has a thread of its own, so that
  none holds another one or a client.
- tells slaves where to come (906, and the name server's answer to 103), and gives them what they ask for (21, 43, 45,
  201, 402), also two ports below the broker's own, where RocketMQ's slaves ask. 907 tells how far each has come.
- with `--writable` and `brokerRole=SYNC_MASTER` answers a message with WAIT when a slave has it (inSyncReplicas - 1 of
  them, at least one): 12 (FLUSH_SLAVE_TIMEOUT) after slaveTimeout, 11 (SLAVE_NOT_AVAILABLE) where there is no slave, or
  none less than 256 MiB behind. The message is stored all the same. 5.3.3 does not wait with its default of
  inSyncReplicas=1; 4.x does. Without `--ha-listen` nobody waits.
"""

_BOUNDS = """\
## Watching it

On a terminal a line on stderr tells each second in which something happens: connections, requests and bytes both ways a
second, pulls that wait. With `--json` that is an object a line, with counts since the beginning, and so is all that is
said on stderr. Nobody waits for whoever does not read it: 10,000 lines are kept, what goes beyond is counted.
`--metrics HOST:PORT` gives `GET /metrics` in Prometheus' text format: connections, requests by code, bytes, pulls that
wait, the end of the log, slaves (`rmqctl_slaves`). `rmqctl_slave_lag_bytes` is what a slave, labelled with the address
that it comes from, has not said that it has (diff of 907), `rmqctl_slave_unsent_bytes` what it was not sent yet: how
far a mirror is behind, which acknowledges nothing. No label is made of what clients or the store say.

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
| slaves | {slaves}, further ones are closed |
| a slave without a report | {silence:.0f} s |

Slow requests are answered one by one beside the others, so that no client waits for them."""


_DIFFERENCES = """\
## Held against the real broker

`tests/interop/test_frames.py` sends the same requests to the real broker 5.3.3 and to `serve --writable`, over copies
of one store, and compares codes, remarks, header fields and bodies. What is not the same:

- Every group that has offsets has its retry topic; a broker makes it when the first member comes.
- A field that is missing is named, where a broker tells of a NullPointerException.
- A message that is not there is told apart from one that lies beyond the log.
- Units of a queue that is not there are refused with 1; a broker says 0 and gives no body.
- In 317 pullOffset is given to all groups at once, too; a broker leaves it 0, and the sum negative.
- Remarks of sends name the status of the put and what is wrong.
- A setting that cannot be changed while it runs is refused with 16; a broker says 0, and passes over it.
- 223 for a group without members says so; a broker tells of a NullPointerException.
- What would have no effect here is an error, where a broker says 0: a limit of cold data (2001), a check of queues in a
  RocksDB (354), and, without `--clean`, the removal of expired files (306, 329).
- 308 leaves the groups of `filterGroups` out; a broker forgets their offsets.
- A topic is deleted without a timer wheel, too, where a broker fails with 1.
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
    names = textwrap.fill(f"{', '.join(PRODUCER_SETTINGS)}.", 116, break_long_words=False)
    lines = [
        _SERVED.replace("@PRODUCER_SETTINGS@", names),
        _SLAVES,
        bounds,
        "",
        "## Settings of a broker.conf, with --writable",
        "",
        *_settings(),
        "",
        "## Requests to the name server",
        "",
        *_table(NAME_SERVER_SERVICES),
        "",
        "## Requests to the broker",
        "",
        *_table(BROKER_SERVICES),
        "",
        "### With --writable, instead or besides",
        "",
        *_table(WRITING_SERVICES),
        "",
        "The broker sends its clients 40 (NOTIFY_CONSUMER_IDS_CHANGED) when a member of their group comes or goes, and",
        "39 (CHECK_TRANSACTION_STATE) to a producer whose transaction has no end.",
        "Every other request is answered with 3 (REQUEST_CODE_NOT_SUPPORTED).",
        "",
        _DIFFERENCES,
    ]
    return "\n".join(lines)


def _settings() -> Iterator[str]:
    yield "| key | default | can be changed while it runs |"
    yield "|---|---|---|"
    for name, default in BrokerSettings()._asdict().items():
        first, *others = name.split("_")
        key = f"{first}{''.join(map(str.capitalize, others))}"
        text = str(default).lower() if isinstance(default, bool) else default
        yield f"| {key} | {text} | {'yes' if is_changeable(key) else ''} |"
    yield ""
    cleaning = ", ".join(one.name for one in KEYS if is_cleaning(one.name) and is_changeable(one.name))
    yield from textwrap.wrap(
        "`mqadmin updateBrokerConfig` (25) changes them; with `--clean` also what says which files expire: "
        f"{cleaning}. All keys of a request count, or none. What was changed counts at once and until `serve` ends: a "
        "broker.conf is not written. Any other key is refused with 16, a value that is none with 29.",
        120,
    )


def _table(services: Mapping[int, Service[Any]]) -> Iterator[str]:
    yield "| code | request | answer |"
    yield "|---|---|---|"
    for code, service in sorted(services.items()):
        slow = " (slow)" if service.is_slow else ""
        yield f"| {code} | {RequestCode(code).name} | {service.about}{slow} |"
