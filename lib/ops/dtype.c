/* Element types and reductions: sizes and names. */
#include <baton/types.h>

size_t baton_dtype_size(baton_dtype_t dtype)
{
    switch (dtype) {
#define DTYPE_SIZE(NAME, name, bytes)                                          \
    case BATON_##NAME:                                                         \
        return bytes;
        BATON_DTYPE_LIST(DTYPE_SIZE)
#undef DTYPE_SIZE
    case BATON_DTYPE_COUNT:
        break;
    }
    return 0;
}

size_t baton_op_element_bytes(const baton_op_t *op, baton_dtype_t dtype)
{
    return op->element_bytes != 0 ? op->element_bytes : baton_dtype_size(dtype);
}

const char *baton_dtype_name(baton_dtype_t dtype)
{
    switch (dtype) {
#define DTYPE_NAME(NAME, name, bytes)                                          \
    case BATON_##NAME:                                                         \
        return #name;
        BATON_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
    case BATON_DTYPE_COUNT:
        break;
    }
    return "?";
}
