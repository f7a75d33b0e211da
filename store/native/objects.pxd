# What objects.py says, for compiled modules, which take it into themselves.
cimport cython
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.tuple cimport PyTuple_GetItem
from libc.string cimport memchr, memcpy

from rmqctl.store.native.crc cimport crc_of
from rmqctl.store.native.memory cimport is_inside, out_of_range
from rmqctl.store.native.views cimport Place, WritableBytes

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "stdatomic.h" nogil:
    ctypedef enum memory_order:
        memory_order_release
    void atomic_thread_fence(memory_order order)


cdef inline object item(object fields, Py_ssize_t place):
    return <object> PyTuple_GetItem(fields, place)


cdef inline unsigned int crc_of_bytes(bytes data) except? 1:
    cdef Py_ssize_t length = len(data)
    return crc_of(<Place> PyBytes_AsString(data), length) if length else 0


@cython.boundscheck(False)
cdef inline int copy_bytes(WritableBytes target, Py_ssize_t to, bytes data) except -1:
    cdef Py_ssize_t length = len(data)
    if not is_inside(to, length, target.shape[0]):
        out_of_range(to)
    if length:
        memcpy(&target[to], PyBytes_AsString(data), length)
    return 0


@cython.boundscheck(False)
cdef inline Py_ssize_t copy_text(WritableBytes target, Py_ssize_t to, object text, unsigned char end) except? -1:
    cdef Py_ssize_t length = 0
    cdef const char *place = PyUnicode_AsUTF8AndSize(text, &length)
    if memchr(place, end, length) != NULL:
        raise ValueError("a text holds what ends it")
    if not is_inside(to, length, target.shape[0]):
        out_of_range(to)
    if length:
        memcpy(&target[to], place, length)
    return length


cdef inline void fence() noexcept nogil:
    atomic_thread_fence(memory_order_release)


cdef inline bytes part(bytes data, Py_ssize_t at, Py_ssize_t length):
    if not is_inside(at, length, len(data)):
        out_of_range(at)
    return PyBytes_FromStringAndSize(PyBytes_AsString(data) + at, length)
