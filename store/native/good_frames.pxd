from rmqctl.store.native.views cimport Bytes

cdef Py_ssize_t _HEAD, _LENGTH, _SIZE_AT, _MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _QUEUE_OFFSET_AT, _POSITION_AT
cdef Py_ssize_t _SYS_FLAG_AT, _BODY_LENGTH_AT, _CRC_SIZE, _UNIT, _UNIT_PLACE_AT, _UNIT_SIZE_AT
cdef int _MAGIC, _V6
cdef unsigned int _CRC_MASK
cdef unsigned char _CRC_FIRST, _PROPERTY_END
cdef long long _LONGEST_PROPERTIES, _HIGHEST_LONG

cdef Py_ssize_t properties_of(
    Bytes view, long long begin, long long physical_offset, long long size, long long queue_offset,
    long long queue_id, Bytes topic
) except -1
cdef bint may_have_crc(Bytes view, Py_ssize_t at, Py_ssize_t size) except -1
cdef long long end_of(long long physical_offset, long long size) noexcept
