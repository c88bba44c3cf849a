/* 10,000 random sparse all-reduces with faults: whatever the ranks, elements,
   algorithm and network, and whoever is late, slow or fails, every step that
   ends well on all ranks has one result and loses nothing, and a rank on which
   a step fails has the residual of before. Gradients are integers, so sums are
   exact. A seed that fails is named; BATON_SEED repeats all of them. */
#include "support/cluster.h"
#include "support/random.h"
#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    SEEDS = SUPPORT_REPEAT(10000),
    MOST_RANKS = 17,
    MOST_COUNT = 48,
    MOST_STEPS = 5
};

typedef enum fault { NO_FAULT, FAIL_SEND, KILL } fault_t;

typedef struct trial trial_t;

typedef struct participant {
    trial_t *trial;
    int rank;
    baton_sparse_t *sparse;
    double gradient[MOST_COUNT], before[MOST_COUNT], after[MOST_COUNT];
    bool started;
    baton_status_t status; /* of the step */
    baton_sparse_result_t result;
} participant_t;

struct trial {
    support_random_t random;
    baton_sim_t *sim;
    baton_sparse_options_t options;
    int size;
    bool flushes; /* this step */
    fault_t fault;
    int victim;
    participant_t participants[MOST_RANKS];
};

/* What has been tried, so that the test notices if it tries too little. */
static struct {
    uint64_t completed, failed, half_failed, killed, flushed;
} seen;

static char running[300];

#define holds(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fail_msg("%s: %s is not true (line %d): %s", running, #condition,  \
                     __LINE__, baton_error_message());                         \
        }                                                                      \
    } while (0)

static uint64_t below(trial_t *trial, uint64_t bound)
{
    return support_random_below(&trial->random, bound);
}

static bool once_in(trial_t *trial, uint64_t n)
{
    return below(trial, n) == 0;
}

/* ---- what is tried ----------------------------------------------------- */

static baton_sim_options_t random_network(trial_t *trial)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = trial->size;
    options.seed = support_random_next(&trial->random);
    options.link.alpha_us = (double)below(trial, 8);
    options.link.beta_ns = (double)below(trial, 8);
    options.overhead_us = (double)below(trial, 3);
    options.multi_ported = once_in(trial, 3);
    options.introductions = once_in(trial, 4);
    options.sync_bytes = once_in(trial, 3) ? (size_t)16 << below(trial, 5) : 0;
    if (once_in(trial, 3)) {
        options.eager_bytes = options.sync_bytes > 0
                                  ? options.sync_bytes / 2
                                  : (size_t)16 << below(trial, 5);
    }
    if (once_in(trial, 2)) {
        options.lag = (baton_distribution_t){BATON_DISTRIBUTION_EXPONENTIAL,
                                             (double)(1 + below(trial, 50)), 0};
    }
    if (once_in(trial, 3)) {
        options.speed =
            (baton_distribution_t){BATON_DISTRIBUTION_LOGNORMAL, 1, 0.5};
    }
    return options;
}

static int random_teams(trial_t *trial)
{
    int teams = 1 + (int)below(trial, (uint64_t)trial->size);
    while (trial->size % teams != 0) {
        teams--;
    }
    return teams;
}

static baton_sparse_options_t random_options(trial_t *trial)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.dtype = BATON_F64;
    options.count = 1 + below(trial, MOST_COUNT);
    options.max_k = options.count;
    options.k = 1 + below(trial, options.count);
    options.algorithm =
        once_in(trial, 3)
            ? BATON_SPARSE_SPARDL
            : (baton_sparse_algorithm_t)below(trial, BATON_SPARSE_COUNT);
    options.teams =
        once_in(trial, 4) ? BATON_SPARSE_TEAMS_AUTO : random_teams(trial);
    options.exchange = once_in(trial, 2) ? BATON_TEAMS_BSAG : BATON_TEAMS_AUTO;
    options.redsync = (baton_redsync_t)below(trial, 4);
    options.warmup = below(trial, 4) == 0;
    return options;
}

static void open_trial(trial_t *trial, uint64_t index)
{
    *trial = (trial_t){.random = support_random(support_seed(), index)};
    trial->size = once_in(trial, 32) ? MOST_RANKS : 1 + (int)below(trial, 8);
    baton_sim_options_t network = random_network(trial);
    trial->options = random_options(trial);
    (void)snprintf(running, sizeof running,
                   "trial %llu: %s on %d ranks, n %zu, k %zu, %d teams, "
                   "exchange %d",
                   (unsigned long long)index,
                   baton_sparse_algorithm_name(trial->options.algorithm),
                   trial->size, trial->options.count, trial->options.k,
                   trial->options.teams, (int)trial->options.exchange);
    support_ok(baton_sim_create(&network, &trial->sim));
    for (int rank = 0; rank < trial->size; rank++) {
        participant_t *participant = &trial->participants[rank];
        participant->trial = trial;
        participant->rank = rank;
        support_ok(baton_sparse_prepare(baton_sim_group(trial->sim, rank),
                                        &trial->options, &participant->sparse));
    }
    for (int rank = 0; rank < trial->size; rank++) {
        support_ok(baton_sparse_connect(trial->participants[rank].sparse, -1));
    }
}

static void close_trial(trial_t *trial)
{
    for (int rank = 0; rank < trial->size; rank++) {
        support_ok(baton_sparse_destroy(trial->participants[rank].sparse));
    }
    support_ok(baton_sim_destroy(trial->sim));
}

/* ---- a step ------------------------------------------------------------ */

static void start(void *arg)
{
    participant_t *participant = arg;
    trial_t *trial = participant->trial;
    participant->status =
        trial->flushes
            ? baton_sparse_flush(participant->sparse)
            : baton_sparse_start(participant->sparse, participant->gradient);
    participant->started = participant->status == BATON_OK;
    /* A peer's failure may be known before the start. */
    holds(participant->started || trial->fault != NO_FAULT);
}

static void kill_victim(void *arg)
{
    trial_t *trial = arg;
    support_ok(baton_sim_kill(trial->sim, trial->victim));
}

/* Each rank starts at its own time. */
static void schedule_starts(trial_t *trial)
{
    double now_us = baton_sim_now_us(trial->sim);
    uint64_t spread = once_in(trial, 2) ? 1 : 100;
    size_t k = 1 + below(trial, trial->options.count);
    trial->flushes = once_in(trial, 8);
    for (int rank = 0; rank < trial->size; rank++) {
        participant_t *participant = &trial->participants[rank];
        participant->started = false;
        for (size_t i = 0; i < trial->options.count; i++) {
            participant->gradient[i] = (double)below(trial, 41) - 20;
        }
        support_ok(baton_sparse_set_k(participant->sparse, k));
        support_ok(
            baton_sparse_residual(participant->sparse, participant->before));
        support_ok(baton_sim_at(trial->sim,
                                now_us + (double)below(trial, spread), start,
                                participant));
    }
}

static void schedule_fault(trial_t *trial)
{
    double now_us = baton_sim_now_us(trial->sim);
    uint64_t kind = below(trial, 10);
    trial->fault = kind < 6 ? NO_FAULT : kind < 9 ? FAIL_SEND : KILL;
    trial->victim = (int)below(trial, (uint64_t)trial->size);
    if (trial->fault == FAIL_SEND) {
        support_ok(baton_sim_fail_send(trial->sim, trial->victim,
                                       1 + below(trial, 8)));
    } else if (trial->fault == KILL) {
        support_ok(baton_sim_at(trial->sim, now_us + (double)below(trial, 200),
                                kill_victim, trial));
    }
}

static bool is_dead(const participant_t *participant)
{
    return participant->trial->fault == KILL &&
           participant->trial->victim == participant->rank;
}

/* Returns on how many living ranks the step has failed. */
static int end_step(trial_t *trial)
{
    int failed = 0;
    baton_status_t status = baton_sim_run(trial->sim, -1);
    holds(status == BATON_OK || trial->fault != NO_FAULT);
    for (int rank = 0; rank < trial->size; rank++) {
        participant_t *participant = &trial->participants[rank];
        if (is_dead(participant)) {
            continue;
        }
        if (participant->started) {
            participant->status = baton_sparse_wait(participant->sparse, -1,
                                                    &participant->result);
        }
        failed += participant->status != BATON_OK;
        holds(participant->status == BATON_OK || trial->fault != NO_FAULT);
        support_ok(
            baton_sparse_residual(participant->sparse, participant->after));
    }
    return failed;
}

/* ---- what must hold ---------------------------------------------------- */

static void check_failed(const participant_t *participant)
{
    size_t bytes = participant->trial->options.count * sizeof(double);
    holds(memcmp(participant->before, participant->after, bytes) == 0);
}

static void check_same(const baton_sparse_result_t *left,
                       const baton_sparse_result_t *right)
{
    const double *a = left->values, *b = right->values;
    bool sparse = left->indices != NULL && right->indices != NULL;
    holds(left->count == right->count);
    holds(sparse || left->indices == right->indices);
    for (size_t i = 0; i < left->count; i++) {
        holds(a[i] == b[i]);
        holds(!sparse || left->indices[i] == right->indices[i]);
    }
}

/* Elementwise and exact. */
static void check_sums(trial_t *trial)
{
    double result[MOST_COUNT];
    support_ok(baton_sparse_dense(trial->participants[0].sparse, result));
    for (size_t i = 0; i < trial->options.count; i++) {
        double in = 0, out = result[i];
        for (int rank = 0; rank < trial->size; rank++) {
            const participant_t *participant = &trial->participants[rank];
            in += participant->before[i];
            in += trial->flushes ? 0 : participant->gradient[i];
            out += participant->after[i];
            holds(!trial->flushes || participant->after[i] == 0);
        }
        holds(in == out);
    }
}

static void check_stats(trial_t *trial)
{
    for (int rank = 0; rank < trial->size; rank++) {
        baton_sparse_stats_t stats;
        support_ok(
            baton_sparse_stats(trial->participants[rank].sparse, &stats));
        holds(stats.nnz == trial->participants[rank].result.count);
        if (stats.algorithm == BATON_SPARSE_SPARDL) {
            holds(stats.messages_sent == stats.rounds &&
                  stats.messages_received == stats.rounds);
            holds(stats.block_selections ==
                  (uint32_t)(trial->size / stats.teams));
        }
    }
}

static void recover(trial_t *trial)
{
    bool all = false;
    for (int tries = 0; !all; tries++) {
        holds(tries < 100);
        all = true;
        for (int rank = 0; rank < trial->size; rank++) {
            baton_status_t status =
                baton_group_recover(baton_sim_group(trial->sim, rank), 0);
            all = all && status == BATON_OK;
        }
        support_ok(baton_sim_run(trial->sim, -1));
    }
}

static void check_step(trial_t *trial, int failed)
{
    for (int rank = 0; rank < trial->size && failed > 0; rank++) {
        const participant_t *participant = &trial->participants[rank];
        if (!is_dead(participant) && participant->status != BATON_OK) {
            check_failed(participant);
        }
    }
    if (failed > 0 || trial->fault == KILL) {
        seen.failed += failed > 0;
        seen.half_failed += failed > 0 && failed < trial->size;
        return;
    }
    for (int rank = 1; rank < trial->size; rank++) {
        check_same(&trial->participants[0].result,
                   &trial->participants[rank].result);
    }
    check_sums(trial);
    check_stats(trial);
    seen.completed++;
    seen.flushed += trial->flushes;
}

static void run_trial(uint64_t index)
{
    static trial_t trial;
    open_trial(&trial, index);
    uint64_t steps = 1 + below(&trial, MOST_STEPS);
    for (uint64_t step = 0; step < steps; step++) {
        schedule_fault(&trial);
        schedule_starts(&trial);
        int failed = end_step(&trial);
        check_step(&trial, failed);
        if (trial.fault == KILL) {
            seen.killed++;
            break;
        }
        support_ok(baton_sim_fail_send(trial.sim, trial.victim, 0));
        if (failed > 0) {
            recover(&trial);
        }
    }
    close_trial(&trial);
}

static void test_steps_with_faults_lose_nothing(void **state)
{
    (void)state;
    for (uint64_t index = 0; index < SEEDS; index++) {
        run_trial(index);
    }
    print_message(
        "%llu steps completed, %llu failed (%llu on some ranks), "
        "%llu flushes, %llu ranks killed\n",
        (unsigned long long)seen.completed, (unsigned long long)seen.failed,
        (unsigned long long)seen.half_failed, (unsigned long long)seen.flushed,
        (unsigned long long)seen.killed);
    assert_true(seen.completed > SEEDS && seen.failed > SEEDS / 10);
    assert_true(seen.half_failed > SEEDS / 100 && seen.flushed > SEEDS / 10);
    assert_true(seen.killed > SEEDS / 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_with_faults_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
