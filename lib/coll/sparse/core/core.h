/* The state of a sparse all-reduce, and the parts of its steps. Each folder of
   coll/sparse uses only folders below it:

       tensors     sets of tensors, reduced by several sparse all-reduces
       object      the public functions
       backends    start and complete the steps
       algorithms  add the nodes of a sparse step to the schedule
       core        functions that backends and algorithms use

   Backends and algorithms do not use each other. They are called through the
   tables that this header declares. Each file of core calls only files below
   it:

       options.c     defaults, checks, comparison across ranks
       gather.c      Bruck all-gather of parts of any length
       message.c     messages of entries
       device_work.c selections and lists in device memory
       accumulate.c  gradient, momentum, clipping
       handover.c    the hand-over of results in a recovery or a shrink
       step.c        call nodes, results, the dense schedule
       memory.c      memory freed with the sparse all-reduce, or its schedules

   A step computes in `work`, which begins as gradient plus residual, and does
   not change `residual`. When the step completes on this rank, the two vectors
   are swapped. So a failed step leaves the residual as it was. `next`, the
   state that an algorithm learns from the step, takes effect at the same time.
   With in_place both names mean the same vector in sparse steps. A step then
   only reads it, and the residual is updated after the step has completed. */
#pragma once

#include "coll/kit/wrong.h"

#include <baton/sparse.h>

typedef struct baton__sparse_algorithm baton__sparse_algorithm_t;
typedef struct baton__sparse_backend baton__sparse_backend_t;
typedef struct baton__sparse_device baton__sparse_device_t;
typedef struct baton__sparse_memory baton__sparse_memory_t;

/* A buffer for one sparse result. */
typedef struct baton__sparse_buffer {
    /* The memory of the next three fields, one after the other. As one piece it
       is handed to ranks that lack the result. */
    char *packed;
    uint64_t *count;
    uint32_t *indices;
    char *values;
    /* Only with options.partial: the statistics of the step that wrote the
       result. */
    baton_sparse_stats_t stats;
    uint64_t none; /* in a cost-only simulation, `count` points to this field */
} baton__sparse_buffer_t;

/* State that an algorithm has learned from earlier steps. It is a part of
   exported and imported states. local_threshold is this rank's own. h is equal
   on the ranks that have the same position in their teams. The other fields are
   equal on all ranks. */
typedef struct baton__learned {
    /* Used by SPARDL with B-SAG, an exchange between teams (spardl_teams.c): h
       is the number of entries that a team sends from a block. */
    int64_t h, h_step, h_flag;
    /* The k (entries of a selection) for which h was initialised; 0: h is not
       set. */
    uint64_t k;
    uint64_t steps; /* number of sparse steps since this state was reset */
    /* The threshold of this rank's selection; a baton_magnitude_t. */
    uint64_t local_threshold;
    uint64_t global_threshold;
} baton__learned_t;

/* State of the step that was started last. */
typedef enum baton__sparse_phase {
    /* There is no result to read: no step was started, the step has failed, or
       its result is invalid after a recovery, an import or a failed start. */
    BATON__SPARSE_NO_RESULT,
    /* The step has not ended, or no wait or test has seen its end. */
    BATON__SPARSE_RUNNING,
    BATON__SPARSE_RESULT, /* the result is in `last` */
} baton__sparse_phase_t;

/* The results of steps, and the buffers for them. */
typedef struct baton__sparse_results {
    baton__sparse_buffer_t *buffers;
    size_t buffer_count;
    /* number of entries for which each buffer has memory */
    size_t capacity;
    baton__sparse_buffer_t *next;  /* the buffer that the running step writes */
    baton__sparse_buffer_t *shown; /* the buffer with the last result */
    baton_sparse_result_t last;    /* the last result; valid in phase RESULT */
    /* With options.partial, after a recovery: the number of results of earlier
       steps that no wait has returned yet. The next waits return these results,
       the oldest first. */
    uint64_t unreturned;
} baton__sparse_results_t;

/* The operands of a step. The backends set them, and accumulate.c reads
   them. */
typedef struct baton__sparse_input {
    /* The gradient of the running step. NULL: the step adds no gradient, as in
       a flush. */
    const char *gradient;
    /* The residual to which the step adds the gradient. NULL: the residual is
       zero, and its memory may have the last dense result. */
    const char *residual;
    /* The velocity (u of momentum). NULL: steps apply no momentum, or the
       simulation is cost-only. */
    char *velocity;
    /* The vector for the velocity after the running step. NULL: steps apply no
       momentum. */
    char *new_velocity;
    /* Number of ranges of the next step's gradient that were contributed as
       parts. */
    size_t part_count;
    bool summed; /* `work` already includes the gradient, which came in parts */
    /* The caller's factor for the running step's gradient. */
    double factor;
    /* The factor that scales the gradient: factor times that of
       clipping. */
    double clip_factor;
    /* The threshold that the next selection tries first. */
    baton_magnitude_t guess;
} baton__sparse_input_t;

/* How an algorithm ends its steps. The algorithm sets all fields but `done`. */
typedef struct baton__completion {
    /* Turns `work`, as this rank's selections have left it, into the new
       residual, for a result of `count` entries. It is also called for a result
       that another rank has handed over: by then this rank, too, has made its
       selections, since no rank has a result before all ranks have selected. */
    void (*make_residual)(void *algorithm, size_t count);
    /* Called in a recovery or a shrink, after the step failed on some ranks.
       With R-SAG (spardl_teams.c) teams sum their selections, and drop entries;
       each rank should have kept a share of these. Adds to `work` the shares of
       the living ranks whose step failed before they made that sum. NULL: the
       algorithm has no such sums. */
    void (*add_missing_shares)(void *algorithm, size_t count);
    void *algorithm;
    bool done; /* the running step has its result */
    /* With R-SAG: the number of sums of teams that this rank has made in the
       running step. */
    uint8_t team_sums;
    /* The indices at which momentum masking clears the velocity: those of this
       rank's selection. NULL: those of the result. */
    const uint32_t *selected;
    size_t selected_count;
} baton__completion_t;

/* The hand-over of results in a recovery or a shrink; see handover.c. */
typedef struct baton__handover {
    baton_schedule_t *schedule;
    int most_ranks;  /* size of the group at creation */
    uint8_t *flags;  /* which ranks have which results; see handover.c */
    char *piece;     /* the piece that is being handed over */
    uint64_t handed; /* number of pieces started in this hand-over */
    uint64_t lacked; /* the last step whose result was handed to this rank */
    /* The last step for which add_missing_shares was called. */
    uint64_t shares_added_for;
} baton__handover_t;

/* Stages of baton_sparse_shrink. */
typedef enum baton__sparse_stage {
    BATON__SPARSE_ENDS_STEP,  /* ends the running step, in the old group */
    BATON__SPARSE_HANDS_OVER, /* hands over the last step's result */
    BATON__SPARSE_CONFIRMS,   /* waits until all survivors have the result */
    BATON__SPARSE_REBUILDS,
    BATON__SPARSE_MOVED
} baton__sparse_stage_t;

/* The elements from `first` up to, but not including, `end`. */
typedef struct baton__range {
    size_t first, end;
} baton__range_t;

struct baton_sparse {
    baton_group_t *group;
    char *name;
    /* The user's options, with AUTO replaced by a choice. */
    baton_sparse_options_t options;
    int rank, size;
    int teams; /* options.teams at creation */
    bool payload;
    bool connected;
    bool out_of_memory; /* an allocation has failed */
    /* The group to which a shrink in progress moves; NULL: no shrink is in
       progress. */
    baton_group_t *survivors;
    baton__sparse_stage_t stage; /* stage of that shrink */
    /* As in `options`: the type of a vector's elements, and their number. */
    baton_dtype_t dtype;
    size_t count;
    size_t element_bytes, entry_bytes, vector_bytes;
    size_t k;

    baton__sparse_memory_t *memory;

    /* The user's options, with defaults filled in. The ranks compare these. */
    baton_sparse_options_t asked;
    baton_schedule_t *comparison;
    baton__wrong_t wrong; /* an error in this rank's options, or of a build */
    /* States (baton_schedule_agree) the options of the set of tensors to which
       this sparse all-reduce belongs, in each schedule that the partial backend
       commits, also after a loss. NULL: it belongs to no set. */
    void (*agree)(const void *arg, baton_schedule_t *schedule);
    const void *agree_arg;

    const baton__sparse_algorithm_t *algorithm; /* NULL: all steps are dense */
    const baton__sparse_backend_t *backend;
    /* The state of the host, the partial or the device backend. Only that of
       the backend in use is not NULL. */
    struct baton__sparse_host *host;
    baton_partial_t *epochs;
    baton__sparse_device_t *device;

    /* The schedule of sparse steps. */
    baton_schedule_t *schedule;
    baton_schedule_t *dense;
    baton_buffer_t dense_buffer; /* target of dense steps, bound to `work` */
    /* The schedule of the step that was started last, or NULL. */
    baton_schedule_t *latest;
    bool is_dense; /* the step that was started last is dense */
    baton__sparse_phase_t phase;
    baton_end_fn on_end; /* the user's callback, or NULL */
    void *on_end_arg;
    uint64_t ended; /* calls of on_end so far */

    /* Vectors of n elements; NULL in a cost-only simulation. With the device
       backend, the residual is in `device`, and `work` is the buffer of dense
       steps. */
    char *residual, *work;
    baton__sparse_input_t input;
    /* Ranges of the next gradient that were contributed: the first
       input.part_count of them are set. */
    baton__range_t *parts;
    size_t part_capacity;
    baton__completion_t completion;
    baton__sparse_results_t results;

    baton__learned_t learned, next;
    /* More state of the algorithm or of the partial backend: extra_count
       numbers, which are part of exported and imported states. NULL: there is
       no more state. */
    uint64_t *extra;
    size_t extra_count;
    uint64_t steps; /* number of completed steps */
    /* The numbers of sparse steps, [0], and of dense steps, [1], that had been
       completed at the last recovery. Their sum is the value of `steps` at that
       time. After a shrink all steps count in [0]; the import of a state
       changes base[0] by as much as `steps`. */
    uint64_t base[2];
    bool recovered; /* the group was recovered after the last start */
    baton__handover_t handover;

    /* `stats` are the statistics of the last completed step, and `counting` are
       those of the running step so far. */
    baton_sparse_stats_t stats, counting;
    uint32_t rounds; /* number of rounds of messages in a sparse step */
};

/* ---- backends ---------------------------------------------------------- */

/* Functions from `close` on may be NULL; then there is nothing to do. */
struct baton__sparse_backend {
    /* Allocates vectors, and adds the nodes of the schedules, including the
       algorithm's. */
    baton_status_t (*build)(baton_sparse_t *sparse);
    /* Starts a step, or a flush. Calls baton__sparse_started on success. Only
       the host backend scales the gradient by input.factor. */
    baton_status_t (*start)(baton_sparse_t *sparse, bool flush,
                            const void *gradient);
    /* Called when a wait or test of the application has seen that a step has
       ended with `status`, or takes a result of an earlier step that no wait
       has returned yet. */
    void (*complete)(baton_sparse_t *sparse, baton_status_t status);
    /* Takes a part of the gradient of the next step, which is started without a
       gradient. NULL: not supported. */
    baton_status_t (*contribute)(baton_sparse_t *sparse, size_t first,
                                 size_t count, const void *part);
    /* Copies the residual, or the velocity. Not called in a cost-only
       simulation. */
    baton_status_t (*read)(baton_sparse_t *sparse, bool velocity, void *to);
    /* Replaces the residual, and the velocity unless the argument is NULL.
       After an error both are unchanged. Not called in a cost-only
       simulation. */
    baton_status_t (*write)(baton_sparse_t *sparse, const void *residual,
                            const void *velocity);

    /* With on_loss: makes schedules that survive losses. The caller has
       compared the options, and has destroyed the first schedules. */
    baton_status_t (*connect)(baton_sparse_t *sparse);
    /* Destroys the backend's own schedules, before the others. Returns an error
       as baton_schedule_destroy does. */
    baton_status_t (*close)(baton_sparse_t *sparse);
    /* Runs last, even if build has failed or was not called. */
    void (*free)(baton_sparse_t *sparse);
    /* Called repeatedly in a shrink. Completes the last step on all ranks of
       `survivors`, or on none, and then returns true. Returns false if it has
       started an epoch of `handover`: the caller waits for the epoch and calls
       again. NULL: shrink is not supported. */
    bool (*survive)(baton_sparse_t *sparse);
    /* In a hand-over (handover.c): returns the vector with the last step's
       dense result. If this rank `gets` the result, returns the vector that is
       to receive it. Returns NULL if the result is sparse, and so is in a
       buffer of `results`. */
    char *(*dense_result)(const baton_sparse_t *sparse, bool gets);
    /* Completes the step whose result was handed over. */
    void (*take_result)(baton_sparse_t *sparse);
    /* Returns the error of the last copy of a result to device memory, if that
       copy has failed, and each error only once. */
    baton_status_t (*check_result)(baton_sparse_t *sparse);
    /* Between hold and release no epoch begins to work. hold returns
       BATON_ERR_BUSY if an epoch is working or, if `even`, if an epoch has
       ended whose step this rank has not started. */
    baton_status_t (*hold)(baton_sparse_t *sparse, const char *doing,
                           bool even);
    void (*release)(baton_sparse_t *sparse);
    /* Copies the pending gradients, and the residual without them. */
    void (*save)(baton_sparse_t *sparse, char *residual, char *pending);
    /* Replaces the pending gradients, and continues after step `steps`. Must
       not be called between hold and release. */
    void (*load)(baton_sparse_t *sparse, uint64_t steps, const char *pending);
};

/* ---- algorithms -------------------------------------------------------- */

/* Functions that add an algorithm's nodes to sparse->schedule: `build` for
   gradients in main memory, build_on_device for gradients on a device. NULL:
   the algorithm does not support that. */
struct baton__sparse_algorithm {
    void (*build)(baton_sparse_t *sparse);
    void (*build_on_device)(baton_sparse_t *sparse);
};

/* Adds a call node to one of the schedules. The processor time that `fn` takes
   is counted in the statistics, as select_us. */
baton_node_t baton__sparse_add_call(baton_sparse_t *sparse,
                                    baton_schedule_t *schedule,
                                    baton_call_fn fn, void *arg);
/* Does what baton__sparse_add_call does, in sparse->schedule and after the node
   `before`. */
baton_node_t baton__sparse_call_after(baton_sparse_t *sparse,
                                      baton_node_t before, baton_call_fn fn,
                                      void *arg);

/* Allocates zeroed memory. It is freed before the schedules are rebuilt, unless
   it is passed to baton__sparse_keep_memory, and otherwise with the sparse
   all-reduce. If there is no memory, out_of_memory is set and NULL returned.
   Builders that can continue do so; their result is discarded. */
void *baton__sparse_alloc(baton_sparse_t *sparse, size_t count, size_t bytes);
/* Does what baton__sparse_alloc does, but returns NULL in a cost-only
   simulation, whose vectors have no memory. */
void *baton__sparse_alloc_data(baton_sparse_t *sparse, size_t count,
                               size_t bytes);
/* Does what baton__sparse_alloc_data does, but the memory is pinned and not
   zeroed if gradients are on a device. */
void *baton__sparse_alloc_pinned(baton_sparse_t *sparse, size_t count,
                                 size_t bytes);
/* Does what baton__sparse_alloc does, but with memory of baton_device_alloc,
   which is not zeroed. */
void *baton__sparse_alloc_device(baton_sparse_t *sparse, baton_memory_t kind,
                                 size_t bytes);
/* Keeps the memory that was allocated last, which is passed as `memory`, if
   schedules are rebuilt. Returns it. Does nothing if `memory` is NULL. */
void *baton__sparse_keep_memory(const baton_sparse_t *sparse, void *memory);
/* Frees the memory that belongs to the schedules and, if `all`, also the memory
   that was kept. */
void baton__sparse_free_memory(baton_sparse_t *sparse, bool all);

/* Allocates the buffers of sparse->results, each for results of up to
   `capacity` entries. */
void baton__sparse_alloc_results(baton_sparse_t *sparse, size_t capacity);
/* Returns the bytes of `packed` in one buffer. */
size_t baton__sparse_packed_bytes(const baton_sparse_t *sparse);

/* Copies a list of entries to the running step's result, from the result's
   entry `at` on. */
void baton__sparse_result_put(baton_sparse_t *sparse, size_t at,
                              const char *entries, size_t count);

/* Completes the result, which has `count` entries: removes entries of zero,
   averages if options.average is set, and calls `make_residual`. */
void baton__sparse_publish(baton_sparse_t *sparse, size_t count);

/* Binds dense_buffer to `work`. */
baton_view_t baton__sparse_bind_dense(baton_sparse_t *sparse);
/* Adds the all-reduce of a dense step, from source to work, and the end of the
   schedule:

       accumulated --> all-reduce --> end */
void baton__sparse_add_dense(baton_sparse_t *sparse, baton_view_t source,
                             baton_view_t work, baton_node_t accumulated);

/* ---- steps ------------------------------------------------------------- */

/* Returns true if the step that follows `steps` completed steps is dense. */
bool baton__sparse_is_dense(const baton_sparse_t *sparse, bool flush,
                            uint64_t steps);
/* Records that a step was started. */
void baton__sparse_started(baton_sparse_t *sparse, bool dense);

/* Returns the result in a buffer, as of a step that includes this rank's
   gradient. */
baton_sparse_result_t
baton__sparse_result_of(const baton__sparse_buffer_t *buffer);

/* Publishes the result, the statistics and the learned state. The caller swaps
   the vectors afterwards. */
void baton__sparse_complete_step(baton_sparse_t *sparse, bool dense);

/* Returns the bytes of an element of the velocity. */
static inline size_t baton__velocity_bytes(const baton_sparse_t *sparse)
{
    return sparse->options.short_velocity ? sizeof(uint16_t)
                                          : sparse->element_bytes;
}

static inline size_t baton__larger(size_t left, size_t right)
{
    return left > right ? left : right;
}

/* Swaps two vectors. */
static inline void baton__sparse_exchange(char **left, char **right)
{
    char *other = *left;
    *left = *right;
    *right = other;
}

/* Called in a recovery, with the epoch that the callback of
   baton_schedule_on_recover gets. Adds the steps that the recovery has
   confirmed to `steps`, and resets `learned` unless `dense`. */
void baton__sparse_recover(baton_sparse_t *sparse, bool dense, uint64_t epoch);

/* Builds the schedule by which ranks hand over results in a recovery or a
   shrink. */
void baton__sparse_build_handover(baton_sparse_t *sparse);
/* Makes a step complete on all ranks or on none: a rank that has completed the
   step hands the result to the ranks that lack it. `step` is the last step that
   this rank has completed or, if `lacks`, the step that this rank has started
   and not completed. The function must be called until it returns true; until
   then an epoch of the hand-over is running. */
bool baton__sparse_complete_everywhere(baton_sparse_t *sparse, bool lacks,
                                       uint64_t step);
/* Called after baton__sparse_complete_everywhere. Returns true if any rank has
   completed the step. */
bool baton__sparse_any_completed(const baton_sparse_t *sparse, uint64_t step);
/* Computes the new residual of a sparse step whose result was handed over,
   unless that is done. */
void baton__sparse_make_residual(baton_sparse_t *sparse);
/* Called by add_missing_shares. Returns true if `rank` has reported nothing,
   because it is lost. */
bool baton__sparse_is_lost(const baton_sparse_t *sparse, int rank);
/* Called by add_missing_shares. Returns true if `rank` has reported that it has
   not made the sum of teams whose number, from 0, is `index`. */
bool baton__sparse_lacks_addition(const baton_sparse_t *sparse, int rank,
                                  int index);

/* Frees the memory of the old schedules and resets their state. Called before
   new schedules are built, in which this rank is `rank` of `size` ranks. */
void baton__sparse_enter(baton_sparse_t *sparse, int rank, int size);
/* ---- checks ------------------------------------------------------------ */

/* Sets an error (baton__error) whose message begins with `doing`, the caller's
   activity, and the name. Returns `status`. Does nothing if that is
   BATON_OK. */
baton_status_t baton__sparse_error(const baton_sparse_t *sparse,
                                   baton_status_t status, const char *doing,
                                   const char *format, ...) BATON_PRINTF(4, 5);

baton_status_t baton__sparse_no_memory(const baton_sparse_t *sparse);

/* Returns false, with this thread's error, if `sparse` is NULL or destroyed. */
bool baton__sparse_is_alive(const baton_sparse_t *sparse, const char *doing);

/* Returns BATON_ERR_STATE before connect, and until a shrink that has begun
   succeeds. */
baton_status_t baton__sparse_check_connected(const baton_sparse_t *sparse,
                                             const char *doing);

/* Returns what baton__sparse_check_connected returns; also BATON_ERR_BUSY,
   while a step runs. */
baton_status_t baton__sparse_check_idle(const baton_sparse_t *sparse,
                                        const char *doing);

/* Returns BATON_ERR_INVALID unless the vectors have the `count` elements from
   `first` on. */
baton_status_t baton__sparse_check_range(const baton_sparse_t *sparse,
                                         const char *doing, size_t first,
                                         size_t count);

/* ---- options ----------------------------------------------------------- */

/* Reads the caller's options. On an error out->size is 0, and at most the name
   is set. */
baton_status_t baton__sparse_read(const baton_sparse_options_t *passed,
                                  baton_sparse_options_t *out);

/* Checks the options and fills in defaults, for `size` ranks on `hosts` hosts.
   AUTO may remain, for baton__sparse_take_choice. */
baton__wrong_t baton__sparse_resolve(const baton_sparse_options_t *passed,
                                     int size, int hosts,
                                     baton_sparse_options_t *out);

static inline bool baton__sparse_goes_on(const baton_sparse_options_t *o)
{
    return o->on_loss == BATON_ON_LOSS_CONTINUE;
}
static inline bool baton__sparse_has_link(const baton_sparse_options_t *o)
{
    return o->link.alpha_us != 0 || o->link.beta_ns != 0;
}

static inline bool baton__is_density(double density)
{
    return density > 0 && density <= 1;
}

/* Returns k, the number of entries that a density selects from `count`
   elements. */
static inline size_t baton__entries_of(size_t count, double density)
{
    double k = (double)count * density;
    return k < 1 ? 1 : (size_t)k;
}

/* Returns true if the algorithm supports gradients on a device. Such an
   algorithm only takes lists of entries out of `work`, and adds lists to it. */
bool baton__sparse_is_for_devices(baton_sparse_algorithm_t algorithm);

/* Writes to `out` those of the options that must be equal in a state that is
   imported, as BATON__SPARSE_STATE_OPTIONS words. */
enum { BATON__SPARSE_STATE_OPTIONS = 12 };
void baton__sparse_state_options(const baton_sparse_options_t *options,
                                 uint64_t *out);
/* Returns BATON_ERR_INVALID, with a message that names the option, if a state's
   options differ from those of `sparse`. */
baton_status_t baton__sparse_check_state_options(const baton_sparse_t *sparse,
                                                 const uint64_t *stored);

/* States in a schedule (baton_schedule_agree) the options that must be equal on
   all ranks. */
void baton__sparse_agree(baton_schedule_t *schedule,
                         const baton_sparse_options_t *o);
/* Commits and starts the schedule of a comparison, in which the options were
   stated. If something is wrong on this rank, the comparison fails on all
   ranks. */
baton_status_t baton__sparse_compare(baton_schedule_t *schedule,
                                     baton__wrong_t *wrong);
/* Waits for the comparison. Returns the error of a rank on which something is
   wrong, or BATON_ERR_MISMATCH if options differ. If `goes_on`, the loss of
   another rank is no error. */
baton_status_t baton__sparse_compared(baton_schedule_t *schedule,
                                      const baton__wrong_t *wrong, bool goes_on,
                                      int timeout_ms);

/* ---- accumulation ------------------------------------------------------ */

/* Called first in a step: resets the step's state, and finds the clipping
   factor. */
void baton__sparse_begin(baton_sparse_t *sparse);

/* Returns the factor by which one of `ranks` ranks clips a gradient;
   `square_sum` is the sum of the squares of its elements. */
double baton__clip_factor(double clip, int ranks, double square_sum);

/* Sets these elements of `work` to the residual plus the gradient's
   contribution, which sparse->input describes. */
void baton__sparse_accumulate(baton_sparse_t *sparse, size_t first,
                              size_t count);

/* Used with options.partial, before the step. Sets `target` to the clipped
   gradient, with momentum if there is a velocity. Unless `first`, also adds the
   old contents of `target`. */
void baton__sparse_contribute(baton_sparse_t *sparse, const void *gradient,
                              char *target, bool first);

/* Copies the velocity to elements of the gradient's type. */
void baton__sparse_read_velocity(const baton_sparse_t *sparse, void *to);
/* Copies elements of the gradient's type to the velocity. */
void baton__sparse_write_velocity(const baton_sparse_t *sparse,
                                  const void *from);

/* Clears the velocity at these indices. */
void baton__sparse_mask(const baton_sparse_t *sparse, const uint32_t *indices,
                        size_t count);

/* Called after a step. Makes the new velocity current and, unless the step was
   dense, clears it at masked elements. */
void baton__sparse_advance(baton_sparse_t *sparse, bool dense);

/* Accumulates all elements and writes the indices of the k largest: of all
   elements, or of the positive or negative ones (baton_side_t). Returns their
   number. *threshold gets the least magnitude among them, unless it is NULL. */
size_t baton__sparse_accumulate_topk(baton_sparse_t *sparse, baton_side_t side,
                                     uint32_t *indices, void *scratch,
                                     baton_magnitude_t *threshold);
/* Accumulates all elements and writes the indices of those that reach the
   threshold, up to `capacity` of them. Returns how many reach it. */
size_t baton__sparse_accumulate_at_least(baton_sparse_t *sparse,
                                         baton_side_t side,
                                         baton_magnitude_t threshold,
                                         uint32_t *indices, size_t capacity);
/* Returns a description of all elements of `work`, for functions that select
   from them. */
baton_selection_t baton__sparse_selection(const baton_sparse_t *sparse,
                                          baton_side_t side);

/* Accumulates these elements, and finds candidates for their k largest. */
void baton__sparse_candidates(baton_sparse_t *sparse, size_t first,
                              size_t count, size_t k,
                              baton_candidates_t *candidates,
                              baton_magnitude_t *guess, void *scratch);

/* ---- messages ---------------------------------------------------------- */

/* A send or a receive of up to `capacity` bytes of scratch memory, whose length
   is set in each step. */
typedef struct baton__message {
    baton_sparse_t *sparse;
    baton_node_t node;
    baton_view_t view;
    baton_length_t length;
    char *data;   /* set by begin and take; NULL in a cost-only simulation */
    size_t bytes; /* the message's length in this step */
    int sends;    /* number of nodes that send the message */
} baton__message_t;

/* Initialises a message, without adding a node. The caller adds the nodes that
   send it, and counts them in `sends`. */
void baton__message_init(baton__message_t *message, baton_sparse_t *sparse,
                         size_t capacity);
void baton__message_send(baton__message_t *message, baton_sparse_t *sparse,
                         int peer, size_t capacity);
void baton__message_recv(baton__message_t *message, baton_sparse_t *sparse,
                         int peer, size_t capacity);

/* Called in a call node before the send. Returns the memory for the message. */
char *baton__message_begin(baton__message_t *message, baton_call_t *call);
/* Called in a call node before the send, after `bytes` bytes were written. */
baton_status_t baton__message_end(baton__message_t *message, baton_call_t *call,
                                  size_t bytes);

/* Called in a call node after the receive. Sets data and bytes. */
void baton__message_take(baton__message_t *message, baton_call_t *call);

static inline size_t baton__message_entries(const baton__message_t *message)
{
    return message->bytes / message->sparse->entry_bytes;
}

/* Copies a list of entries into a message: calls baton__message_begin and
   baton__message_end. */
baton_status_t baton__message_put(baton__message_t *message, baton_call_t *call,
                                  baton_entries_t list);

/* Fills a list of `count` entries up to `all` with padding: entries whose index
   no vector has. */
void baton__entries_pad(const baton_sparse_t *sparse, char *list, size_t count,
                        size_t all);
/* Returns the list without its padding. */
baton_entries_t baton__entries_unpadded(const baton_sparse_t *sparse,
                                        const char *list, size_t all);

/* Returns how many entries at the beginning of a list, of up to `most`, have
   indices in the block [first, first + count). The entries of a block lie
   together in the list. `likely` is a guess, which is tried first. */
size_t baton__entries_within(const baton_sparse_t *sparse, const char *list,
                             size_t most, size_t likely, size_t first,
                             size_t count);

/* Writes entries from indices and values that need not be aligned. With a
   value_step of 0 all entries get the same value. */
void baton__entries_join(const baton_sparse_t *sparse, char *to,
                         const void *indices, const void *values,
                         size_t value_step, size_t count);

/* Counts `sends` messages of `bytes` bytes each, which this rank sends, in the
   statistics. baton__message_end does so for the message. */
void baton__message_count(baton_sparse_t *sparse, int sends, size_t bytes);

/* ---- Bruck all-gather -------------------------------------------------- */

typedef struct baton__gather baton__gather_t;

/* An all-gather of the parts of `size` members, whose ranks are base + stride *
   index. With a size of 0 all ranks are members. */
typedef struct baton__gather_plan {
    baton_sparse_t *sparse;
    void *arg;
    int size, index;
    int base, stride;
    /* The most bytes that a member's part may have: the result of `most` or, if
       that is NULL, most_bytes. */
    size_t most_bytes;
    size_t (*most)(void *arg, int member);
    /* Returns the bytes of a member's part in this step if the part has as many
       entries as it may have. */
    size_t (*nominal)(void *arg, int member);
    /* Returns the bytes of the part that begins at `data`, where `left` bytes
       are present. NULL: parts have their nominal bytes. */
    size_t (*extent)(void *arg, int member, const char *data, size_t left);
} baton__gather_plan_t;

/* Adds the rounds after `ready`, a call that begins and ends this member's
   part. After them it adds a call of then(plan->arg), in which all parts are
   present, and returns its node. If there was no memory, the call is not
   added. */
baton_node_t baton__gather_build(const baton__gather_plan_t *plan,
                                 baton_node_t ready, baton_call_fn then,
                                 baton__gather_t **out);

/* Called in the call `ready` of baton__gather_build. Returns the memory for
   this member's part. */
char *baton__gather_begin(baton__gather_t *gather, baton_call_t *call);
/* Called in the call `ready`, after this member's part of `bytes` bytes was
   written. */
baton_status_t baton__gather_end(baton__gather_t *gather, baton_call_t *call,
                                 size_t bytes);
/* Copies this member's part: calls baton__gather_begin and
   baton__gather_end. */
baton_status_t baton__gather_put(baton__gather_t *gather, baton_call_t *call,
                                 const void *part, size_t bytes);

/* Called in the call `then` of baton__gather_build. Returns a member's part,
   and stores its bytes in *bytes_out. Returns NULL in a cost-only
   simulation. */
const char *baton__gather_part(const baton__gather_t *gather, int member,
                               size_t *bytes_out);
/* Writes the parts, which must be lists of entries, to the result, in the order
   of members. Returns the number of entries. */
size_t baton__gather_put_result(const baton__gather_t *gather);
