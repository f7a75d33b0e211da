from rmqctl.store.native.views cimport Bytes, LongRows

cdef Py_ssize_t split(Bytes view, Py_ssize_t at, Py_ssize_t end, LongRows found, Py_ssize_t before) except -1 nogil
