/* SparDL within a team with the residual on a device. Spar-Reduce-Scatter runs
   on the device, and only entries are in main memory.

   Blocks are summed in the device's `work`, as in the paper: a received bag is
   added to it, and a block's largest elements are taken out of it when the
   block is sent. So each of these operations follows the one before it, on one
   stream. Three members, l = 2, at p = 0:

       begin --> accumulate --> select 2 --> pack --> send (to 2)
                                   |
            recv (from 1) --> arrive --> add
                                   |
                                select 1 --> pack --> send (to 1)
                                   |
            recv (from 2) --> arrive --> add
                                   |
                                select 0 --> own
                                              |
             teams exchange, all-gather, result
                       |
                       +--> add what R-SAG has dropped, keep (device_work.h)

   A device call that selects entries then copies them to main memory, and a
   device call that adds entries first copies them to the device, in the same
   stream.

   A bag's selections lie one after the other in device memory, each as long as
   its quota, and are copied together. */
#include "coll/sparse/algorithms/spardl.h"

#include <string.h>

/* ---- in a step --------------------------------------------------------- */

static spardl_block_t *block_of_bag(const spardl_step_t *step, int place)
{
    spardl_t *spardl = step->spardl;
    return &spardl->blocks[baton__spardl_block_at(spardl, step->gap + place)];
}

static size_t selected_bytes(const spardl_t *spardl, int block, size_t k)
{
    return baton__selected_bytes(spardl->sparse,
                                 baton__spardl_quota_of(spardl, k, block));
}

/* Returns the bytes of all selections for a bag. */
static size_t bag_bytes(const spardl_step_t *step, size_t k)
{
    size_t bytes = 0;
    for (int i = 0; i < step->blocks; i++) {
        bytes += selected_bytes(step->spardl, block_of_bag(step, i)->block, k);
    }
    return bytes;
}

static void spardl_device_take(spardl_block_t *self, baton__enqueue_t *queue,
                               size_t k, char *to)
{
    baton__block_t block = baton__spardl_block(self->spardl, self->block);
    const baton__selecting_t selecting = {
        .first = block.first, .count = block.count, .k = k};
    baton__enqueue_take(queue, &selecting, to, &self->change);
}

static void select_bag(void *arg, baton__enqueue_t *queue)
{
    spardl_step_t *step = arg;
    const spardl_t *spardl = step->spardl;
    size_t k = spardl->sparse->k;
    char *to = step->selected.device;
    for (int i = 0; i < step->blocks; i++) {
        spardl_block_t *block = block_of_bag(step, i);
        spardl_device_take(block, queue,
                           baton__spardl_quota(spardl, block->block), to);
        to += selected_bytes(spardl, block->block, k);
    }
    baton__enqueue_to_host(queue, &step->selected, bag_bytes(step, k));
}

static baton_status_t pack_bag(void *arg, baton_call_t *call)
{
    spardl_step_t *step = arg;
    const spardl_t *spardl = step->spardl;
    const baton_sparse_t *sparse = spardl->sparse;
    const char *from = step->selected.host;
    char *begin = baton__message_begin(&step->send, call), *to = begin;
    for (int i = 0; i < step->blocks; i++) {
        baton_entries_t list = baton__selected_entries(from);
        memcpy(to, list.data, list.count * sparse->entry_bytes);
        to += list.count * sparse->entry_bytes;
        from += selected_bytes(spardl, block_of_bag(step, i)->block, sparse->k);
    }
    return baton__message_end(&step->send, call, (size_t)(to - begin));
}

/* Adds all entries of a bag at once, since its blocks have no index in
   common. */
static void spardl_device_add_bag(void *arg, baton__enqueue_t *queue)
{
    spardl_step_t *step = arg;
    memcpy(step->received.host, step->recv.data, step->recv.bytes);
    baton__enqueue_to_device(queue, &step->received, step->recv.bytes);
    baton__enqueue_add(queue, step->received.device,
                       baton__message_entries(&step->recv), 1, &step->change);
}

static void spardl_device_select_own(void *arg, baton__enqueue_t *queue)
{
    spardl_t *spardl = arg;
    size_t share = baton__spardl_share(spardl);
    spardl_device_take(&spardl->blocks[spardl->position], queue, share,
                       spardl->own_selected.device);
    baton__enqueue_to_host(queue, &spardl->own_selected,
                           baton__selected_bytes(spardl->sparse, share));
}

static baton_status_t spardl_device_take_own(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_entries_t own = baton__selected_entries(spardl->own_selected.host);
    spardl->own = (spardl_list_t){(char *)(uintptr_t)own.data, own.count};
    return BATON_OK;
}

static void spardl_device_add_dropped(spardl_exchange_t *exchange,
                                      baton__enqueue_t *queue)
{
    size_t count = exchange->dropped.count;
    baton__enqueue_to_device(queue, &exchange->adds,
                             count * queue->sparse->entry_bytes);
    baton__enqueue_add(queue, exchange->adds.device, count,
                       baton__spardl_residual_share(exchange),
                       &exchange->change);
}

static void keep_result(void *arg, baton__enqueue_t *queue)
{
    spardl_t *spardl = arg;
    size_t count = (size_t)*spardl->sparse->results.next->count;
    const baton__mirror_t *indices = &spardl->result_indices;
    baton__enqueue_to_device(queue, indices, count * sizeof(uint32_t));
    for (int i = 0; i < spardl->exchange_count; i++) {
        spardl_device_add_dropped(&spardl->exchanges[i], queue);
    }
    baton__enqueue_keep(queue, (const uint32_t *)(void *)indices->device,
                        count);
}

/* ---- building ---------------------------------------------------------- */

/* Adds the selections for a bag and the bag's send. Returns the last node of
   the selection. */
static baton_node_t add_sending(spardl_t *spardl, int index,
                                baton_node_t before)
{
    baton_sparse_t *sparse = spardl->sparse;
    spardl_step_t *step = &spardl->steps[index];
    baton_node_t select = baton__sparse_device_call(sparse, sparse->schedule,
                                                    before, select_bag, step);
    step->selected = baton__mirror_alloc(
        sparse, NULL, bag_bytes(step, sparse->options.max_k));
    baton__spardl_add_send(
        spardl, index,
        baton__sparse_call_after(sparse, select, pack_bag, step));
    return select;
}

/* Adds the receive of a bag and, after `before`, the addition of its entries.
   Returns the addition. */
static baton_node_t add_receiving(spardl_t *spardl, int index,
                                  baton_node_t before)
{
    baton_sparse_t *sparse = spardl->sparse;
    spardl_step_t *step = &spardl->steps[index];
    baton__spardl_add_arrival(spardl, index);
    step->received = baton__mirror_alloc(sparse, NULL, step->recv.view.bytes);
    baton_node_t add = baton__sparse_device_call(
        sparse, sparse->schedule, step->arrive, spardl_device_add_bag, step);
    baton_before(sparse->schedule, before, add);
    return add;
}

/* Adds the nodes of Spar-Reduce-Scatter. Returns the node after which `own` is
   set. */
static baton_node_t spardl_device_add_reduce_scatter(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton_schedule_t *s = sparse->schedule;
    size_t quota = baton__spardl_most(spardl, spardl->position);
    baton_node_t first =
        baton__sparse_add_call(sparse, s, baton__spardl_begin, spardl);
    baton_node_t last = baton__sparse_device_add_accumulation(sparse, s, first);
    for (int i = 0; i < spardl->step_count; i++) {
        last = add_sending(spardl, i, last);
        last = add_receiving(spardl, i, last);
    }
    baton_node_t select = baton__sparse_device_call(
        sparse, s, last, spardl_device_select_own, spardl);
    spardl->own_selected =
        baton__mirror_alloc(sparse, NULL, baton__selected_bytes(sparse, quota));
    return baton__sparse_call_after(sparse, select, spardl_device_take_own,
                                    spardl);
}

static void add_keeping(spardl_t *spardl, baton_node_t end)
{
    baton_sparse_t *sparse = spardl->sparse;
    (void)baton__sparse_device_call(sparse, sparse->schedule, end, keep_result,
                                    spardl);
    spardl->result_indices =
        baton__mirror_alloc(sparse, sparse->results.next->indices,
                            sparse->results.capacity * sizeof(uint32_t));
    for (int i = 0; i < spardl->exchange_count; i++) {
        spardl_exchange_t *exchange = &spardl->exchanges[i];
        exchange->adds = baton__mirror_alloc(sparse, exchange->dropped.data,
                                             exchange->dropped_capacity *
                                                 sparse->entry_bytes);
    }
}

void baton__spardl_build_on_device(baton_sparse_t *sparse)
{
    spardl_t *spardl = baton__spardl_open(sparse);
    if (spardl == NULL) {
        return;
    }
    spardl->scratch = baton__sparse_alloc_data(
        sparse, 1, baton__spardl_teams_scratch(spardl));
    baton_node_t own = spardl_device_add_reduce_scatter(spardl);
    baton_node_t sum = baton__spardl_add_teams(spardl, own);
    add_keeping(spardl, baton__spardl_add_gather(spardl, sum));
}
