/* Element types and reductions: sizes and names. */
#include "base/error.h"

#include <string.h>

static const char *const names[] = {
#define DTYPE_NAME(NAME, name, ...) [BATON_##NAME] = #name,
    [BATON_DTYPE_NONE] = "none", BATON_DTYPE_LIST(DTYPE_NAME)};

size_t baton_dtype_size(baton_dtype_t dtype)
{
#define DTYPE_SIZE(NAME, name, bytes, ...) [BATON_##NAME] = (bytes),
    static const unsigned char sizes[] = {BATON_DTYPE_LIST(DTYPE_SIZE)};
    return (size_t)dtype < sizeof sizes ? sizes[dtype] : 0;
}

bool baton_op_takes(const baton_op_t *op, baton_dtype_t dtype)
{
    return op->dtypes == 0 ||
           ((unsigned)dtype < 32 && (op->dtypes >> (unsigned)dtype & 1) != 0);
}

size_t baton_op_element_bytes(const baton_op_t *op, baton_dtype_t dtype)
{
    size_t bytes = baton_dtype_size(dtype);
    return bytes == 0 || op == NULL || op->element_bytes == 0
               ? bytes
               : op->element_bytes;
}

const char *baton_dtype_name(baton_dtype_t dtype)
{
    return (size_t)dtype < BATON_DTYPE_COUNT ? names[dtype] : "?";
}

baton_status_t baton_dtype_find(const char *name, baton_dtype_t *out)
{
    if (!baton__is_given(name, true, __func__, "name") ||
        !baton__is_given(out, true, __func__, "out")) {
        return BATON_ERR_INVALID;
    }
    for (int i = BATON_DTYPE_NONE + 1; i < BATON_DTYPE_COUNT; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (baton_dtype_t)i;
            return BATON_OK;
        }
    }
    return baton__error_unknown("element type", name, names + 1,
                                BATON_DTYPE_COUNT - 1);
}
