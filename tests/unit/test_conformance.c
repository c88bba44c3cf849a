/* The conformance suite over the transports whose ranks share a process:
   inproc, with ranks as threads and with ranks in turns, one running at a time
   from yield to yield, so that the interleaving is the same each time; the
   simulated network, in turns, between which its events happen; and staged
   around inproc, with messages of device memory. */
#include "base/config.h"
#include "sim/model.h"
#include "sim/net.h"
#include "sim/port.h"
#include "support/cmocka.h"
#include "support/conformance.h"
#include "support/emulated.h"
#include "support/random.h"
#include "support/sanitized.h"
#include "transport/inproc/endpoint.h"
#include "transport/staged/staged.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Which messages are of device memory: of `share` ends in four. Blocks and
   buffers are as small as they can be, unless `roomy`. */
typedef struct staging {
    uint32_t share;
    bool roomy, direct, no_handles;
} staging_t;

/* The transport of a run; one of the first two is NULL. */
typedef struct medium {
    baton_inproc_t *inproc;
    baton__sim_net_t *net;
    const staging_t *staging;
    emulated_t **devices; /* of each rank */
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
    const staging_t *staging; /* or NULL */
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

static const staging_t host = {.direct = true};
static const staging_t device = {.share = 4, .roomy = true, .direct = true};
static const staging_t blocks = {.share = 4};
static const staging_t handles = {
    .share = 3, .direct = true, .no_handles = true};
static const staging_t mixed = {.share = 2, .direct = true};

static const setting_t settings[] = {
    {"inproc_turns", true, NULL, NULL},
    {"inproc_threads", false, NULL, NULL},
    {"sim", true, &plain, NULL},
    {"sim_lag", true, &lagging, NULL},
    {"sim_sync", true, &synchronous, NULL},
    {"sim_multi_ported", true, &ported, NULL},
    {"sim_everything", true, &everything, NULL},
    {"staged_host", true, NULL, &host},
    {"staged_device", true, NULL, &device},
    {"staged_blocks", false, NULL, &blocks},
    {"staged_no_handles", true, NULL, &handles},
    {"staged_mixed", true, NULL, &mixed}};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

typedef struct run {
    const conformance_case_t *test;
    const setting_t *setting;
} run_t;

/* ---- media -------------------------------------------------------------- */

static baton_sim_options_t sim_options; /* of the network that runs */

static void set_variables(const staging_t *staging)
{
    setenv("BATON_DEVICE_BLOCK", staging->roomy ? "65536" : "4096", 1);
    setenv("BATON_DEVICE_BUFFERS", staging->roomy ? "8" : "2", 1);
    setenv("BATON_DEVICE_DIRECT", staging->direct ? "1" : "0", 1);
    baton__config_forget();
}

static void open_devices(medium_t *medium, const staging_t *staging, int size)
{
    const emulated_options_t options = {.seed = support_seed(),
                                        .delay_us = 5,
                                        .workers = 1,
                                        .no_handles = staging->no_handles};
    medium->staging = staging;
    medium->devices = calloc((size_t)size, sizeof(emulated_t *));
    assert_non_null(medium->devices);
    for (int i = 0; i < size; i++) {
        medium->devices[i] = emulated_open(&options);
    }
    set_variables(staging);
}

static void open_medium(medium_t *medium, const setting_t *setting, int size)
{
    if (setting->staging != NULL) {
        open_devices(medium, setting->staging, size);
    }
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

static bool chooses(const conformance_rank_t *self, uint32_t node, bool sends)
{
    const staging_t *staging = self->device_handle;
    support_random_t random = support_random(
        self->seed, node * 64 + (uint32_t)self->rank * 2 + sends);
    return support_random_below(&random, 4) < staging->share;
}

static emulated_t *device_of(const conformance_rank_t *self);

static void *device_allocate(const conformance_rank_t *self, size_t bytes)
{
    return emulated_allocate(device_of(self), bytes);
}

static void device_release(const conformance_rank_t *self, void *memory)
{
    emulated_release(device_of(self), memory);
}

static void device_read(const conformance_rank_t *self, void *to,
                        const void *memory, size_t bytes)
{
    emulated_read(device_of(self), to, memory, bytes);
}

static void device_write(const conformance_rank_t *self, void *memory,
                         const void *from, size_t bytes)
{
    emulated_write(device_of(self), memory, from, bytes);
}

static const conformance_device_t device_functions = {
    chooses, device_allocate, device_release, device_read, device_write};

/* Puts the staged transport around the rank's. */
static void stage(const medium_t *medium, conformance_rank_t *rank, int size)
{
    emulated_t *of = medium->devices[rank->rank];
    rank->device = &device_functions;
    rank->device_handle = (void *)medium->staging;
    rank->synchronous = medium->staging->share > 0;
    assert_int_equal(baton__staged_open(rank->transport, rank->endpoint,
                                        rank->rank, size, emulated_port(of), of,
                                        &rank->transport, &rank->endpoint),
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
        stage(medium, rank, rank->size);
    }
}

static void close_devices(const medium_t *medium, int size)
{
    for (int i = 0; i < size; i++) {
        emulated_counters_t counters = emulated_counters(medium->devices[i]);
        emulated_port(medium->devices[i])->close(medium->devices[i]);
        assert_int_equal(counters.allocated, 0);
        assert_int_equal(counters.events, 0);
        assert_int_equal(counters.unpinned, 0);
        assert_true(medium->staging->direct || counters.foreign == 0);
    }
    free(medium->devices);
}

static void close_medium(const medium_t *medium, int size)
{
    if (medium->staging != NULL) {
        close_devices(medium, size);
    }
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

static emulated_t *device_of(const conformance_rank_t *self)
{
    const session_t *session = self->fixture;
    return session->medium.devices[self->rank];
}

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
    close_medium(&session.medium, size);
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
    static const int staged_sizes[] = {2, 1, 3};
    bool staged = run->setting->staging != NULL;
    bool few = SUPPORT_SANITIZED || run->setting->options != NULL || staged;
    size_t count = few ? 3 : 5;
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
