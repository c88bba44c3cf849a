/* What a partial counts while it runs; see baton_partial_stats_t. */
#ifndef BATON_COLL_PARTIAL_STATS_H
#define BATON_COLL_PARTIAL_STATS_H

#include <baton/partial.h>
#include <stdatomic.h>

/* Each is written by one thread at a time: the driver, or, of waiting_ns and
   started_ns, the application. */
typedef struct baton__stats {
    _Atomic uint64_t epochs, internal, external, taken, null, late;
    _Atomic uint64_t staleness[BATON_PARTIAL_BINS];
    _Atomic uint64_t active[BATON_PARTIAL_BINS];
    _Atomic uint64_t activation_ns, inner_ns, waiting_ns;
    _Atomic uint64_t started_ns; /* the last start */
    uint64_t began_ns;           /* the running epoch, its inner collective */
    bool awaits;                 /* it was started here, and not activated */
} baton__stats_t;

/* The application starts a step. */
void baton__stats_start(baton__stats_t *stats);

/* An epoch begins to work, behind this rank's start or ahead of it, with its
   contribution of `first_step`, 0 for none. */
void baton__stats_take(baton__stats_t *stats, bool started, uint64_t epoch,
                       uint64_t first_step);

/* It works, and is activated. */
void baton__stats_activate(baton__stats_t *stats);

/* It has ended; with `active` of `ranks` ranks, 0 where that is not known. */
void baton__stats_publish(baton__stats_t *stats, uint32_t active, int ranks);

/* The application has waited since then. */
void baton__stats_waited(baton__stats_t *stats, uint64_t since_ns);

void baton__stats_read(const baton__stats_t *stats, baton_partial_stats_t *out);

#endif
