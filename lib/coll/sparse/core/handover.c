/* The hand-over of a step's result, in a recovery or a shrink, to ranks that
   lack it.

       flags --> piece --> piece --> ...

   Each arrow is an epoch of an all-reduce with the maximum: ranks that have a
   piece contribute it, and the others contribute zeros. The flags are the first
   piece. The pieces of the result follow if some rank lacks it. */
#include "coll/sparse/core/core.h"

#include <baton/coll.h>

#include <string.h>

/* The layout of `flags`, the bytes that ranks exchange first. At LACKS there is
   a flag for each step, modulo 4, which means that some rank lacks the result
   of the step. The flags at HAS mean that some rank has the result. The steps
   that ranks report differ by one at most.

   From RANKS on there is a byte for each rank of sparse->group: the step that
   the rank reports, modulo 4, and 1 + the number of sums of teams (R-SAG) that
   the rank has made in that step. made_all in place of that number means that
   the rank has made all of them, or that the step is dense. The byte of a lost
   rank is 0.

   If a shrink was interrupted, some ranks may have rebuilt their schedules in
   the new group, and their bytes are in the order of that group. This does no
   harm: no rank rebuilds before all survivors have all results, and the bytes
   of ranks are read only if a rank lacks a result. */
enum { MOST_PIECE = 8192, LACKS = 0, HAS = 4, RANKS = 8, MADE_BITS = 6 };
static const uint8_t made_all = (1 << MADE_BITS) - 1;

static size_t flag_bytes(const baton_sparse_t *sparse)
{
    return RANKS + (size_t)sparse->handover.most_ranks;
}

/* Returns the bytes of a piece: MOST_PIECE or, if that is shorter, the longest
   result; but at least those of the flags. */
static size_t piece_bytes(const baton_sparse_t *sparse)
{
    size_t result =
        baton__larger(baton__sparse_packed_bytes(sparse), sparse->vector_bytes);
    return baton__larger(result < MOST_PIECE ? result : MOST_PIECE,
                         flag_bytes(sparse));
}

void baton__sparse_build_handover(baton_sparse_t *sparse)
{
    baton__handover_t *self = &sparse->handover;
    baton_schedule_t *s = self->schedule;
    if (!sparse->payload || sparse->size == 1 || sparse->device != NULL) {
        return;
    }
    const size_t bytes = piece_bytes(sparse);
    if (self->flags == NULL) {
        self->piece = baton__sparse_alloc(sparse, bytes, 1);
        self->flags = self->piece != NULL
                          ? baton__sparse_alloc(sparse, flag_bytes(sparse), 1)
                          : NULL;
    }
    baton_view_t view =
        baton_view(baton_buffer_bind(s, self->piece, bytes), 0, bytes);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = BATON_U8,
                                   .op = BATON_MAX};
    baton_add_allreduce_binomial(s, &args);
}

bool baton__sparse_any_completed(const baton_sparse_t *sparse, uint64_t step)
{
    const uint8_t *flags = sparse->handover.flags;
    return flags == NULL || flags[HAS + step % 4] != 0;
}

/* Returns true if some rank lacks a result that another rank has. */
static bool any_lacks(const baton_sparse_t *sparse)
{
    const uint8_t *flags = sparse->handover.flags;
    bool any = false;
    for (size_t i = 0; flags != NULL && i < 4; i++) {
        any |= flags[LACKS + i] != 0 && flags[HAS + i] != 0;
    }
    return any;
}

/* Hands over `bytes` bytes at `data`, which come after the first `before`
   pieces. Stores the piece that has arrived, and starts the next one, unless
   one is on its way. Returns true if all pieces of these bytes have arrived;
   then later pieces may be on their way. */
static bool handover_pass_on(baton_sparse_t *sparse, uint64_t before,
                             void *data, size_t bytes, bool gives, bool gets)
{
    baton__handover_t *self = &sparse->handover;
    const size_t piece = piece_bytes(sparse);
    const size_t next = (size_t)(self->handed - before) * piece;
    const size_t left = next < bytes ? bytes - next : 0;
    if (next > 0 && next - piece < bytes) {
        if (baton_schedule_epoch(self->schedule) < self->handed) {
            return false;
        }
        if (gets) {
            memcpy((char *)data + next - piece, self->piece,
                   left > 0 ? piece : bytes - (next - piece));
        }
    }
    if (left == 0) {
        return true;
    }
    memset(self->piece, 0, piece);
    if (gives) {
        memcpy(self->piece, (char *)data + next, left < piece ? left : piece);
    }
    self->handed++;
    /* The start can't fail, since the schedule is idle. */
    (void)!baton_schedule_start(self->schedule);
    return false;
}

/* Tells all ranks which step this rank has completed last or, if it lacks the
   result, has started and not completed. Returns true if the reports of all
   ranks have arrived. */
static bool handover_report(baton_sparse_t *sparse, bool lacks, uint64_t step)
{
    const baton__handover_t *self = &sparse->handover;
    uint8_t *flags = self->flags;
    if (flags == NULL) {
        return true;
    }
    if (self->handed == 0) {
        memset(flags, 0, flag_bytes(sparse));
        bool knows = (lacks || self->lacked == step) && !sparse->is_dense;
        flags[RANKS + sparse->rank] =
            (uint8_t)((step % 4) << MADE_BITS |
                      (knows ? (uint8_t)(sparse->completion.team_sums + 1)
                             : made_all));
        flags[LACKS + step % 4] = lacks;
        flags[HAS + (step - lacks) % 4] = 1;
    }
    return handover_pass_on(sparse, 0, flags, flag_bytes(sparse), true, true);
}

/* Hands the result of a step to the ranks that lack it. Returns true if all
   ranks have the result. */
static bool handover_pass_result(baton_sparse_t *sparse, bool gets)
{
    const baton__sparse_results_t *results = &sparse->results;
    char *data = NULL;
    size_t bytes = sparse->vector_bytes;
    if (!any_lacks(sparse)) {
        return true;
    }
    if (sparse->backend->dense_result != NULL) {
        data = sparse->backend->dense_result(sparse, gets);
    }
    if (data == NULL) {
        data = gets ? results->next->packed : results->shown->packed;
        bytes = baton__sparse_packed_bytes(sparse);
    }
    return handover_pass_on(sparse, 1, data, bytes, !gets, gets);
}

bool baton__sparse_is_lost(const baton_sparse_t *sparse, int rank)
{
    return sparse->handover.flags[RANKS + rank] == 0;
}

bool baton__sparse_lacks_addition(const baton_sparse_t *sparse, int rank,
                                  int index)
{
    uint8_t report = sparse->handover.flags[RANKS + rank];
    return report != 0 &&
           report >> MADE_BITS == sparse->handover.shares_added_for % 4 &&
           (report & made_all) <= index + 1;
}

/* Adds to the residual what add_missing_shares adds to `work`: the shares of
   dropped entries that ranks did not keep because this step failed on them. */
static void handover_add_missing_shares(baton_sparse_t *sparse, uint64_t step)
{
    const baton__completion_t *completion = &sparse->completion;
    if (completion->add_missing_shares != NULL &&
        sparse->handover.shares_added_for != step && any_lacks(sparse)) {
        sparse->handover.shares_added_for = step;
        sparse->results.next = sparse->results.shown;
        baton__sparse_exchange(&sparse->work, &sparse->residual);
        completion->add_missing_shares(completion->algorithm,
                                       (size_t)*sparse->results.shown->count);
        baton__sparse_exchange(&sparse->work, &sparse->residual);
    }
}

bool baton__sparse_complete_everywhere(baton_sparse_t *sparse, bool lacks,
                                       uint64_t step)
{
    if (!handover_report(sparse, lacks, step)) {
        return false;
    }
    bool gets = lacks && baton__sparse_any_completed(sparse, step);
    if (!handover_pass_result(sparse, gets)) {
        return false;
    }
    sparse->handover.handed = 0;
    if (gets) {
        sparse->handover.lacked = step;
        sparse->backend->take_result(sparse);
    }
    handover_add_missing_shares(sparse, lacks && !gets ? step - 1 : step);
    return true;
}
