/* The conformance suite over the transports whose ranks share a process. With
   inproc, ranks are threads, or they take turns: only one runs at a time, until
   it yields, so that the interleaving is the same in each run. In the simulated
   network ranks take turns, between which its events happen. The staged
   transport around inproc sends messages of device memory. The MPI transport
   runs over a fake MPI. test_conformance [PATTERN] runs the matching tests,
   such as "*_sim". */
#include "sim/model.h"
#include "sim/net.h"
#include "support/cmocka.h"
#include "support/conformance.h"
#include "transport/inproc/rank.h"
#include "transport/staged/staged.h"
#ifdef TEST_FAKE_MPI
#include "support/fake_mpi/fake_mpi.h"
#else
typedef struct fake_mpi_options fake_mpi_options_t;
#endif

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* The staged transport around another transport. Of the messages' ends, `share`
   of four are in device memory. */
typedef struct staging {
    const char *block, *buffers; /* values of BATON_DEVICE_BLOCK and _BUFFERS */
    const char *direct;          /* the value of BATON_DEVICE_DIRECT */
    uint32_t share;
    bool no_handles;
} staging_t;

/* The transport of a run. One of the first three fields is not NULL. */
typedef struct medium {
    baton_inproc_t *inproc;
    baton__sim_net_t *net;
    const fake_mpi_options_t *mpi;
    const staging_t *staging; /* NULL: the transport is not staged */
} medium_t;

/* The state that the ranks of a run share. */
typedef struct session {
    const conformance_case_t *test;
    bool turns;
    int size;
    medium_t medium;
    /* Accesses are relaxed, since the flag only ends loops. */
    atomic_bool failed;
    pthread_mutex_t mutex;
    pthread_cond_t *turned; /* by rank: signalled when the rank's turn comes */
    int turn;
    bool *gone;
} session_t;

/* A transport and its options. If none is set, the transport is inproc. */
typedef struct setting {
    const char *name;
    bool turns;
    const baton_sim_options_t *options;
    const staging_t *staging;
    const fake_mpi_options_t *mpi;
} setting_t;

/* Simulated networks: one with several messages at a time in each port, and one
   in which messages overtake each other, and senders wait for their
   receivers. */
static const baton_sim_options_t ported = {
    .link = {.beta_ns = 1}, .multi_ported = true, .overhead_us = 1};
static const baton_sim_options_t everything = {
    .link = {.alpha_us = 1, .beta_ns = 3},
    .host_ranks = 3,
    .host_link = {.beta_ns = 1},
    .overhead_us = 0.5,
    .sync_bytes = 1,
    .lag = {BATON_DISTRIBUTION_PARETO, 0.1, 0.5}};

#ifdef TEST_FAKE_MPI
/* Over the fake MPI: ranks of one host; the same if copies between processes
   are refused, with and without buffers; rings as the only shared memory; and
   hosts of two ranks each. */
static const fake_mpi_options_t mpi_near = {
    .host_ranks = 8, .buffers = BATON__HOST_BUFFERS, .reads = true};
static const fake_mpi_options_t mpi_refused = {
    .host_ranks = 8, .buffers = 2, .reads = true, .refusal = EPERM};
static const fake_mpi_options_t mpi_parts = {
    .host_ranks = 8, .window = 2, .reads = true, .refusal = ENOSYS};
static const fake_mpi_options_t mpi_rings = {.host_ranks = 8, .window = 2};
static const fake_mpi_options_t mpi_hosts = {
    .host_ranks = 2, .buffers = 2, .window = 4, .links = true};
#endif

static const staging_t blocks = {"4096", "2", "0", 4, false};
static const staging_t no_handles = {"16384", "3", "1", 3, true};
static const staging_t mixed = {"65536", "4", "1", 2, false};

static const setting_t settings[] = {
#ifdef TEST_FAKE_MPI
    {"mpi_near", true, NULL, NULL, &mpi_near},
    {"mpi_refused", true, NULL, NULL, &mpi_refused},
    {"mpi_parts", false, NULL, NULL, &mpi_parts},
    {"mpi_rings", false, NULL, NULL, &mpi_rings},
    {"mpi_hosts", true, NULL, NULL, &mpi_hosts},
    {"staged_mpi", true, NULL, &mixed, &mpi_hosts},
#endif
    {"inproc_turns", true, NULL, NULL, NULL},
    {"inproc_threads", false, NULL, NULL, NULL},
    {"sim_multi_ported", true, &ported, NULL, NULL},
    {"sim_everything", true, &everything, NULL, NULL},
    {"staged_blocks", false, NULL, &blocks, NULL},
    {"staged_no_handles", true, NULL, &no_handles, NULL},
    {"staged_mixed", true, NULL, &mixed, NULL}};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

typedef struct run {
    const conformance_case_t *test;
    const setting_t *setting;
} run_t;

/* ---- media -------------------------------------------------------------- */

/* The options of the simulated network that runs. */
static baton_sim_options_t sim_options;

static void open_medium(medium_t *medium, const setting_t *setting, int size)
{
    medium->staging = setting->staging;
    medium->mpi = setting->mpi;
#ifdef TEST_FAKE_MPI
    if (medium->mpi != NULL) {
        fake_mpi_options_t options = *setting->mpi;
        options.size = size;
        fake_mpi_open(&options);
        return;
    }
#endif
    if (setting->options == NULL) {
        assert_int_equal(baton_inproc_create(size, &medium->inproc), BATON_OK);
        return;
    }
    sim_options = *setting->options;
    sim_options.size = sizeof sim_options;
    sim_options.ranks = size;
    sim_options.seed = support_seed();
    assert_int_equal(baton__sim_check_options(&sim_options), BATON_OK);
    medium->net = support_alloc(1, sizeof *medium->net);
    assert_int_equal(
        baton__sim_net_init(medium->net, &baton__sim_transport, &sim_options),
        BATON_OK);
}

/* Gives the rank a device, and puts the staged transport around the rank's
   own. */
static void stage(conformance_rank_t *rank, const staging_t *staging)
{
    const emulated_options_t options = {.seed =
                                            rank->seed + (uint64_t)rank->rank,
                                        .delay_us = 5,
                                        .workers = 1,
                                        .no_handles = staging->no_handles};
    support_set_variable("BATON_DEVICE_BLOCK", staging->block);
    support_set_variable("BATON_DEVICE_BUFFERS", staging->buffers);
    support_set_variable("BATON_DEVICE_DIRECT", staging->direct);
    rank->device = emulated_open(&options);
    rank->device_share = staging->share;
    rank->allocates = rank->allocates || staging->share % 4 != 0;
    assert_int_equal(
        baton__staged_open(rank->transport, rank->endpoint, rank->rank,
                           rank->size, emulated_port(rank->device),
                           rank->device, &rank->transport, &rank->endpoint),
        BATON_OK);
}

/* Checks that all memory was given back, that no copy used ordinary main
   memory, and that nothing was copied between devices if messages may only pass
   in blocks. */
static bool close_device(const conformance_rank_t *rank,
                         const staging_t *staging)
{
    emulated_counters_t counters = emulated_counters(rank->device);
    bool direct = staging->direct[0] == '1' && !staging->no_handles;
    emulated_port(rank->device)->close(rank->device);
    return counters.allocated == 0 && counters.events == 0 &&
           counters.unpinned == 0 && (direct || counters.foreign == 0);
}

static void join(const medium_t *medium, conformance_rank_t *rank)
{
    if (medium->net != NULL) {
        rank->transport = &medium->net->transport;
        rank->endpoint = &medium->net->ports[rank->rank];
        rank->allocates = true;
#ifdef TEST_FAKE_MPI
    } else if (medium->mpi != NULL) {
        baton__mpi_t *mpi = fake_mpi_ranks[rank->rank];
        rank->transport = &mpi->transport;
        rank->endpoint = mpi;
#endif
    } else {
        assert_int_equal(baton__inproc_join(medium->inproc, rank->rank,
                                            &rank->transport, &rank->endpoint),
                         BATON_OK);
    }
    if (medium->staging != NULL) {
        stage(rank, medium->staging);
    }
}

static void close_medium(const medium_t *medium)
{
    if (medium->net != NULL) {
        baton__sim_net_fini(medium->net);
        free(medium->net);
#ifdef TEST_FAKE_MPI
    } else if (medium->mpi != NULL) {
        fake_mpi_close();
#endif
    } else {
        assert_int_equal(baton_inproc_destroy(medium->inproc), BATON_OK);
    }
}

/* Advances to the time of the next events. Ranks poll by themselves, so the
   list of ranks that are due is not used. */
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

/* On one processor ranks that take turns need a third of the time of ranks that
   run at once. */
static void use_processors(bool turns)
{
    static cpu_set_t all;
    cpu_set_t one;
    if (CPU_COUNT(&all) == 0) {
        (void)sched_getaffinity(0, sizeof all, &all);
    }
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    (void)sched_setaffinity(0, sizeof one, turns ? &one : &all);
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
    use_processors(session.turns);
    open_medium(&session.medium, run->setting, size);

    for (int i = 0; i < size; i++) {
        ranks[i].rank = i;
        ranks[i].size = size;
        ranks[i].yield = yield;
        ranks[i].fixture = &session;
        ranks[i].seed = support_seed();
        ranks[i].sleeps = !session.turns;
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
        if (!close_device(&ranks[i], run->setting->staging)) {
            print_error("rank %d has used its device wrongly\n", i);
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

/* Runs one rank alone, a pair, in which both neighbours are the same rank, and
   more. Under mpirun tests run with eight ranks. */
static void run_sizes(void **state)
{
    static const int sizes[] = {3, 1, 2, 5};
    const run_t *run = *state;
    size_t count = run->setting->options != NULL ? 3 : 4;
    if (run->setting->staging != NULL || run->setting->mpi != NULL) {
        count = 2;
    }
    for (size_t i = 0; i < count; i++) {
        run_case(run, sizes[i]);
    }
}

int main(int argc, char **argv)
{
    enum { RUNS = SETTINGS * CONFORMANCE_CASES };
    static run_t runs[RUNS];
    static struct CMUnitTest tests[RUNS];
    static char names[RUNS][64];
    support_seed();
    /* A rank that has found a full ring or outbox looks at it again after this
       time. */
    setenv("BATON_SLEEP_US", "100", 1);
    for (int i = 0; i < RUNS; i++) {
        runs[i].test = &conformance_cases[i / SETTINGS];
        runs[i].setting = &settings[i % SETTINGS];
        snprintf(names[i], sizeof names[i], "%s_%s", runs[i].test->name,
                 runs[i].setting->name);
        tests[i] =
            (struct CMUnitTest){names[i], run_sizes, NULL, NULL, &runs[i]};
    }
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests_name("conformance", tests, NULL, NULL);
}
