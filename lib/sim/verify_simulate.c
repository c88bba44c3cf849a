/* What rank 0 makes of all ranks' graphs: one epoch of them in a simulator,
   started everywhere. A call node does nothing and goes on, so that all
   branches are taken and every rank that a draw could choose is chosen.

   One timing is enough: edges are satisfied and never taken back, so whatever
   can fire in one order does in each. What it can't show is an epoch that ends
   before an optional node has fired, where that node would have to. */
#include "sim/sim.h"
#include "sim/verify.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

baton_status_t baton__judge_admits(double bytes, int ranks)
{
    /* A node is 24 bytes here, and ten times that in a simulator. */
    enum { TIMES = 11 };
    char what[64];
    (void)snprintf(what, sizeof what, "the graphs of %d ranks", ranks);
    return baton__sim_check_memory(TIMES * bytes, what,
                                   "commit without BATON_VERIFY");
}

static void fill(void *arg, baton_schedule_t *schedule)
{
    const baton__draft_t *draft = arg;
    draft += schedule->group->rank;
    char *name = baton__copy_string(draft->name);
    if (name == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "no memory for a name");
        return;
    }
    baton__free(schedule->name);
    schedule->name = name;
    baton__unpack(schedule, draft->data);
    schedule->identity = baton__identity(name, schedule->attempt);
}

static baton_status_t simulate(baton__draft_t *drafts, int ranks,
                               size_t sync_bytes)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.cost_only = true;
    options.sync_bytes = sync_bytes;
    options.link.alpha_us = 1.0; /* nobody gets a message before it begins */
    baton_sim_t *sim;
    baton_status_t status = baton_sim_create(&options, &sim);
    if (status != BATON_OK) {
        return status;
    }
    sim->kinds[BATON__REDUCE].issue = NULL;
    sim->kinds[BATON__COPY].issue = NULL;
    sim->kinds[BATON__CALL].issue = NULL;
    sim->kinds[BATON__ASYNC].issue = NULL;
    status = baton_sim_build(sim, drafts[0].name, fill, drafts);
    double us;
    if (status == BATON_OK) {
        status = baton_sim_epoch(sim, &us);
    }
    (void)!baton_sim_destroy(sim); /* it has built all its schedules itself */
    return status;
}

baton_status_t baton__judge(baton__draft_t *drafts, int ranks)
{
    char memory[BATON__MESSAGE_BYTES];
    baton__text_t text = {memory, sizeof memory, 0};
    /* First without a buffer for any message: to rely on one is luck. */
    baton_status_t status = simulate(drafts, ranks, 1);
    if (status == BATON_OK) {
        return BATON_OK;
    }
    if (status == BATON_ERR_NO_MEMORY) {
        baton__text_add(&text,
                        "no memory on rank 0 to simulate %d ranks: ", ranks);
    }
    baton__text_add(&text, "%s", baton_error_message());
    if (status == BATON_ERR_DEADLOCK &&
        simulate(drafts, ranks, 0) == BATON_OK) {
        baton__text_add(&text, "\n    (it would end if every message sent "
                               "found a buffer; long ones don't)");
    }
    return baton__error_forward(status, memory);
}
