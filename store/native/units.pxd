from rmqctl.store.native.views cimport Bytes, Ints, Longs, ReadInts, ReadLongs, WritableBytes

cdef Py_ssize_t _UNIT, _OFFSET, _SIZE, _TAGS
cdef Py_ssize_t _ENTRY, _HASH, _PLACE, _TIME, _PREVIOUS
cdef long long _SECOND, _LARGEST
