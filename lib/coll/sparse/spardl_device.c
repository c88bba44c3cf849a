/* SparDL within a team with the residual on a device: Spar-Reduce-Scatter
   there, and only entries on the host.

   Blocks are summed in the device's `work`, as the paper has it: a bag is added
   when it has come, and a block's largest elements are taken out of it when it
   is sent. So each of these follows the one before it, on one stream. Three
   members, l = 2, at p = 0:

       begin --> accumulate --> select 2 --> copy --> pack --> send (to 2)
                                   |
            recv (from 1) --> arrive --> copy --> add
                                   |
                                select 1 --> copy --> pack --> send (to 1)
                                   |
            recv (from 2) --> arrive --> copy --> add
                                   |
                                select 0 --> copy --> own
                                                       |
             teams exchange, all-gather, result <------+
                       |
                       +--> copies of the result's indices, and of what R-SAG
                            has dropped --> add, keep (device_work.h)

   A bag's selections lie one behind the other in device memory, each as long as
   its quota, and are copied together. */
#include "coll/sparse/spardl.h"

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
                                 baton__spardl_quota(spardl, k, block));
}

/* Of all of a bag's selections. */
static size_t bag_bytes(const spardl_step_t *step, size_t k)
{
    size_t bytes = 0;
    for (int i = 0; i < step->blocks; i++) {
        bytes += selected_bytes(step->spardl, block_of_bag(step, i)->block, k);
    }
    return bytes;
}

/* How much is copied to the host is known at the beginning. */
static baton_status_t begin(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_sparse_t *sparse = spardl->sparse;
    baton_status_t status = BATON_OK;
    baton__sparse_begin(sparse);
    baton__spardl_begin_teams(spardl);
    for (int i = 0; i < spardl->step_count && status == BATON_OK; i++) {
        const spardl_step_t *step = &spardl->steps[i];
        status = baton__mirror_set(&step->selected, call,
                                   bag_bytes(step, sparse->k));
    }
    return status == BATON_OK
               ? baton__mirror_set(
                     &spardl->own_selected, call,
                     baton__selected_bytes(sparse, baton__spardl_share(spardl)))
               : status;
}

static baton_status_t take(spardl_block_t *self, baton_stream_t stream,
                           size_t k, char *to)
{
    const spardl_t *spardl = self->spardl;
    baton__block_t block = baton__spardl_block(spardl, self->block);
    const baton__selecting_t selecting = {
        .first = block.first, .count = block.count, .k = k};
    return baton__sparse_device_take(spardl->sparse, stream, &selecting, to,
                                     &self->change);
}

static baton_status_t select_bag(void *arg, baton_call_t *call,
                                 baton_stream_t stream)
{
    spardl_step_t *step = arg;
    const spardl_t *spardl = step->spardl;
    size_t k = spardl->sparse->k;
    char *to = step->selected.device;
    baton_status_t status = BATON_OK;
    (void)call;
    for (int i = 0; i < step->blocks && status == BATON_OK; i++) {
        spardl_block_t *block = block_of_bag(step, i);
        status = take(block, stream,
                      baton__spardl_quota(spardl, k, block->block), to);
        to += selected_bytes(spardl, block->block, k);
    }
    return status;
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

static baton_status_t arrive(void *arg, baton_call_t *call)
{
    spardl_step_t *step = arg;
    baton_status_t status = baton__spardl_arrive(step, call);
    if (status != BATON_OK) {
        return status;
    }
    memcpy(step->came.host, step->recv.data, step->recv.bytes);
    return baton__mirror_set(&step->came, call, step->recv.bytes);
}

/* The blocks of a bag have no index in common. */
static baton_status_t add_bag(void *arg, baton_call_t *call,
                              baton_stream_t stream)
{
    spardl_step_t *step = arg;
    (void)call;
    return baton__sparse_device_add(
        step->spardl->sparse, stream, step->came.device,
        baton__message_entries(&step->recv), 1, &step->change);
}

static baton_status_t select_own(void *arg, baton_call_t *call,
                                 baton_stream_t stream)
{
    spardl_t *spardl = arg;
    (void)call;
    return take(&spardl->blocks[spardl->position], stream,
                baton__spardl_share(spardl), spardl->own_selected.device);
}

static baton_status_t take_own(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_entries_t own = baton__selected_entries(spardl->own_selected.host);
    (void)call;
    spardl->own = (spardl_list_t){(char *)(uintptr_t)own.data, own.count};
    return BATON_OK;
}

static baton_status_t finish(void *arg, baton_call_t *call)
{
    const spardl_t *spardl = arg;
    baton_sparse_t *sparse = spardl->sparse;
    baton__sparse_publish(sparse, baton__spardl_put_result(spardl));
    baton_status_t status = baton__mirror_set(
        &spardl->result_indices, call, sparse->result_count * sizeof(uint32_t));
    for (int i = 0; i < spardl->exchange_count && status == BATON_OK; i++) {
        const spardl_exchange_t *exchange = &spardl->exchanges[i];
        status =
            baton__mirror_set(&exchange->adds, call,
                              exchange->dropped.count * sparse->entry_bytes);
    }
    return status;
}

static baton_status_t keep_result(void *arg, baton_call_t *call,
                                  baton_stream_t stream)
{
    spardl_t *spardl = arg;
    baton_sparse_t *sparse = spardl->sparse;
    baton_status_t status = BATON_OK;
    (void)call;
    for (int i = 0; i < spardl->exchange_count && status == BATON_OK; i++) {
        spardl_exchange_t *exchange = &spardl->exchanges[i];
        status = baton__sparse_device_add(
            sparse, stream, exchange->adds.device, exchange->dropped.count,
            baton__spardl_residual_share(exchange), &exchange->change);
    }
    return status == BATON_OK
               ? baton__sparse_device_keep(
                     sparse, stream,
                     (const uint32_t *)(void *)spardl->result_indices.device,
                     sparse->result_count)
               : status;
}

/* ---- building ---------------------------------------------------------- */

/* Selects a bag and sends it; returns the selection. */
static baton_node_t add_sending(spardl_t *spardl, int index,
                                baton_node_t before, bool *ok)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton_schedule_t *s = sparse->schedule;
    spardl_step_t *step = &spardl->steps[index];
    baton_node_t select = baton_add_device_call(s, select_bag, step);
    baton_before(s, before, select);
    step->selected = baton__mirror_to_host(
        sparse, bag_bytes(step, sparse->options.max_k), select, ok);
    baton__spardl_add_send(
        spardl, index,
        baton__sparse_call_after(sparse, step->selected.copy, pack_bag, step));
    return select;
}

/* Receives a bag and adds it, behind `before`; returns the addition. */
static baton_node_t add_receiving(spardl_t *spardl, int index,
                                  baton_node_t before, bool *ok)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton_schedule_t *s = sparse->schedule;
    spardl_step_t *step = &spardl->steps[index];
    baton__spardl_add_arrival(spardl, index, arrive);
    step->came = baton__mirror_to_device(sparse, NULL, step->recv.view.bytes,
                                         step->arrive, ok);
    baton_node_t add = baton_add_device_call(s, add_bag, step);
    baton_before(s, step->came.copy, add);
    baton_before(s, before, add);
    return add;
}

/* Spar-Reduce-Scatter; behind the node returned, `own` is there. */
static baton_node_t add_reduce_scatter(spardl_t *spardl, bool *ok)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton_schedule_t *s = sparse->schedule;
    size_t quota =
        baton__spardl_quota(spardl, sparse->options.max_k, spardl->position);
    baton_node_t first = baton__sparse_add_call(sparse, s, begin, spardl);
    baton_node_t last = baton__sparse_device_add_accumulation(sparse, s, first);
    for (int i = 0; i < spardl->step_count; i++) {
        last = add_sending(spardl, i, last, ok);
        last = add_receiving(spardl, i, last, ok);
    }
    baton_node_t select = baton_add_device_call(s, select_own, spardl);
    baton_before(s, last, select);
    spardl->own_selected = baton__mirror_to_host(
        sparse, baton__selected_bytes(sparse, quota), select, ok);
    return baton__sparse_call_after(sparse, spardl->own_selected.copy, take_own,
                                    spardl);
}

static void add_keeping(spardl_t *spardl, baton_node_t end, bool *ok)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton_schedule_t *s = sparse->schedule;
    baton_node_t last = baton_add_device_call(s, keep_result, spardl);
    spardl->result_indices = baton__mirror_to_device(
        sparse, sparse->result_indices,
        sparse->result_capacity * sizeof(uint32_t), end, ok);
    baton_before(s, spardl->result_indices.copy, last);
    for (int i = 0; i < spardl->exchange_count; i++) {
        spardl_exchange_t *exchange = &spardl->exchanges[i];
        size_t bytes = exchange->dropped_room * sparse->entry_bytes;
        exchange->adds = baton__mirror_to_device(sparse, exchange->dropped.data,
                                                 bytes, end, ok);
        baton_before(s, exchange->adds.copy, last);
    }
}

bool baton__spardl_build_on_device(baton_sparse_t *sparse)
{
    bool ok = true;
    spardl_t *spardl = baton__spardl_open(sparse);
    if (spardl == NULL) {
        return false;
    }
    spardl->scratch =
        baton__sparse_room(sparse, 1, baton__spardl_teams_scratch(spardl), &ok);
    baton_node_t own = add_reduce_scatter(spardl, &ok);
    baton_node_t sum = baton__spardl_add_teams(spardl, own, &ok);
    add_keeping(spardl, baton__spardl_add_gather(spardl, sum, finish, &ok),
                &ok);
    return ok;
}
