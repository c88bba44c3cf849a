/* What builders ask of their arguments. Each function returns true, or makes a
   sentence that names the builder, the argument, its value and what is allowed
   the schedule's error. What must be the same on all ranks is stated, too
   (baton_schedule_agree): the builder, root, type, reduction, multiples, counts
   and chunks. */
#pragma once

#include <baton/build.h>

/* False, with this thread's error, where the schedule is NULL. */
bool baton__check_schedule(const baton_schedule_t *schedule,
                           const char *builder);

/* The arguments, `bytes` long as this version's `type`: `args` itself, or, when
   it is of an older header, a copy with zero for what that lacks, valid until
   this thread's next such call. NULL for an error. */
const void *baton__read_args(baton_schedule_t *schedule, const char *builder,
                             const void *args, size_t bytes, const char *type);

/* The same for a builder that calls another one, which states its name. */
const void *baton__pass_args(baton_schedule_t *schedule, const char *builder,
                             const void *args, size_t bytes, const char *type);
bool baton__check_root(baton_schedule_t *schedule, const char *builder,
                       int root);

/* The element's size, 0 for an error. */
size_t baton__check_op(baton_schedule_t *schedule, const char *builder,
                       const baton_op_t *op, baton_dtype_t dtype);
bool baton__check_commutative(baton_schedule_t *schedule, const char *builder,
                              const baton_op_t *op, const char *others);

/* The view has `expected` bytes; `what` names it. */
bool baton__check_bytes(baton_schedule_t *schedule, const char *builder,
                        const char *what, size_t bytes, size_t expected);
bool baton__check_alike(baton_schedule_t *schedule, const char *builder,
                        baton_view_t source, baton_view_t target);
bool baton__check_multiple(baton_schedule_t *schedule, const char *builder,
                           const char *what, size_t bytes, size_t unit);

/* The view lies in its buffer; source and target do, and do not overlap, unless
   they are in place. */
bool baton__check_view(baton_schedule_t *schedule, const char *builder,
                       const char *what, baton_view_t view);
bool baton__check_places(baton_schedule_t *schedule, const char *builder,
                         baton_view_t source, baton_view_t target,
                         bool in_place);

/* State an argument of each rank, if it is given; and a grain, unless it is 0.
 */
void baton__agree_counts(baton_schedule_t *schedule, const char *what,
                         const size_t *counts);
void baton__agree_chunk(baton_schedule_t *schedule, size_t chunk_bytes);

/* Of a reduction of source to target, which are as long, and the same or apart:
   the element's size, 0 for an error. */
size_t baton__check_reduction(baton_schedule_t *schedule, const char *builder,
                              const baton_op_t *op, baton_dtype_t dtype,
                              baton_view_t source, baton_view_t target,
                              bool *in_place_out);

/* Whether two views begin at the same place, by id or by address. */
bool baton__same_place(const baton_schedule_t *schedule, baton_view_t a,
                       baton_view_t b);

/* Starts an epoch for a call that also waits for it, and so returns the cause
   where a peer was lost before, as on ranks that were waiting then: not
   BATON_ERR_FAILED. */
baton_status_t baton__start_to_wait(baton_schedule_t *schedule);

/* A wait that is not interrupted: nobody could continue it. */
baton_status_t baton__wait_out(baton_schedule_t *schedule, int timeout_ms);
