"""The SQL of statistics. A run of the log is counted by itself, then what the runs came to is put together.

The table `messages` is a run: the columns of the view `messages` with times in ms, and `takes_offset`. Every other
table is the answer to a statement of this module, over one run or over many.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000


def _number_of(unit: int) -> str:
    """The number of the minute, hour or day of a store time: the beginning of one may be beyond 64 bits."""
    # `//` rounds towards zero
    rest = f"case when store_timestamp < 0 then {unit - 1}::hugeint else 0 end"
    return f"((store_timestamp - {rest}) // {unit})::bigint"


DIMENSIONS = {
    "topic": "topic",
    "queue": "queue_id",
    "tag": "tags",
    "host": r"regexp_replace(born_host, ':\d+$', '')",
    "minute": _number_of(_MINUTE),
    "hour": _number_of(_HOUR),
    "day": _number_of(_DAY),
}
"""What messages can be grouped by; the last three are of the store time, UTC."""

UNITS = {"minute": _MINUTE, "hour": _HOUR, "day": _DAY}
"""What the numbers of these dimensions count, in ms."""

# no checksum covers a queue offset: what damage made of one must not run over the edge of 64 bits
OFFSETS_LARGEST = 1 << 60
_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 1
LISTED = 20
"""Duplicate keys, jumps of the clock, uneven queues and damaged spans that are listed."""
LISTED_PLACES = 5
LISTED_SPANS = 10


def _bucket(value: str) -> str:
    """The number of binary digits of a value, negative for a negative value; 0 of zero."""
    # the smallest number has no positive twin
    digits = f"length(bin(abs(greatest({value}, {_LEAST + 1}))))"
    return f"(case when {value} = 0 then 0 else sign({value}) * {digits} end)::int"


def _named(dimensions: Sequence[str]) -> str:
    """The dimensions of a message as columns d0, d1, …; the topic always, as d0."""
    return ", ".join(f"{DIMENSIONS[name]} as d{number}" for number, name in enumerate(dimensions))


def _keys(count: int) -> str:
    return ", ".join(f"d{number}" for number in range(count))


_CONDITIONS = {"topic": "topic = $topic", "begin": "store_timestamp >= $begin", "end": "store_timestamp <= $end"}


def run_table(dimensions: Sequence[str], asked: Collection[str], with_keys: bool) -> str:
    """The run that further statements are about; `is_counted`: of what is asked for, by names of _CONDITIONS."""
    of_topic = _CONDITIONS["topic"] if "topic" in asked else "true"
    conditions = [of_topic, *(condition for name, condition in _CONDITIONS.items() if name in asked)]
    return f"""
create or replace temp table run as
select {_named(dimensions)}, physical_offset, queue_id, queue_offset, size, store_timestamp,
    {"unique_key, " if with_keys else ""}lag(store_timestamp) over (order by physical_offset) as previous,
    least(greatest(store_timestamp::hugeint - born_timestamp, {_LEAST}), {_LARGEST})::bigint as delay,
    {" and ".join(conditions)} as is_counted, takes_offset and {of_topic} as takes_offset
from messages"""


def groups(dimensions: int) -> str:
    """Messages by group and by buckets of size and delay."""
    return f"""
select {_keys(dimensions)}, {_bucket("size")} as size_bucket, {_bucket("delay")} as delay_bucket,
    count(*) as messages, sum(size)::bigint as bytes, min(size) as smallest, max(size) as largest,
    min(store_timestamp) as first_store_timestamp, max(store_timestamp) as last_store_timestamp,
    min(delay) as shortest_delay, max(delay) as longest_delay,
    count(*) filter (where store_timestamp > $now) as in_future,
    count(*) filter (where store_timestamp < previous) as clock_jumps
from run where is_counted group by all"""


def edges(dimensions: int) -> str:
    """The first message of the run with its group, the last one's time, and how often the clock went back between."""
    return f"""
select physical_offset, store_timestamp, is_counted, {_keys(dimensions)},
    (select max_by(store_timestamp, physical_offset) from run) as last_store_timestamp,
    (select count(*) from run where store_timestamp < previous) as jumps
from run order by physical_offset limit 1"""


_JUMPS = f"""
select physical_offset, previous as from_timestamp, store_timestamp as to_timestamp
from {{table}} where store_timestamp < previous
order by previous::hugeint - store_timestamp desc, physical_offset limit {LISTED}"""

JUMPS = _JUMPS.format(table="run")
"""The largest jumps of the clock within the run."""

# a queue whose offsets follow one another is one row
OFFSETS = f"""
with taken as (
    select d0 as topic, queue_id,
        least(greatest(queue_offset, {-OFFSETS_LARGEST}), {OFFSETS_LARGEST}) as queue_offset
    from run where takes_offset
), queues as (
    select topic, queue_id, min(queue_offset) as first, max(queue_offset) as last, count(*) as messages,
        count(*) = last - first + 1 and count(distinct queue_offset) = count(*) as is_even
    from taken group by all
)
select topic, queue_id, first as begins, last + 1 as ends, 1::bigint as times, 0::bigint as passed_over
from queues where is_even
union all
select topic, queue_id, queue_offset, queue_offset + 1, count(*), 0 from taken
semi join (from queues where not is_even) using (topic, queue_id) group by all"""
"""Which queue offsets the messages of the run take, as rows of `stretches`. `passed_over`: how many messages have a
broker count on over the offsets, see FurtherSlots."""

STRETCHES = """
with edges as (
    select topic, queue_id, begins as place, times as change, passed_over as passing from stretches
    union all select topic, queue_id, ends, -times, -passed_over from stretches
), places as (
    -- where one stretch ends and another begins, nothing changes: they are one
    select topic, queue_id, place, sum(change) as change, sum(passing) as passing from edges group by all
    having sum(change) <> 0 or sum(passing) <> 0
), levels as (
    select topic, queue_id, place as begins, lead(place) over queue as ends,
        sum(change) over queue as times, sum(passing) over queue as passed_over
    from places window queue as (partition by topic, queue_id order by place)
)
select topic, queue_id, begins, ends, times::bigint as times, passed_over::bigint as passed_over
from levels where times > 0 or passed_over > 0"""
"""`stretches`, which may overlap, as stretches [begins, ends) of offsets that occur equally often, each as long as can
be; the same for any runs of one log."""

QUEUES = f"""
with gaps as (
    select *, lag(ends) over (partition by topic, queue_id order by begins) as before from stretches
)
select topic, queue_id, min(begins) as min_offset, max(ends) as max_offset,
    coalesce(sum(begins - before), 0)::bigint as missing,
    coalesce(list([before, begins - 1] order by begins) filter (where begins > before), [])[:{LISTED_SPANS}]
        as missing_spans,
    sum((ends - begins)::hugeint * greatest(times - 1, 0))::bigint as repeated,
    coalesce(list([begins, ends - 1] order by begins) filter (where times > 1), [])[:{LISTED_SPANS}] as repeated_spans
from gaps group by all order by topic, queue_id"""
"""What the stretches of all runs say of each queue. Spans are inclusive, `max_offset` is not."""


def unique_keys(dimensions: int) -> str:
    """The unique key of each message as two hashes of 64 bits, with its place and its group."""
    return f"""
select hash(d0, unique_key) as high, hash(unique_key || d0) as low, physical_offset, {_keys(dimensions)}
from run where is_counted and unique_key is not null"""


# the broker itself stores messages of these topics again, by design (SendMessageProcessor#consumerSendMsgBack)
BY_DESIGN = "(" + " or ".join(
    f"starts_with(d0, '{prefix}')" for prefix in ("%RETRY%", "%DLQ%", "SCHEDULE_TOPIC_", "RMQ_SYS_", "rmq_sys_")
) + ")"  # fmt: skip

# nearly all keys are there once, which takes no order to see
REPEATED_KEYS = """
create or replace temp table repeated as
with twice as (select high, low from keys group by all having count(*) > 1)
select *, row_number() over (partition by high, low order by physical_offset) as number
from keys semi join twice using (high, low)"""


def repeats(dimensions: int) -> str:
    """Messages by group that have a key which an earlier message of their topic has."""
    return f"select {_keys(dimensions)}, count(*) as repeats from repeated where number > 1 group by all"


KEYS_OF_TOPICS = "select d0, count(*) as keys from repeated where number = 1 group by all"
"""Distinct keys of each topic that several messages have."""

DUPLICATES = f"""
select min(physical_offset) as physical_offset, any_value(d0) as topic, count(*) as messages,
    list(physical_offset order by physical_offset)[:{LISTED_PLACES}] as physical_offsets
from repeated where not {BY_DESIGN} group by high, low order by 1 limit {LISTED}"""
"""The first of these keys in the log, of topics where that is not by design."""

ALL_DUPLICATES = {
    "repeats": f"select {BY_DESIGN} as by_design, sum(repeats)::bigint as repeats from repeats group by all",
    "keys_of_topics": f"select {BY_DESIGN} as by_design, sum(keys)::bigint as keys from keys_of_topics group by all",
    "duplicates": f"from duplicates order by physical_offset limit {LISTED}",
}
"""What all partitions say of the duplicates, by the name of the table."""


def no_repeats(dimensions: int) -> str:
    """The table `repeats` without a row."""
    return f"create temp table repeats as select {_keys(dimensions)}, 0::bigint as repeats from groups limit 0"


BETWEEN_RUNS = """
create or replace temp table between_runs as
select *, lag(last_store_timestamp) over (order by physical_offset) as previous from edges"""
"""The first message of each run, with the time of the message before it."""

CLOCK = """
select (select coalesce(sum(jumps), 0) from edges)::bigint
    + (select count(*) from between_runs where store_timestamp < previous) as jumps"""

LARGEST_JUMPS = f"""
with all_jumps as (
    select physical_offset, from_timestamp as previous, to_timestamp as store_timestamp from jumps
    union all select physical_offset, previous, store_timestamp from between_runs
)
{_JUMPS.format(table="all_jumps")}"""
"""The largest jumps of the whole log."""


def all_groups(dimensions: int, chosen: Sequence[int]) -> str:
    """The groups of all runs by some of the dimensions, given by their numbers."""
    keys = "".join(f"d{number}, " for number in chosen)
    matches = "".join(f" and counted.d{number} is not distinct from again.d{number}" for number in chosen)
    return f"""
with counted as (
    select {keys}sum(messages)::bigint as messages, sum(bytes)::bigint as bytes, min(smallest) as smallest,
        max(largest) as largest, min(first_store_timestamp) as first_store_timestamp,
        max(last_store_timestamp) as last_store_timestamp, min(shortest_delay) as shortest_delay,
        max(longest_delay) as longest_delay, sum(clock_jumps)::bigint as clock_jumps,
        sum(in_future)::bigint as in_future, list([size_bucket, delay_bucket, messages]) as bars
    from groups group by all
), again as (select {keys}sum(repeats)::bigint as duplicates from repeats group by all),
edge as (select {keys}count(*) as clock_jumps from between_runs where is_counted and store_timestamp < previous
    group by all)
select counted.* replace (counted.clock_jumps + coalesce(edge.clock_jumps, 0) as clock_jumps),
    coalesce(again.duplicates, 0) as duplicates
from counted left join again on true{matches}
left join edge on true{matches.replace("again", "edge")}"""
