/* The events of a trace. The same seed gives the same trace, bit for bit. */
#include "sim/sim.h"
#include "support/sim.h"

#include <baton/coll.h>
#include <inttypes.h>

/* ---- all of a small schedule -------------------------------------------- */

/* Rank 0 sends 8 bytes to rank 1, which adds them to its own. */
static void build_sum(void *arg, baton_schedule_t *s)
{
    baton_view_t view = support_scratch(s, 8);
    if (baton_schedule_rank(s) == 0) {
        (void)baton_add_nop(s);
        (void)baton_add_send(s, 1, view);
    } else {
        baton_node_t recv = baton_add_recv(s, 0, view);
        baton_node_t sum =
            baton_add_reduce_local(s, BATON_U32, BATON_SUM, view, view, view);
        baton_before(s, recv, sum);
    }
}

static void expect_event(const baton_sim_event_t *event,
                         const baton_sim_event_t *expected)
{
    assert_int_equal(event->what, expected->what);
    assert_int_equal(event->rank, expected->rank);
    assert_int_equal(event->peer, expected->peer);
    support_us(event->begin_us, expected->begin_us);
    support_us(event->end_us, expected->end_us);
    assert_int_equal(event->bytes, expected->bytes);
    assert_string_equal(event->schedule, expected->schedule);
    assert_int_equal(event->node, expected->node);
    assert_int_equal(event->epoch, expected->epoch);
}

TEST(test_sim_trace_tells_all)
{
    static support_trace_t trace;
    baton_sim_options_t options = support_sim_options(2);
    options.overhead_us = 1;
    options.gamma_ns = 500;
    baton_sim_t *sim = support_sim_open(&options);
    support_ok(baton_sim_build(sim, "sum", build_sum, NULL));
    trace.count = 0;
    baton_sim_trace(sim, support_trace, &trace);
    double us = 0;
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        support_ok(baton_sim_epoch(sim, &us));
        support_us(us, 16);
    }
    for (uint64_t epoch = 1; epoch <= 2; epoch++) {
        double t = epoch == 1 ? 0 : 16;
        const baton_sim_event_t expected[] = {
            {BATON_SIM_SEND, 0, 1, 1, t + 1, t + 11, 8, "sum", epoch},
            {BATON_SIM_EPOCH, 0, -1, 0, t, t + 11, 0, "sum", epoch},
            {BATON_SIM_RECV, 1, 0, 0, t + 1, t + 11, 8, "sum", epoch},
            {BATON_SIM_REDUCE, 1, -1, 1, t + 12, t + 16, 8, "sum", epoch},
            {BATON_SIM_EPOCH, 1, -1, 0, t, t + 16, 0, "sum", epoch},
        };
        for (size_t i = 0; i < 5; i++) {
            expect_event(&trace.events[(epoch - 1) * 5 + i], &expected[i]);
        }
    }
    assert_int_equal(trace.count, 10);
    baton_sim_trace(sim, NULL, NULL);
    support_ok(baton_sim_epoch(sim, &us));
    assert_int_equal(trace.count, 10);
    support_ok(baton_sim_destroy(sim));
}

/* ---- epochs ------------------------------------------------------------- */

static baton_status_t refuse(void *arg, baton_call_t *call)
{
    return baton_call_epoch(call) % 2 == 1 ? BATON_ERR_LIMIT : BATON_OK;
}

/* A failed epoch also has one end. A schedule that is destroyed between epochs
   has none. */
TEST(test_sim_trace_tells_each_epoch_once)
{
    static support_trace_t trace;
    baton_sim_t *sim = support_sim_of(1);
    baton_schedule_t *s = support_sim_schedule(sim, 0, "fails at times");
    (void)baton_add_call(s, refuse, NULL);
    support_ok(baton_schedule_commit(s));
    trace.count = 0;
    baton_sim_trace(sim, support_trace, &trace);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        support_ok(baton_schedule_start(s));
        support_expect(baton_schedule_wait(s, -1),
                       epoch % 2 == 1 ? BATON_ERR_LIMIT : BATON_OK);
        assert_int_equal(trace.count, epoch);
        assert_int_equal(trace.events[epoch - 1].epoch, epoch);
        assert_int_equal(trace.events[epoch - 1].what, BATON_SIM_EPOCH);
    }
    support_ok(baton_schedule_destroy(s));
    assert_int_equal(trace.count, 3);
    support_ok(baton_sim_destroy(sim));
}

/* ---- equal traces ------------------------------------------------------- */

/* Adds a word to the hash by FNV-1a, byte by byte. */
static void add_bits(uint64_t *hash, uint64_t bits)
{
    for (int i = 0; i < 64; i += 8) {
        *hash = (*hash ^ (bits >> i & 0xff)) * UINT64_C(0x100000001b3);
    }
}

static void add_us(uint64_t *hash, double us)
{
    uint64_t bits;
    memcpy(&bits, &us, sizeof bits);
    add_bits(hash, bits);
}

static void add_event(void *arg, const baton_sim_event_t *event)
{
    uint64_t *hash = arg;
    add_bits(hash, (uint64_t)event->what);
    add_bits(hash, (uint64_t)event->rank);
    add_bits(hash, (uint64_t)event->peer);
    add_us(hash, event->begin_us);
    add_us(hash, event->end_us);
    add_bits(hash, event->bytes);
    add_bits(hash, event->node);
    add_bits(hash, event->epoch);
}

enum { BYTES = 12000 };

static void build_ring(void *arg, baton_schedule_t *s)
{
    baton_view_t view = support_scratch(s, BYTES);
    const baton_allreduce_args_t args = {.size = sizeof args,
                                         .source = view,
                                         .target = view,
                                         .dtype = BATON_U32,
                                         .op = BATON_SUM,
                                         .chunk_bytes = 512};
    baton_add_allreduce_ring(s, &args);
}

static void build_doubling(void *arg, baton_schedule_t *s)
{
    baton_view_t view = support_scratch(s, 64);
    const baton_allreduce_args_t args = {.size = sizeof args,
                                         .source = view,
                                         .target = view,
                                         .dtype = BATON_U32,
                                         .op = BATON_SUM};
    baton_add_allreduce_recursive_doubling(s, &args);
}

static void build_barrier(void *arg, baton_schedule_t *s)
{
    baton_add_barrier(s);
}

/* Returns the number of ranks that share the plan of the first rank. */
static int count_sharers(baton_sim_t *sim, int ranks)
{
    int sharers = 0;
    for (int rank = 1; rank < ranks; rank++) {
        sharers += baton_sim_schedule(sim, rank)->ops ==
                   baton_sim_schedule(sim, 0)->ops;
    }
    return sharers;
}

/* Adds the error after a rank's death. */
static void add_failure(uint64_t *hash, baton_sim_t *sim)
{
    double us = 0;
    support_ok(baton_sim_kill(sim, 1));
    add_bits(hash, (uint64_t)-baton_sim_epoch(sim, &us));
    for (const char *at = baton_error_message(); *at != '\0'; at++) {
        add_bits(hash, (unsigned char)*at);
    }
}

/* All random options, all costs, and faults are set. */
static uint64_t trace_hash_of(baton_sim_build_fn build, int ranks,
                              uint64_t seed, bool cost_only, int *sharers_out)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.cost_only = cost_only;
    options.seed = seed;
    options.link = (baton_sim_link_t){.alpha_us = 1.3, .beta_ns = 0.7};
    options.host_ranks = 2;
    options.host_link = (baton_sim_link_t){.alpha_us = 0.3, .beta_ns = 0.1};
    options.gamma_ns = 0.21;
    options.overhead_us = 0.13;
    options.sync_bytes = 500;
    options.speed =
        (baton_distribution_t){BATON_DISTRIBUTION_UNIFORM, 0.5, 1.5};
    options.skew =
        (baton_distribution_t){BATON_DISTRIBUTION_EXPONENTIAL, 20, 0};
    options.lag = (baton_distribution_t){BATON_DISTRIBUTION_LOGNORMAL, 2, 1};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    baton_sim_t *sim = support_sim_open(&options);
    support_ok(baton_sim_build(sim, "ring", build, NULL));
    baton_sim_trace(sim, add_event, &hash);
    for (int epoch = 1; epoch <= 3; epoch++) {
        double us = 0;
        if (epoch == 3) {
            support_ok(baton_sim_set_speed(sim, ranks / 2, 0.1));
            support_ok(baton_sim_set_lag(
                sim,
                (baton_distribution_t){BATON_DISTRIBUTION_PARETO, 1, 1.5}));
        }
        support_ok(baton_sim_epoch(sim, &us));
        add_us(&hash, us);
    }
    if (sharers_out != NULL) {
        *sharers_out = count_sharers(sim, ranks);
        add_failure(&hash, sim);
    }
    support_ok(baton_sim_destroy(sim));
    return hash;
}

static uint64_t trace_hash(uint64_t seed, bool cost_only)
{
    return trace_hash_of(build_ring, 9, seed, cost_only, NULL);
}

static void expect_hash(uint64_t actual, uint64_t expected)
{
    if (actual != expected) {
        fail_msg("%016" PRIx64 ", expected %016" PRIx64, actual, expected);
    }
}

/* The hash is the same on every machine, and with every compiler and level of
   optimisation. A change of the model, or of the ring algorithm, changes it. */
TEST(test_sim_trace_is_the_same_everywhere)
{
    const uint64_t golden = UINT64_C(0x57b8b6dc2a69ea21);
    expect_hash(trace_hash(1, false), golden);
    expect_hash(trace_hash(1, false), golden);
    expect_hash(trace_hash(1, true), golden);
    assert_true(trace_hash(2, true) != golden);
}

/* ---- shared plans -------------------------------------------------------- */

/* If messages carry data, each rank has a plan of its own. */
TEST(test_sim_trace_is_the_same_with_shared_plans)
{
    const struct {
        baton_sim_build_fn build;
        int ranks, sharers;
    } of[] = {
        {build_doubling, 2, 1},  {build_doubling, 16, 15},
        {build_doubling, 12, 0}, {build_barrier, 8, 1},
        {build_ring, 9, 0},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        int sharers = -1, none = -1;
        uint64_t own = trace_hash_of(of[i].build, of[i].ranks, 5, false, &none);
        expect_hash(trace_hash_of(of[i].build, of[i].ranks, 5, true, &sharers),
                    own);
        assert_int_equal(none, 0);
        assert_int_equal(sharers, of[i].sharers);
    }
}

/* The last rank's graph has as many nodes and edges as the other graphs, but
   lacks an edge that it needs, writes an input, or shares memory between
   buffers. */
static void build_wrong(void *arg, baton_schedule_t *s)
{
    static char memory[8];
    bool last = baton_schedule_rank(s) == baton_schedule_size(s) - 1;
    int way = last ? *(const int *)arg : -1;
    baton_view_t to = support_scratch(s, 8), from = to;
    baton_node_t node = baton_add_nop(s);
    for (int i = 0; i < 2; i++) {
        baton_buffer_t buffer = way == 2 ? baton_buffer_bind(s, memory, 8)
                                         : baton_buffer_scratch(s, 8);
        if (way == 1) {
            buffer = baton_buffer_bind_input(s, NULL, 8);
        }
        to = i == 1 && way == 0 ? to : baton_view(buffer, 0, 8);
        baton_node_t next = baton_add_copy(s, to, from);
        baton_before(s, node, next);
    }
    (void)support_scratch(s, 8);
}

TEST(test_sim_trace_checks_a_graph_that_is_like_no_other)
{
    static const baton_status_t status[] = {BATON_ERR_HAZARD, BATON_ERR_INVALID,
                                            BATON_ERR_HAZARD};
    for (int way = 0; way < 3; way++) {
        baton_sim_options_t options = support_sim_options(3);
        options.cost_only = true;
        baton_sim_t *sim = support_sim_open(&options);
        support_expect(baton_sim_build(sim, "wrong", build_wrong, &way),
                       status[way]);
        support_ok(baton_sim_destroy(sim));
    }
}
