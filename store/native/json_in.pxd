from rmqctl.store.native.json_values cimport JsonValues
from rmqctl.store.native.views cimport Bytes, IntRows, LongRows, Longs, ReadInts, WritableBytes


cdef class LineReader(JsonValues):
    cdef IntRows _fields, _slots
    cdef LongRows _limits, _columns, _starts, _ends, _notes, _spans, _told_apart
    cdef Bytes _specials
    cdef ReadInts _special_ends
    cdef bint _is_copy, _needs_ids, _has_map, _has_id, _is_named
    cdef WritableBytes _good, _bodies, _properties, _scratch, _texts
    cdef Longs _counts
    cdef Py_ssize_t _bodies_used, _properties_used, _scratch_used, _texts_used, _row, _keys_at, _keys_end
    cdef Py_ssize_t _property_count

    cdef Py_ssize_t _read_lines(self) except -2 nogil
    cdef int _read_line(self, Py_ssize_t begin, Py_ssize_t stop) except -2 nogil
    cdef Py_ssize_t _read_object(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t _read_value(self, Py_ssize_t at, Py_ssize_t end, Py_ssize_t field) except -2 nogil
    cdef Py_ssize_t _number_into(self, Py_ssize_t at, Py_ssize_t end, Py_ssize_t field) except -2 nogil
    cdef Py_ssize_t _read_text(self, Py_ssize_t at, Py_ssize_t end, int text, bint is_base64) except -2 nogil
    cdef Py_ssize_t _read_keys(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t _read_map(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef Py_ssize_t _read_part(self, Py_ssize_t at, Py_ssize_t end, unsigned char separator) except -2 nogil
    cdef int _has_separator(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef int _note_name(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef int _is_special(self, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef int _end_row(self, Py_ssize_t begin) except -2 nogil
    cdef int _end_properties(self, Py_ssize_t begin) except -2 nogil
    cdef int _is_usual(self, Py_ssize_t at) except -2 nogil
    cdef int _put(self, Bytes view, Py_ssize_t at, Py_ssize_t end) except -2 nogil
    cdef int _put_byte(self, unsigned char byte) except -2 nogil
    cdef Py_ssize_t _number_of(self, int table, int text) except -2 nogil
