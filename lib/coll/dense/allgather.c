#include "base/alloc.h"
#include "coll/kit/cut.h"

#include <baton/coll.h>

/* Four ways to bring all blocks to all ranks. Each copies its own block to its
   place, unless it is there. What is sent of its own block alone is sent from
   the source, all else from the target:

       source --> own block --> [ring, pairwise, recursive doubling, or Bruck]
          +-----------------------^                                         */
typedef struct gather {
    baton__flow_t flow;
    size_t *at;
    baton__blocks_t blocks;
} gather_t;

static bool begin(baton_schedule_t *schedule, const char *builder,
                  const baton_allgather_t **given, gather_t *out)
{
    const baton_allgather_t *args = baton__read_args(
        schedule, builder, *given, sizeof *args, "baton_allgather_t");
    if (args == NULL) {
        return false;
    }
    *given = args;
    int rank = baton_schedule_rank(schedule);
    out->at = baton__cut_bytes(schedule, builder, "target", args->target.bytes,
                               args->block_bytes);
    if (out->at == NULL) {
        return false;
    }
    out->blocks = (baton__blocks_t){.memory = args->target,
                                    .at = out->at,
                                    .parts = baton_schedule_size(schedule)};
    baton_view_t own = baton__blocks_view(&out->blocks, rank, 1);
    bool in_place = baton__same_place(schedule, args->source, own);
    if (!baton__check_bytes(schedule, builder, "source", args->source.bytes,
                            own.bytes) ||
        (!in_place &&
         !baton__check_apart(schedule, builder, args->source, args->target))) {
        baton__free(out->at);
        return false;
    }
    out->flow = baton__flow_open(schedule, BATON_U8, NULL);
    if (!in_place) {
        baton__flow_copy(&out->flow, own, args->source);
        out->blocks.original = args->source;
        out->blocks.original_block = rank;
    }
    return true;
}

static void end(gather_t *gather)
{
    baton__flow_close(&gather->flow);
    baton__free(gather->at);
}

void baton_allgather_ring(baton_schedule_t *schedule,
                          const baton_allgather_t *args)
{
    gather_t gather;
    if (begin(schedule, "all-gather by ring", &args, &gather)) {
        baton__ring_allgather(&gather.flow, &gather.blocks, 1,
                              args->chunk_bytes);
        end(&gather);
    }
}

void baton_allgather_pairwise(baton_schedule_t *schedule,
                              const baton_allgather_t *args)
{
    gather_t gather;
    if (begin(schedule, "all-gather by pairwise exchange", &args, &gather)) {
        baton__pairwise_allgather(&gather.flow, &gather.blocks);
        end(&gather);
    }
}

void baton_allgather_bruck(baton_schedule_t *schedule,
                           const baton_allgather_t *args)
{
    gather_t gather;
    if (begin(schedule, "all-gather by Bruck", &args, &gather)) {
        baton__circulant_allgather(&gather.flow, &gather.blocks,
                                   BATON__SKIPS_DOUBLED);
        end(&gather);
    }
}

void baton_allgather_recursive_doubling(baton_schedule_t *schedule,
                                        const baton_allgather_t *args)
{
    gather_t gather;
    if (!begin(schedule, "all-gather by recursive doubling", &args, &gather)) {
        return;
    }
    baton__flow_t *flow = &gather.flow;
    baton__fold_t fold = baton__fold_of(flow->rank, flow->size);
    if (fold.id < 0) {
        baton__blocks_send(flow, fold.partner, &gather.blocks, flow->rank, 1);
        baton__flow_recv(flow, fold.partner, args->target);
    } else {
        if (fold.partner >= 0) {
            baton__blocks_recv(flow, fold.partner, &gather.blocks, fold.partner,
                               1);
        }
        baton__fold_unite(&fold, flow->size, gather.at);
        gather.blocks.parts = fold.core;
        gather.blocks.original_block = fold.id;
        gather.blocks.original.bytes =
            fold.partner < 0 ? gather.blocks.original.bytes : 0;
        baton__doubling_allgather(flow, &fold, &gather.blocks,
                                  BATON__NEAREST_LAST);
        if (fold.partner >= 0) {
            baton__flow_send(flow, fold.partner, args->target);
        }
    }
    end(&gather);
}
