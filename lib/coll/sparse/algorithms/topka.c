/* Sparse all-gather: each rank sends its selection to all ranks, and sums all
   selections in the order of ranks. Elements that were not selected are the
   residual.

       accumulate, select --> Bruck all-gather (gather.c) --> sum

   TopkA sends the k largest elements, as entries. If fewer than k elements are
   not zero, the list is padded, so that all lists have one length.

   RedSync (Fang et al. 2019, see baton/sparse.h) has selections of its own, and
   messages [count | indices | values]. With options.quantise (the paper's ASQ),
   even steps select from the positive elements and odd steps from the negative
   ones, and all values are replaced by their mean: [count | indices | mean].

   With the residual on a device, the selection is made there, and copied to
   main memory (device_work.h). */
#include "coll/sparse/algorithms/algorithms.h"

#include "base/half.h"
#include "coll/sparse/core/device_work.h"

#include <string.h>

enum { SAMPLED_PERIOD = 5, COUNT_BYTES = sizeof(uint32_t) };

typedef struct topka {
    baton_sparse_t *sparse;
    size_t capacity; /* the most entries that a rank may select */
    uint32_t *indices;
    size_t count;
    void *scratch;
    /* With RedSync: memory for the entries of this rank's selection and, after
       the all-gather, for the entries of all ranks. */
    char *entries;
    char *sum;
    baton_entries_t *lists;
    baton__gather_t *gather;
    /* The next three fields are used only with gradients on a device. */
    baton__selecting_t selecting;
    baton__mirror_t selected;
    baton__change_t change;
} topka_t;

static bool redsync(const baton_sparse_t *sparse)
{
    return sparse->options.algorithm == BATON_SPARSE_REDSYNC;
}

/* ---- selection --------------------------------------------------------- */

static baton_side_t side_of(const baton_sparse_t *sparse)
{
    if (!sparse->options.quantise) {
        return BATON_SIDE_BOTH;
    }
    return sparse->steps % 2 == 0 ? BATON_SIDE_POSITIVE : BATON_SIDE_NEGATIVE;
}

/* Returns true if this step may use the threshold of an earlier step. */
static bool reuses(const baton_sparse_t *sparse)
{
    return sparse->options.redsync == BATON_REDSYNC_SAMPLED &&
           sparse->next.steps % SAMPLED_PERIOD != 0;
}

/* Accumulates and selects by a threshold. The threshold is that of an earlier
   step, or is searched for. If no threshold is found, or if it would select
   more than 2k entries, selects exactly k. */
static size_t topka_select_by_threshold(topka_t *topka,
                                        const baton_selection_t *from)
{
    baton_sparse_t *sparse = topka->sparse;
    baton_magnitude_t *threshold = &sparse->next.local_threshold;
    size_t k = sparse->k;
    if (reuses(sparse) && *threshold != 0) {
        size_t again = baton__sparse_accumulate_at_least(
            sparse, from->side, *threshold, topka->indices, 2 * k);
        if (again <= 2 * k) {
            return again;
        }
    } else {
        baton__sparse_accumulate(sparse, 0, from->count);
    }
    *threshold = baton_select_search(from, k, topka->indices, topka->scratch);
    size_t found =
        baton_select_at_least(from, *threshold, topka->indices, 2 * k);
    return *threshold != 0 && found <= 2 * k
               ? found
               : baton_select_topk(from, k, topka->indices, topka->scratch,
                                   threshold);
}

/* Accumulates and selects in the way that options.redsync names. */
static size_t select_redsync(topka_t *topka)
{
    baton_sparse_t *sparse = topka->sparse;
    const baton_selection_t from =
        baton__sparse_selection(sparse, side_of(sparse));
    switch (sparse->options.redsync) {
    case BATON_REDSYNC_TRIMMED:
        baton__sparse_accumulate(sparse, 0, from.count);
        return baton_select_trimmed(&from, sparse->k, topka->indices,
                                    topka->scratch);
    case BATON_REDSYNC_SEARCH:
    case BATON_REDSYNC_SAMPLED:
        return topka_select_by_threshold(topka, &from);
    case BATON_REDSYNC_EXACT:
        break;
    }
    return baton__sparse_accumulate_topk(sparse, from.side, topka->indices,
                                         topka->scratch,
                                         &sparse->next.local_threshold);
}

/* Returns true if a selection may have up to 2k entries; otherwise it has at
   most k. */
static bool by_threshold(const baton_sparse_t *sparse)
{
    return redsync(sparse) &&
           (sparse->options.redsync == BATON_REDSYNC_SEARCH ||
            sparse->options.redsync == BATON_REDSYNC_SAMPLED);
}

/* ---- this rank's part -------------------------------------------------- */

/* Returns the bytes of a part with `count` entries. */
static size_t topka_part_bytes(const baton_sparse_t *sparse, size_t count)
{
    size_t values = sparse->options.quantise ? 1 : count;
    return redsync(sparse) ? COUNT_BYTES + count * sizeof(uint32_t) +
                                 values * sparse->element_bytes
                           : count * sparse->entry_bytes;
}

/* Writes the mean of `count` values to `mean`, as an element. All values have
   the same sign, so the magnitude of the mean is the mean of the magnitudes. */
static void mean_of(const baton_sparse_t *sparse, const void *values,
                    size_t count, void *mean)
{
    double sign = sparse->steps % 2 == 0 ? 1 : -1;
    double sum = baton_elements_measure(sparse->dtype, values, count).sum;
    baton_magnitude_t key =
        baton_magnitude_of(sparse->dtype, count > 0 ? sum / (double)count : 0);
    baton__put_bits(mean, key, sparse->element_bytes);
    baton_elements_scale(sparse->dtype, mean, 1, sign);
}

/* Writes [count | indices | values or mean] of the selected entries to `to`.
   `taken` has the entries, and topka->indices their indices. */
static void write_redsync(const topka_t *topka, const void *taken, char *to)
{
    const baton_sparse_t *sparse = topka->sparse;
    uint32_t count = (uint32_t)topka->count;
    char *after = to + COUNT_BYTES + topka->count * sizeof(uint32_t);
    /* If a mean is wanted, the values go to `sum`, which is free until the
       parts of all ranks are summed. */
    char *values = sparse->options.quantise ? topka->sum : after;
    memcpy(to, &count, sizeof count);
    memcpy(to + COUNT_BYTES, topka->indices, topka->count * sizeof(uint32_t));
    baton_entries_split(sparse->dtype, taken, topka->count, NULL, values);
    if (sparse->options.quantise) {
        mean_of(sparse, values, topka->count, after);
    }
}

/* Ends this rank's part, which is at `to`. In TopkA, the part has the selected
   entries already, and is padded to k entries. In RedSync, the part is written
   from the entries at `taken`. */
static baton_status_t topka_end_part(topka_t *topka, baton_call_t *call,
                                     const void *taken, char *to)
{
    baton_sparse_t *sparse = topka->sparse;
    size_t count = sparse->k;
    sparse->completion.selected_count = topka->count;
    if (to != NULL && redsync(sparse)) {
        write_redsync(topka, taken, to);
        sparse->next.steps++;
        count = topka->count;
    } else if (to != NULL) {
        baton__entries_pad(sparse, to, topka->count, count);
    }
    return baton__gather_end(topka->gather, call,
                             topka_part_bytes(sparse, count));
}

static baton_status_t select_and_write(void *arg, baton_call_t *call)
{
    topka_t *topka = arg;
    baton_sparse_t *sparse = topka->sparse;
    char *to = baton__gather_begin(topka->gather, call);
    /* With RedSync, the selected entries go to `entries`, which is free until
       the parts of all ranks have come. */
    char *taken = redsync(sparse) ? topka->entries : to;
    baton__sparse_begin(sparse);
    if (sparse->payload || !redsync(sparse)) {
        sparse->counting.block_selections++;
        topka->count = redsync(sparse)
                           ? select_redsync(topka)
                           : baton__sparse_accumulate_topk(
                                 sparse, BATON_SIDE_BOTH, topka->indices,
                                 topka->scratch, NULL);
    }
    if (to != NULL) {
        baton_entries_take(sparse->dtype, taken, topka->indices, topka->count,
                           sparse->work);
    }
    return topka_end_part(topka, call, taken, to);
}

/* ---- this rank's part, on a device ------------------------------------- */

/* Sets up the selection on the device. TRIMMED selects like EXACT there, since
   both select the same elements. */
static baton_status_t begin_on_device(void *arg, baton_call_t *call)
{
    topka_t *topka = arg;
    baton_sparse_t *sparse = topka->sparse;
    baton__selecting_t *selecting = &topka->selecting;
    baton__sparse_begin(sparse);
    *selecting = (baton__selecting_t){.count = sparse->count, .k = sparse->k};
    if (redsync(sparse)) {
        selecting->side = side_of(sparse);
        selecting->sampled = by_threshold(sparse);
        selecting->earlier = reuses(sparse) ? sparse->next.local_threshold : 0;
    }
    baton__selected_head(topka->selected.host)->threshold = selecting->earlier;
    return BATON_OK;
}

/* Selects on the device. If a threshold of an earlier step is used, it is first
   copied to the device, in the same stream. */
static void select_on_device(void *arg, baton__enqueue_t *queue)
{
    topka_t *topka = arg;
    const baton__mirror_t *selected = &topka->selected;
    const baton__selecting_t *selecting = &topka->selecting;
    const baton_device_entries_t *list = &topka->change.list;
    if (selecting->earlier != 0) {
        baton__enqueue_to_device(queue, selected,
                                 sizeof(baton_device_selected_t));
    }
    baton__enqueue_take(queue, selecting, selected->device, &topka->change);
    baton__enqueue_to_host(
        queue, selected, baton__selected_bytes(topka->sparse, list->capacity));
    baton__enqueue_mask(queue, topka->sparse->device->indices, list->capacity,
                        list->count);
}

/* Writes this rank's part from the entries that the device has taken out of
   `work`. With RedSync also stores their threshold, unless options.redsync is
   TRIMMED, as a selection in main memory does. */
static baton_status_t write_selected(void *arg, baton_call_t *call)
{
    topka_t *topka = arg;
    baton_sparse_t *sparse = topka->sparse;
    char *selected = topka->selected.host;
    baton_entries_t taken = baton__selected_entries(selected);
    char *to = baton__gather_begin(topka->gather, call);
    topka->count = taken.count;
    if (!redsync(sparse)) {
        memcpy(to, taken.data, taken.count * sparse->entry_bytes);
        return topka_end_part(topka, call, taken.data, to);
    }
    baton_entries_split(sparse->dtype, taken.data, taken.count, topka->indices,
                        NULL);
    if (sparse->options.redsync != BATON_REDSYNC_TRIMMED) {
        sparse->next.local_threshold =
            baton__selected_head(selected)->threshold;
    }
    return topka_end_part(topka, call, taken.data, to);
}

/* ---- all parts --------------------------------------------------------- */

static size_t topka_nominal(void *arg, int member)
{
    const topka_t *topka = arg;
    return topka_part_bytes(topka->sparse, topka->sparse->k);
}

static size_t topka_count_in(const char *part)
{
    uint32_t count;
    memcpy(&count, part, sizeof count);
    return count;
}

static size_t redsync_extent(void *arg, int member, const char *data,
                             size_t left)
{
    const topka_t *topka = arg;
    return left < COUNT_BYTES
               ? SIZE_MAX
               : topka_part_bytes(topka->sparse, topka_count_in(data));
}

/* Turns a part [count | indices | values or mean] into entries, which it writes
   to `to`. */
static baton_entries_t list_of_redsync(const topka_t *topka, const char *part,
                                       char *to)
{
    const baton_sparse_t *sparse = topka->sparse;
    size_t count = topka_count_in(part);
    const char *indices = part + COUNT_BYTES;
    baton__entries_join(sparse, to, indices, indices + count * sizeof(uint32_t),
                        sparse->options.quantise ? 0 : sparse->element_bytes,
                        count);
    return (baton_entries_t){to, count};
}

static baton_status_t topka_sum(void *arg, baton_call_t *call)
{
    topka_t *topka = arg;
    baton_sparse_t *sparse = topka->sparse;
    size_t count = 0;
    if (sparse->payload) {
        char *to = topka->entries;
        for (int rank = 0; rank < sparse->size; rank++) {
            size_t bytes;
            const char *part = baton__gather_part(topka->gather, rank, &bytes);
            topka->lists[rank] =
                redsync(sparse)
                    ? list_of_redsync(topka, part, to)
                    : baton__entries_unpadded(sparse, part, sparse->k);
            to += redsync(sparse)
                      ? topka->lists[rank].count * sparse->entry_bytes
                      : 0;
        }
        count = baton_entries_sum(sparse->dtype, topka->lists,
                                  (size_t)sparse->size, topka->sum);
        baton__sparse_result_put(sparse, 0, topka->sum, count);
    }
    baton__sparse_publish(sparse, count);
    return BATON_OK;
}

/* ---- building ---------------------------------------------------------- */

static void topka_allocate(topka_t *topka)
{
    baton_sparse_t *sparse = topka->sparse;
    size_t n = sparse->count, k = sparse->options.max_k;
    size_t most = by_threshold(sparse) ? 2 * k : k;
    topka->capacity = most < n ? most : n;
    size_t all = topka->capacity * (size_t)sparse->size;
    size_t distinct = all < n ? all : n;
    /* baton_select_at_least may write 2k indices, even if the vector has fewer
       elements. */
    topka->indices =
        baton__sparse_alloc_data(sparse, most, sizeof *topka->indices);
    topka->scratch =
        baton__sparse_alloc_data(sparse, 1, baton_select_scratch_bytes(n, k));
    topka->sum =
        baton__sparse_alloc_data(sparse, distinct, sparse->entry_bytes);
    if (redsync(sparse)) {
        topka->entries =
            baton__sparse_alloc_data(sparse, all, sparse->entry_bytes);
    }
    topka->lists =
        baton__sparse_alloc(sparse, (size_t)sparse->size, sizeof *topka->lists);
    baton__sparse_alloc_results(sparse, distinct);
}

/* Adds the all-gather after `write`, a call that writes this rank's part. */
static void topka_add_gather(topka_t *topka, baton_node_t write)
{
    baton_sparse_t *sparse = topka->sparse;
    const baton__gather_plan_t plan = {
        .sparse = sparse,
        .arg = topka,
        .most_bytes = topka_part_bytes(sparse, topka->capacity),
        .nominal = topka_nominal,
        .extent = redsync(sparse) ? redsync_extent : NULL,
    };
    baton__gather_build(&plan, write, topka_sum, &topka->gather);
}

static topka_t *open(baton_sparse_t *sparse)
{
    topka_t *topka = baton__sparse_alloc(sparse, 1, sizeof *topka);
    if (topka != NULL) {
        topka->sparse = sparse;
        topka_allocate(topka);
        sparse->completion.selected = topka->indices;
    }
    return topka;
}

void baton__topka_build(baton_sparse_t *sparse)
{
    topka_t *topka = open(sparse);
    if (topka != NULL) {
        topka_add_gather(topka,
                         baton__sparse_add_call(sparse, sparse->schedule,
                                                select_and_write, topka));
    }
}

void baton__topka_build_on_device(baton_sparse_t *sparse)
{
    topka_t *topka = open(sparse);
    if (topka == NULL) {
        return;
    }
    baton_schedule_t *s = sparse->schedule;
    topka->selected = baton__mirror_alloc(
        sparse, NULL, baton__selected_bytes(sparse, topka->capacity));
    baton_node_t begin =
        baton__sparse_add_call(sparse, s, begin_on_device, topka);
    baton_node_t select = baton__sparse_device_call(
        sparse, s, baton__sparse_device_add_accumulation(sparse, s, begin),
        select_on_device, topka);
    baton_node_t write =
        baton__sparse_call_after(sparse, select, write_selected, topka);
    topka_add_gather(topka, write);
}
