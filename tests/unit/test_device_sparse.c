/* Sparse all-reduces of gradients in device memory, on ranks with emulated
   devices. Selections, results and residuals have the same bits as in host
   memory. Other tests are about what is copied, the order of streams, and
   failures of a device. Properties that also hold in host memory are in
   sim/test_properties.c. */
#include "base/alloc.h"
#include "support/device_cluster.h"
#include "support/sparse.h"

#include <baton/sparse.h>
#include <math.h>
#include <unistd.h>

enum {
    RANKS = 8,
    MOST = 9000, /* the most elements of a gradient */
    STEPS = 6,
    WIDEST = 8, /* bytes of the largest element */
    BYTES = MOST * WIDEST
};

/* The kinds of gradients. */
typedef enum data {
    ANY,        /* any bits whose magnitude is below 2 */
    TIES,       /* only a few different magnitudes */
    NOT_FINITE, /* some elements are NaN or infinite */
    ZEROS,      /* most elements are zero */
    KINDS
} data_t;

/* Two sets of as many ranks, with and without devices. Each rank has a sparse
   all-reduce with the same options. */
typedef struct world {
    support_cluster_t *ranks, *hosts;
    support_sparse_t *device, *host;
    size_t bytes; /* bytes of a gradient */
} world_t;

/* For each step: the gradients, in main memory; the results of the ranks
   without devices, and whether they have entries; and the dense result on each
   device. */
static _Alignas(double) char gradients[STEPS][RANKS][BYTES];
static _Alignas(double) char expected[STEPS][BYTES];
static _Alignas(double) char found[STEPS][RANKS][BYTES];
static bool has_entries[STEPS];

/* ---- ranks on devices and the same number on the host ------------------- */

/* `variant` is one of those that device_cluster_open takes. */
static world_t world_open(int size, int variant)
{
    const emulated_options_t options = {
        .seed = support_seed(), .delay_us = 20, .workers = 1};
    return (world_t){.ranks = device_cluster_open(size, variant, &options),
                     .hosts = support_cluster_manual(size)};
}

static void world_close(const world_t *self)
{
    support_cluster_close(self->hosts);
    support_cluster_close(self->ranks);
}

/* ---- gradients --------------------------------------------------------- */

/* The NaN that is the sum of two infinities. Only one NaN is used, since the
   bits of a sum of two different ones are not defined (lib/ops/kernels.c). */
static uint64_t a_nan(baton_dtype_t dtype)
{
    uint64_t infinities[2] = {baton_magnitude_of(dtype, INFINITY)};
    size_t bytes = baton_dtype_size(dtype);
    infinities[1] = infinities[0] | UINT64_C(1) << (8 * bytes - 1);
    BATON_SUM->reduce(BATON_SUM->arg, &infinities[0], &infinities[0],
                      &infinities[1], 1, dtype);
    return infinities[0];
}

/* Returns the bits of an element. */
static uint64_t element_of(baton_dtype_t dtype, data_t data,
                           support_random_t *random)
{
    unsigned width = (unsigned)(8 * baton_dtype_size(dtype));
    uint64_t bits = support_random_next(random);
    uint64_t sign = (bits & 1) << (width - 1);
    uint64_t choice = support_random_below(random, 12);
    /* Without the highest bit of the exponent the element is below 2. */
    bits &= ~(UINT64_C(1) << (width - 2));
    if (data == TIES) {
        double magnitude = 0.25 * (double)(choice % 5);
        return baton_magnitude_of(dtype, magnitude) | sign;
    }
    if (data == ZEROS && choice > 0) {
        return sign; /* 0 or -0 */
    }
    if (data == NOT_FINITE && choice < 2) {
        return choice == 0 ? a_nan(dtype)
                           : baton_magnitude_of(dtype, INFINITY) | sign;
    }
    return bits;
}

static void fill(const world_t *self, data_t data)
{
    const size_t element = self->host->element;
    support_random_t random = support_random(support_seed(), 9);
    for (int i = 0; i < self->ranks->size * STEPS; i++) {
        for (size_t at = 0; at < self->bytes; at += element) {
            uint64_t bits =
                element_of(self->host->options.dtype, data, &random);
            memcpy(gradients[i % STEPS][i / STEPS] + at, &bits, element);
        }
    }
}

/* Creates both sets of sparse all-reduces, and the gradients of all steps. */
static void create(world_t *self, const baton_sparse_options_t *options,
                   data_t data)
{
    assert_in_range(options->count, 1, MOST);
    self->host = support_sparse_open_on(self->hosts, options);
    self->device = support_sparse_open_on(self->ranks, options);
    self->bytes = options->count * self->host->element;
    fill(self, data);
}

static void destroy(const world_t *self)
{
    support_sparse_close(self->device);
    support_sparse_close(self->host);
}

/* ---- steps ------------------------------------------------------------- */

static void start_step(const world_t *self, support_sparse_t *group, int step)
{
    for (int rank = 0; rank < group->size; rank++) {
        memcpy(support_sparse_gradient(group, rank), gradients[step][rank],
               self->bytes);
    }
    support_sparse_start(group);
}

static void run_on_host(const world_t *self, int step)
{
    start_step(self, self->host, step);
    support_sparse_wait(self->host);
    has_entries[step] = self->host->results[0].indices != NULL;
    memcpy(expected[step], self->host->dense, self->bytes);
}

static void run_on_hosts(const world_t *self)
{
    for (int step = 0; step < STEPS; step++) {
        run_on_host(self, step);
    }
}

/* Puts a step into the rank's stream: the gradient in, the result out. */
static void put_step(const world_t *self, int rank, int step)
{
    device_delay(self->ranks, rank, 30);
    support_sparse_put(self->device, rank, gradients[step][rank],
                       found[step][rank]);
}

/* Runs a step of all ranks without streams. */
static void run_step(const world_t *self, int step)
{
    start_step(self, self->device, step);
    support_sparse_wait(self->device);
    for (int rank = 0; rank < self->ranks->size; rank++) {
        support_ok(
            baton_sparse_dense(self->device->ranks[rank], found[step][rank]));
    }
}

/* Waits for the rank's stream and for its last step. */
static void wait_for(const world_t *self, int rank)
{
    baton_sparse_result_t result = {0};
    device_synchronise(self->ranks, rank);
    support_ok(
        baton_sparse_wait(self->device->ranks[rank], SUPPORT_WAIT_MS, &result));
}

/* ---- comparison -------------------------------------------------------- */

/* Only on a device a dense step adds a residual of zeros, so a -0 may be 0. */
static void drop_signs_of_zeros(const world_t *self, char *dense)
{
    static const char zeros[BYTES];
    BATON_SUM->reduce(BATON_SUM->arg, dense, dense, zeros,
                      self->host->options.count, self->host->options.dtype);
}

/* Compares a rank's step with that of the ranks without devices. */
static void check_step(const world_t *self, int rank, int step)
{
    if (!has_entries[step]) {
        drop_signs_of_zeros(self, expected[step]);
        drop_signs_of_zeros(self, found[step][rank]);
    }
    if (memcmp(expected[step], found[step][rank], self->bytes) != 0) {
        support_sparse_differs(self->device, "dense result", rank, step);
    }
}

/* Compares the last step of both sets. (support_sparse_wait has compared the
   ranks of a set.) */
static void check_entries(const world_t *self, int step)
{
    const baton_sparse_result_t *right = &self->host->results[0];
    const baton_sparse_result_t *mine = &self->device->results[0];
    if (right->count != mine->count ||
        (has_entries[step] &&
         !support_sparse_same(right, mine, self->host->element))) {
        support_sparse_differs(self->device, "list of entries", 0, step);
    }
}

static void check_residuals(const world_t *self)
{
    support_sparse_read_residuals(self->host);
    support_sparse_read_residuals(self->device);
    for (int rank = 0; rank < self->ranks->size; rank++) {
        if (memcmp(support_sparse_residual(self->host, rank),
                   support_sparse_residual(self->device, rank),
                   self->bytes) != 0) {
            support_sparse_differs(self->device, "residual", rank, STEPS);
        }
    }
}

/* Runs and compares all steps. If `in_flight` is true, it waits for no step
   before all are in the streams. */
static void compare(const world_t *self, bool in_flight)
{
    const int size = self->ranks->size;
    if (in_flight) {
        run_on_hosts(self);
    }
    for (int step = 0; step < STEPS; step++) {
        if (!in_flight) {
            run_on_host(self, step);
        }
        if (!in_flight && step % 2 == 1) {
            run_step(self, step);
            check_entries(self, step);
            continue;
        }
        for (int rank = 0; rank < size; rank++) {
            put_step(self, rank, step);
        }
        for (int rank = 0; rank < size && !in_flight; rank++) {
            wait_for(self, rank);
        }
    }
    for (int rank = 0; rank < size; rank++) {
        wait_for(self, rank);
        for (int step = 0; step < STEPS; step++) {
            check_step(self, rank, step);
        }
    }
    check_residuals(self);
}

/* ---- options ----------------------------------------------------------- */

enum { N = 601, K = 24 };

static const baton_sparse_algorithm_t algorithms[] = {
    BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA, BATON_SPARSE_REDSYNC,
    BATON_SPARSE_DENSE};

enum { ALGORITHMS = 4 };

static const baton_dtype_t dtypes[] = {BATON_F32, BATON_F64, BATON_F16,
                                       BATON_BF16};

static baton_sparse_options_t options_of(baton_sparse_algorithm_t algorithm)
{
    return (baton_sparse_options_t){.size = sizeof(baton_sparse_options_t),
                                    .algorithm = algorithm,
                                    .count = N,
                                    .dtype = BATON_F32,
                                    .k = K};
}

static baton_sparse_options_t sized(baton_sparse_algorithm_t algorithm,
                                    size_t count, size_t k)
{
    baton_sparse_options_t options = options_of(algorithm);
    options.count = count;
    options.k = k;
    return options;
}

/* ---- one rank ---------------------------------------------------------- */

/* A rank with its memory and its stream. */
typedef struct alone {
    world_t world;
    emulated_t *device;
    baton_sparse_t *sparse;
    baton_stream_t stream;
    char *gradient, *sum; /* in device memory */
    size_t bytes;         /* bytes of a gradient */
} alone_t;

static void create_alone(alone_t *self, const baton_sparse_options_t *options)
{
    create(&self->world, options, ANY);
    self->sparse = self->world.device->ranks[0];
    self->bytes = self->world.bytes;
    self->gradient = self->world.device->there[0];
    self->sum = self->gradient + self->bytes;
    emulated_write(self->device, self->gradient, gradients[0][0], self->bytes);
}

static alone_t open_alone(int variant, const baton_sparse_options_t *options)
{
    alone_t self = {.world = world_open(1, variant)};
    self.device = self.world.ranks->devices[0];
    self.stream = self.world.ranks->streams[0];
    create_alone(&self, options);
    return self;
}

static void close_alone(const alone_t *self)
{
    destroy(&self->world);
    world_close(&self->world);
}

static void destroy_alone(const alone_t *self)
{
    support_ok(baton_sparse_destroy(self->sparse));
    self->world.device->ranks[0] = NULL;
}

/* Puts a step into the stream, without a target for its result. */
static void put_alone(const alone_t *self)
{
    support_ok(
        baton_sparse_start_on(self->sparse, self->stream, self->gradient));
    support_ok(baton_sparse_wait_on(self->sparse, self->stream, NULL));
    emulated_synchronise(self->device, self->stream);
}

static void wait_alone(const alone_t *self, baton_status_t status)
{
    baton_sparse_result_t result = {0};
    support_expect(baton_sparse_wait(self->sparse, SUPPORT_WAIT_MS, &result),
                   status);
}

/* ---- the bits of the host ---------------------------------------------- */

/* Runs some steps. Copies to and from the device are small compared to the
   gradients, and nothing is allocated. */
static void expect_entries_alone(world_t *world,
                                 const baton_sparse_options_t *options)
{
    emulated_t *device = world->ranks->devices[0];
    create(world, options, ANY);
    emulated_counters_t before = emulated_counters(device);
    int64_t allocations = baton__alloc_count();
    for (int step = 0; step < STEPS; step++) {
        run_step(world, step);
    }
    assert_int_equal(baton__alloc_count(), allocations);
    emulated_counters_t after = emulated_counters(device);
    uint64_t most = STEPS * world->bytes / 20;
    assert_true(after.on_entries > before.on_entries);
    for (int i = 0; i < EMULATED_DIRECTIONS; i++) {
        assert_in_range(after.copied_bytes[i] - before.copied_bytes[i], 0,
                        most);
    }
    assert_int_equal(after.unpinned, before.unpinned);
    destroy(world);
}

/* RedSync with each of its selections, with and without quantisation. */
TEST(test_entries_alone_are_copied)
{
    world_t world = world_open(2, SUPPORT_OWN_ENGINES);
    for (int i = 0; i < 9; i++) {
        baton_sparse_options_t options =
            sized(algorithms[i < 2 ? i : 2], 5000, 10);
        options.redsync =
            i < 2 ? BATON_REDSYNC_EXACT : (baton_redsync_t)((i - 2) % 4);
        options.quantise = i >= 6 && options.redsync != BATON_REDSYNC_SAMPLED;
        expect_entries_alone(&world, &options);
    }
    world_close(&world);
}

/* Returns random options that the algorithm allows. */
static baton_sparse_options_t any_options(support_random_t *random, int size)
{
    static const size_t counts[] = {1, 2, 7, 64, 600, 5000, MOST};
    size_t count = 1 + support_random_below(
                           random, counts[support_random_below(random, 7)]);
    size_t share = 1 + support_random_below(random, 40);
    baton_sparse_options_t options =
        sized(algorithms[support_random_below(random, ALGORITHMS)], count,
              (count + share - 1) / share);
    options.dtype = dtypes[support_random_below(random, 4)];
    options.average = support_random_below(random, 2) != 0;
    options.warmup = support_random_below(random, 4) == 0 ? 1 : 0;
    options.clip = support_random_below(random, 3) == 0 ? 5 : 0;
    if (support_random_below(random, 3) == 0) {
        options.momentum = 0.9;
        options.nesterov = support_random_below(random, 2) != 0;
    }
    if (options.algorithm == BATON_SPARSE_SPARDL && size > 1) {
        options.teams = support_random_below(random, 2) == 0 ? size : 1;
        options.teams = size == 8 ? 4 : options.teams;
        options.exchange =
            (baton_exchange_t)(support_random_below(random, 2) == 0
                                   ? BATON_EXCHANGE_AUTO
                                   : BATON_EXCHANGE_BSAG);
    }
    if (options.algorithm == BATON_SPARSE_REDSYNC) {
        options.redsync = (baton_redsync_t)support_random_below(random, 4);
        options.quantise = options.redsync != BATON_REDSYNC_SAMPLED &&
                           support_random_below(random, 2) != 0;
    }
    return options;
}

/* Flushes both residuals. The velocity stays as it is. */
static void flush_both(const world_t *world)
{
    support_sparse_t *const both[] = {world->host, world->device};
    for (int i = 0; i < 2 * world->ranks->size; i++) {
        support_ok(baton_sparse_flush(both[i % 2]->ranks[i / 2]));
    }
    support_sparse_wait(world->host);
    support_sparse_wait(world->device);
    assert_memory_equal(world->host->results[0].values,
                        world->device->results[0].values, world->bytes);
    check_residuals(world);
}

TEST(test_random_options_and_data)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    support_random_t random = support_random(support_seed(), 31);
    for (int i = 0; i < 5; i++) {
        world_t world = world_open(sizes[i], SUPPORT_OWN_ENGINES);
        for (int trial = 0; trial < 20; trial++) {
            baton_sparse_options_t options = any_options(&random, sizes[i]);
            create(&world, &options, (data_t)(trial % KINDS));
            compare(&world, trial % 2 == 0);
            if (trial % 4 == ANY) {
                flush_both(&world);
                compare(&world, true);
            }
            destroy(&world);
        }
        world_close(&world);
    }
}

/* ---- between steps ----------------------------------------------------- */

/* The f32 elements of one rank. They have the same magnitude, except for one in
   `every`, which is large. So either all of the others reach a threshold, or
   none. */
static void fill_with(size_t count, int step, size_t every, float value)
{
    for (size_t i = 0; i < count; i++) {
        float element = i % every == 0 ? 64 : value;
        element = i % 3 == 0 ? -element : element;
        memcpy(gradients[step][0] + i * sizeof element, &element,
               sizeof element);
    }
}

static void path_of(char path[64], int rank)
{
    snprintf(path, 64, "/tmp/baton-selection-%d-%d", (int)getpid(), rank);
}

/* A file replaces the state on the device: a later step is undone, and a new
   object, which has made no step, gets the state. If the algorithm has
   thresholds, step 2 searches one: more elements reach the earlier threshold
   than there is memory for. */
static void go_back(const baton_sparse_options_t *options)
{
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, options);
    static char before[BYTES], after[BYTES];
    char path[64];
    fill_with(options->count, 2, 2, 32);
    path_of(path, 0);
    run_step(&self.world, 0);
    support_ok(baton_sparse_save(self.sparse, path));
    run_step(&self.world, 1);
    support_ok(baton_sparse_residual(self.sparse, before));
    run_step(&self.world, 2);
    for (int made = 0; made < 2; made++) {
        if (made == 1) {
            destroy(&self.world);
            create_alone(&self, options);
        }
        support_ok(baton_sparse_load(self.sparse, path));
        run_step(&self.world, 1);
        support_ok(baton_sparse_residual(self.sparse, after));
        assert_memory_equal(before, after, self.bytes);
    }
    assert_int_equal(remove(path), 0);
    close_alone(&self);
}

TEST(test_load_goes_back)
{
    for (int i = 0; i < 3; i += 2) { /* SparDL and RedSync */
        baton_sparse_options_t options = sized(algorithms[i], 300, 20);
        options.momentum = 0.5;
        options.redsync = i == 0 ? BATON_REDSYNC_EXACT : BATON_REDSYNC_SAMPLED;
        go_back(&options);
    }
}

/* A failed copy leaves the state as it was, and the next copy works. */
TEST(test_failed_copy)
{
    baton_sparse_options_t options = sized(BATON_SPARSE_TOPKA, 300, 20);
    static char before[BYTES], after[BYTES];
    char path[64];
    options.momentum = 0.5;
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    path_of(path, 0);
    run_step(&self.world, 0);
    support_ok(baton_sparse_save(self.sparse, path));
    run_step(&self.world, 1);
    support_ok(baton_sparse_residual(self.sparse, before));
    for (int k = 1; k <= 3; k++) {
        emulated_fail_work(self.device, k < 3 ? k : 1);
        support_fails(k < 3 ? baton_sparse_load(self.sparse, path)
                            : baton_sparse_residual(self.sparse, after),
                      BATON_ERR_SYSTEM,
                      "a vector on the device can't be copied");
        emulated_repair(self.device);
        support_ok(baton_sparse_residual(self.sparse, after));
        assert_memory_equal(before, after, self.bytes);
    }
    assert_int_equal(remove(path), 0);
    close_alone(&self);
}

/* The device refuses the k-th piece of work of a step. Returns false if the
   step has fewer pieces. */
static bool refuse_work(const baton_sparse_options_t *options, int k)
{
    static char before[BYTES], after[BYTES];
    baton_sparse_result_t result;
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, options);
    run_step(&self.world, 0);
    support_ok(baton_sparse_residual(self.sparse, before));
    emulated_fail_submit(self.device, k);
    support_ok(baton_sparse_start(self.sparse, self.gradient));
    baton_status_t status =
        baton_sparse_wait(self.sparse, SUPPORT_WAIT_MS, &result);
    emulated_repair(self.device);
    if (status != BATON_OK) {
        assert_int_equal(status, BATON_ERR_SYSTEM);
        support_ok(baton_sparse_residual(self.sparse, after));
        assert_memory_equal(before, after, self.bytes);
    }
    close_alone(&self);
    return status != BATON_OK;
}

/* If the device refuses any piece of work, the step fails, and the residual is
   as before. */
TEST(test_refused_work)
{
    for (int i = 0; i < 2; i++) { /* SparDL and TopkA */
        baton_sparse_options_t options = sized(algorithms[i], 300, 20);
        int k = 1;
        options.momentum = 0.5;
        options.clip = 0.5;
        while (refuse_work(&options, k)) {
            k++;
        }
        assert_true(k > 10);
    }
}

/* ---- order ------------------------------------------------------------- */

/* The first sparse step is put into the stream right after the last dense step
   of the warm-up, which belongs to the other schedule. The sparse step begins
   only after the dense one has ended. */
TEST(test_warm_up_ends_in_flight)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    static char dense[BYTES];
    options.warmup = 1;
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    char *const there[] = {self.gradient, self.sum};
    for (int step = 0; step < 2; step++) {
        run_on_host(&self.world, step);
        emulated_write(self.device, there[step], gradients[step][0],
                       self.bytes);
    }
    for (int step = 0; step < 2; step++) {
        support_ok(
            baton_sparse_start_on(self.sparse, self.stream, there[step]));
    }
    wait_alone(&self, BATON_OK);
    support_ok(baton_sparse_dense(self.sparse, dense));
    assert_memory_equal(dense, expected[1], self.bytes);
    close_alone(&self);
}

/* Only destroy makes the engine progress here. It lets the steps in flight end
   before it frees anything, and their results are right. */
TEST(test_destroy_in_flight)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    alone_t self = open_alone(SUPPORT_OWN_MANUAL, &options);
    run_on_hosts(&self.world);
    for (int step = 0; step < STEPS; step++) {
        put_step(&self.world, 0, step);
    }
    destroy_alone(&self);
    emulated_synchronise(self.device, self.stream);
    for (int step = 0; step < STEPS; step++) {
        check_step(&self.world, 0, step);
    }
    close_alone(&self);
}

/* Steps that the stream does not reach within BATON_DESTROY_MS are
   cancelled. */
TEST(test_destroy_behind_gate)
{
    support_set_variable("BATON_DESTROY_MS", "40");
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    device_gate_t gate = device_gate(self.world.ranks, 0);
    device_gate_close(&gate);
    for (int step = 0; step < 2; step++) {
        put_step(&self.world, 0, step);
    }
    destroy_alone(&self);
    device_gate_open(&gate);
    emulated_synchronise(self.device, self.stream);
    device_gate_destroy(&gate);
    close_alone(&self);
    support_set_variable("BATON_DESTROY_MS", NULL);
}

/* ---- failures ---------------------------------------------------------- */

/* A step fails, and the group is recovered before the program asks for the end
   of the step. The vector for the result is unchanged. This is tested with and
   without earlier steps. */
static void target_after_recovery(int steps)
{
    static char kept[BYTES], now[BYTES];
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    char *sum = self.sum;
    for (int step = 0; step < steps; step++) {
        run_step(&self.world, step);
        support_ok(baton_sparse_wait_on(self.sparse, self.stream, sum));
    }
    emulated_synchronise(self.device, self.stream);
    memset(kept, 0x5a, sizeof kept);
    emulated_write(self.device, sum, kept, self.bytes);
    emulated_fail_work(self.device, 1);
    put_alone(&self);
    emulated_repair(self.device);
    support_cluster_recover(self.world.ranks);
    support_ok(baton_sparse_wait_on(self.sparse, self.stream, sum));
    emulated_synchronise(self.device, self.stream);
    emulated_read(self.device, now, sum, self.bytes);
    assert_memory_equal(now, kept, self.bytes);
    close_alone(&self);
}

TEST(test_target_after_recovery)
{
    target_after_recovery(0);
    target_after_recovery(2);
}

static void count_line(void *arg, baton_log_level_t level, const char *message)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

/* The failure of a copy is returned once, whether it was the last copy or the
   one before. Nothing is logged if all results were copied. */
TEST(test_failed_copy_of_a_result)
{
    static _Atomic int lines;
    baton_log_set(count_line, &lines);
    for (int failing = 1; failing <= 2; failing++) {
        baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
        alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
        for (int step = 0; step < 3; step++) {
            put_alone(&self);
            emulated_fail_work(self.device, step == failing ? 1 : 0);
            support_ok(
                baton_sparse_wait_on(self.sparse, self.stream, self.sum));
            emulated_synchronise(self.device, self.stream);
            emulated_repair(self.device);
            if (step == 0) {
                int before = atomic_load(&lines);
                wait_alone(&self, BATON_OK);
                assert_int_equal(atomic_load(&lines), before);
            }
        }
        wait_alone(&self, BATON_ERR_SYSTEM);
        support_says("a result was not copied");
        wait_alone(&self, BATON_OK);
        close_alone(&self);
    }
    baton_log_set(NULL, NULL);
}

/* The last step of the warm-up fails. The next step, which belongs to the other
   schedule and comes after it in the stream, fails, too. */
TEST(test_failure_ends_warm_up)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    options.warmup = 1;
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    emulated_fail_work(self.device, 1);
    put_alone(&self);
    emulated_repair(self.device);
    support_ok(baton_sparse_start_on(self.sparse, self.stream, self.gradient));
    wait_alone(&self, BATON_ERR_SYSTEM);
    support_says("the step before it has failed");
    support_cluster_recover(self.world.ranks);
    compare(&self.world, true);
    close_alone(&self);
}

/* ---- wrong use --------------------------------------------------------- */

TEST(test_wrong_use)
{
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    alone_t self = open_alone(SUPPORT_OWN_ENGINES, &options);
    baton_stream_t stream = self.stream;
    baton_sparse_t *sparse = self.sparse, *host = NULL;
    device_gate_t gate = device_gate(self.world.ranks, 0);
    static float here[N];
    support_expect(baton_sparse_start_on(NULL, stream, self.gradient),
                   BATON_ERR_INVALID);
    support_fails(baton_sparse_start_on(sparse, stream, here),
                  BATON_ERR_INVALID,
                  "the gradient must be 601 elements of device memory");
    support_expect(baton_sparse_wait_on(sparse, stream, self.sum),
                   BATON_ERR_STATE);
    support_fails(baton_sparse_wait_on(sparse, stream, here), BATON_ERR_INVALID,
                  "the vector must be 601 elements of device memory");

    put_alone(&self);
    wait_alone(&self, BATON_OK);
    device_gate_close(&gate);
    support_ok(baton_sparse_wait_on(sparse, stream, self.sum));
    /* A step waits until the result of the last one has been copied. */
    baton_sparse_result_t result = {0};
    support_ok(baton_sparse_start(sparse, self.gradient));
    support_expect(baton_sparse_wait(sparse, 20, &result), BATON_ERR_TIMEOUT);
    device_gate_open(&gate);
    wait_alone(&self, BATON_OK);
    emulated_synchronise(self.device, stream);
    device_gate_destroy(&gate);
    destroy(&self.world);

    support_ok(baton_sparse_create(self.world.ranks->groups[0], &options,
                                   SUPPORT_WAIT_MS, &host));
    support_fails(baton_sparse_start_on(host, stream, here),
                  BATON_ERR_UNSUPPORTED, "must be BATON_MEMORY_DEVICE");
    support_expect(baton_sparse_wait_on(host, stream, NULL),
                   BATON_ERR_UNSUPPORTED);
    support_ok(baton_sparse_destroy(host));
    world_close(&self.world);
}

static void expect_refused(support_cluster_t *cluster,
                           const baton_sparse_options_t *options,
                           baton_status_t status, const char *message)
{
    baton_sparse_t *sparse = NULL;
    support_fails(baton_sparse_create(cluster->groups[0], options,
                                      SUPPORT_WAIT_MS, &sparse),
                  status, message);
}

TEST(test_refused_options)
{
    static const baton_sparse_algorithm_t of_the_host[] = {
        BATON_SPARSE_TOPKDSA, BATON_SPARSE_GTOPK, BATON_SPARSE_OKTOPK};
    world_t world = world_open(1, SUPPORT_OWN_ENGINES);
    support_cluster_t *cluster = world.ranks;
    baton_sparse_options_t options;
    for (int i = 0; i < 3; i++) {
        options = options_of(of_the_host[i]);
        options.memory = BATON_MEMORY_DEVICE;
        expect_refused(cluster, &options, BATON_ERR_UNSUPPORTED,
                       "allowed with algorithms auto, spardl, topka, redsync");
    }
    options = options_of(BATON_SPARSE_SPARDL);
    options.memory = BATON_MEMORY_DEVICE;
    options.partial = true;
    expect_refused(cluster, &options, BATON_ERR_UNSUPPORTED,
                   "allowed with options.partial: BATON_MEMORY_HOST");
    options.partial = false;
    expect_refused(world.hosts, &options, BATON_ERR_UNSUPPORTED, "no device");
    options.memory = (baton_memory_t)2;
    expect_refused(cluster, &options, BATON_ERR_INVALID, "memory is 2");
    world_close(&world);
}

TEST(test_device_without_selection)
{
    const emulated_options_t kind = {.seed = support_seed(),
                                     .no_selection = true};
    support_cluster_t *ranks =
        device_cluster_open(1, SUPPORT_OWN_ENGINES, &kind);
    baton_sparse_options_t options = options_of(BATON_SPARSE_SPARDL);
    options.memory = BATON_MEMORY_DEVICE;
    expect_refused(ranks, &options, BATON_ERR_UNSUPPORTED,
                   "the device cannot select");
    support_cluster_close(ranks);
}

/* Here the cheapest algorithm is gTopk, which does not run on devices. */
enum { SIZE = 8 };

TEST_WITH(test_choice_is_for_devices, SIZE, SUPPORT_DEVICES)
{
    baton_sparse_t *made[SIZE] = {NULL};
    baton_sparse_cost_t cost = {0};
    baton_sparse_options_t options = sized(BATON_SPARSE_AUTO, 100, 1);
    options.link = (baton_link_cost_t){.alpha_us = 1e-9, .beta_ns = 1};
    support_ok(baton_sparse_cost(&options, SIZE, &cost));
    assert_int_equal(cost.algorithm, BATON_SPARSE_GTOPK);
    options.memory = BATON_MEMORY_DEVICE;
    support_ok(baton_sparse_cost(&options, SIZE, &cost));
    assert_int_equal(cost.algorithm, BATON_SPARSE_TOPKA);
    for (int rank = 0; rank < SIZE; rank++) {
        options.memory = (baton_memory_t)(rank > 0);
        support_ok(
            baton_sparse_prepare(cluster->groups[rank], &options, &made[rank]));
    }
    for (int rank = 0; rank < SIZE; rank++) {
        support_fails(baton_sparse_connect(made[rank], SUPPORT_WAIT_MS),
                      BATON_ERR_MISMATCH, "has memory 0");
        support_ok(baton_sparse_destroy(made[rank]));
    }
}
