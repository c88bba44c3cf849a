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

   A block is not summed as a vector. While it is accumulated, which is the one
   pass over it, its candidates are written down: the elements from a magnitude
   on that more than a quota of them reach. Its sums are then those of a few
   lists, candidates and what has come, in which an entry that is no candidate
   begins with its element of `work`. All elements from that magnitude on are
   among the sums, so their largest are the block's, as long as a quota of them
   reaches it still. Where the candidates are too many (ties), or the sums too
   small (they cancel), the lists are added to `work` for the selection.

   Global residual collection. `work` stays gradient plus residual (G in the
   paper). xi, what this rank holds and has not passed on, differs from it where
   entries came or were sent. At the indices of the result the new residual is
   xi; elsewhere nothing of what ranks passed on is in the result, and the new
   residual is G. So `finish` writes xi at the indices that the result shares
   with those lists, and nothing else.

   With the residual on a device, spardl_device.c does all this. */
#include "coll/sparse/spardl.h"

#include "base/alloc.h"

#include <string.h>

/* ---- in a step --------------------------------------------------------- */

static baton_status_t begin(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_status_t status = baton__sparse_begin(spardl->sparse, call);
    baton__spardl_begin_teams(spardl);
    return status;
}

static size_t quota_of(const spardl_t *spardl, int block)
{
    return baton__spardl_quota(spardl, spardl->sparse->k, block);
}

/* Accumulates a block that is selected from in a later step. */
static baton_status_t accumulate(void *arg, baton_call_t *call)
{
    spardl_block_t *self = arg;
    spardl_t *spardl = self->spardl;
    (void)call;
    baton__block_t block = baton__spardl_block(spardl, self->block);
    baton__sparse_candidates(spardl->sparse, block.first, block.count,
                             quota_of(spardl, self->block), &self->candidates,
                             spardl->scratch);
    return BATON_OK;
}

/* The lists that have come for a block, in the order of steps, behind a first
   one; returns how many there are. */
static size_t terms_of(const spardl_block_t *self, baton_entries_t first)
{
    spardl_t *spardl = self->spardl;
    int distance =
        baton__rank_shift(self->block, -spardl->position, spardl->members);
    size_t count = 0;
    spardl->terms[count++] = first;
    for (int i = 0; i < self->steps; i++) {
        if (distance < spardl->steps[i].blocks) {
            spardl->terms[count++] = spardl->steps[i].lists[distance];
        }
    }
    return count;
}

/* The largest of all of a block's elements, with what has come added to `work`
   meanwhile. */
static size_t select_dense(spardl_block_t *self, size_t k, char *out)
{
    spardl_t *spardl = self->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    baton_dtype_t dtype = sparse->options.dtype;
    baton__block_t block = baton__spardl_block(spardl, self->block);
    size_t terms = terms_of(self, (baton_entries_t){0});
    for (size_t i = 1; i < terms; i++) {
        baton_entries_add(dtype, (char *)(uintptr_t)spardl->terms[i].data,
                          spardl->terms[i].count, 1, sparse->work);
    }
    const baton_selection_t from = {
        .dtype = dtype,
        .values = sparse->work + block.first * sparse->element_bytes,
        .count = block.count,
        .first = (uint32_t)block.first,
    };
    size_t count =
        baton_select_topk(&from, k, spardl->indices, spardl->scratch, NULL);
    baton_entries_gather(dtype, out, spardl->indices, count, sparse->work);
    for (size_t i = terms - 1; i > 0; i--) {
        baton_entries_put(dtype, spardl->terms[i].data, spardl->terms[i].count,
                          sparse->work);
    }
    return count;
}

/* The largest of the candidates, and of what has come. */
static size_t select_sparse(spardl_block_t *self,
                            const baton_candidates_t *candidates, size_t k,
                            char *out)
{
    spardl_t *spardl = self->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    baton_dtype_t dtype = sparse->options.dtype;
    spardl_list_t from = {candidates->entries,
                          candidates->low > 0 ? candidates->count : 0};
    if (self->steps > 0) {
        size_t terms = terms_of(self, (baton_entries_t){from.data, from.count});
        from.data = self->sums.data;
        from.count = baton_entries_sum_onto(dtype, sparse->work, spardl->terms,
                                            terms, from.data);
        self->sums = from;
    }
    return baton_entries_largest(dtype, from.data, from.count, k, candidates,
                                 out, spardl->scratch);
}

/* Selects from a block, which is accumulated now if no step came before. */
static size_t take(spardl_block_t *self, size_t k, char *out)
{
    spardl_t *spardl = self->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    baton__block_t block = baton__spardl_block(spardl, self->block);
    baton_candidates_t *candidates = &self->candidates;
    if (self->steps == 0) {
        candidates = &spardl->candidates;
        baton__sparse_candidates(sparse, block.first, block.count, k,
                                 candidates, spardl->scratch);
    }
    size_t count = k < block.count ? k : block.count;
    if (sparse->payload) {
        count = select_sparse(self, candidates, k, out);
        count = count == SIZE_MAX ? select_dense(self, k, out) : count;
    }
    self->chosen = (spardl_list_t){out, count};
    return count;
}

static baton_status_t select_for_bag(void *arg, baton_call_t *call)
{
    spardl_block_t *self = arg;
    spardl_t *spardl = self->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    spardl_step_t *step = &spardl->steps[self->step];
    if (self->place == 0) {
        (void)baton__message_begin(&step->send, call);
        step->send.bytes = 0;
    }
    char *to = sparse->payload ? step->send.data + step->send.bytes : NULL;
    step->send.bytes +=
        take(self, quota_of(spardl, self->block), to) * sparse->entry_bytes;
    return self->place == step->blocks - 1
               ? baton__message_end(&step->send, call, step->send.bytes)
               : BATON_OK;
}

static baton_status_t select_own(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    (void)call;
    spardl->own.count = take(&spardl->blocks[spardl->position],
                             baton__spardl_share(spardl), spardl->own.data);
    return BATON_OK;
}

static baton_status_t begin_gather(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    return baton__gather_put(spardl->result, call, spardl->sum.data,
                             spardl->sum.count * spardl->sparse->entry_bytes);
}

static size_t put_result(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    size_t count = 0, bytes;
    for (int i = 0; i < spardl->members; i++) {
        const char *part = baton__gather_part(spardl->result, i, &bytes);
        if (part != NULL) {
            baton__sparse_result_put(sparse, count, part,
                                     bytes / sparse->entry_bytes);
        }
        count += bytes / sparse->entry_bytes;
    }
    return count;
}

/* Writes what a list has at the result's indices of a block into `work`, or
   zeros. */
static void keep(spardl_t *spardl, const spardl_list_t *list,
                 const uint32_t *indices, size_t count, bool zeros)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton_dtype_t dtype = sparse->options.dtype;
    size_t common = baton_entries_common(dtype, list->data, list->count,
                                         indices, count, zeros, spardl->common);
    baton_entries_put(dtype, spardl->common, common, sparse->work);
}

/* Block by block `work` becomes the new residual. */
static void keep_xi(spardl_t *spardl)
{
    const baton_sparse_t *sparse = spardl->sparse;
    const uint32_t *indices = sparse->result_indices;
    size_t bytes;
    for (int i = 0; i < spardl->members; i++) {
        const spardl_block_t *block = &spardl->blocks[i];
        (void)baton__gather_part(spardl->result, i, &bytes);
        size_t count = bytes / sparse->entry_bytes;
        if (block->steps > 0) {
            keep(spardl, &block->sums, indices, count, false);
        }
        keep(spardl, &block->chosen, indices, count, true);
        if (i == spardl->position) {
            baton__spardl_keep_dropped(spardl, indices, count);
        }
        indices += count;
    }
}

static baton_status_t finish(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_sparse_t *sparse = spardl->sparse;
    size_t count = put_result(spardl);
    if (sparse->payload && sparse->device == NULL) {
        keep_xi(spardl);
    }
    baton__sparse_publish(sparse, count);
    return sparse->device != NULL ? baton__spardl_send_to_device(spardl, call)
                                  : BATON_OK;
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
    baton__block_t block = baton__spardl_block(spardl, member);
    return baton__entries_within(spardl->sparse, data, left, block.first,
                                 block.count);
}

/* ---- building ---------------------------------------------------------- */

/* Accumulations of the first blocks from this rank's own on, behind `before`.
 */
static void add_accumulations(spardl_t *spardl, int blocks, baton_node_t before,
                              baton_node_t *nodes)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    for (int j = 0; j < blocks; j++) {
        int block = baton__spardl_block_at(spardl, j);
        nodes[block] = baton__sparse_add_call(spardl->sparse, s, accumulate,
                                              &spardl->blocks[block]);
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
        spardl_block_t *block =
            &spardl->blocks[baton__spardl_block_at(spardl, distance)];
        block->step = index;
        block->place = j;
        baton_node_t node =
            baton__sparse_add_call(spardl->sparse, s, select_for_bag, block);
        baton_before(s, last, node);
        if (index > 0) {
            baton_before(s, accumulated[block->block], node);
        }
        for (int earlier = 0; earlier < index; earlier++) {
            if (distance < spardl->steps[earlier].blocks) {
                baton_before(s, spardl->steps[earlier].arrive, node);
            }
        }
        last = node;
    }
    baton__spardl_add_send(spardl, index, last);
    return last;
}

/* Spar-Reduce-Scatter. Returns the selection from this rank's own block. */
static baton_node_t add_reduce_scatter(spardl_t *spardl, baton_node_t *nodes)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    baton_node_t last =
        baton__sparse_add_call(spardl->sparse, s, begin, spardl);
    if (spardl->step_count > 0) {
        last = add_bag(spardl, 0, nodes, last);
        /* The first bag lies behind these. */
        add_accumulations(spardl, spardl->steps[0].gap, last, nodes);
    }
    for (int i = 0; i < spardl->step_count; i++) {
        if (i > 0) {
            last = add_bag(spardl, i, nodes, last);
        }
        baton__spardl_add_arrival(spardl, i, baton__spardl_arrive);
    }
    baton_node_t own =
        baton__sparse_add_call(spardl->sparse, s, select_own, spardl);
    baton_before(s, last, own);
    if (spardl->step_count > 0) {
        baton_before(s, nodes[spardl->position], own);
        for (int i = 0; i < spardl->step_count; i++) {
            baton_before(s, spardl->steps[i].arrive, own);
        }
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
    baton_node_t call =
        baton__sparse_add_call(spardl->sparse, s, begin_gather, spardl);
    baton_node_t end =
        baton__sparse_add_call(spardl->sparse, s, finish, spardl);
    baton_node_t done;
    baton_before(s, ready, call);
    spardl->result = baton__gather_build(&plan, call, &done);
    if (spardl->result == NULL) {
        return false;
    }
    baton_before(s, done, end);
    bool ok = true;
    if (spardl->sparse->device != NULL) {
        baton__spardl_add_keeping(spardl, end, &ok);
    }
    return ok;
}

/* The largest quotas that a block ever has. */
static size_t largest_quota_of(const spardl_t *spardl, int block)
{
    return baton__spardl_quota(spardl, spardl->sparse->options.max_k, block);
}

static bool allocate_candidates(const spardl_t *spardl, int block,
                                baton_candidates_t *candidates)
{
    bool ok = true;
    const baton_sparse_t *sparse = spardl->sparse;
    size_t count = baton__spardl_block(spardl, block).count;
    candidates->capacity =
        baton_candidates_room(count, largest_quota_of(spardl, block));
    candidates->entries = baton__sparse_room(sparse, candidates->capacity,
                                             sparse->entry_bytes, &ok);
    return ok;
}

/* And how many entries the block's sums may have. */
static bool allocate_block(const spardl_t *spardl, spardl_block_t *block,
                           size_t *sums)
{
    const baton_sparse_t *sparse = spardl->sparse;
    bool ok = allocate_candidates(spardl, block->block, &block->candidates);
    *sums = block->candidates.capacity +
            (size_t)block->steps * largest_quota_of(spardl, block->block);
    block->sums.data =
        baton__sparse_room(sparse, *sums, sparse->entry_bytes, &ok);
    return ok;
}

static bool allocate_lists(spardl_t *spardl, size_t *most_sums)
{
    bool host = spardl->sparse->device == NULL;
    bool ok = !host || allocate_candidates(spardl, 0, &spardl->candidates);
    *most_sums = spardl->candidates.capacity;
    for (int i = 0; i < spardl->members && ok && host; i++) {
        size_t sums = 0;
        if (spardl->blocks[i].steps > 0) {
            ok = allocate_block(spardl, &spardl->blocks[i], &sums);
        }
        *most_sums = sums > *most_sums ? sums : *most_sums;
    }
    for (int i = 0; i < spardl->step_count && ok; i++) {
        spardl_step_t *step = &spardl->steps[i];
        step->lists = baton__alloc((size_t)step->blocks, sizeof *step->lists);
        ok = step->lists != NULL;
    }
    return ok;
}

/* Selections from a block and from sums use the same memory. */
static bool allocate_scratch(spardl_t *spardl, size_t sums, size_t largest)
{
    bool ok = true;
    size_t block = baton__spardl_block(spardl, 0).count;
    size_t dense = baton_select_scratch_bytes(block, largest);
    size_t lists = baton_entries_largest_scratch_bytes(sums, largest);
    spardl->scratch_bytes = dense > lists ? dense : lists;
    spardl->scratch =
        baton__sparse_room(spardl->sparse, 1, spardl->scratch_bytes, &ok);
    return ok;
}

static bool allocate(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    size_t entries = 0, sums, largest = largest_quota_of(spardl, 0);
    for (int block = 0; block < spardl->members; block++) {
        entries += largest_quota_of(spardl, block);
    }
    bool ok = true;
    spardl->indices =
        baton__sparse_room(sparse, largest, sizeof *spardl->indices, &ok);
    if (sparse->device == NULL) { /* else what it has been copied to */
        spardl->own.data =
            baton__sparse_room(sparse, largest, sparse->entry_bytes, &ok);
    }
    spardl->common =
        baton__sparse_room(sparse, largest + 1, sparse->entry_bytes, &ok);
    spardl->terms =
        baton__alloc((size_t)spardl->step_count + 1, sizeof *spardl->terms);
    return ok && spardl->terms != NULL && allocate_lists(spardl, &sums) &&
           allocate_scratch(spardl, sums, largest) &&
           baton__sparse_result_room(sparse, entries);
}

/* The steps before the one that sends a block; all before this rank's own. */
static int steps_before(const spardl_t *spardl, int distance)
{
    int steps = 0;
    while (steps < spardl->step_count && distance < spardl->steps[steps].gap) {
        steps++;
    }
    return steps;
}

static bool lay_out(spardl_t *spardl)
{
    int last = spardl->step_count - 1;
    size_t members = (size_t)spardl->members;
    spardl->blocks = baton__alloc(members, sizeof *spardl->blocks);
    spardl->steps =
        baton__alloc((size_t)spardl->step_count, sizeof *spardl->steps);
    if (spardl->blocks == NULL || spardl->steps == NULL) {
        return false;
    }
    for (int i = 0; i < spardl->step_count; i++) {
        int gap = 1 << (last - i);
        spardl->steps[i] = (spardl_step_t){
            .spardl = spardl,
            .gap = gap,
            .blocks = i == 0 ? spardl->members - gap : gap,
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
    spardl->sparse->rounds += (uint32_t)spardl->step_count;
    return true;
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
    bool ok = nodes != NULL && lay_out(spardl) && allocate(spardl);
    if (ok) {
        baton_node_t own = sparse->device != NULL
                               ? baton__spardl_add_on_device(spardl, &ok)
                               : add_reduce_scatter(spardl, nodes);
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
    for (int i = 0; spardl->blocks != NULL && i < spardl->members; i++) {
        baton__free(spardl->blocks[i].candidates.entries);
        baton__free(spardl->blocks[i].sums.data);
    }
    for (int i = 0; spardl->steps != NULL && i < spardl->step_count; i++) {
        baton__free(spardl->steps[i].lists);
    }
    baton__free(spardl->candidates.entries);
    baton__free(spardl->terms);
    baton__free(spardl->indices);
    baton__free(spardl->scratch);
    if (sparse->device == NULL) {
        baton__free(spardl->own.data);
    }
    baton__free(spardl->common);
    baton__free(spardl->blocks);
    baton__free(spardl->steps);
    baton__free(spardl);
}

const baton__sparse_algorithm_t baton__sparse_spardl = {build, destroy};
