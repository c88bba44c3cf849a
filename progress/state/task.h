/* A task: a schedule, and the state that driving it needs. An application's
   handle points to the schedule. The task embeds the schedule, so that the
   address of either follows from that of the other without a load.

   Ownership: the driver owns a task. A thread accesses a task's fields only
   while it holds the driver lock (driving/engine.h), except for atomic fields
   and those whose comment names another lock.

   Layout: a task begins at a cache line. The fields that each step uses fill
   this first line; the schedule's own such fields begin the next one. The
   fields that application and driver share come after the schedule, so that a
   start or a wait does not invalidate these lines. */
#pragma once

#include "progress/state/member.h"
#include "sched/schedule.h"

/* How an epoch failed: the first cause, on the rank where it occurred. The
   message is in the schedule's `sentence`. */
typedef struct baton__failure {
    baton_status_t status; /* BATON_OK: the epoch has not failed */
    int rank;
    uint64_t epoch; /* the epoch that failed on that rank */
    bool final;     /* the schedule can't be recovered */
    bool recovers;  /* the only cause is that `rank` recovers the group */
} baton__failure_t;

/* A failure in the next incarnation, which a recovered peer reported while this
   rank still recovers. It takes effect after the recovery. In simulations whose
   ranks share plans (sched/share.h), memory is allocated for the first such
   failure. */
typedef struct baton__later_failure {
    baton__failure_t failure;
    /* The first epoch that this failure affects; 0: there is no failure. */
    uint64_t failing_from;
    char *sentence; /* the failure's message, or NULL */
} baton__later_failure_t;

/* The state of the introduction of a schedule to a peer. */
typedef enum baton__acquaintance {
    BATON__UNMET,   /* neither rank has sent a hello */
    BATON__GREETED, /* this rank has sent a hello or welcome, or is about to */
    BATON__MET      /* the peer has committed, or has left */
} baton__acquaintance_t;

/* Tells whether a schedule is an orphan: baton_schedule_destroy has returned
   BATON_ERR_TIMEOUT, because nodes were still in motion (see
   baton__task_in_motion). */
typedef enum baton__orphan {
    BATON__NO_ORPHAN,
    /* Nodes are still in motion. */
    BATON__ORPHAN_MOVES,
    /* No node is in motion any more, and all memory but the task's struct is
       freed. The application's handle points into the struct, so it stays until
       another destroy has returned BATON_OK. */
    BATON__ORPHAN_ENDED
} baton__orphan_t;

enum { BATON__TASK_MAGIC = 0x6b736174 };

/* The caller's probable behaviour after a start. It decides how long the start
   polls. */
typedef enum baton__next {
    BATON__NEXT_WORK, /* the caller does not wait */
    BATON__NEXT_WAIT, /* the caller waits at once */
    /* The caller waits after a few microseconds of work. */
    BATON__NEXT_WAIT_SOON,
    BATON__NEXT_WAIT_LATE, /* the caller waits after more work */
    BATON__NEXT_UNKNOWN    /* the call is not baton_schedule_start */
} baton__next_t;

typedef struct baton__task {
    struct baton__task *next_runnable;
    /* The bytes that are done of the first ready node, which may be computed in
       several steps. */
    size_t slice_done;
    /* A number for the schedule's name and attempt; see baton__identity. */
    uint64_t identity;
    /* number of sends and activates that were issued; any thread reads this */
    _Atomic uint64_t sent_messages;
    /* The bytes of the sends that were issued; any thread reads this. */
    _Atomic uint64_t sent_bytes;
    /* The numbers of nodes in motion, by their state (sched/run.h): in the
       transport (MOVING), begun async nodes that have not completed (BEGUN),
       and in streams of the device (QUEUED). */
    uint32_t moving;
    uint32_t begun;
    uint32_t queued;
    /* 1 + a receive whose message was lent to a reduce, but must now be copied
       into the receive's target (baton__epoch_receive_lent). No node is issued
       until the copy has ended. 0: there is no such receive. */
    uint32_t unlent;
    bool runnable;
    bool held; /* the epoch waits until the user's stream gets to its start */
    /* The schedule was destroyed while nodes were in motion. The driver frees
       it when none is in motion any more. */
    bool abandoned;
    /* True while an epoch runs or drains; any thread reads this. */
    _Atomic bool busy;
    uint32_t magic; /* BATON__TASK_MAGIC; see baton__task_of */

    baton_schedule_t schedule;

    /* ---- fields that the application and the driver access ---- */

    /* The number of starts since the last recovery; the application counts
       them. */
    _Atomic uint64_t requested;
    /* The number of epochs that have retired since the last recovery; the
       driver counts them. */
    _Atomic uint64_t retired;
    /* In a schedule that stays failed (baton__task_stays_failed): the first
       epoch that won't be completed. In any other schedule: the last epoch that
       has failed. 0: no epoch has failed. */
    _Atomic uint64_t failed;
    _Atomic uint64_t limit; /* the last epoch that a peer may begin */
    /* the epoch that a call has asked to cancel; 0: no call has */
    _Atomic uint64_t cancel;
    struct baton__task *next_mail;
    /* The time of the last start. 0: that epoch ended before the start
       returned, or a wait has followed the start. */
    _Atomic uint64_t started_ns;
    _Atomic bool mailed; /* the task is in the mailbox */
    /* A baton__next_t: how soon the last wait came after its start. NEXT_WORK:
       not soon. */
    _Atomic uint8_t expected;
    /* A buffer was rebound, and was not checked afterwards. If `bindings` is
       NULL, the driver reads the buffers' addresses, and the driver lock guards
       them. */
    _Atomic bool rebound;
    /* Number of threads in wait or baton_async_complete. */
    _Atomic uint32_t waiters;
    _Atomic uint32_t generation; /* number of recoveries so far */
    /* The status of the epochs after last_retired that were started before the
       last recovery. */
    baton_status_t last_status;
    /* The last epoch whose failure wait or test has returned. */
    _Atomic uint64_t reported;
    /* The status of a failed epoch that was started before the last recovery,
       if no call has returned it; else BATON_OK. Until the next start, wait and
       test return this status. */
    _Atomic int unreported;
    _Atomic int orphan; /* baton__orphan_t */
    /* The last epoch that retired before the last recovery. The failure lock
       guards this and last_status. */
    uint64_t last_retired;

    /* ---- fields that the driver accesses once an epoch ---- */

    /* The times at which this rank came to epochs, and its counts of them
       (epoch/arrivals.h). NULL if the schedule's lateness is not counted. */
    struct baton__arrivals *arrivals;
    uint32_t unmet; /* number of peers in state BATON__UNMET */
    /* of 2^vain starts one polls; see poll_soon() in driving/engine.c */
    uint32_t vain;
    /* The memory that was bound at the start of each epoch in flight, by epoch
       % depth; the driver takes it when the epoch begins. NULL if the depth is
       1. */
    char **bindings;
    /* The first epoch that `failure` affects; 0: there is no failure. */
    uint64_t failing_from;
    /* The function that is called when epochs end, or NULL. */
    baton_end_fn on_end;
    void *on_end_arg;
    uint64_t ended; /* the last epoch for which on_end was called */
    /* During a start that is traced, until the start is recorded: the time of
       the start; else 0. Any thread accesses this field. */
    _Atomic uint64_t traced_ns;

    /* ---- fields that the driver accesses less often ---- */

    /* Links of the stepper's list `tasks` or, before the commit,
       `uncommitted`. */
    struct baton__task *next;
    struct baton__task *previous;
    /* By index in plan.peers: the notices that are due to the peer. In
       simulations whose ranks share plans this is NULL until a notice is due;
       while it is NULL, all peers count as BATON__MET. */
    baton__peer_notice_t *due;
    uint32_t due_count; /* number of peers to which a notice is due */
    /* The number of this schedule among those of its name; see group.h. */
    uint32_t attempt;
    /* The schedule was destroyed while no node was in motion. The driver frees
       it after its notices are sent. */
    bool leaving;
    bool in_order; /* see baton_schedule_in_order */
    bool verifies; /* the verifier (BATON_VERIFY=1) created the schedule */
    /* The trace has a STARTED record of the running epoch, which stands for its
       COME, too, so no COME is recorded (baton/trace.h). */
    bool traced_come;
    /* 1 + a node that is held because its message failed; 0: there is no such
       node. See baton__epoch_fail_message. */
    uint32_t doubted;
    /* The detail of that message's failure, or NULL. */
    const char *doubted_detail;
    /* The last failed epochs: epoch << 8 | -status, by epoch modulo
       failure_count. Any thread reads them. NULL while `due` is NULL. */
    _Atomic uint64_t *failures;
    baton__failure_t failure; /* guarded by the failure lock */
    /* NULL only in simulations, before the first such failure */
    baton__later_failure_t *after_recovery;
    /* The agreements on the epoch that is passed to on_recover. They have the
       same index as those in baton__member_t. */
    baton__agreement_t agreements[2];
    /* The function that is called in a recovery, or NULL. */
    baton_recover_fn on_recover;
    void *on_recover_arg;
    /* The function that is called when the schedule has failed, or NULL. */
    baton_failed_fn on_failure;
    void *on_failure_arg;

    /* ---- fields that mainly the watchdog accesses ---- */

    /* Value of baton__progress_of (membership/inquiry.h) after its last
       change. */
    uint64_t seen_progress;
    uint64_t seen_at_ns; /* the time at which the watchdog saw that change */
    uint64_t asks_at_ns; /* the time of the next round of inquiries */
    /* Number of rounds of inquiries about the present stall, at most 2. After
       the second round it becomes 1 again, so that one more round precedes the
       next log. */
    uint8_t inquiries;
    /* the log level at which this stall was logged; 0: not logged */
    uint8_t logged_level;
    /* the schedule's number in the trace's table of schedules, or another value
       that traced.c explains; any thread accesses it */
    _Atomic uint16_t trace;
    uint32_t failure_count; /* size of `failures` */
    baton__reporter_t reporter;
    struct baton__inquiry *inquiry; /* the last inquiry; NULL: there was none */
} baton__task_t;
static_assert(offsetof(baton__task_t, schedule) == 64, "one cache line");

/* The only function that computes the address of a schedule's task. */
static inline baton__task_t *baton__task_at(const baton_schedule_t *schedule)
{
    baton__task_t *task =
        (void *)((uintptr_t)schedule - offsetof(baton__task_t, schedule));
    assert(task->magic == BATON__TASK_MAGIC);
    return task;
}

/* Returns the task that embeds a schedule; const if the schedule is. */
/* clang-format off */
#define baton__task_of(s)                                                      \
    _Generic((s), baton_schedule_t *: baton__task_at(s),                       \
             default: (const baton__task_t *)baton__task_at(s))
/* clang-format on */

/* Returns a hash that identifies the schedule among those of all groups. It is
   the same on all ranks, and never 0. */
static inline uint64_t baton__task_key(const baton__task_t *task)
{
    const baton_group_t *group = task->schedule.group;
    uint64_t key = task->identity ^ (group->channel + group->transport->id) *
                                        UINT64_C(0x9e3779b97f4a7c15);
    return key != 0 ? key : 1;
}

/* True if a failed schedule stays failed until it is recovered: its epochs have
   messages, or its builder keeps state across epochs. Otherwise the failed
   epoch retires. */
static inline bool baton__task_stays_failed(const baton__task_t *task)
{
    return task->schedule.plan.messages > 0 || task->on_recover != NULL;
}

/* Returns how many epochs the application has started. The load pairs with the
   stores in request(), epochs.c. */
static inline uint64_t baton__task_requested(const baton__task_t *task)
{
    return atomic_load_explicit(&task->requested, memory_order_seq_cst);
}

/* Returns the last epoch that has retired. The load pairs with the store in
   baton__epoch_publish(), epoch_end.c. */
static inline uint64_t baton__task_retired(const baton__task_t *task)
{
    return atomic_load_explicit(&task->retired, memory_order_seq_cst);
}

/* True if a transfer, an async node or the device still uses the schedule's
   memory, even if the epoch has failed. */
static inline bool baton__task_in_motion(const baton__task_t *task)
{
    return task->moving > 0 || task->begun > 0 || task->queued > 0;
}

/* Changes the phase of a task's run. */
static inline void baton__task_set_phase(baton__task_t *task,
                                         baton__run_state_t phase)
{
    bool busy = phase == BATON__RUN_RUNNING || phase == BATON__RUN_DRAINING;
    baton__run_set_phase(&task->schedule.run, phase);
    /* Pairs with the load in is_idle(), commit.c. */
    atomic_store_explicit(&task->busy, busy, memory_order_release);
}

/* Returns the state of the introduction between the schedule and a peer. `peer`
   is an index of plan.peers. */
static inline baton__acquaintance_t
baton__task_acquaintance(const baton__task_t *task, uint32_t peer)
{
    return task->due != NULL
               ? (baton__acquaintance_t)task->due[peer].acquaintance
               : BATON__MET;
}

/* Makes `failures` and `due` if they are NULL. Returns false if there is no
   memory. */
bool baton__task_make_due(baton__task_t *task);

/* Frees a schedule and its task. None of its nodes may be in motion. The struct
   of an orphan stays until destroy is called again. */
void baton__task_free(baton__task_t *task);
