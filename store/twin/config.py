"""Rewrite the files of config/ with all text replaced, broken ones included, and the names of these files.

In JSON, quoted text is replaced where it is no field or value of RocketMQ's own, and where a name belongs: a topic may
be called as a field is. Numbers stay in the files that brokers write, and in no others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rmqctl.store.twin.frames import Words

_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)("?)(\s*:)?|([^"]+)', re.DOTALL)
_WORD = re.compile(rb"[A-Za-z_\x80-\xff][A-Za-z0-9_.\-\x80-\xff]*|\d+(?:\.\d+){2,}")
_BRACE = re.compile(rb"[{}]")
_ESCAPE = re.compile(rb"(\\(?:u[0-9A-Fa-f]{4}|.))", re.DOTALL)
_BITS = re.compile(rb'("bitPos"\s*:\s*\[)([^\]]*)')
_LITERALS = (b"true", b"false", b"null", b"lock")
# fields, values and attributes that brokers write
_KNOWN = frozenset(
    b"""dataVersion counter stateVersion timestamp topicConfigTable topicName readQueueNums writeQueueNums perm order
    topicFilterType topicSysFlag attributes SINGLE_TAG MULTI_TAG NORMAL FIFO DELAY TRANSACTION MIXED UNSPECIFIED LITE
    PRIORITY message.type +message.type queue.type +queue.type cleanup.policy +cleanup.policy SimpleCQ BatchCQ RocksDBCQ
    DELETE COMPACTION subscriptionGroupTable forbiddenTable groupName consumeEnable consumeFromMinEnable
    consumeBroadcastEnable consumeMessageOrderly retryQueueNums retryMaxTimes groupRetryPolicy type CUSTOMIZED
    EXPONENTIAL customizedRetryPolicy exponentialRetryPolicy next initial max multiplier brokerId
    whichBrokerWhenConsumeSlowly notifyConsumerIdsChangedEnable groupSysFlag consumeTimeoutMinute subscriptionDataSet
    offsetTable pullOffsetTable resetOffsetTable groupTopicMap delayOffset filterDataByTopic topic consumerGroup
    expression expressionType compiledExpression bornTime deadTime bloomFilterData bitPos bitNum clientVersion TAG SQL92
    dead filterDataMap orderInfoCount orderedConsumptionLevel QUEUE TOPIC table popTime i invisibleTime o offsetList oc
    offsetConsumedCount ot offsetNextVisibleTime l lastConsumeTimestamp cm commitOffsetBit a attemptId qid queueId
    timingCount transactionCount count timeStamp messageRequestMode messageRequestModeMap mode popShareQueueNum PULL POP
    rmqctlDeletedTopics topicQueueMappingInfoMap topicQueueMappingDetailMap hostedQueues totalQueues scope bname epoch
    dirty currIdMap +retry.policy priority.factor +priority.factor hashCode logicOffset fileName min max offsets lock
    __global__ queueOffsetMap empty lmqOffsetTable groupFilterData""".split()
)
_SQL = frozenset(b"AND OR NOT IN IS NULL BETWEEN TRUE FALSE CONTAINS STARTSWITH ENDSWITH".split())
_EXPRESSION = b"expression"
# fields whose value is a name, tables whose keys are names, and those whose entries are such tables
_NAMES = frozenset(b"topicName groupName topic consumerGroup bname attemptId".split())
_TABLES = frozenset(
    b"""topicConfigTable subscriptionGroupTable forbiddenTable offsetTable pullOffsetTable lmqOffsetTable groupTopicMap
    filterDataByTopic filterDataMap groupFilterData table timingCount transactionCount messageRequestModeMap
    topicQueueMappingInfoMap topicQueueMappingDetailMap queueOffsetMap""".split()
)
_NESTED = frozenset(b"forbiddenTable messageRequestModeMap".split())
_OF_QUEUES = b"queueOffsetMap"
_BROKERS_FILES = frozenset(
    """topics.json topicQueueMapping.json subscriptionGroup.json consumerOffset.json lmqConsumerOffset.json
    consumerFilter.json consumerOrderInfo.json delayOffset.json messageRequestMode.json tieredStoreMetadata.json
    timercheck timermetrics transactionMetrics""".split()
)
_ENDINGS = re.compile(r"(?:\.(?:json|bak|tmp|properties|yml|yaml))*$")


def is_config_name(name: str) -> bool:
    """Return whether a file of config/ is one that brokers write, or a copy of one."""
    return bool(_own_of(name))


def _own_of(name: str) -> str:
    """Return the name of a brokers' file that a name begins with; empty where none does."""
    return next((own for own in _BROKERS_FILES if name == own or name.startswith(f"{own}.")), "")


def rewrite_name(words: Words, name: str) -> str:
    """Return the name of a file or a folder of config/ in the twin: endings stay, and the names of brokers' files."""
    own = _own_of(name)
    rest = name.removeprefix(own)
    end = _ENDINGS.search(rest)
    stem = rest[: end.start()] if end is not None else rest
    return own + words.name(stem) + rest[len(stem) :]


def rewrite_identity(words: Words, data: bytes) -> bytes:
    """Return the twin of brokerIdentity: cluster, name and id, and a code while it is applied for."""
    names = data.split(b"#")
    return b"#".join([*(words.text(name) for name in names[:2]), *names[2:3], *(words.text(one) for one in names[3:])])


def rewrite_config(words: Words, data: bytes) -> bytes:
    """Return the twin of the text of a config file, of the same length."""
    data = _BITS.sub(lambda match: match[1] + re.sub(rb"\d+", _first_of_length, match[2]), data)
    return _STRING.sub(_Tables(words).replaced, data)


class _Tables:
    """The place in a config file: the fields around it, and the last one."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._around: list[bytes] = []
        self._field = b""

    def replaced(self, match: re.Match[bytes]) -> bytes:
        """Return what replaces the next piece: a text in quotes, or what is between two of them."""
        inside, end, colon, other = match.groups()
        if other is not None:
            self._move(other)
            return _WORD.sub(lambda word: word[0] if word[0] in _LITERALS else self._words.text(word[0]), other)
        is_name = _is_key_of_names(self._around) if colon is not None else self._field in _NAMES
        field = self._field
        if colon is not None:
            self._field = inside
        is_number = inside.isdigit() and _is_number_place(self._around, self._field, is_key=colon is not None)
        if is_number or (inside in _KNOWN and not is_name):
            return match[0]
        number = b""
        if is_name and self._around[-1:] == [_OF_QUEUES]:
            inside, _, number = inside.rpartition(b"_")
            number = b"_" + number if inside else number
        kept = _SQL if field == _EXPRESSION and colon is None else frozenset[bytes]()
        text = b"".join(_text(self._words, part, kept) for part in _ESCAPE.split(inside))
        return b'"' + text + number + end + (colon or b"")

    def _move(self, other: bytes) -> None:
        for brace in _BRACE.findall(other):
            if brace == b"{":
                self._around.append(self._field)
            elif self._around:
                self._field = self._around.pop()


def _is_key_of_names(around: Sequence[bytes]) -> bool:
    """Return whether the keys of an object are names, by the fields around it."""
    is_inner = len(around) > 1 and around[-2] in _NESTED
    return is_inner or (len(around) > 0 and around[-1] in _TABLES)


def _is_number_place(around: Sequence[bytes], field: bytes, *, is_key: bool) -> bool:
    """Return whether digits in quotes are a number: a queue, a level or the value of a field."""
    if is_key:
        return around[-1:] in ([b"offsetTable"], [b"table"]) or not _is_key_of_names(around)
    return field in _KNOWN and field not in _NAMES and field != _EXPRESSION


def _first_of_length(match: re.Match[bytes]) -> bytes:
    """Return the smallest number with as many digits: bits of a filter are a hash of the names of group and topic."""
    return b"1" + b"0" * (len(match[0]) - 1) if len(match[0]) > 1 else b"0"


def _text(words: Words, part: bytes, kept: frozenset[bytes]) -> bytes:
    if part.startswith(b"\\"):
        return part
    if not kept:
        return words.text(part)
    return b"".join(one if one.upper() in kept else words.text(one) for one in re.split(rb"(\s+)", part))
