#include "coll/dense/broadcast.h"
#include "coll/kit/check.h"

bool baton__broadcast_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_broadcast_args_t **given)
{
    const baton_broadcast_args_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_broadcast_args_t");
    if (args == NULL) {
        return false;
    }
    *given = args;
    return baton__check_root(schedule, builder, args->root) &&
           args->data.bytes > 0 && baton_schedule_size(schedule) > 1;
}
