/* Creation, trace, faults and destruction of a simulator. */
#include "sim/sim.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"
#include "sim/model.h"

#include <string.h>

/* ---- kinds of nodes ----------------------------------------------------- */

static int sim_create_issue_reduce(const baton__op_t *op, uint32_t node,
                                   const baton__context_t *context,
                                   size_t begin, size_t bytes)
{
    baton__sim_port_t *port = context->endpoint;
    const baton__sim_net_t *net = port->net;
    if (!net->options->cost_only) {
        (void)baton__kinds[BATON__REDUCE].issue(op, node, context, begin,
                                                bytes);
    }
    double work_us = (double)bytes * net->options->gamma_ns * 1e-3;
    double begin_us = baton__sim_port_work(port, work_us);
    if (net->report != NULL) {
        baton_sim_event_t event = {
            .what = BATON_SIM_REDUCE,
            .rank = (int)port->rank,
            .peer = -1,
            .begin_us = begin_us,
            .end_us = port->clock,
            .bytes = bytes,
            .node = node,
        };
        net->report(net->report_arg, context->owner, &event);
    }
    return BATON_OK;
}

static void fill_kinds(baton_sim_t *sim)
{
    memcpy(sim->kinds, baton__kinds, sizeof sim->kinds);
    sim->kinds[BATON__REDUCE].issue = sim_create_issue_reduce;
    if (sim->options.cost_only) {
        sim->kinds[BATON__COPY].issue = NULL;
    }
}

/* ---- trace -------------------------------------------------------------- */

static void sim_create_report(void *arg, const void *owner,
                              baton_sim_event_t *event)
{
    const baton_sim_t *sim = arg;
    const baton_schedule_t *schedule = owner;
    event->schedule = schedule->name;
    event->epoch = schedule->run.epoch;
    sim->trace(sim->trace_arg, event);
}

static bool is_busy(const baton_schedule_t *schedule)
{
    const baton__sim_port_t *port = schedule->group->endpoint;
    return port->clock > port->net->now_us;
}

static void on_epoch_begin(baton_schedule_t *schedule)
{
    baton__sim_task_t *sim_task = baton__sim_task_of(schedule);
    sim_task->timed = true;
    sim_task->began_us = baton__sim_clock(schedule->group->endpoint);
}

static void sim_create_on_epoch_end(baton_schedule_t *schedule)
{
    baton_sim_t *sim = baton__sim_of(schedule->group->engine);
    baton__sim_task_t *sim_task = baton__sim_task_of(schedule);
    if (!sim_task->timed) {
        /* No epoch was running: the schedule has failed between two epochs, or
           after a failure it is waiting for transfers to end. */
        return;
    }
    sim_task->timed = false;
    sim_task->ended_us = baton__sim_clock(schedule->group->endpoint);
    if (sim->trace != NULL) {
        baton_sim_event_t event = {
            .what = BATON_SIM_EPOCH,
            .rank = schedule->group->rank,
            .peer = -1,
            .begin_us = sim_task->began_us,
            .end_us = sim_task->ended_us,
        };
        sim_create_report(sim, schedule, &event);
    }
}

void baton_sim_trace(baton_sim_t *sim, baton_sim_trace_fn fn, void *arg)
{
    if (!baton__is_given(sim, true, __func__, "sim")) {
        return;
    }
    sim->trace = fn;
    sim->trace_arg = arg;
    sim->net.report = fn != NULL ? sim_create_report : NULL;
    sim->net.report_arg = sim;
}

/* ---- faults ----------------------------------------------------------- */

static baton_status_t check_rank(const baton_sim_t *sim, int rank)
{
    if (sim == NULL) {
        return baton__error(BATON_ERR_INVALID, "sim is NULL");
    }
    return rank >= 0 && rank < sim->options.ranks
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID, "sim: rank %d is not in 0..%d",
                              rank, sim->options.ranks - 1);
}

baton_status_t baton_sim_set_lag(baton_sim_t *sim, baton_distribution_t lag)
{
    baton_status_t status = check_rank(sim, 0);
    if (status == BATON_OK) {
        status = baton__distribution_check("sim: lag", &lag);
    }
    if (status == BATON_OK) {
        sim->options.lag = lag;
        sim->net.has_lag = !baton__distribution_is_zero(&lag);
        sim->net.transport.unordered |= sim->net.has_lag;
    }
    return status;
}

baton_status_t baton_sim_set_speed(baton_sim_t *sim, int rank, double speed)
{
    baton_status_t status = check_rank(sim, rank);
    if (status == BATON_OK) {
        status = baton__sim_check_number("sim", "speed", speed,
                                         BATON__SIM_LEAST_SPEED, false);
    }
    if (status == BATON_OK) {
        baton__sim_port(sim, rank)->slowness = 1.0 / speed;
    }
    return status;
}

baton_status_t baton_sim_kill(baton_sim_t *sim, int rank)
{
    baton_status_t status = check_rank(sim, rank);
    if (status == BATON_OK) {
        baton__sim_net_kill(&sim->net, rank);
    }
    return status;
}

baton_status_t baton_sim_fail_send(baton_sim_t *sim, int rank, uint64_t k)
{
    baton_status_t status = check_rank(sim, rank);
    if (status == BATON_OK) {
        baton__sim_port(sim, rank)->until_failure = k;
    }
    return status;
}

/* ---- life --------------------------------------------------------------- */

baton_group_t *baton_sim_group(baton_sim_t *sim, int rank)
{
    return check_rank(sim, rank) == BATON_OK ? &sim->ranks[rank].member.group
                                             : NULL;
}

static void init_rank(baton_sim_t *sim, int rank)
{
    /* With options.introductions ranks send each other HELLO notices, which
       change the node records of each rank separately. So ranks can share
       records only without introductions. */
    static const baton__hooks_t hooks = {.is_busy = is_busy,
                                         .on_epoch_begin = on_epoch_begin,
                                         .on_epoch_end =
                                             sim_create_on_epoch_end};
    bool shares = sim->options.cost_only && !sim->options.introductions;
    baton__sim_rank_t *self = &sim->ranks[rank];
    self->stepper = (baton__stepper_t){
        .groups = &self->member.group,
        .slice_bytes = SIZE_MAX,
        .hooks = &hooks,
    };
    self->member = (baton__member_t){
        .magic = BATON__MEMBER_MAGIC,
        .unknown_peer = -1,
        .introduces = sim->options.introductions,
        .queues = &self->queue,
        .group = {.engine = &sim->engine,
                  .stepper = &self->stepper,
                  .borrowed = true,
                  .kinds = sim->kinds,
                  .cost_only = sim->options.cost_only,
                  .sharing = shares ? &sim->sharing : NULL,
                  .transport = &sim->net.transport,
                  .endpoint = baton__sim_port(sim, rank),
                  .rank = rank,
                  .size = sim->options.ranks},
    };
}

baton_status_t baton_sim_create(const baton_sim_options_t *from,
                                baton_sim_t **out)
{
    baton_sim_options_t options;
    if (!baton__is_given(out, true, __func__, "out")) {
        return BATON_ERR_INVALID;
    }
    baton_status_t status =
        baton__options_read(&options, sizeof options, from, "simulator options",
                            "BATON_SIM_OPTIONS");
    if (status == BATON_OK) {
        status = baton__sim_check_options(&options);
    }
    if (status == BATON_OK) {
        double bytes = sizeof(baton__sim_rank_t) + sizeof(baton__sim_port_t);
        status =
            baton__sim_check_memory(bytes * options.ranks, "sim: its ranks",
                                    "lower the number of ranks");
    }
    if (status != BATON_OK) {
        return status;
    }
    baton_sim_t *sim = baton__alloc(1, sizeof *sim);
    if (sim == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a simulator");
    }
    sim->options = options;
    sim->engine.driver = &baton__sim_driver;
    sim->free_call = BATON__SIM_NONE;
    fill_kinds(sim);
    sim->ranks = baton__alloc((size_t)options.ranks, sizeof *sim->ranks);
    if (sim->ranks == NULL ||
        baton__sim_net_init(&sim->net, &baton__sim_transport, &sim->options) !=
            BATON_OK) {
        /* This call is allowed even if the network was not initialised and is
           all zeros. */
        baton__sim_net_fini(&sim->net);
        baton__free(sim->ranks);
        baton__free(sim);
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a simulator");
    }
    for (int rank = 0; rank < options.ranks; rank++) {
        init_rank(sim, rank);
    }
    *out = sim;
    return BATON_OK;
}

/* Returns BATON_ERR_BUSY if a rank has schedules that the simulator does not
   own. */
static baton_status_t check_destroyed(const baton_sim_t *sim, int rank)
{
    const baton__sim_rank_t *self = &sim->ranks[rank];
    const baton_schedule_t *own = sim->built != NULL ? sim->built[rank] : NULL;
    uint32_t others = self->member.group.schedules - (own != NULL ? 1 : 0);
    if (others == 0) {
        return BATON_OK;
    }
    const baton__task_t *other = self->stepper.tasks;
    while (other != NULL && &other->schedule == own) {
        other = other->next;
    }
    return baton__error(
        BATON_ERR_BUSY,
        "sim: %u schedules of rank %d still exist, \"%s\" for one: destroy "
        "them first",
        others, rank, other != NULL ? other->schedule.name : "(uncommitted)");
}

baton_status_t baton_sim_destroy(baton_sim_t *sim)
{
    if (sim == NULL) {
        return BATON_OK;
    }
    baton_status_t status = baton__sim_check_outside(sim, "destroy");
    for (int rank = 0; rank < sim->options.ranks && status == BATON_OK;
         rank++) {
        status = check_destroyed(sim, rank);
    }
    if (status != BATON_OK) {
        return status;
    }
    sim->ending = true;
    baton__sim_destroy_built(sim);
    for (int rank = 0; rank < sim->options.ranks; rank++) {
        baton__member_fini(&sim->ranks[rank].member);
    }
    baton__sharing_fini(&sim->sharing);
    baton__sim_net_fini(&sim->net);
    baton__free(sim->ranks);
    baton__free(sim->calls);
    baton__free(sim);
    return BATON_OK;
}
