/* The conformance suite over the transports whose ranks share a process:
   inproc, with ranks as threads and with ranks in turns, one running at a time
   from yield to yield, so that the interleaving is the same each time; the
   simulated network, in turns, between which its events happen; and staged
   around inproc, with messages of device memory. */
#include "sim/model.h"
#include "sim/net.h"
#include "sim/port.h"
#include "support/cmocka.h"
#include "support/conformance_device.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "transport/inproc/endpoint.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* The transport of a run; one of the first two is NULL. */
typedef struct medium {
    baton_inproc_t *inproc;
    baton__sim_net_t *net;
    const conformance_staging_t *staging; /* or NULL */
} medium_t;

/* The state that the ranks of a run share. */
typedef struct session {
    const conformance_case_t *test;
    bool turns;
    int size;
    medium_t medium;
    atomic_bool failed; /* relaxed: it only ends loops */
    pthread_mutex_t mutex;
    pthread_cond_t *turned; /* by rank: signalled when its turn comes */
    int turn;
    bool *gone;
} session_t;

/* A transport and its options; NULL options mean inproc. */
typedef struct setting {
    const char *name;
    bool turns;
    const baton_sim_options_t *options;
    const conformance_staging_t *staging; /* or NULL */
} setting_t;

/* Networks: simple; with messages that overtake each other; with senders that
   wait for their receivers; multi-ported; and with all of these. */
static const baton_sim_options_t plain = {.link = {.alpha_us = 1}};
static const baton_sim_options_t lagging = {
    .link = {.alpha_us = 1, .beta_ns = 1},
    .lag = {BATON_DISTRIBUTION_UNIFORM, 0, 20}};
static const baton_sim_options_t synchronous = {
    .link = {.alpha_us = 1, .beta_ns = 0.5}, .sync_bytes = 256};
static const baton_sim_options_t ported = {
    .link = {.beta_ns = 1}, .multi_ported = true, .overhead_us = 1};
static const baton_sim_options_t everything = {
    .link = {.alpha_us = 1, .beta_ns = 3},
    .host_ranks = 3,
    .host_link = {.beta_ns = 1},
    .overhead_us = 0.5,
    .sync_bytes = 1,
    .lag = {BATON_DISTRIBUTION_PARETO, 0.1, 0.5}};

static const setting_t settings[] = {
    {"inproc_turns", true, NULL, NULL},
    {"inproc_threads", false, NULL, NULL},
    {"sim", true, &plain, NULL},
    {"sim_lag", true, &lagging, NULL},
    {"sim_sync", true, &synchronous, NULL},
    {"sim_multi_ported", true, &ported, NULL},
    {"sim_everything", true, &everything, NULL},
    {"staged_host", true, NULL, &conformance_stagings[0]},
    {"staged_device", true, NULL, &conformance_stagings[1]},
    {"staged_blocks", false, NULL, &conformance_stagings[2]},
    {"staged_no_handles", true, NULL, &conformance_stagings[3]},
    {"staged_mixed", true, NULL, &conformance_stagings[4]}};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

typedef struct run {
    const conformance_case_t *test;
    const setting_t *setting;
} run_t;

/* ---- media -------------------------------------------------------------- */

static baton_sim_options_t sim_options; /* of the network that runs */

static void open_medium(medium_t *medium, const setting_t *setting, int size)
{
    medium->staging = setting->staging;
    if (setting->options == NULL) {
        assert_int_equal(baton_inproc_create(size, &medium->inproc), BATON_OK);
        return;
    }
    sim_options = *setting->options;
    sim_options.size = sizeof sim_options;
    sim_options.ranks = size;
    sim_options.seed = support_seed();
    assert_int_equal(baton__sim_check_options(&sim_options), BATON_OK);
    medium->net = calloc(1, sizeof *medium->net);
    assert_non_null(medium->net);
    assert_int_equal(
        baton__sim_net_init(medium->net, &baton__sim_transport, &sim_options),
        BATON_OK);
}

static void join(const medium_t *medium, conformance_rank_t *rank)
{
    if (medium->net != NULL) {
        rank->transport = &medium->net->transport;
        rank->endpoint = &medium->net->ports[rank->rank];
        rank->allocates = true;
        rank->synchronous = sim_options.sync_bytes > 0;
    } else {
        assert_int_equal(baton__inproc_join(medium->inproc, rank->rank,
                                            &rank->transport, &rank->endpoint),
                         BATON_OK);
    }
    if (medium->staging != NULL) {
        assert_true(conformance_stage(rank, medium->staging));
    }
}

static void close_medium(const medium_t *medium)
{
    if (medium->net != NULL) {
        baton__sim_net_fini(medium->net);
        free(medium->net);
    } else {
        assert_int_equal(baton_inproc_destroy(medium->inproc), BATON_OK);
    }
}

/* Advances to the time of the next events. Ranks poll by themselves, so the
   list of ranks that are due is discarded. */
static void let_time_pass(baton__sim_net_t *net)
{
    double at_us, next_us;
    baton__sim_net_begin(net);
    while (baton__sim_net_take_due(net) != NULL) {
    }
    bool more = baton__sim_queue_peek(&net->queue, &at_us);
    net->now_us = more ? at_us : net->now_us;
    while (more) {
        baton__sim_entry_t event = baton__sim_queue_pop(&net->queue);
        baton__sim_net_events(net, &event, 1);
        more = baton__sim_queue_peek(&net->queue, &next_us) && next_us == at_us;
    }
}

/* ---- ranks -------------------------------------------------------------- */

static void take_turn(session_t *session, int rank)
{
    pthread_mutex_lock(&session->mutex);
    while (session->turn != rank) {
        pthread_cond_wait(&session->turned[rank], &session->mutex);
    }
    pthread_mutex_unlock(&session->mutex);
}

static void give_turn(session_t *session, int rank, bool gone)
{
    pthread_mutex_lock(&session->mutex);
    session->gone[rank] = gone;
    int next = rank;
    do {
        next = (next + 1) % session->size;
    } while (next != rank && session->gone[next]);
    session->turn = next;
    pthread_cond_signal(&session->turned[next]);
    pthread_mutex_unlock(&session->mutex);
}

static bool yield(conformance_rank_t *self)
{
    session_t *session = self->fixture;
    if (self->failure[0] != '\0') {
        atomic_store_explicit(&session->failed, true, memory_order_relaxed);
    }
    if (session->medium.net != NULL) {
        let_time_pass(session->medium.net);
    }
    if (session->turns) {
        give_turn(session, self->rank, false);
        take_turn(session, self->rank);
    } else {
        sched_yield();
    }
    return !atomic_load_explicit(&session->failed, memory_order_relaxed);
}

static void *run_rank(void *arg)
{
    conformance_rank_t *self = arg;
    session_t *session = self->fixture;
    if (session->turns) {
        take_turn(session, self->rank);
    }
    conformance_run(session->test, self);
    if (self->failure[0] != '\0') {
        atomic_store_explicit(&session->failed, true, memory_order_relaxed);
    }
    if (session->turns) {
        give_turn(session, self->rank, true);
    }
    return NULL;
}

static void run_case(const run_t *run, int size)
{
    size_t count = (size_t)size;
    session_t session = {
        .test = run->test, .turns = run->setting->turns, .size = size};
    session.gone = calloc(count, sizeof *session.gone);
    pthread_mutex_init(&session.mutex, NULL);
    session.turned = calloc(count, sizeof *session.turned);
    for (int i = 0; i < size; i++) {
        pthread_cond_init(&session.turned[i], NULL);
    }
    conformance_rank_t *ranks = calloc(count, sizeof *ranks);
    pthread_t *threads = calloc(count, sizeof *threads);
    open_medium(&session.medium, run->setting, size);

    for (int i = 0; i < size; i++) {
        ranks[i].rank = i;
        ranks[i].size = size;
        ranks[i].yield = yield;
        ranks[i].fixture = &session;
        ranks[i].seed = support_seed();
        join(&session.medium, &ranks[i]);
    }
    for (int i = 0; i < size; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]),
                         0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
    }

    for (int i = 0; i < size; i++) {
        ranks[i].transport->close(ranks[i].endpoint);
    }
    for (int i = 0; i < size && run->setting->staging != NULL; i++) {
        const char *wrong = conformance_close_device(&ranks[i]);
        if (wrong != NULL) {
            print_error("rank %d: %s\n", i, wrong);
            session.failed = true;
        }
    }
    close_medium(&session.medium);
    for (int i = 0; i < size; i++) {
        if (ranks[i].failure[0] != '\0') {
            print_error("%s\n", ranks[i].failure);
        }
    }
    bool failed = atomic_load(&session.failed);
    pthread_mutex_destroy(&session.mutex);
    for (int i = 0; i < size; i++) {
        pthread_cond_destroy(&session.turned[i]);
    }
    free(session.turned);
    free(session.gone);
    free(ranks);
    free(threads);
    assert_false(failed);
}

/* Simulated networks run without threads and take fewer sizes; staged ones have
   more threads than ranks. */
static void run_sizes(void **state)
{
    static const int sizes[] = {2, 5, 1, 3, 8};
    const run_t *run = *state;
    static const int staged_sizes[] = {3, 1};
    bool staged = run->setting->staging != NULL;
    bool few = SUPPORT_SANITIZED || run->setting->options != NULL;
    size_t count = staged ? 2 : few ? 3 : 5;
    for (size_t i = 0; i < count; i++) {
        run_case(run, staged ? staged_sizes[i] : sizes[i]);
    }
}

int main(void)
{
    enum { RUNS = SETTINGS * CONFORMANCE_CASES };
    static run_t runs[RUNS];
    static struct CMUnitTest tests[RUNS];
    static char names[RUNS][64];
    support_seed();
    for (int i = 0; i < RUNS; i++) {
        runs[i].test = &conformance_cases[i / SETTINGS];
        runs[i].setting = &settings[i % SETTINGS];
        snprintf(names[i], sizeof names[i], "%s_%s", runs[i].test->name,
                 runs[i].setting->name);
        tests[i] =
            (struct CMUnitTest){names[i], run_sizes, NULL, NULL, &runs[i]};
    }
    return cmocka_run_group_tests_name("conformance", tests, NULL, NULL);
}
