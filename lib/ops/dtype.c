/* Element types and reductions: sizes and names. */
#include <baton/build.h>

size_t baton_dtype_size(baton_dtype_t dtype)
{
#define DTYPE_SIZE(NAME, name, bytes) [BATON_##NAME] = (bytes),
    static const unsigned char sizes[] = {BATON_DTYPE_LIST(DTYPE_SIZE)};
    return (size_t)dtype < sizeof sizes ? sizes[dtype] : 0;
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
#define DTYPE_NAME(NAME, name, bytes) [BATON_##NAME] = #name,
    static const char *const names[] = {[BATON_DTYPE_NONE] = "none",
                                        BATON_DTYPE_LIST(DTYPE_NAME)};
    return (size_t)dtype < BATON_DTYPE_COUNT ? names[dtype] : "?";
}
