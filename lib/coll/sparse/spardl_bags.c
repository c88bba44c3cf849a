/* The bags of Spar-Reduce-Scatter: messages of a few blocks' entries, for
   residuals on the host and on a device. */
#include "coll/sparse/spardl.h"

static int rank_at(const spardl_t *spardl, int distance)
{
    return spardl->team * spardl->members +
           baton__spardl_block_at(spardl, distance);
}

/* How many entries at the beginning of a list are of a block; `likely` is tried
   first. Entries of one block lie together. */
static size_t entries_of_block(const spardl_t *spardl, int index,
                               const char *entries, size_t count, size_t likely)
{
    baton_dtype_t dtype = spardl->sparse->options.dtype;
    baton__block_t block = baton__spardl_block(spardl, index);
    if (likely > 0 && likely <= count &&
        baton_entry_index(dtype, entries, likely - 1) - block.first <
            block.count) {
        return likely;
    }
    size_t i = 0;
    while (i < count && i < likely &&
           baton_entry_index(dtype, entries, i) - block.first < block.count) {
        i++;
    }
    return i;
}

baton_status_t baton__spardl_arrive(void *arg, baton_call_t *call)
{
    spardl_step_t *step = arg;
    const spardl_t *spardl = step->spardl;
    const baton_sparse_t *sparse = spardl->sparse;
    baton__message_take(&step->recv, call);
    const char *at = step->recv.data;
    if (!sparse->payload) {
        return BATON_OK;
    }
    size_t left = baton__message_entries(&step->recv);
    for (int j = 0; j < step->blocks; j++) {
        int block = baton__spardl_block_at(spardl, j);
        size_t count =
            entries_of_block(spardl, block, at, left,
                             baton__spardl_quota(spardl, sparse->k, block));
        step->lists[j] = (baton_entries_t){at, count};
        at += count * sparse->entry_bytes;
        left -= count;
    }
    return left == 0 ? BATON_OK
                     : baton_call_fail(
                           call, BATON_ERR_MISMATCH,
                           "a message of %zu bytes from rank %d does not "
                           "consist of the %d blocks of its bag: are ranks in "
                           "different steps, or with different k?",
                           step->recv.bytes, rank_at(spardl, -step->gap),
                           step->blocks);
}

static size_t bag_room(const spardl_t *spardl, int first, int blocks)
{
    size_t bytes = 0;
    for (int j = 0; j < blocks; j++) {
        int block = baton__spardl_block_at(spardl, first + j);
        bytes +=
            baton__spardl_quota(spardl, spardl->sparse->options.max_k, block) *
            spardl->sparse->entry_bytes;
    }
    return bytes;
}

void baton__spardl_add_send(spardl_t *spardl, int index, baton_node_t packed)
{
    spardl_step_t *step = &spardl->steps[index];
    baton__message_send(&step->send, spardl->sparse, rank_at(spardl, step->gap),
                        bag_room(spardl, step->gap, step->blocks));
    baton_before(spardl->sparse->schedule, packed, step->send.node);
}

void baton__spardl_add_arrival(spardl_t *spardl, int index,
                               baton_call_fn arrive)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    spardl_step_t *step = &spardl->steps[index];
    baton__message_recv(&step->recv, spardl->sparse,
                        rank_at(spardl, -step->gap),
                        bag_room(spardl, 0, step->blocks));
    step->arrive = baton__sparse_add_call(spardl->sparse, s, arrive, step);
    baton_before(s, step->recv.node, step->arrive);
}
