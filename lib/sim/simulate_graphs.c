#include "sim/simulate_graphs.h"

#include "base/error.h"
#include "sim/sim.h"

static void simulate_graphs_fill(void *arg, baton_schedule_t *schedule)
{
    const baton__sim_packed_graph_t *graph = arg;
    baton__task_t *task = baton__task_of(schedule);
    graph += schedule->group->rank;
    schedule->name = graph->name;
    baton__unpack(schedule, graph->data);
    task->identity = baton__identity(graph->name, task->attempt);
}

static baton_status_t simulate(baton__sim_packed_graph_t *graphs, int ranks,
                               size_t sync_bytes)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.cost_only = true;
    options.sync_bytes = sync_bytes;
    /* A message takes 1 us, so it arrives after all ranks have begun. */
    options.link.alpha_us = 1.0;
    baton_sim_t *sim;
    baton_status_t status = baton_sim_create(&options, &sim);
    if (status != BATON_OK) {
        return status;
    }
    sim->kinds[BATON__REDUCE].issue = NULL;
    sim->kinds[BATON__CALL].issue = NULL;
    sim->kinds[BATON__ASYNC].issue = NULL;
    status = baton_sim_build(sim, graphs[0].name, simulate_graphs_fill, graphs);
    double us;
    if (status == BATON_OK) {
        status = baton_sim_epoch(sim, &us);
    }
    /* This can't fail, since the simulator owns all schedules. */
    (void)!baton_sim_destroy(sim);
    return status;
}

baton_status_t baton__sim_simulate_graphs(baton__sim_packed_graph_t *graphs,
                                          int ranks)
{
    baton__text_t text = BATON__TEXT(BATON__MESSAGE_BYTES);
    /* With sync_bytes = 1 every send of data waits for its receive. A schedule
       that ends only if MPI buffers its messages deadlocks here. */
    baton_status_t status = simulate(graphs, ranks, 1);
    if (status == BATON_OK) {
        return BATON_OK;
    }
    if (status == BATON_ERR_NO_MEMORY) {
        baton__text_add(&text,
                        "no memory on rank 0 to simulate %d ranks: ", ranks);
    }
    baton__text_add(&text, "%s", baton_error_message());
    if (status == BATON_ERR_DEADLOCK &&
        simulate(graphs, ranks, 0) == BATON_OK) {
        baton__text_add(&text, "\n    (it would end if all sends were "
                               "buffered, but long messages are not)");
    }
    return baton__error_forward(status, text.data);
}
