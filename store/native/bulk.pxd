from rmqctl.store.native.views cimport LongRows, Longs, WritableBytes

cdef Py_ssize_t _SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG, _RECONSUMED, _TOPIC, _STORED, _BODY, _PROPERTIES
cdef long long _OVERHEAD, _BLANK, _LARGEST_PROPERTIES, _NO_TIME, _INTS
cdef unsigned long long _SPREAD

cdef bint is_int(long long number) noexcept nogil
