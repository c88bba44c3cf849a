/* The options of a partial all-reduce as they are meant. */
#ifndef BATON_COLL_PARTIAL_OPTIONS_H
#define BATON_COLL_PARTIAL_OPTIONS_H

#include <baton/partial.h>

/* Fills in the defaults. BATON_ERR_INVALID names the option that is wrong. */
baton_status_t
baton__partial_resolve_options(const baton_partial_options_t *given,
                               const baton_group_t *group,
                               baton_partial_options_t *out);

/* The inner collective: options->inner, or the all-reduce that NULL stands for,
   by the vector's bytes, where the ranks are, and how many of them are expected
   to be active. Options are resolved. */
baton_allreduce_fn
baton__partial_choose_inner(const baton_partial_options_t *options,
                            const baton_schedule_t *schedule);

#endif
