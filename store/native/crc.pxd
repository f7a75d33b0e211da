from rmqctl.store.native.views cimport Place

ctypedef unsigned int (*CrcFunction)(unsigned int crc, Place place, unsigned long long length) noexcept nogil

cdef unsigned int[2048] tables
cdef CrcFunction of_isal

cdef unsigned int crc_of(Place place, Py_ssize_t length) noexcept nogil
cdef unsigned int crc_by_tables(Place place, Py_ssize_t length) noexcept nogil
