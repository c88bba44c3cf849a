/* The run state, compared with a sequential model, which computes from scratch
   which nodes must be ready. Tests all graphs of up to four nodes, with all
   orders in which the nodes can complete. The moves are those of progress/: pop
   a ready node and issue it, or complete a message. baton-fuzz tests larger
   graphs. */
#include "sched/schedule.h"
#include "support/cluster.h"

enum { NODES = 4 };

typedef enum action { CALL, SKIP, SEND, RECV } action_t;

/* Edges lead from lower to higher ids. */
static struct graph {
    uint32_t count;
    uint32_t preds[NODES]; /* the node's predecessors, as a mask */
    uint32_t need[NODES];
    action_t action[NODES];
    bool optional[NODES];
} graph;

typedef enum status { WAITING, READY, ISSUED, SATISFIED, SKIPPED } status_t;

/* A run, its memory and the state of the model. They are copied as a whole. */
static struct snapshot {
    baton__run_t run;
    uint32_t left[NODES];
    uint32_t ready[NODES];
    uint8_t state[NODES];
    status_t status[NODES];
} now;

static uint64_t ends; /* the number of all orders so far */

/* ---- the model --------------------------------------------------------- */

static uint32_t count_bits(uint32_t mask)
{
    uint32_t count = 0;
    for (; mask != 0; mask &= mask - 1) {
        count++;
    }
    return count;
}

/* Returns whether the node fires if the nodes of a mask are satisfied. */
static bool fires(uint32_t node, uint32_t satisfied)
{
    uint32_t need = graph.need[node] == BATON_NEED_ALL
                        ? count_bits(graph.preds[node])
                        : graph.need[node];
    return count_bits(graph.preds[node] & satisfied) >= need;
}

static void fire_what_can(void)
{
    uint32_t satisfied = 0;
    for (uint32_t i = 0; i < graph.count; i++) {
        satisfied |= now.status[i] == SATISFIED ? 1u << i : 0;
    }
    for (uint32_t i = 0; i < graph.count; i++) {
        if (now.status[i] == WAITING && fires(i, satisfied)) {
            now.status[i] = READY;
        }
    }
}

static bool is_through(void)
{
    for (uint32_t i = 0; i < graph.count; i++) {
        bool done = now.status[i] == SATISFIED || now.status[i] == SKIPPED;
        bool overtakable = graph.action[i] == RECV && graph.optional[i];
        if (now.status[i] == READY || (!done && !graph.optional[i]) ||
            (now.status[i] == ISSUED && !overtakable)) {
            return false;
        }
    }
    return true;
}

/* Returns the nodes that an epoch fires, which are the least fixed point. */
static uint32_t fired_at_the_end(void)
{
    uint32_t fired = 0, satisfied = 0;
    for (uint32_t i = 0; i < graph.count; i++) {
        if (fires(i, satisfied)) {
            fired |= 1u << i;
            satisfied |= graph.action[i] == SKIP ? 0 : 1u << i;
        }
    }
    return fired;
}

/* Compares the run with the model: which nodes are ready, and whether the epoch
   is over. */
static void compare(void)
{
    uint32_t ready = 0, expected = 0;
    for (uint32_t i = now.run.head; i < now.run.tail; i++) {
        assert_int_equal(ready >> now.ready[i] & 1, 0);
        ready |= 1u << now.ready[i];
    }
    for (uint32_t i = 0; i < graph.count; i++) {
        expected |= now.status[i] == READY ? 1u << i : 0;
    }
    assert_int_equal(ready, expected);
    assert_true(now.run.tail <= graph.count);
    assert_int_equal(baton__run_is_through(&now.run), is_through());
}

/* Called if no move is left. All nodes that the epoch fires must have fired. If
   some required nodes have not, the epoch must be stuck. */
static void expect_quiescent(void)
{
    uint32_t fired = 0;
    for (uint32_t i = 0; i < graph.count; i++) {
        fired |= now.status[i] != WAITING ? 1u << i : 0;
    }
    assert_int_equal(fired, fired_at_the_end());
    assert_int_equal(baton__run_is_stuck(&now.run), !is_through());
}

/* ---- moves, made by the run and by the model ---------------------------- */

static void begin(void)
{
    baton__run_begin(&now.run);
    for (uint32_t i = 0; i < graph.count; i++) {
        now.status[i] = WAITING;
    }
    fire_what_can();
}

static void complete(uint32_t node)
{
    baton__run_complete(&now.run, node);
    now.status[node] = SATISFIED;
    fire_what_can();
}

static void pop(void)
{
    uint32_t node = baton__run_pop(&now.run);
    if (graph.action[node] == CALL) {
        complete(node);
    } else if (graph.action[node] == SKIP) {
        baton__run_skip(&now.run, node);
        now.status[node] = SKIPPED;
    } else {
        baton__run_enter(&now.run, node,
                         graph.action[node] == SEND ? BATON__NODE_MOVING
                                                    : BATON__NODE_WAITING);
        now.status[node] = ISSUED;
    }
}

/* Explores every order of moves from here to the end of epoch `epochs`. */
static void explore(uint64_t epochs)
{
    struct snapshot here = now;
    bool moved = false;
    compare();
    if (baton__run_has_ready(&now.run)) {
        moved = true;
        pop();
        explore(epochs);
        now = here;
    }
    for (uint32_t i = 0; i < graph.count; i++) {
        if (now.status[i] == ISSUED) {
            moved = true;
            complete(i);
            explore(epochs);
            now = here;
        }
    }
    if (!moved) {
        expect_quiescent();
    }
    if (baton__run_is_through(&now.run) && now.run.epoch < epochs) {
        baton__run_set_phase(&now.run, BATON__RUN_IDLE);
        begin();
        explore(epochs);
        now = here;
    }
    ends += !moved;
}

/* ---- graphs ------------------------------------------------------------- */

static void explore_graph(const support_cluster_t *cluster, uint64_t epochs)
{
    baton_schedule_t *s = support_schedule(cluster->groups[0], "run");
    baton_view_t none = support_scratch(s, 0);
    for (uint32_t i = 0; i < graph.count; i++) {
        baton_node_t node;
        if (graph.action[i] == SEND) {
            node = baton_add_send(s, 0, none);
        } else if (graph.action[i] == RECV) {
            node = baton_add_recv(s, 0, none);
        } else {
            node = baton_add_call(s, support_succeed, NULL);
        }
        for (uint32_t from = 0; from < i; from++) {
            if ((graph.preds[i] >> from & 1) != 0) {
                baton_before(s, (baton_node_t){from}, node);
            }
        }
        baton_set_need(s, node, graph.need[i]);
        if (graph.optional[i]) {
            baton_set_optional(s, node);
        }
    }
    support_ok(baton_schedule_commit(s));
    now = (struct snapshot){.run = s->run};
    now.run.left = now.left;
    now.run.ready = now.ready;
    now.run.state = now.state;
    begin();
    explore(epochs);
    (void)!baton_schedule_destroy(s);
}

/* Explores all edges, all needs, and the first `kind_count` kinds, for node i
   and the nodes after it. */
static void explore_all(const support_cluster_t *cluster, uint32_t i,
                        int kind_count, uint64_t epochs)
{
    static const struct kind {
        action_t action;
        bool optional;
    } kinds[] = {{SEND, false}, {RECV, true},  {CALL, false}, {SKIP, true},
                 {SEND, true},  {SKIP, false}, {CALL, true},  {RECV, false}};
    if (i == graph.count || i == NODES) {
        explore_graph(cluster, epochs);
        return;
    }
    for (graph.preds[i] = 0; graph.preds[i] < 1u << i; graph.preds[i]++) {
        uint32_t edges = count_bits(graph.preds[i]);
        for (uint32_t need = 0; need == 0 || need < edges; need++) {
            for (int k = 0; k < kind_count; k++) {
                graph.need[i] = need;
                graph.action[i] = kinds[k].action;
                graph.optional[i] = kinds[k].optional;
                explore_all(cluster, i + 1, kind_count, epochs);
            }
        }
    }
}

TEST_MANUALLY(test_run_agrees_in_all_orders, 1)
{
    static const struct size {
        uint32_t nodes;
        int kinds;
        uint64_t epochs;
    } sizes[] = {{1, 8, 5}, {2, 8, 3}, {3, 8, 2}, {4, 5, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ends = 0;
        graph = (struct graph){.count = sizes[i].nodes};
        explore_all(cluster, 0, sizes[i].kinds, sizes[i].epochs);
        print_message("%u nodes, %u epochs: %llu orders\n", sizes[i].nodes,
                      (unsigned)sizes[i].epochs, (unsigned long long)ends);
        assert_true(ends > 0);
    }
}
