from rmqctl.store.native.views cimport Bytes, LongRows, Longs, ReadLongRows, ReadLongs, WritableBytes

cdef Py_ssize_t _MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT, _PHYSICAL_AT, _SYS_FLAG_AT, _BORN_AT
cdef Py_ssize_t _BORN_HOST_AT, _STORED_AT, _STORE_HOST_AT, _RECONSUMED_AT, _PREPARED_AT, _BODY_LENGTH_AT
cdef Py_ssize_t _HEAD, _PROPERTIES_LENGTH, _FRAME_ROWS, _SPAN_ROWS
cdef long long _MAGIC, _OVERHEAD, _BLANK, _LARGEST_PROPERTIES, _NO_TIME, _INTS
cdef unsigned long long _SPREAD
cdef unsigned int _CRC_MASK
cdef Py_ssize_t _SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG, _QUEUE_OFFSET, _BORN, _BORN_HOST, _RECONSUMED, _PREPARED, _TOPIC
cdef Py_ssize_t _STORED, _STORE_HOST, _BODY, _PROPERTIES

cdef bint is_int(long long number) noexcept nogil
cdef Py_ssize_t place_of(long long at, Py_ssize_t count) except -1 nogil
cdef long long length_of(long long begin, long long end, long long count) except -1 nogil
cdef Py_ssize_t end_of_frame(long long size, Py_ssize_t at, Py_ssize_t room) except -1 nogil
cdef int check_rows(
    ReadLongRows columns, ReadLongRows starts, ReadLongRows ends, Py_ssize_t begin, Py_ssize_t end
) except -1 nogil
