/* What all steps share: call nodes, results, the dense schedule, and what is
   known behind a step that has been completed. */
#include "coll/sparse/sparse.h"

#include "base/clock.h"
#include "base/error.h"

#include <baton/coll.h>
#include <baton/partial.h>

#include <string.h>

/* ---- call nodes -------------------------------------------------------- */

typedef struct timed_call {
    baton_sparse_t *sparse;
    baton_call_fn fn;
    void *arg;
} timed_call_t;

static baton_status_t timed(void *arg, baton_call_t *call)
{
    const timed_call_t *self = arg;
    uint64_t begin_ns = baton__clock_thread_ns();
    baton_status_t status = self->fn(self->arg, call);
    self->sparse->counting.select_us +=
        (double)(baton__clock_thread_ns() - begin_ns) / 1e3;
    return status;
}

baton_node_t baton__sparse_add_call(baton_sparse_t *sparse,
                                    baton_schedule_t *schedule,
                                    baton_call_fn fn, void *arg)
{
    timed_call_t *self = baton__sparse_alloc(sparse, 1, sizeof *self);
    if (self == NULL) {
        return baton_add_call(schedule, fn, arg);
    }
    *self = (timed_call_t){sparse, fn, arg};
    return baton_add_call(schedule, timed, self);
}

baton_node_t baton__sparse_call_after(baton_sparse_t *sparse,
                                      baton_node_t before, baton_call_fn fn,
                                      void *arg)
{
    baton_node_t call =
        baton__sparse_add_call(sparse, sparse->schedule, fn, arg);
    baton_before(sparse->schedule, before, call);
    return call;
}

/* ---- the dense schedule ------------------------------------------------ */

baton_view_t baton__sparse_bind_dense(baton_sparse_t *sparse)
{
    size_t bytes = sparse->options.count * sparse->element_bytes;
    sparse->dense_buffer =
        baton_buffer_bind(sparse->dense, sparse->work, bytes);
    return baton_view(sparse->dense_buffer, 0, bytes);
}

void baton__sparse_add_dense(baton_sparse_t *sparse, baton_view_t source,
                             baton_view_t work, baton_node_t accumulated)
{
    baton_schedule_t *s = sparse->dense;
    baton_node_t end = baton_add_nop(s);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = source,
                                   .target = work,
                                   .dtype = sparse->options.dtype,
                                   .op = sparse->options.average ? BATON_AVG
                                                                 : BATON_SUM};
    baton_enclosure_t inside = baton_enclose_begin(s);
    /* One rank a host: as baton_sparse_cost has it. */
    (baton_schedule_hosts(s) < sparse->size ? baton_add_allreduce
     : work.bytes <= BATON_PARTIAL_TREE_BYTES
         ? baton_add_allreduce_binomial
         : baton_add_allreduce_circulant)(s, &args);
    baton_enclose_end(s, inside, accumulated, end);
}

/* ---- results ----------------------------------------------------------- */

void baton__sparse_result_room(baton_sparse_t *sparse, size_t capacity)
{
    size_t rooms = sparse->room_count, all = rooms * capacity;
    sparse->result_capacity = capacity;
    uint32_t *indices = baton__sparse_copied_room(sparse, all, sizeof *indices);
    char *values =
        baton__sparse_copied_room(sparse, all, sparse->element_bytes);
    sparse->rooms = baton__sparse_alloc(sparse, rooms, sizeof *sparse->rooms);
    if (sparse->out_of_memory) {
        return;
    }
    for (size_t i = 0; sparse->payload && i < rooms; i++) {
        sparse->rooms[i].indices = indices + i * capacity;
        sparse->rooms[i].values = values + i * capacity * sparse->element_bytes;
    }
    baton__sparse_use_room(sparse, 0);
}

void baton__sparse_use_room(baton_sparse_t *sparse, size_t room)
{
    sparse->room = room;
    sparse->result_indices = sparse->rooms[room].indices;
    sparse->result_values = sparse->rooms[room].values;
}

void baton__sparse_result_put(baton_sparse_t *sparse, size_t at,
                              const char *entries, size_t count)
{
    baton_entries_split(sparse->options.dtype, entries, count,
                        sparse->result_indices + at,
                        sparse->result_values + at * sparse->element_bytes);
}

static void settle(baton_sparse_t *sparse, size_t count)
{
    bool selected = sparse->selected != NULL;
    sparse->result_count = sparse->payload ? count : 0;
    sparse->rooms[sparse->room].count = sparse->result_count;
    sparse->counting.nnz = count;
    sparse->masked = selected ? sparse->selected : sparse->result_indices;
    sparse->masked_count = selected ? sparse->selected_count : count;
    sparse->settled = true;
    if (sparse->payload && sparse->settle != NULL &&
        !sparse->options.in_place) {
        sparse->settle(sparse->settling, count);
    }
}

/* The result without sums of zero, which some algorithms leave out before. */
static size_t drop_zeros(const baton_sparse_t *sparse, size_t count)
{
    const size_t size = sparse->element_bytes;
    baton_selection_t of = {.dtype = sparse->options.dtype,
                            .values = sparse->result_values,
                            .count = count};
    size_t kept = 0;
    if (!sparse->payload || baton_select_count(&of, 1) == count) {
        return count;
    }
    of.count = 1;
    for (size_t i = 0; i < count; i++) {
        of.values = sparse->result_values + i * size;
        if (baton_select_count(&of, 1) > 0) {
            sparse->result_indices[kept] = sparse->result_indices[i];
            memmove(sparse->result_values + kept++ * size, of.values, size);
        }
    }
    return kept;
}

void baton__sparse_publish(baton_sparse_t *sparse, size_t count)
{
    count = drop_zeros(sparse, count);
    if (sparse->payload && sparse->options.average) {
        baton_elements_scale(sparse->options.dtype, sparse->result_values,
                             count, 1.0 / sparse->size);
    }
    settle(sparse, count);
}

/* ---- recovery ---------------------------------------------------------- */

enum { PIECE = 8192 };

/* An all-reduce of a piece that ranks have, and zeros of the others. */
void baton__sparse_build_handover(baton_sparse_t *sparse)
{
    baton_schedule_t *s = sparse->handover;
    if (!sparse->payload || sparse->size == 1 || sparse->device != NULL) {
        return;
    }
    sparse->news = baton__sparse_alloc(sparse, (size_t)sparse->size, 1);
    sparse->piece = baton__sparse_alloc(sparse, PIECE, 1);
    baton_view_t view =
        baton_view(baton_buffer_bind(s, sparse->piece, PIECE), 0, PIECE);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = BATON_U8,
                                   .op = BATON_MAX};
    baton_add_allreduce_binomial(s, &args);
}

static bool any_lacks(const baton_sparse_t *sparse)
{
    int r = 0;
    while (r < sparse->size && sparse->news[r] == BATON__HAS) {
        r++;
    }
    return r < sparse->size;
}

typedef struct piece {
    void *data;
    size_t bytes;
} piece_t;

/* The news come first, and say whether the rest is wanted. Behind the last
   piece its data is NULL. */
static piece_t piece_at(const baton_sparse_t *sparse, size_t room, char *dense,
                        uint64_t index)
{
    const size_t size = sparse->element_bytes;
    const size_t entries = sparse->result_capacity;
    piece_t all[4] = {{sparse->news, (size_t)sparse->size}};
    if (dense != NULL) {
        all[1] = (piece_t){dense, sparse->options.count * size};
    } else {
        baton__sparse_room_t *of = &sparse->rooms[room];
        all[1] = (piece_t){&of->count, sizeof of->count};
        all[2] = (piece_t){of->indices, entries * sizeof *of->indices};
        all[3] = (piece_t){of->values, entries * size};
    }
    for (int i = 0; i == 0 || (i < 4 && any_lacks(sparse)); i++) {
        size_t begin = index * PIECE;
        if (begin < all[i].bytes) {
            size_t left = all[i].bytes - begin;
            return (piece_t){(char *)all[i].data + begin,
                             left < PIECE ? left : PIECE};
        }
        index -= (all[i].bytes + PIECE - 1) / PIECE;
    }
    return (piece_t){NULL, 0};
}

bool baton__sparse_hand_over(baton_sparse_t *sparse, bool lacks, size_t room,
                             char *dense)
{
    const size_t news = ((size_t)sparse->size + PIECE - 1) / PIECE;
    if (sparse->news == NULL) {
        return true;
    }
    if (sparse->handed == 0) {
        memset(sparse->news, 0, (size_t)sparse->size);
        sparse->news[sparse->rank] = !lacks          ? BATON__HAS
                                     : dense != NULL ? BATON__LACKS_DENSE
                                                     : sparse->merged;
    } else if (baton_schedule_epoch(sparse->handover) < sparse->handed) {
        return false;
    } else {
        piece_t to = piece_at(sparse, room, dense, sparse->handed - 1);
        if (to.data != NULL && (lacks || sparse->handed <= news)) {
            memcpy(to.data, sparse->piece, to.bytes);
        }
    }
    const piece_t from = piece_at(sparse, room, dense, sparse->handed);
    if (from.data == NULL) {
        sparse->handed = 0;
        return true;
    }
    memset(sparse->piece, 0, PIECE);
    if (!lacks || sparse->handed < news) {
        memcpy(sparse->piece, from.data, from.bytes);
    }
    sparse->handed++;
    (void)!baton_schedule_start(sparse->handover); /* it is idle */
    return false;
}

void baton__sparse_settle(baton_sparse_t *sparse, size_t room)
{
    if (!sparse->settled) {
        baton__sparse_use_room(sparse, room);
        settle(sparse, sparse->rooms[room].count);
    }
}

void baton__sparse_make_up(baton_sparse_t *sparse)
{
    if (sparse->make_up != NULL && sparse->news != NULL) {
        baton__sparse_use_room(sparse, sparse->shown);
        baton__sparse_exchange(&sparse->work, &sparse->residual);
        sparse->make_up(sparse->settling, sparse->rooms[sparse->shown].count);
        baton__sparse_exchange(&sparse->work, &sparse->residual);
    }
}

/* ---- steps ------------------------------------------------------------- */

bool baton__sparse_is_dense(const baton_sparse_t *sparse, bool flush,
                            uint64_t steps)
{
    return flush || sparse->algorithm == NULL || steps < sparse->options.warmup;
}

void baton__sparse_started(baton_sparse_t *sparse, bool dense)
{
    sparse->latest = dense ? sparse->dense : sparse->schedule;
    sparse->phase = BATON__SPARSE_RUNNING;
}

/* `work` is the result, and nothing is left out. */
static void complete_dense(baton_sparse_t *sparse)
{
    sparse->counting.algorithm = BATON_SPARSE_DENSE;
    sparse->last = (baton_sparse_result_t){
        .count = sparse->payload ? sparse->options.count : 0,
        .values = sparse->work,
        .included = true,
    };
    sparse->counting.nnz = sparse->last.count;
    sparse->masked_count = 0;
}

static void complete_sparse(baton_sparse_t *sparse)
{
    sparse->counting.algorithm = sparse->options.algorithm;
    sparse->counting.rounds = sparse->rounds;
    sparse->shown = sparse->room;
    sparse->last = (baton_sparse_result_t){
        .count = sparse->payload ? sparse->result_count : 0,
        .indices = sparse->result_indices,
        .values = sparse->result_values,
        .included = true,
    };
}

/* A recovery has counted the step, if it has been completed on some rank, and
   has forgotten what ranks learned: they would differ in both. */
void baton__sparse_complete_step(baton_sparse_t *sparse, bool dense)
{
    if (dense) {
        complete_dense(sparse);
    } else {
        complete_sparse(sparse);
    }
    sparse->stats = sparse->counting;
    if (!sparse->recovered) {
        sparse->learned = dense ? sparse->learned : sparse->next;
        sparse->steps++;
    }
}

/* All ranks are told the same epoch, so they agree on the number of steps. */
bool baton__sparse_recover(baton_sparse_t *sparse, bool dense, uint64_t epoch)
{
    *(dense ? &sparse->dense_base : &sparse->sparse_base) += epoch;
    sparse->steps = sparse->sparse_base + sparse->dense_base;
    if (!dense) {
        sparse->learned = (baton__learned_t){0};
    }
    sparse->recovered = true;
    return true;
}

/* ---- checks ------------------------------------------------------------ */

baton_status_t baton__sparse_no_memory(const baton_sparse_t *sparse)
{
    return baton__error(BATON_ERR_NO_MEMORY,
                        "sparse \"%s\": no memory for %zu elements of %zu "
                        "bytes and %zu entries",
                        sparse->name, sparse->options.count,
                        sparse->element_bytes, sparse->options.max_k);
}

bool baton__sparse_is_alive(const baton_sparse_t *sparse, const char *doing)
{
    return baton__is_alive(sparse, sparse != NULL && sparse->group == NULL,
                           doing, "sparse") &&
           baton__process_is_own(doing);
}

baton_status_t baton__sparse_check_connected(const baton_sparse_t *sparse,
                                             const char *doing)
{
    if (!baton__sparse_is_alive(sparse, doing)) {
        return baton__error_status();
    }
    return sparse->connected
               ? BATON_OK
               : baton__error(BATON_ERR_STATE,
                              "%s \"%s\": it is not connected: call "
                              "baton_sparse_connect first",
                              doing, sparse->name);
}

baton_status_t baton__sparse_check_idle(const baton_sparse_t *sparse,
                                        const char *doing)
{
    baton_status_t status = baton__sparse_check_connected(sparse, doing);
    return status != BATON_OK || sparse->phase != BATON__SPARSE_RUNNING
               ? status
               : baton__error(BATON_ERR_BUSY,
                              "%s \"%s\": a step is running: wait for it",
                              doing, sparse->name);
}
