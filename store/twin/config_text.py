"""Replace the text in the files of config/, broken ones included: quoted text and words that are not RocketMQ's."""

from __future__ import annotations

import re

from rmqctl.store.twin.words import Words

_PIECE = re.compile(rb'"((?:[^"\\]|\\.)*)("?)|([^"]+)', re.DOTALL)
_WORD = re.compile(rb"[A-Za-z_\x80-\xff][A-Za-z0-9_.\-\x80-\xff]*")
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
    __global__""".split()
)
_SQL = frozenset(b"AND OR NOT IN IS NULL BETWEEN TRUE FALSE CONTAINS STARTSWITH ENDSWITH".split())
_EXPRESSION = b"expression"


def rewrite_config(words: Words, data: bytes) -> bytes:
    """Return the twin of the text of a config file, of the same length."""
    field = b""

    def replaced(match: re.Match[bytes]) -> bytes:
        nonlocal field
        if match[3] is not None:
            return _WORD.sub(lambda word: word[0] if word[0] in _LITERALS else words.text(word[0]), match[3])
        inside, previous = match[1], field
        field = inside
        if inside in _KNOWN:
            return match[0]
        kept = _SQL if previous == _EXPRESSION else frozenset()
        return b'"' + b"".join(_text(words, part, kept) for part in _ESCAPE.split(inside)) + match[2]

    data = _BITS.sub(lambda match: match[1] + re.sub(rb"\d+", _first_of_length, match[2]), data)
    return _PIECE.sub(replaced, data)


def _first_of_length(match: re.Match[bytes]) -> bytes:
    """Return the smallest number with as many digits: bits of a filter are a hash of the names of group and topic."""
    return b"1" + b"0" * (len(match[0]) - 1) if len(match[0]) > 1 else b"0"


def _text(words: Words, part: bytes, kept: frozenset[bytes]) -> bytes:
    if part.startswith(b"\\"):
        return part
    if not kept:
        return words.text(part)
    return b"".join(one if one.upper() in kept else words.text(one) for one in re.split(rb"(\s+)", part))
