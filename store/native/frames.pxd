from rmqctl.store.native.views cimport Bytes, ReadLongRows, ReadLongs, WritableBytes

cdef Py_ssize_t _MAGIC_AT, _CRC_AT, _QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT, _PHYSICAL_AT, _SYS_FLAG_AT, _BORN_AT
cdef Py_ssize_t _BORN_HOST_AT, _STORED_AT, _STORE_HOST_AT, _RECONSUMED_AT, _PREPARED_AT, _BODY_LENGTH_AT
cdef Py_ssize_t _HEAD, _PROPERTIES_LENGTH
cdef long long _MAGIC
cdef unsigned int _CRC_MASK
cdef Py_ssize_t _SIZE, _QUEUE_ID, _FLAG, _SYS_FLAG, _QUEUE_OFFSET, _BORN, _BORN_HOST, _RECONSUMED, _PREPARED, _TOPIC
cdef Py_ssize_t _STORED, _STORE_HOST, _BODY, _PROPERTIES

cdef int _write_head(WritableBytes target, Py_ssize_t at, ReadLongRows columns, ReadLongs hosts, Py_ssize_t row) except -1 nogil
