/* Copies into memory that other ranks of this host read in place. */
#pragma once

#include <stddef.h>

/* baton__copy_shared pays only for copies of at least this size: shorter copies
   take as long through the cache as past it; see copy.c. */
#define BATON__COPY_SHARED_BYTES ((size_t)16 * 1024)

/* Copies through the cache or past it, whichever recent copies of this thread
   suggest is faster. */
void baton__copy_shared(void *to, const void *from, size_t bytes);

/* Like memcpy, but leaves the copied bytes in no cache. */
void baton__copy_past_cache(char *to, const char *from, size_t bytes);
