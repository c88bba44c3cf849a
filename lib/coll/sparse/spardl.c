/* SparDL (Zhao et al. 2023; papers: spardl). P ranks are d teams of m; a rank
   has position p in its team, and is responsible for block p of m.

   Spar-Reduce-Scatter takes l = ceil(log2 m) steps. In step i a rank sends the
   bag of blocks p + gap to p + gap + s - 1, gap = 2^(l-i), the top-L of each,
   as one message to p + gap; it receives blocks p to p + s - 1 from p - gap and
   adds them. A block is selected from when it is sent, and not before, so m
   selections are all. To blocks of the first bag nothing is added before they
   are selected from, so they are accumulated in the same pass. Three members, l
   = 2, gaps 2 and 1, at p = 0:

       begin --> accumulate and select 2 --> send (block 2, to 2)
                                     |
              +----------------------+----------+
              v                                 v
         accumulate 1                      accumulate 0
              |                                 |
              |   recv (block 0, from 1) -------+--> add
              v                                       |
         select 1 --> send (block 1, to 1)            |
                                                      v
                  recv (block 0, from 2) ----------> add --> select 0
                                                                |
                          teams exchange (spardl_teams.c) <-----+
                                 |
                          all-gather in the team --> finish

   Global residual collection. `work` begins as gradient plus residual (G in the
   paper). Received entries are added to it, and selected ones are taken out: at
   the end it is xi, what this rank holds and has not passed on. At the indices
   of the result the new residual is xi; elsewhere nothing of what ranks passed
   on is in the result, and the new residual is G. So `finish` puts xi at the
   result's indices aside and undoes all changes, the last one first: what was
   taken out is in the messages that were sent; where entries were added, their
   messages have got the old values. */
#include "coll/sparse/spardl.h"

#include "base/alloc.h"

#include <string.h>

static int block_at(const spardl_t *spardl, int distance)
{
    return baton__rank_shift(spardl->position, distance, spardl->members);
}

static int rank_at(const spardl_t *spardl, int distance)
{
    return spardl->team * spardl->members + block_at(spardl, distance);
}

/* ---- in a step --------------------------------------------------------- */

static baton_status_t begin(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_status_t status = baton__sparse_begin(spardl->sparse, call);
    baton__spardl_begin_teams(spardl);
    return status;
}

static baton_status_t accumulate(void *arg, baton_call_t *call)
{
    const spardl_block_t *self = arg;
    (void)call;
    baton__block_t block = baton__spardl_block(self->spardl, self->block);
    baton__sparse_accumulate(self->spardl->sparse, block.first, block.count);
    return BATON_OK;
}

/* Takes the largest of a block out of `work`, where it is accumulated before or
   now; returns how many. */
static size_t take(spardl_t *spardl, int index, bool accumulated, size_t k,
                   char *entries)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton__block_t block = baton__spardl_block(spardl, index);
    size_t count = (accumulated ? baton__sparse_select
                                : baton__sparse_accumulate_topk)(
        sparse, block.first, block.count, k, spardl->indices, spardl->scratch);
    if (sparse->payload) {
        baton_entries_take(sparse->options.dtype, entries, spardl->indices,
                           count, sparse->work);
    }
    return count;
}

static baton_status_t select_for_bag(void *arg, baton_call_t *call)
{
    const spardl_block_t *self = arg;
    spardl_t *spardl = self->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    spardl_step_t *step = &spardl->steps[self->step];
    if (self->place == 0) {
        (void)baton__message_begin(&step->send, call);
        step->send.bytes = 0;
    }
    char *to = sparse->payload ? step->send.data + step->send.bytes : NULL;
    size_t quota = baton__spardl_quota(spardl, sparse->k, self->block);
    step->send.bytes += take(spardl, self->block, self->step > 0, quota, to) *
                        sparse->entry_bytes;
    return self->place == step->blocks - 1
               ? baton__message_end(&step->send, call, step->send.bytes)
               : BATON_OK;
}

static baton_status_t select_own(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    (void)call;
    spardl->own.count = take(spardl, spardl->position, spardl->step_count > 0,
                             baton__spardl_share(spardl), spardl->own.data);
    return BATON_OK;
}

static baton_status_t add(void *arg, baton_call_t *call)
{
    spardl_step_t *step = arg;
    baton_sparse_t *sparse = step->spardl->sparse;
    baton__message_take(&step->recv, call);
    if (sparse->payload) {
        baton_entries_add(sparse->options.dtype, step->recv.data,
                          baton__message_entries(&step->recv), 1, sparse->work);
    }
    return BATON_OK;
}

static baton_status_t begin_gather(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    size_t bytes = spardl->sum.count * spardl->sparse->entry_bytes;
    char *to = baton__gather_begin(spardl->result, call);
    if (to != NULL && bytes > 0) {
        memcpy(to, spardl->sum.data, bytes);
    }
    return baton__gather_end(spardl->result, call, bytes);
}

static void undo(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton_dtype_t dtype = sparse->options.dtype;
    baton__spardl_undo_teams(spardl);
    baton_entries_put(dtype, spardl->own.data, spardl->own.count, sparse->work);
    for (int i = spardl->step_count - 1; i >= 0; i--) {
        const baton__message_t *send = &spardl->steps[i].send;
        const baton__message_t *recv = &spardl->steps[i].recv;
        baton_entries_put(dtype, send->data, baton__message_entries(send),
                          sparse->work);
        baton_entries_put(dtype, recv->data, baton__message_entries(recv),
                          sparse->work);
    }
}

/* Parts come from this rank's block on; the result begins with block 0. */
static size_t put_result(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    const char *parts = baton__gather_parts(spardl->result);
    const size_t *offsets = baton__gather_offsets(spardl->result);
    size_t zero = offsets[spardl->members - spardl->position];
    size_t end = offsets[spardl->members];
    size_t low = (end - zero) / sparse->entry_bytes;
    size_t high = zero / sparse->entry_bytes;
    if (sparse->payload) {
        baton__sparse_result_put(sparse, 0, parts + zero, low);
        baton__sparse_result_put(sparse, low, parts, high);
    }
    return low + high;
}

static baton_status_t finish(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_sparse_t *sparse = spardl->sparse;
    (void)call;
    size_t count = put_result(spardl);
    if (sparse->payload) {
        baton_entries_gather(sparse->options.dtype, spardl->kept.data,
                             sparse->result_indices, count, sparse->work);
        undo(spardl);
        baton_entries_put(sparse->options.dtype, spardl->kept.data, count,
                          sparse->work);
    }
    baton__sparse_publish(sparse, count);
    return BATON_OK;
}

/* ---- the final all-gather's parts -------------------------------------- */

static size_t most(void *arg, int member)
{
    const spardl_t *spardl = arg;
    return baton__spardl_quota(spardl, spardl->sparse->options.max_k, member) *
           spardl->sparse->entry_bytes;
}

static size_t nominal(void *arg, int member)
{
    const spardl_t *spardl = arg;
    return baton__spardl_quota(spardl, spardl->sparse->k, member) *
           spardl->sparse->entry_bytes;
}

/* A member's part ends where indices are of another block. */
static size_t extent(void *arg, int member, const char *data, size_t left)
{
    const spardl_t *spardl = arg;
    const baton_sparse_t *sparse = spardl->sparse;
    baton__block_t block = baton__spardl_block(spardl, member);
    size_t count = left / sparse->entry_bytes;
    size_t i = 0;
    while (i < count) {
        size_t index = baton_entry_index(sparse->options.dtype, data, i);
        if (index < block.first || index - block.first >= block.count) {
            break;
        }
        i++;
    }
    return i * sparse->entry_bytes;
}

/* ---- building ---------------------------------------------------------- */

static size_t bag_room(const spardl_t *spardl, int first, int blocks)
{
    size_t bytes = 0;
    for (int j = 0; j < blocks; j++) {
        int block = block_at(spardl, first + j);
        bytes +=
            baton__spardl_quota(spardl, spardl->sparse->options.max_k, block) *
            spardl->sparse->entry_bytes;
    }
    return bytes;
}

/* Accumulations of the first blocks from this rank's own on, behind `before`.
 */
static void add_accumulations(spardl_t *spardl, int blocks, baton_node_t before,
                              baton_node_t *nodes)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    for (int j = 0; j < blocks; j++) {
        int block = block_at(spardl, j);
        nodes[block] = baton_add_call(s, accumulate, &spardl->blocks[block]);
        baton_before(s, before, nodes[block]);
    }
}

/* Selects the bag's blocks, one after the other, and sends it. The steps before
   this one have added to some of its blocks; to the others they have not, so
   these do not wait for them. Returns the last selection. */
static baton_node_t add_bag(spardl_t *spardl, int index,
                            const baton_node_t *accumulated,
                            baton_node_t before)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    spardl_step_t *step = &spardl->steps[index];
    baton_node_t last = before;
    for (int j = 0; j < step->blocks; j++) {
        int distance = step->gap + j;
        spardl_block_t *block = &spardl->blocks[block_at(spardl, distance)];
        block->step = index;
        block->place = j;
        baton_node_t node = baton_add_call(s, select_for_bag, block);
        baton_before(s, last, node);
        if (index > 0) {
            baton_before(s, accumulated[block->block], node);
        }
        for (int earlier = 0; earlier < index; earlier++) {
            if (distance < spardl->steps[earlier].blocks) {
                baton_before(s, spardl->steps[earlier].add, node);
            }
        }
        last = node;
    }
    baton__message_send(&step->send, spardl->sparse, rank_at(spardl, step->gap),
                        bag_room(spardl, step->gap, step->blocks));
    baton_before(s, last, step->send.node);
    return last;
}

static void add_arrival(spardl_t *spardl, int index,
                        const baton_node_t *accumulated)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    spardl_step_t *step = &spardl->steps[index];
    baton__message_recv(&step->recv, spardl->sparse,
                        rank_at(spardl, -step->gap),
                        bag_room(spardl, 0, step->blocks));
    step->add = baton_add_call(s, add, step);
    baton_before(s, step->recv.node, step->add);
    for (int j = 0; j < step->blocks; j++) {
        baton_before(s, accumulated[block_at(spardl, j)], step->add);
    }
    if (index > 0) { /* sums are made in the order of steps */
        baton_before(s, spardl->steps[index - 1].add, step->add);
    }
}

/* Spar-Reduce-Scatter. Returns the selection from this rank's own block. */
static baton_node_t add_reduce_scatter(spardl_t *spardl, baton_node_t *nodes)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    baton_node_t last = baton_add_call(s, begin, spardl);
    if (spardl->step_count > 0) {
        last = add_bag(spardl, 0, nodes, last);
        /* The first bag lies behind these. */
        add_accumulations(spardl, spardl->steps[0].gap, last, nodes);
    }
    for (int i = 0; i < spardl->step_count; i++) {
        if (i > 0) {
            last = add_bag(spardl, i, nodes, last);
        }
        add_arrival(spardl, i, nodes);
    }
    baton_node_t own = baton_add_call(s, select_own, spardl);
    baton_before(s, last, own);
    if (spardl->step_count > 0) {
        baton_before(s, nodes[spardl->position], own);
        baton_before(s, spardl->steps[spardl->step_count - 1].add, own);
    }
    return own;
}

static bool add_gather(spardl_t *spardl, baton_node_t ready)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    baton__gather_plan_t plan = {
        .sparse = spardl->sparse,
        .arg = spardl,
        .size = spardl->members,
        .index = spardl->position,
        .base = spardl->team * spardl->members,
        .stride = 1,
        .most = most,
        .nominal = nominal,
        .extent = extent,
    };
    baton_node_t call = baton_add_call(s, begin_gather, spardl);
    baton_node_t end = baton_add_call(s, finish, spardl);
    baton_node_t done;
    baton_before(s, ready, call);
    spardl->result = baton__gather_build(&plan, call, &done);
    if (spardl->result == NULL) {
        return false;
    }
    baton_before(s, done, end);
    return true;
}

static bool allocate(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    size_t entries = 0, largest = 0, members = (size_t)spardl->members;
    for (int block = 0; block < spardl->members; block++) {
        size_t quota =
            baton__spardl_quota(spardl, sparse->options.max_k, block);
        entries += quota;
        largest = quota > largest ? quota : largest;
    }
    bool ok = true;
    size_t block = baton__spardl_block(spardl, 0).count;
    spardl->indices =
        baton__sparse_room(sparse, largest, sizeof *spardl->indices, &ok);
    spardl->scratch = baton__sparse_room(
        sparse, 1, baton_select_scratch_bytes(block, largest), &ok);
    spardl->own.data =
        baton__sparse_room(sparse, largest, sparse->entry_bytes, &ok);
    spardl->kept.data =
        baton__sparse_room(sparse, entries, sparse->entry_bytes, &ok);
    spardl->blocks = baton__alloc(members, sizeof *spardl->blocks);
    spardl->steps =
        baton__alloc((size_t)spardl->step_count, sizeof *spardl->steps);
    return ok && spardl->blocks != NULL && spardl->steps != NULL &&
           baton__sparse_result_room(sparse, entries);
}

static void lay_out(spardl_t *spardl)
{
    int last = spardl->step_count - 1;
    for (int i = 0; i < spardl->step_count; i++) {
        int gap = 1 << (last - i);
        spardl->steps[i] = (spardl_step_t){
            .spardl = spardl,
            .gap = gap,
            .blocks = i == 0 ? spardl->members - gap : gap,
        };
    }
    for (int i = 0; i < spardl->members; i++) {
        spardl->blocks[i] =
            (spardl_block_t){.spardl = spardl, .block = i, .step = -1};
    }
    spardl->sparse->rounds += (uint32_t)spardl->step_count;
}

static baton_status_t build(baton_sparse_t *sparse)
{
    spardl_t *spardl = baton__alloc(1, sizeof *spardl);
    if (spardl == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    sparse->state = spardl;
    spardl->sparse = sparse;
    spardl->teams = sparse->options.teams;
    spardl->members = sparse->size / spardl->teams;
    spardl->team = sparse->rank / spardl->members;
    spardl->position = sparse->rank % spardl->members;
    spardl->step_count = baton__log2_ceil(spardl->members);
    baton_node_t *nodes = baton__alloc((size_t)spardl->members, sizeof *nodes);
    bool ok = nodes != NULL && allocate(spardl);
    if (ok) {
        lay_out(spardl);
        baton_node_t own = add_reduce_scatter(spardl, nodes);
        baton_node_t sum = baton__spardl_add_teams(spardl, own, &ok);
        ok = ok && add_gather(spardl, sum);
    }
    baton__free(nodes);
    return ok ? BATON_OK : BATON_ERR_NO_MEMORY;
}

static void destroy(baton_sparse_t *sparse)
{
    spardl_t *spardl = sparse->state;
    baton__spardl_free_teams(spardl);
    baton__gather_free(spardl->result);
    baton__free(spardl->indices);
    baton__free(spardl->scratch);
    baton__free(spardl->own.data);
    baton__free(spardl->kept.data);
    baton__free(spardl->blocks);
    baton__free(spardl->steps);
    baton__free(spardl);
}

const baton__sparse_algorithm_t baton__sparse_spardl = {build, destroy};
