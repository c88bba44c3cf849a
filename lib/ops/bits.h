/* What the loops over elements ask of compilers: GCC and clang. */
#pragma once

#include <stdint.h>

/* Users' memory: of any declared type, at any address. */
#define FOREIGN __attribute__((may_alias, aligned(1)))

#define PREFETCH(address) __builtin_prefetch(address)

/* The name of a table of one instruction set. */
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* The position of the lowest bit that is set; there is one. */
static inline unsigned baton__lowest_bit(uint64_t bits)
{
    return (unsigned)__builtin_ctzll(bits);
}
