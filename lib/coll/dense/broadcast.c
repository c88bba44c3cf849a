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
    baton_view_t data = args->data;
    bool right =
        baton__check_root(schedule, builder, args->root) &&
        baton__check_multiple(schedule, builder, "data", data.bytes, 1) &&
        baton__check_view(schedule, builder, "data", data);
    baton__agree_chunk(schedule, args->chunk_bytes);
    return right && data.bytes > 0 && baton_schedule_size(schedule) > 1;
}
