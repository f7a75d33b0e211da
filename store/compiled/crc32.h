/* CRC-32 for what is compiled from C: that of the wheel isal, whose address is handed in, or one of our own. */

#include <stdint.h>

/* CRC-32 over eight bytes at a time, where nobody hands in a faster one. */
static uint32_t crc_tables[8][256];

static void
make_crc_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        }
        crc_tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc_tables[table - 1][byte];
            crc_tables[table][byte] = before >> 8 ^ crc_tables[0][before & 0xFF];
        }
    }
}

static uint32_t
crc_by_tables(uint32_t crc, const unsigned char *data, uint64_t length)
{
    crc = ~crc;
    for (; length >= 8; data += 8, length -= 8) {
        uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
        crc = crc_tables[7][low & 0xFF] ^ crc_tables[6][low >> 8 & 0xFF] ^ crc_tables[5][low >> 16 & 0xFF] ^
              crc_tables[4][low >> 24] ^ crc_tables[3][data[4]] ^ crc_tables[2][data[5]] ^ crc_tables[1][data[6]] ^
              crc_tables[0][data[7]];
    }
    for (; length; data++, length--) {
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *data) & 0xFF];
    }
    return ~crc;
}

/* Crc of `length` bytes that follow those whose crc is given. */
typedef uint32_t (*CrcFunction)(uint32_t crc, const unsigned char *data, uint64_t length);

/* The function at an address; that of our own where it is 0. `make_crc_tables` has to be called before. */
static CrcFunction
crc_function(unsigned long long address)
{
    return address ? (CrcFunction)(uintptr_t)address : crc_by_tables;
}
