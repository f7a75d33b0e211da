from rmqctl.store.native.views cimport Bytes, Ints, Longs, ReadInts, ReadLongs, WritableBytes

cdef Py_ssize_t _UNIT, _OFFSET, _SIZE, _TAGS
cdef Py_ssize_t _ENTRY, _HASH, _PLACE, _TIME, _PREVIOUS
cdef long long _SECOND, _LARGEST, _MOST_ENTRIES, _LARGEST_KEYS, _SEQUENCES
cdef Py_ssize_t _VALUE, _TRAILER, _SLOT, _PUT, _LONGEST
cdef long long number_at(Bytes block, Py_ssize_t at, Py_ssize_t end) except? -2 nogil
cdef Py_ssize_t read_head(Bytes block, Py_ssize_t at, Py_ssize_t end, long long before, Longs sizes) except? -2 nogil
cdef bint place_unit(Bytes block, Py_ssize_t at, Py_ssize_t size, long long trailer, long long slot, WritableBytes units, Longs sequences) except -1 nogil
