from rmqctl.store.native.views cimport Bytes, IntRows, LongRows, Longs, ReadInts, WritableBytes

cdef Py_ssize_t split(Bytes view, Py_ssize_t at, Py_ssize_t end, LongRows found, Py_ssize_t before) except -1 nogil
cdef bint is_named(Bytes view, Py_ssize_t at, Py_ssize_t end, Bytes name) except -1 nogil
cdef Py_ssize_t place_of(Bytes view, Py_ssize_t at, Py_ssize_t end, LongRows found, Py_ssize_t count) except -1 nogil
cdef Py_ssize_t follows_suit(Bytes view, Py_ssize_t at, Py_ssize_t end, LongRows found, Py_ssize_t entry) except -1 nogil
cdef Py_ssize_t put(WritableBytes target, Py_ssize_t used, Bytes view, Py_ssize_t at, Py_ssize_t end) except -1 nogil
cdef Py_ssize_t put_keys(Bytes window, Py_ssize_t at, Py_ssize_t end, WritableBytes keys, IntRows items, Py_ssize_t count) except -1 nogil
cdef int put_row(Bytes window, LongRows found, Py_ssize_t count, Py_ssize_t row, Py_ssize_t rows, int wanted, IntRows ends, WritableBytes present, IntRows items, WritableBytes unique, WritableBytes tags, WritableBytes keys, WritableBytes names, WritableBytes values) except -1 nogil
cdef bint put_rows(Bytes window, ReadInts positions, ReadInts lengths, int wanted, LongRows found, IntRows ends, WritableBytes present, IntRows items, WritableBytes unique, WritableBytes tags, WritableBytes keys, WritableBytes names, WritableBytes values, WritableBytes stored) except -1 nogil
cdef Py_ssize_t join_rows(Bytes names, ReadInts name_ends, Bytes values, ReadInts value_ends, Py_ssize_t each, WritableBytes target, Longs places) except -2 nogil
