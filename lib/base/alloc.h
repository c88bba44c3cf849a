/* The library's only way to memory: so that tests can make the n-th allocation
   fail, and count them. */
#ifndef BATON_BASE_ALLOC_H
#define BATON_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* count * size zeroed bytes, aligned to 64; NULL when there are none left or
   the product overflows. Zero bytes give a pointer too. */
void *baton__alloc(size_t count, size_t size);

/* Grows an array to `count` elements: a new one with the old content in front,
   the old one freed. NULL: the old one is untouched. */
void *baton__grow(void *old, size_t old_count, size_t count, size_t size);

void baton__free(void *memory);

/* A copy of a string, or NULL. */
char *baton__copy_string(const char *text);

/* Tests: the n-th allocation from now fails, counted from 1, of any thread; 0
   switches it off. */
void baton__alloc_fail_nth(int64_t n);

/* Tests: allocations so far, of all threads. */
int64_t baton__alloc_count(void);

#endif
