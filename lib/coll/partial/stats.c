/* Counting what a partial does, and saying it. */
#include "coll/partial/stats.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

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

/* ---- text ------------------------------------------------------------- */

typedef unsigned long long number_t;

/* A text that is built in memory of its own, so that `out` is written when it
   is complete. */
typedef struct report {
    char memory[BATON_PARTIAL_STATS_BYTES];
    baton__text_t text;
} report_t;

static baton_status_t begin(const baton_partial_stats_t *stats, const char *out,
                            size_t bytes, report_t *report)
{
    if (stats == NULL || out == NULL || bytes == 0) {
        return baton__error(BATON_ERR_INVALID,
                            "statistics of a partial: %s, must be given",
                            stats == NULL ? "stats is NULL"
                            : out == NULL ? "out is NULL"
                                          : "bytes is 0");
    }
    report->text = (baton__text_t){report->memory, sizeof report->memory, 0};
    return BATON_OK;
}

static baton_status_t end(const report_t *report, char *out, size_t bytes)
{
    size_t needed = report->text.used + 1;
    if (needed > bytes) {
        return baton__error(BATON_ERR_LIMIT,
                            "statistics of a partial: bytes is %zu, must be at "
                            "least %zu; %d are always enough",
                            bytes, needed, (int)BATON_PARTIAL_STATS_BYTES);
    }
    memcpy(out, report->memory, needed);
    return BATON_OK;
}

static double us(uint64_t ns)
{
    return (double)ns / 1e3;
}

/* "0: 12, 3: 4" of the bins that are not empty. */
static void add_bins(baton__text_t *text, const char *title,
                     const uint64_t bins[BATON_PARTIAL_BINS])
{
    baton__text_add(text, "%s", title);
    const char *between = " ";
    for (int i = 0; i < BATON_PARTIAL_BINS; i++) {
        if (bins[i] != 0) {
            baton__text_add(text, "%s%d: %llu", between, i, (number_t)bins[i]);
            between = ", ";
        }
    }
    baton__text_add(text, "\n");
}

baton_status_t baton_partial_stats_text(const baton_partial_stats_t *stats,
                                        char *out, size_t bytes)
{
    report_t report;
    baton_status_t status = begin(stats, out, bytes, &report);
    if (status != BATON_OK) {
        return status;
    }
    baton__text_t *text = &report.text;
    baton__text_add(text,
                    "%llu epochs of %d ranks: %llu after the own start, %llu "
                    "activated by a peer\n",
                    (number_t)stats->epochs, stats->ranks,
                    (number_t)stats->internal, (number_t)stats->external);
    baton__text_add(text, "contributions: %llu taken (%llu late), %llu null\n",
                    (number_t)stats->taken, (number_t)stats->late,
                    (number_t)stats->null);
    add_bins(text, "epochs by staleness:", stats->staleness);
    add_bins(text, "epochs by active ranks, in 32nds of all:", stats->active);
    baton__text_add(text, "sent: %llu messages, %llu bytes\n",
                    (number_t)stats->messages, (number_t)stats->bytes);
    baton__text_add(text,
                    "time: %.1f us until activated, %.1f us in the inner "
                    "collective, %.1f us in wait\n",
                    us(stats->activation_ns), us(stats->inner_ns),
                    us(stats->waiting_ns));
    return end(&report, out, bytes);
}

static void add_array(baton__text_t *text, const char *key,
                      const uint64_t bins[BATON_PARTIAL_BINS])
{
    baton__text_add(text, "\"%s\": [", key);
    for (int i = 0; i < BATON_PARTIAL_BINS; i++) {
        baton__text_add(text, "%s%llu", i > 0 ? ", " : "", (number_t)bins[i]);
    }
    baton__text_add(text, "], ");
}

baton_status_t baton_partial_stats_json(const baton_partial_stats_t *stats,
                                        char *out, size_t bytes)
{
    report_t report;
    baton_status_t status = begin(stats, out, bytes, &report);
    if (status != BATON_OK) {
        return status;
    }
    baton__text_t *text = &report.text;
    baton__text_add(text,
                    "{\"ranks\": %d, \"epochs\": %llu, \"internal\": %llu, "
                    "\"external\": %llu, \"taken\": %llu, \"null\": %llu, "
                    "\"late\": %llu, ",
                    stats->ranks, (number_t)stats->epochs,
                    (number_t)stats->internal, (number_t)stats->external,
                    (number_t)stats->taken, (number_t)stats->null,
                    (number_t)stats->late);
    add_array(text, "staleness", stats->staleness);
    add_array(text, "active", stats->active);
    baton__text_add(text,
                    "\"messages\": %llu, \"bytes\": %llu, "
                    "\"activation_us\": %.3f, \"inner_us\": %.3f, "
                    "\"waiting_us\": %.3f}",
                    (number_t)stats->messages, (number_t)stats->bytes,
                    us(stats->activation_ns), us(stats->inner_ns),
                    us(stats->waiting_ns));
    return end(&report, out, bytes);
}
