# cython: boundscheck=False
# What memory.py says, for compiled modules, which take it into themselves: one comparison with the length, one load: no
# further bounds check, for which the line above stands.
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.tuple cimport PyTuple_GetItem
from libc.string cimport memchr, memcmp, memcpy

from rmqctl.store.native.crc cimport crc_of
from rmqctl.store.native.text cimport hash_of, is_utf8_of, topic_hash_of
from rmqctl.store.native.views cimport Bytes, Place, WritableBytes

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef extern from "stdatomic.h" nogil:
    ctypedef enum memory_order:
        memory_order_release
    void atomic_thread_fence(memory_order order)


cdef inline unsigned int word(const unsigned char *place) noexcept nogil:
    return (<unsigned int> place[0] << 24) | (<unsigned int> place[1] << 16) | (<unsigned int> place[2] << 8) | place[3]


cdef inline unsigned int little_word(const unsigned char *place) noexcept nogil:
    return (<unsigned int> place[3] << 24) | (<unsigned int> place[2] << 16) | (<unsigned int> place[1] << 8) | place[0]


cdef inline void set_word(unsigned char *place, unsigned int value) noexcept nogil:
    place[0] = value >> 24 & 0xFF
    place[1] = value >> 16 & 0xFF
    place[2] = value >> 8 & 0xFF
    place[3] = value & 0xFF


cdef inline int out_of_range(Py_ssize_t at) except -1 nogil:
    with gil:
        raise IndexError(at)


cdef inline bint is_inside(Py_ssize_t at, Py_ssize_t length, Py_ssize_t whole) noexcept nogil:
    return at >= 0 and length >= 0 and at <= whole - length


# the caller has shown that the whole field is within the view
cdef inline int get_int(Bytes view, Py_ssize_t at) noexcept nogil:
    return <int> word(&view[at])


cdef inline long long get_long(Bytes view, Py_ssize_t at) noexcept nogil:
    return <long long> (<unsigned long long> word(&view[at]) << 32 | word(&view[at] + 4))


cdef inline long long get_little_long(Bytes view, Py_ssize_t at) noexcept nogil:
    return <long long> (<unsigned long long> little_word(&view[at] + 4) << 32 | little_word(&view[at]))


cdef inline int short_at(Bytes view, Py_ssize_t at) except? -1 nogil:
    if not is_inside(at, 2, view.shape[0]):
        out_of_range(at)
    return <short> (view[at] << 8 | view[at + 1])


cdef inline int int_at(Bytes view, Py_ssize_t at) except? -1 nogil:
    if not is_inside(at, 4, view.shape[0]):
        out_of_range(at)
    return get_int(view, at)


cdef inline long long long_at(Bytes view, Py_ssize_t at) except? -1 nogil:
    if not is_inside(at, 8, view.shape[0]):
        out_of_range(at)
    return get_long(view, at)


cdef inline long long little_long_at(Bytes view, Py_ssize_t at) except? -1 nogil:
    if not is_inside(at, 8, view.shape[0]):
        out_of_range(at)
    return get_little_long(view, at)


cdef inline int set_short(WritableBytes view, Py_ssize_t at, long long value) except -1 nogil:
    if not is_inside(at, 2, view.shape[0]):
        out_of_range(at)
    view[at] = value >> 8 & 0xFF
    view[at + 1] = value & 0xFF
    return 0


# the same
cdef inline int put_int(WritableBytes view, Py_ssize_t at, long long value) noexcept nogil:
    set_word(&view[at], <unsigned int> value)
    return 0


cdef inline int put_long(WritableBytes view, Py_ssize_t at, long long value) noexcept nogil:
    set_word(&view[at], <unsigned int> (value >> 32))
    set_word(&view[at] + 4, <unsigned int> value)
    return 0


cdef inline int set_int(WritableBytes view, Py_ssize_t at, long long value) except -1 nogil:
    if not is_inside(at, 4, view.shape[0]):
        out_of_range(at)
    return put_int(view, at, value)


cdef inline int set_long(WritableBytes view, Py_ssize_t at, long long value) except -1 nogil:
    if not is_inside(at, 8, view.shape[0]):
        out_of_range(at)
    return put_long(view, at, value)


cdef inline int i32(long long value) noexcept nogil:
    return <int> <unsigned int> value


cdef inline unsigned int u32(long long value) noexcept nogil:
    return <unsigned int> value


cdef inline long long i64(unsigned long long value) noexcept nogil:
    return <long long> value


cdef inline int copy(WritableBytes target, Py_ssize_t to, Bytes source, Py_ssize_t at, Py_ssize_t length) except -1 nogil:
    if not is_inside(to, length, target.shape[0]):
        out_of_range(to)
    if not is_inside(at, length, source.shape[0]):
        out_of_range(at)
    if length:
        memcpy(&target[to], &source[at], length)
    return 0


cdef inline bint same(Bytes view, Py_ssize_t at, Bytes other, Py_ssize_t begin, Py_ssize_t length) except -1 nogil:
    if not is_inside(at, length, view.shape[0]):
        out_of_range(at)
    if not is_inside(begin, length, other.shape[0]):
        out_of_range(begin)
    return length == 0 or memcmp(&view[at], &other[begin], length) == 0


cdef inline Py_ssize_t find(Bytes view, Py_ssize_t at, Py_ssize_t end, unsigned char byte) except -1 nogil:
    cdef const void *place
    if not is_inside(at, end - at, view.shape[0]):
        out_of_range(at)
    if at == end:
        return end
    place = memchr(&view[at], byte, end - at)
    return end if place == NULL else <const unsigned char *> place - &view[0]


cdef inline unsigned int crc32(Bytes view, Py_ssize_t at, Py_ssize_t length) except? 1 nogil:
    if not is_inside(at, length, view.shape[0]):
        out_of_range(at)
    return crc_of(&view[at], length) if length else 0


cdef inline bint is_utf8(Bytes view, Py_ssize_t at, Py_ssize_t length) except -1 nogil:
    if not is_inside(at, length, view.shape[0]):
        out_of_range(at)
    return length == 0 or is_utf8_of(&view[at], length)


cdef inline int hash_on(int state, Bytes view, Py_ssize_t at, Py_ssize_t length) except? -1 nogil:
    if not is_inside(at, length, view.shape[0]):
        out_of_range(at)
    return hash_of(state, &view[at], length) if length else state


cdef inline unsigned long long topic_hash(
    unsigned long long seed, Bytes view, Py_ssize_t at, Py_ssize_t length
) except? 1 nogil:
    if not is_inside(at, length, view.shape[0]):
        out_of_range(at)
    return topic_hash_of(seed, &view[at], length) if length else seed


cdef inline object item(object fields, Py_ssize_t place):
    return <object> PyTuple_GetItem(fields, place)


cdef inline unsigned int crc_of_bytes(bytes data) except? 1:
    cdef Py_ssize_t length = len(data)
    return crc_of(<Place> PyBytes_AsString(data), length) if length else 0


cdef inline int copy_bytes(WritableBytes target, Py_ssize_t to, bytes data) except -1:
    cdef Py_ssize_t length = len(data)
    if not is_inside(to, length, target.shape[0]):
        out_of_range(to)
    if length:
        memcpy(&target[to], PyBytes_AsString(data), length)
    return 0


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


cdef inline bytes bytes_at(Bytes view, Py_ssize_t at, Py_ssize_t length):
    if not is_inside(at, length, view.shape[0]):
        out_of_range(at)
    return PyBytes_FromStringAndSize(<const char *> &view[at], length) if length else b""
