/* The driver of a simulated engine, which lets virtual time pass:

       pop the events of the next time --> ranks become due
             ^                                   |
             |                                   v
       sends make events <-- baton__step for each due rank, until it has
                             nothing to do at its time                  */
#include "sim/sim.h"

#include "base/alloc.h"
#include "base/error.h"
#include "progress/epoch/epoch.h"
#include "progress/membership/notice.h"

#include <math.h>

/* ---- queries ------------------------------------------------------------ */

double baton_sim_now_us(const baton_sim_t *sim)
{
    if (sim == NULL) {
        return 0;
    }
    return sim->stepping != NULL ? baton__sim_clock(sim->stepping)
                                 : sim->net.now_us;
}

double baton_schedule_ended_us(const baton_schedule_t *schedule)
{
    return baton__is_schedule(schedule, __func__) && schedule->group->borrowed
               ? baton__sim_task_of(schedule)->ended_us
               : 0;
}

baton_sim_totals_t baton_sim_totals(const baton_sim_t *sim)
{
    return sim != NULL ? sim->net.totals : (baton_sim_totals_t){0};
}

static bool sim_driver_is_inside(const baton_sim_t *sim)
{
    return sim->stepping != NULL || sim->calling;
}

/* ---- steps -------------------------------------------------------------- */

/* The interval, in virtual time, at which a rank polls its async nodes. */
enum { POLL_US = 10 };

static void step_rank(baton_sim_t *sim, baton__sim_port_t *port)
{
    if (port->dead || port->step_pending) {
        return;
    }
    if (port->clock > sim->net.now_us) {
        /* The rank's processor is busy. The rank handles arrivals when it is
           free. */
        port->step_pending = true;
        baton__sim_net_push(&sim->net, port->clock, BATON__SIM_STEP,
                            port->rank);
        return;
    }
    baton__stepper_t *stepper = &sim->ranks[port->rank].stepper;
    bool more = true;
    sim->stepping = port;
    while (more && !port->dead && port->clock <= sim->net.now_us) {
        bool progressed = baton__step(stepper, SIZE_MAX);
        more = baton__step_is_due(stepper) || port->completion_count > 0 ||
               baton__step_has_mail(stepper) ||
               baton__stepper_has_notices(stepper) ||
               (stepper->recovering > 0 && progressed);
    }
    sim->stepping = NULL;
    if (more) {
        /* The rank continues when its processor is free. */
        baton__sim_net_due(port);
    }
    if (stepper->polled > 0 && !port->poll_pending && !port->dead) {
        /* No event of the simulator reports that an async node completes, so
           the rank polls its async nodes. */
        port->poll_pending = true;
        baton__sim_net_push(&sim->net, sim->net.now_us + POLL_US,
                            BATON__SIM_POLL, port->rank);
    }
}

/* The passes in which the memory for a rank's step is prefetched, from pointer
   to pointer. A pass reads what the passes before it have prefetched. */
enum { RANK, EVENTS, TASK, NODE, SUCCESSOR, PASSES };

/* Prefetches the record and the state of a node, and then those of its first
   successor. If `message` is not NULL, the node is the message's receive. */
BATON__PREFETCHES void prefetch_node(const baton_schedule_t *schedule,
                                     const baton_message_t *message,
                                     uint32_t node, int pass)
{
    const baton__plan_t *plan = &schedule->plan;
    const baton__run_t *run = &schedule->run;
    if (message != NULL) {
        node = *baton__plan_place(plan, message->peer, message->header.tag,
                                  message->header.kind ==
                                      BATON__MESSAGE_ACTIVATION) -
               1;
    }
    if (node >= schedule->count) {
        return;
    }
    const baton__op_t *op = &schedule->ops[node];
    if (pass == NODE) {
        __builtin_prefetch(op);
        __builtin_prefetch(&run->left[node]);
        __builtin_prefetch(&run->state[node]);
        __builtin_prefetch(&run->ready[run->tail]);
    } else if (op->first_successor < op[1].first_successor) {
        uint32_t next = plan->successors[op->first_successor];
        __builtin_prefetch(&run->left[next]);
        __builtin_prefetch(&schedule->ops[next]);
        __builtin_prefetch(&schedule->addresses[op->buffer[BATON__TARGET]]);
    }
}

/* Prefetches a part of the memory that the step of a rank will touch. */
BATON__PREFETCHES void prefetch(const baton_sim_t *sim, uint32_t index,
                                int pass)
{
    enum { RANK_LINES = 2, TASK_LINES = 5, COMPLETIONS = 2 };
    const baton__sim_rank_t *rank = &sim->ranks[index];
    const baton__sim_port_t *port = &sim->net.ports[index];
    const baton_group_t *group = &rank->member.group;
    if (pass == RANK) {
        baton__prefetch(port, sizeof *port / BATON__LINE);
        baton__prefetch(&rank->stepper, RANK_LINES);
        baton__prefetch(group, RANK_LINES);
        return;
    }
    for (uint32_t k = 0; k < port->completion_count && k < COMPLETIONS; k++) {
        const baton__sim_completion_t *completion =
            &port->completions[port->completion_first + k];
        bool arrived = completion->kind == BATON_EVENT_ARRIVED;
        const baton_message_t *message = arrived ? completion->subject : NULL;
        if (pass == EVENTS && arrived) {
            baton__prefetch(message, sizeof(baton__sim_item_t) / BATON__LINE);
            baton__prefetch(group->table.places, 1);
        }
        if (pass == EVENTS) {
            continue;
        }
        const baton_schedule_t *schedule =
            arrived ? baton__group_find(group, message->header.schedule)
                    : completion->subject;
        if (schedule != NULL && pass == TASK) {
            baton__prefetch(baton__task_of(schedule), TASK_LINES);
        } else if (schedule != NULL) {
            prefetch_node(schedule, message, completion->node, pass);
        }
    }
}

/* Does the passes for the ranks that will step soon: the last pass for those of
   the next batch, the pass before it for those of the batch after that, and so
   on. So all memory has come when a rank steps. */
static void prefetch_ahead(const baton_sim_t *sim)
{
    const baton__sim_net_t *net = &sim->net;
    for (int pass = 0; pass < PASSES; pass++) {
        uint32_t from = (uint32_t)(PASSES - 1 - pass) * BATON__SIM_BATCH;
        for (uint32_t i = from;
             i < from + BATON__SIM_BATCH && i < net->due_count; i++) {
            prefetch(sim, *baton__sim_net_due_at(net, i), pass);
        }
    }
}

/* Steps all ranks that are due. After each batch of steps, begins the transfers
   of the messages that these ranks have sent, at the same virtual time. */
static void step_ranks(baton_sim_t *sim)
{
    baton__sim_port_t *batch[BATON__SIM_BATCH];
    for (;;) {
        size_t count = 0;
        while (count < BATON__SIM_BATCH &&
               (batch[count] = baton__sim_net_take_due(&sim->net)) != NULL) {
            count++;
        }
        if (count == 0) {
            return;
        }
        prefetch_ahead(sim);
        for (size_t i = 0; i < count; i++) {
            step_rank(sim, batch[i]);
        }
        baton__sim_net_begin(&sim->net);
    }
}

/* Runs a callback of baton_sim_at. */
static void call(baton_sim_t *sim, uint32_t index)
{
    baton__sim_call_t due = sim->calls[index];
    sim->calls[index].next = sim->free_call;
    sim->free_call = index;
    sim->calling = true;
    due.fn(due.arg);
    sim->calling = false;
}

/* Handles all events of time at_us, and then the events that these cause at the
   same time. Ranks step only after all of them. */
static void pop_events(baton_sim_t *sim, double at_us)
{
    baton__sim_net_t *net = &sim->net;
    baton__sim_entry_t events[BATON__SIM_EVENTS];
    double next_us = at_us;
    net->now_us = at_us;
    while (next_us == at_us) {
        size_t count = 0;
        bool more = true;
        bool calls = false;
        while (count < BATON__SIM_EVENTS && more && next_us == at_us &&
               !calls) {
            events[count] = baton__sim_queue_pop(&net->queue);
            baton__sim_net_prefetch(net, &events[count]);
            calls = events[count].kind == BATON__SIM_OWNER;
            count++;
            more = baton__sim_queue_peek(&net->queue, &next_us);
        }
        net->totals.events += count;
        baton__sim_net_events(net, events, count);
        if (calls) {
            call(sim, events[count - 1].index);
            more = baton__sim_queue_peek(&net->queue, &next_us);
        }
        if (!more) {
            break;
        }
    }
}

/* ---- time --------------------------------------------------------------- */

typedef enum progress {
    ADVANCED,
    QUIET,     /* no event is left */
    TIMED_OUT, /* the next event is after the limit */
    FAILED     /* events were lost for lack of memory */
} progress_t;

static progress_t sim_driver_advance(baton_sim_t *sim, double until_us)
{
    baton__sim_net_t *net = &sim->net;
    if (net->failed) {
        /* Events were lost, and what happens from now on would depend on
           them. */
        return FAILED;
    }
    if (net->due_count == 0) {
        double at_us;
        if (!baton__sim_queue_peek(&net->queue, &at_us)) {
            return QUIET;
        }
        if (at_us > until_us) {
            net->now_us = until_us > net->now_us ? until_us : net->now_us;
            return TIMED_OUT;
        }
        pop_events(sim, at_us);
    }
    baton__sim_net_begin(net);
    step_ranks(sim);
    return net->failed ? FAILED : ADVANCED;
}

baton_status_t baton__sim_check_outside(const baton_sim_t *sim,
                                        const char *operation)
{
    if (!baton__is_given(sim, true, operation, "sim")) {
        return BATON_ERR_INVALID;
    }
    return sim_driver_is_inside(sim)
               ? baton__error(BATON_ERR_STATE,
                              "sim: %s can't be called in a callback",
                              operation)
               : BATON_OK;
}

/* With options.introductions the ranks compare their schedules themselves, by
   HELLO notices, so the simulator need not. */
static baton_status_t match_if_new(baton_sim_t *sim)
{
    return sim->unmatched && !sim->options.introductions ? baton__sim_match(sim)
                                                         : BATON_OK;
}

static baton_status_t check_may_advance(baton_sim_t *sim, const char *operation)
{
    baton_status_t status = baton__sim_check_outside(sim, operation);
    return status == BATON_OK ? match_if_new(sim) : status;
}

static baton_status_t fail_memory(void)
{
    return baton__error(BATON_ERR_NO_MEMORY,
                        "sim: no memory for messages and events");
}

/* ---- the driver's table ------------------------------------------------ */

static bool driver_is_inside(const baton_engine_t *engine)
{
    return baton__sim_of(engine)->stepping != NULL;
}

/* Takes no lock, since one thread at a time uses a simulator. */
static void driver_enter(baton_engine_t *engine)
{
}

static bool driver_try_enter(baton_engine_t *engine)
{
    return true;
}

/* Makes the group's rank step at the current time. */
static void wake(baton_group_t *group)
{
    baton__sim_port_t *port = group->endpoint;
    if (!port->dead) {
        baton__sim_net_due(port);
    }
}

static bool driver_start(baton_schedule_t *schedule, baton__next_t next)
{
    baton__step_mail(schedule);
    wake(schedule->group);
    return false;
}

static baton_status_t driver_test(baton_engine_t *engine)
{
    baton_sim_t *sim = baton__sim_of(engine);
    if (sim_driver_is_inside(sim)) {
        return BATON_OK;
    }
    baton_status_t status = match_if_new(sim);
    if (status == BATON_OK && sim_driver_advance(sim, INFINITY) == FAILED) {
        status = fail_memory();
    }
    return status;
}

static baton_status_t driver_wait(baton_engine_t *engine,
                                  const baton__wait_t *wait)
{
    baton_sim_t *sim = baton__sim_of(engine);
    const baton_schedule_t *schedule = wait->schedule;
    if (wait->condition(wait->arg)) {
        return BATON_OK;
    }
    if (schedule == NULL && sim_driver_is_inside(sim)) {
        /* Time can't advance in a callback, so the recovery continues later. */
        return BATON_ERR_TIMEOUT;
    }
    double until_us = wait->timeout_ms < 0
                          ? INFINITY
                          : baton_sim_now_us(sim) + 1000.0 * wait->timeout_ms;
    baton_status_t status = check_may_advance(sim, "wait");
    if (status == BATON_OK && wait->turn != NULL) {
        /* The wait calls `turn` only once, since no real time passes in it. */
        status = wait->turn(wait->turn_arg);
    }
    const uint64_t heeded = baton__engine_heeded(wait);
    while (status == BATON_OK && !wait->condition(wait->arg)) {
        if (baton__engine_interrupts(engine, heeded)) {
            return baton__engine_heed(engine);
        }
        switch (sim_driver_advance(sim, until_us)) {
        case ADVANCED:
            break;
        case TIMED_OUT:
            return BATON_ERR_TIMEOUT;
        case FAILED:
            return fail_memory();
        case QUIET:
            return schedule == NULL ? BATON_ERR_TIMEOUT
                                    : baton__sim_explain(sim, schedule);
        }
    }
    return status;
}

/* Called when a schedule is destroyed. Sends the notices of that to the peers,
   and removes the schedule from its messages and completions. */
static void driver_forget(baton_schedule_t *schedule)
{
    baton_group_t *group = schedule->group;
    const baton_sim_t *sim = baton__sim_of(group->engine);
    if (sim->ending) {
        /* Either the simulator is being destroyed, and its network with it. Or
           a build that failed is being undone, and no rank was told of the
           schedule. */
        return;
    }
    /* The simulated network always has space for a notice. */
    (void)baton__notice_send(group->stepper, true);
    wake(group);
    baton__sim_net_forget(group->endpoint, schedule);
    baton__task_of(schedule)->moving = 0;
    baton__epoch_collect_asyncs(schedule);
}

const baton__driver_t baton__sim_driver = {
    .task_bytes = sizeof(baton__sim_task_t),
    .is_inside = driver_is_inside,
    .enter = driver_enter,
    .try_enter = driver_try_enter,
    .leave = driver_enter,
    .start = driver_start,
    .test = driver_test,
    .wait = driver_wait,
    .recover = wake,
    .check_memory = baton__sim_check_schedule,
    .forget = driver_forget,
};

/* Returns a schedule with an epoch that has started and not ended. The schedule
   is one of the lowest living rank that has such a schedule. */
static const baton_schedule_t *find_waiting(const baton_sim_t *sim)
{
    for (int rank = 0; rank < sim->options.ranks; rank++) {
        const baton__task_t *t = sim->ranks[rank].stepper.tasks;
        for (; t != NULL && !baton__sim_port(sim, rank)->dead; t = t->next) {
            if (baton__task_requested(t) > baton__task_retired(t) &&
                atomic_load_explicit(&t->failed, memory_order_relaxed) == 0) {
                return &t->schedule;
            }
        }
    }
    return NULL;
}

/* number of events between two calls of on_progress */
enum { PROGRESS_EVENTS = 16384 };

baton_status_t baton_sim_run(baton_sim_t *sim, double until_us)
{
    baton_status_t status = check_may_advance(sim, "run");
    if (status != BATON_OK) {
        return status;
    }
    until_us = until_us < 0 ? INFINITY : until_us;
    const baton_sim_options_t *options = &sim->options;
    uint64_t next = baton_sim_totals(sim).events + PROGRESS_EVENTS;
    for (;;) {
        const baton_schedule_t *waiting;
        switch (sim_driver_advance(sim, until_us)) {
        case ADVANCED:
            if (options->on_progress == NULL ||
                baton_sim_totals(sim).events < next) {
                break;
            }
            next = baton_sim_totals(sim).events + PROGRESS_EVENTS;
            if (!options->on_progress(options->on_progress_arg)) {
                return baton__error(BATON_ERR_CANCELLED,
                                    "sim: on_progress returned false");
            }
            break;
        case TIMED_OUT:
            return baton__error_forward(
                BATON_ERR_TIMEOUT,
                find_waiting(sim) != NULL
                    ? "sim: the time limit has been reached, and epochs still "
                      "run"
                    : "sim: the time limit has been reached, and callbacks or "
                      "messages remain");
        case FAILED:
            return fail_memory();
        case QUIET:
            waiting = find_waiting(sim);
            return waiting == NULL ? BATON_OK
                                   : baton__sim_explain(sim, waiting);
        }
    }
}

baton_status_t baton_sim_at(baton_sim_t *sim, double at_us, baton_sim_fn fn,
                            void *arg)
{
    if (!isfinite(at_us)) {
        return baton__error(BATON_ERR_INVALID,
                            "sim: at_us is %g, must be finite", at_us);
    }
    if (fn == NULL || sim == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: %s is NULL", __func__,
                            sim == NULL ? "sim" : "fn");
    }
    if (sim->free_call == BATON__SIM_NONE) {
        if (sim->call_count == sim->call_capacity) {
            uint32_t capacity = sim->call_capacity * 2 + 64;
            if (!baton__extend(&sim->calls, sim->call_count, capacity,
                               sizeof *sim->calls)) {
                return fail_memory();
            }
            sim->call_capacity = capacity;
        }
        sim->calls[sim->call_count].next = BATON__SIM_NONE;
        sim->free_call = sim->call_count++;
    }
    uint32_t index = sim->free_call;
    double now_us = baton_sim_now_us(sim);
    if (!baton__sim_queue_push(&sim->net.queue, at_us > now_us ? at_us : now_us,
                               BATON__SIM_OWNER, index)) {
        return fail_memory();
    }
    sim->free_call = sim->calls[index].next;
    sim->calls[index] = (baton__sim_call_t){fn, arg, BATON__SIM_NONE};
    return BATON_OK;
}
