/* The run state against a sequential model: every order in which the nodes of
   small DAGs can complete, and random orders of larger ones. */
#include "support/cmocka.h"
#include "support/model.h"
#include "support/random.h"

static uint64_t ends; /* of all orders so far */

/* ---- all orders -------------------------------------------------------- */

/* Explores every order of moves from here to the end of epoch `epochs`. */
static void explore(uint64_t epochs)
{
    model_snapshot_t here = model_snapshot;
    bool moved = false;
    model_compare();
    if (baton__run_has_ready(&model_snapshot.run)) {
        moved = true;
        model_pop();
        explore(epochs);
        model_snapshot = here;
    }
    for (uint32_t i = 0; i < model_graph.count; i++) {
        if (model_can_complete(i)) {
            moved = true;
            model_complete(i);
            explore(epochs);
            model_snapshot = here;
        }
    }
    if (!moved) {
        model_expect_quiescent();
    }
    if (baton__run_is_through(&model_snapshot.run) &&
        model_snapshot.run.epoch < epochs) {
        model_retire();
        model_begin();
        explore(epochs);
        model_snapshot = here;
    }
    ends += !moved;
}

static void explore_graph(uint64_t epochs)
{
    baton_schedule_t *s = model_build();
    model_reset(s);
    model_begin();
    explore(epochs);
    (void)!baton_schedule_destroy(s);
}

/* Kinds of nodes; some tests use only the first SHORT_LIST. */
enum { SHORT_LIST = 5, LONG_LIST = 8 };
static const struct kind {
    model_action_t action;
    bool optional;
} kinds[LONG_LIST] = {{MODEL_SEND, false}, {MODEL_RECV, true},
                      {MODEL_CALL, false}, {MODEL_SKIP, true},
                      {MODEL_SEND, true},  {MODEL_SKIP, false},
                      {MODEL_CALL, true},  {MODEL_RECV, false}};

/* All graphs of `count` nodes: all edges, needs and kinds of node i and after
   it. */
static void explore_all(uint32_t i, int kind_count, uint64_t epochs)
{
    if (i == model_graph.count) {
        explore_graph(epochs);
        return;
    }
    for (model_graph.preds[i] = 0; model_graph.preds[i] < 1u << i;
         model_graph.preds[i]++) {
        uint32_t edges = model_count_bits(model_graph.preds[i]);
        for (uint32_t need = 0; need == 0 || need < edges; need++) {
            for (int k = 0; k < kind_count; k++) {
                model_graph.need[i] = need;
                model_graph.action[i] = kinds[k].action;
                model_graph.optional[i] = kinds[k].optional;
                explore_all(i + 1, kind_count, epochs);
            }
        }
    }
}

static void explore_size(uint32_t count, int kind_count, uint64_t epochs)
{
    ends = 0;
    model_graph = (model_graph_t){.count = count};
    explore_all(0, kind_count, epochs);
    print_message("%u nodes, %u epochs: %llu orders\n", count, (unsigned)epochs,
                  (unsigned long long)ends);
    assert_true(ends > 0);
}

static void test_run_agrees_in_all_orders_of_two_nodes(void **state)
{
    explore_size(1, LONG_LIST, 5);
    explore_size(2, LONG_LIST, 3);
}

static void test_run_agrees_in_all_orders_of_three_nodes(void **state)
{
    explore_size(3, LONG_LIST, 2);
}

static void test_run_agrees_in_all_orders_of_four_nodes(void **state)
{
    explore_size(4, SHORT_LIST, 1);
}

/* ---- random orders ----------------------------------------------------- */

static void draw_graph(support_random_t *random)
{
    model_graph =
        (model_graph_t){.count = 5 + (uint32_t)support_random_below(random, 3)};
    for (uint32_t i = 0; i < model_graph.count; i++) {
        const struct kind *kind =
            &kinds[support_random_below(random, LONG_LIST)];
        model_graph.action[i] = kind->action;
        model_graph.optional[i] = kind->optional;
        model_graph.preds[i] = (uint32_t)support_random_below(random, 1u << i);
        model_graph.need[i] = (uint32_t)support_random_below(
            random, model_count_bits(model_graph.preds[i]) + 1);
    }
}

/* Completes a random message in flight, if there is one. Returns whether it
 * did. */
static bool land_any(support_random_t *random)
{
    uint32_t due[MODEL_NODES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < model_graph.count; i++) {
        if (model_can_complete(i)) {
            due[count++] = i;
        }
    }
    if (count > 0) {
        model_complete(due[support_random_below(random, count)]);
    }
    return count > 0;
}

/* Runs an epoch in a random order. Returns false when it can't end. */
static bool walk(support_random_t *random)
{
    uint64_t patience = support_random_below(random, 8);
    model_begin();
    for (;;) {
        model_compare();
        if (baton__run_is_through(&model_snapshot.run) && patience-- == 0) {
            model_retire();
            return true;
        }
        bool pops = baton__run_has_ready(&model_snapshot.run) &&
                    support_random_below(random, 2) == 0;
        if (pops) {
            model_pop();
        } else if (!land_any(random) &&
                   !baton__run_has_ready(&model_snapshot.run)) {
            model_expect_quiescent();
            if (!baton__run_is_through(&model_snapshot.run)) {
                return false;
            }
            patience = 0;
        }
    }
}

static void test_run_agrees_in_random_orders_of_larger_graphs(void **state)
{
    support_random_t random = support_random(support_seed(), 2);
    uint64_t epochs = 0;
    for (int i = 0; i < 3000; i++) {
        draw_graph(&random);
        baton_schedule_t *s = model_build();
        model_reset(s);
        for (int epoch = 0; epoch < 20 && walk(&random); epoch++) {
            epochs++;
            while (support_random_below(&random, 4) == 0) {
                (void)land_any(&random);
            }
        }
        (void)!baton_schedule_destroy(s);
    }
    assert_true(epochs > 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_agrees_in_all_orders_of_two_nodes),
        cmocka_unit_test(test_run_agrees_in_all_orders_of_three_nodes),
        cmocka_unit_test(test_run_agrees_in_all_orders_of_four_nodes),
        cmocka_unit_test(test_run_agrees_in_random_orders_of_larger_graphs),
    };
    return cmocka_run_group_tests(tests, model_open, model_close);
}
