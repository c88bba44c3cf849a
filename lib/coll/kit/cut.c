#include "coll/kit/cut.h"

#include "base/alloc.h"

size_t *baton__cut_bytes(baton_schedule_t *schedule, const char *builder,
                         const char *what, size_t bytes,
                         const size_t *block_bytes)
{
    int size = baton_schedule_size(schedule);
    if (block_bytes == NULL) {
        return baton__check_multiple(schedule, builder, what, bytes,
                                     (size_t)size)
                   ? baton__cut_evenly(schedule, bytes, 1, size)
                   : NULL;
    }
    size_t *at = baton__cut_by_counts(schedule, builder, block_bytes, 1, size);
    if (at != NULL &&
        !baton__check_bytes(schedule, builder, what, bytes, at[size])) {
        baton__free(at);
        return NULL;
    }
    return at;
}
