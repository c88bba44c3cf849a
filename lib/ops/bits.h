/* Sets of flags, as the bits of a word. */
#ifndef BATON_OPS_BITS_H
#define BATON_OPS_BITS_H

#include <stdint.h>

/* The position of the lowest bit that is set; there is one. */
static inline unsigned baton__lowest_bit(uint64_t bits)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(bits);
#else
    unsigned position = 0;
    for (; (bits & 1) == 0; bits >>= 1) {
        position++;
    }
    return position;
#endif
}

#endif
