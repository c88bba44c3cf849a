/* TopkDSA (Renggli et al. 2019, SparCML's split all-gather): P regions, each
   summed by its owner.

       accumulate --> select --> P - 1 direct sends, to r + 1, r + 2, ...
                         |
            P - 1 recvs -+--> sum of this rank's region: own, r - 1, r - 2, ...
                                  |
                                  +--> all-gather of the sums' lengths
                                            |
                                            +--> all-gather of the sums

   Region r is [r q, (r + 1) q), q = n / P; the last one takes the rest. The
   lengths tell all ranks whether the sums go as entries or as dense regions:
   these, once entries would be a third of the elements or more. What was not
   selected is the residual. */
#include "coll/pattern.h"
#include "coll/sparse/sparse.h"

#include "base/alloc.h"

#include <string.h>

typedef struct topkdsa {
    baton_sparse_t *sparse;
    uint32_t *indices;
    size_t count;
    void *scratch;
    char *own;                       /* all that this rank has selected */
    baton__message_t *sends, *recvs; /* [i]: to r + 1 + i, from r - 1 - i */
    baton_entries_t *lists;
    char *sum; /* of this rank's region, as entries */
    size_t sum_count;
    bool dense; /* the sums go as dense regions */
    baton__gather_t *lengths, *sums;
} topkdsa_t;

static baton__block_t region_of(const baton_sparse_t *sparse, int owner)
{
    size_t part = sparse->options.count / (size_t)sparse->size;
    baton__block_t region = {.first = part * (size_t)owner, .count = part};
    if (owner == sparse->size - 1) {
        region.count = sparse->options.count - region.first;
    }
    return region;
}

/* Entries of one rank in a region, at most. */
static size_t region_room(const baton_sparse_t *sparse, int owner)
{
    size_t count = region_of(sparse, owner).count;
    return count < sparse->options.max_k ? count : sparse->options.max_k;
}

/* Entries of the sum of a region, at most. */
static size_t sum_room(const baton_sparse_t *sparse, int owner)
{
    size_t count = region_of(sparse, owner).count;
    size_t all = sparse->options.max_k * (size_t)sparse->size;
    return count < all ? count : all;
}

/* ---- select, send ------------------------------------------------------ */

/* Where the entries of a region begin in `own`. */
static size_t lower_bound(const topkdsa_t *self, size_t index)
{
    size_t low = 0, high = self->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->indices[middle] < index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* This rank's entries of a region; of full blocks, without payload. */
static baton_entries_t entries_in(const topkdsa_t *self, int owner)
{
    const baton_sparse_t *sparse = self->sparse;
    baton__block_t region = region_of(sparse, owner);
    if (!sparse->payload) {
        return (baton_entries_t){
            NULL,
            baton__block_of(sparse->k, (size_t)sparse->size, (size_t)owner)
                .count};
    }
    size_t begin = lower_bound(self, region.first);
    size_t end = lower_bound(self, region.first + region.count);
    return (baton_entries_t){self->own + begin * sparse->entry_bytes,
                             end - begin};
}

static baton_status_t send_regions(topkdsa_t *self, baton_call_t *call)
{
    const baton_sparse_t *sparse = self->sparse;
    baton_status_t status = BATON_OK;
    for (int i = 0; i < sparse->size - 1 && status == BATON_OK; i++) {
        int owner = baton__rank_shift(sparse->rank, i + 1, sparse->size);
        baton_entries_t list = entries_in(self, owner);
        size_t bytes = list.count * sparse->entry_bytes;
        char *to = baton__message_begin(&self->sends[i], call);
        if (to != NULL && bytes > 0) {
            memcpy(to, list.data, bytes);
        }
        status = baton__message_end(&self->sends[i], call, bytes);
    }
    return status;
}

static baton_status_t select_own(void *arg, baton_call_t *call)
{
    topkdsa_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    baton_status_t status = baton__sparse_begin(sparse, call);
    baton__sparse_accumulate(sparse, 0, sparse->options.count);
    self->count = baton__sparse_select(sparse, 0, sparse->options.count,
                                       sparse->k, self->indices, self->scratch);
    if (sparse->payload) {
        baton_entries_take(sparse->options.dtype, self->own, self->indices,
                           self->count, sparse->work);
    }
    return status == BATON_OK ? send_regions(self, call) : status;
}

/* ---- sum, gather ------------------------------------------------------- */

static baton_status_t sum_region(void *arg, baton_call_t *call)
{
    topkdsa_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    self->lists[0] = entries_in(self, sparse->rank);
    self->sum_count = self->lists[0].count;
    for (int i = 0; i < sparse->size - 1; i++) {
        baton__message_take(&self->recvs[i], call);
        self->lists[i + 1] = (baton_entries_t){
            self->recvs[i].data, baton__message_entries(&self->recvs[i])};
    }
    if (sparse->payload) {
        self->sum_count = baton_entries_sum(sparse->options.dtype, self->lists,
                                            (size_t)sparse->size, self->sum);
    }
    uint32_t length = (uint32_t)self->sum_count;
    char *to = baton__gather_begin(self->lengths, call);
    if (to != NULL) {
        memcpy(to, &length, sizeof length);
    }
    return baton__gather_end(self->lengths, call, sizeof length);
}

static size_t length_bytes(void *arg, int member)
{
    (void)arg;
    (void)member;
    return sizeof(uint32_t);
}

static size_t length_extent(void *arg, int member, const char *data,
                            size_t left)
{
    (void)data;
    (void)left;
    return length_bytes(arg, member);
}

/* The length of a region's sum. */
static size_t length_of(const topkdsa_t *self, int member)
{
    const baton_sparse_t *sparse = self->sparse;
    if (!sparse->payload) {
        return self->sum_count;
    }
    int j = baton__rank_shift(member, -sparse->rank, sparse->size);
    uint32_t length;
    memcpy(&length,
           baton__gather_parts(self->lengths) + (size_t)j * sizeof length,
           sizeof length);
    return length;
}

static size_t part_bytes(void *arg, int member)
{
    const topkdsa_t *self = arg;
    const baton_sparse_t *sparse = self->sparse;
    return self->dense ? region_of(sparse, member).count * sparse->element_bytes
                       : length_of(self, member) * sparse->entry_bytes;
}

static size_t part_extent(void *arg, int member, const char *data, size_t left)
{
    (void)data;
    (void)left;
    return part_bytes(arg, member);
}

static size_t part_most(void *arg, int member)
{
    const topkdsa_t *self = arg;
    const baton_sparse_t *sparse = self->sparse;
    size_t dense = region_of(sparse, member).count * sparse->element_bytes;
    size_t entries = sum_room(sparse, member) * sparse->entry_bytes;
    return dense > entries ? dense : entries;
}

/* As entries, or as a dense region; `to` has room for either. */
static void write_part(const topkdsa_t *self, char *to)
{
    const baton_sparse_t *sparse = self->sparse;
    baton__block_t region = region_of(sparse, sparse->rank);
    if (!self->dense) {
        memcpy(to, self->sum, self->sum_count * sparse->entry_bytes);
        return;
    }
    size_t size = sparse->element_bytes;
    memset(to, 0, region.count * size);
    for (size_t i = 0; i < self->sum_count; i++) {
        const char *entry = self->sum + i * sparse->entry_bytes;
        size_t index = baton_entry_index(sparse->options.dtype, self->sum, i);
        memcpy(to + (index - region.first) * size, entry + sizeof(uint32_t),
               size);
    }
}

static baton_status_t begin_sums(void *arg, baton_call_t *call)
{
    topkdsa_t *self = arg;
    const baton_sparse_t *sparse = self->sparse;
    size_t nnz = 0;
    for (int member = 0; member < sparse->size; member++) {
        nnz += length_of(self, member);
    }
    self->dense = 3 * nnz >= sparse->options.count;
    char *to = baton__gather_begin(self->sums, call);
    if (to != NULL) {
        write_part(self, to);
    }
    return baton__gather_end(self->sums, call, part_bytes(self, sparse->rank));
}

/* Appends what is not zero of a dense region to the result. */
static size_t put_region(baton_sparse_t *sparse, size_t at,
                         baton__block_t region, const char *values)
{
    size_t size = sparse->element_bytes;
    baton_selection_t from = {.dtype = sparse->options.dtype,
                              .values = values,
                              .count = region.count,
                              .first = (uint32_t)region.first};
    size_t count = baton_select_at_least(&from, 1, sparse->result_indices + at,
                                         sparse->result_capacity - at);
    for (size_t i = 0; i < count; i++) {
        size_t index = sparse->result_indices[at + i] - region.first;
        memcpy(sparse->result_values + (at + i) * size, values + index * size,
               size);
    }
    return count;
}

static baton_status_t finish(void *arg, baton_call_t *call)
{
    topkdsa_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    size_t count = 0;
    (void)call;
    for (int member = 0; member < sparse->size && sparse->payload; member++) {
        int j = baton__rank_shift(member, -sparse->rank, sparse->size);
        const char *part = baton__gather_parts(self->sums) +
                           baton__gather_offsets(self->sums)[j];
        if (self->dense) {
            count += put_region(sparse, count, region_of(sparse, member), part);
        } else {
            size_t length = length_of(self, member);
            baton__sparse_result_put(sparse, count, part, length);
            count += length;
        }
    }
    baton__sparse_publish(sparse, count);
    sparse->masked = self->indices;
    sparse->masked_count = self->count;
    return BATON_OK;
}

/* ---- building ---------------------------------------------------------- */

static baton_node_t add_exchange(topkdsa_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    baton_schedule_t *s = sparse->schedule;
    size_t own = region_room(sparse, sparse->rank) * sparse->entry_bytes;
    baton_node_t select = baton_add_call(s, select_own, self);
    baton_node_t sum = baton_add_call(s, sum_region, self);
    baton_before(s, select, sum);
    for (int i = 0; i < sparse->size - 1; i++) {
        int to = baton__rank_shift(sparse->rank, i + 1, sparse->size);
        int from = baton__rank_shift(sparse->rank, -i - 1, sparse->size);
        baton__message_send(&self->sends[i], sparse, to,
                            region_room(sparse, to) * sparse->entry_bytes);
        baton__message_recv(&self->recvs[i], sparse, from, own);
        baton_before(s, select, self->sends[i].node);
        baton_before(s, self->recvs[i].node, sum);
    }
    sparse->rounds += (uint32_t)sparse->size - 1;
    return sum;
}

static bool add_gathers(topkdsa_t *self, baton_node_t summed)
{
    baton_sparse_t *sparse = self->sparse;
    baton_schedule_t *s = sparse->schedule;
    baton__gather_plan_t plan = {
        .sparse = sparse,
        .arg = self,
        .size = sparse->size,
        .index = sparse->rank,
        .stride = 1,
        .most = length_bytes,
        .nominal = length_bytes,
        .extent = length_extent,
    };
    baton_node_t known, done;
    self->lengths = baton__gather_build(&plan, summed, &known);
    if (self->lengths == NULL) {
        return false;
    }
    baton_node_t begin = baton_add_call(s, begin_sums, self);
    baton_node_t end = baton_add_call(s, finish, self);
    baton_before(s, known, begin);
    plan.most = part_most;
    plan.nominal = part_bytes;
    plan.extent = part_extent;
    self->sums = baton__gather_build(&plan, begin, &done);
    if (self->sums == NULL) {
        return false;
    }
    baton_before(s, done, end);
    return true;
}

static bool allocate(topkdsa_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    size_t n = sparse->options.count, k = sparse->options.max_k;
    size_t others = (size_t)sparse->size - 1;
    size_t all = k * (size_t)sparse->size;
    bool ok = true;
    self->indices = baton__sparse_room(sparse, k, sizeof *self->indices, &ok);
    self->scratch =
        baton__sparse_room(sparse, 1, baton_select_scratch_bytes(n, k), &ok);
    self->own = baton__sparse_room(sparse, k, sparse->entry_bytes, &ok);
    self->sum = baton__sparse_room(sparse, sum_room(sparse, sparse->rank),
                                   sparse->entry_bytes, &ok);
    self->sends = baton__alloc(others, sizeof *self->sends);
    self->recvs = baton__alloc(others, sizeof *self->recvs);
    self->lists = baton__alloc(others + 1, sizeof *self->lists);
    return ok && self->sends != NULL && self->recvs != NULL &&
           self->lists != NULL &&
           baton__sparse_result_room(sparse, all < n ? all : n);
}

static baton_status_t build(baton_sparse_t *sparse)
{
    topkdsa_t *self = baton__alloc(1, sizeof *self);
    if (self == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    sparse->state = self;
    self->sparse = sparse;
    if (!allocate(self)) {
        return BATON_ERR_NO_MEMORY;
    }
    baton_node_t summed = add_exchange(self);
    return add_gathers(self, summed) ? BATON_OK : BATON_ERR_NO_MEMORY;
}

static void destroy(baton_sparse_t *sparse)
{
    topkdsa_t *self = sparse->state;
    baton__gather_free(self->lengths);
    baton__gather_free(self->sums);
    baton__free(self->indices);
    baton__free(self->scratch);
    baton__free(self->own);
    baton__free(self->sum);
    baton__free(self->sends);
    baton__free(self->recvs);
    baton__free(self->lists);
    baton__free(self);
}

const baton__sparse_algorithm_t baton__sparse_topkdsa = {build, destroy};
