/* TopkDSA (Renggli et al. 2019, SparCML's split all-gather): P regions, each
   summed by its owner.

       accumulate --> select --> P - 1 direct sends, to r + 1, r + 2, ...
                         |
            P - 1 recvs -+--> sum of this rank's region: own, r - 1, r - 2, ...
                                  |
                                  +--> all-gather of the sums' lengths
                                            |
                                            +--> all-gather of the sums

   Region r is [r q, (r + 1) q), q = n / P; the last one takes the rest. From
   the lengths all ranks know whether the sums are sent as entries, or as dense
   regions: dense if the entries would be a third of the elements or more.
   Elements that were not selected are the residual. */
#include "coll/sparse/algorithms/regions.h"

#include <string.h>

typedef struct topkdsa {
    baton_sparse_t *sparse;
    baton__regions_t regions;
    void *scratch;
    char *sum; /* the sum of this rank's region, as entries */
    size_t sum_count;
    bool dense; /* this step sends the sums as dense regions, not as entries */
    baton__gather_t *lengths, *sums;
} topkdsa_t;

/* Returns the most entries that the sum of an owner's region may have. */
static size_t sum_capacity(const topkdsa_t *self, int owner)
{
    const baton_sparse_t *sparse = self->sparse;
    size_t count = baton__regions_block(&self->regions, owner).count;
    size_t all = sparse->options.max_k * (size_t)sparse->size;
    return count < all ? count : all;
}

/* ---- select, send ------------------------------------------------------ */

static baton_status_t topkdsa_select_own(void *arg, baton_call_t *call)
{
    topkdsa_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    baton__regions_t *regions = &self->regions;
    baton__sparse_begin(sparse);
    sparse->counting.block_selections++;
    regions->count = baton__sparse_accumulate_topk(
        sparse, BATON_SIDE_BOTH, regions->indices, self->scratch, NULL);
    sparse->completion.selected_count = regions->count;
    if (sparse->payload) {
        baton_entries_take(sparse->dtype, regions->own, regions->indices,
                           regions->count, sparse->work);
    }
    return baton__regions_send(regions, call);
}

/* ---- sum, gather ------------------------------------------------------- */

static baton_status_t topkdsa_sum_region(void *arg, baton_call_t *call)
{
    topkdsa_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    baton__regions_take(&self->regions, call);
    self->sum_count = self->regions.lists[0].count;
    if (sparse->payload) {
        self->sum_count = baton_entries_sum(sparse->dtype, self->regions.lists,
                                            (size_t)sparse->size, self->sum);
    }
    uint32_t length = (uint32_t)self->sum_count;
    return baton__gather_put(self->lengths, call, &length, sizeof length);
}

static size_t length_bytes(void *arg, int member)
{
    return sizeof(uint32_t);
}

/* Returns the number of entries in a region's sum. */
static size_t length_of(const topkdsa_t *self, int member)
{
    const baton_sparse_t *sparse = self->sparse;
    if (!sparse->payload) {
        return baton__block_of(sparse->k, (size_t)sparse->size, (size_t)member)
            .count;
    }
    uint32_t length;
    size_t bytes;
    memcpy(&length, baton__gather_part(self->lengths, member, &bytes),
           sizeof length);
    return length;
}

static size_t topkdsa_part_bytes(void *arg, int member)
{
    const topkdsa_t *self = arg;
    const baton_sparse_t *sparse = self->sparse;
    return self->dense ? baton__regions_block(&self->regions, member).count *
                             sparse->element_bytes
                       : length_of(self, member) * sparse->entry_bytes;
}

static size_t part_most(void *arg, int member)
{
    const topkdsa_t *self = arg;
    const baton_sparse_t *sparse = self->sparse;
    size_t dense = baton__regions_block(&self->regions, member).count *
                   sparse->element_bytes;
    size_t entries = sum_capacity(self, member) * sparse->entry_bytes;
    return dense > entries ? dense : entries;
}

/* Writes this rank's sum to `to`, as entries or as a dense region. `to` has
   space for both forms. */
static void write_part(const topkdsa_t *self, char *to)
{
    const baton_sparse_t *sparse = self->sparse;
    baton__block_t region = baton__regions_block(&self->regions, sparse->rank);
    if (!self->dense) {
        memcpy(to, self->sum, self->sum_count * sparse->entry_bytes);
        return;
    }
    size_t size = sparse->element_bytes;
    /* The vector of which `to` is this rank's region. */
    char *vector = (char *)((uintptr_t)to - region.first * size);
    memset(to, 0, region.count * size);
    baton_entries_put(sparse->dtype, self->sum, self->sum_count, vector);
}

static baton_status_t begin_sums(void *arg, baton_call_t *call)
{
    topkdsa_t *self = arg;
    const baton_sparse_t *sparse = self->sparse;
    size_t nnz = 0;
    for (int member = 0; member < sparse->size; member++) {
        nnz += length_of(self, member);
    }
    self->dense = 3 * nnz >= sparse->count;
    char *to = baton__gather_begin(self->sums, call);
    if (to != NULL) {
        write_part(self, to);
    }
    return baton__gather_end(self->sums, call,
                             topkdsa_part_bytes(self, sparse->rank));
}

/* Writes those elements of the dense regions that are not zero to the result.
   Returns their number. */
static size_t put_regions(const topkdsa_t *self)
{
    const baton_sparse_t *sparse = self->sparse;
    const baton__sparse_results_t *result = &sparse->results;
    size_t size = sparse->element_bytes, count = 0, bytes;
    for (int member = 0; member < sparse->size; member++) {
        baton__block_t region = baton__regions_block(&self->regions, member);
        const char *values = baton__gather_part(self->sums, member, &bytes);
        uint32_t *indices = result->next->indices + count;
        char *to = result->next->values + count * size;
        const baton_selection_t from = {.dtype = sparse->dtype,
                                        .values = values,
                                        .count = region.count,
                                        .first = (uint32_t)region.first};
        size_t found =
            baton_select_at_least(&from, 1, indices, result->capacity - count);
        for (size_t i = 0; i < found; i++) {
            size_t index = indices[i] - region.first;
            memcpy(to + i * size, values + index * size, size);
        }
        count += found;
    }
    return count;
}

static baton_status_t topkdsa_finish(void *arg, baton_call_t *call)
{
    topkdsa_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    size_t count = 0;
    if (sparse->payload) {
        count = self->dense ? put_regions(self)
                            : baton__gather_put_result(self->sums);
    }
    baton__sparse_publish(sparse, count);
    return BATON_OK;
}

/* ---- building ---------------------------------------------------------- */

static void topkdsa_allocate(topkdsa_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    size_t n = sparse->count, k = sparse->options.max_k;
    size_t size = (size_t)sparse->size, all = k * size;
    baton__regions_init(&self->regions, sparse, k, true);
    if (sparse->out_of_memory) {
        return;
    }
    for (size_t owner = 0; owner < size; owner++) {
        self->regions.bounds[owner] = n / size * owner;
    }
    self->scratch =
        baton__sparse_alloc_data(sparse, 1, baton_select_scratch_bytes(n, k));
    self->sum = baton__sparse_alloc_data(
        sparse, sum_capacity(self, sparse->rank), sparse->entry_bytes);
    baton__sparse_alloc_results(sparse, all < n ? all : n);
}

void baton__topkdsa_build(baton_sparse_t *sparse)
{
    topkdsa_t *self = baton__sparse_alloc(sparse, 1, sizeof *self);
    if (self == NULL) {
        return;
    }
    self->sparse = sparse;
    topkdsa_allocate(self);
    if (sparse->out_of_memory) {
        return;
    }
    sparse->completion.selected = self->regions.indices;
    baton_node_t select = baton__sparse_add_call(sparse, sparse->schedule,
                                                 topkdsa_select_own, self);
    baton_node_t sum =
        baton__sparse_call_after(sparse, select, topkdsa_sum_region, self);
    baton__regions_build(&self->regions, select, sum);
    baton__gather_plan_t plan = {
        .sparse = sparse,
        .arg = self,
        .most_bytes = sizeof(uint32_t),
        .nominal = length_bytes,
    };
    baton_node_t known =
        baton__gather_build(&plan, sum, begin_sums, &self->lengths);
    plan.most = part_most;
    plan.nominal = topkdsa_part_bytes;
    baton__gather_build(&plan, known, topkdsa_finish, &self->sums);
}
