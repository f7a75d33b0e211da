from rmqctl.store.native.views cimport Bytes, WritableBytes


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
