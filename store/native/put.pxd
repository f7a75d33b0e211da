cimport cython

from rmqctl.store.native.views cimport LongRows, WritableBytes


# places of fields in a message and in a host
cdef Py_ssize_t _TOPIC, _BODY, _QUEUE_ID, _FLAG, _PROPERTIES, _PROPERTY_BYTES, _SYS_FLAG, _BORN, _BORN_HOST, _STORED
cdef Py_ssize_t _STORE_HOST, _RECONSUMED, _PREPARED, _FIELDS, _HOST_FIELDS

# places in a frame
cdef Py_ssize_t _SIZE_AT, _MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT, _PHYSICAL_AT, _SYS_FLAG_AT
cdef Py_ssize_t _BORN_AT, _BORN_IP_AT, _BORN_PORT_AT, _STORED_AT, _STORE_IP_AT, _STORE_PORT_AT, _RECONSUMED_AT
cdef Py_ssize_t _PREPARED_AT, _BODY_LENGTH_AT, _HEAD, _LENGTH, _FIRST, _IP_SIZE
cdef unsigned int _MAGIC, _CRC_MASK
cdef unsigned char _PROPERTY_END
cdef long long _LOWEST_INT, _HIGHEST_INT, _MILLION, _NO_TIME
cdef Py_ssize_t _UNKNOWN, _UNUSUAL, _NO_ROOM

# rows of the tables of columns
cdef Py_ssize_t _COLUMN_QUEUE_ID, _COLUMN_FLAG, _COLUMN_SYS_FLAG, _COLUMN_BORN, _COLUMN_BORN_HOST, _COLUMN_TOPIC
cdef Py_ssize_t _COLUMN_RECONSUMED, _COLUMN_PREPARED, _COLUMN_STORED, _BODY_SPAN, _PROPERTY_SPAN


cdef class NextOffset:
    cdef public long long value


cdef class Window:
    cdef readonly object file
    cdef public long long limit
    cdef long long start_offset
    cdef WritableBytes view


cdef class PutState:
    cdef readonly object lock
    cdef public long long last_timestamp
    cdef public object begin_in_lock
    cdef readonly Window window
    cdef readonly bint is_open


@cython.no_gc_clear
cdef class OrdinaryPuts:
    cdef PutState _state
    cdef dict _topics
    cdef dict _names, _io
    cdef object _learn, _follower, _nanoseconds, _slow, _clock, _is_busy, _acquire, _release
    cdef object _message_type, _host_type, _no_properties, _result_type, _stored, _new_result, _store_host
    cdef object _last_host
    cdef long long _largest_body, _unusual_flags
    cdef WritableBytes _head, _properties

    cpdef object put_if_ordinary(self, message)
    cdef object _locked(self, message)
    cdef object _put(self, message)
    cdef bint _is_new(self, message)
    cdef int _write_numbers(self, message) except -1
    cdef int _write_host(self, host) except -1
    cdef Py_ssize_t _write_properties(self, WritableBytes target, Py_ssize_t begin, properties) except? -1
    cdef object _write(self, message, bytes topic, NextOffset next_offset, long long now)
    cdef bint _fill_row(self, message, topics, hosts, LongRows columns, Py_ssize_t row) except -1


cdef long long number(value) except? -1
cdef long long int_number(value) except? -1
