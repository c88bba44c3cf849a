/* Counting what a partial does. */
#include "coll/partial/stats.h"

/* To a count that the driver alone writes. */
static void add(_Atomic uint64_t *count, uint64_t more)
{
    uint64_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + more, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

void baton__stats_take(baton__stats_t *stats, bool started, uint64_t epoch,
                       uint64_t first_step)
{
    add(started ? &stats->internal : &stats->external, 1);
    if (first_step == 0) {
        add(&stats->null, 1);
        return;
    }
    uint64_t staleness = epoch > first_step ? epoch - first_step : 0;
    uint64_t most = BATON_PARTIAL_BINS - 1;
    add(&stats->taken, 1);
    add(&stats->late, staleness > 0);
    add(&stats->staleness[staleness < most ? staleness : most], 1);
}

void baton__stats_publish(baton__stats_t *stats, uint32_t active, int ranks)
{
    add(&stats->epochs, 1);
    if (ranks > 0) {
        uint64_t scaled = (uint64_t)active * (BATON_PARTIAL_BINS - 1);
        uint64_t all = (uint64_t)ranks;
        add(&stats->active[(scaled + all - 1) / all], 1);
    }
}

void baton__stats_read(const baton__stats_t *stats, baton_partial_stats_t *out)
{
    out->epochs = get(&stats->epochs);
    out->internal = get(&stats->internal);
    out->external = get(&stats->external);
    out->taken = get(&stats->taken);
    out->null = get(&stats->null);
    out->late = get(&stats->late);
    for (int i = 0; i < BATON_PARTIAL_BINS; i++) {
        out->staleness[i] = get(&stats->staleness[i]);
        out->active[i] = get(&stats->active[i]);
    }
}
