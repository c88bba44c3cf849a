#include "support/model.h"
#include "support/cluster.h"
#include "support/cmocka.h"

static support_cluster_t *self;
model_graph_t model_graph;
model_snapshot_t model_snapshot;

int model_open(void **state)
{
    self = support_cluster_manual(1);
    return 0;
}

int model_close(void **state)
{
    support_cluster_close(self);
    return 0;
}

/* ---- building ---------------------------------------------------------- */

static baton_status_t never_called(void *arg, baton_call_t *call)
{
    return BATON_ERR_STATE;
}

baton_schedule_t *model_build(void)
{
    baton_schedule_t *s = support_schedule(self->groups[0], "run");
    baton_view_t none = support_scratch(s, 0);
    for (uint32_t i = 0; i < model_graph.count; i++) {
        baton_node_t node = model_graph.action[i] == MODEL_SEND
                                ? baton_add_send(s, 0, none)
                            : model_graph.action[i] == MODEL_RECV
                                ? baton_add_recv(s, 0, none)
                                : baton_add_call(s, never_called, NULL);
        for (uint32_t from = 0; from < i; from++) {
            if ((model_graph.preds[i] >> from & 1) != 0) {
                baton_before(s, (baton_node_t){from}, node);
            }
        }
        baton_set_need(s, node, model_graph.need[i]);
        if (model_graph.optional[i]) {
            baton_set_optional(s, node);
        }
    }
    support_ok(baton_schedule_commit(s));
    return s;
}

void model_reset(const baton_schedule_t *s)
{
    model_snapshot = (model_snapshot_t){.run = s->run};
    model_snapshot.run.left = model_snapshot.left;
    model_snapshot.run.ready = model_snapshot.ready;
    model_snapshot.run.state = model_snapshot.state;
}

/* ---- the model --------------------------------------------------------- */

uint32_t model_count_bits(uint32_t mask)
{
    uint32_t count = 0;
    for (; mask != 0; mask &= mask - 1) {
        count++;
    }
    return count;
}

static uint32_t need_of(uint32_t node)
{
    return model_graph.need[node] == BATON_NEED_ALL
               ? model_count_bits(model_graph.preds[node])
               : model_graph.need[node];
}

static void fire_what_can(void)
{
    uint32_t satisfied = 0;
    for (uint32_t i = 0; i < model_graph.count; i++) {
        satisfied |= model_snapshot.status[i] == SATISFIED ? 1u << i : 0;
    }
    for (uint32_t i = 0; i < model_graph.count; i++) {
        if (model_snapshot.status[i] == WAITING &&
            model_count_bits(model_graph.preds[i] & satisfied) >= need_of(i)) {
            model_snapshot.status[i] = READY;
        }
    }
}

static bool overtakable(uint32_t node)
{
    return model_graph.action[node] == MODEL_RECV && model_graph.optional[node];
}

static bool model_is_through(void)
{
    for (uint32_t i = 0; i < model_graph.count; i++) {
        bool done = model_snapshot.status[i] == SATISFIED ||
                    model_snapshot.status[i] == SKIPPED;
        if (model_snapshot.status[i] == READY ||
            (!done && !model_graph.optional[i]) ||
            (model_snapshot.status[i] == ISSUED && !overtakable(i))) {
            return false;
        }
    }
    return true;
}

/* The nodes that an epoch fires: the least fixed point. */
static uint32_t least_fixed_point(void)
{
    uint32_t fired = 0;
    uint32_t satisfied = 0;
    for (uint32_t i = 0; i < model_graph.count; i++) {
        if (model_count_bits(model_graph.preds[i] & satisfied) >= need_of(i)) {
            fired |= 1u << i;
            satisfied |= model_graph.action[i] == MODEL_SKIP ? 0 : 1u << i;
        }
    }
    return fired;
}

void model_compare(void)
{
    uint32_t ready = 0;
    uint32_t expected = 0;
    for (uint32_t i = model_snapshot.run.head; i < model_snapshot.run.tail;
         i++) {
        assert_int_equal(ready >> model_snapshot.ready[i] & 1, 0);
        ready |= 1u << model_snapshot.ready[i];
    }
    for (uint32_t i = 0; i < model_graph.count; i++) {
        expected |= model_snapshot.status[i] == READY ? 1u << i : 0;
    }
    assert_int_equal(ready, expected);
    assert_true(model_snapshot.run.tail <= model_graph.count);
    assert_int_equal(baton__run_is_through(&model_snapshot.run),
                     model_is_through());
}

/* ---- moves ------------------------------------------------------------- */

void model_begin(void)
{
    baton__run_begin(&model_snapshot.run);
    for (uint32_t i = 0; i < model_graph.count; i++) {
        model_snapshot.status[i] = WAITING;
    }
    fire_what_can();
}

void model_retire(void)
{
    baton__run_retire(&model_snapshot.run);
    for (uint32_t i = 0; i < model_graph.count; i++) {
        model_snapshot.status[i] = WAITING;
    }
}

void model_pop(void)
{
    uint32_t node = baton__run_pop(&model_snapshot.run);
    if (model_graph.action[node] == MODEL_CALL) {
        baton__run_complete(&model_snapshot.run, node);
        model_snapshot.status[node] = SATISFIED;
    } else if (model_graph.action[node] == MODEL_SKIP) {
        baton__run_skip(&model_snapshot.run, node);
        model_snapshot.status[node] = SKIPPED;
    } else {
        baton__run_enter(&model_snapshot.run, node,
                         model_graph.action[node] == MODEL_SEND
                             ? BATON__NODE_MOVING
                             : BATON__NODE_WAITING);
        model_snapshot.status[node] = ISSUED;
    }
    fire_what_can();
}

bool model_can_complete(uint32_t node)
{
    return model_snapshot.status[node] == ISSUED;
}

void model_complete(uint32_t node)
{
    baton__run_complete(&model_snapshot.run, node);
    model_snapshot.status[node] = SATISFIED;
    fire_what_can();
}

/* If the nodes that fired are not all that the epoch requires, it is stuck. */
void model_expect_quiescent(void)
{
    uint32_t fired = 0;
    for (uint32_t i = 0; i < model_graph.count; i++) {
        fired |= model_snapshot.status[i] != WAITING ? 1u << i : 0;
    }
    assert_int_equal(fired, least_fixed_point());
    assert_int_equal(baton__run_is_stuck(&model_snapshot.run),
                     !model_is_through());
}
