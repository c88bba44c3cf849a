/* Element types: sizes and names. */
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
