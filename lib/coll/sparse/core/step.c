/* Parts of all steps: call nodes, results, the dense schedule, the hand-over of
   results in a recovery, and the state after a completed step. */
#include "coll/sparse/core/core.h"

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
    /* If each host has one rank, this must be the algorithm that
       baton_sparse_cost assumes. */
    (baton_schedule_hosts(s) < sparse->size ? baton_add_allreduce
     : work.bytes <= BATON_PARTIAL_TREE_BYTES
         ? baton_add_allreduce_binomial
         : baton_add_allreduce_circulant)(s, &args);
    baton_enclose_end(s, inside, accumulated, end);
}

/* ---- results ----------------------------------------------------------- */

size_t baton__sparse_room_bytes(const baton_sparse_t *sparse)
{
    return sizeof(uint64_t) +
           sparse->result_capacity * (sizeof(uint32_t) + sparse->element_bytes);
}

/* Allocates rooms once, and keeps them when schedules are rebuilt, since the
   application may still read the last result. Schedules of fewer ranks need no
   larger rooms: the capacity is at least the number of ranks, as each block has
   one entry or more. */
void baton__sparse_result_room(baton_sparse_t *sparse, size_t capacity)
{
    if (sparse->rooms != NULL && capacity <= sparse->result_capacity) {
        baton__sparse_use_room(sparse, 0);
        return;
    }
    capacity =
        capacity < (size_t)sparse->size ? (size_t)sparse->size : capacity;
    size_t rooms = sparse->room_count;
    /* An even number, so that values of 8 bytes are aligned. */
    capacity += capacity % 2;
    sparse->result_capacity = capacity;
    size_t bytes = baton__sparse_room_bytes(sparse);
    sparse->lasting = true;
    char *memory = baton__sparse_copied_room(sparse, rooms, bytes);
    sparse->rooms = baton__sparse_alloc(sparse, rooms, sizeof *sparse->rooms);
    sparse->lasting = false;
    if (sparse->out_of_memory) {
        return;
    }
    for (size_t i = 0; sparse->payload && i < rooms; i++) {
        baton__sparse_room_t *room = &sparse->rooms[i];
        room->packed = memory + i * bytes;
        room->indices = (uint32_t *)(void *)(room->packed + sizeof(uint64_t));
        room->values = (char *)(room->indices + capacity);
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

/* Removes entries of zero from the result, unless the algorithm has left them
   out. Returns the number of the other entries. */
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

/* The layout of `news`, the bytes that ranks exchange in a recovery or a
   shrink. At LACKS and at HAS there is a flag for each step, modulo 4: some
   rank lacks the result of the step, or has it. The steps that ranks report
   differ by one at most.

   From FLAGS on there is a byte for each rank of sparse->group: the step that
   the rank reports, modulo 4, and 1 + the number of sums of teams (R-SAG) that
   the rank has made in that step. made_all in place of that number means that
   the rank has made all of them, or that the step is dense. The byte of a lost
   rank is 0.

   If a shrink was interrupted, some ranks may have rebuilt their schedules in
   the new group, and their bytes are in the order of that group. This does no
   harm: no rank rebuilds before all survivors have all results, and the bytes
   of ranks are read only if a rank lacks a result. */
enum { MOST_PIECE = 8192, LACKS = 0, HAS = 4, FLAGS = 8, MADE_BITS = 6 };
static const uint8_t made_all = (1 << MADE_BITS) - 1;

static size_t news_bytes(const baton_sparse_t *sparse)
{
    return FLAGS + (size_t)sparse->most_ranks;
}

/* Returns the bytes of a piece: MOST_PIECE or, if that is shorter, the longest
   part. */
static size_t piece_bytes(const baton_sparse_t *sparse)
{
    size_t vector = sparse->options.count * sparse->element_bytes;
    size_t bytes = sparse->result_capacity * sizeof(uint64_t);
    bytes = bytes < vector ? vector : bytes;
    bytes = bytes < news_bytes(sparse) ? news_bytes(sparse) : bytes;
    return bytes < MOST_PIECE ? bytes : MOST_PIECE;
}

/* Builds an all-reduce with the maximum: ranks that have a piece contribute it,
   and the others contribute zeros. */
void baton__sparse_build_handover(baton_sparse_t *sparse)
{
    baton_schedule_t *s = sparse->handover;
    if (!sparse->payload || sparse->size == 1 || sparse->device != NULL) {
        return;
    }
    const size_t bytes = piece_bytes(sparse);
    if (sparse->news == NULL) {
        sparse->piece = baton__sparse_alloc(sparse, bytes, 1);
        sparse->news = sparse->piece != NULL
                           ? baton__sparse_alloc(sparse, news_bytes(sparse), 1)
                           : NULL;
    }
    baton_view_t view =
        baton_view(baton_buffer_bind(s, sparse->piece, bytes), 0, bytes);
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = BATON_U8,
                                   .op = BATON_MAX};
    baton_add_allreduce_binomial(s, &args);
}

bool baton__sparse_is_had(const baton_sparse_t *sparse, uint64_t step)
{
    return sparse->news == NULL || sparse->news[HAS + step % 4] != 0;
}

static bool any_lacks(const baton_sparse_t *sparse)
{
    bool any = false;
    for (size_t i = 0; i < 4; i++) {
        any |= sparse->news[LACKS + i] != 0 && baton__sparse_is_had(sparse, i);
    }
    return any;
}

typedef struct piece {
    void *data;
    size_t bytes;
} piece_t;

static uint64_t pieces_of(const baton_sparse_t *sparse, size_t bytes)
{
    size_t piece = piece_bytes(sparse);
    return (bytes + piece - 1) / piece;
}

/* Returns piece number `index` of the parts. After the last piece, returns a
   piece whose data is NULL. */
static piece_t piece_at(const baton_sparse_t *sparse, const piece_t *parts,
                        int count, uint64_t index)
{
    const size_t piece = piece_bytes(sparse);
    for (int i = 0; i < count; i++) {
        size_t begin = index * piece;
        if (begin < parts[i].bytes) {
            size_t left = parts[i].bytes - begin;
            return (piece_t){(char *)parts[i].data + begin,
                             left < piece ? left : piece};
        }
        index -= pieces_of(sparse, parts[i].bytes);
    }
    return (piece_t){NULL, 0};
}

/* Hands over the parts. Stores the piece that has arrived, and starts the next
   one, unless one is on its way. `begin` is the number of the parts' first
   piece in this hand-over. Returns true once all pieces have arrived. */
static bool sparse_step_pass_on(baton_sparse_t *sparse, uint64_t begin,
                                const piece_t *parts, int count, bool gives,
                                bool gets)
{
    const piece_t from = piece_at(sparse, parts, count, sparse->handed - begin);
    if (sparse->handed > begin) {
        piece_t to = piece_at(sparse, parts, count, sparse->handed - 1 - begin);
        if (to.data == NULL) {
            /* All pieces of these parts have arrived. The pieces that are
               handed over now belong to later parts. */
            return true;
        }
        if (baton_schedule_epoch(sparse->handover) < sparse->handed) {
            return false;
        }
        if (gets) {
            memcpy(to.data, sparse->piece, to.bytes);
        }
    }
    if (from.data == NULL) {
        return true;
    }
    memset(sparse->piece, 0, piece_bytes(sparse));
    if (gives) {
        memcpy(sparse->piece, from.data, from.bytes);
    }
    sparse->handed++;
    /* Can't fail, since the schedule is idle. */
    (void)!baton_schedule_start(sparse->handover);
    return false;
}

bool baton__sparse_tell(baton_sparse_t *sparse, bool lacks, uint64_t step)
{
    uint8_t *news = sparse->news;
    if (news == NULL) {
        return true;
    }
    if (sparse->handed == 0) {
        memset(news, 0, news_bytes(sparse));
        bool knows = (lacks || sparse->lacked == step) && !sparse->is_dense;
        news[FLAGS + sparse->rank] =
            (uint8_t)((step % 4) << MADE_BITS |
                      (knows ? (uint8_t)(sparse->merged + 1) : made_all));
        news[LACKS + step % 4] = lacks;
        news[HAS + (step - lacks) % 4] = 1;
    }
    const piece_t all = {news, news_bytes(sparse)};
    return sparse_step_pass_on(sparse, 0, &all, 1, true, true);
}

bool baton__sparse_hand_over(baton_sparse_t *sparse, bool gets, uint64_t step,
                             char *dense)
{
    if (sparse->news != NULL && any_lacks(sparse)) {
        const size_t size = sparse->element_bytes;
        const size_t entries = sparse->result_capacity;
        piece_t parts[3] = {{dense, sparse->options.count * size}};
        if (dense == NULL) {
            baton__sparse_room_t *of =
                &sparse->rooms[gets ? sparse->room : sparse->shown];
            parts[0] = (piece_t){&of->count, sizeof of->count};
            parts[1] = (piece_t){of->indices, entries * sizeof *of->indices};
            parts[2] = (piece_t){of->values, entries * size};
        }
        if (!sparse_step_pass_on(sparse, pieces_of(sparse, news_bytes(sparse)),
                                 parts, 3, !gets, gets)) {
            return false;
        }
    }
    sparse->handed = 0;
    sparse->lacked = gets ? step : sparse->lacked;
    return true;
}

bool baton__sparse_is_lost(const baton_sparse_t *sparse, int rank)
{
    return sparse->news[FLAGS + rank] == 0;
}

bool baton__sparse_lacks_addition(const baton_sparse_t *sparse, int rank,
                                  int index)
{
    uint8_t told = sparse->news[FLAGS + rank];
    return told != 0 && told >> MADE_BITS == sparse->made_up % 4 &&
           (told & made_all) <= index + 1;
}

void baton__sparse_settle(baton_sparse_t *sparse)
{
    if (!sparse->settled) {
        settle(sparse, sparse->rooms[sparse->room].count);
    }
}

void baton__sparse_make_up(baton_sparse_t *sparse, uint64_t step)
{
    if (sparse->make_up != NULL && sparse->news != NULL &&
        sparse->made_up != step && any_lacks(sparse)) {
        sparse->made_up = step;
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
    /* With on_loss `latest` stays NULL, because the schedule is replaced after
       a loss. */
    if (!baton__sparse_goes_on(&sparse->options)) {
        sparse->latest = dense ? sparse->dense : sparse->schedule;
    }
    sparse->is_dense = dense;
    sparse->phase = BATON__SPARSE_RUNNING;
}

/* Makes `work` the result of a dense step. Such a step leaves nothing for the
   residual. */
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

/* After a recovery leaves `steps` and `learned` as they are, since ranks would
   differ in them otherwise: the recovery has counted the step if some rank has
   completed it, and has reset `learned`. */
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

/* All ranks get the same epoch, so they agree on the number of steps. */
bool baton__sparse_recover(baton_sparse_t *sparse, bool dense, uint64_t epoch)
{
    *(dense ? &sparse->dense_base : &sparse->sparse_base) += epoch;
    sparse->steps = sparse->sparse_base + sparse->dense_base;
    if (!dense) {
        sparse->learned = (baton__learned_t){0};
    }
    sparse->part_count = 0;
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
    return sparse->connected && sparse->survivors == NULL
               ? BATON_OK
               : baton__error(BATON_ERR_STATE,
                              "%s \"%s\": it is not connected: call "
                              "baton_sparse_%s first",
                              doing, sparse->name,
                              sparse->connected ? "shrink" : "connect");
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

baton_status_t baton__sparse_check_range(const baton_sparse_t *sparse,
                                         const char *doing, size_t first,
                                         size_t count)
{
    const size_t all = sparse->options.count;
    return first <= all && count <= all - first
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s \"%s\": first is %zu and count %zu; allowed: "
                              "up to element %zu",
                              doing, sparse->name, first, count, all);
}
