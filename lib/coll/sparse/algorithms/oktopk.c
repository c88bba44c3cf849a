/* Ok-Topk (Li, Hoefler 2022): thresholds are searched in some steps and used
   again in the steps between, and the bounds of regions follow the data.

       accumulate --> select --> all-gather of proposed bounds --> split
                                                                    |
                    P - 1 direct sends, to r + 1, r + 2, ... <------+
                                                                    |
                    P - 1 recvs --> sum of this rank's region <-----+
                                     |
                                     +--> all-gather of large sums --> finish

   Every 32 steps the local threshold is that of the exact top-k, and the global
   one that of the exact top-k of all sums. In other steps entries are selected
   by these thresholds, which slowly follow the number of entries. So that no
   buffer overflows whatever the data, a rank that would select more than 2k
   entries, or an owner that would publish more than k, takes the k largest. If
   residuals grow fast, owners may publish more than 2k entries together. Then
   the next global threshold is that of the k largest of these entries, which
   all ranks have: by the paper's rule the threshold would grow too slowly, over
   hundreds of steps. Every 64 steps the bounds become the mean of all ranks'
   proposals: the positions that divide their own selection evenly. In other
   steps the all-gather of bounds is empty.

   Entries that were selected here and are in the result have been sent; the
   residual keeps all else. The paper's data balancing before the last
   all-gather is left out: it moves entries once more, and all ranks get all of
   them anyway. */
#include "coll/sparse/algorithms/regions.h"

#include <string.h>

enum { THRESHOLD_PERIOD = 32, BOUNDS_PERIOD = 64, RAISES = 5 };

#define RAISE         1.03
#define LOCAL_FACTOR  1.012
#define GLOBAL_FACTOR 1.008

typedef struct oktopk {
    baton_sparse_t *sparse;
    baton__regions_t regions;
    void *scratch;
    char *sum; /* the sum of this rank's region, as entries */
    char *all; /* memory for the entries that all owners publish */
    baton__gather_t *proposals, *sums;
} oktopk_t;

static bool searches(const oktopk_t *self)
{
    return self->sparse->learned.steps % THRESHOLD_PERIOD == 0;
}

static bool moves_bounds(const oktopk_t *self)
{
    return self->sparse->learned.steps % BOUNDS_PERIOD == 0;
}

static uint64_t scaled(const baton_sparse_t *sparse, uint64_t threshold,
                       double factor)
{
    return baton_magnitude_of(sparse->dtype,
                              baton_magnitude_value(sparse->dtype, threshold) *
                                  factor);
}

/* ---- select ------------------------------------------------------------ */

static size_t oktopk_select_by_threshold(oktopk_t *self,
                                         const baton_selection_t *from)
{
    baton_sparse_t *sparse = self->sparse;
    uint64_t *threshold = &sparse->next.local_threshold;
    size_t k = sparse->k;
    size_t count = baton__sparse_accumulate_at_least(
        sparse, from->side, *threshold, self->regions.indices,
        self->regions.capacity);
    int raises = 0;
    for (; raises < RAISES && 3 * count > 4 * k; raises++) {
        *threshold = scaled(sparse, *threshold, RAISE);
        count = baton_select_count(from, *threshold);
    }
    if (count > 2 * k || count > self->regions.capacity) {
        return baton_select_topk(from, k, self->regions.indices, self->scratch,
                                 threshold);
    }
    if (raises > 0) {
        count = baton_select_at_least(from, *threshold, self->regions.indices,
                                      self->regions.capacity);
    }
    if (3 * count < 2 * k) {
        *threshold = scaled(sparse, *threshold, 1 / LOCAL_FACTOR);
    } else if (4 * count > 5 * k) {
        *threshold = scaled(sparse, *threshold, LOCAL_FACTOR);
    }
    return count;
}

static void select_from_work(oktopk_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    const baton_selection_t from =
        baton__sparse_selection(sparse, BATON_SIDE_BOTH);
    self->regions.count =
        searches(self) ? baton__sparse_accumulate_topk(
                             sparse, from.side, self->regions.indices,
                             self->scratch, &sparse->next.local_threshold)
                       : oktopk_select_by_threshold(self, &from);
    baton_entries_take(sparse->dtype, self->regions.own, self->regions.indices,
                       self->regions.count, sparse->work);
}

/* Proposes those bounds of regions that divide this rank's own selection
   evenly. */
static void propose(const oktopk_t *self, char *to)
{
    size_t size = (size_t)self->sparse->size;
    for (size_t i = 0; i + 1 < size; i++) {
        uint64_t index =
            self->regions.count > 0
                ? self->regions.indices[self->regions.count * (i + 1) / size]
                : self->sparse->count * (i + 1) / size;
        memcpy(to + i * sizeof index, &index, sizeof index);
    }
}

static size_t most_proposal_bytes(const baton_sparse_t *sparse)
{
    return ((size_t)sparse->size - 1) * sizeof(uint64_t);
}

static size_t proposal_bytes(void *arg, int member)
{
    const oktopk_t *self = arg;
    return moves_bounds(self) ? most_proposal_bytes(self->sparse) : 0;
}

static baton_status_t oktopk_select_own(void *arg, baton_call_t *call)
{
    oktopk_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    baton__sparse_begin(sparse);
    sparse->counting.block_selections++;
    self->regions.count = sparse->k;
    if (sparse->payload) {
        select_from_work(self);
    }
    sparse->next.steps++;
    char *to = baton__gather_begin(self->proposals, call);
    if (to != NULL && moves_bounds(self)) {
        propose(self, to);
    }
    return baton__gather_end(self->proposals, call,
                             proposal_bytes(self, sparse->rank));
}

/* ---- split, sum -------------------------------------------------------- */

static void set_bounds(oktopk_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    size_t size = (size_t)sparse->size, bytes;
    for (size_t i = 0; i + 1 < size; i++) {
        uint64_t sum = 0;
        for (int rank = 0; rank < sparse->size; rank++) {
            uint64_t index;
            memcpy(&index,
                   baton__gather_part(self->proposals, rank, &bytes) +
                       i * sizeof index,
                   sizeof index);
            sum += index;
        }
        self->regions.bounds[i + 1] = sum / size;
    }
}

static baton_status_t oktopk_split(void *arg, baton_call_t *call)
{
    oktopk_t *self = arg;
    if (moves_bounds(self) && self->sparse->payload) {
        set_bounds(self);
    }
    return baton__regions_send(&self->regions, call);
}

/* Copies the values of a list to the beginning of the scratch memory, and
   returns a selection from them. *positions_out is the scratch memory after the
   values. */
static baton_selection_t values_of(const oktopk_t *self, const char *list,
                                   size_t count, uint32_t **positions_out)
{
    char *values = self->scratch;
    *positions_out = (uint32_t *)(void *)(values + count * sizeof(double));
    baton_entries_split(self->sparse->dtype, list, count, NULL, values);
    return (baton_selection_t){
        .dtype = self->sparse->dtype, .values = values, .count = count};
}

/* Removes the entries of a list that do not reach the global threshold. Returns
   the number of the others. */
static size_t filter(oktopk_t *self, char *list, size_t count)
{
    const baton_sparse_t *sparse = self->sparse;
    size_t bytes = sparse->entry_bytes;
    uint32_t *positions;
    const baton_selection_t from = values_of(self, list, count, &positions);
    size_t remaining = baton_select_at_least(
        &from, sparse->learned.global_threshold, positions, count);
    for (size_t i = 0; i < remaining; i++) {
        memmove(list + i * bytes, list + positions[i] * bytes, bytes);
    }
    return remaining;
}

static size_t sum_lists(oktopk_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    size_t dropped;
    size_t count = baton_entries_sum(sparse->dtype, self->regions.lists,
                                     (size_t)sparse->size, self->sum);
    if (!searches(self)) {
        count = filter(self, self->sum, count);
    }
    return count <= sparse->k
               ? count
               : baton_entries_topk(sparse->dtype, self->sum, count, sparse->k,
                                    NULL, &dropped, self->scratch);
}

static baton_status_t oktopk_sum_region(void *arg, baton_call_t *call)
{
    oktopk_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    baton__regions_take(&self->regions, call);
    size_t count = self->regions.lists[0].count;
    count = sparse->payload ? sum_lists(self) : count;
    return baton__gather_put(self->sums, call, self->sum,
                             count * sparse->entry_bytes);
}

/* ---- finish ------------------------------------------------------------ */

/* Fills `all` with the entries that the owners have published, in the order of
   owners. Returns the number of these entries. */
static size_t oktopk_collect(oktopk_t *self)
{
    const baton_sparse_t *sparse = self->sparse;
    size_t end = 0, bytes;
    for (int owner = 0; owner < sparse->size; owner++) {
        const char *part = baton__gather_part(self->sums, owner, &bytes);
        memcpy(self->all + end, part, bytes);
        end += bytes;
    }
    return end / sparse->entry_bytes;
}

/* Sets the next global threshold to the magnitude of the k-th largest of all
   sums. The scratch memory has space for the values and positions. */
static void set_global(oktopk_t *self, size_t count)
{
    baton_sparse_t *sparse = self->sparse;
    size_t k = count < sparse->k ? count : sparse->k;
    uint32_t *positions;
    const baton_selection_t from =
        values_of(self, self->all, count, &positions);
    (void)baton_select_topk(&from, k, positions, positions + (k + 2) / 2 * 2,
                            &sparse->next.global_threshold);
}

static void follow_global(oktopk_t *self, size_t count)
{
    baton_sparse_t *sparse = self->sparse;
    uint64_t *threshold = &sparse->next.global_threshold;
    if (count > 2 * sparse->k) {
        set_global(self, count);
    } else if (3 * count < 2 * sparse->k) {
        *threshold = scaled(sparse, *threshold, 1 / GLOBAL_FACTOR);
    } else if (3 * count > 4 * sparse->k) {
        *threshold = scaled(sparse, *threshold, GLOBAL_FACTOR);
    }
}

/* Keeps only the k largest of all sums. The magnitude of the k-th largest
   becomes the next global threshold. */
static size_t search_global(oktopk_t *self, size_t count)
{
    baton_sparse_t *sparse = self->sparse;
    size_t dropped;
    count = baton_entries_topk(sparse->dtype, self->all, count, sparse->k, NULL,
                               &dropped, self->scratch);
    set_global(self, count);
    return count;
}

/* Puts those entries of this rank's selection that are not in the result back
   into `work`. Stores the indices of the other selected entries in `selected`,
   for momentum masking. */
static void restore(void *state, size_t count)
{
    oktopk_t *self = state;
    baton_sparse_t *sparse = self->sparse;
    const uint32_t *result = sparse->results.next->indices;
    size_t j = 0, sent = 0;
    for (size_t i = 0; i < self->regions.count; i++) {
        uint32_t index = self->regions.indices[i];
        while (j < count && result[j] < index) {
            j++;
        }
        if (j < count && result[j] == index) {
            self->regions.indices[sent++] = index;
        } else {
            baton_entries_put(sparse->dtype,
                              self->regions.own + i * sparse->entry_bytes, 1,
                              sparse->work);
        }
    }
    sparse->completion.selected = self->regions.indices;
    sparse->completion.selected_count = sent;
}

static baton_status_t oktopk_finish(void *arg, baton_call_t *call)
{
    oktopk_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    if (!sparse->payload) {
        baton__sparse_publish(sparse, 0);
        return BATON_OK;
    }
    size_t count = oktopk_collect(self);
    if (searches(self)) {
        count = search_global(self, count);
    } else {
        follow_global(self, count);
    }
    baton__sparse_result_put(sparse, 0, self->all, count);
    baton__sparse_publish(sparse, count);
    return BATON_OK;
}

/* ---- the gathers' parts ------------------------------------------------ */

static size_t sum_nominal(void *arg, int member)
{
    const oktopk_t *self = arg;
    return baton__regions_entries(&self->regions, member).count *
           self->sparse->entry_bytes;
}

/* Returns the bytes of an owner's entries, which begin at `data`. They end
   where the first index of another region comes. */
static size_t sum_extent(void *arg, int member, const char *data, size_t left)
{
    const oktopk_t *self = arg;
    size_t entry = self->sparse->entry_bytes;
    baton__block_t region = baton__regions_block(&self->regions, member);
    return baton__entries_within(self->sparse, data, left / entry, 0,
                                 region.first, region.count) *
           entry;
}

/* ---- building ---------------------------------------------------------- */

static void oktopk_allocate(oktopk_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    size_t n = sparse->count, k = sparse->options.max_k;
    size_t size = (size_t)sparse->size, entry = sparse->entry_bytes;
    size_t capacity = 2 * k < n ? 2 * k : n;
    size_t sums = capacity * size < n ? capacity * size : n;
    size_t published = k * size < n ? k * size : n;
    size_t largest = sums > published ? sums : published;
    size_t dense = baton_select_scratch_bytes(n, k);
    size_t list = baton_entries_scratch_bytes(largest, largest);
    baton__regions_init(&self->regions, sparse, capacity, false);
    self->scratch =
        baton__sparse_alloc_data(sparse, 1, dense > list ? dense : list);
    self->sum = baton__sparse_alloc_data(sparse, sums, entry);
    self->all = baton__sparse_alloc_data(sparse, published, entry);
    baton__sparse_alloc_results(sparse, published);
}

void baton__oktopk_build(baton_sparse_t *sparse)
{
    oktopk_t *self = baton__sparse_alloc(sparse, 1, sizeof *self);
    if (self == NULL) {
        return;
    }
    self->sparse = sparse;
    sparse->completion.make_residual = restore;
    sparse->completion.algorithm = self;
    oktopk_allocate(self);
    if (sparse->out_of_memory) {
        return;
    }
    const baton__gather_plan_t proposals = {.sparse = sparse,
                                            .arg = self,
                                            .most_bytes =
                                                most_proposal_bytes(sparse),
                                            .nominal = proposal_bytes};
    const baton__gather_plan_t sums = {.sparse = sparse,
                                       .arg = self,
                                       .most_bytes = sparse->options.max_k *
                                                     sparse->entry_bytes,
                                       .nominal = sum_nominal,
                                       .extent = sum_extent};
    baton_node_t select = baton__sparse_add_call(sparse, sparse->schedule,
                                                 oktopk_select_own, self);
    baton_node_t parted =
        baton__gather_build(&proposals, select, oktopk_split, &self->proposals);
    baton_node_t sum =
        baton__sparse_call_after(sparse, parted, oktopk_sum_region, self);
    baton__regions_build(&self->regions, parted, sum);
    baton__gather_build(&sums, sum, oktopk_finish, &self->sums);
}
