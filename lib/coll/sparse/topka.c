/* Sparse all-gather: each rank's selection goes to all, and each rank adds them
   up in the order of ranks. What was not selected is the residual.

       accumulate, select --> Bruck all-gather (gather.c) --> sum

   TopkA sends the k largest, as entries; where fewer are not zero the list is
   filled up, so all have one length.

   RedSync (Fang et al. 2019; papers: redsync) has selections of its own, and
   messages [count | indices | values]. Quantised (ASQ), even steps select from
   the positive elements, odd ones from the negative, and values are replaced by
   their mean: [count | indices | mean].

   With the residual on a device the selection is made there, and copied to the
   host (device_work.h); what the mean lacks of it is copied back. */
#include "coll/sparse/device_work.h"

#include "base/alloc.h"
#include "coll/kit/pattern.h"

#include <string.h>

enum { SAMPLED_PERIOD = 5, COUNT_BYTES = sizeof(uint32_t) };

typedef struct topka {
    baton_sparse_t *sparse;
    size_t room; /* entries of a rank's selection, at most */
    uint32_t *indices;
    size_t count;
    void *scratch;
    char *entries; /* REDSYNC: all parts as entries */
    char *sum;
    baton_entries_t *lists;
    baton__gather_t *gather;
    /* With sparse->device. */
    baton__whole_selection_t selection;
    baton__mirror_t errors; /* with keep_error: what the mean lacks */
} topka_t;

static bool redsync(const baton_sparse_t *sparse)
{
    return sparse->options.algorithm == BATON_SPARSE_REDSYNC;
}

/* ---- selection --------------------------------------------------------- */

static baton_side_t side_of(const baton_sparse_t *sparse)
{
    return !sparse->options.quantise ? BATON_SIDE_BOTH
           : sparse->steps % 2 == 0  ? BATON_SIDE_POSITIVE
                                     : BATON_SIDE_NEGATIVE;
}

/* Whether a threshold of an earlier step may be used again. */
static bool reuses(const baton_sparse_t *sparse)
{
    return sparse->options.redsync == BATON_REDSYNC_SAMPLED &&
           sparse->next.steps % SAMPLED_PERIOD != 0;
}

static baton_selection_t selection_of(const baton_sparse_t *sparse)
{
    baton_selection_t from = {.dtype = sparse->options.dtype,
                              .side = side_of(sparse),
                              .values = sparse->work,
                              .count = sparse->options.count};
    return from;
}

/* The elements that reach a threshold of an earlier step, where these are not
   too many: SIZE_MAX. Accumulates them. */
static size_t select_again(topka_t *topka, const baton_selection_t *from)
{
    baton_sparse_t *sparse = topka->sparse;
    size_t most = 2 * sparse->k, found;
    baton_magnitude_t threshold = sparse->next.local_threshold;
    baton_accumulation_t of;
    if (baton__sparse_accumulation(sparse, 0, from->count, &of)) {
        of.side = from->side;
        found = baton_accumulate_at_least(&of, threshold, topka->indices, most);
    } else {
        baton__sparse_accumulate(sparse, 0, from->count);
        found = baton_select_at_least(from, threshold, topka->indices, most);
    }
    return found <= most ? found : SIZE_MAX;
}

/* Those of a threshold that is searched, or was in an earlier step; exactly k
   where there is none. Accumulates them. */
static size_t select_by_threshold(topka_t *topka, const baton_selection_t *from)
{
    baton__learned_t *next = &topka->sparse->next;
    size_t k = topka->sparse->k;
    if (reuses(topka->sparse) && next->local_threshold != 0) {
        size_t again = select_again(topka, from);
        if (again != SIZE_MAX) {
            return again;
        }
    } else {
        baton__sparse_accumulate(topka->sparse, 0, from->count);
    }
    next->local_threshold =
        baton_select_search(from, k, topka->indices, topka->scratch);
    size_t found = baton_select_at_least(from, next->local_threshold,
                                         topka->indices, 2 * k);
    return next->local_threshold != 0 && found <= 2 * k
               ? found
               : baton_select_topk(from, k, topka->indices, topka->scratch,
                                   &next->local_threshold);
}

static size_t select_exactly(topka_t *topka, const baton_selection_t *from)
{
    baton_sparse_t *sparse = topka->sparse;
    baton_magnitude_t *threshold = &sparse->next.local_threshold;
    baton_accumulation_t of;
    if (baton__sparse_accumulation(sparse, 0, from->count, &of)) {
        of.side = from->side;
        return baton_accumulate_topk(&of, sparse->k, topka->indices,
                                     topka->scratch, threshold);
    }
    baton__sparse_accumulate(sparse, 0, from->count);
    return baton_select_topk(from, sparse->k, topka->indices, topka->scratch,
                             threshold);
}

/* Accumulates and selects. */
static size_t select_redsync(topka_t *topka)
{
    baton_sparse_t *sparse = topka->sparse;
    baton_selection_t from = selection_of(sparse);
    sparse->counting.block_selections++;
    switch (sparse->options.redsync) {
    case BATON_REDSYNC_TRIMMED:
        baton__sparse_accumulate(sparse, 0, from.count);
        return baton_select_trimmed(&from, sparse->k, topka->indices,
                                    topka->scratch);
    case BATON_REDSYNC_SEARCH:
    case BATON_REDSYNC_SAMPLED:
        return select_by_threshold(topka, &from);
    case BATON_REDSYNC_EXACT:
        break;
    }
    return select_exactly(topka, &from);
}

/* Whether as many as 2k may be selected. */
static bool by_threshold(const baton_sparse_t *sparse)
{
    return redsync(sparse) &&
           (sparse->options.redsync == BATON_REDSYNC_SEARCH ||
            sparse->options.redsync == BATON_REDSYNC_SAMPLED);
}

/* The same, of a device. Trimming is left out: the result is exact. */
static void plan_redsync(const baton_sparse_t *sparse,
                         baton__selecting_t *selecting)
{
    selecting->side = side_of(sparse);
    selecting->sampled = by_threshold(sparse);
    selecting->earlier = reuses(sparse) ? sparse->next.local_threshold : 0;
}

/* ---- this rank's part -------------------------------------------------- */

static size_t topka_bytes(const baton_sparse_t *sparse, size_t k)
{
    return k * sparse->entry_bytes;
}

static size_t redsync_bytes(const baton_sparse_t *sparse, size_t count)
{
    size_t values = sparse->options.quantise ? 1 : count;
    return COUNT_BYTES + count * sizeof(uint32_t) +
           values * sparse->element_bytes;
}

/* The entries that the device has taken out of `work`; their threshold goes
   where a host's selection leaves it. */
static baton_entries_t taken_on_device(topka_t *topka)
{
    baton_sparse_t *sparse = topka->sparse;
    char *selected = topka->selection.selected.host;
    baton_entries_t entries = baton__selected_entries(selected);
    topka->count = entries.count;
    if (redsync(sparse) && sparse->options.redsync != BATON_REDSYNC_TRIMMED) {
        sparse->next.local_threshold =
            baton__selected_head(selected)->threshold;
    }
    return entries;
}

/* The entries that were selected, which are no longer in `work`; sets indices
   and count. */
static baton_entries_t take_redsync(topka_t *topka)
{
    baton_sparse_t *sparse = topka->sparse;
    baton_dtype_t dtype = sparse->options.dtype;
    baton_entries_t taken = {topka->entries, 0}; /* not in use yet */
    if (sparse->device != NULL) {
        taken = taken_on_device(topka);
        baton_entries_split(dtype, taken.data, taken.count, topka->indices,
                            NULL);
    } else {
        taken.count = topka->count = select_redsync(topka);
        baton_entries_take(dtype, topka->entries, topka->indices, taken.count,
                           sparse->work);
    }
    sparse->next.steps++;
    return taken;
}

/* Fills up to k entries; returns the bytes of so many. */
static size_t pad_topka(const topka_t *topka, char *to)
{
    const baton_sparse_t *sparse = topka->sparse;
    baton__entries_pad(sparse, to, topka->count, sparse->k);
    return topka_bytes(sparse, sparse->k);
}

static size_t write_topka(topka_t *topka, char *to)
{
    baton_sparse_t *sparse = topka->sparse;
    if (sparse->device != NULL) {
        baton_entries_t entries = taken_on_device(topka);
        memcpy(to, entries.data, topka_bytes(sparse, entries.count));
        return pad_topka(topka, to);
    }
    topka->count = baton__sparse_accumulate_topk(
        sparse, 0, sparse->options.count, sparse->k, topka->indices,
        topka->scratch);
    if (to == NULL) {
        return topka_bytes(sparse, sparse->k);
    }
    baton_entries_take(sparse->options.dtype, to, topka->indices, topka->count,
                       sparse->work);
    return pad_topka(topka, to);
}

/* The mean, as an element; through a list's sum of magnitudes, all of which
   have one sign. */
static void mean_of(const baton_sparse_t *sparse, const void *values,
                    size_t count, void *mean)
{
    baton_dtype_t dtype = sparse->options.dtype;
    double sign = sparse->steps % 2 == 0 ? 1 : -1;
    double sum = baton_elements_measure(dtype, values, count).sum;
    baton_magnitude_t key =
        baton_magnitude_of(dtype, count > 0 ? sum / (double)count : 0);
    uint16_t narrow = (uint16_t)key;
    uint32_t middle = (uint32_t)key;
    const void *from = sparse->element_bytes == 2   ? (const void *)&narrow
                       : sparse->element_bytes == 4 ? (const void *)&middle
                                                    : (const void *)&key;
    memcpy(mean, from, sparse->element_bytes);
    baton_elements_scale(dtype, mean, 1, sign);
}

/* count entries at `to`, of indices and values that need not be aligned; with a
   value_step of 0 all have one value. */
static void join(const baton_sparse_t *sparse, char *to, const void *indices,
                 const void *values, size_t value_step, size_t count)
{
    const char *index = indices, *value = values;
    for (size_t i = 0; i < count; i++) {
        memcpy(to, index + i * sizeof(uint32_t), sizeof(uint32_t));
        memcpy(to + sizeof(uint32_t), value + i * value_step,
               sparse->element_bytes);
        to += sparse->entry_bytes;
    }
}

/* What the mean lacks of the selected values goes back to `work`. */
static void leave_error(topka_t *topka, char *values, const void *mean)
{
    baton_sparse_t *sparse = topka->sparse;
    baton_dtype_t dtype = sparse->options.dtype;
    char *errors = sparse->device != NULL ? topka->errors.host : topka->entries;
    double minus[1];
    memcpy(minus, mean, sparse->element_bytes);
    baton_elements_scale(dtype, minus, 1, -1);
    for (size_t i = 0; i < topka->count; i++) {
        char *value = values + i * sparse->element_bytes;
        BATON_SUM->reduce(BATON_SUM->arg, value, value, minus, 1, dtype);
    }
    join(sparse, errors, topka->indices, values, sparse->element_bytes,
         topka->count);
    if (sparse->device == NULL) {
        baton_entries_put(dtype, errors, topka->count, sparse->work);
    }
}

/* Of what was taken: values, or their mean. */
static void write_values(topka_t *topka, baton_entries_t taken, char *to)
{
    const baton_sparse_t *sparse = topka->sparse;
    baton_dtype_t dtype = sparse->options.dtype;
    char *values = topka->sum; /* not in use yet */
    if (!sparse->options.quantise) {
        baton_entries_split(dtype, taken.data, taken.count, NULL, to);
        return;
    }
    baton_entries_split(dtype, taken.data, taken.count, NULL, values);
    mean_of(sparse, values, taken.count, to);
    if (sparse->options.keep_error) {
        leave_error(topka, values, to);
    }
}

static size_t write_redsync(topka_t *topka, char *to)
{
    const baton_sparse_t *sparse = topka->sparse;
    if (to == NULL) {
        return redsync_bytes(sparse, sparse->k);
    }
    baton_entries_t taken = take_redsync(topka);
    uint32_t count = (uint32_t)taken.count;
    memcpy(to, &count, sizeof count);
    memcpy(to + COUNT_BYTES, topka->indices, taken.count * sizeof(uint32_t));
    write_values(topka, taken,
                 to + COUNT_BYTES + taken.count * sizeof(uint32_t));
    return redsync_bytes(sparse, taken.count);
}

static bool keeps_error_on_device(const baton_sparse_t *sparse)
{
    return sparse->device != NULL && sparse->options.keep_error;
}

static baton_status_t select_and_write(void *arg, baton_call_t *call)
{
    topka_t *topka = arg;
    baton_sparse_t *sparse = topka->sparse;
    baton_status_t status =
        sparse->device == NULL ? baton__sparse_begin(sparse, call) : BATON_OK;
    char *to = baton__gather_begin(topka->gather, call);
    size_t bytes =
        redsync(sparse) ? write_redsync(topka, to) : write_topka(topka, to);
    if (status == BATON_OK && keeps_error_on_device(sparse)) {
        status = baton__mirror_set(&topka->errors, call,
                                   topka_bytes(sparse, topka->count));
    }
    return status == BATON_OK ? baton__gather_end(topka->gather, call, bytes)
                              : status;
}

static baton_status_t put_errors(void *arg, baton_call_t *call,
                                 baton_stream_t stream)
{
    const topka_t *topka = arg;
    (void)call;
    return baton__sparse_device_put(topka->sparse, stream, topka->errors.device,
                                    topka->count);
}

/* ---- all parts --------------------------------------------------------- */

static size_t most(void *arg, int member)
{
    const topka_t *topka = arg;
    (void)member;
    return redsync(topka->sparse) ? redsync_bytes(topka->sparse, topka->room)
                                  : topka_bytes(topka->sparse, topka->room);
}

static size_t nominal(void *arg, int member)
{
    const topka_t *topka = arg;
    const baton_sparse_t *sparse = topka->sparse;
    (void)member;
    return redsync(sparse) ? redsync_bytes(sparse, sparse->k)
                           : topka_bytes(sparse, sparse->k);
}

static size_t count_in(const char *part)
{
    uint32_t count;
    memcpy(&count, part, sizeof count);
    return count;
}

static size_t redsync_extent(void *arg, int member, const char *data,
                             size_t left)
{
    const topka_t *topka = arg;
    (void)member;
    return left < COUNT_BYTES ? SIZE_MAX
                              : redsync_bytes(topka->sparse, count_in(data));
}

/* [count | indices | values or mean], as entries at `to`. */
static baton_entries_t list_of_redsync(const topka_t *topka, const char *part,
                                       char *to)
{
    const baton_sparse_t *sparse = topka->sparse;
    size_t count = count_in(part);
    const char *indices = part + COUNT_BYTES;
    join(sparse, to, indices, indices + count * sizeof(uint32_t),
         sparse->options.quantise ? 0 : sparse->element_bytes, count);
    return (baton_entries_t){to, count};
}

static baton_status_t sum(void *arg, baton_call_t *call)
{
    topka_t *topka = arg;
    baton_sparse_t *sparse = topka->sparse;
    size_t count = 0;
    (void)call;
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
        count = baton_entries_sum(sparse->options.dtype, topka->lists,
                                  (size_t)sparse->size, topka->sum);
        baton__sparse_result_put(sparse, 0, topka->sum, count);
    }
    baton__sparse_publish(sparse, count);
    sparse->masked = topka->indices;
    sparse->masked_count = topka->count;
    return BATON_OK;
}

/* ---- building ---------------------------------------------------------- */

static bool allocate(topka_t *topka)
{
    baton_sparse_t *sparse = topka->sparse;
    size_t n = sparse->options.count, k = sparse->options.max_k;
    bool searches = by_threshold(sparse);
    bool ok = true;
    topka->room = !searches ? k : 2 * k < n ? 2 * k : n;
    size_t all = topka->room * (size_t)sparse->size;
    size_t distinct = all < n ? all : n;
    /* baton_select_at_least is told 2k, also where n is less. */
    topka->indices = baton__sparse_room(sparse, searches ? 2 * k : k,
                                        sizeof *topka->indices, &ok);
    topka->scratch =
        baton__sparse_room(sparse, 1, baton_select_scratch_bytes(n, k), &ok);
    topka->sum = baton__sparse_room(sparse, distinct, sparse->entry_bytes, &ok);
    if (redsync(sparse)) {
        topka->entries =
            baton__sparse_room(sparse, all, sparse->entry_bytes, &ok);
    }
    topka->lists = baton__alloc((size_t)sparse->size, sizeof *topka->lists);
    return ok && topka->lists != NULL &&
           baton__sparse_result_room(sparse, distinct);
}

/* What the device does before `ready`, which comes when the selection is on the
   host, and behind it. */
static void add_on_device(topka_t *topka, baton_node_t ready, bool *ok)
{
    baton_sparse_t *sparse = topka->sparse;
    baton_schedule_t *s = sparse->schedule;
    topka->selection = (baton__whole_selection_t){
        .sparse = sparse,
        .room = topka->room,
        .plan = redsync(sparse) ? plan_redsync : NULL,
    };
    baton_before(s, baton__sparse_device_add_selection(&topka->selection, ok),
                 ready);
    if (keeps_error_on_device(sparse)) {
        baton_node_t put = baton_add_device_call(s, put_errors, topka);
        topka->errors = baton__mirror_to_device(
            sparse, NULL, topka_bytes(sparse, topka->room), ready, ok);
        baton_before(s, topka->errors.copy, put);
    }
}

static baton_status_t build(baton_sparse_t *sparse)
{
    topka_t *topka = baton__alloc(1, sizeof *topka);
    if (topka == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    sparse->state = topka;
    topka->sparse = sparse;
    if (!allocate(topka)) {
        return BATON_ERR_NO_MEMORY;
    }
    baton__gather_plan_t plan = {
        .sparse = sparse,
        .arg = topka,
        .most = most,
        .nominal = nominal,
        .extent = redsync(sparse) ? redsync_extent : NULL,
    };
    baton_node_t ready = baton__sparse_add_call(sparse, sparse->schedule,
                                                select_and_write, topka);
    bool ok = true;
    if (sparse->device != NULL) {
        add_on_device(topka, ready, &ok);
    }
    baton_node_t end =
        baton__sparse_add_call(sparse, sparse->schedule, sum, topka);
    baton_node_t done;
    topka->gather = baton__gather_build(&plan, ready, &done);
    if (topka->gather == NULL || !ok) {
        return BATON_ERR_NO_MEMORY;
    }
    baton_before(sparse->schedule, done, end);
    return BATON_OK;
}

static void destroy(baton_sparse_t *sparse)
{
    topka_t *topka = sparse->state;
    baton__gather_free(topka->gather);
    baton__free(topka->indices);
    baton__free(topka->scratch);
    baton__free(topka->entries);
    baton__free(topka->sum);
    baton__free(topka->lists);
    baton__free(topka);
}

const baton__sparse_algorithm_t baton__sparse_topka = {build, destroy};
const baton__sparse_algorithm_t baton__sparse_redsync = {build, destroy};
