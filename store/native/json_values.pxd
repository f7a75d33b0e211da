from rmqctl.store.native.views cimport Bytes, ReadInts, WritableBytes


cdef class JsonValues:
    cdef Bytes text, names
    cdef ReadInts name_ends
    cdef Py_ssize_t written
    cdef bint is_escaped
    cdef long long number

    cdef Py_ssize_t skip_spaces(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef bint is_word(self, Py_ssize_t at, Py_ssize_t end, Py_ssize_t word, Py_ssize_t length) except -2 nogil
    cdef Py_ssize_t plain_end(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t text_end(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef int hex_unit(self, Py_ssize_t at) except -2 nogil
    cdef unsigned char meaning(self, unsigned char letter) noexcept nogil
    cdef Py_ssize_t text_into(self, Py_ssize_t at, Py_ssize_t end, WritableBytes target, Py_ssize_t to) except -2 nogil
    cdef int unescape(self, Py_ssize_t at, Py_ssize_t end, WritableBytes target, Py_ssize_t to) except -2 nogil
    cdef Py_ssize_t character_into(self, int point, WritableBytes target, Py_ssize_t to) except -2 nogil
    cdef Py_ssize_t base64_into(self, Py_ssize_t at, Py_ssize_t end, WritableBytes target, Py_ssize_t to) except -2 nogil
    cdef Py_ssize_t digits_end(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t read_number(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t value_end(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t field_of(self, Py_ssize_t at, Py_ssize_t end, Py_ssize_t expected) except -2 nogil
