# Typed views of memory, with bounds checks; uncompiled.py says what they are to the plain form.
ctypedef const unsigned char[::1] Bytes
ctypedef unsigned char[::1] WritableBytes
ctypedef int[::1] Ints
ctypedef unsigned int[::1] UInts
ctypedef long long[::1] Longs
ctypedef unsigned long long[::1] ULongs
ctypedef double[::1] Doubles
ctypedef const int[::1] ReadInts
ctypedef const unsigned int[::1] ReadUInts
ctypedef const long long[::1] ReadLongs
ctypedef int[:, ::1] IntRows
ctypedef long long[:, ::1] LongRows
ctypedef const long long[:, ::1] ReadLongRows

# where a range begins whose length was compared before: for crc alone
ctypedef const unsigned char *Place
