/* Builders that choose their algorithm: each asks for a choice, and calls the
   builder of the chosen algorithm. */
#include "coll/kit/check.h"
#include "coll/tune/tune.h"

#include <stdio.h>

/* Returns true if a reduction must keep the order of ranks. Returns false for
   NULL, which the chosen builder refuses later. */
static bool is_ordered(const baton_op_t *op)
{
    return op != NULL && !op->commutative;
}

static bool is_end(const baton_schedule_t *schedule, int root)
{
    return root == 0 || root == baton_schedule_size(schedule) - 1;
}

/* States the choice as a remark, which errors show if ranks choose differently.
   Remarks are not compared: only what the algorithm's builder states must be
   the same, since other ranks may call that builder themselves. A segment size
   that the caller gives is not part of the remark. */
static void state_choice(baton_schedule_t *schedule, const char *title,
                         const baton_choice_case_t *of,
                         const baton_choice_t *choice)
{
    char segments[48] = "";
    if (choice->segment_bytes > 0 && of->segment_bytes == 0) {
        (void)snprintf(segments, sizeof segments, " in segments of %zu",
                       choice->segment_bytes);
    }
    baton_schedule_agree(
        schedule,
        "(%s by %s%s: chosen by arguments or %s or BATON_CALIBRATION)", title,
        choice->algorithm.name, segments,
        baton__choice_variable(of->collective));
}

/* Chooses an algorithm and a segment size, and states the choice. If the caller
   has given a segment size, that replaces the chosen one afterwards. Returns
   false if there is no choice; the schedule's error says why. */
static bool by_name_choose(baton_schedule_t *schedule, const char *title,
                           baton_choice_case_t of, baton_choice_t *out)
{
    of.size = sizeof of;
    of.ranks = baton_schedule_size(schedule);
    of.hosts = baton_schedule_hosts(schedule);
    of.processors = baton_schedule_processors(schedule);
    of.scattered = of.hosts > 1 && baton_schedule_host_block(schedule) == 0;
    baton_status_t status =
        baton__choose_for(baton_schedule_group(schedule), &of, out);
    if (status != BATON_OK) {
        baton_schedule_fail(schedule, status, "%s", baton_error_message());
    } else {
        state_choice(schedule, title, &of, out);
        out->segment_bytes =
            of.segment_bytes > 0 ? of.segment_bytes : out->segment_bytes;
    }
    return status == BATON_OK;
}

/* Chooses the algorithm of a collective that may have segments, and calls its
   builder. The macro's last arguments are the fields of the case other than the
   algorithm and the segment size. */
#define BUILD(noun, title, ...)                                                \
    baton_choice_t choice;                                                     \
    args = baton__pass_args(schedule, title, args, sizeof *args,               \
                            "baton_" #noun "_args_t");                         \
    if (args != NULL && by_name_choose(schedule, title,                        \
                                       (baton_choice_case_t){                  \
                                           .algorithm = args->algorithm,       \
                                           .segment_bytes = args->chunk_bytes, \
                                           __VA_ARGS__},                       \
                                       &choice)) {                             \
        baton_##noun##_args_t chosen = *args;                                  \
        chosen.chunk_bytes = choice.segment_bytes;                             \
        choice.algorithm.build.noun(schedule, &chosen);                        \
    }

void baton_add_broadcast(baton_schedule_t *schedule,
                         const baton_broadcast_args_t *args)
{
    BUILD(broadcast, "broadcast", .collective = BATON_COLLECTIVE_BROADCAST,
          .bytes = args->data.bytes)
}

void baton_add_reduce(baton_schedule_t *schedule,
                      const baton_reduce_args_t *args)
{
    BUILD(reduce, "reduce", .collective = BATON_COLLECTIVE_REDUCE,
          .bytes = args->source.bytes, .ordered = is_ordered(args->op),
          .root_at_end = is_end(schedule, args->root))
}

void baton_add_allreduce(baton_schedule_t *schedule,
                         const baton_allreduce_args_t *args)
{
    BUILD(allreduce, "all-reduce", .collective = BATON_COLLECTIVE_ALLREDUCE,
          .bytes = args->source.bytes, .ordered = is_ordered(args->op),
          .in_place = baton__same_place(schedule, args->source, args->target))
}

void baton_add_reduce_scatter(baton_schedule_t *schedule,
                              const baton_reduce_scatter_args_t *args)
{
    BUILD(reduce_scatter, "reduce-scatter",
          .collective = BATON_COLLECTIVE_REDUCE_SCATTER,
          .bytes = args->source.bytes, .ordered = is_ordered(args->op),
          .uneven = args->counts != NULL)
}

void baton_add_allgather(baton_schedule_t *schedule,
                         const baton_allgather_args_t *args)
{
    BUILD(allgather, "all-gather", .collective = BATON_COLLECTIVE_ALLGATHER,
          .bytes = args->target.bytes, .uneven = args->block_bytes != NULL)
}

/* If a caller gives a size for each rank, the bytes differ between ranks. Ranks
   choose the same algorithm nevertheless, since only one algorithm takes such
   sizes. */
void baton_add_alltoall(baton_schedule_t *schedule,
                        const baton_alltoall_args_t *args)
{
    baton_choice_t choice;
    args = baton__pass_args(schedule, "all-to-all", args, sizeof *args,
                            "baton_alltoall_args_t");
    if (args != NULL &&
        by_name_choose(
            schedule, "all-to-all",
            (baton_choice_case_t){.collective = BATON_COLLECTIVE_ALLTOALL,
                                  .algorithm = args->algorithm,
                                  .bytes = args->source.bytes,
                                  .uneven = args->send_bytes != NULL ||
                                            args->recv_bytes != NULL},
            &choice)) {
        choice.algorithm.build.alltoall(schedule, args);
    }
}
