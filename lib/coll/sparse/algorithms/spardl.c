/* SparDL (Zhao et al. 2024, see baton/sparse.h; section III). P ranks are d
   teams of m; a rank has position p in its team, and is responsible for block p
   of m.

   Spar-Reduce-Scatter takes l = ceil(log2 m) steps. In step i, with gap =
   2^(l-i), a rank sends a bag of s blocks as one message to p + gap: blocks
   p + gap to p + gap + s - 1, where s = m - gap in step 1 and s = gap
   afterwards. Of each block it sends the L largest elements; L is the quota of
   a block. It receives blocks p to p + s - 1 from p - gap and adds them. A rank
   selects from a block only when it sends the block, so there are m selections
   in all. Nothing is added to the blocks of the first bag before the selection,
   so the pass that selects from them also accumulates them. Three members, l =
   2, gaps 2 and 1, at p = 0:

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

   A block is not summed as a vector. The pass that accumulates it also lists
   its candidates: all elements that reach a certain magnitude, which is chosen
   so that probably more than L elements of the block reach it. The
   sums of the block are then made from a few lists: its candidates and the
   received entries. If a received entry is no candidate, its sum is made with
   its element of `work`. So every element of the summed block that reaches the
   magnitude is among the sums. Therefore the L largest sums are the block's L
   largest elements, as long as L sums reach the magnitude. If there are too
   many candidates (ties), or the sums are too small (they cancel), the received
   entries are added to `work` for the selection.

   Global residual collection. `work` stays gradient plus residual (G in the
   paper). xi, the values that this rank holds and has not passed on, differs
   from G only at the indices of entries that were received or sent. At the
   indices of the result the new residual is xi. At all other indices it is G,
   since the values that ranks passed on there are not in the result. So keep_xi
   writes xi at those indices of the result at which entries were received or
   sent, and changes nothing else.

   If gradients are in device memory, spardl_device.c does all this. */
#include "coll/sparse/algorithms/spardl.h"

/* ---- in a step --------------------------------------------------------- */

/* Accumulates a block from which a later step selects, and finds its
   candidates. */
static baton_status_t spardl_accumulate(void *arg, baton_call_t *call)
{
    spardl_block_t *self = arg;
    spardl_t *spardl = self->spardl;
    baton__block_t block = baton__spardl_block(spardl, self->block);
    baton__sparse_candidates(spardl->sparse, block.first, block.count,
                             baton__spardl_quota(spardl, self->block),
                             &self->candidates, &self->guess, spardl->scratch);
    return BATON_OK;
}

/* Makes the lists that are summed for a block: `first`, and then the lists
   received for the block, in the order of steps. Returns the number of
   lists. */
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

/* Selects from all elements of a block. For the selection, adds the received
   entries to `work`, and then restores `work`. */
static size_t select_dense(spardl_block_t *self, size_t k, char *out)
{
    spardl_t *spardl = self->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    baton__block_t block = baton__spardl_block(spardl, self->block);
    size_t terms = terms_of(self, (baton_entries_t){0});
    for (size_t i = 1; i < terms; i++) {
        baton_entries_add(sparse->dtype,
                          (char *)(uintptr_t)spardl->terms[i].data,
                          spardl->terms[i].count, 1, sparse->work);
    }
    const baton_selection_t from = {
        .dtype = sparse->dtype,
        .values = sparse->work + block.first * sparse->element_bytes,
        .count = block.count,
        .first = (uint32_t)block.first,
    };
    size_t count =
        baton_select_topk(&from, k, spardl->indices, spardl->scratch, NULL);
    baton_entries_gather(sparse->dtype, out, spardl->indices, count,
                         sparse->work);
    for (size_t i = terms - 1; i > 0; i--) {
        baton_entries_put(sparse->dtype, spardl->terms[i].data,
                          spardl->terms[i].count, sparse->work);
    }
    return count;
}

/* Selects from the candidates of a block and the received entries. Returns
   SIZE_MAX if some of the block's largest elements may be in neither of
   them. */
static size_t select_sparse(spardl_block_t *self,
                            const baton_candidates_t *candidates, size_t k,
                            char *out)
{
    spardl_t *spardl = self->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    spardl_list_t from = {candidates->entries,
                          candidates->low > 0 ? candidates->count : 0};
    if (self->steps > 0) {
        size_t terms = terms_of(self, (baton_entries_t){from.data, from.count});
        from.data = self->sums.data;
        from.count = baton_entries_sum_onto(sparse->dtype, sparse->work,
                                            spardl->terms, terms, from.data);
        self->sums = from;
    }
    return baton_entries_largest(sparse->dtype, from.data, from.count, k,
                                 candidates, out, spardl->scratch);
}

/* Selects from a block. If no step comes before the selection, also accumulates
   the block. */
static size_t spardl_take(spardl_block_t *self, size_t k, char *out)
{
    spardl_t *spardl = self->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    baton__block_t block = baton__spardl_block(spardl, self->block);
    baton_candidates_t *candidates = &self->candidates;
    if (self->steps == 0) {
        candidates = &spardl->candidates;
        baton__sparse_candidates(sparse, block.first, block.count, k,
                                 candidates, &self->guess, spardl->scratch);
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
        spardl_take(self, baton__spardl_quota(spardl, self->block), to) *
        sparse->entry_bytes;
    return self->place == step->blocks - 1
               ? baton__message_end(&step->send, call, step->send.bytes)
               : BATON_OK;
}

static baton_status_t spardl_select_own(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    spardl->own.count =
        spardl_take(&spardl->blocks[spardl->position],
                    baton__spardl_share(spardl), spardl->own.data);
    return BATON_OK;
}

/* Writes those entries of a list whose indices are among `indices` to `work`;
   `indices` are the result's indices in one block. If `zeros`, writes zeros at
   these indices instead. */
static void spardl_keep(spardl_t *spardl, const spardl_list_t *list,
                        const uint32_t *indices, size_t count, bool zeros)
{
    baton_sparse_t *sparse = spardl->sparse;
    size_t common = baton_entries_common(sparse->dtype, list->data, list->count,
                                         indices, count, zeros, spardl->common);
    baton_entries_put(sparse->dtype, spardl->common, common, sparse->work);
}

/* Turns `work` into the new residual, block by block: at the indices of the
   result it becomes xi. */
static void keep_xi(void *state, size_t left)
{
    spardl_t *spardl = state;
    const baton_sparse_t *sparse = spardl->sparse;
    const uint32_t *indices = sparse->results.next->indices;
    for (int i = 0; i < spardl->members; i++) {
        const spardl_block_t *block = &spardl->blocks[i];
        size_t count = baton__spardl_within(spardl, i, indices, left);
        if (block->steps > 0) {
            spardl_keep(spardl, &block->sums, indices, count, false);
        }
        spardl_keep(spardl, &block->chosen, indices, count, true);
        if (i == spardl->position) {
            baton__spardl_keep_dropped(spardl, indices, count);
        }
        indices += count;
        left -= count;
    }
}

/* ---- building ---------------------------------------------------------- */

/* Adds the selections from the blocks of a bag, one after another, and the
   bag's send. A selection waits for those earlier steps that add to its block,
   but not for other steps. Returns the last selection. */
static baton_node_t spardl_add_bag(spardl_t *spardl, int index,
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
        last = baton__sparse_call_after(spardl->sparse, last, select_for_bag,
                                        block);
        if (index > 0) {
            baton_before(s, block->accumulated, last);
        }
        for (int earlier = 0; earlier < index; earlier++) {
            if (distance < spardl->steps[earlier].blocks) {
                baton_before(s, spardl->steps[earlier].arrive, last);
            }
        }
    }
    baton__spardl_add_send(spardl, index, last);
    return last;
}

/* Adds the nodes of Spar-Reduce-Scatter. Returns the selection from this rank's
   own block. */
static baton_node_t spardl_add_reduce_scatter(spardl_t *spardl)
{
    baton_schedule_t *s = spardl->sparse->schedule;
    baton_node_t last =
        baton__sparse_add_call(spardl->sparse, s, baton__spardl_begin, spardl);
    if (spardl->step_count > 0) {
        last = spardl_add_bag(spardl, 0, last);
        /* The selections for the first bag accumulate the blocks of that bag.
           So these calls accumulate the other blocks. */
        for (int j = 0; j < spardl->steps[0].gap; j++) {
            spardl_block_t *block =
                &spardl->blocks[baton__spardl_block_at(spardl, j)];
            block->accumulated = baton__sparse_call_after(
                spardl->sparse, last, spardl_accumulate, block);
        }
    }
    for (int i = 0; i < spardl->step_count; i++) {
        if (i > 0) {
            last = spardl_add_bag(spardl, i, last);
        }
        baton__spardl_add_arrival(spardl, i);
    }
    baton_node_t own = baton__sparse_call_after(spardl->sparse, last,
                                                spardl_select_own, spardl);
    if (spardl->step_count > 0) {
        baton_before(s, spardl->blocks[spardl->position].accumulated, own);
    }
    for (int i = 0; i < spardl->step_count; i++) {
        baton_before(s, spardl->steps[i].arrive, own);
    }
    return own;
}

static void allocate_candidates(const spardl_t *spardl, int block,
                                baton_candidates_t *candidates)
{
    size_t count = baton__spardl_block(spardl, block).count;
    candidates->capacity =
        baton_candidates_room(count, baton__spardl_most(spardl, block));
    candidates->entries = baton__sparse_alloc_data(
        spardl->sparse, candidates->capacity, spardl->sparse->entry_bytes);
}

/* If received entries may be added to a block, allocates memory for its
   candidates, and for the sums of candidates and received entries. Returns the
   number of entries for which the sums have memory. Otherwise returns 0: the
   block then has no sums, and uses spardl->candidates. */
static size_t allocate_block(const spardl_t *spardl, spardl_block_t *block)
{
    if (block->steps == 0) {
        return 0;
    }
    allocate_candidates(spardl, block->block, &block->candidates);
    size_t sums =
        block->candidates.capacity +
        (size_t)block->steps * baton__spardl_most(spardl, block->block);
    block->sums.data = baton__sparse_alloc_data(spardl->sparse, sums,
                                                spardl->sparse->entry_bytes);
    return sums;
}

/* Allocates the scratch memory, which selections from blocks, selections from
   sums, and exchanges use one after another. */
static void spardl_allocate(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    size_t entry = sparse->entry_bytes, largest = baton__spardl_most(spardl, 0);
    allocate_candidates(spardl, 0, &spardl->candidates);
    size_t sums = spardl->candidates.capacity;
    for (int i = 0; i < spardl->members; i++) {
        sums = baton__larger(sums, allocate_block(spardl, &spardl->blocks[i]));
    }
    size_t block = baton__spardl_block(spardl, 0).count;
    size_t scratch =
        baton__larger(baton_select_scratch_bytes(block, largest),
                      baton_entries_largest_scratch_bytes(sums, largest));
    spardl->scratch = baton__sparse_alloc_data(
        sparse, 1, baton__larger(scratch, baton__spardl_teams_scratch(spardl)));
    spardl->indices =
        baton__sparse_alloc_data(sparse, largest, sizeof *spardl->indices);
    spardl->own.data = baton__sparse_alloc_data(sparse, largest, entry);
    spardl->common = baton__sparse_alloc_data(sparse, largest + 1, entry);
    spardl->terms = baton__sparse_alloc(sparse, (size_t)spardl->step_count + 1,
                                        sizeof *spardl->terms);
}

void baton__spardl_build(baton_sparse_t *sparse)
{
    spardl_t *spardl = baton__spardl_open(sparse);
    if (spardl == NULL) {
        return;
    }
    spardl_allocate(spardl);
    sparse->completion.make_residual = keep_xi;
    sparse->completion.algorithm = spardl;
    baton_node_t own = spardl_add_reduce_scatter(spardl);
    baton_node_t sum = baton__spardl_add_teams(spardl, own);
    baton__spardl_add_gather(spardl, sum);
}
