"""The walk over a window of the commitlog: good messages as rows of columns.

It checks frames as `decode_message` does (law 3). Anything else than a good message stops it, and the plain walk says
what it is.
"""

from __future__ import annotations

from array import array

from rmqctl.formats import properties as names
from rmqctl.formats.checksums import CRC_MASK, PROPERTY_CRC_NAME, PROPERTY_CRC_SIZE, TAG_KEY_PREFIX
from rmqctl.formats.layouts import (
    DLEDGER_ENTRY_HEAD,
    DLEDGER_MAGIC,
    FRAME_HEADS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    PROPERTIES_LENGTH,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_STORE_HOST_V6,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
    TRANSACTION_MASK,
)
from rmqctl.formats.message import MINIMUM_FRAME_SIZE
from rmqctl.formats.properties import TRANSACTION_ROLLBACK
from rmqctl.store.native import uncompiled as cython
from rmqctl.store.native.tables import (
    FULL,
    INTS,
    IS_SCHEDULE,
    KEY_STATE,
    KEYS_OF_A_ROW,
    LONGS,
    MAXIMUM_PROBES,
    NEW_TOPIC,
    STOPPED,
    TEXT_BEGIN,
    TEXT_LENGTH,
    WINDOW_END,
    Columns,
    NeedsPlain,
)

if cython.compiled:
    import cython
    from cython.cimports.rmqctl.store.native.memory import (
        crc32,
        find,
        hash_on,
        int_at,
        is_utf8,
        long_at,
        out_of_range,
        same,
        short_at,
        topic_hash,
    )

if not cython.compiled:
    from rmqctl.store.native.memory import (
        crc32,
        find,
        hash_on,
        int_at,
        is_utf8,
        long_at,
        out_of_range,
        same,
        short_at,
        topic_hash,
    )
    from rmqctl.store.native.uncompiled import Bytes, IntRows, Ints, LongRows, ReadInts, ReadLongRows, ReadLongs, views

_STOPPED, _WINDOW_END, _FULL, _NEW_TOPIC = STOPPED, WINDOW_END, FULL, NEW_TOPIC
_GOOD, _PASSED = 4, 5
_PROBES, _ROW_KEYS = MAXIMUM_PROBES, KEYS_OF_A_ROW
_TEXT_BEGIN, _TEXT_LENGTH, _KEY_STATE, _IS_SCHEDULE = TEXT_BEGIN, TEXT_LENGTH, KEY_STATE, IS_SCHEDULE

_IPV4 = FRAME_HEADS[0]
_HEAD = _IPV4.size
# what an IPv6 address has more
_WIDER = FRAME_HEADS[1].size - _IPV4.size
_MAGIC_AT, _CRC_AT = _IPV4.offset("magic_code"), _IPV4.offset("body_crc")
_QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT = _IPV4.offset("queue_id"), _IPV4.offset("flag"), _IPV4.offset("queue_offset")
_POSITION_AT, _SYS_FLAG_AT = _IPV4.offset("physical_offset"), _IPV4.offset("sys_flag")
_BORN_AT, _STORED_AT = _IPV4.offset("born_timestamp"), _IPV4.offset("store_timestamp")
_BORN_HOST_AT, _BORN_PORT_AT = _IPV4.offset("born_host_ip"), _IPV4.offset("born_host_port")
_STORE_HOST_AT, _STORE_PORT_AT = _IPV4.offset("store_host_ip"), _IPV4.offset("store_host_port")
_RECONSUMED_AT, _PREPARED_AT = _IPV4.offset("reconsume_times"), _IPV4.offset("prepared_transaction_offset")
# of an entry of DLedger
_ENTRY, _ENTRY_MAGIC = DLEDGER_ENTRY_HEAD.size, DLEDGER_MAGIC
_ENTRY_SIZE_AT, _ENTRY_POS_AT = DLEDGER_ENTRY_HEAD.offset("size"), DLEDGER_ENTRY_HEAD.offset("pos")
_ENTRY_BODY_AT = DLEDGER_ENTRY_HEAD.offset("body_size")
_BODY_LENGTH_SIZE, _MINIMUM, _PROPERTIES_LENGTH = 4, MINIMUM_FRAME_SIZE, PROPERTIES_LENGTH.size
_TOPIC_V1, _TOPIC_V2 = TOPIC_LENGTH_V1.size, TOPIC_LENGTH_V2.size
# with a sign, as they are read
_V1, _V2 = MESSAGE_MAGIC_V1 - (1 << 32), MESSAGE_MAGIC_V2 - (1 << 32)
_BORN_V6, _STORED_V6, _INNER = SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6, SYS_FLAG_INNER_BATCH
_TRANSACTION, _ROLLBACK = TRANSACTION_MASK, TRANSACTION_ROLLBACK
_CRC_MASK, _CRC_SIZE, _CRC_NAME_SIZE = CRC_MASK, PROPERTY_CRC_SIZE, len(PROPERTY_CRC_NAME)

_WANT_HEAD, _WANT_TAGS, _WANT_KEYS = int(Columns.HEAD), int(Columns.TAGS), int(Columns.KEYS)
_WANT_TAG_KEYS, _WANT_BYTES = int(Columns.TAG_KEYS), int(Columns.BYTES)
_WANT_PROPERTIES = int(Columns.TAGS | Columns.KEYS)
_WANT_TOPIC = int(Columns.TOPIC | Columns.TAGS | Columns.KEYS)
_PLAIN_MULTI, _PLAIN_BATCH = int(NeedsPlain.MULTI_DISPATCH), int(NeedsPlain.INNER_BATCH)
_PLAIN_DELAY, _PLAIN_KEYS = int(NeedsPlain.DELAY), int(NeedsPlain.KEYS)
_LONGEST_LEVEL = 9

# the names that are looked for, each with the 0x01 behind it
_NAMES = {
    name: name.encode("ascii") + b"\x01"
    for name in (
        names.TAGS,
        names.KEYS,
        names.UNIQUE_KEY,
        names.DELAY,
        names.INNER_NUM,
        names.INNER_MULTI_DISPATCH,
        names.INNER_MULTI_QUEUE_OFFSET,
    )
}
_TEXT = b"".join(_NAMES.values()) + PROPERTY_CRC_NAME + TAG_KEY_PREFIX.encode("ascii")
_CRC, _PREFIX, _PREFIX_SIZE = _TEXT.index(PROPERTY_CRC_NAME), len(_TEXT) - len(TAG_KEY_PREFIX), len(TAG_KEY_PREFIX)
_TAGS, _TAGS_SIZE = _TEXT.index(_NAMES[names.TAGS]), len(_NAMES[names.TAGS])
_KEYS, _KEYS_SIZE = _TEXT.index(_NAMES[names.KEYS]), len(_NAMES[names.KEYS])
_UNIQUE, _UNIQUE_SIZE = _TEXT.index(_NAMES[names.UNIQUE_KEY]), len(_NAMES[names.UNIQUE_KEY])
_LEVEL, _LEVEL_SIZE = _TEXT.index(_NAMES[names.DELAY]), len(_NAMES[names.DELAY])
_NUMBER, _NUMBER_SIZE = _TEXT.index(_NAMES[names.INNER_NUM]), len(_NAMES[names.INNER_NUM])
_QUEUES, _QUEUES_SIZE = _TEXT.index(_NAMES[names.INNER_MULTI_DISPATCH]), len(_NAMES[names.INNER_MULTI_DISPATCH])
_OFFSETS = _TEXT.index(_NAMES[names.INNER_MULTI_QUEUE_OFFSET])
_OFFSETS_SIZE = len(_NAMES[names.INNER_MULTI_QUEUE_OFFSET])

_LONG = {name: index for index, name in enumerate(LONGS)}
_INT = {name: index for index, name in enumerate(INTS)}
_QUEUE_OFFSET, _BORN, _STORED = _LONG["queue_offset"], _LONG["born_timestamp"], _LONG["store_timestamp"]
_PREPARED, _TAGS_CODE = _LONG["prepared_transaction_offset"], _LONG["tags_code"]
_QUEUE_ID, _FLAG, _SYS_FLAG, _BODY_CRC = _INT["queue_id"], _INT["flag"], _INT["sys_flag"], _INT["body_crc"]
_RECONSUMED, _BORN_PORT, _STORE_PORT = _INT["reconsume_times"], _INT["born_host_port"], _INT["store_host_port"]
_TOPIC_ID, _DELAY_LEVEL, _NEEDS_PLAIN = _INT["topic_id"], _INT["delay_level"], _INT["needs_plain"]
_BODY_POSITION, _BODY_LENGTH = _INT["body_position"], _INT["body_length"]
_PROPERTY_POSITION, _PROPERTY_LENGTH = _INT["property_position"], _INT["property_length"]
_BORN_POSITION, _STORE_POSITION = _INT["born_host_position"], _INT["store_host_position"]
_BORN_START, _STORE_START = _INT["born_host_start"], _INT["store_host_start"]


class WindowWalk:
    """Walks windows, one after the other.

    `asked` are bits of `Columns`; the CRCs of frames from physical offset `crc_from` on are checked. `in_entries`: each
    frame is the body of a DLedger entry. Between calls `position` is the place in the window, `row` and `keys` count
    what was written, and `plain_rows` the rows with NeedsPlain.DELAY or NeedsPlain.KEYS. `topic_hint` is the id of the
    first message's topic, -1 if it is to be looked up.
    """

    def __init__(self, asked: int, crc_from: int, seed: int) -> None:
        self.asked = asked
        self.crc_from = crc_from
        self.seed = seed
        self.position = self.row = self.keys = self.plain_rows = self.span = self.limit = 0
        self.topic_hint = -1
        self.in_entries = False
        self.names = _TEXT
        self.key_at = array("q", bytes(8 * _ROW_KEYS))
        self.key_size = array("q", bytes(8 * _ROW_KEYS))

    def write_into(self, longs: LongRows, ints: IntRows, key_hash: Ints, key_row: Ints) -> None:
        """New arrays, which are empty."""
        if not cython.compiled:
            longs, ints, key_hash, key_row = views(longs, ints, key_hash, key_row)
        self.longs, self.ints, self.key_hash, self.key_row = longs, ints, key_hash, key_row
        self.row = self.keys = self.plain_rows = 0

    def walk(
        self, window: Bytes, stop: int, physical_offset: int, slots: ReadInts, entries: ReadLongRows, text: Bytes
    ) -> int:
        """Good messages of a window that start in front of `stop`, from `position` on, one row each; how it ended.

        `physical_offset` is that of the window's first byte. The others are the table of topics.
        """
        status: cython.int
        place: cython.Py_ssize_t = stop
        base: cython.longlong = physical_offset
        if not cython.compiled:
            window, slots, entries, text = views(window, slots, entries, text)
        self.window, self.slots, self.entries, self.text = window, slots, entries, text
        self.limit = len(window)
        with cython.nogil:
            status = self._walk(place, base)
        return status

    def walk_spans(
        self, window: Bytes, physical_offset: int, begins: ReadLongs, ends: ReadLongs, slots: ReadInts,
        entries: ReadLongRows, text: Bytes,
    ) -> int:  # fmt: skip
        """The same of the messages in spans of the window, from number `span` on, each of which they fill.

        `span` is then the first one that was not walked to its end.
        """
        status: cython.int = _WINDOW_END
        base: cython.longlong = physical_offset
        if not cython.compiled:
            window, begins, ends, slots, entries, text = views(window, begins, ends, slots, entries, text)
        self.window, self.slots, self.entries, self.text = window, slots, entries, text
        with cython.nogil:
            while self.span < len(begins):
                self.limit = ends[self.span]
                self.position = max(self.position, begins[self.span])
                if self.position < 0 or self.limit > len(self.window):
                    out_of_range(self.limit)
                status = self._walk(self.limit, base)
                if status != _WINDOW_END or self.position != self.limit:
                    break
                self.span += 1
        return status

    def _walk(self, stop: cython.Py_ssize_t, base: cython.longlong) -> cython.int:
        status: cython.int
        topic: cython.longlong
        while self.position < stop:
            if self.row >= self.longs.shape[1] or self.keys + _ROW_KEYS > len(self.key_hash):
                return _FULL
            self.at = self.position
            if self.in_entries:
                status = self._entry_head(base + self.at)
                if status == _PASSED:
                    continue
                if status != _GOOD:
                    return status
            status = self._frame(base + self.at)
            if status != _GOOD:
                return status
            if base + self.at >= self.crc_from and not self._has_good_crc():
                return _STOPPED
            if not is_utf8(self.window, self.topic, self.topic_length):
                return _STOPPED
            if not is_utf8(self.window, self.properties, self.property_length):
                return _STOPPED
            if self.asked & _WANT_TOPIC:
                topic = self.topic_hint if self.topic_hint >= 0 else self._topic_id()
                if topic < 0:
                    return _NEW_TOPIC
                self.topic_hint = -1
                if self.asked & _WANT_PROPERTIES:
                    self._write_properties(topic)
                self.ints[_TOPIC_ID, self.row] = topic
            self.longs[0, self.row] = base + self.at
            self.ints[0, self.row] = self.size
            if self.asked & _WANT_HEAD:
                self._write_numbers()
            if self.asked & _WANT_BYTES:
                self._write_bytes()
            self.row += 1
            self.position += self.size
        return _WINDOW_END

    def _entry_head(self, physical_offset: cython.longlong) -> cython.int:
        """_PASSED where a good head of a DLedger entry was stepped over, _GOOD where none begins. (entry_head_size)"""
        left: cython.Py_ssize_t = len(self.window) - self.at
        body: cython.int
        if left < _ENTRY + _BODY_LENGTH_SIZE:
            return _WINDOW_END
        if int_at(self.window, self.at) != _ENTRY_MAGIC:
            return _GOOD
        body = int_at(self.window, self.at + _ENTRY_BODY_AT)
        if body < 0 or body > 0x7FFFFFFF - _ENTRY or int_at(self.window, self.at + _ENTRY_SIZE_AT) != body + _ENTRY:
            return _STOPPED
        if long_at(self.window, self.at + _ENTRY_POS_AT) != physical_offset:
            return _STOPPED
        if body and int_at(self.window, self.at + _ENTRY) != body:
            return _STOPPED
        self.position += _ENTRY
        return _PASSED

    def _frame(self, physical_offset: cython.longlong) -> cython.int:
        """_GOOD where size, magic, position and lengths of the frame hold; its parts. (decode_message)"""
        left: cython.Py_ssize_t = self.limit - self.at
        magic: cython.int
        head: cython.Py_ssize_t
        variable: cython.Py_ssize_t
        field: cython.Py_ssize_t
        if left < _HEAD:
            return _WINDOW_END
        self.size = int_at(self.window, self.at)
        magic = int_at(self.window, self.at + _MAGIC_AT)
        if (magic not in (_V1, _V2)) or self.size < _MINIMUM:
            return _STOPPED
        if long_at(self.window, self.at + _POSITION_AT) != physical_offset:
            return _STOPPED
        if self.size > left:
            return _WINDOW_END
        self.sys_flag = int_at(self.window, self.at + _SYS_FLAG_AT)
        self.born = _WIDER if self.sys_flag & _BORN_V6 else 0
        self.stored = _WIDER if self.sys_flag & _STORED_V6 else 0
        head = _HEAD + self.born + self.stored
        if self.size < head:
            return _STOPPED
        field = _TOPIC_V2 if magic == _V2 else _TOPIC_V1
        variable = self.size - head - field - _PROPERTIES_LENGTH
        self.body = self.at + head
        self.body_length = int_at(self.window, self.body - _BODY_LENGTH_SIZE)
        if self.body_length < 0 or self.body_length > variable:
            return _STOPPED
        self.topic = self.body + self.body_length + field
        if magic == _V2:
            self.topic_length = short_at(self.window, self.topic - field)
        else:
            self.topic_length = self.window[self.topic - field]
            if self.topic_length > 127:
                return _STOPPED
        if self.topic_length <= 0 or self.topic_length > variable - self.body_length:
            return _STOPPED
        self.properties = self.topic + self.topic_length + _PROPERTIES_LENGTH
        self.property_length = variable - self.body_length - self.topic_length
        if short_at(self.window, self.properties - _PROPERTIES_LENGTH) != self.property_length:
            return _STOPPED
        return _GOOD

    def _has_good_crc(self) -> cython.bint:
        """Whether the body's CRC holds, and that of the frame if its properties end with one. (_check_crcs)"""
        end: cython.Py_ssize_t = self.at + self.size
        tail: cython.Py_ssize_t = end - _CRC_SIZE
        digit: cython.Py_ssize_t = end - 2
        value: cython.longlong = 0
        crc: cython.longlong
        if self.body_length:
            crc = crc32(self.window, self.body, self.body_length) & _CRC_MASK
            if crc != int_at(self.window, self.at + _CRC_AT):
                return False
        if tail < self.properties or self.window[end - 1] != 2 or not self._begins(tail, _CRC, _CRC_NAME_SIZE):
            return True
        while digit >= tail + _CRC_NAME_SIZE:
            if self.window[digit] < 0x30 or self.window[digit] > 0x39:
                return False
            value = value * 10 + self.window[digit] - 0x30
            digit -= 1
        crc = crc32(self.window, self.at, tail - self.at) & _CRC_MASK
        return crc == value

    def _begins(self, at: cython.Py_ssize_t, name: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Whether a name of the text of all names begins there."""
        return same(self.window, at, self.names, name, size)

    def _topic_id(self) -> cython.longlong:
        """The id of the frame's topic, -1 if it is not found. (TopicIds)"""
        state: cython.ulonglong = topic_hash(self.seed, self.window, self.topic, self.topic_length)
        slots: cython.Py_ssize_t = len(self.slots)
        probe: cython.int
        number: cython.Py_ssize_t
        begin: cython.Py_ssize_t
        place: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, state & (slots - 1))
        for probe in range(_PROBES):
            number = self.slots[(place + probe) & (slots - 1)]
            # another thread may have put the number there after this call was given entries and text
            if number < 0 or number >= len(self.entries):
                return -1
            begin = self.entries[number, _TEXT_BEGIN]
            if begin + self.topic_length > len(self.text):
                return -1
            if self.entries[number, _TEXT_LENGTH] == self.topic_length and same(
                self.text, begin, self.window, self.topic, self.topic_length
            ):
                return number
        return -1

    def _write_numbers(self) -> cython.int:
        """The numbers of the head."""
        born: cython.Py_ssize_t = self.at + self.born
        both: cython.Py_ssize_t = born + self.stored
        row: cython.Py_ssize_t = self.row
        self.longs[_QUEUE_OFFSET, row] = long_at(self.window, self.at + _QUEUE_OFFSET_AT)
        self.longs[_BORN, row] = long_at(self.window, self.at + _BORN_AT)
        self.longs[_STORED, row] = long_at(self.window, born + _STORED_AT)
        self.longs[_PREPARED, row] = long_at(self.window, both + _PREPARED_AT)
        self.ints[_QUEUE_ID, row] = int_at(self.window, self.at + _QUEUE_ID_AT)
        self.ints[_FLAG, row] = int_at(self.window, self.at + _FLAG_AT)
        self.ints[_SYS_FLAG, row] = self.sys_flag
        self.ints[_BODY_CRC, row] = int_at(self.window, self.at + _CRC_AT)
        self.ints[_RECONSUMED, row] = int_at(self.window, both + _RECONSUMED_AT)
        self.ints[_BORN_PORT, row] = int_at(self.window, born + _BORN_PORT_AT)
        self.ints[_STORE_PORT, row] = int_at(self.window, both + _STORE_PORT_AT)
        return 0

    def _write_bytes(self) -> cython.int:
        """Where the parts of the message lie in the window, and what the hosts begin with."""
        row: cython.Py_ssize_t = self.row
        self.ints[_BODY_POSITION, row] = self.body
        self.ints[_BODY_LENGTH, row] = self.body_length
        self.ints[_PROPERTY_POSITION, row] = self.properties
        self.ints[_PROPERTY_LENGTH, row] = self.property_length
        self.ints[_BORN_POSITION, row] = self.at + _BORN_HOST_AT
        self.ints[_STORE_POSITION, row] = self.at + _STORE_HOST_AT + self.born
        self.ints[_BORN_START, row] = int_at(self.window, self.at + _BORN_HOST_AT)
        self.ints[_STORE_START, row] = int_at(self.window, self.at + _STORE_HOST_AT + self.born)
        return 0

    def _write_properties(self, topic: cython.longlong) -> cython.int:
        """What the properties say: tag code, delay level, keys, and what is left to Python."""
        level: cython.int = 0
        self._find_values()
        if self.sys_flag & _INNER:
            self.plain |= _PLAIN_BATCH
        if self.asked & _WANT_TAGS:
            self.longs[_TAGS_CODE, self.row] = hash_on(0, self.window, self.tags, self.tags_length)
            if self.level_length and self.entries[topic, _IS_SCHEDULE]:
                level = self._delay_level()
                if level < 0:
                    self.plain |= _PLAIN_DELAY
            self.ints[_DELAY_LEVEL, self.row] = level
        if self.asked & _WANT_KEYS and self.sys_flag & _TRANSACTION != _ROLLBACK:
            self.key_state = cython.cast(cython.int, self.entries[topic, _KEY_STATE])
            self._add_keys()
        if self.plain & (_PLAIN_DELAY | _PLAIN_KEYS):
            self.plain_rows += 1
        self.ints[_NEEDS_PLAIN, self.row] = self.plain
        return 0

    def _find_values(self) -> cython.int:
        """Place and length of the values of TAGS, KEYS, UNIQ_KEY and DELAY, length 0 without; what else is left to
        Python by its property (NeedsPlain). A later value replaces an earlier one; an empty value counts as absent.
        (parse_properties)"""
        at: cython.Py_ssize_t = self.properties
        end: cython.Py_ssize_t = at + self.property_length
        stop: cython.Py_ssize_t
        length: cython.Py_ssize_t
        first: cython.int
        has_queues: cython.bint = False
        has_offsets: cython.bint = False
        self.plain = 0
        self.tags = self.words = self.unique = self.level = at
        self.tags_length = self.words_length = self.unique_length = self.level_length = 0
        while at < end:
            stop = find(self.window, at, end, 2)
            length = stop - at
            first = self.window[at]
            if first == 0x54:  # T
                if length > _TAGS_SIZE and self._begins(at, _TAGS, _TAGS_SIZE):
                    self.tags, self.tags_length = at + _TAGS_SIZE, length - _TAGS_SIZE
            elif first == 0x4B:  # K
                if length > _KEYS_SIZE and self._begins(at, _KEYS, _KEYS_SIZE):
                    self.words, self.words_length = at + _KEYS_SIZE, length - _KEYS_SIZE
            elif first == 0x55:  # U
                if length > _UNIQUE_SIZE and self._begins(at, _UNIQUE, _UNIQUE_SIZE):
                    self.unique, self.unique_length = at + _UNIQUE_SIZE, length - _UNIQUE_SIZE
            elif first == 0x44:  # D
                if length > _LEVEL_SIZE and self._begins(at, _LEVEL, _LEVEL_SIZE):
                    self.level, self.level_length = at + _LEVEL_SIZE, length - _LEVEL_SIZE
            elif first == 0x49:  # I
                if length > _NUMBER_SIZE and self._begins(at, _NUMBER, _NUMBER_SIZE):
                    self.plain |= _PLAIN_BATCH
                elif length > _QUEUES_SIZE and self._begins(at, _QUEUES, _QUEUES_SIZE):
                    has_queues = True
                elif length > _OFFSETS_SIZE and self._begins(at, _OFFSETS, _OFFSETS_SIZE):
                    has_offsets = True
            at = stop + 1
        if has_queues and has_offsets:
            self.plain |= _PLAIN_MULTI
        return 0

    def _delay_level(self) -> cython.int:
        """The delay level that a few ASCII digits say; -1 for anything else, which Java may still read as a number."""
        level: cython.int = 0
        at: cython.Py_ssize_t
        digit: cython.int
        if self.level_length > _LONGEST_LEVEL:
            return -1
        for at in range(self.level, self.level + self.level_length):
            digit = self.window[at] - 0x30
            if digit < 0 or digit > 9:
                return -1
            level = level * 10 + digit
        return level

    def _add_keys(self) -> cython.int:
        """The entries of the frame's keys: UNIQ_KEY, then each word of KEYS, then its tag. (index_keys)"""
        stop: cython.Py_ssize_t
        at: cython.Py_ssize_t = self.words
        end: cython.Py_ssize_t = at + self.words_length
        self.first = self.keys
        if self.unique_length:
            self._add_key(self.unique, self.unique_length)
        while at < end:
            stop = find(self.window, at, end, 0x20)
            if self.keys - self.first == _ROW_KEYS:
                self.plain |= _PLAIN_KEYS
                break
            if stop > at:
                self._add_key(at, stop - at)
            at = stop + 1
        if self.asked & _WANT_TAG_KEYS and self.tags_length and not self.plain & _PLAIN_KEYS:
            if self.keys - self.first == _ROW_KEYS:
                self.plain |= _PLAIN_KEYS
            else:
                self._add_tag_key()
        if self.plain & _PLAIN_KEYS:
            self.keys = self.first
        return 0

    def _add_key(self, key: cython.Py_ssize_t, length: cython.Py_ssize_t) -> cython.int:
        """Add a key unless it is among those of the frame. (key_hash)"""
        value: cython.longlong = hash_on(self.key_state, self.window, key, length)
        entry: cython.Py_ssize_t
        number: cython.Py_ssize_t
        # Java's abs: that of the least int is negative, which RocketMQ takes for 0
        value = value if value >= 0 else 0 if value == -0x80000000 else -value
        for entry in range(self.first, self.keys):
            number = entry - self.first
            if (
                self.key_hash[entry] == value
                and self.key_size[number] == length
                and same(self.window, self.key_at[number], self.window, key, length)
            ):
                return 0
        number = self.keys - self.first
        self.key_hash[self.keys] = cython.cast(cython.int, value)
        self.key_row[self.keys] = cython.cast(cython.int, self.row)
        self.key_at[number] = key
        self.key_size[number] = length
        self.keys += 1
        return 0

    def _add_tag_key(self) -> cython.int:
        """Add the entry of the tag, unless one of the keys reads the same. (tag_key)"""
        value: cython.longlong = hash_on(self.key_state, self.names, _PREFIX, _PREFIX_SIZE)
        entry: cython.Py_ssize_t
        number: cython.Py_ssize_t
        key: cython.Py_ssize_t
        value = hash_on(cython.cast(cython.int, value), self.window, self.tags, self.tags_length)
        value = value if value >= 0 else 0 if value == -0x80000000 else -value
        for entry in range(self.first, self.keys):
            number = entry - self.first
            if self.key_hash[entry] != value or self.key_size[number] != _PREFIX_SIZE + self.tags_length:
                continue
            key = self.key_at[number]
            if self._begins(key, _PREFIX, _PREFIX_SIZE) and same(
                self.window, key + _PREFIX_SIZE, self.window, self.tags, self.tags_length
            ):
                return 0
        self.key_hash[self.keys] = cython.cast(cython.int, value)
        self.key_row[self.keys] = cython.cast(cython.int, ~self.row)
        self.keys += 1
        return 0
