/* A gradient that is contributed in parts, each as the backward pass yields it.

       contribute --> accumulate, or copy, these elements --+
       contribute --> the same for others                 --+
       start -----------------------------------------------+--> step

   Before the start, parts are in memory that the step may overwrite: neither
   the residual nor the pending gradients change. So parts can be discarded. If
   the residual changes, they must be discarded, because they may have been
   added to the old residual already. */
#include "coll/sparse/object/object.h"

#include "base/alloc.h"
#include "base/float_mode.h"

enum { MORE_PARTS = 64 };

static baton_status_t contribute_check(const baton_sparse_t *sparse,
                                       size_t first, size_t count,
                                       const void *part)
{
    baton_status_t status = baton__sparse_check_idle(sparse, "contribute to");
    if (status == BATON_OK) {
        status =
            baton__sparse_check_range(sparse, "contribute to", first, count);
    }
    if (status != BATON_OK) {
        return status;
    }
    const baton__range_t *all = sparse->parts;
    bool none = part == NULL && sparse->payload && count > 0;
    if (none || sparse->options.in_place ||
        sparse->backend->contribute == NULL) {
        return baton__sparse_error(
            sparse, none ? BATON_ERR_INVALID : BATON_ERR_UNSUPPORTED,
            "contribute to", "%s",
            none ? "part is NULL" : "gradients are in place, or on a device");
    }
    for (size_t i = 0; count > 0 && i < sparse->input.part_count; i++) {
        if (first < all[i].end && all[i].first < first + count) {
            return baton__sparse_error(
                sparse, BATON_ERR_INVALID, "contribute to",
                "elements %zu to %zu overlap %zu to %zu, which were "
                "contributed",
                first, first + count - 1, all[i].first, all[i].end - 1);
        }
    }
    return BATON_OK;
}

baton_status_t baton_sparse_contribute(baton_sparse_t *sparse, size_t first,
                                       size_t count, const void *part)
{
    baton_status_t status = contribute_check(sparse, first, count, part);
    if (status != BATON_OK || count == 0) {
        return status;
    }
    size_t have = sparse->part_capacity;
    if (sparse->input.part_count == have) {
        if (!baton__extend(&sparse->parts, have, have + MORE_PARTS,
                           sizeof *sparse->parts)) {
            return baton__sparse_no_memory(sparse);
        }
        sparse->part_capacity += MORE_PARTS;
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    status = sparse->backend->contribute(sparse, first, count, part);
    baton__float_mode_leave(mode);
    if (status == BATON_OK) {
        sparse->parts[sparse->input.part_count++] =
            (baton__range_t){first, first + count};
    }
    return status;
}

baton_status_t baton_sparse_discard(baton_sparse_t *sparse)
{
    baton_status_t status = baton__sparse_check_idle(sparse, "discard");
    if (status == BATON_OK) {
        sparse->input.part_count = 0;
    }
    return status;
}

baton_status_t baton__sparse_check_parts(const baton_sparse_t *sparse)
{
    const baton__range_t *parts = sparse->parts;
    size_t end = 0; /* all elements before `end` were contributed */
    for (size_t i = 0; i < sparse->input.part_count;) {
        bool next = parts[i].first == end;
        end = next ? parts[i].end : end;
        i = next ? 0 : i + 1;
    }
    return sparse->input.part_count == 0 || end == sparse->count
               ? BATON_OK
               : baton__sparse_error(
                     sparse, BATON_ERR_STATE, "start",
                     "the part with element %zu was not contributed", end);
}
