from rmqctl.store.native.views cimport Place

cdef unsigned long long _MULTIPLIER, _ALL_BITS

cdef bint is_utf8_of(Place place, Py_ssize_t length) noexcept nogil
cdef unsigned long long topic_hash_of(unsigned long long seed, Place place, Py_ssize_t length) noexcept nogil
cdef int hash_of(int state, Place place, Py_ssize_t length) noexcept nogil
