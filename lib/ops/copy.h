/* Copies into memory that other ranks of this host read in place. */
#pragma once

#include <stddef.h>

/* Shorter copies take the same time either way; see copy.c. */
#define BATON__COPY_SHARED_BYTES ((size_t)16 * 1024)

void baton__copy_shared(void *to, const void *from, size_t bytes);

/* Like memcpy, but leaves the copied bytes in no cache. */
void baton__copy_past_cache(char *to, const char *from, size_t bytes);
