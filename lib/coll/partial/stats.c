/* Counting what a partial does. */
#include "coll/partial/stats.h"

#include "base/clock.h"

/* To a count that one thread at a time writes. */
static void add(_Atomic uint64_t *count, uint64_t more)
{
    uint64_t before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + more, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

void baton__stats_start(baton__stats_t *stats)
{
    atomic_store_explicit(&stats->started_ns, baton__clock_ns(),
                          memory_order_relaxed);
}

void baton__stats_take(baton__stats_t *stats, bool started, uint64_t epoch,
                       uint64_t first_step)
{
    stats->began_ns = baton__clock_ns();
    stats->awaits = started;
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

void baton__stats_activate(baton__stats_t *stats)
{
    if (stats->awaits) {
        stats->awaits = false;
        stats->began_ns = baton__clock_ns();
        /* A later step may have been started meanwhile. */
        uint64_t started_ns = get(&stats->started_ns);
        if (stats->began_ns > started_ns) {
            add(&stats->activation_ns, stats->began_ns - started_ns);
        }
    }
}

void baton__stats_publish(baton__stats_t *stats, uint32_t active, int ranks)
{
    stats->awaits = false;
    add(&stats->epochs, 1);
    add(&stats->inner_ns, baton__clock_ns() - stats->began_ns);
    if (ranks > 0) {
        uint64_t scaled = (uint64_t)active * (BATON_PARTIAL_BINS - 1);
        uint64_t all = (uint64_t)ranks;
        add(&stats->active[(scaled + all - 1) / all], 1);
    }
}

void baton__stats_waited(baton__stats_t *stats, uint64_t since_ns)
{
    add(&stats->waiting_ns, baton__clock_ns() - since_ns);
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
    out->activation_ns = get(&stats->activation_ns);
    out->inner_ns = get(&stats->inner_ns);
    out->waiting_ns = get(&stats->waiting_ns);
}
