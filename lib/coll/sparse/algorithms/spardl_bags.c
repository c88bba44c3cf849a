/* Parts of SparDL for residuals in main memory as well as on a device: blocks
   and steps, bags, which are messages of a few blocks' entries, and the
   all-gather. */
#include "coll/sparse/algorithms/spardl.h"

/* ---- blocks and steps -------------------------------------------------- */

/* Returns the number of steps before the step that sends a block. The selection
   from this rank's own block comes after all steps. */
static int steps_before(const spardl_t *spardl, int distance)
{
    int steps = 0;
    while (steps < spardl->step_count && distance < spardl->steps[steps].gap) {
        steps++;
    }
    return steps;
}

static void spardl_bags_lay_out(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    int last = spardl->step_count - 1;
    size_t members = (size_t)spardl->members;
    spardl->blocks =
        baton__sparse_alloc(sparse, members, sizeof *spardl->blocks);
    spardl->steps = baton__sparse_alloc(sparse, (size_t)spardl->step_count,
                                        sizeof *spardl->steps);
    if (sparse->out_of_memory) {
        return;
    }
    for (int i = 0; i < spardl->step_count; i++) {
        int gap = 1 << (last - i);
        int blocks = i == 0 ? spardl->members - gap : gap;
        spardl->steps[i] = (spardl_step_t){
            .spardl = spardl,
            .gap = gap,
            .blocks = blocks,
            .lists = baton__sparse_alloc(sparse, (size_t)blocks,
                                         sizeof(baton_entries_t)),
        };
    }
    for (int j = 0; j < spardl->members; j++) {
        int block = baton__spardl_block_at(spardl, j);
        spardl->blocks[block] = (spardl_block_t){
            .spardl = spardl,
            .block = block,
            .step = -1,
            .steps = steps_before(spardl, j),
        };
    }
    sparse->rounds += (uint32_t)spardl->step_count;
}

spardl_t *baton__spardl_open(baton_sparse_t *sparse)
{
    size_t entries = 0;
    spardl_t *spardl = baton__sparse_alloc(sparse, 1, sizeof *spardl);
    if (spardl == NULL) {
        return NULL;
    }
    spardl->sparse = sparse;
    spardl->teams = sparse->options.teams;
    spardl->members = sparse->size / spardl->teams;
    spardl->team = sparse->rank / spardl->members;
    spardl->position = sparse->rank % spardl->members;
    spardl->step_count = baton__log2_ceil(spardl->members);
    for (int block = 0; block < spardl->members; block++) {
        entries += baton__spardl_most(spardl, block);
    }
    spardl_bags_lay_out(spardl);
    baton__sparse_alloc_results(sparse, entries);
    return sparse->out_of_memory ? NULL : spardl;
}

/* ---- bags -------------------------------------------------------------- */

static int spardl_bags_rank_at(const spardl_t *spardl, int distance)
{
    return spardl->team * spardl->members +
           baton__spardl_block_at(spardl, distance);
}

static baton_status_t spardl_bags_arrive(void *arg, baton_call_t *call)
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
        int index = baton__spardl_block_at(spardl, j);
        baton__block_t block = baton__spardl_block(spardl, index);
        size_t quota = baton__spardl_quota(spardl, index);
        size_t count =
            baton__entries_within(sparse, at, left < quota ? left : quota,
                                  quota, block.first, block.count);
        step->lists[j] = (baton_entries_t){at, count};
        at += count * sparse->entry_bytes;
        left -= count;
    }
    return left == 0
               ? BATON_OK
               : baton_call_fail(
                     call, BATON_ERR_MISMATCH,
                     "a message of %zu bytes from rank %d does not have "
                     "the %d blocks of its bag: have ranks started "
                     "another number of steps, or set another k?",
                     step->recv.bytes, spardl_bags_rank_at(spardl, -step->gap),
                     step->blocks);
}

static size_t bag_capacity(const spardl_t *spardl, int first, int blocks)
{
    size_t bytes = 0;
    for (int j = 0; j < blocks; j++) {
        int block = baton__spardl_block_at(spardl, first + j);
        bytes +=
            baton__spardl_most(spardl, block) * spardl->sparse->entry_bytes;
    }
    return bytes;
}

void baton__spardl_add_send(spardl_t *spardl, int index, baton_node_t packed)
{
    spardl_step_t *step = &spardl->steps[index];
    baton__message_send(&step->send, spardl->sparse,
                        spardl_bags_rank_at(spardl, step->gap),
                        bag_capacity(spardl, step->gap, step->blocks));
    baton_before(spardl->sparse->schedule, packed, step->send.node);
}

void baton__spardl_add_arrival(spardl_t *spardl, int index)
{
    spardl_step_t *step = &spardl->steps[index];
    baton__message_recv(&step->recv, spardl->sparse,
                        spardl_bags_rank_at(spardl, -step->gap),
                        bag_capacity(spardl, 0, step->blocks));
    step->arrive = baton__sparse_call_after(spardl->sparse, step->recv.node,
                                            spardl_bags_arrive, step);
}

/* ---- the all-gather ---------------------------------------------------- */

static size_t most(void *arg, int member)
{
    const spardl_t *spardl = arg;
    return baton__spardl_most(spardl, member) * spardl->sparse->entry_bytes;
}

static size_t spardl_bags_nominal(void *arg, int member)
{
    const spardl_t *spardl = arg;
    return baton__spardl_quota(spardl, member) * spardl->sparse->entry_bytes;
}

/* Returns the bytes of a member's part, which begins at `data`. The part has
   the entries of the member's own block, so it ends where the first index of
   another block comes. */
static size_t extent(void *arg, int member, const char *data, size_t left)
{
    const spardl_t *spardl = arg;
    const baton_sparse_t *sparse = spardl->sparse;
    baton__block_t block = baton__spardl_block(spardl, member);
    return baton__entries_within(sparse, data, left / sparse->entry_bytes,
                                 baton__spardl_quota(spardl, member),
                                 block.first, block.count) *
           sparse->entry_bytes;
}

static baton_status_t begin_gather(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    const spardl_list_t *sum = spardl->teams > 1 ? &spardl->sum : &spardl->own;
    return baton__gather_put(spardl->result, call, sum->data,
                             sum->count * spardl->sparse->entry_bytes);
}

static baton_status_t spardl_bags_finish(void *arg, baton_call_t *call)
{
    const spardl_t *spardl = arg;
    baton__sparse_publish(spardl->sparse,
                          baton__gather_put_result(spardl->result));
    return BATON_OK;
}

baton_node_t baton__spardl_add_gather(spardl_t *spardl, baton_node_t ready)
{
    baton_sparse_t *sparse = spardl->sparse;
    const baton__gather_plan_t plan = {
        .sparse = sparse,
        .arg = spardl,
        .size = spardl->members,
        .index = spardl->position,
        .base = spardl->team * spardl->members,
        .stride = 1,
        .most = most,
        .nominal = spardl_bags_nominal,
        .extent = extent,
    };
    return baton__gather_build(
        &plan, baton__sparse_call_after(sparse, ready, begin_gather, spardl),
        spardl_bags_finish, &spardl->result);
}
