/* The sparse all-reduce, inside: what its files and the algorithms share.

       shrink.c      what becomes of it when its group has shrunk
       sparse.c      the object, as its users see it
       contribute.c  gradients in parts
       options.c     defaults, checks, comparison across ranks
       cost.c        closed forms, and the choice by them
       state.c       export and import of what it has learned
       state_file.c  the same as a file

   How a step is fed and completed is a backend's:

       host.c        gradients on the host
       device.c      gradients on a device, in the order of streams
       partial.c     gradients on the host, without waiting for every rank

   Algorithms, spardl.c and others, are built of:

       accumulate.c  gradient, momentum, clipping
       gather.c      Bruck all-gather of parts of any length
       message.c     messages of entries
       device_work.c selections and lists in device memory
       step.c        call nodes, results, the dense schedule
       memory.c      what is freed with the sparse all-reduce, or its schedules

   A file calls those below it here, and backends and algorithms are called
   through their tables.

   A step works in `work`, which begins as gradient plus residual. `residual` is
   not touched: when the step has been completed on this rank the two change
   places, and until then a failed step has left nothing behind. What else an
   algorithm learns in a step waits in its `next` for the same moment. Where
   gradients are accumulated in place the two are one, which a step only reads;
   what changes in it is settled when the step has been completed. */
#pragma once

#include "coll/kit/wrong.h"

#include <baton/sparse.h>

typedef struct baton__sparse_algorithm baton__sparse_algorithm_t;
typedef struct baton__sparse_backend baton__sparse_backend_t;
typedef struct baton__sparse_device baton__sparse_device_t;
typedef struct baton__sparse_memory baton__sparse_memory_t;

/* Room for a sparse result. */
typedef struct baton__sparse_room {
    char *packed; /* as survivors hand it over: the count, indices and values */
    uint32_t *indices;
    char *values;
    size_t count;
    baton_sparse_stats_t stats; /* of the step */
} baton__sparse_room_t;

/* Elements from `first` on, those before `end`. */
typedef struct baton__range {
    size_t first, end;
} baton__range_t;

/* What an algorithm has learned from earlier steps; saved and loaded. Equal on
   all ranks, or on those that must agree on it. */
typedef struct baton__learned {
    int64_t h, h_step, h_flag; /* SPARDL with B-SAG */
    uint64_t k;                /* that h was made for; 0 means none */
    uint64_t steps;            /* sparse steps since thresholds began */
    uint64_t local_threshold;  /* a baton_magnitude_t */
    uint64_t global_threshold;
} baton__learned_t;

/* Of the step that was started last. */
typedef enum baton__sparse_phase {
    BATON__SPARSE_NO_RESULT, /* there is none, or it has failed */
    BATON__SPARSE_RUNNING,   /* until a wait or test has found its end */
    BATON__SPARSE_RESULT,    /* in `last` */
} baton__sparse_phase_t;

/* How far a baton_sparse_shrink has come. */
typedef enum baton__sparse_move {
    BATON__SPARSE_ENDS_STEP,  /* in the old group */
    BATON__SPARSE_HANDS_OVER, /* the result of the last step */
    BATON__SPARSE_CONFIRMS,   /* that all survivors have got it */
    BATON__SPARSE_REBUILDS
} baton__sparse_move_t;

struct baton_sparse {
    baton_group_t *group;
    char *name;
    baton_sparse_options_t asked;   /* defaults filled in; compared */
    baton_sparse_options_t options; /* and what is chosen by cost */
    int rank, size;
    int most_ranks; /* `size` before ranks were lost */
    int teams;      /* of options, likewise */
    bool payload;
    bool out_of_memory; /* once */
    bool lasting;       /* what is allocated outlasts the schedules */
    bool is_dense;      /* the step that was started last */
    size_t element_bytes, entry_bytes;

    baton_schedule_t *comparison;
    /* States what else the steps' schedule compares; or NULL. */
    void (*agree)(const void *arg, baton_schedule_t *schedule);
    const void *agree_arg;
    baton__wrong_t wrong; /* with this rank's options, or memory */
    bool connected;

    const baton__sparse_algorithm_t *algorithm; /* NULL: dense alone */
    baton_schedule_t *schedule;                 /* of sparse steps */
    baton_schedule_t *dense;
    baton_buffer_t dense_buffer, dense_source; /* the latter on the host */
    baton_end_fn on_end;                       /* of the user; or NULL */
    void *on_end_arg;
    uint64_t ended;           /* calls of it so far */
    baton_schedule_t *latest; /* of the step that was started last, or NULL */
    baton__sparse_phase_t phase;
    baton__sparse_move_t move; /* of baton_sparse_shrink */
    const baton__sparse_backend_t *backend;
    baton_partial_t *epochs;        /* the partial backend's */
    baton__sparse_device_t *device; /* that backend's */

    /* n elements each, without payload NULL. On a device residual and velocity
       are there and not here, and `work` is that of dense steps. */
    char *residual, *work;
    char *spare; /* what a dense step sums that is neither of the two: its
                    gradient, changed, or zeros; or NULL */
    /* u of momentum, and behind the running step; or NULL */
    char *velocity, *new_velocity;
    const char *gradient;  /* of the running step, or NULL */
    baton__range_t *parts; /* of the next gradient, which were contributed */
    size_t part_count, part_room;
    bool summed; /* the running step's gradient is part of `work` already */
    double given_factor; /* by which the running step's gradient is scaled, */
    double clip_factor;  /* and with clipping */
    size_t k;
    baton_magnitude_t guess; /* from which on a selection looks first */
    baton__learned_t learned, next;
    uint64_t *extra; /* more that it has learned; saved and loaded, or NULL */
    size_t extra_count;
    uint64_t steps;                   /* completed */
    uint64_t sparse_base, dense_base; /* of steps, at the last recovery */

    uint64_t open;    /* on the host: the step that was started and not
                         completed, or 0 */
    bool recovered;   /* the group was, since the last step began */
    bool absent;      /* the running epoch takes nothing of this rank */
    bool settled;     /* the running step is; */
    uint8_t merged;   /* and in R-SAG, additions of teams that it has made */
    bool no_residual; /* it is zero: its memory has the dense result */
    bool sums_spare;  /* the running dense step does */
    /* In a recovery. */
    bool lacks;       /* this rank: the result of the last step */
    bool mended;      /* all steps are completed on all ranks, or on none */
    uint8_t told;     /* the schedules of which this rank was: their bits */
    uint8_t *news;    /* what ranks tell each other, see step.c */
    uint64_t lacked;  /* the last step whose result was handed to this rank */
    uint64_t made_up; /* the last step of which this rank has added what other
                         ranks had not dropped */
    baton_schedule_t *handover;
    char *piece;              /* that is handed over */
    uint64_t handed;          /* so many, or 0 */
    baton_group_t *survivors; /* the group to which it moves; or NULL */

    baton_sparse_result_t last; /* where there is one */
    uint64_t missed; /* results that waits return behind a recovery */
    /* What the running step writes, in one of the rooms. */
    size_t result_count, result_capacity;
    uint32_t *result_indices;
    char *result_values;
    baton__sparse_room_t *rooms;
    size_t room_count;
    size_t room, shown; /* the running step's; of the last completed one */
    /* The algorithm's. settle: `work` is as this rank's selections have left
       it, and becomes the new residual, by a result of so many entries; that
       may have been handed over, since no rank has one before all have
       selected. make_up: adds to `work` what ranks have not dropped that
       failed. */
    void (*settle)(void *algorithm, size_t count);
    void (*make_up)(void *algorithm, size_t count); /* or NULL */
    void *settling;
    /* The entries to which momentum masking applies, by index: this rank's
       selection where the algorithm has it here, else those of the result. */
    const uint32_t *selected; /* or NULL */
    size_t selected_count;
    const uint32_t *masked;
    size_t masked_count;

    baton_sparse_stats_t stats, counting; /* last step's; running step's */
    uint32_t rounds;                      /* of the sparse schedule */
    baton__sparse_memory_t *memory;
};

/* ---- backends ---------------------------------------------------------- */

/* Those from close on may be NULL, which means that there is nothing to do. */
struct baton__sparse_backend {
    /* baton__sparse_begin clips the gradient, and accumulation adds momentum;
       else that has been done before, or is done elsewhere. */
    bool accumulates;
    /* Allocates vectors, and adds the nodes of the schedules, the algorithm's
       among them. */
    baton_status_t (*build)(baton_sparse_t *sparse);
    /* Starts a step of a gradient times a factor, or a flush; ends in
       baton__sparse_started. complete: the application has found its end, or
       gets a result that it had missed. */
    baton_status_t (*start)(baton_sparse_t *sparse, bool flush,
                            const void *gradient, double factor);
    void (*complete)(baton_sparse_t *sparse, bool dense, baton_status_t status);
    /* With payload: takes a part of the gradient of the next step, which is
       started without one. NULL: it can't. */
    baton_status_t (*contribute)(baton_sparse_t *sparse, size_t first,
                                 size_t count, const void *part);
    /* With payload; on an error the state is as it was. Copies the residual, or
       velocity; replaces both, velocity where it is not NULL. */
    baton_status_t (*read)(baton_sparse_t *sparse, bool velocity, void *to);
    baton_status_t (*write)(baton_sparse_t *sparse, const void *residual,
                            const void *velocity);

    /* With on_loss: options have been compared, and the schedules destroyed for
       others. await: as baton_schedule_wait for the last step, or, where
       `done_out` is not NULL, as baton_schedule_test. */
    baton_status_t (*connect)(baton_sparse_t *sparse);
    baton_status_t (*await)(const baton_sparse_t *sparse, int timeout_ms,
                            bool *done_out);
    /* As baton_schedule_destroy, of its own schedules and before the others;
       and behind all, also where build has failed or was not called. */
    baton_status_t (*close)(baton_sparse_t *sparse);
    void (*free)(baton_sparse_t *sparse);
    /* Completes the last step on all ranks of `survivors`, or on none; false
       while baton__sparse_hand_over is. NULL: it can't. */
    bool (*survive)(baton_sparse_t *sparse);
    /* The error of results that were to be copied. */
    baton_status_t (*check_result)(baton_sparse_t *sparse);
    /* Between hold and release no epoch begins to work. BATON_ERR_BUSY: one
       does, or, where `even`, one has ended whose step this rank has not
       started. save: what is pending, and the residual without it. load: that
       is pending behind so many steps, and nothing else; not between the two.
     */
    baton_status_t (*hold)(baton_sparse_t *sparse, const char *doing,
                           bool even);
    void (*release)(baton_sparse_t *sparse);
    void (*save)(baton_sparse_t *sparse, char *residual, char *pending);
    void (*load)(baton_sparse_t *sparse, uint64_t steps, const char *pending);
};

extern const baton__sparse_backend_t baton__sparse_host;
extern const baton__sparse_backend_t baton__sparse_on_device;
extern const baton__sparse_backend_t baton__sparse_partial;

/* Vectors of the host's, which the partial one has, too. */
void baton__sparse_host_vectors(baton_sparse_t *sparse);

/* ---- algorithms -------------------------------------------------------- */

/* Adds nodes to `schedule`, for gradients on the host or on a device; NULL
   where it is not for these. */
struct baton__sparse_algorithm {
    void (*build)(baton_sparse_t *sparse);
    void (*build_on_device)(baton_sparse_t *sparse);
};

void baton__spardl_build(baton_sparse_t *sparse);
void baton__spardl_build_on_device(baton_sparse_t *sparse);
void baton__topka_build(baton_sparse_t *sparse);
void baton__topka_build_on_device(baton_sparse_t *sparse);
void baton__topkdsa_build(baton_sparse_t *sparse);
void baton__gtopk_build(baton_sparse_t *sparse);
void baton__oktopk_build(baton_sparse_t *sparse);

/* A call node whose processor time the statistics count, of one of the sparse
   all-reduce's schedules; call_after: of the sparse one, behind a node. */
baton_node_t baton__sparse_add_call(baton_sparse_t *sparse,
                                    baton_schedule_t *schedule,
                                    baton_call_fn fn, void *arg);
baton_node_t baton__sparse_call_after(baton_sparse_t *sparse,
                                      baton_node_t before, baton_call_fn fn,
                                      void *arg);

/* Memory, zeroed, until the sparse all-reduce is destroyed, or, if it was
   allocated while sparse->lasting was false, until its schedules are built
   anew. Without memory out_of_memory is set, and builders that can continue do;
   their result is discarded. room: NULL in groups without payload. copied:
   memory that a device copies at full speed, if gradients are on one. */
void *baton__sparse_alloc(baton_sparse_t *sparse, size_t count, size_t bytes);
void *baton__sparse_room(baton_sparse_t *sparse, size_t count, size_t bytes);
void *baton__sparse_copied_room(baton_sparse_t *sparse, size_t count,
                                size_t bytes);
void *baton__sparse_device_room(baton_sparse_t *sparse, baton_memory_t kind,
                                size_t bytes);
void baton__sparse_free_memory(baton_sparse_t *sparse, bool all);

/* Allocates rooms for results of up to so many entries. bytes: of one. use: the
   step that begins writes into one. */
void baton__sparse_result_room(baton_sparse_t *sparse, size_t capacity);
size_t baton__sparse_room_bytes(const baton_sparse_t *sparse);
void baton__sparse_use_room(baton_sparse_t *sparse, size_t room);

/* The result's entries from `at` on become those of a list. */
void baton__sparse_result_put(baton_sparse_t *sparse, size_t at,
                              const char *entries, size_t count);

/* Behind the last of them: how many there are. Averages, and settles. */
void baton__sparse_publish(baton_sparse_t *sparse, size_t count);

/* The dense schedule:

       accumulated --> all-reduce, of source to work

   Binds `work`; and adds what is behind the node that accumulates. */
baton_view_t baton__sparse_bind_dense(baton_sparse_t *sparse);
void baton__sparse_add_dense(baton_sparse_t *sparse, baton_view_t source,
                             baton_view_t work, baton_node_t accumulated);

/* ---- steps ------------------------------------------------------------- */

/* As baton_sparse_start, of a gradient times a factor. Not for partial ones. */
baton_status_t baton__sparse_start_scaled(baton_sparse_t *sparse,
                                          const void *gradient, double factor);

/* Whether the step behind so many is dense; and it was started. */
bool baton__sparse_is_dense(const baton_sparse_t *sparse, bool flush,
                            uint64_t steps);
void baton__sparse_started(baton_sparse_t *sparse, bool dense);

/* A step has ended well: `last`, the statistics and what was learned are its.
   The vectors change behind that. */
void baton__sparse_complete_step(baton_sparse_t *sparse, bool dense);

/* Bytes of an element of the velocity. */
static inline size_t baton__velocity_bytes(const baton_sparse_t *sparse)
{
    return sparse->options.short_velocity ? sizeof(uint16_t)
                                          : sparse->element_bytes;
}

/* The vectors change places. */
static inline void baton__sparse_exchange(char **left, char **right)
{
    char *other = *left;
    *left = *right;
    *right = other;
}

/* The group was recovered; `epoch`: as baton_schedule_on_recover tells it. */
bool baton__sparse_recover(baton_sparse_t *sparse, bool dense, uint64_t epoch);

/* In a recovery or a shrink. tell: by a schedule ranks tell each other the last
   step that they have completed, or the one that they have begun and lack; true
   once all have. Then is_had says whether any rank has completed the step.
   hand_over: hands a step's result to the ranks that lack it, if any does,
   piece by piece; true once all have it. It is in `dense`, or, if that is NULL,
   in the running step's room where it was lacked, else in the one that is
   shown. settle: completes a step whose result was handed over. make_up:
   adds to the residual what failed ranks have not dropped of a step's result;
   is_lost: whether the rank has not told anything; lacks_addition: whether it
   has told that it has not made this addition of teams. */
void baton__sparse_build_handover(baton_sparse_t *sparse);
bool baton__sparse_tell(baton_sparse_t *sparse, bool lacks, uint64_t step);
bool baton__sparse_is_had(const baton_sparse_t *sparse, uint64_t step);
bool baton__sparse_hand_over(baton_sparse_t *sparse, bool gets, uint64_t step,
                             char *dense);
void baton__sparse_settle(baton_sparse_t *sparse);
void baton__sparse_make_up(baton_sparse_t *sparse, uint64_t step);
bool baton__sparse_is_lost(const baton_sparse_t *sparse, int rank);
bool baton__sparse_lacks_addition(const baton_sparse_t *sparse, int rank,
                                  int index);

/* Waits until the running step has ended, and completes it. An error: it has
   not ended, or nothing runs. */
baton_status_t baton__sparse_end_step(baton_sparse_t *sparse, int timeout_ms);

/* Destroys the schedules; forgets what was theirs, before others are built, for
   a rank of so many; builds all in this group. The first error of build is the
   caller's. */
baton_status_t baton__sparse_leave(baton_sparse_t *sparse);
void baton__sparse_enter(baton_sparse_t *sparse, int rank, int size);
baton_status_t baton__sparse_rebuild(baton_sparse_t *sparse,
                                     baton_group_t *group);

/* ---- checks ------------------------------------------------------------ */

baton_status_t baton__sparse_no_memory(const baton_sparse_t *sparse);

/* False, with this thread's error, where the sparse is NULL or destroyed. */
bool baton__sparse_is_alive(const baton_sparse_t *sparse, const char *doing);

/* BATON_ERR_STATE before connect. */
baton_status_t baton__sparse_check_connected(const baton_sparse_t *sparse,
                                             const char *doing);

/* The same, and BATON_ERR_BUSY while a step runs. */
baton_status_t baton__sparse_check_idle(const baton_sparse_t *sparse,
                                        const char *doing);

/* BATON_ERR_INVALID unless the gradient has these elements. */
baton_status_t baton__sparse_check_range(const baton_sparse_t *sparse,
                                         const char *doing, size_t first,
                                         size_t count);

/* As check_idle; then the backend's hold, if it has one, and its release. */
baton_status_t baton__sparse_hold(baton_sparse_t *sparse, const char *doing,
                                  bool even);
void baton__sparse_release(baton_sparse_t *sparse);

/* Whether the step may start: all parts are there, or none is. */
baton_status_t baton__sparse_check_parts(const baton_sparse_t *sparse);

/* ---- options ----------------------------------------------------------- */

/* Reads the caller's struct. Where that is impossible `out` has size 0, and
   nothing else but a name, if that can be read. */
baton_status_t baton__sparse_read(const baton_sparse_options_t *given,
                                  baton_sparse_options_t *out);

/* Checks, and fills in defaults, for `size` ranks on so many hosts.
   take_choice then replaces what is to be chosen by cost. */
baton__wrong_t baton__sparse_resolve(const baton_sparse_options_t *given,
                                     int size, int hosts,
                                     baton_sparse_options_t *out);

typedef struct baton__sparse_place {
    int ranks, hosts, processors; /* of a host; 0: one for each rank */
    bool measured;                /* the options do not say what links cost */
} baton__sparse_place_t;
void baton__sparse_take_choice(baton_sparse_options_t *o,
                               const baton__sparse_place_t *place);
static inline bool baton__sparse_goes_on(const baton_sparse_options_t *o)
{
    return o->on_loss == BATON_ON_LOSS_CONTINUE;
}
static inline bool baton__sparse_has_link(const baton_sparse_options_t *o)
{
    return o->link.alpha_us != 0 || o->link.beta_ns != 0;
}

/* k, of a density. */
static inline size_t baton__entries_of(size_t count, double density)
{
    double k = (double)count * density;
    return k < 1 ? 1 : (size_t)k;
}

/* Whether what the algorithm does with `work` is no more than to take lists out
   of it and to add some, which devices do. */
bool baton__sparse_is_for_devices(baton_sparse_algorithm_t algorithm);

/* Those that decide what a state means, as words; and whether a state's are
   those of this sparse all-reduce, or an error that names what differs. */
enum { BATON__SPARSE_STATE_OPTIONS = 12 };
void baton__sparse_state_options(const baton_sparse_options_t *options,
                                 uint64_t *out);
baton_status_t baton__sparse_check_state_options(const baton_sparse_t *sparse,
                                                 const uint64_t *stored);

/* BATON_ERR_BUSY while a step runs; BATON_ERR_UNSUPPORTED where there is no
   state to export or import. */
baton_status_t baton__sparse_check_state(const baton_sparse_t *sparse,
                                         const char *doing);

/* States what must be the same; that, and commits and starts the comparison;
   the same of a schedule that has stated it; and waits for it: what is wrong on
   any rank, or differs. goes_on: it is no error that another rank is lost. */
void baton__sparse_agree(baton_schedule_t *schedule,
                         const baton_sparse_options_t *o);
baton_status_t baton__sparse_compare_options(baton_sparse_t *sparse);
baton_status_t baton__sparse_compare(baton_schedule_t *schedule,
                                     baton__wrong_t *wrong);
baton_status_t baton__sparse_compared(baton_schedule_t *schedule,
                                      const baton__wrong_t *wrong, bool goes_on,
                                      int timeout_ms);

/* ---- accumulation ------------------------------------------------------ */

/* The first call node of a step: measures the gradient, for clipping. */
void baton__sparse_begin(baton_sparse_t *sparse);

/* What the gradients of one rank are clipped by, whose squares have this sum.
 */
double baton__clip_factor(double clip, int ranks, double square_sum);

/* work = residual + what the gradient contributes, for these elements; zeros,
   where an epoch takes nothing. */
void baton__sparse_accumulate(baton_sparse_t *sparse, size_t first,
                              size_t count);

/* target = the gradient, clipped, with momentum where there is a velocity, or
   (not `first`) target + that: for partial ones, before the step. */
void baton__sparse_contribute(baton_sparse_t *sparse, const void *gradient,
                              char *velocity, char *target, bool first);

/* Copies a velocity from elements of the gradient's type, or to such. */
void baton__sparse_read_velocity(const baton_sparse_t *sparse,
                                 const char *velocity, void *to);
void baton__sparse_write_velocity(const baton_sparse_t *sparse, char *velocity,
                                  const void *from);

/* Zeros at these indices of a velocity. */
void baton__sparse_mask(const baton_sparse_t *sparse, char *velocity,
                        const uint32_t *indices, size_t count);

/* After a step: velocity advances, and is zero at masked elements. */
void baton__sparse_advance(baton_sparse_t *sparse);

/* Accumulates all elements, and returns the indices of the k largest of one
   side, the least magnitude of which goes to *threshold, if that is not NULL;
   or how many there are that reach a threshold, the indices of up to `room`
   of these. */
size_t baton__sparse_accumulate_topk(baton_sparse_t *sparse, baton_side_t side,
                                     uint32_t *indices, void *scratch,
                                     baton_magnitude_t *threshold);
size_t baton__sparse_accumulate_at_least(baton_sparse_t *sparse,
                                         baton_side_t side,
                                         baton_magnitude_t threshold,
                                         uint32_t *indices, size_t room);
/* All of work's elements, to select from. */
baton_selection_t baton__sparse_selection(const baton_sparse_t *sparse,
                                          baton_side_t side);

/* Accumulates them, and finds candidates for the k largest. */
void baton__sparse_candidates(baton_sparse_t *sparse, size_t first,
                              size_t count, size_t k,
                              baton_candidates_t *candidates,
                              baton_magnitude_t *guess, void *scratch);

/* ---- messages ---------------------------------------------------------- */

/* A send or a receive of up to `capacity` bytes of scratch memory, with a
   length of its own. */
typedef struct baton__message {
    baton_sparse_t *sparse;
    baton_node_t node;
    baton_view_t view;
    baton_length_t length;
    char *data;   /* once a call has asked for it; NULL without payload */
    size_t bytes; /* of this step */
} baton__message_t;

void baton__message_send(baton__message_t *message, baton_sparse_t *sparse,
                         int peer, size_t capacity);
void baton__message_recv(baton__message_t *message, baton_sparse_t *sparse,
                         int peer, size_t capacity);

/* In a call before the send: where to write; and how much was written. */
char *baton__message_begin(baton__message_t *message, baton_call_t *call);
baton_status_t baton__message_end(baton__message_t *message, baton_call_t *call,
                                  size_t bytes);

/* In a call behind the receive: sets data and bytes. */
void baton__message_take(baton__message_t *message, baton_call_t *call);

static inline size_t baton__message_entries(const baton__message_t *message)
{
    return message->bytes / message->sparse->entry_bytes;
}

/* The same of a list, which is copied. */
baton_status_t baton__message_put(baton__message_t *message, baton_call_t *call,
                                  baton_entries_t list);

/* Fills up a list of `count` entries to `all` of them, with entries that no
   vector has; and a list of `all` without these. */
void baton__entries_pad(const baton_sparse_t *sparse, char *list, size_t count,
                        size_t all);
baton_entries_t baton__entries_unpadded(const baton_sparse_t *sparse,
                                        const char *list, size_t all);

/* How many entries at the beginning of a list, of up to `most`, are of a block;
   those of one block lie together. `likely` is tried first. */
size_t baton__entries_within(const baton_sparse_t *sparse, const char *list,
                             size_t most, size_t likely, size_t first,
                             size_t count);

/* Entries of indices and values that need not be aligned; with a value_step of
   0 all have one value. */
void baton__entries_join(const baton_sparse_t *sparse, char *to,
                         const void *indices, const void *values,
                         size_t value_step, size_t count);

/* Counts a message that another node sends. */
void baton__message_count(baton_sparse_t *sparse, size_t bytes);

/* ---- Bruck all-gather -------------------------------------------------- */

typedef struct baton__gather baton__gather_t;

/* Parts of `size` members in a ring, whose ranks are base + stride * index; of
   all ranks where `size` is 0. */
typedef struct baton__gather_plan {
    baton_sparse_t *sparse;
    void *arg;
    int size, index;
    int base, stride;
    /* Bytes of a member's part: at most, `most_bytes` where `most` is NULL; of
       this step, when all blocks are full; and really, of the part that begins
       at `data`, of which at most `left` bytes are there: NULL, as many as
       nominal. */
    size_t most_bytes;
    size_t (*most)(void *arg, int member);
    size_t (*nominal)(void *arg, int member);
    size_t (*extent)(void *arg, int member, const char *data, size_t left);
} baton__gather_plan_t;

/* Adds the rounds behind `ready`, a call that begins and ends this member's own
   part, and behind them the call of then(plan->arg), which finds all parts
   there: that node is returned. *out is NULL: no memory, of this or before. */
baton_node_t baton__gather_build(const baton__gather_plan_t *plan,
                                 baton_node_t ready, baton_call_fn then,
                                 baton__gather_t **out);

/* In the call `ready`: where to write this member's part; and its bytes. */
char *baton__gather_begin(baton__gather_t *gather, baton_call_t *call);
baton_status_t baton__gather_end(baton__gather_t *gather, baton_call_t *call,
                                 size_t bytes);
/* The same of a part that is copied. */
baton_status_t baton__gather_put(baton__gather_t *gather, baton_call_t *call,
                                 const void *part, size_t bytes);

/* In the call `then`: a member's part, NULL without payload, and its bytes. */
const char *baton__gather_part(const baton__gather_t *gather, int member,
                               size_t *bytes_out);
/* Where parts are lists of entries: these become the result's, in the order of
   members. Returns how many there are. */
size_t baton__gather_put_result(const baton__gather_t *gather);
