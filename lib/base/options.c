/* Structs with a size; see options.h. */
#include "base/options.h"

#include "base/error.h"

#include <stdbool.h>
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

baton_status_t baton__options_read(void *out, size_t bytes, const void *given,
                                   const char *what, const char *initialiser)
{
    if (given == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: NULL", what);
    }
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > BATON__OPTIONS_MOST) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: size is %zu, expected %zu: initialise with %s",
                            what, size, bytes, initialiser);
    }
    if (size > bytes && !is_zero((const char *)given + bytes, size - bytes)) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: size is %zu, and beyond the %zu bytes that "
                            "this version knows something is set",
                            what, size, bytes);
    }
    memset(out, 0, bytes);
    memcpy(out, given, size < bytes ? size : bytes);
    memcpy(out, &bytes, sizeof bytes);
    return BATON_OK;
}
