/* Structs that callers fill in. Newer versions of the library may add fields at
   their ends. */
#pragma once

#include <baton/types.h>

/* The largest size of a struct. A larger value shows that the struct was not
   initialised. */
enum { BATON__OPTIONS_MOST = 4096 };

/* Copies the caller's struct, whose first field is its size, to `out`, which is
   a struct of this version and has `bytes` bytes. Fields that `from` lacks
   become zero. BATON_ERR_INVALID: `from` is NULL, its size is impossible, or a
   field that this version does not know is not zero. `what` and `initialiser`
   are for the message ("engine options", "BATON_ENGINE_OPTIONS"). */
baton_status_t baton__options_read(void *out, size_t bytes, const void *from,
                                   const char *what, const char *initialiser);

/* Copies a struct of this version to the caller's struct `out`, as far as `out`
   has the fields. The size in `out` stays, and fields of `out` that this
   version does not know become zero. BATON_ERR_INVALID: `out` is NULL or its
   size is impossible; nothing is written. */
baton_status_t baton__options_write(void *out, const void *whole, size_t bytes,
                                    const char *what, const char *initialiser);
