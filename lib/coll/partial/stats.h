/* What a partial counts while it runs; see baton_partial_stats_t. */
#ifndef BATON_COLL_PARTIAL_STATS_H
#define BATON_COLL_PARTIAL_STATS_H

#include <baton/partial.h>
#include <stdatomic.h>

/* The driver writes them. */
typedef struct baton__stats {
    _Atomic uint64_t epochs, internal, external, taken, null, late;
    _Atomic uint64_t staleness[BATON_PARTIAL_BINS];
    _Atomic uint64_t active[BATON_PARTIAL_BINS];
} baton__stats_t;

/* An epoch begins to work, behind this rank's start or ahead of it, with its
   contribution of `first_step`, 0 for none. */
void baton__stats_take(baton__stats_t *stats, bool started, uint64_t epoch,
                       uint64_t first_step);

/* It has ended; with `active` of `ranks` ranks, 0 where that is not known. */
void baton__stats_publish(baton__stats_t *stats, uint32_t active, int ranks);

void baton__stats_read(const baton__stats_t *stats, baton_partial_stats_t *out);

#endif
