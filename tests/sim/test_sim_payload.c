/* The payload of messages, copies, reductions, call nodes and activations; and
   none in a cost-only simulation. */
#include "support/cmocka.h"
#include "support/sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ----------------------------------------------------------- */

enum { LARGE = 100000 };

static unsigned char byte_of(size_t message, size_t i)
{
    return (unsigned char)(message * 31 + i * 7 + 1);
}

static void fill(unsigned char *data, size_t bytes, size_t message)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = byte_of(message, i);
    }
}

static void expect_filled(const unsigned char *data, size_t bytes,
                          size_t message)
{
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(data[i], byte_of(message, i));
    }
}

/* Sends of one rank to another, each in a schedule of its own. The sender's
   memory is overwritten when the send has completed. */
typedef struct parcel {
    baton_schedule_t *send, *recv;
    unsigned char *out, *in;
} parcel_t;

static parcel_t open_parcel(baton_sim_t *sim, size_t bytes, size_t message)
{
    parcel_t parcel = {.send = support_sim_schedule(sim, 0, "parcel"),
                       .recv = support_sim_schedule(sim, 1, "parcel"),
                       .out = malloc(bytes + 1),
                       .in = calloc(bytes + 1, 1)};
    assert_true(parcel.out != NULL && parcel.in != NULL);
    fill(parcel.out, bytes, message);
    (void)baton_add_send(parcel.send, 1,
                         support_view(parcel.send, parcel.out, bytes));
    (void)baton_add_recv(parcel.recv, 0,
                         support_view(parcel.recv, parcel.in, bytes));
    support_ok(baton_schedule_commit(parcel.send));
    support_ok(baton_schedule_commit(parcel.recv));
    return parcel;
}

static void close_parcel(const parcel_t *parcel)
{
    support_ok(baton_schedule_destroy(parcel->send));
    support_ok(baton_schedule_destroy(parcel->recv));
    free(parcel->out);
    free(parcel->in);
}

static const size_t sizes[] = {0, 1, 15, 16, 17, 4096, LARGE};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void send_all(const baton_sim_options_t *options, bool receive_first)
{
    baton_sim_t *sim = support_sim_open(options);
    parcel_t parcels[SIZES];
    for (size_t i = 0; i < SIZES; i++) {
        parcels[i] = open_parcel(sim, sizes[i], i);
    }
    for (size_t i = 0; i < SIZES; i++) {
        if (receive_first) {
            support_ok(baton_schedule_start(parcels[SIZES - 1 - i].recv));
        }
        support_ok(baton_schedule_start(parcels[i].send));
    }
    for (size_t i = 0; i < SIZES; i++) {
        if (options->sync_bytes == 0) {
            support_ok(baton_schedule_wait(parcels[i].send, -1));
            memset(parcels[i].out, 0, sizes[i]);
        }
        if (!receive_first) {
            support_ok(baton_schedule_start(parcels[SIZES - 1 - i].recv));
        }
    }
    support_ok(baton_sim_run(sim, -1));
    for (size_t i = 0; i < SIZES; i++) {
        assert_int_equal(baton_schedule_epoch(parcels[i].recv), 1);
        expect_filled(parcels[i].in, sizes[i], i);
        assert_int_equal(parcels[i].in[sizes[i]], 0);
        close_parcel(&parcels[i]);
    }
    support_ok(baton_sim_destroy(sim));
}

static void test_sim_payload_of_any_size(void **state)
{
    for (int variant = 0; variant < 16; variant++) {
        baton_sim_options_t options = support_sim_options(2);
        if ((variant & 1) != 0) {
            options.lag =
                (baton_distribution_t){BATON_DISTRIBUTION_UNIFORM, 0, 1e6};
        }
        options.sync_bytes = (variant & 2) != 0 ? 16 : 0;
        options.multi_ported = (variant & 4) != 0;
        send_all(&options, (variant & 8) != 0);
    }
}

/* Messages of one tag, one an epoch, whose lags overtake each other: the k-th
   receive gets the k-th message. */
static void test_sim_payload_of_one_tag_stays_in_order(void **state)
{
    enum { EPOCHS = 40 };
    baton_sim_options_t options = support_sim_options(2);
    options.lag = (baton_distribution_t){BATON_DISTRIBUTION_UNIFORM, 0, 1000};
    support_words_t words;
    support_words_add(&words, support_sim_open(&options), "in order");
    for (uint32_t epoch = 1; epoch <= EPOCHS; epoch++) {
        words.out = epoch;
        support_ok(baton_schedule_start(words.send));
        support_ok(baton_schedule_wait(words.send, -1));
    }
    for (uint32_t epoch = 1; epoch <= EPOCHS; epoch++) {
        support_ok(baton_schedule_start(words.recv));
        support_ok(baton_schedule_wait(words.recv, -1));
        assert_int_equal(words.in, epoch);
    }
    support_words_close(&words);
}

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

static void test_sim_payload_of_nodes(void **state)
{
    run_chain(false);
}

static void test_sim_payload_is_not_touched_when_cost_only(void **state)
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

static void test_sim_payload_of_activation(void **state)
{
    baton_sim_options_t options = support_sim_options(2);
    activate(&options);
    options.cost_only = true;
    activate(&options);
}

/* ---- options ------------------------------------------------------------ */

static void test_sim_create_refuses_bad_options(void **state)
{
    baton_sim_t *sim = NULL;
    support_expect(baton_sim_create(NULL, &sim), BATON_ERR_INVALID);
    for (int bad = 0; bad < 4; bad++) {
        baton_sim_options_t options = support_sim_options(2);
        static const char *const names[] = {"size", "ranks", "gamma_ns", "lag"};
        options.size = bad == 0 ? 1 : options.size;
        options.ranks = bad == 1 ? 0 : 2;
        options.gamma_ns = bad == 2 ? -1 : 0;
        options.lag.a = bad == 3 ? -1 : 0;
        support_expect(baton_sim_create(&options, &sim), BATON_ERR_INVALID);
        support_says(names[bad]);
    }
    assert_null(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_payload_of_any_size),
        cmocka_unit_test(test_sim_payload_of_one_tag_stays_in_order),
        cmocka_unit_test(test_sim_payload_of_nodes),
        cmocka_unit_test(test_sim_payload_is_not_touched_when_cost_only),
        cmocka_unit_test(test_sim_payload_of_activation),
        cmocka_unit_test(test_sim_create_refuses_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
