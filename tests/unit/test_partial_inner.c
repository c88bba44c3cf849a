/* Reductions in epochs of partial collectives. They reduce the contributions of
   the active ranks, in the order of the full collective, for every type. Ranks
   that have contributed nothing send no data. */
#include "support/reference.h"
#include "support/sim.h"
#include "support/values.h"

#include <baton/partial.h>
#include <baton/tuning.h>

enum { LARGEST = 17, MOST = 65, BYTES = 128 };

typedef struct world {
    baton_sim_t *sim;
    int size;
    baton_partial_options_t options;
    size_t bytes; /* bytes of a contribution */
    baton_partial_t *partials[MOST];
    baton_partial_result_t results[MOST];
} world_t;

/* Contributions are made before the first start, so they are all in the epoch.
   If there is no inner builder, all ranks are on one host, and SOLO uses the
   flat tree there. */
static baton_partial_options_t options_of(baton_allreduce_fn inner,
                                          size_t count, baton_dtype_t dtype)
{
    return (baton_partial_options_t){.size = sizeof(baton_partial_options_t),
                                     .mode = inner == NULL ? BATON_SOLO
                                                           : BATON_FULL,
                                     .count = count,
                                     .dtype = dtype,
                                     .inner = inner};
}

static void open_world(world_t *world, int size,
                       const baton_partial_options_t *options)
{
    baton_sim_options_t model = support_sim_options(size);
    model.host_ranks = options->inner == NULL ? size : 0;
    model.host_link = model.link;
    *world =
        (world_t){.sim = support_sim_open(&model),
                  .size = size,
                  .options = *options,
                  .bytes = options->count * baton_dtype_size(options->dtype)};
    for (int r = 0; r < size; r++) {
        support_ok(baton_partial_create(baton_sim_group(world->sim, r), options,
                                        &world->partials[r]));
    }
}

static void close_world(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_partial_destroy(world->partials[r]));
    }
    support_ok(baton_sim_destroy(world->sim));
}

/* Runs an epoch that all ranks start. Only the active ones contribute
   before. */
static void run_epoch(world_t *world, const bool *active, const void *data,
                      size_t stride)
{
    for (int r = 0; r < world->size; r++) {
        if (active[r]) {
            support_ok(baton_partial_contribute(
                world->partials[r], (const char *)data + (size_t)r * stride));
        }
    }
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_partial_start(world->partials[r]));
    }
    for (int r = 0; r < world->size; r++) {
        support_ok(
            baton_partial_wait(world->partials[r], -1, &world->results[r]));
    }
}

/* If i is below `size`, only rank i is active. After that none are, then all,
   and then random ranks. */
static void choose_active(bool *active, int size, int i,
                          support_random_t *random)
{
    for (int r = 0; r < size; r++) {
        active[r] = i < size ? r == i : i == size;
        if (i >= size + 2) {
            active[r] = support_random_below(random, 3) == 0;
        }
    }
}

/* ---- every type and reduction ------------------------------------------ */

/* If only one rank contributes, its contribution comes back bit for bit,
   including a -0, even if the inner all-reduce adds the neutral elements of the
   other ranks. */
static void check_set(world_t *world, support_op_t op, support_random_t *random,
                      const bool *active, bool alone)
{
    static char data[LARGEST][BYTES];
    const baton_partial_options_t *o = &world->options;
    const size_t element = baton_dtype_size(o->dtype);
    char expected[BYTES];
    uint32_t count = 0;
    o->op->identity(NULL, expected, o->count, o->dtype);
    for (int r = 0; r < world->size; r++) {
        support_fill_exact(data[r], o->count, o->dtype, op, r, random);
        if (alone && o->count > 0 && reference_is_float(o->dtype)) {
            memset(data[r], 0, element);
            data[r][element - 1] = (char)0x80;
        }
        if (active[r] && count++ == 0) {
            memcpy(expected, data[r], BYTES);
        } else if (active[r]) {
            support_reduce(expected, data[r], o->count, o->dtype, op);
        }
    }
    support_divide(expected, o->count, o->dtype, op, world->size);
    run_epoch(world, active, data, BYTES);
    for (int r = 0; r < world->size; r++) {
        assert_int_equal(world->results[r].active, count);
        if (memcmp(world->results[r].data, expected, world->bytes) != 0) {
            fail_msg("rank %d of %d, %s of %s, %u active: wrong", r,
                     world->size, o->op->name, baton_dtype_name(o->dtype),
                     count);
        }
    }
}

static void run_types(int size, baton_allreduce_fn inner)
{
    support_random_t random = support_random(support_seed(), 5);
    for (int op = SUPPORT_SUM; op < SUPPORT_XOR; op++) {
        for (int dtype = 1; dtype < (int)BATON_DTYPE_COUNT; dtype++) {
            baton_partial_options_t options =
                options_of(inner, (size_t)dtype % 8, (baton_dtype_t)dtype);
            world_t world;
            options.op = support_op((support_op_t)op);
            if (!baton_op_takes(options.op, options.dtype)) {
                continue;
            }
            open_world(&world, size, &options);
            for (int i = 0; i < size + 8; i++) {
                bool active[LARGEST] = {false};
                choose_active(active, size, i, &random);
                check_set(&world, (support_op_t)op, &random, active, i < size);
            }
            close_world(&world);
        }
    }
}

/* Most inner algorithms do not know of inactive ranks, and reduce their neutral
   elements. */
TEST(test_every_type_and_reduction)
{
    baton_algorithm_t inner;
    for (int size = 1; size <= LARGEST; size += size < 9 ? 1 : 4) {
        run_types(size, baton_add_allreduce_binomial);
        run_types(size, NULL);
    }
    for (size_t i = 0; baton_algorithm_get(i, &inner); i++) {
        if (inner.collective == BATON_COLLECTIVE_ALLREDUCE) {
            run_types(3, inner.build.allreduce);
        }
    }
}

/* ---- order ------------------------------------------------------------- */

static void take_right(void *arg, void *target, const void *left,
                       const void *right, size_t count, baton_dtype_t dtype)
{
    memmove(target, right, count * baton_dtype_size(dtype));
}

/* Beyond a MiB a ring is used, unless the reduction does not commute. The
   operation here takes the right operand, so the result is the last rank's
   vector. */
TEST(test_the_order_of_operands_is_kept)
{
    enum { SIZE = 5, COUNT = (int)(BATON_PARTIAL_TREE_BYTES / 4) + 1 };
    const baton_op_t last = {
        .name = "last", .reduce = take_right, .identity = BATON_SUM->identity};
    float *data = support_alloc((size_t)SIZE * COUNT, sizeof *data);
    const bool all[SIZE] = {true, true, true, true, true};
    for (int i = 0; i < SIZE * COUNT; i++) {
        int rank = i / COUNT;
        data[i] = (float)(1 + rank);
    }
    for (int commutes = 0; commutes < 2; commutes++) {
        baton_partial_options_t options = options_of(NULL, COUNT, BATON_F32);
        world_t world;
        options.op = commutes == 1 ? BATON_SUM : &last;
        open_world(&world, SIZE, &options);
        run_epoch(&world, all, data, world.bytes);
        for (int i = 0; i < COUNT; i += COUNT - 1) {
            const float *sum = world.results[3].data;
            assert_true(sum[i] == (commutes == 1 ? 15.F : 5.F));
        }
        close_world(&world);
    }
    free(data);
}

/* ---- bytes ------------------------------------------------------------- */

/* Returns the bytes sent with all ranks active (one < 0), or with one alone. */
static uint64_t bytes_of(int size, size_t count, baton_allreduce_fn inner,
                         int one)
{
    const baton_partial_options_t options = options_of(inner, count, BATON_F32);
    world_t world;
    bool active[MOST];
    float *data = support_alloc((size_t)size * count, sizeof *data);
    uint64_t bytes = 0;
    open_world(&world, size, &options);
    for (int r = 0; r < size; r++) {
        active[r] = one < 0 || r == one;
    }
    run_epoch(&world, active, data, world.bytes);
    for (int r = 0; r < size; r++) {
        const baton_schedule_t *s = baton_partial_schedule(world.partials[r]);
        bytes += baton_schedule_sent(s).bytes;
    }
    close_world(&world);
    free(data);
    return bytes;
}

/* One rank's contribution goes up the tree to rank 0, and then in seven
   messages to the others. On one host, where one active rank is expected, the
   tree is the flat one, up to a MiB and 64 ranks. */
TEST(test_null_contributions_save_bytes)
{
    static const size_t counts[] = {1024, 262144}; /* 4 KiB, 1 MiB */
    baton_allreduce_fn binomial = baton_add_allreduce_binomial;
    for (size_t i = 0; i < 2; i++) {
        /* The count of active ranks is sent as one more element. */
        uint64_t n = (counts[i] + 1) * 4;
        assert_int_equal(bytes_of(8, counts[i], binomial, -1), 14 * n);
        assert_int_equal(bytes_of(8, counts[i], NULL, -1), 14 * n);
        for (int one = 0; one < 8; one++) {
            unsigned bits = (unsigned)one;
            uint64_t up = (bits & 1) + (bits >> 1 & 1) + (bits >> 2);
            assert_int_equal(bytes_of(8, counts[i], binomial, one),
                             (7 + up) * n);
            assert_int_equal(bytes_of(8, counts[i], NULL, one),
                             (one > 0 ? 8 : 7) * n);
        }
    }
    assert_int_equal(bytes_of(64, 1, NULL, 24), (63 + 1) * 8);
    assert_int_equal(bytes_of(65, 1, NULL, 24), (64 + 2) * 8);
}
