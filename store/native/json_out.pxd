from rmqctl.store.native.json_text cimport JsonText
from rmqctl.store.native.views cimport Bytes, IntRows, LongRows, ReadInts


cdef class JsonLineWriter(JsonText):
    cdef IntRows _fields, _ints
    cdef Bytes _names, _window, _topics, _unpacked
    cdef ReadInts _name_ends, _topic_ends
    cdef LongRows _longs, _bodies, _found
    cdef Py_ssize_t _begin, _count, _unique_key, _tags, _keys

    cdef int _write_row(self, Py_ssize_t row) except -1 nogil
    cdef bint _find_properties(self, Py_ssize_t row) except -1 nogil
    cdef int _write_field(self, Py_ssize_t row, Py_ssize_t field) except -1 nogil
    cdef int _put_head(self, Py_ssize_t row, int kind) except -1 nogil
    cdef bint _put_rare(self, Py_ssize_t row, int kind) except -1 nogil
    cdef int _put_property(self, Py_ssize_t entry) except -1 nogil
    cdef int _put_keys(self) except -1 nogil
    cdef int _put_properties(self) except -1 nogil
    cdef int _put_column(self, Py_ssize_t row, Py_ssize_t column) except -1 nogil
