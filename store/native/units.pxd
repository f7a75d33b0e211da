from rmqctl.store.native.views cimport Bytes, Ints, Longs, ReadInts, ReadLongs, WritableBytes

cdef Py_ssize_t _UNIT, _OFFSET, _SIZE, _TAGS
cdef Py_ssize_t _ENTRY, _HASH, _PLACE, _TIME, _PREVIOUS
cdef long long _SECOND, _LARGEST, _MOST_ENTRIES, _LARGEST_KEYS, _LARGEST_BLOCK, _SEQUENCES
cdef Py_ssize_t _VALUE, _HEAD, _TRAILER, _SLOT, _PUT, _LONGEST
cdef long long number_at(Bytes block, Py_ssize_t at, Py_ssize_t end) except? -2 nogil
cdef Py_ssize_t read_head(Bytes block, Py_ssize_t at, Py_ssize_t end, long long before, Longs sizes) except? -2 nogil


cdef class UnitSlots:
    cdef Bytes prefix
    cdef long long first
    cdef WritableBytes units, key
    cdef Longs sequences, sizes
    cdef Py_ssize_t width, size
    cdef bint is_of_queue

    cdef Py_ssize_t place_alike(self, Bytes block, Py_ssize_t position, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t place_one(self, Bytes block, Py_ssize_t position, Py_ssize_t end) except -2 nogil
