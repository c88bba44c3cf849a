#include "coll/dense/allreduce.h"

#include "coll/kit/check.h"

bool baton__allreduce_in_place(const baton_schedule_t *schedule,
                               const baton_allreduce_args_t *args)
{
    return baton__same_place(schedule, args->source, args->target);
}

bool baton__allreduce_begin(baton_schedule_t *schedule, const char *builder,
                            const baton_allreduce_args_t **passed)
{
    const baton_allreduce_args_t *args = baton__read_args(
        schedule, builder, *passed, sizeof *args, "baton_allreduce_args_t");
    bool in_place;
    if (args == NULL ||
        !baton__check_reduction(schedule, builder, args->op, args->dtype,
                                args->source, args->target, &in_place)) {
        return false;
    }
    baton__agree_chunk(schedule, args->chunk_bytes);
    *passed = args;
    if (args->source.bytes > 0 && baton_schedule_size(schedule) == 1 &&
        !in_place) {
        baton_add_copy(schedule, args->target, args->source);
    }
    return args->source.bytes > 0 && baton_schedule_size(schedule) > 1;
}

void baton__allreduce_in_blocks(baton_schedule_t *schedule, const char *builder,
                                const baton_allreduce_args_t *args,
                                baton__in_blocks_fn add)
{
    if (!baton__allreduce_begin(schedule, builder, &args) ||
        !baton__check_commutative(schedule, builder, args->op,
                                  BATON__ORDERED_ALLREDUCES)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    baton__blocks_t target = baton__blocks_cut(&flow, args->target, flow.size);
    baton__blocks_t source = target;
    source.memory = args->source;
    if (target.at != NULL) {
        bool in_place = baton__allreduce_in_place(schedule, args);
        add(&flow, &target, in_place ? &target : &source, args->chunk_bytes);
    }
    baton__flow_close(&flow);
}
