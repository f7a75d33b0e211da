from rmqctl.store.native.json_values cimport JsonValues
from rmqctl.store.native.views cimport Ints, LongRows, Longs, ReadInts, ReadLongs


cdef class FieldReader(JsonValues):
    cdef ReadInts _kinds
    cdef LongRows _values, _ends
    cdef Longs _items
    cdef Py_ssize_t _used, _row
    cdef long long _seen

    cdef Py_ssize_t _read_object(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t _read_value(self, Py_ssize_t at, Py_ssize_t end, Py_ssize_t field) except -2 nogil
    cdef Py_ssize_t _read_list(self, Py_ssize_t at, Py_ssize_t end, Py_ssize_t field) except -2 nogil
    cdef int _owner_of(self, Ints slots, Ints firsts, ReadLongs extra, int count) except -2 nogil
    cdef int _is_same(self, Py_ssize_t other, ReadLongs extra) except -2 nogil
