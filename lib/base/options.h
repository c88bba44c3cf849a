/* Structs that callers fill, and that newer versions of the library extend. */
#pragma once

#include <baton/types.h>
#include <stddef.h>

/* Bytes of a struct; a size beyond that was not initialised. */
enum { BATON__OPTIONS_MOST = 4096 };

/* Copies the caller's struct, whose first field is its size, to one of this
   version, of `bytes` bytes. Fields that the caller's does not have are zero.
   BATON_ERR_INVALID when `given` is NULL, its size is impossible, or it has
   fields that this version does not know and that are not zero. `what` and
   `initialiser` are for the message ("engine options",
   "BATON_ENGINE_OPTIONS"). */
baton_status_t baton__options_read(void *out, size_t bytes, const void *given,
                                   const char *what, const char *initialiser);

/* Copies a struct of this version to the caller's: the fields that the caller's
   has. Its size stays, and fields that this version does not know become zero.
   BATON_ERR_INVALID when `out` is NULL or its size is impossible; it is not
   written then. */
baton_status_t baton__options_write(void *out, const void *whole, size_t bytes,
                                    const char *what, const char *initialiser);
