/* The modes of partial all-reduces, as the programs that compare them need
   them. */
#pragma once

#include <baton/partial.h>

/* The modes' names, in the order of baton_partial_mode_t, and NULL at the
   end. */
extern const char *const mode_names[];

/* Returns whether a mode has a number of ranks: the size of a quorum, or the
   number of candidates. */
bool mode_has_ranks(size_t mode);

/* The arrival that begins an epoch if the ranks arrive one after another: it is
   the k-th of all arrivals. If ranks are elected, k is random. */
typedef struct mode_arrival {
    double mean;         /* the mean of k */
    double mean_product; /* the mean of k (k - 1) */
} mode_arrival_t;

/* `number` is the mode's number of ranks, if it has one. */
mode_arrival_t mode_arrival(baton_partial_mode_t mode, uint32_t number,
                            int ranks);
