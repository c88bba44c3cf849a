/* Extensions of GCC and clang for loops over elements. */
#pragma once

#include <stdint.h>

/* Qualifies the type of an element in the user's memory, which may have any
   declared type and any address. */
#define FOREIGN __attribute__((may_alias, aligned(1)))

#define PREFETCH(address) __builtin_prefetch(address)

/* JOIN(table, isa) makes the name of the table for one instruction set. */
#define JOIN_(a, b) a##b
#define JOIN(a, b)  JOIN_(a, b)

/* Returns the position of the lowest set bit; `bits` is not 0. */
static inline unsigned baton__lowest_bit(uint64_t bits)
{
    return (unsigned)__builtin_ctzll(bits);
}
