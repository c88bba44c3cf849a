#include "support/dense.h"

#include <stdlib.h>
#include <string.h>

#define ROW(kind_, member, name_, ordered_, equal_)                            \
    {                                                                          \
        .kind = DENSE_##kind_, .name = #name_, .build.member = baton_##name_,  \
        .ordered = (ordered_), .equal_alone = (equal_)                         \
    }

#define CHOICE(kind_, member, name_, ordered_)                                 \
    {                                                                          \
        .kind = DENSE_##kind_, .name = #name_, .build.member = baton_##name_,  \
        .ordered = (ordered_), .chooses = true                                 \
    }

/* The binomial broadcast takes no struct. */
static void broadcast_binomial(baton_schedule_t *schedule,
                               const baton_broadcast_t *args)
{
    baton_broadcast_binomial(schedule, args->root, args->data);
}

const dense_builder_t dense_builders[] = {
    {.kind = DENSE_BROADCAST,
     .name = "broadcast_binomial",
     .build.broadcast = broadcast_binomial},
    ROW(BROADCAST, broadcast, broadcast_linear_pipeline, false, false),
    ROW(BROADCAST, broadcast, broadcast_scatter_allgather, false, false),
    ROW(BROADCAST, broadcast, broadcast_double_tree, false, false),
    ROW(BROADCAST, broadcast, broadcast_flat, false, false),
    ROW(REDUCE, reduce, reduce_binomial, true, false),
    ROW(REDUCE, reduce, reduce_linear_pipeline, false, false),
    ROW(REDUCE, reduce, reduce_scatter_gather, false, false),
    ROW(REDUCE, reduce, reduce_pairwise, false, false),
    ROW(ALLREDUCE, allreduce, allreduce_recursive_doubling, true, false),
    ROW(ALLREDUCE, allreduce, allreduce_binomial, true, false),
    ROW(ALLREDUCE, allreduce, allreduce_rabenseifner, true, false),
    ROW(ALLREDUCE, allreduce, allreduce_ring, false, false),
    ROW(ALLREDUCE, allreduce, allreduce_linear_pipeline, true, false),
    ROW(ALLREDUCE, allreduce, allreduce_circulant, false, false),
    ROW(ALLREDUCE, allreduce, allreduce_pairwise, false, false),
    ROW(ALLREDUCE, allreduce, allreduce_double_tree, true, false),
    ROW(ALLREDUCE, allreduce, allreduce_hierarchical, false, false),
    ROW(REDUCE_SCATTER, reduce_scatter, reduce_scatter_ring, false, false),
    ROW(REDUCE_SCATTER, reduce_scatter, reduce_scatter_recursive_halving, false,
        false),
    ROW(REDUCE_SCATTER, reduce_scatter, reduce_scatter_circulant, false, false),
    ROW(REDUCE_SCATTER, reduce_scatter, reduce_scatter_pairwise, false, false),
    ROW(ALLGATHER, allgather, allgather_ring, false, false),
    ROW(ALLGATHER, allgather, allgather_recursive_doubling, false, false),
    ROW(ALLGATHER, allgather, allgather_bruck, false, false),
    ROW(ALLGATHER, allgather, allgather_pairwise, false, false),
    ROW(SCATTER, rooted, scatter_binomial, false, false),
    ROW(GATHER, rooted, gather_binomial, false, false),
    ROW(ALLTOALL, alltoall, alltoall_pairwise, false, false),
    ROW(ALLTOALL, alltoall, alltoall_bruck, false, true),
    ROW(SCAN, scan, scan_recursive_doubling, true, false),
    ROW(EXSCAN, scan, exscan_recursive_doubling, true, false),
    CHOICE(BROADCAST, broadcast, broadcast, false),
    CHOICE(REDUCE, reduce, reduce, true),
    CHOICE(ALLREDUCE, allreduce, allreduce, true),
    CHOICE(REDUCE_SCATTER, reduce_scatter, reduce_scatter, false),
    CHOICE(ALLGATHER, allgather, allgather, false),
    CHOICE(SCATTER, rooted, scatter, false),
    CHOICE(GATHER, rooted, gather, false),
    CHOICE(ALLTOALL, alltoall, alltoall, false),
    CHOICE(SCAN, scan, scan, true),
    CHOICE(EXSCAN, scan, exscan, true),
};

const size_t dense_builder_count =
    sizeof dense_builders / sizeof dense_builders[0];

const dense_builder_t *dense_builder(const char *name)
{
    for (size_t i = 0; i < dense_builder_count; i++) {
        if (strcmp(dense_builders[i].name, name) == 0) {
            return &dense_builders[i];
        }
    }
    abort();
}

bool dense_has_roots(dense_kind_t kind)
{
    return kind == DENSE_BROADCAST || kind == DENSE_REDUCE ||
           kind == DENSE_SCATTER || kind == DENSE_GATHER;
}

bool dense_has_blocks(dense_kind_t kind)
{
    return kind == DENSE_REDUCE_SCATTER || kind == DENSE_ALLGATHER ||
           kind == DENSE_SCATTER || kind == DENSE_GATHER ||
           kind == DENSE_ALLTOALL;
}

bool dense_reduces(dense_kind_t kind)
{
    return kind == DENSE_REDUCE || kind == DENSE_ALLREDUCE ||
           kind == DENSE_REDUCE_SCATTER || kind == DENSE_SCAN ||
           kind == DENSE_EXSCAN;
}

/* ---- sizes ------------------------------------------------------------- */

/* Elements of block `rank`; of what `rank` sends to `peer`. */
static size_t block(const dense_case_t *c, int rank)
{
    if (c->varied) {
        return c->count * (size_t)(rank % 3) + (size_t)(rank % 2);
    }
    if (c->builder->kind == DENSE_REDUCE_SCATTER) {
        size_t size = (size_t)c->size;
        return c->count / size + ((size_t)rank < c->count % size ? 1 : 0);
    }
    return c->count;
}

static size_t exchanged(const dense_case_t *c, int rank, int peer)
{
    return block(c, c->in_place ? rank + peer : 2 * rank + peer);
}

static size_t blocks_before(const dense_case_t *c, int rank)
{
    size_t sum = 0;
    for (int i = 0; i < rank; i++) {
        sum += block(c, i);
    }
    return sum;
}

static size_t exchanged_before(const dense_case_t *c, int rank, int peer)
{
    size_t sum = 0;
    for (int i = 0; i < peer; i++) {
        sum += exchanged(c, rank, i);
    }
    return sum;
}

static size_t received_before(const dense_case_t *c, int rank, int peer)
{
    size_t sum = 0;
    for (int i = 0; i < peer; i++) {
        sum += exchanged(c, i, rank);
    }
    return sum;
}

size_t dense_source_count(const dense_case_t *c, int rank)
{
    switch (c->builder->kind) {
    case DENSE_REDUCE_SCATTER:
        return blocks_before(c, c->size);
    case DENSE_SCATTER:
        return rank == c->root ? blocks_before(c, c->size) : 0;
    case DENSE_ALLGATHER:
    case DENSE_GATHER:
        return block(c, rank);
    case DENSE_ALLTOALL:
        return exchanged_before(c, rank, c->size);
    case DENSE_BROADCAST:
        return rank == c->root ? c->count : 0;
    case DENSE_REDUCE:
    case DENSE_ALLREDUCE:
    case DENSE_SCAN:
    case DENSE_EXSCAN:
        break;
    }
    return c->count;
}

size_t dense_target_count(const dense_case_t *c, int rank)
{
    switch (c->builder->kind) {
    case DENSE_REDUCE_SCATTER:
    case DENSE_SCATTER:
        return block(c, rank);
    case DENSE_ALLGATHER:
        return blocks_before(c, c->size);
    case DENSE_GATHER:
        return rank == c->root ? blocks_before(c, c->size) : 0;
    case DENSE_REDUCE:
        return rank == c->root ? c->count : 0;
    case DENSE_ALLTOALL:
        return received_before(c, rank, c->size);
    case DENSE_BROADCAST:
    case DENSE_ALLREDUCE:
    case DENSE_SCAN:
    case DENSE_EXSCAN:
        break;
    }
    return c->count;
}

size_t dense_room(const dense_case_t *c, int rank)
{
    size_t source = dense_source_count(c, rank);
    size_t target = dense_target_count(c, rank);
    return source > target ? source : target;
}

/* ---- places ------------------------------------------------------------ */

/* Where the parts of a rank that works in place lie in its one memory. */
typedef struct place {
    bool in_place;
    bool in_source; /* the memory is the source's, not the target's */
    size_t source_at, target_at;
} place_t;

static place_t place_of(const dense_case_t *c, int rank)
{
    dense_kind_t kind = c->builder->kind;
    bool rooted =
        kind == DENSE_REDUCE || kind == DENSE_SCATTER || kind == DENSE_GATHER;
    place_t place = {.in_place = c->in_place && (!rooted || rank == c->root)};
    if (kind == DENSE_BROADCAST) {
        place.in_place = true;
    }
    if (place.in_place &&
        (kind == DENSE_REDUCE_SCATTER || kind == DENSE_SCATTER)) {
        place.in_source = true;
        place.target_at = blocks_before(c, rank);
    } else if (place.in_place &&
               (kind == DENSE_ALLGATHER || kind == DENSE_GATHER)) {
        place.source_at = blocks_before(c, rank);
    }
    return place;
}

void *dense_input(const dense_case_t *c, int rank, void *source, void *target)
{
    place_t place = place_of(c, rank);
    char *memory = place.in_place && !place.in_source ? target : source;
    return memory + place.source_at * c->element;
}

void *dense_output(const dense_case_t *c, int rank, void *source, void *target)
{
    place_t place = place_of(c, rank);
    char *memory = place.in_source ? source : target;
    return memory + place.target_at * c->element;
}

bool dense_keeps_source(const dense_case_t *c, int rank)
{
    return !place_of(c, rank).in_place;
}

/* ---- the call ---------------------------------------------------------- */

static baton_buffer_t bind(baton_schedule_t *schedule, void *memory,
                           size_t bytes, bool input)
{
    if (memory == NULL) {
        return baton_buffer_scratch(schedule, bytes);
    }
    return input ? baton_buffer_bind_input(schedule, memory, bytes)
                 : baton_buffer_bind(schedule, memory, bytes);
}

static void call(const dense_case_t *c, baton_schedule_t *schedule,
                 baton_view_t source, baton_view_t target, const size_t *first,
                 const size_t *second)
{
    switch (c->builder->kind) {
    case DENSE_BROADCAST:
        c->builder->build.broadcast(
            schedule, &(baton_broadcast_t){.size = sizeof(baton_broadcast_t),
                                           .root = c->root,
                                           .data = target,
                                           .chunk_bytes = c->chunk_bytes});
        break;
    case DENSE_REDUCE:
        c->builder->build.reduce(
            schedule, &(baton_reduce_t){.size = sizeof(baton_reduce_t),
                                        .root = c->root,
                                        .source = source,
                                        .target = target,
                                        .dtype = c->dtype,
                                        .op = c->op,
                                        .chunk_bytes = c->chunk_bytes});
        break;
    case DENSE_ALLREDUCE:
        c->builder->build.allreduce(
            schedule, &(baton_allreduce_t){.size = sizeof(baton_allreduce_t),
                                           .source = source,
                                           .target = target,
                                           .dtype = c->dtype,
                                           .op = c->op,
                                           .chunk_bytes = c->chunk_bytes,
                                           .arg = c->arg});
        break;
    case DENSE_REDUCE_SCATTER:
        c->builder->build.reduce_scatter(
            schedule,
            &(baton_reduce_scatter_t){.size = sizeof(baton_reduce_scatter_t),
                                      .source = source,
                                      .target = target,
                                      .counts = first,
                                      .dtype = c->dtype,
                                      .op = c->op,
                                      .chunk_bytes = c->chunk_bytes});
        break;
    case DENSE_ALLGATHER:
        c->builder->build.allgather(
            schedule, &(baton_allgather_t){.size = sizeof(baton_allgather_t),
                                           .source = source,
                                           .target = target,
                                           .block_bytes = first,
                                           .chunk_bytes = c->chunk_bytes});
        break;
    case DENSE_SCATTER:
    case DENSE_GATHER:
        c->builder->build.rooted(
            schedule, &(baton_rooted_t){.size = sizeof(baton_rooted_t),
                                        .root = c->root,
                                        .source = source,
                                        .target = target,
                                        .block_bytes = first});
        break;
    case DENSE_ALLTOALL:
        c->builder->build.alltoall(
            schedule, &(baton_alltoall_t){.size = sizeof(baton_alltoall_t),
                                          .source = source,
                                          .target = target,
                                          .send_bytes = first,
                                          .recv_bytes = second});
        break;
    case DENSE_SCAN:
    case DENSE_EXSCAN:
        c->builder->build.scan(schedule,
                               &(baton_scan_t){.size = sizeof(baton_scan_t),
                                               .source = source,
                                               .target = target,
                                               .dtype = c->dtype,
                                               .op = c->op});
        break;
    }
}

void dense_build(const dense_case_t *c, baton_schedule_t *schedule,
                 void *source, void *target)
{
    int rank = baton_schedule_rank(schedule);
    place_t place = place_of(c, rank);
    size_t bytes = dense_room(c, rank) * c->element;
    size_t source_bytes = dense_source_count(c, rank) * c->element;
    size_t target_bytes = dense_target_count(c, rank) * c->element;
    baton_buffer_t from, to;
    if (place.in_place) {
        from = to =
            bind(schedule, place.in_source ? source : target, bytes, false);
    } else {
        from = bind(schedule, source, source_bytes, true);
        to = bind(schedule, target, target_bytes, false);
    }
    /* Counts are elements where it reduces, else bytes. */
    size_t unit = dense_reduces(c->builder->kind) ? 1 : c->element;
    size_t *first = calloc((size_t)c->size, sizeof(size_t));
    size_t *second = calloc((size_t)c->size, sizeof(size_t));
    if (first == NULL || second == NULL) {
        abort();
    }
    for (int i = 0; i < c->size; i++) {
        bool exchanges = c->builder->kind == DENSE_ALLTOALL;
        first[i] = unit * (exchanges ? exchanged(c, rank, i) : block(c, i));
        second[i] = unit * (exchanges ? exchanged(c, i, rank) : 0);
    }
    call(c, schedule,
         baton_view(from, place.source_at * c->element, source_bytes),
         baton_view(to, place.target_at * c->element, target_bytes),
         c->varied ? first : NULL, c->varied ? second : NULL);
    free(first);
    free(second);
}

/* ---- the result -------------------------------------------------------- */

void dense_pieces(const dense_case_t *c, int rank, dense_piece_fn fn, void *arg)
{
    size_t count = dense_target_count(c, rank);
    switch (c->builder->kind) {
    case DENSE_BROADCAST:
        fn(arg, c->root, c->root, 0, count, 0);
        break;
    case DENSE_REDUCE:
    case DENSE_ALLREDUCE:
        fn(arg, 0, c->size - 1, 0, count, 0);
        break;
    case DENSE_REDUCE_SCATTER:
        fn(arg, 0, c->size - 1, blocks_before(c, rank), count, 0);
        break;
    case DENSE_SCATTER:
        fn(arg, c->root, c->root, blocks_before(c, rank), count, 0);
        break;
    case DENSE_ALLGATHER:
    case DENSE_GATHER:
        for (int i = 0; count > 0 && i < c->size; i++) {
            fn(arg, i, i, 0, block(c, i), blocks_before(c, i));
        }
        break;
    case DENSE_ALLTOALL:
        for (int i = 0; i < c->size; i++) {
            fn(arg, i, i, exchanged_before(c, i, rank), exchanged(c, i, rank),
               received_before(c, rank, i));
        }
        break;
    case DENSE_SCAN:
        fn(arg, 0, rank, 0, count, 0);
        break;
    case DENSE_EXSCAN:
        if (rank > 0) {
            fn(arg, 0, rank - 1, 0, count, 0);
        }
        break;
    }
}
