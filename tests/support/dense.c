#include "support/dense.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The row of a builder that chooses an algorithm. */
#define CHOICE(COLLECTIVE, member, builder, ordered_)                          \
    {                                                                          \
        .name = #builder, .chooses = true, .algorithm = {                      \
            .collective = BATON_COLLECTIVE_##COLLECTIVE,                       \
            .build.member = baton_add_##builder,                               \
            .ordered = (ordered_)                                              \
        }                                                                      \
    }
static const dense_builder_t choices[] = {
    CHOICE(BARRIER, barrier, barrier, false),
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
enum { CHOICES = sizeof choices / sizeof choices[0], MOST = 100 };

const dense_builder_t *dense_builder_at(size_t i)
{
    static dense_builder_t table[MOST];
    if (i < CHOICES) {
        return &choices[i];
    }
    dense_builder_t *builder = &table[i - CHOICES];
    if (i - CHOICES >= MOST ||
        !baton_algorithm_get(i - CHOICES, &builder->algorithm)) {
        return NULL;
    }
    (void)snprintf(builder->name, sizeof builder->name, "%s_%s",
                   baton_collective_name(builder->algorithm.collective),
                   builder->algorithm.name);
    return builder;
}

const dense_builder_t *dense_builder(const char *name)
{
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        if (strcmp(builder->name, name) == 0) {
            return builder;
        }
    }
    abort();
}

static baton_collective_t kind_of(const dense_builder_t *builder)
{
    return builder->algorithm.collective;
}

static const baton_collective_facts_t *facts_of(const dense_builder_t *builder)
{
    return baton_collective_facts(kind_of(builder));
}

static bool has_blocks(const dense_builder_t *builder)
{
    return facts_of(builder)->source == BATON_SPAN_BLOCKS ||
           facts_of(builder)->target == BATON_SPAN_BLOCKS;
}

bool dense_has_roots(const dense_builder_t *builder)
{
    return facts_of(builder)->rooted;
}

bool dense_counts_blocks(const dense_builder_t *builder)
{
    return has_blocks(builder) && !dense_reduces(builder);
}

bool dense_can_vary(const dense_builder_t *builder)
{
    return has_blocks(builder) && !builder->algorithm.equal_blocks;
}

bool dense_reduces(const dense_builder_t *builder)
{
    return facts_of(builder)->reduces;
}

/* ---- sizes ------------------------------------------------------------- */

/* block() returns the number of elements of the block of `rank` or, if the
   collective has no blocks, of the vector. exchanged() returns the number of
   elements that `rank` sends to `peer`. */
static size_t block(const dense_case_t *c, int rank)
{
    if (c->varied && has_blocks(c->builder)) {
        return c->count * (size_t)(rank % 3) + (size_t)(rank % 2);
    }
    if (kind_of(c->builder) == BATON_COLLECTIVE_REDUCE_SCATTER) {
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

static size_t elements(const dense_case_t *c, baton_span_t span, int rank)
{
    if (span == BATON_SPAN_BLOCKS) {
        return blocks_before(c, c->size);
    }
    return span == BATON_SPAN_PART ? block(c, rank) : 0;
}

size_t dense_source_count(const dense_case_t *c, int rank)
{
    const baton_collective_facts_t *facts = facts_of(c->builder);
    switch ((int)kind_of(c->builder)) {
    case BATON_COLLECTIVE_ALLTOALL:
        return exchanged_before(c, rank, c->size);
    case BATON_COLLECTIVE_BROADCAST: /* its source is its target */
        return rank == c->root ? c->count : 0;
    default:
        return rank == c->root || !facts->source_at_root
                   ? elements(c, facts->source, rank)
                   : 0;
    }
}

size_t dense_target_count(const dense_case_t *c, int rank)
{
    const baton_collective_facts_t *facts = facts_of(c->builder);
    if (kind_of(c->builder) == BATON_COLLECTIVE_ALLTOALL) {
        return received_before(c, rank, c->size);
    }
    return rank == c->root || !facts->target_at_root
               ? elements(c, facts->target, rank)
               : 0;
}

size_t dense_room(const dense_case_t *c, int rank)
{
    size_t source = dense_source_count(c, rank);
    size_t target = dense_target_count(c, rank);
    return source > target ? source : target;
}

/* ---- places ------------------------------------------------------------ */

/* A rank that works in place has one piece of memory for both vectors. These
   are the indices in it at which source and target begin. */
typedef struct place {
    bool in_place;
    bool in_source; /* this memory is the argument `source`, and not `target` */
    size_t source_at, target_at;
} place_t;

static place_t place_of(const dense_case_t *c, int rank)
{
    const baton_collective_facts_t *facts = facts_of(c->builder);
    bool differ = facts->source != facts->target;
    place_t place = {.in_place =
                         c->in_place && (!facts->rooted || rank == c->root)};
    if (kind_of(c->builder) == BATON_COLLECTIVE_BROADCAST) {
        place.in_place = true;
    }
    if (place.in_place && differ && facts->source == BATON_SPAN_BLOCKS) {
        place.in_source = true;
        place.target_at = blocks_before(c, rank);
    } else if (place.in_place && differ && facts->target == BATON_SPAN_BLOCKS) {
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
    switch (kind_of(c->builder)) {
#define CALL(member, type, ...)                                                \
    c->builder->algorithm.build.member(                                        \
        schedule,                                                              \
        c->no_args ? NULL : &(const type){.size = sizeof(type), __VA_ARGS__}); \
    break
#define DATA    .source = source, .target = target
#define CHUNKED .chunk_bytes = c->chunk_bytes, .algorithm = c->algorithm
#define REDUCED DATA, .dtype = c->dtype, .op = c->op
    case BATON_COLLECTIVE_BARRIER:
        c->builder->algorithm.build.barrier(schedule);
        break;
    case BATON_COLLECTIVE_COUNT:
        abort();
    case BATON_COLLECTIVE_BROADCAST:
        CALL(broadcast, baton_broadcast_args_t, .root = c->root, .data = target,
             CHUNKED);
    case BATON_COLLECTIVE_REDUCE:
        CALL(reduce, baton_reduce_args_t, REDUCED, .root = c->root, CHUNKED);
    case BATON_COLLECTIVE_ALLREDUCE:
        CALL(allreduce, baton_allreduce_args_t, REDUCED, CHUNKED,
             .arg = c->arg);
    case BATON_COLLECTIVE_REDUCE_SCATTER:
        CALL(reduce_scatter, baton_reduce_scatter_args_t, REDUCED,
             .counts = first, CHUNKED);
    case BATON_COLLECTIVE_ALLGATHER:
        CALL(allgather, baton_allgather_args_t, DATA, .block_bytes = first,
             CHUNKED);
    case BATON_COLLECTIVE_SCATTER:
    case BATON_COLLECTIVE_GATHER:
        CALL(rooted, baton_rooted_args_t, DATA, .root = c->root,
             .block_bytes = first);
    case BATON_COLLECTIVE_ALLTOALL:
        CALL(alltoall, baton_alltoall_args_t, DATA, .send_bytes = first,
             .recv_bytes = second);
    case BATON_COLLECTIVE_SCAN:
    case BATON_COLLECTIVE_EXSCAN:
        CALL(scan, baton_scan_args_t, REDUCED);
#undef CALL
    }
}

static baton_view_t plus(baton_view_t view, baton_view_t wrong)
{
    view.buffer.index += wrong.buffer.index;
    return baton_view(view.buffer, view.offset + wrong.offset,
                      view.bytes + wrong.bytes);
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
    /* Counts are numbers of elements if the collective reduces. Otherwise they
       are numbers of bytes. */
    size_t unit = dense_reduces(c->builder) ? 1 : c->element;
    size_t *first = calloc((size_t)c->size, sizeof(size_t));
    size_t *second = calloc((size_t)c->size, sizeof(size_t));
    if (first == NULL || second == NULL) {
        abort();
    }
    for (int i = 0; i < c->size; i++) {
        bool exchanges = kind_of(c->builder) == BATON_COLLECTIVE_ALLTOALL;
        first[i] = unit * (exchanges ? exchanged(c, rank, i) : block(c, i));
        second[i] = unit * (exchanges ? exchanged(c, i, rank) : 0);
    }
    call(c, schedule,
         plus(baton_view(from, place.source_at * c->element, source_bytes),
              c->wrong[0]),
         plus(baton_view(to, place.target_at * c->element, target_bytes),
              c->wrong[1]),
         c->varied ? first : NULL, c->varied ? second : NULL);
    free(first);
    free(second);
}

/* ---- the result -------------------------------------------------------- */

void dense_pieces(const dense_case_t *c, int rank, dense_piece_fn fn, void *arg)
{
    size_t count = dense_target_count(c, rank);
    switch (kind_of(c->builder)) {
    case BATON_COLLECTIVE_BROADCAST:
        fn(arg, c->root, c->root, 0, count, 0);
        break;
    case BATON_COLLECTIVE_REDUCE:
    case BATON_COLLECTIVE_ALLREDUCE:
        fn(arg, 0, c->size - 1, 0, count, 0);
        break;
    case BATON_COLLECTIVE_REDUCE_SCATTER:
        fn(arg, 0, c->size - 1, blocks_before(c, rank), count, 0);
        break;
    case BATON_COLLECTIVE_SCATTER:
        fn(arg, c->root, c->root, blocks_before(c, rank), count, 0);
        break;
    case BATON_COLLECTIVE_ALLGATHER:
    case BATON_COLLECTIVE_GATHER:
        for (int i = 0; count > 0 && i < c->size; i++) {
            fn(arg, i, i, 0, block(c, i), blocks_before(c, i));
        }
        break;
    case BATON_COLLECTIVE_ALLTOALL:
        for (int i = 0; i < c->size; i++) {
            fn(arg, i, i, exchanged_before(c, i, rank), exchanged(c, i, rank),
               received_before(c, rank, i));
        }
        break;
    case BATON_COLLECTIVE_SCAN:
        fn(arg, 0, rank, 0, count, 0);
        break;
    case BATON_COLLECTIVE_BARRIER:
    case BATON_COLLECTIVE_COUNT:
        break;
    case BATON_COLLECTIVE_EXSCAN:
        if (rank > 0) {
            fn(arg, 0, rank - 1, 0, count, 0);
        }
        break;
    }
}
