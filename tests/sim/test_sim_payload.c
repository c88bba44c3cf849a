/* The payload of copies, reductions, call nodes and activations, and none in a
   cost-only simulation. (Messages: test_conformance.) */
#include "support/cmocka.h"
#include "support/sim.h"

/* ---- nodes -------------------------------------------------------------- */

/* copy --> call --> sum: the call rebinds what is summed. */
typedef struct chain {
    baton_schedule_t *schedule;
    baton_buffer_t bound;
    uint32_t source, copied, sum, others[2];
    int calls;
    bool cost_only;
} chain_t;

static baton_status_t rebind(void *arg, baton_call_t *call)
{
    chain_t *chain = arg;
    chain->calls++;
    if (!chain->cost_only) {
        assert_int_equal(chain->copied, chain->source);
    }
    return baton_buffer_rebind(chain->schedule, chain->bound,
                               &chain->others[baton_call_epoch(call) % 2]);
}

static void run_chain(bool cost_only)
{
    baton_sim_options_t options = support_sim_options(1);
    options.cost_only = cost_only;
    baton_sim_t *sim = support_sim_open(&options);
    baton_schedule_t *s = support_sim_schedule(sim, 0, "chain");
    chain_t chain = {.schedule = s,
                     .source = 5,
                     .others = {100, 200},
                     .cost_only = cost_only};
    assert_int_equal(baton_group_has_payload(baton_sim_group(sim, 0)),
                     !cost_only);
    chain.bound = baton_buffer_bind(s, NULL, 4);
    baton_view_t copied = support_view(s, &chain.copied, 4);
    baton_node_t copy =
        baton_add_copy(s, copied, support_view(s, &chain.source, 4));
    baton_node_t call = baton_add_call(s, rebind, &chain);
    baton_node_t sum = baton_add_reduce(s, BATON_U32, BATON_SUM,
                                        support_view(s, &chain.sum, 4), copied,
                                        baton_view(chain.bound, 0, 4));
    baton_before(s, copy, call);
    baton_before(s, call, sum);
    support_ok(baton_schedule_commit(s));
    for (int epoch = 1; epoch <= 2; epoch++) {
        support_ok(baton_schedule_start(s));
        support_ok(baton_schedule_wait(s, -1));
        uint32_t expected = epoch == 1 ? 205 : 105;
        assert_int_equal(chain.calls, epoch);
        assert_int_equal(chain.sum, cost_only ? 0 : expected);
        assert_int_equal(chain.copied, cost_only ? 0 : 5);
    }
    support_ok(baton_schedule_destroy(s));
    support_ok(baton_sim_destroy(sim));
}

TEST(test_sim_payload_of_nodes)
{
    run_chain(false);
}

TEST(test_sim_payload_is_not_touched_when_cost_only)
{
    run_chain(true);
    baton_sim_options_t options = support_sim_options(2);
    options.cost_only = true;
    support_words_t words;
    support_words_add(&words, support_sim_open(&options), "costs");
    support_words_start(&words);
    support_ok(baton_sim_run(words.sim, -1));
    support_us(baton_sim_now_us(words.sim), SUPPORT_WORD_US);
    assert_int_equal(words.in, 0);
    support_words_close(&words);
}

/* ---- activation --------------------------------------------------------- */

/* Rank 0 activates rank 1, which sends it a word; payload or not. */
static void activate(const baton_sim_options_t *options)
{
    enum { EPOCHS = 3 };
    baton_sim_t *sim = support_sim_open(options);
    uint32_t out = 77, in = 0;
    baton_schedule_t *first = support_sim_schedule(sim, 0, "activation");
    baton_schedule_t *second = support_sim_schedule(sim, 1, "activation");
    baton_node_t begin = baton_add_on_start(first);
    baton_before(first, begin, baton_add_activate(first, 1));
    (void)baton_add_recv(first, 1, support_view(first, &in, SUPPORT_WORD));
    baton_node_t armed = baton_add_armed_recv(second, 0);
    baton_before(
        second, armed,
        baton_add_send(second, 0, support_view(second, &out, SUPPORT_WORD)));
    support_ok(baton_schedule_commit(first));
    support_ok(baton_schedule_commit(second));
    for (uint64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        support_ok(baton_schedule_start(first));
        support_ok(baton_schedule_wait(first, -1));
        assert_int_equal(baton_schedule_epoch(second), epoch);
        assert_int_equal(in, options->cost_only ? 0 : 77);
        in = 0;
    }
    /* A header is 16 bytes: 2 + 16 us there, 6 us back. */
    support_us(baton_schedule_ended_us(first), EPOCHS * (18 + SUPPORT_WORD_US));
    support_ok(baton_schedule_start(second)); /* has run already */
    support_ok(baton_schedule_wait(second, 0));
    support_ok(baton_schedule_destroy(first));
    support_ok(baton_schedule_destroy(second));
    support_ok(baton_sim_destroy(sim));
}

TEST(test_sim_payload_of_activation)
{
    baton_sim_options_t options = support_sim_options(2);
    activate(&options);
    options.cost_only = true;
    activate(&options);
}

RUN_TESTS()
