"""Every key that a broker.conf of RocketMQ can have, and what it does here: docs/config.md and `rmqctl config keys`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

from rmqctl.network.broker.settings import BrokerSettings
from rmqctl.network.config_defaults import conf_defaults
from rmqctl.store.config.config import KEYS, PREDICT
from rmqctl.store.config.releases import RELEASES

WITHOUT_EFFECT = (
    (
        "nothing: no class of RocketMQ reads it",
        "cleanOff* *Swap* dispatch* *AsyncReput *CleanExpiredOffset *OffsetHistory* highSpeed* maxBatch* maxDelay* "
        "maxRec* maxSlave* maxTopicL* pullBatch* putMessageTimeout putMsg* *Backlog *InterceptDelay* filterServer*",
    ),
    (
        "threads, their queues, locks, sockets of a JVM",
        "*Thread* *Capacity waitTime* *Fast* server* client* *Epoll* *WaterMark connect* socks* *Callback* *Netty* "
        "useTLS *NetWork* *Gracefully shutdown* *GoAway maxAsync* *Lock* asyncS* transferMsg* *WithoutMmap "
        "*BufferNum *ByFileChannel *Concurrently *cheduleAsync* searchBcq* *BatchPush timerEnableD* timerWarm* "
        "timerReput*PoolSize travel*",
    ),
    (
        "work that rmqctl does at once and a broker delays or batches",
        "correct* transactionOp* append[AC]* timerEnableR* timerSkip* timerWheelSnapshotI* splitReg* *SplitReg* "
        "compressedReg* *SingleTopicReg* forceReg* *UpdateVersionStep recheck*",
    ),
    (
        "metrics and logs",
        "*[mM]etric* *Stats* commercial* print* *Repeatedly* *Detail* estimate* sample* isolate* *QueueScan "
        "useStatic* timerProgress*",
    ),
    (
        "cold data and read-ahead, which change no answer; compaction of a served store",
        "*[cC]old* *HotRatio dataRead* *ompaction* *OffsetMap*",
    ),
    (
        "databases of RocksDB, which are never written",
        "*[rR]ocks[dD][bB]* combine* *QueueStore memTable* *Incrementally *Half* configM* timerRecall* indexFileRead*",
    ),
    (
        "controllers, DLedger, containers, static topics, plug-ins",
        "*[cC]ontroller* *SyncState* *InSyncReplicas *Container asyncL* syncBroker* brokerE* brokerH* "
        "brokerN* sendH* *Replicas replicas* skipPre* compatible* syncFrom* syncMaster* haMaxTime* *Checksum* "
        "*StrictMode readUn* *RunningFlags* forwardT* *PlugIn",
    ),
    (
        "buffers of POP, off in RocketMQ by default, and its revive threads, one step here; lite topics, "
        "quotas of light queues; broadcast offsets, which only clients of a remoting proxy keep in a broker",
        "*[pP]op* revive* *LiteT* *LiteS* *LiteE* lite[ELST]* *ClientEvent* skipWhen* *LmqQuota maxLmq* "
        "*roadcastOffset*",
    ),
    ("users and permissions: `serve --auth` takes them", "auth* acl* user* stateful* migrateAuth*"),
    ("bit maps of filters, which change no result", "*itMap* filterSupport*"),
    ("discovery of name servers", "fetch* *ServerAddr* isScan* *SplitM* split* *Poll* channelN*"),
)
"""What keys that are no setting here concern, and which: patterns, the first that fits counts."""

# no version shows a default of them
_OF_THE_PLACE = (
    "bindAddress brokerClusterName brokerConfigPath brokerIP1 brokerIP2 brokerId brokerName haListenPort listenPort "
    "namesrvAddr namesrvDomain namesrvDomainSubgroup rocketmqHome storePathCommitLog storePathRootDir "
    "haMasterAddress dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId".split()
)
# what plug-ins, authentication and controllers read of the same file
_OF_OTHERS = ("tiered", "auth", "init", "inner", "controller", "jRaft", "metrics", "object")


class BrokerKey(NamedTuple):
    """A key of RocketMQ's brokers: its default in the newest of `releases`, the versions that show one; what it counts
    for here (reading, writing, cleaning, predict, serve, nothing), and what it does or concerns."""

    key: str
    default: str | None
    releases: tuple[str, ...]
    counts_for: str
    effect: str


def broker_keys() -> list[BrokerKey]:
    """Return every key of the versions that are known, by name."""
    defaults = {name: conf_defaults(release) for name, release in RELEASES.items()}
    return [_broker_key(name, defaults) for name in sorted(_names(), key=str.lower)]


def _names() -> set[str]:
    return {*_SETTINGS, *_OF_THE_PLACE}.union(*map(conf_defaults, RELEASES.values()))


_SETTINGS = {key.name: key for key in KEYS}
_SERVED = frozenset(name.replace("_", "") for name in BrokerSettings._fields)


def _broker_key(name: str, defaults: Mapping[str, Mapping[str, str]]) -> BrokerKey:
    releases = tuple(release for release, table in defaults.items() if name in table)
    default = defaults[releases[-1]][name] if releases else None
    if (setting := _SETTINGS.get(name)) is not None:
        counts_for = "predict" if setting.counts_for == PREDICT else setting.counts_for
        return BrokerKey(name, default, releases, counts_for, setting.meaning)
    if name.lower() in _SERVED:
        return BrokerKey(name, default, releases, "serve", "as in a broker")
    if name in _OF_THE_PLACE:
        return BrokerKey(name, default, releases, "nothing", "names and addresses: options of `serve` give its own")
    why = next(why for why, listed in WITHOUT_EFFECT if any(fnmatchcase(name, one) for one in listed.split()))
    return BrokerKey(name, default, releases, "nothing", why)


def unknown_settings(properties: Iterable[str]) -> dict[str, str | None]:
    """Return the keys that no version of RocketMQ reads, as a word written wrong, and the known one that each is like.
    Brokers pass over them without a word (MixAll#properties2Object)."""
    known = _names()
    unknown = sorted(name for name in properties if name not in known and not name.startswith(_OF_OTHERS))
    return {name: next(iter(get_close_matches(name, known, 1, 0.8)), None) for name in unknown}
