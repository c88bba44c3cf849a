#include "coll/dense/allreduce.h"
#include "coll/kit/check.h"

bool baton__allreduce_in_place(const baton_schedule_t *schedule,
                               const baton_allreduce_t *args)
{
    return baton__same_place(schedule, args->source, args->target);
}

/* Says what is wrong, or returns true. */
static bool check(baton_schedule_t *schedule, const char *builder,
                  const baton_allreduce_t **given)
{
    const baton_allreduce_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_allreduce_t");
    if (args == NULL) {
        return false;
    }
    *given = args;
    size_t element = baton__check_op(schedule, builder, args->op, args->dtype);
    if (element == 0) {
        return false;
    }
    if (args->source.bytes != args->target.bytes) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: source has %zu bytes and target %zu, must be "
                            "the same",
                            builder, args->source.bytes, args->target.bytes);
        return false;
    }
    if (args->source.bytes % element != 0) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: source has %zu bytes, must be a multiple of "
                            "%zu, the size of %s",
                            builder, args->source.bytes, element,
                            args->op->element_bytes != 0
                                ? "the reduction's element"
                                : baton_dtype_name(args->dtype));
        return false;
    }
    return baton__allreduce_in_place(schedule, args) ||
           baton__check_apart(schedule, builder, args->source, args->target);
}

bool baton__allreduce_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allreduce_t **given)
{
    if (!check(schedule, builder, given)) {
        return false;
    }
    const baton_allreduce_t *args = *given;
    if (args->source.bytes == 0) {
        return false;
    }
    if (baton_schedule_size(schedule) == 1) {
        if (!baton__allreduce_in_place(schedule, args)) {
            baton_add_copy(schedule, args->target, args->source);
        }
        return false;
    }
    return true;
}
