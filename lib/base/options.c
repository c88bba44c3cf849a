/* Structs with a size; see options.h. */
#include "base/options.h"

#include "base/error.h"

#include <string.h>

static bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Returns the size that the caller has stored in a struct's first field. If the
   size is impossible, sets this thread's error and returns 0. */
static size_t options_size_of(const void *from, size_t bytes, const char *what,
                              const char *initialiser)
{
    size_t size = 0;
    if (from == NULL) {
        (void)baton__error(BATON_ERR_INVALID, "%s: NULL", what);
        return 0;
    }
    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > BATON__OPTIONS_MOST) {
        (void)baton__error(BATON_ERR_INVALID,
                           "%s: size is %zu, must be %zu, or that of another "
                           "version, from %zu to %d: initialise with %s",
                           what, size, bytes, sizeof size,
                           (int)BATON__OPTIONS_MOST, initialiser);
        return 0;
    }
    return size;
}

baton_status_t baton__options_read(void *out, size_t bytes, const void *from,
                                   const char *what, const char *initialiser)
{
    size_t size = options_size_of(from, bytes, what, initialiser);
    if (size == 0) {
        return BATON_ERR_INVALID;
    }
    if (size > bytes && !is_zero((const char *)from + bytes, size - bytes)) {
        return baton__error(
            BATON_ERR_INVALID,
            "%s: size is %zu, and a field beyond the %zu bytes that this "
            "version knows is set: zero it, or use a newer library",
            what, size, bytes);
    }
    memset(out, 0, bytes);
    memcpy(out, from, size < bytes ? size : bytes);
    memcpy(out, &bytes, sizeof bytes);
    return BATON_OK;
}

baton_status_t baton__options_write(void *out, const void *whole, size_t bytes,
                                    const char *what, const char *initialiser)
{
    size_t size = options_size_of(out, bytes, what, initialiser);
    if (size == 0) {
        return BATON_ERR_INVALID;
    }
    memset(out, 0, size);
    memcpy(out, whole, size < bytes ? size : bytes);
    memcpy(out, &size, sizeof size);
    return BATON_OK;
}
