from rmqctl.store.native.views cimport Bytes, IntRows, LongRows, ReadInts, WritableBytes


cdef class JsonText:
    cdef WritableBytes target
    cdef Py_ssize_t used
    cdef Bytes unsafe

    cdef int put(self, unsigned char byte) except -1 nogil
    cdef int put_bytes(self, Bytes view, Py_ssize_t at, Py_ssize_t end) except -1 nogil
    cdef int put_text(self, Bytes view, Py_ssize_t at, Py_ssize_t end) except -1 nogil
    cdef Py_ssize_t clean_end(self, Bytes view, Py_ssize_t at, Py_ssize_t end) except -1 nogil
    cdef Py_ssize_t put_character(self, Bytes view, Py_ssize_t at) except -1 nogil
    cdef int put_escape(self, int unit) except -1 nogil
    cdef int put_base64(self, Bytes view, Py_ssize_t at, Py_ssize_t end) except -1 nogil
    cdef int put_number(self, long long value) except -1 nogil
    cdef int put_hex(self, long long value, int digits) except -1 nogil
    cdef int put_host(self, int address, int port) except -1 nogil
    cdef int put_time(self, long long time) except -1 nogil
    cdef int put_padded(self, long long value, long long unit, unsigned char behind) except -1 nogil


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
