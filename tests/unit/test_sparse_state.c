/* The state of a sparse all-reduce: export, import, and files. */
#include "support/sparse.h"

#include <baton/sparse.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 4, COUNT = 100 };

static baton_sparse_options_t some_options(void)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = BATON_SPARSE_SPARDL;
    options.dtype = BATON_F32;
    options.count = COUNT;
    options.k = 12;
    options.max_k = 14;
    return options;
}

static void run(support_sparse_t *group, uint64_t step)
{
    support_sparse_fill(group, step);
    support_sparse_step(group);
}

/* Exports to a buffer whose first byte is unused, so that the state is not
   aligned. */
static char *export(baton_sparse_t *sparse, size_t *bytes)
{
    *bytes = baton_sparse_state_size(sparse);
    assert_true(*bytes > 0);
    char *state = support_alloc(1, *bytes + 1);
    support_ok(baton_sparse_state_export(sparse, state + 1, *bytes));
    return state;
}

static void hand_over(const support_sparse_t *from, const support_sparse_t *to)
{
    for (int rank = 0; rank < from->size; rank++) {
        size_t bytes;
        char *state = export(from->ranks[rank], &bytes);
        support_ok(
            baton_sparse_state_import(to->ranks[rank], state + 1, bytes));
        free(state);
    }
}

/* ---- the same bits ----------------------------------------------------- */

static void expect_same(const support_sparse_t *left,
                        const support_sparse_t *right)
{
    assert_memory_equal(left->dense, right->dense, COUNT * sizeof(float));
    assert_memory_equal(left->residuals, right->residuals,
                        RANKS * COUNT * sizeof(float));
    for (int rank = 0; rank < RANKS; rank++) {
        baton_sparse_stats_t a, b;
        support_ok(baton_sparse_stats(left->ranks[rank], &a));
        support_ok(baton_sparse_stats(right->ranks[rank], &b));
        assert_int_equal(a.steps, b.steps);
        assert_int_equal(a.k, b.k);
        assert_int_equal(a.h, b.h);
        assert_int_equal(a.bytes_sent, b.bytes_sent);
        assert_true(a.threshold == b.threshold);
    }
}

/* Continues a run in a new object, and in one that has done `other` steps with
   another k. */
static void go_on_elsewhere(const baton_sparse_options_t *options,
                            uint64_t steps, uint64_t other)
{
    support_sparse_t *left = support_sparse_open(RANKS, options);
    support_sparse_t *right[2];
    for (uint64_t step = 0; step < steps; step++) {
        run(left, step);
    }
    for (int i = 0; i < 2; i++) {
        right[i] = support_sparse_open(RANKS, options);
        for (int rank = 0; rank < RANKS && i == 1; rank++) {
            support_ok(baton_sparse_set_k(right[i]->ranks[rank], 7));
        }
        for (uint64_t step = 0; step < other && i == 1; step++) {
            run(right[i], 1000 + step);
        }
        hand_over(left, right[i]);
    }
    for (uint64_t step = steps; step < steps + 13; step++) {
        run(left, step);
        for (int i = 0; i < 2; i++) {
            run(right[i], step);
            expect_same(left, right[i]);
        }
    }
    support_sparse_close(left);
    support_sparse_close(right[0]);
    support_sparse_close(right[1]);
}

TEST(test_import_goes_on_with_the_same_bits)
{
    support_random_t random = support_random(support_seed(), 1);
    for (int i = 0; i < 3 * (BATON_SPARSE_COUNT - 1); i++) {
        baton_sparse_options_t options = some_options();
        options.algorithm = (baton_sparse_algorithm_t)(1 + i / 3);
        options.teams = options.algorithm == BATON_SPARSE_SPARDL ? 2 : 1;
        options.momentum = i % 3 == 0 ? 0 : 0.5;
        options.nesterov = i % 3 == 2;
        options.short_velocity = i % 3 > 0 && i % 2 == 0;
        options.clip = i % 3 == 1 ? 900 : 0;
        options.average = i % 2 == 1;
        options.warmup = support_random_below(&random, 4);
        if (options.algorithm == BATON_SPARSE_SPARDL) {
            options.exchange =
                i % 2 == 0 ? BATON_EXCHANGE_BSAG : BATON_EXCHANGE_RSAG;
        } else if (options.algorithm == BATON_SPARSE_REDSYNC) {
            options.quantise = i % 3 == 1;
            options.redsync =
                i % 3 == 1 ? BATON_REDSYNC_SEARCH : BATON_REDSYNC_SAMPLED;
        }
        go_on_elsewhere(&options, support_random_below(&random, 70),
                        1 + support_random_below(&random, 70));
    }
}

/* ---- partial all-reduces ----------------------------------------------- */

/* One rank starts after the epoch of the others has ended, unless that epoch
   waits for it. So in modes that allow it, a gradient is pending after each
   step. */
static void run_late(support_sparse_t *group, uint64_t step)
{
    int late = (int)(step % (uint64_t)group->size);
    support_sparse_fill(group, step);
    for (int i = 1; i <= group->size; i++) {
        int rank = (late + i) % group->size;
        support_ok(baton_sparse_start(group->ranks[rank],
                                      support_sparse_gradient(group, rank)));
        /* This may return an error, since the epoch may wait for other
           ranks. */
        (void)!baton_sim_run(group->sim, -1);
    }
    for (int rank = 0; rank < group->size; rank++) {
        support_ok(
            baton_sparse_wait(group->ranks[rank], -1, &group->results[rank]));
    }
    support_ok(baton_sparse_dense(group->ranks[0], group->dense));
}

static void expect_same_partial(const support_sparse_t *left,
                                const support_sparse_t *right)
{
    assert_memory_equal(left->dense, right->dense, COUNT * sizeof(float));
    for (int rank = 0; rank < left->size; rank++) {
        size_t bytes;
        char *one = export(left->ranks[rank], &bytes);
        char *other = export(right->ranks[rank], &bytes);
        assert_memory_equal(one + 1, other + 1, bytes);
        free(one);
        free(other);
        assert_int_equal(left->results[rank].included,
                         right->results[rank].included);
    }
}

/* Continues a run in objects that are new, or that have done more or fewer
   steps. The objects are recovered meanwhile. */
static void go_on_late(int size, const baton_sparse_options_t *options)
{
    support_sparse_t *left = support_sparse_open(size, options), *right[3];
    uint64_t step = 0;
    for (; step < 6; step++) {
        run_late(left, step);
    }
    for (int i = 0; i < 3; i++) {
        right[i] = support_sparse_open(size, options);
        static const uint64_t others[] = {0, 2, 11};
        for (uint64_t other = 0; other < others[i]; other++) {
            run_late(right[i], 100 + other);
        }
        hand_over(left, right[i]);
    }
    for (; step < 16; step++) {
        run_late(left, step);
        for (int i = 0; i < 3; i++) {
            run_late(right[i], step);
            expect_same_partial(left, right[i]);
        }
        for (int i = -1; i < 3 && step == 10; i++) {
            support_sparse_recover(i < 0 ? left : right[i]);
        }
    }
    support_sparse_close(left);
    for (int i = 0; i < 3; i++) {
        support_sparse_close(right[i]);
    }
}

TEST(test_import_goes_on_with_the_same_late_ranks)
{
    static const int sizes[] = {1, 2, 3, 5};
    static const baton_partial_mode_t modes[] = {BATON_SOLO, BATON_MAJORITY,
                                                 BATON_QUORUM, BATON_FULL};
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_SPARDL, BATON_SPARSE_TOPKA, BATON_SPARSE_GTOPK,
        BATON_SPARSE_TOPKDSA};
    for (int i = 0; i < 64; i++) {
        baton_sparse_options_t options = some_options();
        options.algorithm = algorithms[i / 16];
        options.partial = true;
        options.mode = modes[i % 4];
        options.mode_ranks = options.mode == BATON_QUORUM ? 1 : 0;
        options.momentum = i % 3 == 0 ? 0.5 : 0;
        options.short_velocity = i % 6 == 0;
        /* in the warm-up k is above max_k */
        options.warmup = i / 4 % 2 == 0 ? 8 : 0;
        options.sync_every = i % 5 == 0 ? 4 : 0;
        options.seed = 5;
        go_on_late(sizes[i / 4 % 4], &options);
    }
}

TEST(test_import_keeps_the_k_of_a_partial)
{
    baton_sparse_options_t options = some_options();
    baton_sparse_stats_t stats;
    options.partial = true;
    support_sparse_t *left = support_sparse_open(2, &options);
    options.k = options.max_k = 7;
    support_sparse_t *right = support_sparse_open(2, &options);
    run_late(left, 0);
    hand_over(left, right);
    support_ok(baton_sparse_stats(right->ranks[0], &stats));
    assert_int_equal(stats.k, 7);
    support_sparse_close(left);
    support_sparse_close(right);
}

/* The other rank has done another step. So this rank's contribution is in a
   result that it has not got. */
TEST(test_export_between_different_steps_is_refused)
{
    baton_sparse_options_t options = some_options();
    options.partial = true;
    support_sparse_t *group = support_sparse_open(2, &options);
    baton_sparse_t *behind = group->ranks[1];
    run_late(group, 0);
    size_t bytes;
    char *kept = export(behind, &bytes);
    support_ok(
        baton_sparse_start(group->ranks[0], support_sparse_gradient(group, 0)));
    support_ok(baton_sim_run(group->sim, -1));
    static const char *const says = "its step was not started here";
    support_fails(baton_sparse_state_import(behind, kept + 1, bytes),
                  BATON_ERR_BUSY, says);
    support_fails(baton_sparse_state_export(behind, kept + 1, bytes),
                  BATON_ERR_BUSY, says);
    support_fails(baton_sparse_save(behind, "/tmp/never"), BATON_ERR_BUSY,
                  says);
    free(kept);
    support_sparse_close(group);
}

/* ---- other tensors ----------------------------------------------------- */

/* A step of zero gradients that sends everything: the result is the sum of the
   residuals. */
static void expect_sum(support_sparse_t *part, const support_sparse_t *whole,
                       size_t begin)
{
    memset(part->gradients, 0, RANKS * part->options.count * sizeof(float));
    support_sparse_step(part);
    for (size_t i = 0; i < part->options.count; i++) {
        float sum = 0;
        for (int rank = 0; rank < RANKS; rank++) {
            const float *residual = support_sparse_residual(whole, rank);
            sum += residual[begin + i];
        }
        float got;
        memcpy(&got, part->dense + i * sizeof got, sizeof got);
        assert_true(got == sum);
    }
}

/* With and without partial: the residuals of one vector become those of
   several. */
TEST(test_residuals_move_to_another_cut)
{
    for (int partial = 0; partial < 2; partial++) {
        baton_sparse_options_t options = some_options();
        options.partial = partial == 1;
        options.mode = partial == 1 ? BATON_FULL : BATON_SOLO;
        support_sparse_t *whole = support_sparse_open(RANKS, &options);
        for (uint64_t step = 0; step < 5; step++) {
            run(whole, step);
        }
        for (size_t begin = 0; begin < COUNT; begin += 37) {
            size_t left = COUNT - begin;
            options.count = left < 37 ? left : 37;
            options.max_k = options.k = options.count;
            support_sparse_t *part = support_sparse_open(RANKS, &options);
            for (int rank = 0; rank < RANKS; rank++) {
                const float *residual = support_sparse_residual(whole, rank);
                support_ok(baton_sparse_set_residual(part->ranks[rank],
                                                     residual + begin, NULL));
            }
            expect_sum(part, whole, begin);
            support_sparse_close(part);
        }
        support_sparse_close(whole);
    }
}

/* An object that has done other steps continues from the residual and velocity
   that are set. */
TEST(test_residual_and_velocity_are_what_steps_begin_with)
{
    baton_sparse_options_t options = some_options();
    float residual[COUNT], velocity[COUNT];
    options.momentum = 0.5;
    support_sparse_t *left = support_sparse_open(RANKS, &options);
    support_sparse_t *right = support_sparse_open(RANKS, &options);
    for (uint64_t step = 0; step < 7; step++) {
        run(left, step);
        run(right, 100 + step);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_sparse_residual(left->ranks[rank], residual));
        support_ok(baton_sparse_velocity(left->ranks[rank], velocity));
        support_ok(
            baton_sparse_set_residual(right->ranks[rank], residual, velocity));
    }
    support_expect(baton_sparse_dense(right->ranks[0], residual),
                   BATON_ERR_STATE);
    for (uint64_t step = 7; step < 12; step++) {
        run(left, step);
        run(right, step);
        expect_same(left, right);
    }
    support_fails(baton_sparse_set_residual(right->ranks[0], residual, NULL),
                  BATON_ERR_INVALID, "velocity is NULL");
    support_fails(baton_sparse_set_residual(right->ranks[0], NULL, velocity),
                  BATON_ERR_INVALID, "residual is NULL");
    support_sparse_close(left);
    support_sparse_close(right);
    options.momentum = 0;
    right = support_sparse_open(RANKS, &options);
    support_fails(
        baton_sparse_set_residual(right->ranks[0], residual, velocity),
        BATON_ERR_INVALID, "momentum is 0");
    support_expect(baton_sparse_velocity(right->ranks[0], velocity),
                   BATON_ERR_STATE);
    support_sparse_close(right);
}

/* A state of the warm-up is imported after sparse steps. The next dense step
   must not change the velocity of entries that these sparse steps had sent. */
TEST(test_import_goes_back_to_dense_steps)
{
    baton_sparse_options_t options = some_options();
    char *states[RANKS];
    size_t bytes = 0;
    options.momentum = 0.5;
    options.warmup = 2;
    support_sparse_t *left = support_sparse_open(RANKS, &options);
    support_sparse_t *right = support_sparse_open(RANKS, &options);
    run(left, 0);
    run(right, 0);
    for (int rank = 0; rank < RANKS; rank++) {
        states[rank] = export(right->ranks[rank], &bytes);
    }
    for (uint64_t step = 1; step < 4; step++) {
        run(right, step);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_sparse_state_import(right->ranks[rank],
                                             states[rank] + 1, bytes));
        free(states[rank]);
    }
    for (uint64_t step = 1; step < 5; step++) {
        run(left, step);
        run(right, step);
        expect_same(left, right);
    }
    support_sparse_close(left);
    support_sparse_close(right);
}

/* ---- recoveries -------------------------------------------------------- */

/* After a recovery, steps are counted from those of the imported state. */
TEST(test_import_before_a_recovery)
{
    baton_sparse_options_t options = some_options();
    support_sparse_t *left = support_sparse_open(RANKS, &options);
    support_sparse_t *right = support_sparse_open(RANKS, &options);
    baton_sparse_stats_t stats;
    for (uint64_t step = 0; step < 5; step++) {
        run(left, step);
    }
    run(right, 9);
    hand_over(left, right);
    support_ok(baton_sim_fail_send(right->sim, 1, 1));
    for (int rank = 0; rank < RANKS; rank++) {
        support_ok(baton_sparse_start(right->ranks[rank],
                                      support_sparse_gradient(left, rank)));
    }
    for (int rank = 0; rank < RANKS; rank++) {
        baton_sparse_result_t result;
        support_expect(baton_sparse_wait(right->ranks[rank], -1, &result),
                       BATON_ERR_TRANSPORT);
    }
    support_ok(baton_sim_fail_send(right->sim, 1, 0));
    support_sparse_recover(right);
    support_ok(baton_sparse_stats(right->ranks[0], &stats));
    assert_int_equal(stats.steps, 5);
    support_sparse_close(left);
    support_sparse_close(right);
}

/* ---- refusals by import ------------------------------------------------ */

static void expect_import_refused(const baton_sparse_options_t *options,
                                  const char *state, size_t bytes,
                                  const char *says)
{
    support_sparse_t *to = support_sparse_open(2, options);
    support_fails(baton_sparse_state_import(to->ranks[0], state, bytes),
                  BATON_ERR_INVALID, says);
    support_sparse_close(to);
}

TEST(test_import_names_the_option_that_differs)
{
    baton_sparse_options_t options = some_options();
    options.algorithm = BATON_SPARSE_REDSYNC;
    options.momentum = 0.5;
    options.quantise = true;
    support_sparse_t *group = support_sparse_open(2, &options);
    size_t bytes;
    support_ok(baton_sparse_set_k(group->ranks[0], 13));
    char *from = export(group->ranks[0], &bytes);
#define REFUSED(change, says)                                                  \
    do {                                                                       \
        baton_sparse_options_t other = options;                                \
        other.change;                                                          \
        expect_import_refused(&other, from + 1, bytes, says);                  \
    } while (0)
    REFUSED(quantise = false; other.algorithm = BATON_SPARSE_TOPKA,
                              "algorithm is topka, and redsync in the state");
    REFUSED(count = COUNT + 1, "count is 101, and 100 in the state");
    REFUSED(dtype = BATON_F64, "dtype is f64, and f32 in the state");
    REFUSED(average = true, "average is 1, and 0 in the state");
    REFUSED(momentum = 0.25, "momentum is 0.25, and 0.5 in the state");
    REFUSED(momentum = 0, "momentum is 0, and 0.5 in the state");
    REFUSED(nesterov = true, "nesterov is 1, and 0 in the state");
    REFUSED(clip = 3, "clip is 3, and 0 in the state");
    REFUSED(warmup = 5, "warmup is 5, and 0 in the state");
    REFUSED(redsync = BATON_REDSYNC_SEARCH, "redsync is 2, and 0 in the state");
    REFUSED(quantise = false, "quantise is 0, and 1 in the state");
    REFUSED(max_k = 12, "k of the state is 13; allowed: 1 to max_k, 12");
#undef REFUSED
    support_fails(baton_sparse_state_import(group->ranks[1], from + 1, bytes),
                  BATON_ERR_INVALID, "rank of the state is 0, expected 1");
    free(from);
    support_sparse_close(group);
}

TEST(test_damaged_states_are_refused)
{
    baton_sparse_options_t options = some_options();
    options.algorithm = BATON_SPARSE_OKTOPK;
    options.momentum = 0.5;
    support_sparse_t *group = support_sparse_open(1, &options);
    baton_sparse_t *sparse = group->ranks[0];
    size_t bytes;
    run(group, 1);
    char *good = export(sparse, &bytes), *bad = malloc(bytes + 1);
    run(group, 2);
    char *before = export(sparse, &bytes);
    assert_non_null(bad);
    memcpy(bad, good + 1, bytes);
    for (size_t length = 0; length < bytes; length++) {
        support_expect(baton_sparse_state_import(sparse, bad, length),
                       BATON_ERR_INVALID);
    }
    support_says("the size of the state is");
    support_expect(baton_sparse_state_import(sparse, bad, bytes + 1),
                   BATON_ERR_INVALID);
    for (size_t at = 0; at < bytes; at++) {
        bad[at] ^= 4;
        support_expect(baton_sparse_state_import(sparse, bad, bytes),
                       BATON_ERR_INVALID);
        bad[at] ^= 4;
    }
    support_says("the checksum of the state is");
    char *after = export(sparse, &bytes);
    assert_memory_equal(after + 1, before + 1, bytes);
    support_ok(baton_sparse_state_import(sparse, bad, bytes));
    free(good);
    free(bad);
    free(before);
    free(after);
    support_sparse_close(group);
}

TEST(test_wrong_memory_is_refused)
{
    static char room[4096];
    baton_sparse_options_t options = some_options();
    support_sparse_t *group = support_sparse_open(1, &options);
    baton_sparse_t *sparse = group->ranks[0];
    size_t bytes = baton_sparse_state_size(sparse);
    assert_int_equal(baton_sparse_state_size(NULL), 0);
    support_expect(baton_sparse_state_export(sparse, NULL, bytes),
                   BATON_ERR_INVALID);
    support_fails(baton_sparse_state_export(sparse, room, bytes - 1),
                  BATON_ERR_INVALID, "allowed: ");
    support_fails(baton_sparse_state_import(sparse, NULL, bytes),
                  BATON_ERR_INVALID, "state is NULL");
    support_sparse_close(group);
}

TEST(test_save_and_load)
{
    char folder[] = "/tmp/baton_sparse_XXXXXX", path[64], text[64], other[80];
    baton_sparse_options_t options = some_options();
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/state", folder);
    (void)snprintf(text, sizeof text, "%s/state: import", folder);
    support_sparse_t *group = support_sparse_open(1, &options);
    baton_sparse_t *sparse = group->ranks[0];
    size_t bytes;
    run(group, 1);
    char *before = export(sparse, &bytes);
    support_expect(baton_sparse_load(sparse, path), BATON_ERR_SYSTEM);
    support_fails(baton_sparse_save(sparse, folder), BATON_ERR_INVALID,
                  "is no regular file, and is not replaced");
    (void)snprintf(other, sizeof other, "%s.new", path);
    /* Neither the link nor its target is changed. */
    for (int i = 0; i < 2; i++) {
        struct stat found;
        assert_int_equal(symlink("/dev/null", i == 0 ? path : other), 0);
        support_fails(baton_sparse_save(sparse, path), BATON_ERR_INVALID,
                      i == 0 ? "state is no regular"
                             : "state.new is no regular");
        assert_int_equal(lstat(i == 0 ? path : other, &found), 0);
        assert_true(S_ISLNK(found.st_mode));
        assert_int_equal(remove(i == 0 ? path : other), 0);
    }
    support_expect(baton_sparse_save(sparse, ""), BATON_ERR_INVALID);
    support_ok(baton_sparse_save(sparse, path));
    run(group, 2);
    support_ok(baton_sparse_load(sparse, path));
    char *after = export(sparse, &bytes);
    assert_memory_equal(after + 1, before + 1, bytes);
    free(before);
    free(after);
    assert_int_equal(truncate(path, (off_t)bytes - 1), 0);
    support_fails(baton_sparse_load(sparse, path), BATON_ERR_INVALID, text);
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0);
    support_sparse_close(group);
}
