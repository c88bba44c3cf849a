/* The library allocates all of its memory with these functions, so that tests
   can count allocations and make the n-th one fail. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocates count * size zeroed bytes, aligned to 64. Returns NULL if there is
   no memory or the product overflows. For zero bytes, too, it returns an
   address. */
void *baton__alloc(size_t count, size_t size);

/* Like baton__alloc, but does not clear the memory. So pages that are never
   touched cost nothing. */
void *baton__alloc_raw(size_t bytes);

/* Returns false if `bytes` is more than 15/16 of the memory that the kernel has
   left: the kernel kills a process that touches more than is left. Requests
   that together are below BATON__TOUCHED_BYTES are not checked, since a check
   takes long. A caller touches a long piece of memory in parts of
   BATON__TOUCHED_BYTES, and calls this function before each part, because other
   ranks take memory at the same time. */
#define BATON__TOUCHED_BYTES ((size_t)32 << 20)
bool baton__memory_fits(size_t bytes);

/* Grows an array to `count` elements: returns a new array that begins with the
   old content, and frees the old one. If there is no memory, returns NULL and
   leaves the old array as it is. */
void *baton__grow(void *old, size_t old_count, size_t count, size_t size);

/* Does what baton__grow does with the array to which the pointer at `array`
   points, and sets that pointer. Returns false if there is no memory. */
bool baton__extend(void *array, size_t old_count, size_t count, size_t size);

void baton__free(void *memory);

/* Frees an object to which callers have a handle, but only after
   BATON__UNFREED_OBJECTS more such calls. Until then a call with the old handle
   can read the object's fields, which say that it was destroyed. */
enum { BATON__UNFREED_OBJECTS = 64 };
void baton__free_later(void *memory);

/* Returns a copy of a string; NULL if there is no memory. */
char *baton__copy_string(const char *text);

/* For tests: makes the n-th allocation from now on fail, whichever thread makes
   it. n is counted from 1; 0 makes no allocation fail. */
void baton__alloc_fail_nth(int64_t n);

/* For tests: overrides how many bytes the kernel has left. SIZE_MAX ends the
   override. */
void baton__memory_override(size_t left);

/* For tests: the number of allocations so far, in all threads. */
int64_t baton__alloc_count(void);
