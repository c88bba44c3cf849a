/* The interface of the sparse all-reduce: options, wrong use, steps, and
   partial steps. sim/test_properties.c tests the properties of every step. */
#include "base/half.h"
#include "support/sparse.h"

#include <baton/sparse.h>
#include <math.h>

enum { RANKS = 4, COUNT = 100 };

static baton_sparse_options_t some_options(void)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = BATON_SPARSE_SPARDL;
    options.dtype = BATON_F32;
    options.count = COUNT;
    options.k = 12;
    return options;
}

static baton_sim_t *open_sim(void)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    baton_sim_t *sim;
    options.ranks = RANKS;
    options.introductions = true;
    support_ok(baton_sim_create(&options, &sim));
    return sim;
}

/* ---- options ----------------------------------------------------------- */

#define BAD(...)                                                               \
    {                                                                          \
        .size = sizeof(baton_sparse_options_t), __VA_ARGS__                    \
    }

#define SMALL(...) BAD(.count = 10, .k = 3, __VA_ARGS__)

static const struct {
    const char *says;
    baton_sparse_options_t options;
} bad_options[] = {
    {"count is 0; allowed: 1 to 4294967295", BAD(.k = 1)},
    {"count is 4294967296; allowed: 1 to 4294967295",
     BAD(.k = 1, .count = (size_t)1 << 32)},
    {"k is 11; allowed: 1 to count, 10", BAD(.k = 11, .count = 10)},
    {"density is 0, and k is 0; allowed: above 0 and at most 1",
     BAD(.count = 10)},
    {"density is 1.5", BAD(.count = 10, .density = 1.5)},
    {"density is nan", BAD(.count = 10, .density = NAN)},
    {"max_k is 2; allowed: k, 3, to count, 10", SMALL(.max_k = 2)},
    {"dtype is i8; allowed: f32, f64, f16, bf16", SMALL(.dtype = BATON_I8)},
    {"algorithm is 99; allowed: 0 to",
     SMALL(.algorithm = (baton_sparse_algorithm_t)99)},
    {"teams is 3; allowed: the divisors of 4 ranks", SMALL(.teams = 3)},
    {"momentum is 1; allowed: 0 to below 1", SMALL(.momentum = 1)},
    {"nesterov is set and momentum is 0; allowed: with a momentum",
     SMALL(.nesterov = true)},
    {"teams is 2 with algorithm topka, which has none",
     SMALL(.teams = 2, .algorithm = BATON_SPARSE_TOPKA)},
    {"clip is -1; allowed: 0 and above", SMALL(.clip = -1)},
    {"quantise is set with SAMPLED",
     SMALL(.quantise = true, .algorithm = BATON_SPARSE_REDSYNC,
           .redsync = BATON_REDSYNC_SAMPLED)},
    {"quantise is set with algorithm spardl; allowed: with redsync",
     SMALL(.quantise = true, .algorithm = BATON_SPARSE_SPARDL)},
    {"redsync is set with algorithm auto; allowed: with redsync",
     SMALL(.redsync = BATON_REDSYNC_SEARCH)},
    {"exchange is set with algorithm topka, which has no teams; allowed: with",
     SMALL(.exchange = BATON_EXCHANGE_BSAG, .algorithm = BATON_SPARSE_TOPKA)},
    {"mode is 1; allowed without partial: 0", SMALL(.mode = BATON_MAJORITY)},
    {"history is 2; allowed without partial: 0", SMALL(.history = 2)},
    {"mode_ranks of QUORUM is 5, must be 1 to 4",
     SMALL(.partial = true, .mode = BATON_QUORUM, .mode_ranks = 5)},
    {"algorithm is oktopk; allowed with partial: auto, spardl",
     SMALL(.partial = true, .algorithm = BATON_SPARSE_OKTOPK)},
    {"max_staleness is 1048577; allowed: 0 to 1048576",
     SMALL(.partial = true, .max_staleness = (1 << 20) + 1)},
    {"max_staleness is 5; allowed: 0 to 4, the history",
     SMALL(.partial = true, .max_staleness = 5)},
    {"on_loss is 1; allowed without partial: 0",
     SMALL(.on_loss = BATON_ON_LOSS_CONTINUE)},
    {"on_loss is 2; allowed: 0 to 1",
     SMALL(.partial = true, .on_loss = (baton_on_loss_t)2)},
    {"teams is 2; allowed with on_loss: 0 and 1",
     SMALL(.partial = true, .teams = 2, .on_loss = BATON_ON_LOSS_CONTINUE)},
    {"in_place is set with momentum; allowed: auto, spardl and dense",
     SMALL(.in_place = true, .momentum = 0.5)},
    {"short_velocity is set with no momentum; allowed: with a momentum, of f32",
     SMALL(.short_velocity = true)},
    {"short_velocity is set with f64",
     SMALL(.momentum = 0.5, .dtype = BATON_F64, .short_velocity = true)},
    {"in_place is set with topka",
     SMALL(.in_place = true, .algorithm = BATON_SPARSE_TOPKA)},
};

/* Prepares a sparse all-reduce on each rank. Rank `other`, if any, gives the
   options `others`. */
static void prepare(baton_sim_t *sim, const baton_sparse_options_t *options,
                    int other, const baton_sparse_options_t *others,
                    baton_sparse_t **all)
{
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_sparse_prepare(baton_sim_group(sim, rank),
                                        rank == other ? others : options,
                                        &all[rank]));
    }
}

/* Rank `other`, if any, gives the options `others`. It gets the error `says`;
   the other ranks get it, too, or `elsewhere`. */
static void refuse(baton_sim_t *sim, const baton_sparse_options_t *options,
                   int other, const baton_sparse_options_t *others,
                   baton_status_t expected, const char *says,
                   const char *elsewhere)
{
    baton_sparse_t *all[RANKS];
    prepare(sim, options, other, others, all);
    for (int rank = 0; rank < RANKS; rank++) {
        float gradient[COUNT] = {0};
        bool here = rank == other || elsewhere == NULL;
        support_fails(baton_sparse_connect(all[rank], -1),
                      here ? expected : BATON_ERR_MISMATCH,
                      here ? says : elsewhere);
        support_expect(baton_sparse_start(all[rank], gradient),
                       BATON_ERR_STATE);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_sparse_destroy(all[rank]));
    }
}

TEST(test_bad_options_are_refused_on_all_ranks)
{
    baton_sim_t *sim = open_sim();
    for (size_t i = 0; i < sizeof bad_options / sizeof bad_options[0]; i++) {
        refuse(sim, &bad_options[i].options, -1, NULL, BATON_ERR_INVALID,
               bad_options[i].says, NULL);
    }
    support_ok(baton_sim_destroy(sim));
}

TEST(test_options_that_differ_are_refused_on_all_ranks)
{
    baton_sim_t *sim = open_sim();
    const baton_sparse_options_t options = some_options();
    baton_sparse_options_t others[] = {options, options, options, options};
    others[0].k = 13;
    others[1].momentum = 0.5;
    others[2].dtype = BATON_F64;
    others[3].algorithm = BATON_SPARSE_TOPKA;
    static const char *const says[] = {"k 13", "momentum 0.5", "dtype f64",
                                       "algorithm topka"};
    for (int i = 0; i < 4; i++) {
        refuse(sim, &options, i, &others[i], BATON_ERR_MISMATCH, says[i], NULL);
    }
    support_ok(baton_sim_destroy(sim));
}

/* All ranks agree, and a step gives its result, even under a name that an
   earlier create has used. */
static void expect_step(baton_sim_t *sim, const baton_sparse_options_t *options,
                        int other, const baton_sparse_options_t *others)
{
    baton_sparse_t *all[RANKS];
    float gradient[COUNT] = {1};
    prepare(sim, options, other, others, all);
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_sparse_connect(all[rank], -1));
        support_ok(baton_sparse_start(all[rank], gradient));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        baton_sparse_result_t result;
        support_ok(baton_sparse_wait(all[rank], -1, &result));
        assert_int_equal(result.count, 1);
        assert_true(*(const float *)result.values == RANKS);
        support_ok(baton_sparse_destroy(all[rank]));
    }
}

/* Costs of links may differ between ranks, for example because of different
   calibrations. */
TEST(test_costs_may_differ_where_they_decide_nothing)
{
    baton_sim_t *sim = open_sim();
    baton_sparse_options_t options = some_options(), other;
    for (int choice = 0; choice < 3; choice++) {
        options.algorithm =
            choice == 1 ? BATON_SPARSE_AUTO : BATON_SPARSE_SPARDL;
        options.teams = choice == 2 ? BATON_SPARSE_TEAMS_AUTO : 1;
        other = options;
        other.link = (baton_link_cost_t){7, 7};
        if (choice > 0) {
            refuse(sim, &options, 1, &other, BATON_ERR_MISMATCH,
                   "BATON_CALIBRATION", NULL);
        } else {
            expect_step(sim, &options, 1, &other);
        }
    }
    support_ok(baton_sim_destroy(sim));
}

TEST(test_options_that_one_rank_has_wrong_fail_on_all)
{
    baton_sim_t *sim = open_sim();
    baton_sparse_options_t options = some_options(), other;
    static const char *const names[] = {NULL, "gradients"};
    for (int i = 0; i < 2; i++) {
        options.name = names[i];
        other = options;
        other.size = 0;
        refuse(sim, &options, 2, &other, BATON_ERR_INVALID,
               "size is 0, must be", "rank 2 has options that cannot be read");
        expect_step(sim, &options, -1, NULL);
        other = options;
        other.count = 0;
        refuse(sim, &options, 1, &other, BATON_ERR_INVALID,
               "count is 0; allowed: 1 to", "rank 1 has count 0");
        expect_step(sim, &options, -1, NULL);
    }
    options.name = NULL;
    other.size = 5000; /* as if memory was not initialised */
    refuse(sim, &options, 0, &other, BATON_ERR_INVALID, "size is 5000, must be",
           "rank 0 has options that cannot be read");
    refuse(sim, &options, 3, NULL, BATON_ERR_INVALID, "options is NULL",
           "rank 3 has options that cannot be read");
    other = options;
    /* Ranks may have different values of this option. */
    other.short_velocity = true;
    refuse(sim, &options, 1, &other, BATON_ERR_INVALID, "short_velocity is",
           NULL);
    expect_step(sim, &options, -1, NULL);
    support_ok(baton_sim_destroy(sim));
}

/* ---- wrong use --------------------------------------------------------- */

/* Every call, with valid arguments. */
#define EACH_CALL(CALL)                                                        \
    CALL(TEST, baton_sparse_test(sparse, &done))                               \
    CALL(WAIT, baton_sparse_wait(sparse, 0, &result))                          \
    CALL(STATS, baton_sparse_stats(sparse, &stats))                            \
    CALL(DENSE, baton_sparse_dense(sparse, vector))                            \
    CALL(START, baton_sparse_start(sparse, vector))                            \
    CALL(FLUSH, baton_sparse_flush(sparse))                                    \
    CALL(RESIDUAL, baton_sparse_residual(sparse, vector))                      \
    CALL(VELOCITY, baton_sparse_velocity(sparse, vector))                      \
    CALL(SET_RESIDUAL, baton_sparse_set_residual(sparse, vector, NULL))        \
    CALL(CONTRIBUTE, baton_sparse_contribute(sparse, 0, 1, vector))            \
    CALL(DISCARD, baton_sparse_discard(sparse))                                \
    CALL(SET_K, baton_sparse_set_k(sparse, 3))                                 \
    CALL(SET_DENSITY, baton_sparse_set_density(sparse, 0.1))                   \
    CALL(SAVE, baton_sparse_save(sparse, "/tmp/never"))                        \
    CALL(LOAD, baton_sparse_load(sparse, "/tmp/never"))                        \
    CALL(EXPORT, baton_sparse_state_export(sparse, room, sizeof room))         \
    CALL(IMPORT, baton_sparse_state_import(sparse, room, sizeof room))

#define NAME(name, call) name,
typedef enum call { EACH_CALL(NAME) CALLS } call_t;

static baton_status_t make(call_t call, baton_sparse_t *sparse)
{
    static float vector[COUNT];
    static char room[4096];
    baton_sparse_result_t result;
    baton_sparse_stats_t stats;
    bool done;
#define MAKE(name, call)                                                       \
    case name:                                                                 \
        return call;
    switch (call) {
        EACH_CALL(MAKE)
    case CALLS:
        break;
    }
    return BATON_ERR_FAILED;
}

static void expect_calls(baton_sparse_t *sparse, call_t first,
                         baton_status_t expected, const char *says)
{
    for (int call = (int)first; call < CALLS; call++) {
        if (make((call_t)call, sparse) != expected) {
            fail_msg("call %d: %s", call, baton_error_message());
        }
        support_says(says);
    }
}

/* Calls with NULL, before connect, or while a step runs. */
TEST(test_calls_out_of_turn_are_refused)
{
    baton_sim_t *sim = open_sim();
    baton_sparse_options_t options = some_options();
    baton_sparse_t *sparse;
    expect_calls(NULL, TEST, BATON_ERR_INVALID, "NULL");
    support_ok(
        baton_sparse_prepare(baton_sim_group(sim, 0), &options, &sparse));
    expect_calls(sparse, TEST, BATON_ERR_STATE,
                 "\"sparse\": it is not connected");
    support_ok(baton_sparse_destroy(sparse));
    support_ok(baton_sim_destroy(sim));
    support_sparse_t *group = support_sparse_open(1, &options);
    support_ok(make(START, group->ranks[0]));
    expect_calls(group->ranks[0], START, BATON_ERR_BUSY, "wait for it");
    support_sparse_close(group);
}

TEST(test_partial_ones_refuse_what_they_cannot_do)
{
    static const call_t calls[] = {FLUSH, SET_K, SET_DENSITY};
    baton_sparse_options_t options = some_options();
    options.partial = true;
    support_sparse_t *group = support_sparse_open(1, &options);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        support_fails(make(calls[i], group->ranks[0]), BATON_ERR_UNSUPPORTED,
                      "it was created with options.partial");
    }
    support_sparse_close(group);
}

TEST(test_wrong_arguments_are_refused)
{
    baton_sparse_options_t options = some_options();
    support_sparse_t *group = support_sparse_open(1, &options);
    baton_sparse_t *sparse = group->ranks[0];
    support_fails(make(WAIT, sparse), BATON_ERR_STATE,
                  "no step that was started has completed");
    support_expect(make(DENSE, sparse), BATON_ERR_STATE);
    support_expect(baton_sparse_start(sparse, NULL), BATON_ERR_INVALID);
    support_fails(baton_sparse_residual(sparse, NULL), BATON_ERR_INVALID,
                  "vector is NULL");
    support_fails(make(VELOCITY, sparse), BATON_ERR_STATE, "momentum is 0");
    assert_null(baton_sparse_accumulator(sparse));
    support_says("create it with options.in_place");
    support_fails(baton_sparse_set_k(sparse, 13), BATON_ERR_INVALID,
                  "k is 13; allowed: 1 to max_k, 12");
    support_expect(baton_sparse_set_density(sparse, -1), BATON_ERR_INVALID);
    support_expect(baton_sparse_stats(sparse, NULL), BATON_ERR_INVALID);
    support_fails(baton_sparse_test(sparse, NULL), BATON_ERR_INVALID,
                  "done_out is NULL");
    support_ok(make(START, sparse));
    for (int i = 0; i < 2; i++) { /* wait may return a result again */
        baton_sparse_result_t result;
        support_ok(baton_sparse_wait(sparse, -1, &result));
    }
    float end[2];
    support_ok(baton_sparse_dense_range(sparse, COUNT, 0, NULL));
    support_fails(baton_sparse_dense_range(sparse, COUNT - 1, 2, end),
                  BATON_ERR_INVALID,
                  "first is 99 and count 2; allowed: up to element 100");
    support_expect(baton_sparse_dense_range(sparse, 2, SIZE_MAX, end),
                   BATON_ERR_INVALID);
    support_sparse_close(group);
}

/* ---- steps ------------------------------------------------------------- */

/* Runs both sets of ranks with the same gradients, and compares them. */
static void expect_same_steps(support_sparse_t *left, support_sparse_t *right)
{
    for (uint64_t step = 0; step < 7; step++) {
        support_sparse_fill(left, step);
        support_sparse_fill(right, step);
        support_sparse_step(left);
        support_sparse_step(right);
        assert_memory_equal(left->dense, right->dense, COUNT * left->element);
        assert_memory_equal(left->residuals, right->residuals,
                            RANKS * COUNT * left->element);
    }
}

/* Results and residuals have the same bits as with gradients that are passed to
   start. */
TEST(test_gradients_are_accumulated_in_place)
{
    for (int i = 0; i < 5; i++) {
        baton_sparse_options_t options = some_options();
        options.algorithm = i == 0 ? BATON_SPARSE_DENSE : BATON_SPARSE_SPARDL;
        options.teams = i < 2 ? 1 : 2;
        options.exchange = i < 3 ? BATON_EXCHANGE_RSAG : BATON_EXCHANGE_BSAG;
        options.exchange = i == 0 ? BATON_EXCHANGE_AUTO : options.exchange;
        options.warmup = i == 4 ? 2 : 0;
        options.dtype = i == 1 ? BATON_F64 : BATON_F32;
        support_sparse_t *given = support_sparse_open(RANKS, &options);
        options.in_place = true;
        support_sparse_t *added = support_sparse_open(RANKS, &options);
        expect_same_steps(given, added);
        support_fails(baton_sparse_start(added->ranks[0], added->gradients),
                      BATON_ERR_INVALID,
                      "must be NULL: with in_place it is added to the vector");
        support_sparse_close(given);
        support_sparse_close(added);
    }
}

/* Results and residuals have the same bits as with whole gradients. */
TEST(test_parts_are_a_gradient)
{
    for (int i = 0; i < 4 * BATON_SPARSE_COUNT; i++) {
        baton_sparse_options_t options = some_options();
        options.algorithm =
            (baton_sparse_algorithm_t)(1 + i % (BATON_SPARSE_COUNT - 1));
        options.dtype = i % 3 == 1 ? BATON_F64 : BATON_F32;
        options.momentum = i % 4 > 1 ? 0.5 : 0;
        options.short_velocity = i % 4 > 1 && options.dtype == BATON_F32;
        options.clip = i % 5 == 1 ? 900 : 0;
        options.warmup = i % 5 == 2 ? 2 : 0;
        options.partial = i % 2 == 1 && (i < BATON_SPARSE_COUNT);
        options.algorithm =
            options.partial ? BATON_SPARSE_SPARDL : options.algorithm;
        support_sparse_t *whole = support_sparse_open(RANKS, &options);
        support_sparse_t *parts = support_sparse_open(RANKS, &options);
        parts->in_parts = true;
        expect_same_steps(whole, parts);
        support_sparse_close(whole);
        support_sparse_close(parts);
    }
}

TEST(test_parts_that_are_wrong_are_refused)
{
    baton_sparse_options_t options = some_options();
    float vector[COUNT] = {1}, residual[COUNT] = {0};
    baton_sparse_result_t result;
    support_sparse_t *group = support_sparse_open(1, &options);
    baton_sparse_t *sparse = group->ranks[0];
#define PART(first, end)                                                       \
    baton_sparse_contribute(sparse, first, (end) - (first), vector + (first))
    support_ok(PART(50, 70));
    support_fails(PART(50, 70), BATON_ERR_INVALID,
                  "elements 50 to 69 overlap 50 to 69, which were contributed");
    support_expect(PART(69, 80), BATON_ERR_INVALID);
    support_expect(PART(0, 51), BATON_ERR_INVALID);
    support_fails(PART(90, COUNT + 1), BATON_ERR_INVALID,
                  "allowed: up to element 100");
    support_ok(baton_sparse_contribute(sparse, 1, 0, NULL));
    support_expect(baton_sparse_contribute(NULL, 0, 1, vector),
                   BATON_ERR_INVALID);
    support_fails(baton_sparse_contribute(sparse, 1, 1, NULL),
                  BATON_ERR_INVALID, "part is NULL");
    support_ok(PART(60, 60));
    support_ok(PART(70, COUNT));
    support_fails(baton_sparse_start(sparse, NULL), BATON_ERR_STATE,
                  "the part with element 0 was not contributed");
    support_ok(PART(0, 20));
    support_fails(baton_sparse_start(sparse, NULL), BATON_ERR_STATE,
                  "the part with element 20 was not contributed");
    support_fails(baton_sparse_start(sparse, vector), BATON_ERR_INVALID,
                  "must be NULL: parts of it were contributed");
    support_ok(PART(20, 50));
    support_ok(baton_sparse_start(sparse, NULL));
    support_expect(PART(0, 1), BATON_ERR_BUSY);
    support_ok(baton_sparse_wait(sparse, -1, &result));
    assert_int_equal(result.count, 1);
    for (int i = 0; i < 4; i++) { /* each of these calls discards the parts */
        support_ok(PART(0, 20));
        switch (i) {
        case 0:
            support_ok(baton_sparse_discard(sparse));
            break;
        case 1:
            support_ok(baton_sparse_set_residual(sparse, residual, NULL));
            break;
        case 2:
            support_ok(baton_sparse_flush(sparse));
            support_ok(baton_sparse_wait(sparse, -1, &result));
            break;
        default:
            support_sparse_recover(group);
        }
        support_fails(baton_sparse_start(sparse, NULL), BATON_ERR_INVALID,
                      "gradient is NULL");
    }
    support_sparse_close(group);
    options.in_place = true;
    group = support_sparse_open(1, &options);
    sparse = group->ranks[0];
    support_fails(PART(0, 1), BATON_ERR_UNSUPPORTED, "in place");
    support_sparse_close(group);
#undef PART
}

/* Residuals grow fast at first, so an old global threshold lets more and more
   entries pass: with independent gradients up to k of each rank. */
TEST(test_oktopk_publishes_about_k)
{
    enum { SIZE = 8, SETTLED = 8, STEPS = 32, K = 50 };
    baton_sparse_options_t options = some_options();
    options.algorithm = BATON_SPARSE_OKTOPK;
    options.count = 5000;
    options.k = K;
    support_sparse_t *group = support_sparse_open(SIZE, &options);
    for (uint64_t step = 0; step < STEPS; step++) {
        support_sparse_fill(group, 100 + step);
        support_sparse_step(group);
        size_t count = group->results[0].count;
        if (step >= SETTLED && (count < K / 3 || count > 4 * K)) {
            fail_msg("step %d: %zu entries, k is %d", (int)step, count, K);
        }
    }
    support_sparse_close(group);
}

/* Makes a step in which all ranks have these six elements, and zeros
   elsewhere. */
static void step_with_first(support_sparse_t *group, const float *first)
{
    for (int rank = 0; rank < group->size; rank++) {
        float *gradient = support_sparse_gradient(group, rank);
        memset(gradient, 0, COUNT * sizeof *gradient);
        memcpy(gradient, first, 6 * sizeof *gradient);
    }
    support_sparse_step(group);
}

/* All ranks have the same three entries, one in each of three regions. So the
   owners of the regions receive the same amount. */
TEST(test_oktopk_divides_few_entries_evenly)
{
    enum { SIZE = 4, K = 3 };
    static const float equal[6] = {1, 1, 1};
    baton_sparse_options_t options = some_options();
    baton_sparse_stats_t stats[SIZE];
    options.algorithm = BATON_SPARSE_OKTOPK;
    options.k = K;
    support_sparse_t *group = support_sparse_open(SIZE, &options);
    step_with_first(group, equal);
    for (int rank = 1; rank < SIZE; rank++) {
        support_ok(baton_sparse_stats(group->ranks[rank], &stats[rank]));
        assert_int_equal(stats[rank].bytes_received, stats[1].bytes_received);
    }
    support_sparse_close(group);
}

/* Six entries reach the threshold. After it was raised, the last four still do,
   and only these are selected. At last all six do so after each of five
   raises. */
TEST(test_oktopk_selects_again_what_a_raise_leaves)
{
    enum { SIZE = 2, K = 4 };
    static const float first[] = {100, 101, 102, 103, 0, 0};
    static const float second[] = {101, 101, 200, 200, 200, 200};
    static const float third[] = {900, 900, 900, 900, 900, 900};
    baton_sparse_options_t options = some_options();
    options.algorithm = BATON_SPARSE_OKTOPK;
    options.k = K;
    support_sparse_t *group = support_sparse_open(SIZE, &options);
    for (int step = 0; step < 2; step++) {
        step_with_first(group, step == 0 ? first : second);
        assert_int_equal(group->results[0].count, K);
        for (size_t i = 0; i < K; i++) {
            assert_int_equal(group->results[0].indices[i],
                             step == 0 ? i : i + 2);
        }
    }
    baton_sparse_stats_t before, behind;
    support_ok(baton_sparse_stats(group->ranks[0], &before));
    step_with_first(group, third);
    support_ok(baton_sparse_stats(group->ranks[0], &behind));
    assert_true(fabs(behind.threshold / before.threshold -
                     pow(1.03, 5) * 1.012) < 1e-5);
    support_sparse_close(group);
}

/* Each gradient is clipped to a norm of 10 / sqrt(ranks). */
TEST(test_gradients_are_clipped)
{
    for (int size = 1; size <= RANKS; size += RANKS - 1) {
        baton_sparse_options_t options = some_options();
        options.count = options.k = 2;
        options.clip = 10;
        options.partial = size == 1;
        support_sparse_t *group = support_sparse_open(size, &options);
        for (int rank = 0; rank < size; rank++) {
            float *gradient = support_sparse_gradient(group, rank);
            gradient[0] = 30; /* the norm of the gradient is 50 */
            gradient[1] = -40;
        }
        support_sparse_step(group);
        const float *sum = (const float *)(void *)group->dense;
        float scale = sqrtf((float)size);
        assert_true(fabsf(sum[0] - 6 * scale) < 1e-5f);
        assert_true(fabsf(sum[1] + 8 * scale) < 1e-5f);
        support_sparse_close(group);
    }
}

/* A rank's velocity is zero if the result has all that the rank had contributed
   to an element, and remains if the result has nothing of it. */
TEST(test_velocity_ends_where_it_was_sent)
{
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_DENSE; i++) {
        baton_sparse_options_t options = some_options();
        options.algorithm = (baton_sparse_algorithm_t)i;
        options.momentum = 0.5;
        support_sparse_t *group = support_sparse_open(RANKS, &options);
        support_sparse_fill(group, 1);
        support_sparse_step(group);
        for (int rank = 0; rank < RANKS; rank++) {
            const float *gradient = support_sparse_gradient(group, rank);
            const float *residual = support_sparse_residual(group, rank);
            const baton_sparse_result_t *result = &group->results[rank];
            bool shown[COUNT] = {false};
            float velocity[COUNT];
            support_ok(baton_sparse_velocity(group->ranks[rank], velocity));
            for (size_t j = 0; j < result->count; j++) {
                shown[result->indices[j]] = true;
            }
            for (int j = 0; j < COUNT; j++) {
                if (!shown[j] || residual[j] == 0) {
                    assert_true(velocity[j] == (shown[j] ? 0 : gradient[j]));
                }
            }
        }
        support_sparse_close(group);
    }
}

TEST(test_what_is_not_finite_surfaces)
{
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_DENSE; i++) {
        baton_sparse_options_t options = some_options();
        options.algorithm = (baton_sparse_algorithm_t)i;
        support_sparse_t *group = support_sparse_open(RANKS, &options);
        support_sparse_fill(group, 1);
        ((float *)support_sparse_gradient(group, 1))[17] = NAN;
        ((float *)support_sparse_gradient(group, 3))[55] = -INFINITY;
        support_sparse_step(group);
        const float *sum = (const float *)(void *)group->dense;
        assert_true(isnan(sum[17]));
        assert_true(isinf(sum[55]));
        support_sparse_close(group);
    }
}

/* Gradients in which several ranks have a NaN or an infinity in one element.
   The order of the operands determines the bits of the sum. */
static void fill_not_finite(support_sparse_t *group, uint64_t seed)
{
    const bool wide = group->options.dtype == BATON_F64;
    /* The lowest bit of the exponent. */
    const uint64_t lowest = UINT64_C(1) << (wide ? 52 : 23);
    const uint64_t exponent = (wide ? 0x7ff : 0xff) * lowest;
    support_random_t random = support_random(support_seed(), seed);
    support_sparse_fill(group, seed);
    for (size_t i = 0; i < (size_t)group->size * group->options.count; i++) {
        uint64_t which = support_random_below(&random, 10);
        uint64_t bits = support_random_next(&random) | exponent;
        bits = which == 0 ? bits & ~(lowest - 1) : bits | lowest / 2;
        if (which < 3) { /* an infinity or a quiet NaN */
            memcpy(group->gradients + i * group->element, &bits,
                   group->element);
        }
    }
}

static void step_not_finite(int size, const baton_sparse_options_t *options)
{
    support_sparse_t *group = support_sparse_open(size, options);
    for (uint64_t step = 0; step < 3; step++) {
        fill_not_finite(group, step);
        /* This fails unless all ranks have the same bits. */
        support_sparse_step(group);
        baton_sparse_stats_t stats;
        uint64_t not_finite = 0;
        for (size_t i = 0; i < group->results[0].count; i++) {
            const void *values = group->results[0].values;
            double value = options->dtype == BATON_F64
                               ? ((const double *)values)[i]
                               : (double)((const float *)values)[i];
            not_finite += isfinite(value) ? 0 : 1;
        }
        support_ok(baton_sparse_stats(group->ranks[0], &stats));
        assert_true(not_finite > 0);
        assert_int_equal(stats.not_finite, not_finite);
    }
    support_sparse_close(group);
}

TEST(test_what_is_not_finite_has_the_same_bits_on_all_ranks)
{
    static const int sizes[] = {2, 3, 4, 6, 8, 12};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int j = BATON_SPARSE_SPARDL; j < BATON_SPARSE_COUNT; j++) {
            for (int teams = 1; teams <= sizes[i]; teams++) {
                baton_sparse_options_t options = some_options();
                if (sizes[i] % teams != 0 ||
                    (teams > 1 && j != BATON_SPARSE_SPARDL)) {
                    continue;
                }
                options.algorithm = (baton_sparse_algorithm_t)j;
                options.teams = teams;
                options.k = 60;
                step_not_finite(sizes[i], &options);
                options.dtype = BATON_F64;
                options.average = true;
                step_not_finite(sizes[i], &options);
                options.exchange = j == BATON_SPARSE_SPARDL
                                       ? BATON_EXCHANGE_BSAG
                                       : BATON_EXCHANGE_AUTO;
                step_not_finite(sizes[i], &options);
            }
        }
    }
}

/* Makes a step of two ranks, whose largest entries cancel. */
static void step_cancels(const baton_sparse_options_t *options)
{
    support_sparse_t *group = support_sparse_open(2, options);
    const size_t n = options->count;
    float *gradients = support_sparse_gradient(group, 0);
    memset(gradients, 0, 2 * n * sizeof *gradients);
    gradients[3] = 5;
    gradients[n + 3] = -5;
    gradients[5] = gradients[n + 5] = 2;
    support_sparse_step(group);
    const baton_sparse_result_t *result = &group->results[0];
    for (size_t i = 0; i < result->count; i++) {
        assert_true(((const float *)result->values)[i] != 0);
    }
    const float *residuals = support_sparse_residual(group, 0);
    const float *dense = (const void *)group->dense;
    for (size_t i = 0; i < n; i++) {
        assert_true(dense[i] + residuals[i] + residuals[n + i] ==
                    gradients[i] + gradients[n + i]);
    }
    support_sparse_close(group);
}

/* TOPKDSA sends a vector of 6 elements as a dense region, and one of 100 as
   entries. */
TEST(test_sums_of_zero_are_left_out)
{
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_DENSE; i++) {
        for (int form = 0; form < 3; form++) {
            baton_sparse_options_t options = some_options();
            options.algorithm = (baton_sparse_algorithm_t)i;
            options.count = form == 0 ? 6 : COUNT;
            options.k = 2;
            if (i == BATON_SPARSE_SPARDL && form > 0) {
                options.teams = 2;
                options.exchange =
                    form == 1 ? BATON_EXCHANGE_RSAG : BATON_EXCHANGE_BSAG;
            }
            step_cancels(&options);
        }
    }
}

/* If a rank does another step than the others, all ranks fail with a message
   that says so. */
TEST(test_steps_that_differ_are_told)
{
    static char before[2048];
    baton_sparse_options_t options = some_options();
    options.algorithm = BATON_SPARSE_OKTOPK;
    support_sparse_t *group = support_sparse_open(RANKS, &options);
    size_t bytes = baton_sparse_state_size(group->ranks[1]);
    support_ok(
        baton_sparse_state_export(group->ranks[1], before, sizeof before));
    support_sparse_fill(group, 1);
    support_sparse_step(group);
    support_ok(baton_sparse_state_import(group->ranks[1], before, bytes));
    support_sparse_start(group);
    for (int rank = 0; rank < RANKS; rank++) {
        baton_sparse_result_t result;
        support_fails(
            baton_sparse_wait(group->ranks[rank], -1, &result),
            BATON_ERR_MISMATCH,
            "have ranks started another number of steps, or set another k?");
    }
    support_sparse_close(group);
}

/* ---- partial all-reduces ----------------------------------------------- */

static baton_sparse_options_t partial_options(void)
{
    baton_sparse_options_t options = some_options();
    options.partial = true;
    return options;
}

/* Starts a step on one rank only, and lets it run as far as it can. */
static void start_alone(support_sparse_t *group, int rank)
{
    float *gradient = support_sparse_gradient(group, rank);
    for (int i = 0; i < COUNT; i++) {
        gradient[i] = i % 5 == rank % 5 ? 10 + (float)i : 1;
    }
    support_ok(baton_sparse_start(group->ranks[rank], gradient));
    support_ok(baton_sim_run(group->sim, -1));
}

/* Waits for a result, and returns whether the rank was in time. */
static bool take(support_sparse_t *group, int rank)
{
    support_ok(baton_sparse_wait(group->ranks[rank], 0, &group->results[rank]));
    return group->results[rank].included;
}

/* An epoch that begins before a rank has started again takes nothing from the
   residual of that rank. */
TEST(test_partial_sends_little_for_one_rank)
{
    for (int size = 2; size <= 9; size++) {
        baton_sparse_options_t options = partial_options();
        support_sparse_t *group = support_sparse_open(size, &options);
        unsigned steps = 0;
        while (1 << steps < size) {
            steps++;
        }
        support_sparse_fill(group, 1);
        support_sparse_start(group);
        support_ok(baton_sim_run(group->sim, -1));
        for (int rank = 0; rank < size; rank++) {
            /* after this step every rank has a residual */
            assert_true(take(group, rank));
        }
        uint64_t before = baton_sim_totals(group->sim).bytes;
        start_alone(group, 0);
        uint64_t bytes = baton_sim_totals(group->sim).bytes - before;
        /* Each rank's share of k is at least one entry. */
        size_t k = options.k + (size_t)size;
        assert_in_range(bytes, 1,
                        k * baton_entry_bytes(options.dtype) *
                            (steps + (unsigned)size - 1));
        for (int rank = 1; rank < size; rank++) {
            /* The rank is late, and nothing more is sent. */
            start_alone(group, rank);
        }
        assert_int_equal(baton_sim_totals(group->sim).bytes, before + bytes);
        support_sparse_close(group);
    }
}

/* Returns options with momentum, in one of four forms. */
static baton_sparse_options_t with_momentum(int form)
{
    baton_sparse_options_t options = some_options();
    options.momentum = 0.5; /* sums of a few steps are exact */
    options.nesterov = form % 2 == 1;
    options.short_velocity = form >= 2;
    options.warmup = 2;
    return options;
}

/* If every epoch contains every rank's gradient, partial steps have the same
   results as plain ones. */
TEST(test_partial_momentum_and_warm_up_are_the_plain_ones)
{
    for (int form = 0; form < 4; form++) {
        baton_sparse_options_t options = with_momentum(form);
        support_sparse_t *plain = support_sparse_open(RANKS, &options);
        options.partial = true;
        options.mode = BATON_QUORUM;
        options.mode_ranks = RANKS;
        support_sparse_t *partial = support_sparse_open(RANKS, &options);
        expect_same_steps(plain, partial);
        support_sparse_close(plain);
        support_sparse_close(partial);
    }
}

/* The expected velocities. u advances with each start of its rank, whether late
   or not. It becomes 0 at each entry of a result that the rank has got. No part
   of it is lost. */
typedef struct momenta {
    support_sparse_t *group;
    /* Left: the part that is in no result yet. */
    float u[RANKS][COUNT], left[COUNT];
} momenta_t;

static void start_with_momentum(momenta_t *all, int rank)
{
    const float *g = support_sparse_gradient(all->group, rank);
    for (size_t i = 0; i < COUNT; i++) {
        float *u = &all->u[rank][i];
        bool nesterov = all->group->options.nesterov;
        *u = nesterov ? (*u + g[i]) / 2 : *u / 2 + g[i];
        all->left[i] += nesterov ? *u + g[i] : *u;
        if (all->group->options.short_velocity) { /* m / (1 - m) is 1 */
            float rounded = baton__f32_of_bf16(baton__bf16_of_f32(*u));
            all->left[i] += *u - rounded;
            *u = rounded;
        }
    }
    support_ok(baton_sparse_start(all->group->ranks[rank], g));
}

static void end_with_momentum(momenta_t *all, int rank, bool dense)
{
    baton_sparse_result_t result;
    support_ok(baton_sparse_wait(all->group->ranks[rank], -1, &result));
    for (size_t i = 0; i < result.count; i++) {
        uint32_t at = result.indices[i];
        all->left[at] -= rank == 0 ? ((const float *)result.values)[i] : 0;
        all->u[rank][at] *= dense ? 1 : 0;
    }
}

TEST(test_partial_momentum_of_late_ranks_is_kept)
{
    for (int form = 0; form < 4; form++) {
        const int mode = form % 2 == 0 ? BATON_SOLO : BATON_MAJORITY;
        baton_sparse_options_t options = with_momentum(form);
        options.partial = true;
        options.mode = (baton_partial_mode_t)mode;
        momenta_t all = {.group = support_sparse_open(RANKS, &options)};
        for (int step = 0; step < 9; step++) {
            int late = mode == BATON_SOLO ? step % RANKS : -1;
            support_sparse_fill(all.group, (uint64_t)step);
            for (int i = 0; i < 2 * RANKS; i++) {
                if (i % RANKS != late) {
                    (i < RANKS ? start_with_momentum(&all, i)
                               : end_with_momentum(&all, i - RANKS, step < 2));
                }
            }
            if (late >= 0) {
                start_with_momentum(&all, late);
                end_with_momentum(&all, late, step < 2);
            }
        }
        for (int rank = 0; rank < RANKS; rank++) {
            float residual[COUNT], u[COUNT];
            support_ok(baton_sparse_residual(all.group->ranks[rank], residual));
            support_ok(baton_sparse_velocity(all.group->ranks[rank], u));
            for (size_t i = 0; i < COUNT; i++) {
                all.left[i] -= residual[i];
                assert_true(u[i] == all.u[rank][i]);
            }
        }
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(all.left[i] == 0);
        }
        support_sparse_close(all.group);
    }
}

/* Epochs also run in cost-only simulations. */
TEST(test_partial_runs_without_payload)
{
    baton_sparse_options_t options = partial_options();
    baton_sim_options_t sim = BATON_SIM_OPTIONS;
    sim.ranks = 5;
    sim.cost_only = true;
    support_sparse_t *group = support_sparse_open_in(&sim, &options);
    for (int rank = 0; rank < 5; rank++) {
        support_ok(baton_sparse_start(group->ranks[rank], NULL));
        support_ok(baton_sim_run(group->sim, -1));
        assert_int_equal(take(group, rank), rank == 0);
        assert_int_equal(group->results[rank].count, 0);
    }
    support_sparse_close(group);
}

/* ---- h ----------------------------------------------------------------- */

/* Marks the h largest elements. Of equal ones, it marks the first. */
static void mark_largest(const float *values, int64_t h, bool *marked)
{
    bool taken[COUNT] = {false};
    for (int64_t i = 0; i < h; i++) {
        int best = -1;
        for (int j = 0; j < COUNT; j++) {
            if (!taken[j] && values[j] != 0 &&
                (best < 0 || fabsf(values[j]) > fabsf(values[best]))) {
                best = j;
            }
        }
        if (best >= 0) {
            taken[best] = marked[best] = true;
        }
    }
}

static int64_t between(int64_t value, int64_t low, int64_t high)
{
    value = value < low ? low : value;
    return value > high ? high : value;
}

/* Algorithm 2 of SparDL's paper, for two teams of one rank each. N is the
   number of elements that are among the h largest of either team. */
TEST(test_teams_adjust_h)
{
    enum { L = 40 };
    baton_sparse_options_t options = some_options();
    options.k = L;
    options.teams = 2;
    options.exchange = BATON_EXCHANGE_BSAG;
    support_sparse_t *group = support_sparse_open(2, &options);
    int64_t low = L / 2, h = low, step = 1;
    bool flag = false;
    for (uint64_t i = 0; i < 60; i++) {
        bool marked[COUNT] = {false};
        int64_t n = 0;
        support_sparse_fill(group, i);
        float *gradients = support_sparse_gradient(group, 0);
        for (int j = 0; j < COUNT && i / 20 % 2 == 0; j++) {
            gradients[COUNT + j] = gradients[j]; /* equal on both ranks */
        }
        const float *residuals = support_sparse_residual(group, 0);
        for (int rank = 0; rank < 2; rank++) {
            float sum[COUNT];
            for (int j = 0; j < COUNT; j++) {
                sum[j] =
                    gradients[rank * COUNT + j] + residuals[rank * COUNT + j];
            }
            mark_largest(sum, h, marked);
        }
        for (int j = 0; j < COUNT; j++) {
            n += marked[j];
        }
        if ((n > L) != (step > 0)) {
            step *= flag ? 2 : 1;
            flag = !flag;
        } else {
            const int64_t sign = step > 0 ? -1 : 1;
            step = -step / 2 != 0 ? -step / 2 : sign;
            flag = false;
        }
        step = between(step, low - L, L - low);
        h = between(h + step, low, L);
        support_sparse_step(group);
        baton_sparse_stats_t stats;
        support_ok(baton_sparse_stats(group->ranks[1], &stats));
        assert_int_equal(stats.h, h);
    }
    support_sparse_close(group);
}

/* If any send fails, a recovery ends the step on all ranks or on none, and
   entries that ranks have dropped for each other come back. Late messages make
   ranks fail in different rounds of the step. */
TEST(test_teams_lose_nothing_whichever_send_fails)
{
    enum { SIZE = 8, SENDS = 8, TURNS = 2 };
    baton_sparse_options_t options = some_options();
    options.k = 40;
    options.teams = 4;
    baton_sim_options_t sim = BATON_SIM_OPTIONS;
    sim.ranks = SIZE;
    sim.lag = (baton_distribution_t){BATON_DISTRIBUTION_EXPONENTIAL, 20, 0};
    for (uint64_t i = 0; i < SIZE * SENDS * TURNS; i++) {
        const int victim = (int)(i % SIZE);
        sim.seed = i;
        support_sparse_t *group = support_sparse_open_in(&sim, &options);
        support_sparse_fill(group, i);
        support_ok(
            baton_sim_fail_send(group->sim, victim, 1 + i / SIZE % SENDS));
        support_sparse_start(group);
        support_ok(baton_sim_run(group->sim, -1));
        support_ok(baton_sim_fail_send(group->sim, victim, 0));
        support_sparse_recover(group);
        bool ended = baton_sparse_wait(group->ranks[0], -1,
                                       &group->results[0]) == BATON_OK;
        if (ended) {
            support_sparse_wait(group);
        }
        support_sparse_read_residuals(group);
        for (size_t at = 0; at < COUNT; at++) {
            float lost = -((const float *)group->dense)[at];
            for (int rank = 0; rank < SIZE; rank++) {
                const float *gradient = support_sparse_gradient(group, rank);
                const float *residual = support_sparse_residual(group, rank);
                lost += (ended ? gradient[at] : 0) - residual[at];
            }
            assert_true(lost == 0); /* exact, for integers */
        }
        support_sparse_close(group);
    }
}
