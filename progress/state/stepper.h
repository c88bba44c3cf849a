/* The stepper: the tasks of all groups that one driver steps, and lists of the
   tasks that need something. The driver is the thread that holds an engine's
   driver lock (driving/engine.h), or a simulator. It makes steps
   (driving/step.h). In a step each runnable task issues some of its
   ready nodes (baton__epoch_advance). */
#pragma once

#include "progress/state/task.h"

/* A step computes and copies at most about BATON__STEP_BYTES bytes. Of one node
   it computes at most BATON__SLICE_BYTES bytes at once. */
enum { BATON__STEP_BYTES = 1 << 20, BATON__SLICE_BYTES = 1 << 18 };

struct baton__stepper;

/* The functions in which a step of a real engine differs from that of a
   simulator. Each may be NULL. */
typedef struct baton__hooks {
    /* Returns true while the simulated processor is busy. The rank's
       epochs retire when the processor is free. */
    bool (*is_busy)(const baton_schedule_t *schedule);
    /* Called when an epoch has begun. */
    void (*on_epoch_begin)(baton_schedule_t *schedule);
    /* Called when an epoch has ended. An engine wakes its waiting threads; the
       simulator notes the time. (baton__task_t.on_end is the application's
       callback.) */
    void (*on_epoch_end)(baton_schedule_t *schedule);
    /* Called when a recovery, a farewell or a shrink is over, to wake
       waiting threads. */
    void (*on_recovered)(baton_group_t *group);
    /* Returns the time. By it a step finds the nodes whose functions take long.
       Without clock_ns no function is timed. */
    uint64_t (*clock_ns)(void);
    /* Returns true if the calling thread drives. A simulator has only
       one thread, and lacks this function. Only assertions call it. */
    bool (*is_driven)(const struct baton__stepper *stepper);
} baton__hooks_t;

typedef struct baton__stepper {
    /* The fields that each step uses come first, on two cache lines. */

    /* The list of groups that have endpoints of their own (root groups). Each
       of them lists its subsets, which use its endpoint. */
    baton_group_t *groups;
    /* The first and the last of the tasks that the next step advances. */
    baton__task_t *runnable_head;
    baton__task_t *runnable_tail;
    /* The mailbox (baton__step_mail): a list of tasks that the driver must look
       at, the newest first. */
    _Atomic(baton__task_t *) mail;
    /* The schedule whose nodes the driver issues at the moment; or NULL. */
    baton_schedule_t *issuing;
    /* The list of schedules that wait for events of the device. Each step
       queries these events. */
    baton_schedule_t *offloads;
    baton__queue_list_t queues; /* the queues that have notices to send */
    /* Number of nodes that running epochs wait for: nodes that are held or in
       motion (sched/run.h), and required receives whose message has not
       come. */
    uint32_t waited;
    /* number of epochs whose start a user's stream has not reached */
    uint32_t starts;
    uint32_t polled;   /* number of begun async nodes with a poll function */
    uint32_t running;  /* number of epochs that have begun and not ended */
    uint32_t draining; /* number of failed schedules with nodes in motion */
    /* The number of recoveries, farewells and shrinks that go on, of groups and
       of schedules, and of agreed views that peers must still get
       (membership/shrink.c). */
    uint32_t recovering;
    size_t bytes_left; /* bytes that this step may still compute and copy */
    /* The most bytes of a node that are computed or copied at once. */
    size_t slice_bytes;
    /* The time that the trace's next record may use without reading the clock;
       0: that record must read the clock. See traced.h. */
    uint64_t traced_ns;
    /* A recovery or shrink must be advanced again without any event: a peer had
       no space for a notice, a baton_recover_fn is to be called again, or a
       shrink waits for proof that lost processes have ended. */
    bool must_retry;
    /* True while this thread may not run a call node that may take long,
       because it must return to the application soon. Another thread runs such
       nodes. */
    bool leaves_calls;
    /* a ready call node was not run in this step because of leaves_calls */
    bool left_calls;
    /* the last step did not poll the transports; see baton__step */
    bool unpolled;
    bool doubts; /* at least one task has a `doubted` node (task.h) */

    baton__task_t *tasks;       /* the tasks of committed schedules */
    baton__task_t *uncommitted; /* the tasks of all other schedules */
    /* Number of schedules that recover at the moment and have a
       baton_recover_fn, so that their ranks are agreeing on the epoch that is
       passed to it. */
    uint32_t agreeing;
    /* Number of committed schedules with armed receives. */
    uint32_t activatable;
    /* The bytes of all messages that running epochs wait for. */
    size_t awaited_bytes;
    const baton__hooks_t *hooks;
    /* An epoch that makes no progress for this long has stalled. */
    uint32_t stall_ms;
    uint64_t looked_ns; /* the time at which the watchdog last looked */
    /* Closes the groups that are `unattended`, as soon as they have parted;
       NULL if there are none. */
    void (*reap)(struct baton__stepper *stepper);
} baton__stepper_t;

/* Returns true if the calling thread holds the driver lock. Assertions about
   the callers of a function use this and baton__driven_here. */
static inline bool baton__stepper_driven_here(const baton__stepper_t *stepper)
{
    return stepper->hooks->is_driven == NULL ||
           stepper->hooks->is_driven(stepper);
}

/* Returns true if the calling thread holds the driver lock of the group's
   engine. */
static inline bool baton__driven_here(const baton_group_t *group)
{
    return baton__stepper_driven_here(group->stepper);
}

/* Has the transports send wake-ups that they have delayed. Call it if this
   driver may not poll for a while. */
static inline void baton__stepper_flush(const baton__stepper_t *stepper)
{
    assert(baton__stepper_driven_here(stepper));
    for (baton_group_t *g = stepper->groups; g != NULL; g = g->next) {
        if (g->transport->flush != NULL) {
            g->transport->flush(g->endpoint);
        }
    }
}

/* Returns the task that follows `last` among those of a group's committed
   schedules, or the first one if `last` is NULL. Returns NULL at the end. */
static inline baton__task_t *baton__stepper_next(const baton_group_t *group,
                                                 const baton__task_t *last)
{
    baton__task_t *t = last == NULL ? group->stepper->tasks : last->next;
    while (t != NULL && t->schedule.group != group) {
        t = t->next;
    }
    return t;
}

/* Has the next step advance the schedule. */
static inline void baton__stepper_add_runnable(baton_schedule_t *schedule)
{
    assert(baton__driven_here(schedule->group));
    baton__stepper_t *stepper = schedule->group->stepper;
    baton__task_t *task = baton__task_of(schedule);
    if (task->runnable) {
        return;
    }
    task->runnable = true;
    task->next_runnable = NULL;
    if (stepper->runnable_head == NULL) {
        stepper->runnable_head = task;
    } else {
        stepper->runnable_tail->next_runnable = task;
    }
    stepper->runnable_tail = task;
}

/* Bits: the notices that are due to a peer of a schedule, by their kinds. */
enum {
    BATON__TELL_HELLO = 1 << BATON__MESSAGE_HELLO,
    BATON__TELL_WELCOME = 1 << BATON__MESSAGE_WELCOME,
    BATON__TELL_FAILURE = 1 << BATON__MESSAGE_FAILURE
};

static inline bool baton__stepper_has_notices(const baton__stepper_t *stepper)
{
    return stepper->queues.head != NULL;
}

/* Called before a notice is added to a peer's queue. If that queue is empty,
   adds the queue to the stepper's list of queues that have notices. */
static inline void baton__stepper_list(baton__peer_queue_t *queue,
                                       baton_group_t *group)
{
    if (queue->answers.head == NULL && queue->due.head == NULL) {
        queue->member = baton__member_of(group);
        queue->full = false;
        baton__queue_list_append(&group->stepper->queues, queue);
    }
}

/* Adds notices to those that are due to a peer. `peer` is an index of
   plan.peers, `what` has BATON__TELL_ bits. If there is no memory for `due`,
   nothing is added. */
static inline void baton__stepper_tell(baton__task_t *task, uint32_t peer,
                                       uint8_t what)
{
    if (!baton__task_make_due(task)) {
        return;
    }
    baton__peer_notice_t *due = &task->due[peer];
    baton_group_t *group = task->schedule.group;
    baton__peer_queue_t *queue =
        baton__group_queue(group, (int)task->schedule.plan.peers[peer]);
    if (due->what == 0) {
        baton__stepper_list(queue, group);
        due->task = task;
        baton__due_list_append(&queue->due, due);
        task->due_count++;
        baton__member_of(group)->due_count++;
    }
    due->what |= what;
}

/* Queues a reply, an inquiry or the report of a loss for a rank. The notice
   consists of `header`, with `kind` as its kind. If there is no memory, nothing
   is queued. */
static inline void baton__stepper_answer(baton_group_t *group,
                                         baton_header_t header,
                                         baton__message_kind_t kind, int peer)
{
    baton__notice_t *answer =
        baton__member_take_notice(baton__member_of(group));
    if (answer == NULL) {
        return;
    }
    baton__peer_queue_t *queue = baton__group_queue(group, peer);
    header.kind = (uint16_t)kind;
    *answer = (baton__notice_t){.header = header, .peer = peer};
    baton__stepper_list(queue, group);
    baton__notice_list_append(&queue->answers, answer);
    baton__member_of(group)->answer_count++;
}

/* Raises the state of the introduction between the schedule and a peer to
   `acquaintance`; never lowers it. Peers that are not BATON__UNMET are notified
   when the schedule fails. */
static inline void baton__stepper_meet(baton__task_t *task, uint32_t peer,
                                       baton__acquaintance_t acquaintance)
{
    assert(baton__driven_here(task->schedule.group));
    baton__acquaintance_t now = baton__task_acquaintance(task, peer);
    task->unmet -= now == BATON__UNMET;
    if (acquaintance > now) {
        task->due[peer].acquaintance = (uint8_t)acquaintance;
    }
}

/* Makes a HELLO due to a peer that is BATON__UNMET. */
static inline void baton__stepper_greet(baton__task_t *task, uint32_t peer)
{
    if (baton__task_acquaintance(task, peer) == BATON__UNMET) {
        baton__stepper_meet(task, peer, BATON__GREETED);
        baton__stepper_tell(task, peer, BATON__TELL_HELLO);
    }
}
