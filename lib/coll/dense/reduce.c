#include "coll/dense/reduce.h"

#include "coll/kit/check.h"

static bool check(baton_schedule_t *schedule, const char *builder,
                  const baton_reduce_args_t **given, baton__reduce_t *out)
{
    const baton_reduce_args_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_reduce_args_t");
    if (args == NULL || !baton__check_root(schedule, builder, args->root)) {
        return false;
    }
    *given = args;
    out->element = baton__check_op(schedule, builder, args->op, args->dtype);
    if (out->element == 0 ||
        !baton__check_multiple(schedule, builder, "source", args->source.bytes,
                               out->element)) {
        return false;
    }
    baton__agree_chunk(schedule, args->chunk_bytes);
    out->at_root = baton_schedule_rank(schedule) == args->root;
    if (!out->at_root) {
        return baton__check_view(schedule, builder, "source", args->source);
    }
    out->in_place = baton__same_place(schedule, args->source, args->target);
    return baton__check_alike(schedule, builder, args->source, args->target) &&
           baton__check_places(schedule, builder, args->source, args->target,
                               out->in_place);
}

bool baton__reduce_begin(baton_schedule_t *schedule, const char *builder,
                         const baton_reduce_args_t **given,
                         baton__reduce_t *out)
{
    *out = (baton__reduce_t){.at_root = false};
    if (!check(schedule, builder, given, out)) {
        return false;
    }
    const baton_reduce_args_t *args = *given;
    out->target = args->target;
    out->source = out->in_place ? args->target : args->source;
    if (baton_schedule_size(schedule) == 1 && !out->in_place) {
        baton_add_copy(schedule, args->target, args->source);
    }
    return args->source.bytes > 0 && baton_schedule_size(schedule) > 1;
}
