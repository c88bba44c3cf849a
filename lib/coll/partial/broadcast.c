/* The inner collective of a partial broadcast:

       root     source --> copy --> target --> binomial broadcast
       others                                  binomial broadcast --> target
*/
#include "coll/kit/check.h"

#include <baton/partial.h>

void baton_partial_broadcast(baton_schedule_t *schedule,
                             const baton_allreduce_t *args)
{
    static const char name[] = "partial broadcast";
    args = baton__read_args(schedule, name, args, sizeof *args,
                            "baton_allreduce_t");
    if (args == NULL) {
        return;
    }
    if (args->arg == NULL || args->source.bytes != args->target.bytes) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID, "%s: %s", name,
                            args->arg == NULL ? "inner_arg is NULL, must point "
                                                "to the root"
                                              : "result_count must be count");
        return;
    }
    int root = *(const int *)args->arg;
    baton_node_t ready = baton_add_nop(schedule);
    baton_node_t finished = baton_add_nop(schedule);
    if (root == baton_schedule_rank(schedule)) {
        baton_before(schedule,
                     baton_add_copy(schedule, args->target, args->source),
                     ready);
    }
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    baton_broadcast_binomial(schedule, root, args->target);
    baton_enclose_end(schedule, inside, ready, finished);
}
