from rmqctl.store.native.views cimport Bytes, Ints, IntRows, LongRows, Longs, ReadInts, ReadLongRows, ReadLongs

cdef int _STOPPED, _WINDOW_END, _FULL, _NEW_TOPIC, _GOOD, _PASSED, _PROBES
cdef Py_ssize_t _ROW_KEYS, _TEXT_BEGIN, _TEXT_LENGTH, _KEY_STATE, _IS_SCHEDULE

# places in a frame
cdef Py_ssize_t _HEAD, _WIDER, _MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT, _POSITION_AT, _SYS_FLAG_AT
cdef Py_ssize_t _BORN_AT, _BORN_HOST_AT, _BORN_PORT_AT, _STORED_AT, _STORE_HOST_AT, _STORE_PORT_AT
cdef Py_ssize_t _RECONSUMED_AT, _PREPARED_AT, _BODY_LENGTH_SIZE, _MINIMUM, _PROPERTIES_LENGTH, _TOPIC_V1, _TOPIC_V2
cdef Py_ssize_t _ENTRY, _ENTRY_SIZE_AT, _ENTRY_POS_AT, _ENTRY_BODY_AT
cdef int _ENTRY_MAGIC, _V1, _V2, _BORN_V6, _STORED_V6, _INNER, _TRANSACTION, _ROLLBACK
cdef unsigned int _CRC_MASK

# what is asked for, and what is left to Python
cdef int _WANT_HEAD, _WANT_TOPIC, _WANT_PROPERTIES, _WANT_TAGS, _WANT_KEYS, _WANT_TAG_KEYS, _WANT_BYTES
cdef int _PLAIN_MULTI, _PLAIN_BATCH, _PLAIN_DELAY, _PLAIN_KEYS

# places of names in the text of all, and their sizes
cdef Py_ssize_t _TAGS, _KEYS, _UNIQUE, _LEVEL, _NUMBER, _QUEUES, _OFFSETS, _CRC, _PREFIX
cdef Py_ssize_t _TAGS_SIZE, _KEYS_SIZE, _UNIQUE_SIZE, _LEVEL_SIZE, _NUMBER_SIZE, _QUEUES_SIZE, _OFFSETS_SIZE
cdef Py_ssize_t _CRC_NAME_SIZE, _CRC_SIZE, _PREFIX_SIZE, _LONGEST_LEVEL

# rows of the tables of columns
cdef Py_ssize_t _QUEUE_OFFSET, _BORN, _STORED, _PREPARED, _TAGS_CODE
cdef Py_ssize_t _QUEUE_ID, _FLAG, _SYS_FLAG, _BODY_CRC, _RECONSUMED, _BORN_PORT, _STORE_PORT, _TOPIC_ID
cdef Py_ssize_t _DELAY_LEVEL, _NEEDS_PLAIN, _BODY_POSITION, _BODY_LENGTH, _PROPERTY_POSITION, _PROPERTY_LENGTH
cdef Py_ssize_t _BORN_POSITION, _STORE_POSITION, _BORN_START, _STORE_START


cdef class WindowWalk:
    cdef public int asked
    cdef public long long crc_from
    cdef public Py_ssize_t position, row, keys, plain_rows, span
    cdef public long long topic_hint
    cdef public bint in_entries
    # what `walk` was given
    cdef Bytes window, text, names
    cdef ReadInts slots
    cdef ReadLongRows entries
    cdef long long seed
    cdef LongRows longs
    cdef IntRows ints
    cdef Ints key_hash, key_row
    # where the frames end that are walked
    cdef Py_ssize_t limit
    # the frame at `at`, its parts by place and length
    cdef Py_ssize_t at, size, born, stored, body, body_length, topic, topic_length, properties, property_length
    cdef Py_ssize_t tags, tags_length, words, words_length, unique, unique_length, level, level_length
    cdef Py_ssize_t first
    cdef int sys_flag, plain, key_state
    # place and length of each key of the frame
    cdef Longs key_at, key_size

    cdef int _walk(self, Py_ssize_t stop, long long base) except -1 nogil
    cdef int _entry_head(self, long long physical_offset) except -1 nogil
    cdef int _frame(self, long long physical_offset) except -1 nogil
    cdef bint _has_good_crc(self) except -1 nogil
    cdef long long _topic_id(self) except? -2 nogil
    cdef int _write_numbers(self) except -1 nogil
    cdef int _write_bytes(self) except -1 nogil
    cdef int _write_properties(self, long long topic) except -1 nogil
    cdef int _find_values(self) except -1 nogil
    cdef bint _begins(self, Py_ssize_t at, Py_ssize_t name, Py_ssize_t size) except -1 nogil
    cdef int _delay_level(self) except -2 nogil
    cdef int _add_keys(self) except -1 nogil
    cdef int _add_key(self, Py_ssize_t key, Py_ssize_t length) except -1 nogil
    cdef int _add_tag_key(self) except -1 nogil
