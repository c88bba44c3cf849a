/* Choices that are measured: by baton_group_tune, by BATON_TUNE=measure, and in
   files. Times are injected; no test depends on how fast anything is. */
#include "base/alloc.h"
#include "coll/tune/tune.h"
#include "support/sim.h"
#include "transport/group.h"

#include <math.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 3, TRIED = 4, BYTES = 1024, BUDGET_MS = 60000 };

/* ---- injected times ------------------------------------------------------ */

/* The algorithms, the cheapest by the model first. */
static const char *names[TRIED];
/* The time of an epoch in us, by rank and algorithm. */
static double times[RANKS][TRIED];
/* Each sample but the first of a size is the time multiplied by one of these
   factors, whose median is 1, in an order that differs between algorithms. */
static const double factors[] = {60, .1, 50, .3, 80, 1, .2, 70, .4};
static int taken_before[RANKS][TRIED];
static atomic_int samples;
/* The number of a sample on rank 1, from 1: it takes long_ms milliseconds or,
   if long_ms is 0, the next allocation after it fails. 0: there is no such
   sample. If it is not 0, samples are times without factors. */
static int last_sample, long_ms;

static double inject(int rank, const char *algorithm, double us)
{
    if (rank == 1 && atomic_fetch_add(&samples, 1) + 1 == last_sample) {
        if (long_ms > 0) {
            (void)poll(NULL, 0, long_ms);
        } else {
            baton__alloc_fail_nth(1);
        }
    }
    for (int i = 0; i < TRIED; i++) {
        if (strcmp(names[i], algorithm) == 0) {
            int n = taken_before[rank][i]++ % 10;
            if (last_sample > 0) {
                return times[rank][i];
            }
            return n == 0 ? 1e6 : times[rank][i] * factors[(n + 2 * i) % 9];
        }
    }
    return 1e6;
}

static baton_choice_case_t case_of(size_t bytes)
{
    return (baton_choice_case_t){.size = sizeof(baton_choice_case_t),
                                 .collective = BATON_COLLECTIVE_ALLREDUCE,
                                 .ranks = RANKS,
                                 .hosts = 1,
                                 .bytes = bytes};
}

/* Makes the i-th of the algorithms the fastest on the slowest rank. Each of the
   others is fastest on some rank, and slow on another. */
static void let_win(size_t i)
{
    baton_choice_case_t of = case_of(BYTES);
    baton_choice_t choices[TRIED];
    size_t count = 0;
    support_ok(baton__choice_rank(&of, TRIED, choices, &count));
    assert_int_equal(count, TRIED);
    for (size_t k = 0; k < TRIED; k++) {
        names[k] = choices[k].algorithm.name;
        for (int rank = 0; rank < RANKS; rank++) {
            times[rank][k] = (int)(k % RANKS) == rank ? 20 : 1;
            times[rank][k] = k == i ? 10 : times[rank][k];
        }
    }
    samples = 0;
    last_sample = 0;
    long_ms = 0;
    memset(taken_before, 0, sizeof taken_before);
    baton__tune_us = inject;
}

static const char *choice_of(support_cluster_t *cluster, int rank,
                             baton_choice_case_t of)
{
    baton_choice_t choice;
    support_ok(baton__choose_for(cluster->groups[rank], &of, &choice));
    return choice.algorithm.name;
}

/* Expects that all ranks choose this algorithm for the case. */
static void all_choose(support_cluster_t *cluster, baton_choice_case_t of,
                       const char *name)
{
    for (int rank = 0; rank < cluster->size; rank++) {
        assert_string_equal(choice_of(cluster, rank, of), name);
    }
}

static const char *model_of(baton_choice_case_t of)
{
    baton_choice_t choice;
    support_ok(baton_choose(&of, &choice));
    return choice.algorithm.name;
}

/* ---- ranks that tune */

typedef struct task {
    baton_tune_options_t options[RANKS];
    baton_status_t status[RANKS];
    char message[RANKS][256];
} task_t;

static const baton_tune_options_t usual = {.size = sizeof usual,
                                           .budget_ms = BUDGET_MS,
                                           .collectives = BATON_TUNE(ALLREDUCE),
                                           .least_bytes = BYTES,
                                           .most_bytes = BYTES};

static task_t task_of(baton_tune_options_t options)
{
    task_t task = {.status = {BATON_OK}};
    for (int rank = 0; rank < RANKS; rank++) {
        task.options[rank] = options;
    }
    return task;
}

static void tune(support_worker_t *worker)
{
    task_t *task = worker->arg;
    int rank = worker->rank;
    task->status[rank] = baton_group_tune(worker->group, &task->options[rank]);
    (void)snprintf(task->message[rank], sizeof task->message[rank], "%s",
                   baton_error_message());
}

static void tune_all(support_cluster_t *cluster, task_t *task)
{
    support_cluster_run(cluster, tune, task);
}

static void expect_all(const task_t *task, baton_status_t status)
{
    for (int rank = 0; rank < RANKS; rank++) {
        if (task->status[rank] != status) {
            fail_msg("rank %d: %s: %s", rank,
                     baton_status_name(task->status[rank]),
                     task->message[rank]);
        }
    }
}

static void tune_well(support_cluster_t *cluster, baton_tune_options_t options)
{
    task_t task = task_of(options);
    tune_all(cluster, &task);
    expect_all(&task, BATON_OK);
}

/* ---- tests */

TEST_WITH(test_the_fastest_on_the_slowest_rank, RANKS, SUPPORT_OWN_ENGINES)
{
    const char *model = model_of(case_of(BYTES));
    baton_choice_case_t in_place = case_of(BYTES);
    in_place.in_place = true;
    for (size_t winner = TRIED; winner-- > 1;) {
        let_win(winner);
        tune_well(cluster, usual);
        /* The choice is used for sizes of its class only, and not in place. */
        all_choose(cluster, case_of(BYTES), names[winner]);
        all_choose(cluster, case_of(BYTES / 2), names[winner]);
        all_choose(cluster, case_of(2 * BYTES - 1), names[winner]);
        all_choose(cluster, in_place, model);
        all_choose(cluster, case_of(BYTES / 2 - 1),
                   model_of(case_of(BYTES / 2 - 1)));
        all_choose(cluster, case_of(2 * BYTES), model_of(case_of(2 * BYTES)));
        assert_string_equal(model_of(case_of(BYTES)), model);
    }
    baton_tune_options_t options = usual;
    options.in_place = true;
    let_win(2);
    tune_well(cluster, options);
    all_choose(cluster, in_place, names[2]);
    all_choose(cluster, case_of(BYTES), names[1]);
}

/* Runs an all-reduce by a builder that chooses, after all collectives were
   tuned. */
static void run_allreduce(support_worker_t *worker)
{
    float data[BYTES / 4], sum[BYTES / 4];
    baton_schedule_t *schedule = NULL;
    for (int i = 0; i < BYTES / 4; i++) {
        data[i] = (float)worker->rank;
    }
    if (!support_worker_ok(
            worker, baton_schedule_create(worker->group, "sum", &schedule))) {
        return;
    }
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source =
                                       support_view(schedule, data, BYTES),
                                   .target = support_view(schedule, sum, BYTES),
                                   .dtype = BATON_F32,
                                   .op = BATON_SUM};
    baton_add_allreduce(schedule, &args);
    (void)(support_worker_ok(worker, baton_schedule_commit(schedule)) &&
           support_worker_run(worker, schedule) &&
           support_worker_check(worker, sum[7] == 3, "sum is %g",
                                (double)sum[7]));
    (void)support_worker_ok(worker, baton_schedule_destroy(schedule));
}

static const baton_transport_t *given;
static _Atomic int long_sends; /* the count of all ranks together */

static baton_status_t count_send(void *endpoint, baton_token_t token, int peer,
                                 const baton_header_t *header, const void *data,
                                 size_t bytes)
{
    long_sends += bytes >= BYTES;
    return given->send(endpoint, token, peer, header, data, bytes);
}

/* Checks that vectors are really sent: votes have shorter messages. */
static void expect_long_sends(support_cluster_t *cluster)
{
    baton_tune_options_t options = usual;
    options.least_bytes = options.most_bytes = (size_t)BYTES << 6;
    given = cluster->groups[0]->transport;
    baton_transport_t counted = *given;
    counted.send = count_send;
    for (int i = 0; i < (int)BATON_COLLECTIVE_COUNT; i++) {
        baton_choice_t choices[2];
        size_t count = 0;
        baton_choice_case_t of = case_of(options.most_bytes);
        of.collective = (baton_collective_t)i;
        support_ok(baton__choice_rank(&of, 2, choices, &count));
        if (count < 2) {
            continue; /* this collective has nothing to tune */
        }
        options.collectives = 1u << i;
        long_sends = 0;
        for (int rank = 0; rank < cluster->size; rank++) {
            cluster->groups[rank]->transport = &counted;
        }
        tune_well(cluster, options);
        for (int rank = 0; rank < cluster->size; rank++) {
            cluster->groups[rank]->transport = given;
        }
        assert_true(long_sends > 0);
    }
}

TEST_WITH(test_all_collectives_are_tuned, RANKS, SUPPORT_OWN_MANUAL)
{
    baton_tune_options_t options = usual;
    options.collectives = 0;
    let_win(3);
    tune_well(cluster, options);
    expect_long_sends(cluster);
    for (int i = 0; i < (int)BATON_COLLECTIVE_COUNT; i++) {
        baton_choice_case_t of = case_of(BYTES);
        of.collective = (baton_collective_t)i;
        all_choose(cluster, of, choice_of(cluster, 0, of));
    }
    all_choose(cluster, case_of(BYTES), names[3]);
    support_cluster_run(cluster, run_allreduce, NULL);
}

TEST_WITH(test_wrong_options_are_refused, RANKS, SUPPORT_OWN_ENGINES)
{
    const size_t large = ((size_t)1 << 30) + 1;
    const struct {
        baton_tune_options_t options;
        const char *says;
    } wrong[] = {
        {{.budget_ms = -1}, "budget_ms is -1; allowed: 0, which means 10000"},
        {{.collectives = BATON_TUNE(BARRIER)}, "collectives is 0x400"},
        {{.least_bytes = 9, .most_bytes = 8}, "least_bytes is 9"},
        {{.most_bytes = large}, "at most 1073741824"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        baton_tune_options_t options = wrong[i].options;
        options.size = sizeof options;
        support_fails(baton_group_tune(cluster->groups[0], &options),
                      BATON_ERR_INVALID, wrong[i].says);
    }
    baton_tune_options_t uninitialised = {.size = 0};
    support_fails(baton_group_tune(cluster->groups[0], &uninitialised),
                  BATON_ERR_INVALID, "BATON_TUNE_OPTIONS");
    support_expect(baton_group_tune(NULL, NULL), BATON_ERR_INVALID);
}

/* If anything keeps a rank from the comparison of options, the error says
   what. */
TEST_WITH(test_a_tuning_that_does_not_begin, RANKS, SUPPORT_OWN_MANUAL)
{
    baton_tune_options_t options = usual;
    baton_status_t status = BATON_ERR_NO_MEMORY;
    support_set_variable("BATON_CALIBRATION", "/nonexistent/file");
    support_expect(baton_group_tune(cluster->groups[0], &options),
                   BATON_ERR_SYSTEM);
    support_set_variable("BATON_CALIBRATION", NULL);
    options.budget_ms = 1;
    for (int64_t nth = 1; status == BATON_ERR_NO_MEMORY; nth++) {
        baton__alloc_fail_nth(nth);
        status = baton_group_tune(cluster->groups[0], &options);
        baton__alloc_fail_nth(0);
    }
    /* The other ranks do not call tune. */
    support_expect(status, BATON_ERR_TIMEOUT);
}

TEST_WITH(test_options_that_differ, RANKS, SUPPORT_OWN_ENGINES)
{
    for (int field = 0; field < 3; field++) {
        task_t task = task_of(usual);
        let_win(2);
        switch (field) {
        case 0:
            task.options[1].in_place = true;
            break;
        case 1:
            task.options[1].most_bytes *= 16;
            break;
        default:
            task.options[1].collectives = 0;
        }
        tune_all(cluster, &task);
        expect_all(&task, BATON_ERR_INVALID);
        assert_non_null(strstr(task.message[0], "different options"));
        all_choose(cluster, case_of(BYTES), model_of(case_of(BYTES)));
    }
}

/* A rank has no memory for the second, third or fourth size: choices stay as
   they were, and the next tuning succeeds. */
TEST_WITH(test_a_failure_half_way, RANKS, SUPPORT_OWN_ENGINES)
{
    let_win(1);
    tune_well(cluster, usual);
    baton_tune_options_t options = usual;
    options.most_bytes = (size_t)BYTES * 64;
    /* The last of these is the last sample of all, after which only a vote is
       left. */
    static const int last[] = {1, 14, 40, 92, 160};
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) {
        task_t task = task_of(options);
        let_win(2);
        last_sample = last[i];
        tune_all(cluster, &task);
        baton__alloc_fail_nth(0);
        for (int rank = 0; rank < RANKS; rank++) {
            if (task.status[rank] == BATON_OK ||
                task.status[rank] == BATON_ERR_TIMEOUT) {
                fail_msg("sample %d, rank %d: %s: %s", last[i], rank,
                         baton_status_name(task.status[rank]),
                         task.message[rank]);
            }
        }
        all_choose(cluster, case_of(BYTES), names[1]);
    }
    let_win(3);
    tune_well(cluster, usual);
    all_choose(cluster, case_of(BYTES), names[3]);
}

/* Rank 1 stays away. It calls tune when the others have given up. */
static void tune_without_1(support_worker_t *worker)
{
    if (worker->rank != 1) {
        tune(worker);
    }
}

static void tune_1_alone(support_worker_t *worker)
{
    if (worker->rank == 1) {
        tune(worker);
    }
}

TEST_WITH(test_a_rank_that_does_not_come, RANKS, SUPPORT_OWN_ENGINES)
{
    task_t task = task_of(usual);
    let_win(2);
    task.options[0].budget_ms = task.options[2].budget_ms = 20;
    support_cluster_run(cluster, tune_without_1, &task);
    assert_true(task.status[0] == BATON_ERR_TIMEOUT ||
                task.status[2] == BATON_ERR_TIMEOUT);
    support_cluster_run(cluster, tune_1_alone, &task);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_not_equal(task.status[rank], BATON_OK);
    }
    all_choose(cluster, case_of(BYTES), model_of(case_of(BYTES)));
    tune_well(cluster, usual);
    all_choose(cluster, case_of(BYTES), names[2]);
}

/* Only this rank is called. The part grows, whichever rank is the slowest. */
static void note_part(void *arg, double part)
{
    double *parts = arg; /* the number of calls, and the last part */
    parts[0] += part > parts[1] ? 1 : NAN;
    parts[1] = part;
}

TEST_WITH(test_tunings_tell_how_far_they_are, RANKS, SUPPORT_OWN_ENGINES)
{
    task_t task = task_of(usual);
    double parts[2] = {0};
    task.options[1].on_progress = note_part;
    task.options[1].on_progress_arg = parts;
    let_win(2);
    tune_all(cluster, &task);
    expect_all(&task, BATON_OK);
    assert_true(parts[0] > 9 && parts[1] < 1);
}

/* However far tuning has come, all ranks agree. */
TEST_WITH(test_a_budget_that_is_used_up, RANKS, SUPPORT_OWN_ENGINES)
{
    for (int budget_ms = 1; budget_ms < 200; budget_ms *= 3) {
        baton_tune_options_t options = usual;
        options.most_bytes = (size_t)1 << 20;
        task_t task = task_of(options);
        task.options[1].budget_ms = budget_ms;
        let_win(2);
        tune_all(cluster, &task);
        if (task.status[1] == BATON_ERR_TIMEOUT) {
            continue; /* the ranks did not meet in so short a time */
        }
        expect_all(&task, BATON_OK);
        for (size_t bytes = BYTES; bytes <= (size_t)1 << 20; bytes *= 4) {
            all_choose(cluster, case_of(bytes),
                       choice_of(cluster, 0, case_of(bytes)));
        }
    }
}

/* Each candidate has had only its first sample, which does not count. */
TEST_WITH(test_a_budget_that_ends_with_the_first_samples, RANKS,
          SUPPORT_OWN_ENGINES)
{
    task_t task = task_of(usual);
    int budget_ms = 500;
    do { /* repeated until the ranks get there in time */
        let_win(2);
        last_sample = TRIED;
        long_ms = budget_ms;
        task.options[1].budget_ms = budget_ms;
        tune_all(cluster, &task);
        budget_ms *= 4;
    } while (task.status[1] == BATON_ERR_TIMEOUT || samples < TRIED);
    expect_all(&task, BATON_OK);
    assert_int_equal(samples, TRIED);
    all_choose(cluster, case_of(BYTES), model_of(case_of(BYTES)));
}

/* ---- files */

static char path[64];

static void learn(support_cluster_t *cluster, size_t bytes, bool in_place,
                  size_t winner, baton_status_t expected)
{
    baton_tune_options_t options = usual;
    options.least_bytes = options.most_bytes = bytes;
    options.in_place = in_place;
    options.file = "/nonexistent/file";
    task_t task = task_of(options);
    task.options[0].file = path;
    let_win(winner);
    tune_all(cluster, &task);
    assert_int_equal(task.status[0], expected);
    assert_int_equal(task.status[1], BATON_OK);
}

TEST_WITH(test_what_was_learned_is_written, RANKS, SUPPORT_OWN_ENGINES)
{
    baton_choice_case_t in_place = case_of((size_t)BYTES * 4);
    in_place.in_place = true;
    baton_costs_t costs = BATON_COSTS;
    support_ok(baton_costs_get(&costs));
    costs.turn_us = 2.5;
    (void)snprintf(path, sizeof path, "/tmp/baton_tune_%ld", (long)getpid());
    support_ok(baton_costs_write(path, &costs));
    learn(cluster, BYTES, false, 1, BATON_OK);
    learn(cluster, in_place.bytes, true, 2, BATON_OK);
    learn(cluster, BYTES, false, 3, BATON_OK);
    support_set_variable("BATON_CALIBRATION", path);
    assert_string_equal(model_of(case_of(BYTES)), names[3]);
    assert_string_equal(model_of(in_place), names[2]);
    support_ok(baton_costs_get(&costs));
    assert_true(costs.turn_us == 2.5);
    /* The right file is read again after a file that is cut off, or wrong. */
    char cut[sizeof path + 4];
    (void)snprintf(cut, sizeof cut, "%s.cut", path);
    costs.inside.alpha_us *= 2;
    for (int i = 0; i < 2; i++) {
        support_ok(baton_costs_write(cut, &costs));
        support_write_file(cut, "a", "choice \n");
        struct stat whole;
        assert_int_equal(stat(cut, &whole), 0);
        assert_int_equal(truncate(cut, whole.st_size - 16 * i), 0);
        baton_choice_case_t of = case_of(BYTES);
        baton_choice_t choice;
        support_set_variable("BATON_CALIBRATION", cut);
        support_expect(baton_choose(&of, &choice), BATON_ERR_INVALID);
        (void)remove(cut);
        support_set_variable("BATON_CALIBRATION", path);
        assert_string_equal(model_of(of), names[3]);
        baton_costs_t known = BATON_COSTS;
        support_ok(baton_costs_get(&known));
        assert_true(2 * known.inside.alpha_us == costs.inside.alpha_us);
    }
    (void)remove(path);
    /* A choice is not used if its algorithm can't do the case. */
    baton_choice_case_t other = case_of(BYTES);
    other.ranks = RANKS + 1;
    const char *model = model_of(other);
    support_set_variable("BATON_CALIBRATION", NULL);
    assert_string_equal(model_of(other), model);
    (void)snprintf(path, sizeof path, "/nonexistent/file");
    learn(cluster, BYTES, false, 2, BATON_ERR_SYSTEM);
    /* This file can't be read. */
    support_set_variable("BATON_CALIBRATION", path);
    all_choose(cluster, case_of(BYTES), names[2]);
    support_set_variable("BATON_CALIBRATION", NULL);
}

TEST(test_wrong_lines_are_refused)
{
    static const char *const wrong[] = {
        "choice",
        "choice allreduce 1024 3 1 out ring",
        "choice allreduce 1024 3 1 out ring 0 0",
        "choice allreduced 1024 3 1 out ring 0",
        "choice allreduce 1000 3 1 out ring 0",
        "choice allreduce 1024 1 1 out ring 0",
        "choice allreduce 1024 3 4 out ring 0",
        "choice allreduce 1024 3 0 out ring 0",
        "choice allreduce 1024 3 1 there ring 0",
        "choice allgather 1024 3 1 in ring 0",
        "choice allreduce 1024 3 1 out rin 0",
        "choice allreduce 1024 3 1 out ring 4096",
        "choice allreduce 1024 3 1 out linear_pipeline 0",
        "choice allreduce 1024 3 1 out linear_pipeline 99999999999",
    };
    baton_costs_t costs = BATON_COSTS;
    baton_choice_case_t of = case_of(BYTES);
    baton_choice_t choice;
    support_ok(baton_costs_get(&costs));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        /* Each file has a new name, since a file is read only once. */
        (void)snprintf(path, sizeof path, "/tmp/baton_tune_%ld_%zu",
                       (long)getpid(), i);
        support_ok(baton_costs_write(path, &costs));
        support_write_file(path, "a", wrong[i]);
        support_write_file(path, "a", " \n");
        support_set_variable("BATON_CALIBRATION", path);
        support_fails(baton_choose(&of, &choice), BATON_ERR_INVALID,
                      "line 8 of");
        char says[120];
        (void)snprintf(says, sizeof says,
                       "is \"%s \", must be \"choice COLLECT", wrong[i]);
        support_says(says);
        support_set_variable("BATON_CALIBRATION", NULL);
        (void)remove(path);
    }
}

/* If a measured algorithm can't do a case, the model chooses. */
TEST(test_a_measured_algorithm_that_keeps_no_order)
{
    baton_costs_t costs = BATON_COSTS;
    baton_choice_case_t of = case_of(BYTES);
    of.ordered = true;
    const char *model = model_of(of);
    support_ok(baton_costs_get(&costs));
    (void)snprintf(path, sizeof path, "/tmp/baton_tune_%ld_ring",
                   (long)getpid());
    support_ok(baton_costs_write(path, &costs));
    support_write_file(path, "a", "choice allreduce 1024 3 1 out ring 0\n");
    support_set_variable("BATON_CALIBRATION", path);
    assert_string_equal(model_of(of), model);
    of.ordered = false;
    assert_string_equal(model_of(of), "ring");
    support_set_variable("BATON_CALIBRATION", NULL);
    (void)remove(path);
}

/* ---- BATON_TUNE=measure */

static void choose_of(support_worker_t *worker)
{
    baton_choice_t choice;
    baton_choice_case_t of = case_of(BYTES);
    of.collective = *(const baton_collective_t *)worker->arg;
    (void)support_worker_ok(worker,
                            baton__choose_for(worker->group, &of, &choice));
}

TEST_WITH(test_builders_measure, RANKS, SUPPORT_OWN_ENGINES)
{
    let_win(2);
    support_set_variable("BATON_TUNE", "measure");
    support_cluster_run(cluster, run_allreduce, NULL);
    int taken = samples;
    support_cluster_run(cluster, run_allreduce, NULL);
    assert_true(taken > 0);
    assert_int_equal(samples, taken);
    baton_collective_t others[] = {BATON_COLLECTIVE_BARRIER,
                                   BATON_COLLECTIVE_BROADCAST};
    for (int i = 0; i < 2; i++) { /* barriers have one algorithm */
        support_cluster_run(cluster, choose_of, &others[i]);
        assert_int_equal(samples > taken, i == 1);
    }
    support_set_variable("BATON_TUNE", NULL);
    all_choose(cluster, case_of(BYTES), names[2]);
}

static void count_warning(void *warnings, baton_log_level_t level,
                          const char *message)
{
    atomic_fetch_add((atomic_int *)warnings, level == BATON_LOG_WARN);
}

/* There is one warning about a file that can't be read, or has a wrong
   choice. */
TEST_WITH(test_builders_measure_without_a_calibration, RANKS,
          SUPPORT_OWN_ENGINES)
{
    atomic_int warnings = 0;
    baton_costs_t costs = BATON_COSTS;
    let_win(2);
    (void)snprintf(path, sizeof path, "/tmp/baton_tune_%ld", (long)getpid());
    support_ok(baton_costs_write(path, &costs));
    support_write_file(path, "a", "choice\n");
    support_set_variable("BATON_TUNE", "measure");
    baton_log_set(count_warning, &warnings);
    for (int i = 0; i < 2; i++) {
        support_set_variable("BATON_CALIBRATION",
                             i == 0 ? "/nonexistent/file" : path);
        support_cluster_run(cluster, run_allreduce, NULL);
        assert_string_equal(model_of(case_of(BYTES)), names[0]);
        all_choose(cluster, case_of(BYTES), names[2]);
    }
    baton_log_set(NULL, NULL);
    support_set_variable("BATON_CALIBRATION", NULL);
    support_set_variable("BATON_TUNE", NULL);
    (void)remove(path);
    assert_int_equal(warnings, 1);
}

/* Rank 1 chooses only when the others have given up, as if it did not have the
   variable. */
static void choose(support_worker_t *worker)
{
    const bool *late = worker->arg;
    baton_choice_t choice;
    baton_choice_case_t of = case_of(BYTES);
    if ((worker->rank == 1) == *late) {
        (void)(support_worker_ok(
                   worker, baton__choose_for(worker->group, &of, &choice)) &&
               support_worker_check(
                   worker, strcmp(choice.algorithm.name, names[0]) == 0, "%s",
                   choice.algorithm.name));
    }
}

TEST_WITH(test_a_rank_that_does_not_measure, RANKS, SUPPORT_OWN_ENGINES)
{
    let_win(2);
    support_set_variable("BATON_TUNE", "measure");
    for (int late = 0; late < 2; late++) {
        support_cluster_run(cluster, choose, &(bool){late != 0});
    }
    /* After this failure the group does not measure again. */
    support_cluster_run(cluster, run_allreduce, NULL);
    support_set_variable("BATON_TUNE", NULL);
    assert_int_equal(samples, 0);
    all_choose(cluster, case_of(BYTES), names[0]);
}

TEST(test_simulated_ranks_do_not_measure)
{
    baton_sim_t *sim = support_sim_of(RANKS);
    baton_choice_t choice;
    baton_choice_case_t of = case_of(BYTES);
    let_win(2);
    support_fails(baton_group_tune(baton_sim_group(sim, 0), NULL),
                  BATON_ERR_UNSUPPORTED, "simulated");
    support_set_variable("BATON_TUNE", "measure");
    support_ok(baton__choose_for(baton_sim_group(sim, 0), &of, &choice));
    support_set_variable("BATON_TUNE", NULL);
    assert_string_equal(choice.algorithm.name, names[0]);
    assert_int_equal(samples, 0);
    support_ok(baton_sim_destroy(sim));
}

/* ---- attributes */

static int destroyed;
static void destroy_one(void *value)
{
    destroyed += *(int *)value;
}

TEST(test_a_group_keeps_what_it_is_given)
{
    static int keys[2];
    static int values[2] = {1, 10};
    baton_engine_t *engine = NULL;
    baton_group_t *group = NULL;
    support_ok(baton_engine_open(NULL, &engine));
    support_ok(baton_group_create_self(engine, &group));
    assert_null(baton_group_attribute(group, &keys[0], NULL, NULL));
    assert_ptr_equal(
        baton_group_attribute(group, &keys[0], &values[0], destroy_one),
        &values[0]);
    assert_ptr_equal(
        baton_group_attribute(group, &keys[0], &values[1], destroy_one),
        &values[0]);
    assert_ptr_equal(
        baton_group_attribute(group, &keys[1], &values[1], destroy_one),
        &values[1]);
    /* This group has only one rank. */
    support_ok(baton_group_tune(group, NULL));
    support_ok(baton_group_destroy(group));
    assert_int_equal(destroyed, 11);
    support_ok(baton_engine_close(engine));
}

static int forget(void **state)
{
    baton__tune_us = NULL;
    return 0;
}

RUN_TESTS_BETWEEN(NULL, forget)
