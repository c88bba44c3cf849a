/* Checks, before a simulation takes memory, that the machine has enough of
   it. */
#include "sim/sim.h"

#include "base/available.h"
#include "base/error.h"

#include <stdio.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

baton_status_t baton__sim_check_memory(double bytes, const char *consumer,
                                       const char *advice)
{
    double available = (double)baton__available_memory("");
    return bytes <= available
               ? BATON_OK
               : baton__error(BATON_ERR_NO_MEMORY,
                              "%s would need %.1f GiB more, and the machine "
                              "has %.1f GiB: %s",
                              consumer, bytes / GIB, available / GIB, advice);
}

/* Returns the bytes that a schedule takes after its commit. */
static double footprint(const baton_schedule_t *schedule)
{
    bool shared = schedule->plan.shared;
    double node_bytes =
        (shared ? 0 : sizeof(baton__op_t)) + 4 * sizeof(uint32_t);
    double bytes =
        sizeof(baton__sim_task_t) + node_bytes * schedule->count +
        (double)sizeof(baton__edge_t) * (shared ? 0 : schedule->edge_count);
    for (uint32_t i = 0; i < schedule->count; i++) {
        if (baton__kinds[schedule->ops[i].kind].message) {
            bytes += sizeof(baton__sim_item_t);
        }
    }
    for (uint32_t i = 0;
         i < schedule->buffer_count && !schedule->group->cost_only; i++) {
        if (schedule->buffers[i].scratch) {
            bytes += (double)schedule->buffers[i].bytes;
        }
    }
    return bytes;
}

/* Called before each commit. Estimates the memory for the schedules that ranks
   have still to commit from the memory of those that were committed so far.
   Looks at the machine's memory only if the estimate is at least 1 GiB, and
   only at commits whose number is a power of two or a multiple of 1024. The
   first few ranks often have the largest schedules, so an estimate from fewer
   than FEW schedules is divided by FEW_FACTOR. */
baton_status_t baton__sim_check_schedule(const baton_schedule_t *schedule)
{
    enum { FEW = 16, FEW_FACTOR = 8 };
    baton_sim_t *sim = baton__sim_of(schedule->group->engine);
    double own = footprint(schedule);
    uint64_t count = ++sim->schedule_count;
    uint64_t ranks = (uint64_t)sim->options.ranks;
    sim->schedule_bytes += own;
    sim->unmatched = true;
    uint64_t left = ranks - (count - 1) % ranks;
    double need = sim->schedule_bytes / (double)count * (double)left;
    if (count < FEW && count < ranks) {
        need /= FEW_FACTOR;
    }
    need = need > own ? need : own;
    bool power = (count & (count - 1)) == 0;
    if (need < GIB || (!power && count % 1024 != 0)) {
        return BATON_OK;
    }
    char consumer[128];
    (void)snprintf(consumer, sizeof consumer, "sim: \"%s\" on %d ranks",
                   schedule->name, sim->options.ranks);
    return baton__sim_check_memory(
        need, consumer,
        sim->options.cost_only
            ? "lower the number of ranks, or of chunks"
            : "lower the number of ranks or of bytes, or set cost_only");
}
