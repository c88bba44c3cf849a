/* Sets of tensors in the simulator: how each tensor is reduced, and every
   feature, compared with a plain implementation. Values are integers and binary
   fractions, so sums are exact. */
#include "support/collective.h"
#include "support/sim.h"

#include <baton/costs.h>
#include <math.h>
#include <unistd.h>

enum {
    TENSORS = 5,
    MOST_RANKS = 5,
    MOST_SIZE = 8,
    MOST_COUNT = 300,
    STEPS = 7
};

static const baton_tensor_t model[TENSORS] = {
    {"conv", BATON_ROLE_CONVOLUTION, 300},
    {"bias", BATON_ROLE_BIAS_OR_NORM, 40},
    {"hidden", BATON_ROLE_RECURRENT, 200},
    {"small", BATON_ROLE_DENSE, 7},
    {"softmax", BATON_ROLE_OUTPUT, 129},
};

/* ---- all ranks --------------------------------------------------------- */

typedef struct world {
    baton_sim_t *sim;
    int size;
    baton_tensors_t *sets[MOST_SIZE];
    double gradients[MOST_RANKS][TENSORS][MOST_COUNT];
} world_t;

static baton_tensors_options_t some_options(void)
{
    baton_tensors_options_t options = BATON_TENSORS_OPTIONS;
    options.dtype = BATON_F64;
    options.density = 0.02;
    options.small_bytes = 100;
    options.algorithm = BATON_SPARSE_REDSYNC;
    options.always_sparse = true;
    return options;
}

/* The calibration file of rank 1; NULL: as on the others. */
static const char *calibration_of_1;

/* Prepares a set on each rank. Rank 1 gives the options `others`. */
static world_t *prepare_world(int size, const baton_tensor_t *tensors,
                              size_t count,
                              const baton_tensors_options_t *options,
                              const baton_tensors_options_t *others)
{
    baton_sim_options_t sim = support_sim_options(size);
    world_t *world = calloc(1, sizeof *world);
    world->sim = support_sim_open(&sim);
    world->size = size;
    for (int r = 0; r < size; r++) {
        support_set_variable("BATON_CALIBRATION",
                             r == 1 ? calibration_of_1 : NULL);
        support_ok(baton_tensors_prepare(
            baton_sim_group(world->sim, r), tensors, count,
            r == 1 ? others : options, &world->sets[r]));
    }
    support_set_variable("BATON_CALIBRATION", NULL);
    return world;
}

static world_t *open_with(int size, const baton_tensor_t *tensors, size_t count,
                          const baton_tensors_options_t *options)
{
    world_t *world = prepare_world(size, tensors, count, options, options);
    for (int i = 0; i < 2 * size; i++) {
        support_ok(i < size ? baton_tensors_agree(world->sets[i], -1)
                            : baton_tensors_connect(world->sets[i - size], -1));
    }
    return world;
}

static world_t *open_world(int size, const baton_tensors_options_t *options)
{
    return open_with(size, model, TENSORS, options);
}

static void close_world(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        support_ok(baton_tensors_destroy(world->sets[r]));
    }
    support_ok(baton_sim_destroy(world->sim));
    free(world);
}

/* Waits for a rank's result of a tensor, and writes all of its elements. */
static baton_sparse_result_t wait_dense(const world_t *world, int rank,
                                        size_t t, double *vector)
{
    baton_sparse_result_t result;
    double written[MOST_COUNT];
    support_ok(baton_tensors_wait(world->sets[rank], t, -1, &result));
    support_dense_of(&result, model[t].count, vector);
    memset(written, 0x55, sizeof written);
    support_ok(baton_tensors_dense(world->sets[rank], t, written));
    assert_memory_equal(written, vector, model[t].count * sizeof *vector);
    return result;
}

static double random_sign(support_random_t *random)
{
    return support_random_below(random, 2) == 0 ? 1 : -1;
}

static void fill(world_t *world, bool ones, support_random_t *random)
{
    for (int r = 0; r < world->size; r++) {
        for (int t = 0; t < TENSORS; t++) {
            for (size_t i = 0; i < model[t].count; i++) {
                world->gradients[r][t][i] =
                    ones ? random_sign(random)
                         : (double)support_random_below(random, 2001) - 1000;
            }
        }
    }
}

/* Each rank makes the tensors ready in a different order. */
static void make_ready(world_t *world)
{
    for (int r = 0; r < world->size; r++) {
        for (int i = 0; i < TENSORS; i++) {
            size_t t =
                (size_t)((i * (r % 2 == 0 ? 1 : TENSORS - 1) + r) % TENSORS);
            support_ok(
                baton_tensors_ready(world->sets[r], t, world->gradients[r][t]));
        }
    }
}

/* ---- a plain implementation -------------------------------------------- */

typedef struct plain {
    const baton_tensors_options_t *options;
    int size;
    double residual[MOST_RANKS][TENSORS][MOST_COUNT];
    double velocity[MOST_RANKS][TENSORS][MOST_COUNT];
} plain_t;

static bool plain_packs(const plain_t *plain, int t)
{
    return model[t].role == BATON_ROLE_BIAS_OR_NORM ||
           model[t].count * sizeof(double) <= plain->options->small_bytes;
}

static double plain_factor(const plain_t *plain, const world_t *world, int r)
{
    double sum = 0;
    double most = plain->options->clip / sqrt(plain->size);
    for (int t = 0; t < TENSORS; t++) {
        for (size_t i = 0; i < model[t].count; i++) {
            sum += world->gradients[r][t][i] * world->gradients[r][t][i];
        }
    }
    return plain->options->clip > 0 && sqrt(sum) > most ? most / sqrt(sum) : 1;
}

/* Adds the gradient's contribution to the residual, and advances the
   velocity. */
static void plain_accumulate(plain_t *plain, const world_t *world, int r, int t,
                             double factor)
{
    double m = plain->options->momentum;
    for (size_t i = 0; i < model[t].count; i++) {
        double g = factor * world->gradients[r][t][i];
        double *u = &plain->velocity[r][t][i];
        if (plain->options->nesterov) {
            *u = m * (*u + g);
            plain->residual[r][t][i] += *u + g;
        } else {
            *u = m * *u + g;
            plain->residual[r][t][i] += *u;
        }
    }
}

static double plain_magnitude(double value, int side)
{
    return side == 0 ? fabs(value) : side * value;
}

/* Returns the index of the largest value that was not taken; of equal ones, the
   first. SIZE_MAX: there is none. */
static size_t plain_largest(const double *values, const bool *taken,
                            size_t count, int side)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        double magnitude = plain_magnitude(values[i], side);
        if (!taken[i] && magnitude > 0 &&
            (best == SIZE_MAX ||
             magnitude > plain_magnitude(values[best], side))) {
            best = i;
        }
    }
    return best;
}

/* Selects the largest elements of a rank's residual, and adds them to `sum`. */
static void plain_send(plain_t *plain, int r, int t, int step, size_t k,
                       double *sum)
{
    const baton_tensors_options_t *o = plain->options;
    bool quantise = o->quantise && model[t].role != BATON_ROLE_OUTPUT;
    int side = quantise * (step % 2 == 0 ? 1 : -1);
    bool taken[MOST_COUNT] = {false};
    double *residual = plain->residual[r][t];
    double mean = 0;
    size_t count = 0;
    for (; count < k; count++) {
        size_t i = plain_largest(residual, taken, model[t].count, side);
        if (i == SIZE_MAX) {
            break;
        }
        taken[i] = true;
        mean += residual[i];
    }
    mean = count > 0 ? mean / (double)count : 0;
    for (size_t i = 0; i < model[t].count; i++) {
        if (taken[i]) {
            sum[i] += quantise ? mean : residual[i];
            residual[i] = 0;
            plain->velocity[r][t][i] = 0;
        }
    }
}

static void plain_send_all(plain_t *plain, int r, int t, double *sum)
{
    for (size_t i = 0; i < model[t].count; i++) {
        sum[i] += plain->residual[r][t][i];
        plain->residual[r][t][i] = 0;
    }
}

static void plain_step(plain_t *plain, const world_t *world, int t, int step,
                       double *sum)
{
    const baton_tensors_options_t *o = plain->options;
    bool warm = (uint64_t)step < o->warmup;
    double density = o->density;
    if (warm && o->density_count > 0) {
        density = o->densities[(size_t)step * o->density_count / o->warmup];
    }
    size_t k = (size_t)((double)model[t].count * density);
    bool dense = plain_packs(plain, t) || (warm && o->density_count == 0);
    memset(sum, 0, model[t].count * sizeof *sum);
    for (int r = 0; r < plain->size; r++) {
        plain_accumulate(plain, world, r, t, plain_factor(plain, world, r));
        if (dense) {
            plain_send_all(plain, r, t, sum);
        } else {
            plain_send(plain, r, t, step, k > 0 ? k : 1, sum);
        }
    }
    for (size_t i = 0; o->average && i < model[t].count; i++) {
        sum[i] = dense ? sum[i] / plain->size : sum[i] * (1.0 / plain->size);
    }
}

/* ---- features ---------------------------------------------------------- */

static void expect_step(world_t *world, plain_t *plain, int step)
{
    double expected[MOST_COUNT], actual[MOST_COUNT];
    for (int t = 0; t < TENSORS; t++) {
        plain_step(plain, world, t, step, expected);
        for (int r = 0; r < world->size; r++) {
            (void)wait_dense(world, r, (size_t)t, actual);
            for (size_t i = 0; i < model[t].count; i++) {
                if (!(actual[i] == expected[i])) {
                    fail_msg("step %d, rank %d of %d, %s[%zu]: %.17g, expected "
                             "%.17g",
                             step, r, world->size, model[t].name, i, actual[i],
                             expected[i]);
                }
            }
        }
    }
}

/* Gradients that are clipped have elements of +-1. So their norm is that of 676
   elements, 26, and factors are powers of two on 1 and 4 ranks. */
static void compare(const baton_tensors_options_t *options)
{
    support_random_t random = support_random(support_seed(), 4);
    bool clips = options->clip > 0;
    for (int size = 1; size <= MOST_RANKS; size += clips ? 3 : 1) {
        world_t *world = open_world(size, options);
        plain_t *plain = calloc(1, sizeof *plain);
        plain->options = options;
        plain->size = size;
        for (int step = 0; step < STEPS; step++) {
            fill(world, clips, &random);
            assert_true(!clips || plain_factor(plain, world, 0) ==
                                      (size == 1 ? 0.5 : 0.25));
            make_ready(world);
            expect_step(world, plain, step);
        }
        free(plain);
        close_world(world);
    }
}

TEST(test_tensors_are_those_of_plain_arithmetic)
{
    static const double densities[] = {0.25, 0.0625, 0.03};
#define WITH(...)                                                              \
    {                                                                          \
        .size = sizeof(baton_tensors_options_t), .dtype = BATON_F64,           \
        .algorithm = BATON_SPARSE_REDSYNC, .always_sparse = true, __VA_ARGS__  \
    }
    static const baton_tensors_options_t all[] = {
        WITH(.density = 0.02, .small_bytes = 100),
        /* SAMPLED and SEARCH may send more, so here all tensors are packed. */
        WITH(.density = 0.02, .small_bytes = 1 << 20, .paper_selections = true),
        WITH(.density = 0.02, .small_bytes = 100, .momentum = 0.5),
        WITH(.density = 0.02, .small_bytes = 100, .momentum = 0.5,
             .nesterov = true),
        WITH(.density = 0.02, .small_bytes = 100, .clip = 13),
        WITH(.density = 0.02, .small_bytes = 100, .average = true),
        WITH(.density = 0.02, .small_bytes = 100, .momentum = 0.5, .warmup = 3),
        WITH(.density = 0.02, .small_bytes = 100, .warmup = 5,
             .densities = densities, .density_count = 3),
        /* k is 4, 2 and 1, so that means are exact. */
        WITH(.density = 0.0135, .small_bytes = 100, .quantise = true),
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        compare(&all[i]);
    }
}

/* ---- decisions --------------------------------------------------------- */

static baton_tensor_plan_t plan_of(const baton_tensor_t *tensor,
                                   const baton_tensors_options_t *options,
                                   int size)
{
    world_t *world = open_with(size, tensor, 1, options);
    baton_tensor_plan_t plan;
    support_ok(baton_tensors_plan(world->sets[size - 1], 0, &plan));
    close_world(world);
    return plan;
}

TEST(test_tensors_policy_is_the_papers)
{
    static const struct {
        baton_role_t role;
        size_t count;
        bool quantise, quantised;
        baton_tensor_form_t form;
        baton_redsync_t selection;
    } all[] = {
        {BATON_ROLE_BIAS_OR_NORM, 100000, 0, 0, BATON_TENSOR_PACKED, 0},
        {BATON_ROLE_CONVOLUTION, 32768, 0, 0, BATON_TENSOR_PACKED, 0},
        {BATON_ROLE_CONVOLUTION, 32769, 0, 0, BATON_TENSOR_SPARSE,
         BATON_REDSYNC_TRIMMED},
        {BATON_ROLE_CONVOLUTION, 32769, 1, 1, BATON_TENSOR_SPARSE,
         BATON_REDSYNC_TRIMMED},
        {BATON_ROLE_RECURRENT, 40000, 0, 0, BATON_TENSOR_SPARSE,
         BATON_REDSYNC_SAMPLED},
        {BATON_ROLE_DENSE, 40000, 1, 1, BATON_TENSOR_SPARSE,
         BATON_REDSYNC_SEARCH},
        {BATON_ROLE_OUTPUT, 40000, 1, 0, BATON_TENSOR_SPARSE,
         BATON_REDSYNC_SAMPLED},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const baton_tensor_t tensor = {"layer", all[i].role, all[i].count};
        baton_tensors_options_t options = BATON_TENSORS_OPTIONS;
        options.paper_selections = true;
        options.always_sparse = true;
        options.quantise = all[i].quantise;
        baton_tensor_plan_t plan = plan_of(&tensor, &options, 2);
        assert_int_equal(plan.form, all[i].form);
        assert_int_equal(plan.selection, all[i].selection);
        assert_int_equal(plan.quantise, all[i].quantised);
    }
}

static void expect_near(double actual, double expected)
{
    if (!(fabs(actual - expected) <= 1e-12 * expected)) {
        fail_msg("%.17g, expected %.17g", actual, expected);
    }
}

/* Equations 1 and 2 of the paper for 8 ranks on 8 hosts, where lg P = 3. */
TEST(test_tensors_choose_by_cost)
{
    static const baton_tensor_t tensor = {"layer", BATON_ROLE_DENSE, 1000000};
    baton_costs_t costs = BATON_COSTS;
    support_ok(baton_costs_get(&costs));
    baton_tensors_options_t options = BATON_TENSORS_OPTIONS;
    options.algorithm = BATON_SPARSE_REDSYNC;
    options.density = 0.001;
    double alpha = costs.between.alpha_us, beta = costs.between.beta_ns / 1000;
    double gamma = costs.gamma_ns / 1000, select = 4 * gamma,
           entry = 64 * gamma;
    double sparse =
        1e6 * select + 3 * alpha + 7 * 1000 * 8 * beta + 8 * 1000 * entry;
    double dense = 6 * alpha + 7.0 / 8 * 4e6 * (2 * beta + gamma);
    baton_tensor_plan_t plan = plan_of(&tensor, &options, 8);
    expect_near(plan.sparse_us, sparse);
    expect_near(plan.dense_us, dense);
    assert_true(sparse < dense);
    assert_int_equal(plan.form, BATON_TENSOR_SPARSE);
    assert_int_equal(plan.algorithm, BATON_SPARSE_REDSYNC);
    assert_int_equal(plan.k, 1000);

    options.quantise = true; /* an entry is only an index */
    plan = plan_of(&tensor, &options, 8);
    expect_near(plan.sparse_us, sparse - 7 * 1000 * 4 * beta);

    options.quantise = false;
    options.algorithm = BATON_SPARSE_SPARDL;
    plan = plan_of(&tensor, &options, 8);
    expect_near(plan.sparse_us,
                1e6 * select + 6 * alpha + 7.0 / 4 * 1000 * (8 * beta + entry));
    options.algorithm = BATON_SPARSE_AUTO;
    assert_int_equal(plan_of(&tensor, &options, 8).algorithm,
                     plan.sparse_us < sparse ? BATON_SPARSE_SPARDL
                                             : BATON_SPARSE_REDSYNC);

    options.density = 0.5; /* entries would be more words than the vector */
    plan = plan_of(&tensor, &options, 8);
    assert_int_equal(plan.form, BATON_TENSOR_DENSE);
    assert_int_equal(plan.algorithm, BATON_SPARSE_DENSE);
    assert_int_equal(plan.k, 0);
    options.always_sparse = true;
    assert_int_equal(plan_of(&tensor, &options, 8).form, BATON_TENSOR_SPARSE);
}

/* ---- when they start --------------------------------------------------- */

/* Makes this tensor's gradient ready on all ranks, which go on as far as they
   can. Returns the number of messages that they have sent. */
static uint64_t run_tensor(world_t *world, size_t t)
{
    uint64_t before = baton_sim_totals(world->sim).messages;
    for (int r = 0; r < world->size; r++) {
        support_ok(
            baton_tensors_ready(world->sets[r], t, world->gradients[r][t]));
    }
    support_ok(baton_sim_run(world->sim, -1));
    return baton_sim_totals(world->sim).messages - before;
}

/* The packed tensors share one all-reduce, which waits for the last of them.
   Other tensors start at once. */
TEST(test_tensors_start_when_they_are_ready)
{
    enum { SIZE = 3, CONV = 0, BIAS = 1, LAST = 3 };
    baton_tensors_options_t options = some_options();
    world_t *world = open_world(SIZE, &options);
    baton_sparse_result_t result;
    bool done;
    assert_int_equal(run_tensor(world, BIAS), 0);
    (void)run_tensor(world, CONV);
    for (int r = 0; r < SIZE; r++) {
        baton_tensors_t *set = world->sets[r];
        support_fails(baton_tensors_wait(set, BIAS, -1, &result),
                      BATON_ERR_STATE,
                      "the gradient of tensor \"small\", which is packed with "
                      "it, is not ready");
        support_ok(baton_tensors_test(set, CONV, &done));
        assert_true(done);
        support_ok(baton_tensors_test(set, BIAS, &done));
        assert_false(done);
        support_fails(baton_tensors_ready(set, CONV, world->gradients[r][CONV]),
                      BATON_ERR_BUSY,
                      "tensor \"conv\" of \"tensors\": its last step was");
    }
    /* The messages of a binomial tree, up and down. */
    assert_int_equal(run_tensor(world, LAST), 4);
    for (int r = 0; r < SIZE; r++) {
        for (size_t t = CONV; t <= LAST; t += t == BIAS ? 2 : 1) {
            support_ok(baton_tensors_wait(world->sets[r], t, -1, &result));
            assert_true(t == CONV || result.count == model[t].count);
        }
    }
    /* this gradient is for the next step */
    assert_int_equal(run_tensor(world, BIAS), 0);
    support_expect(baton_tensors_wait(world->sets[0], LAST, -1, &result),
                   BATON_ERR_STATE);
    close_world(world);
}

TEST(test_tensors_wait_for_all_gradients_to_clip)
{
    baton_tensors_options_t options = some_options();
    options.clip = 1;
    world_t *world = open_world(1, &options);
    baton_sparse_result_t result;
    support_ok(baton_tensors_ready(world->sets[0], 0, world->gradients[0][0]));
    support_fails(baton_tensors_wait(world->sets[0], 0, -1, &result),
                  BATON_ERR_STATE,
                  "tensor \"bias\", which counts for clipping, is not ready");
    close_world(world);
}

/* ---- partial ------------------------------------------------------------- */

/* A rank's result of all tensors is the sum of these multiples of the two
   ranks' gradients. */
static void expect_partial(world_t *world, int rank, bool included,
                           double first_times, double second_times)
{
    double got[MOST_COUNT];
    for (size_t t = 0; t < TENSORS; t++) {
        assert_int_equal(wait_dense(world, rank, t, got).included, included);
        for (size_t i = 0; i < model[t].count; i++) {
            assert_true(got[i] == first_times * world->gradients[0][t][i] +
                                      second_times * world->gradients[1][t][i]);
        }
    }
}

static void ready_from(world_t *world, int rank, size_t begin, size_t end)
{
    for (size_t t = begin; t < end; t++) {
        support_ok(baton_tensors_ready(world->sets[rank], t,
                                       world->gradients[rank][t]));
    }
    support_ok(baton_sim_run(world->sim, -1));
}

/* Rank 0 lacks the gradient of one tensor when the first epoch begins. */
TEST(test_tensors_of_a_late_rank_go_out_together)
{
    support_random_t random = support_random(support_seed(), 11);
    baton_tensors_options_t options = some_options();
    baton_tensor_plan_t plan;
    options.algorithm = BATON_SPARSE_AUTO;
    options.partial = true;
    options.density = 1;
    world_t *world = open_world(2, &options);
    fill(world, false, &random);
    support_ok(baton_tensors_plan(world->sets[0], 1, &plan));
    assert_int_equal(plan.form, BATON_TENSOR_SPARSE);
    assert_int_equal(plan.algorithm, BATON_SPARSE_SPARDL);
    assert_int_equal(plan.k, 300 + 40 + 200 + 7 + 129);
    ready_from(world, 0, 1, TENSORS);
    ready_from(world, 1, 0, TENSORS);
    expect_partial(world, 1, true, 0, 1);
    ready_from(world, 0, 0, 1);
    expect_partial(world, 0, false, 0, 1);
    ready_from(world, 1, 0, TENSORS);
    expect_partial(world, 1, true, 1, 1);
    ready_from(world, 0, 0, TENSORS);
    expect_partial(world, 0, false, 1, 1);
    close_world(world);
}

/* ---- refusals ---------------------------------------------------------- */

/* Rank 1 has wrong options. The other ranks' options may be different. */
static void refuse(const baton_tensors_options_t *options,
                   const baton_tensors_options_t *wrong, const char *says)
{
    world_t *world = prepare_world(3, model, TENSORS, options, wrong);
    for (int r = 0; r < 3; r++) {
        baton_status_t status = baton_tensors_agree(world->sets[r], -1);
        if (r == 1) {
            support_says(says);
        }
        if (r == 1 || status != BATON_ERR_MISMATCH) {
            support_expect(status, BATON_ERR_INVALID);
        }
        support_expect(baton_tensors_connect(world->sets[r], -1),
                       BATON_ERR_STATE);
        support_expect(baton_tensors_ready(world->sets[r], 0, ""),
                       BATON_ERR_STATE);
    }
    close_world(world);
}

/* Rank 1 has a calibration of its own, or one that can't be read. */
static void differ(const baton_tensors_options_t *options, const char *file,
                   baton_status_t expected)
{
    calibration_of_1 = file;
    world_t *world = prepare_world(2, model, TENSORS, options, options);
    calibration_of_1 = NULL;
    for (int r = 1; r >= 0; r--) {
        baton_status_t status = baton_tensors_agree(world->sets[r], -1);
        if (r == 1 || expected == BATON_OK) {
            support_expect(status, expected);
        }
        if (expected != BATON_OK) {
            support_says("BATON_CALIBRATION");
        }
    }
    close_world(world);
}

TEST(test_tensors_compare_the_costs_that_decide)
{
    char path[64];
    baton_costs_t costs = BATON_COSTS;
    support_ok(baton_costs_get(&costs));
    costs.gamma_ns *= 2;
    (void)snprintf(path, sizeof path, "/tmp/baton_tensors_%ld", (long)getpid());
    support_ok(baton_costs_write(path, &costs));
    for (int decides = 0; decides < 2; decides++) {
        baton_tensors_options_t options = some_options();
        options.algorithm = BATON_SPARSE_SPARDL;
        options.always_sparse = decides == 0;
        differ(&options, path, decides ? BATON_ERR_MISMATCH : BATON_OK);
        differ(&options, "/nonexistent/file",
               decides ? BATON_ERR_SYSTEM : BATON_OK);
    }
    (void)remove(path);
}

/* The failure is also returned for tensors that share a schedule with one that
   was waited for before. */
TEST(test_tensors_all_tell_of_a_failure)
{
    baton_tensors_options_t options = some_options();
    options.algorithm = BATON_SPARSE_AUTO;
    for (int partial = 0; partial < 2; partial++) {
        options.partial = partial;
        world_t *world = open_world(2, &options);
        support_ok(baton_tensors_destroy(world->sets[1]));
        world->sets[1] = NULL;
        ready_from(world, 0, 0, TENSORS);
        for (size_t t = 0; t < TENSORS; t++) {
            baton_sparse_result_t result;
            support_fails(baton_tensors_wait(world->sets[0], t, -1, &result),
                          BATON_ERR_STATE, "was destroyed on rank 1");
        }
        close_world(world);
    }
}

TEST(test_tensors_refuse_bad_options)
{
    static const double bad_density[] = {2};
#define BAD(...)                                                               \
    {                                                                          \
        .size = sizeof(baton_tensors_options_t), __VA_ARGS__                   \
    }
    static const struct {
        const char *says;
        baton_tensors_options_t options;
    } all[] = {
        {"density is 1.5; allowed: above 0", BAD(.density = 1.5)},
        {"dtype is i32; allowed: f32, f64", BAD(.dtype = BATON_I32)},
        {"momentum is 1; allowed: 0 to below 1", BAD(.momentum = 1)},
        {"nesterov is set and momentum is 0", BAD(.nesterov = true)},
        {"clip is -1; allowed: 0 and above", BAD(.clip = -1)},
        {"algorithm is gtopk; allowed: auto, redsync, spardl",
         BAD(.algorithm = BATON_SPARSE_GTOPK)},
        {"quantise is set with spardl",
         BAD(.algorithm = BATON_SPARSE_SPARDL, .quantise = true)},
        {"algorithm is redsync; allowed with partial: auto, spardl",
         BAD(.algorithm = BATON_SPARSE_REDSYNC, .partial = true)},
        {"density_count is 1; allowed with partial: 0",
         BAD(.densities = bad_density, .density_count = 1, .warmup = 4,
             .partial = true)},
        {"history is 3; allowed without partial: 0", BAD(.history = 3)},
        {"on_loss is 1; allowed without partial: 0",
         BAD(.on_loss = BATON_ON_LOSS_CONTINUE)},
        {"quantise is set with spardl", BAD(.quantise = true, .partial = true)},
        {"density_count is 1; allowed: 0 to warmup, 0",
         BAD(.densities = bad_density, .density_count = 1)},
        {"densities[0] is 2; allowed: above 0 and at most 1",
         BAD(.densities = bad_density, .density_count = 1, .warmup = 4)},
    };
    baton_tensors_options_t options = some_options();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        refuse(&options, &all[i].options, all[i].says);
    }
}

TEST(test_tensors_refuse_wrong_use)
{
    baton_tensors_options_t options = some_options();
    world_t *world = open_world(1, &options);
    baton_tensors_t *set = world->sets[0], *none;
    baton_group_t *group = baton_sim_group(world->sim, 0);
    baton_sparse_result_t result;
    baton_tensor_plan_t plan;
    baton_tensor_t empty = {.name = "nothing"};
    support_fails(baton_tensors_ready(set, TENSORS, ""), BATON_ERR_INVALID,
                  "tensor is 5; allowed: 0 to 4");
    support_expect(baton_tensors_ready(set, 0, NULL), BATON_ERR_INVALID);
    support_fails(baton_tensors_wait(set, 0, -1, &result), BATON_ERR_STATE,
                  "the gradient of tensor \"conv\" is not ready");
    support_expect(baton_tensors_wait(NULL, 0, -1, &result), BATON_ERR_INVALID);
    support_expect(baton_tensors_plan(set, 9, &plan), BATON_ERR_INVALID);
    support_expect(baton_tensors_dense(set, 9, &plan), BATON_ERR_INVALID);
    assert_null(baton_tensors_sparse(set, 9));
    support_expect(baton_tensors_create(group, model, 0, &options, -1, &none),
                   BATON_ERR_INVALID);
    support_fails(baton_tensors_create(group, &empty, 1, &options, -1, &none),
                  BATON_ERR_INVALID,
                  "tensor \"nothing\": count is 0; allowed: 1 to");
    const baton_tensor_t huge[] = {{.name = "half", .count = UINT32_MAX},
                                   {.name = "rest", .count = 1}};
    options.algorithm = BATON_SPARSE_AUTO;
    options.partial = true;
    support_fails(baton_tensors_create(group, huge, 2, &options, -1, &none),
                  BATON_ERR_INVALID,
                  "tensor \"rest\": there are 4294967296 elements up to it");
    support_ok(baton_tensors_destroy(NULL));
    close_world(world);
}
