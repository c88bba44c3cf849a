/* All of the library's memory comes from here, so that tests can count
   allocations and make the n-th one fail. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocates count * size zeroed bytes, aligned to 64; NULL if there is no
   memory or the product overflows. Zero bytes give a pointer, too. */
void *baton__alloc(size_t count, size_t size);

/* The same, but not initialised: pages that are never touched cost nothing. */
void *baton__alloc_raw(size_t bytes);

/* False if the kernel has not that much left, and would end a process once it
   is touched. Long memory is asked about again for each part that is touched,
   as other ranks take theirs at the same time. */
#define BATON__TOUCHED_BYTES ((size_t)32 << 20)
bool baton__memory_fits(size_t bytes);

/* Grows an array to `count` elements: returns a new one that begins with the
   old content, and frees the old one. On NULL the old one is untouched. */
void *baton__grow(void *old, size_t old_count, size_t count, size_t size);

void baton__free(void *memory);

/* Frees an object that callers have a handle of, when so many more objects were
   given back here that nobody will use the handle by mistake: until then its
   fields may be read, and say that it was destroyed. */
enum { BATON__KEPT_OBJECTS = 64 };
void baton__free_later(void *memory);

/* A copy of a string, or NULL. */
char *baton__copy_string(const char *text);

/* For tests: makes the n-th allocation from now fail, in any thread, counted
   from 1; 0 makes none fail. */
void baton__alloc_fail_nth(int64_t n);

/* For tests: so much memory is left from now on; SIZE_MAX: as much as is. */
void baton__memory_pretend(size_t left);

/* For tests: the number of allocations so far, in all threads. */
int64_t baton__alloc_count(void);
