/* Checks of builders' arguments. Each function returns true, or sets the
   schedule's error, which names the builder, the argument, its value and the
   allowed values. The functions also state the arguments that must be the same
   on all ranks (baton_schedule_agree): the name of the builder, the root, the
   type, the reduction, the lengths in elements, the counts of blocks and the
   sizes of chunks. */
#pragma once

#include <baton/build.h>

/* Returns false and sets this thread's error if the schedule is NULL. */
bool baton__check_schedule(const baton_schedule_t *schedule,
                           const char *builder);

/* Returns the arguments as this version's `type`, which has `bytes` bytes. That
   is `args` itself or, if the caller was compiled with an older header, a copy
   in which the missing fields are zero. The copy is valid until this thread
   calls the function again. Returns NULL after an error. */
const void *baton__read_args(baton_schedule_t *schedule, const char *builder,
                             const void *args, size_t bytes, const char *type);

/* Returns the arguments of a builder that calls another builder. Does not state
   the builder's name, since the other builder states its own. */
const void *baton__pass_args(baton_schedule_t *schedule, const char *builder,
                             const void *args, size_t bytes, const char *type);
bool baton__check_root(baton_schedule_t *schedule, const char *builder,
                       int root);

/* Checks the type and the reduction. Returns the size of an element; 0 after an
   error. */
size_t baton__check_op(baton_schedule_t *schedule, const char *builder,
                       const baton_op_t *op, baton_dtype_t dtype);
bool baton__check_commutative(baton_schedule_t *schedule, const char *builder,
                              const baton_op_t *op, const char *others);

/* Checks that a view has `expected` bytes. `what` names the view in the
   error. */
bool baton__check_bytes(baton_schedule_t *schedule, const char *builder,
                        const char *what, size_t bytes, size_t expected);
bool baton__check_alike(baton_schedule_t *schedule, const char *builder,
                        baton_view_t source, baton_view_t target);
bool baton__check_multiple(baton_schedule_t *schedule, const char *builder,
                           const char *what, size_t bytes, size_t unit);

/* Checks that the view lies in its buffer. */
bool baton__check_view(baton_schedule_t *schedule, const char *builder,
                       const char *what, baton_view_t view);

/* Checks that source and target lie in their buffers, and do not overlap unless
   they are in place. */
bool baton__check_places(baton_schedule_t *schedule, const char *builder,
                         baton_view_t source, baton_view_t target,
                         bool in_place);

/* States (baton_schedule_agree) counts[r] for each rank r. Does nothing if
   `counts` is NULL. */
void baton__agree_counts(baton_schedule_t *schedule, const char *what,
                         const size_t *counts);

/* States chunk_bytes (baton_schedule_agree), unless it is 0. */
void baton__agree_chunk(baton_schedule_t *schedule, size_t chunk_bytes);

/* Checks a reduction of source to target. They must have the same length, and
   either be the same memory or not overlap. Returns false after an error. */
bool baton__check_reduction(baton_schedule_t *schedule, const char *builder,
                            const baton_op_t *op, baton_dtype_t dtype,
                            baton_view_t source, baton_view_t target,
                            bool *in_place_out);

/* Returns true if two views begin at the same place of the same buffer, or at
   the same address. */
bool baton__same_place(const baton_schedule_t *schedule, baton_view_t a,
                       baton_view_t b);

/* Starts an epoch for a call that also waits for it. If the schedule has failed
   before, for example because a peer was lost, returns the cause instead of
   BATON_ERR_FAILED, since the waits of other ranks return the cause, too. */
baton_status_t baton__start_to_wait(baton_schedule_t *schedule);

/* Waits for the schedule's last epoch, as baton_schedule_wait does.
   baton_engine_interrupt does not interrupt this wait, since the caller could
   not continue it later. */
baton_status_t baton__wait_out(baton_schedule_t *schedule, int timeout_ms);
