/* Element types and reductions: sizes, names, and what goes together. */
#include "base/error.h"
#include "base/text.h"

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

baton_status_t baton_op_check(const baton_op_t *op, baton_dtype_t dtype)
{
#define OP_ADDRESS(NAME, name) BATON_##NAME,
    static const baton_op_t *const all[] = {BATON_OP_LIST(OP_ADDRESS)
                                                BATON_AVG};
    if (op == NULL || op->reduce == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "op%s is NULL, must be BATON_SUM, another of "
                            "baton/types.h, or a reduction of yours",
                            op == NULL ? "" : "->reduce");
    }
    if (baton_dtype_size(dtype) == 0) {
        return baton__error(BATON_ERR_INVALID, BATON__WRONG_DTYPE, (int)dtype);
    }
    if (baton_op_takes(op, dtype)) {
        return BATON_OK;
    }
    char list[256];
    baton__text_t text = {.data = list, .size = sizeof list};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (baton_op_takes(all[i], dtype)) {
            baton__text_add(&text, text.used > 0 ? ", %s" : "%s", all[i]->name);
        }
    }
    return baton__error(
        BATON_ERR_INVALID, "op is %s, which does not reduce %s; allowed: %s",
        op->name != NULL ? op->name : "?", baton_dtype_name(dtype), list);
}
