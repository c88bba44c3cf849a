/* Every dense builder on real data: with every element type, with odd counts
   and alignments, and with reductions that are not commutative. Also builders
   between other nodes, the arguments that they refuse, and failing allocations.
   The ranks are in one thread, on the inproc transport. Device memory is tested
   on ranks with emulated devices. */
#include "base/alloc.h"
#include "sched/schedule.h"
#include "support/dense_data.h"
#include "support/device_cluster.h"
#include "support/malloc.h"

enum { EPOCHS = 2 };

static uint64_t seed;
/* The cluster that has devices; NULL: no devices are used. */
static support_cluster_t *devices;

static support_cluster_t *ranks_of(int size)
{
    return devices != NULL ? devices : support_cluster_of(size);
}

/* Vectors between guard bytes, whose alignment differs between ranks. With
   devices, epochs run on copies of this memory on the devices. */
typedef struct memory {
    char *blocks[2 * SUPPORT_LARGEST], *there[2 * SUPPORT_LARGEST];
    void *sources[SUPPORT_LARGEST];
    void *targets[SUPPORT_LARGEST];
} memory_t;

enum { GUARD_BYTES = 64, GUARD = 0xa5 };

static size_t block_bytes(const dense_case_t *c, int rank)
{
    return (dense_room(c, rank) + 5) * c->element + 2 * (size_t)GUARD_BYTES;
}

static void *open_block(const dense_case_t *c, int rank, char **block_out)
{
    *block_out = aligned_alloc(64, (block_bytes(c, rank) + 63) / 64 * 64);
    assert_non_null(*block_out);
    memset(*block_out, GUARD, block_bytes(c, rank));
    return *block_out + GUARD_BYTES + (size_t)(rank % 5) * c->element;
}

static void open_memory(const dense_case_t *c, memory_t *memory)
{
    for (int rank = 0; rank < c->size; rank++) {
        char **blocks = &memory->blocks[(size_t)rank * 2];
        memory->sources[rank] = open_block(c, rank, &blocks[0]);
        memory->targets[rank] = open_block(c, rank, &blocks[1]);
        for (int i = 2 * rank; i < 2 * rank + 2 && devices != NULL; i++) {
            memory->there[i] =
                emulated_allocate(devices->devices[rank], block_bytes(c, rank));
        }
    }
}

/* Frees the memory. Checks that only the ranks' vectors were written. */
static void close_memory(const dense_case_t *c, memory_t *memory)
{
    for (int i = 0; i < 2 * c->size; i++) {
        int rank = i / 2;
        char *block = memory->blocks[i];
        char *vector =
            i % 2 == 0 ? memory->sources[rank] : memory->targets[rank];
        char *end = vector + dense_room(c, rank) * c->element;
        for (char *at = block; at < block + block_bytes(c, rank); at++) {
            if (at == vector) {
                at = end;
            }
            if (*at != (char)GUARD) {
                fail_msg("%s: rank %d wrote beside its vectors", dense_text(c),
                         rank);
            }
        }
        free(block);
        if (devices != NULL) {
            emulated_release(devices->devices[rank], memory->there[i]);
        }
    }
}

static void check_rank(const dense_data_t *data, int rank,
                       const memory_t *memory)
{
    const dense_case_t *c = data->c;
    void *source = memory->sources[rank];
    void *target = memory->targets[rank];
    if (!dense_is_right(data, rank, dense_output(c, rank, source, target))) {
        fail_msg("%s: wrong result on rank %d (BATON_SEED=%llu)", dense_text(c),
                 rank, (unsigned long long)seed);
    }
    if (dense_keeps_source(c, rank) &&
        !dense_is_untouched(data, rank, source)) {
        fail_msg("%s: rank %d's source was written", dense_text(c), rank);
    }
}

/* Adds the builder's nodes between two others, as a partial collective does. */
static void build_inside(const dense_case_t *c, baton_schedule_t *schedule,
                         void *source, void *target)
{
    baton_node_t before = baton_add_nop(schedule);
    baton_node_t behind = baton_add_nop(schedule);
    baton_enclosure_t inside = baton_enclose_begin(schedule);
    dense_build(c, schedule, source, target);
    baton_enclose_end(schedule, inside, before, behind);
}

/* Builds the same schedule in device memory. All bound buffers are on the
   device. */
static void build_there(const dense_case_t *c, baton_schedule_t *schedule,
                        const memory_t *memory, int rank)
{
    char *const *there = &memory->there[(size_t)rank * 2];
    ptrdiff_t at = (char *)memory->sources[rank] - memory->blocks[2 * rank];
    baton_buffer_t buffer = {0};
    dense_build(c, schedule, there[0] + at, there[1] + at);
    while (baton_buffer_bytes(schedule, buffer) != SIZE_MAX) {
        if (baton_view_address(schedule, baton_view(buffer, 0, 0)) != NULL) {
            baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
        }
        buffer.index++;
    }
}

/* The streams of the ranks do all: they copy the data to the device, run the
   epoch, and copy the data back. */
static void run_there(const dense_case_t *c, baton_schedule_t **schedules,
                      const memory_t *memory)
{
    for (int rank = 0; rank < c->size; rank++) {
        baton_stream_t stream = devices->streams[rank];
        size_t bytes = block_bytes(c, rank);
        for (int i = 2 * rank; i < 2 * rank + 2; i++) {
            device_copy(devices, rank, memory->there[i], memory->blocks[i],
                        bytes);
        }
        support_ok(baton_schedule_start_on(schedules[rank], stream));
        support_ok(baton_schedule_wait_on(schedules[rank], stream));
        for (int i = 2 * rank; i < 2 * rank + 2; i++) {
            device_copy(devices, rank, memory->blocks[i], memory->there[i],
                        bytes);
        }
    }
    for (int rank = 0; rank < c->size; rank++) {
        support_ends(schedules[rank], BATON_OK);
        device_synchronise(devices, rank);
    }
}

/* The values are random bits, whose sums are rounded. All ranks must have the
   same result. */
static void run_case_of(const dense_case_t *c, support_op_t op, bool bits)
{
    support_cluster_t *ranks = ranks_of(c->size);
    baton_schedule_t **schedules = support_schedules_create(ranks, "dense");
    static memory_t memory;
    open_memory(c, &memory);
    for (int rank = 0; rank < c->size; rank++) {
        if (devices != NULL) {
            build_there(c, schedules[rank], &memory, rank);
        } else {
            build_inside(c, schedules[rank], memory.sources[rank],
                         memory.targets[rank]);
        }
    }
    support_schedules_commit(ranks, schedules);
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        dense_data_t data = {c, op, seed, epoch};
        for (int rank = 0; rank < c->size; rank++) {
            void *source = dense_input(c, rank, memory.sources[rank],
                                       memory.targets[rank]);
            support_random_t random = support_random(seed, (uint64_t)rank);
            if (bits) {
                support_fill_bits(source, c->count * c->element, &random);
            } else {
                dense_fill(&data, rank, source);
            }
        }
        if (devices != NULL) {
            run_there(c, schedules, &memory);
        } else {
            support_schedules_run(ranks, schedules);
        }
        for (int rank = 0; rank < c->size; rank++) {
            if (bits) {
                assert_memory_equal(memory.targets[rank], memory.targets[0],
                                    c->count * c->element);
            } else {
                check_rank(&data, rank, &memory);
            }
        }
    }
    support_schedules_destroy(ranks, schedules);
    close_memory(c, &memory);
}

static void run_case(const dense_case_t *c, support_op_t op)
{
    run_case_of(c, op, false);
}

#if SUPPORT_SANITIZED
static const int sizes[] = {1, 2, 3, 5, 8, 12};
#else
static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 17};
#endif
enum { SIZE_COUNT = sizeof sizes / sizeof sizes[0] };

/* Hosts of two ranks, and hosts of three. */
static baton_hosts_t in_twos = {.size = sizeof in_twos, .host_ranks = 2};
static baton_hosts_t in_threes = {.size = sizeof in_threes, .host_ranks = 3};

static dense_case_t case_of(const dense_builder_t *builder, int size,
                            baton_hosts_t *hosts)
{
    dense_case_t c = {.builder = builder,
                      .size = size,
                      .root = size / 2,
                      .dtype = BATON_U8,
                      .element = 1,
                      .op = BATON_SUM,
                      .arg = hosts};
    return c;
}

TEST(test_every_type_and_operation)
{
    static const int few[] = {1, 3, 6, 8};
    for (size_t i = 0; dense_builder_at(i / 4) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i / 4), few[i % 4], &in_twos);
        for (int type = 1; type < (int)BATON_DTYPE_COUNT; type++) {
            c.dtype = (baton_dtype_t)type;
            c.element = baton_dtype_size(c.dtype);
            c.count = 37;
            c.chunk_bytes = 24;
            support_op_t op = dense_op_for(c.builder, c.dtype, i / 4 + i % 4);
            c.op = support_op(op);
            c.in_place = (type + (int)i / 4) % 2 == 0;
            run_case(&c, op);
        }
    }
}

/* Only of averages do builders know more than the operation itself, which
   test_reduce.c tests: a collective divides its last sums. */
TEST(test_every_builder_averages)
{
    static const int few[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; dense_builder_at(i / 5) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i / 5), few[i % 5], &in_twos);
        c.op = BATON_AVG;
        c.count = 29;
        c.chunk_bytes = 48;
        for (int type = 1; type < (int)BATON_DTYPE_COUNT; type++) {
            c.dtype = (baton_dtype_t)type;
            c.element = baton_dtype_size(c.dtype);
            c.in_place = (type + (int)i) % 2 == 0;
            if (dense_reduces(c.builder) && baton_op_takes(c.op, c.dtype) &&
                dense_op_for(c.builder, c.dtype, SUPPORT_AVG) == SUPPORT_AVG) {
                run_case(&c, SUPPORT_AVG);
            }
        }
    }
}

TEST(test_any_number_of_ranks_and_elements)
{
    static const size_t counts[] = {0, 16, 5, 67, 262};
    /* Segments of less than an element, one element, and 33: a vector of 65 has
       segments of 33 and 32. */
    static const size_t chunks[] = {0, 64, 1, 2, 66};
    for (size_t i = 0; dense_builder_at(i / SIZE_COUNT) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i / SIZE_COUNT),
                                 sizes[i % SIZE_COUNT], &in_threes);
        c.dtype = BATON_I16;
        c.element = 2;
        for (size_t k = 0; k < 5; k++) {
            c.count =
                dense_counts_blocks(c.builder) ? counts[k] / 16 : counts[k];
            c.chunk_bytes = chunks[k];
            c.root = (int)k * (c.size - 1) / 4;
            c.in_place = k % 3 == 0;
            c.varied = dense_can_vary(c.builder) && k % 2 == 1;
            run_case(&c, SUPPORT_SUM);
        }
    }
}

/* The vectors are too long for rounds to have memory of their own. */
TEST(test_long_vectors)
{
    for (size_t i = 0; dense_builder_at(i) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i), 7, &in_twos);
        c.dtype = BATON_I32;
        c.element = 4;
        c.count = dense_counts_blocks(c.builder) ? 3001 : 20003;
        run_case(&c, SUPPORT_SUM);
        c.in_place = true;
        run_case(&c, SUPPORT_SUM);
    }
}

TEST(test_all_ranks_have_the_same_bits)
{
    static const baton_dtype_t floats[] = {BATON_F16, BATON_F32};
    for (size_t i = 0; dense_builder_at(i / SIZE_COUNT) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i / SIZE_COUNT),
                                 sizes[i % SIZE_COUNT], &in_threes);
        c.count = 101;
        c.chunk_bytes = 40;
        for (size_t k = 0; k < 2; k++) {
            c.dtype = floats[k];
            c.element = baton_dtype_size(c.dtype);
            if (c.builder->algorithm.collective == BATON_COLLECTIVE_ALLREDUCE) {
                run_case_of(&c, SUPPORT_SUM, true);
            }
        }
    }
}

/* Each builder has counts and types that change from one builder to the next.
   Messages are staged, or read by the peer's device itself. */
TEST(test_builders_on_devices)
{
    static const int few[] = {1, 3, 5, 8};
    static const size_t counts[] = {0, 1, 5, 37, 1009, 5003};
    for (size_t n = 0; n < 4; n++) {
        const emulated_options_t options = {.seed = seed,
                                            .delay_us = 5,
                                            .workers = 1,
                                            .no_handles = n % 2 != 0};
        devices = device_cluster_open(few[n], SUPPORT_OWN_ENGINES, &options);
        for (size_t i = 0; dense_builder_at(i / 6) != NULL; i++) {
            dense_case_t c = case_of(dense_builder_at(i / 6), few[n], &in_twos);
            size_t turn = i / 6 + i % 6 + (size_t)few[n];
            c.dtype = (baton_dtype_t)(1 + turn % (BATON_DTYPE_COUNT - 1));
            c.element = baton_dtype_size(c.dtype);
            c.count = counts[i % 6];
            c.chunk_bytes = i % 2 == 0 ? 0 : 256;
            c.varied = turn % 3 == 0 && !c.builder->algorithm.equal_blocks;
            c.in_place = turn / 2 % 2 == 0;
            support_op_t op = dense_op_for(c.builder, c.dtype, turn);
            c.op = support_op(op);
            if (turn % 2 == 0) {
                run_case(&c, op);
            }
        }
        support_cluster_close(devices);
        devices = NULL;
    }
}

/* Hosts of different sizes, with ranks in any order. */
TEST(test_hierarchical_on_uneven_hosts)
{
    static const int host[] = {4, 7, 4, 4, 9, 7, 9, 4, 9, 9, 7, 4, 4};
    baton_hosts_t hosts = {.size = sizeof hosts, .host = host};
    for (int i = 0; i < SIZE_COUNT && sizes[i] <= 13; i++) {
        dense_case_t c =
            case_of(dense_builder("allreduce_hierarchical"), sizes[i], &hosts);
        for (c.count = 0; c.count < 20; c.count += 3) {
            c.in_place = c.count % 2 == 1;
            run_case(&c, SUPPORT_SUM);
        }
    }
}

/* ---- the order of ranks ------------------------------------------------- */

static dense_case_t composition(const dense_builder_t *builder, int size,
                                baton_hosts_t *hosts)
{
    dense_case_t c = case_of(builder, size, hosts);
    c.dtype = BATON_U32;
    c.element = sizeof(dense_affine_t);
    c.op = &dense_compose;
    c.count = 29;
    c.chunk_bytes = 40;
    return c;
}

TEST(test_reductions_that_are_not_commutative)
{
    for (size_t i = 0; dense_builder_at(i / SIZE_COUNT) != NULL; i++) {
        const dense_builder_t *builder = dense_builder_at(i / SIZE_COUNT);
        int size = sizes[i % SIZE_COUNT];
        dense_case_t c = composition(builder, size, &in_threes);
        bool chain = strcmp(builder->name, "reduce_linear_pipeline") == 0;
        for (int root = 0; builder->algorithm.ordered || chain; root++) {
            if (root >= size || (root > 0 && !dense_has_roots(builder))) {
                break;
            }
            if (chain && root > 0 && root < size - 1) {
                continue;
            }
            c.root = root;
            c.in_place = root % 2 == 1;
            run_case(&c, SUPPORT_SUM);
        }
    }
}

static void refuses_order(const dense_case_t *c, const char *says)
{
    baton_schedule_t *schedule =
        support_schedule(support_cluster_of(c->size)->groups[2], "order");
    dense_build(c, schedule, NULL, NULL);
    support_fails(baton_schedule_commit(schedule), BATON_ERR_UNSUPPORTED, says);
    support_ok(baton_schedule_destroy(schedule));
}

TEST(test_builders_without_order_refuse_them)
{
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        if (!builder->algorithm.ordered && !builder->chooses &&
            dense_reduces(builder)) {
            dense_case_t c = composition(builder, 5, &in_threes);
            refuses_order(&c, "\"compose\"");
            refuses_order(&c, "use ");
        }
    }
}

/* A reduction that is not commutative, by the builder that chooses and by each
   algorithm. A pipeline keeps the order of ranks if the root is at an end of
   the chain. */
TEST(test_a_pipeline_by_name_keeps_the_order)
{
    for (int i = 0; i < SIZE_COUNT; i++) {
        dense_case_t c = composition(dense_builder("reduce"), sizes[i], NULL);
        c.algorithm = "linear_pipeline";
        for (c.root = 0; c.root<c.size; c.root += c.size> 1 ? c.size - 1 : 1) {
            run_case(&c, SUPPORT_SUM);
        }
        c.root = 1;
        if (c.size > 2) {
            refuses_order(&c, "to a root that is not rank 0 or P - 1");
        }
    }
}

/* ---- wrong arguments ---------------------------------------------------- */

static void refused(baton_schedule_t *schedule, const char *says)
{
    support_fails(baton_schedule_commit(schedule), BATON_ERR_INVALID, says);
    support_ok(baton_schedule_destroy(schedule));
}

static baton_schedule_t *schedule_of(int size)
{
    return support_schedule(support_cluster_of(size)->groups[size - 1],
                            "wrong");
}

/* Expects that commit fails after build(s, its arguments) in a schedule `s` of
   three ranks. */
#define WRONG(says, build, type, ...)                                          \
    do {                                                                       \
        baton_schedule_t *s = schedule_of(3);                                  \
        build(s, &(const type){.size = sizeof(type), __VA_ARGS__});            \
        refused(s, says);                                                      \
    } while (0)
#define VIEWS(source_bytes, target_bytes)                                      \
    .source = support_scratch(s, source_bytes),                                \
    .target = support_scratch(s, target_bytes)

TEST(test_wrong_arguments_are_named)
{
    static const size_t counts[] = {1, 2, 3}, most[] = {SIZE_MAX, 2, 3};
    static const size_t others[] = {1, 3, 2}, reversed[] = {3, 1, 2};
    static baton_hosts_t hosts = {.size = 1, .host_ranks = 2};
    baton_schedule_t *bare = schedule_of(3);
    baton_add_reduce_linear_pipeline(bare, NULL);
    refused(bare, "reduce by linear pipeline: args is NULL");
    bare = schedule_of(3);
    baton_add_broadcast_double_tree(bare, &(baton_broadcast_args_t){.size = 1});
    refused(bare, "broadcast by double tree: args: size is 1, must be ");
    WRONG("root is 3, must be a rank of the group, 0 to 2",
          baton_add_broadcast_linear_pipeline, baton_broadcast_args_t,
          .root = 3);
    WRONG("source has 16 bytes and target has 8, must be the same",
          baton_add_reduce_scatter_gather, baton_reduce_args_t, VIEWS(16, 8),
          .root = 2, .dtype = BATON_F64, .op = BATON_SUM);
    WRONG("source has 12 bytes, must be a multiple of 8",
          baton_add_reduce_binomial, baton_reduce_args_t, VIEWS(12, 8),
          .root = 2, .dtype = BATON_F64, .op = BATON_SUM);
    WRONG("target has 2 bytes, must have 3", baton_add_reduce_scatter_circulant,
          baton_reduce_scatter_args_t, VIEWS(6, 2), .counts = counts,
          .dtype = BATON_U8, .op = BATON_SUM);
    WRONG("target has 10 bytes, must be a multiple of 3",
          baton_add_allgather_bruck, baton_allgather_args_t, VIEWS(3, 10));
    WRONG("all-gather by ring: rank 1 has 2 elements of 1 bytes: the blocks up "
          "to this rank's exceed",
          baton_add_allgather_ring, baton_allgather_args_t, VIEWS(3, 10),
          .block_bytes = most);
    WRONG("args.arg must point to a baton_hosts_t",
          baton_add_allreduce_hierarchical, baton_allreduce_args_t, VIEWS(8, 8),
          .dtype = BATON_F32, .op = BATON_SUM, .arg = &hosts);
    bare = schedule_of(3);
    baton_view_t all = support_scratch(bare, 30);
    baton_alltoall_args_t exchanged = {.size = sizeof exchanged,
                                       .source = baton_view(all.buffer, 0, 18),
                                       .target =
                                           baton_view(all.buffer, 12, 18)};
    baton_add_alltoall_bruck(bare, &exchanged);
    refused(bare, "overlap: they must be the same (in place) or apart");
    bare = schedule_of(3);
    exchanged.source = exchanged.target = support_scratch(bare, 6);
    exchanged.send_bytes = counts;
    exchanged.recv_bytes = others;
    baton_add_alltoall_pairwise(bare, &exchanged);
    refused(bare, "send_bytes and recv_bytes of rank 1 must be the same");
    WRONG("this rank's block of the target has 2 bytes, must have 3",
          baton_add_alltoall_pairwise, baton_alltoall_args_t, VIEWS(6, 6),
          .send_bytes = counts, .recv_bytes = reversed);
    hosts.size = sizeof hosts;
    hosts.host_ranks = 0;
    WRONG("host is NULL and host_ranks is 0, must be at least 1",
          baton_add_allreduce_hierarchical, baton_allreduce_args_t, VIEWS(8, 8),
          .dtype = BATON_F32, .op = BATON_SUM, .arg = &hosts);
}

/* The library keeps the memory of some destroyed objects. After this call each
   further destroyed object frees the memory of an older one. */
static void keep_no_more(void)
{
    for (int i = 0; i < BATON__UNFREED_OBJECTS; i++) {
        baton__free_later(baton__alloc(1, 1));
    }
}

/* Builds twice, since a group's first schedule may allocate memory that the
   group keeps. */
static void refuses(const dense_case_t *c, int rank)
{
    int64_t live[2];
    for (int i = 0; i < 2; i++) {
        baton_schedule_t *s =
            support_schedule(support_cluster_of(3)->groups[rank], "wrong");
        dense_build(c, s, NULL, NULL);
        if (baton_schedule_commit(s) != BATON_ERR_INVALID) {
            fail_msg("%s: rank %d: %s", dense_text(c), rank,
                     baton_error_message());
        }
        support_ok(baton_schedule_destroy(s));
        live[i] = malloc_live;
    }
    assert_true(live[0] == live[1] || !MALLOC_SEES_ALL);
}

/* Every builder refuses, on every rank, a view that does not fit its buffer, or
   names none, and a root, type or operation that does not exist. The builder
   frees what it has allocated. */
TEST(test_every_builder_refuses_wrong_arguments)
{
    static const baton_view_t wrongs[] = {
        {{0}, 0, 4}, {{0}, 4, 0}, {{99}, 0, 0}};
    const dense_builder_t *b;
    keep_no_more();
    for (size_t i = 0; (b = dense_builder_at(i / 240)) != NULL; i++) {
        dense_case_t c = case_of(b, 3, &in_twos);
        const int rank = (int)(i % 3), way = (int)(i / 24 % 10);
        c.count = 6;
        c.dtype = way == 8 ? BATON_DTYPE_NONE : BATON_I32;
        c.element = 4;
        c.op = way == 9 ? NULL : c.op;
        c.root = (int)(i / 3 % 2);
        c.root = way == 6 ? -1 : c.root;
        c.root = way == 7 ? 3 : c.root;
        c.in_place = i / 6 % 2 == 0;
        c.varied = i / 12 % 2 == 0 && dense_can_vary(b);
        if (way < 6) {
            c.wrong[way % 2] = wrongs[way / 2];
        }
        bool source = b->algorithm.collective != BATON_COLLECTIVE_BROADCAST &&
                      dense_source_count(&c, rank) > 0;
        bool target = dense_target_count(&c, rank) > 0;
        bool has[] = {source, target, source, target, source, target};
        if ((way < 6 && has[way]) ||
            (way >= 6 && (way < 8 ? dense_has_roots(b) : dense_reduces(b)))) {
            refuses(&c, rank);
        }
    }
}

static uint64_t terms_of(const dense_case_t *c)
{
    baton_schedule_t *s = schedule_of(c->size);
    dense_build(c, s, NULL, NULL);
    uint64_t terms = s->terms_hash;
    support_ok(baton_schedule_destroy(s));
    return terms;
}

/* Ranks compare all arguments that must be the same on all of them. (The blocks
   of an all-to-all are compared by its messages.) */
TEST(test_every_builder_states_its_terms)
{
    enum { DTYPE, OP, ROOT, CHUNK, HOSTS, COUNT, BLOCKS, ARGUMENTS };
    const dense_builder_t *b;
    for (size_t i = 0; (b = dense_builder_at(i / ARGUMENTS)) != NULL; i++) {
        const baton_collective_t kind = b->algorithm.collective;
        const size_t what = i % ARGUMENTS;
        const bool has[] = {dense_reduces(b),
                            dense_reduces(b),
                            dense_has_roots(b),
                            kind <= BATON_COLLECTIVE_ALLGATHER,
                            strcmp(b->name, "allreduce_hierarchical") == 0,
                            kind != BATON_COLLECTIVE_BARRIER,
                            dense_can_vary(b) &&
                                kind != BATON_COLLECTIVE_ALLTOALL};
        dense_case_t c = case_of(b, 5, &in_twos), other;
        c.count = 20;
        c.element = 4;
        c.dtype = BATON_I32;
        c.varied = what == BLOCKS;
        other = c;
        other.dtype = what == DTYPE ? BATON_U32 : c.dtype;
        other.op = what == OP ? BATON_MAX : c.op;
        other.root += what == ROOT;
        other.chunk_bytes = what == CHUNK ? 8 : 0;
        other.arg = what == HOSTS ? &in_threes : c.arg;
        other.count += what >= COUNT ? 5 : 0;
        if (has[what] && terms_of(&c) == terms_of(&other)) {
            fail_msg("%s: argument %zu", b->name, what);
        }
    }
}

/* An all-reduce whose views are in two buffers of 128 bytes each, which follow
   each other in memory. A view that exceeds its buffer is an error, but no
   overlap. */
typedef struct wrong {
    const char *says, *allowed;
    size_t size;          /* of the arguments; 0: the right one */
    const baton_op_t *op; /* for no element type; NULL: a sum of i32 */
    size_t source_at, source_bytes;
    bool apart; /* true: the target is in the second buffer */
    size_t target_at, target_bytes;
} wrong_t;

static void check_wrong(const wrong_t *wrong, baton_allreduce_fn build)
{
    static char memory[256];
    baton_schedule_t *s = schedule_of(4);
    baton_buffer_t first = baton_buffer_bind(s, memory, 128);
    baton_buffer_t second = baton_buffer_bind(s, memory + 128, 128);
    const baton_allreduce_args_t args = {
        .size = wrong->size > 0 ? wrong->size : sizeof args,
        .source = baton_view(first, wrong->source_at, wrong->source_bytes),
        .target = baton_view(wrong->apart ? second : first, wrong->target_at,
                             wrong->target_bytes),
        .dtype = wrong->op != NULL ? BATON_DTYPE_NONE : BATON_I32,
        .op = wrong->op != NULL ? wrong->op : BATON_SUM};
    baton_enclosure_t before = baton_enclose_begin(s);
    build(s, &args);
    baton_enclosure_t after = baton_enclose_begin(s);
    assert_int_equal(before.node, after.node);
    assert_int_equal(before.edge, after.edge);
    support_fails(baton_schedule_commit(s), BATON_ERR_INVALID, "all-reduce by");
    support_says(wrong->says);
    support_says(wrong->allowed);
    support_ok(baton_schedule_destroy(s));
}

TEST(test_wrong_arguments_of_an_allreduce_are_named)
{
    baton_op_t pairs = *BATON_SUM;
    pairs.element_bytes = 8;
#define AT(from, to, bytes)                                                    \
    .source_at = (from), .source_bytes = (bytes), .target_at = (to),           \
    .target_bytes = (bytes)
    const wrong_t wrongs[] = {
        {"size is 1", "sizeof(baton_allreduce_args_t)", .size = 1,
         AT(0, 64, 64)},
        {"dtype is 0, which is no element type", "set BATON_F32", .op = &pairs,
         AT(0, 64, 64)},
        {"source has 64 bytes and target has 32", "of bytes, not of elements",
         .source_bytes = 64, .target_at = 64, .target_bytes = 32},
        {"63 bytes", "multiple of 4", AT(0, 64, 63)},
        {"at 0 of buffer 0", "apart. Is the count in bytes?", AT(0, 60, 64)},
        {"at 64 of buffer 0", "at 60 of buffer 0", AT(64, 60, 64)},
        {"at 0 of buffer 0,", "which has 128", AT(0, 0, SIZE_MAX - 3),
         .apart = true},
        {"source is 16 bytes at 120 of buffer 0", "which has 128",
         AT(120, 0, 16), .apart = true},
        {"of buffer 0,", "which has 128", AT(SIZE_MAX - 7, 0, 16),
         .apart = true},
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        check_wrong(&wrongs[i], baton_add_allreduce_recursive_doubling);
        check_wrong(&wrongs[i], baton_add_allreduce_ring);
    }
}

/* An average is refused in a single node, which can't know whether it is the
   last reduction. */
TEST(test_averages_are_of_collectives)
{
    baton_schedule_t *bare = schedule_of(3);
    baton_view_t view = support_scratch(bare, 16);
    (void)baton_add_reduce_local(bare, BATON_F32, BATON_AVG, view, view, view);
    refused(bare, "reduce#0: op is avg, which only collectives take");
    WRONG("op is avg, which scans do not support", baton_add_exscan,
          baton_scan_args_t, VIEWS(16, 16), .dtype = BATON_F32,
          .op = BATON_AVG);
}

/* The vector of the root is named in the error if it is shorter than the
   blocks. */
TEST(test_the_vector_of_a_root_is_named)
{
    WRONG("scatter by binomial tree: source has 0 bytes, must have 48",
          baton_add_scatter, baton_rooted_args_t, .root = 2,
          .target = support_scratch(s, 16));
    WRONG("gather by binomial tree: target has 0 bytes, must have 48",
          baton_add_gather, baton_rooted_args_t, .root = 2,
          .source = support_scratch(s, 16));
}

/* Views do not overlap if one begins where the other ends. A caller with an
   older header has shorter arguments, without the fields that were added
   since. */
TEST(test_allreduce_takes_views_beside_each_other)
{
    for (size_t behind = 0; behind < 2; behind++) {
        int32_t values[8] = {1, 2, 3, 4, 1, 2, 3, 4};
        baton_schedule_t *s = schedule_of(1);
        baton_buffer_t buffer = baton_buffer_bind(s, values, 32);
        baton_allreduce_args_t args = {
            .size = offsetof(baton_allreduce_args_t, algorithm),
            .source = baton_view(buffer, 16 * behind, 16),
            .target = baton_view(buffer, 16 * (1 - behind), 16),
            .dtype = BATON_I32,
            .op = BATON_MAX,
            .algorithm = "no such algorithm"};
        values[behind == 0 ? 7 : 3] = 0;
        baton_add_allreduce(s, &args);
        support_ok(baton_schedule_commit(s));
        support_run(s);
        assert_int_equal(values[behind == 0 ? 7 : 3], 4);
        support_ok(baton_schedule_destroy(s));
    }
}

/* ---- barriers ------------------------------------------------------------ */

/* In every epoch, the last rank that begins delays all others. */
TEST(test_barrier_waits_for_the_last_rank)
{
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        support_cluster_t *ranks = support_cluster_of(support_sizes[i]);
        baton_schedule_t **all = support_schedules_create(ranks, "barrier");
        for (int rank = 0; rank < ranks->size; rank++) {
            baton_add_barrier(all[rank]);
        }
        support_schedules_commit(ranks, all);
        for (int last = 0; last < ranks->size; last++) {
            for (int rank = 0; rank < ranks->size; rank++) {
                if (rank != last) {
                    support_ok(baton_schedule_start(all[rank]));
                }
            }
            support_drain(ranks);
            for (int rank = 0; rank < ranks->size; rank++) {
                bool done = true;
                support_ok(baton_schedule_test(all[rank], &done));
                assert_int_equal(done, rank == last);
            }
            support_ok(baton_schedule_start(all[last]));
            for (int rank = 0; rank < ranks->size; rank++) {
                support_ok(baton_schedule_wait(all[rank], SUPPORT_WAIT_MS));
            }
        }
        support_schedules_destroy(ranks, all);
    }
}

/* ---- without memory ----------------------------------------------------- */

/* Builds with the n-th allocation failing, for each n until none fails. Commit
   reports the error, and nothing remains allocated. */
TEST(test_builders_without_memory)
{
    const support_cluster_t *ranks = support_cluster_of(7);
    keep_no_more();
    for (size_t i = 0; dense_builder_at(i) != NULL; i++) {
        dense_case_t c = case_of(dense_builder_at(i), 7, &in_threes);
        c.count = 100;
        c.root = 1;
        bool failed = true;
        for (int64_t n = 1; failed; n++) {
            const int64_t live = malloc_live;
            baton_schedule_t *schedule =
                support_schedule(ranks->groups[3], "memory");
            int64_t before = baton__alloc_count();
            baton__alloc_fail_nth(n);
            dense_build(&c, schedule, NULL, NULL);
            failed = baton__alloc_count() - before >= n;
            baton__alloc_fail_nth(0);
            if (failed) {
                support_expect(baton_schedule_commit(schedule),
                               BATON_ERR_NO_MEMORY);
            }
            support_ok(baton_schedule_destroy(schedule));
            assert_true(malloc_live == live || !MALLOC_SEES_ALL);
        }
    }
}

static int open_all(void **state)
{
    seed = support_seed();
    return support_clusters_open(state);
}

RUN_TESTS_BETWEEN(open_all, support_clusters_close)
