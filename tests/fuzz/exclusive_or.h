/* A reduction of a user's own, for any type: exclusive or. */
#ifndef TESTS_FUZZ_EXCLUSIVE_OR_H
#define TESTS_FUZZ_EXCLUSIVE_OR_H

#include <baton/baton.h>

static inline void fuzz_exclusive_or(void *arg, void *target, const void *left,
                                     const void *right, size_t count,
                                     baton_dtype_t dtype)
{
    unsigned char *to = target;
    const unsigned char *a = left;
    const unsigned char *b = right;
    (void)arg;
    size_t bytes = count * baton_dtype_size(dtype);
    for (size_t i = 0; i < bytes; i++) {
        to[i] = a[i] ^ b[i];
    }
}

#endif
