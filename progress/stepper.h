/* What one driver steps: the schedules of some groups, and what is due for
   them. */
#pragma once

#include "sched/schedule.h"

/* Bytes that a step computes and copies, approximately at most; and that it
   does so of one node before other nodes get their turn. */
enum { BATON__STEP_BYTES = 1 << 20, BATON__SLICE_BYTES = 1 << 18 };

typedef struct baton__stepper {
    baton_group_t *groups;
    baton_schedule_t *runnable_head; /* get a turn in the next step */
    baton_schedule_t *runnable_tail;
    baton_schedule_t *schedules;   /* that are committed */
    baton_schedule_t *uncommitted; /* and that are not */
    baton__queue_list_t queues;    /* with notices to send */
    baton_schedule_t *issuing;     /* whose nodes fire now, or NULL */
    baton_schedule_t *offloads;    /* with something to ask a device for */
    uint32_t waited;      /* nodes that running epochs wait for: in motion, or
                             receives without their message */
    uint32_t starts;      /* epochs that wait for a stream of the user */
    uint32_t polled;      /* async nodes with a poll function */
    uint32_t running;     /* epochs that have begun and not ended */
    uint32_t draining;    /* failed schedules with nodes in motion */
    uint32_t recovering;  /* groups and schedules that recover */
    uint32_t agreeing;    /* schedules that do */
    uint32_t activatable; /* that are committed and have armed receives */
    size_t bytes_left;    /* that this step may still compute and copy */
    size_t slice_bytes;   /* of one node at a time */
    /* Of all messages that running epochs wait for. */
    size_t awaited_bytes;
    /* Recoveries have found no room for something at a peer, or are to ask a
       baton_recover_fn again. */
    bool untold;
    bool leaves_calls; /* leaves calls that may take long to another driver */
    bool left_calls;   /* and has done so in this step */
    bool unpolled;     /* the last step has not polled */
    bool doubts;       /* some schedule is in doubt about a node */
    _Atomic(baton_schedule_t *) mail; /* newest first */
    /* Optional: true while the simulated processor is busy; the rank's epochs
       retire when it is free. */
    bool (*is_busy)(const baton_schedule_t *schedule);
    /* Optional: an epoch has begun; an epoch has ended, or a group is
       recovered, and waiting threads are to be woken. */
    void (*on_begin)(baton_schedule_t *schedule);
    void (*on_end)(baton_schedule_t *schedule);
    void (*on_recovered)(baton_group_t *group);
    /* Optional: the time, to find out which calls are quick. Without it all
       are. */
    uint64_t (*clock_ns)(void);
} baton__stepper_t;

/* This driver may not poll for a while. */
static inline void baton__stepper_flush(const baton__stepper_t *stepper)
{
    for (baton_group_t *g = stepper->groups; g != NULL; g = g->next) {
        if (g->transport->flush != NULL) {
            g->transport->flush(g->endpoint);
        }
    }
}

/* Gives the schedule a turn in the next step. */
static inline void baton__stepper_add_runnable(baton_schedule_t *schedule)
{
    baton__stepper_t *stepper = schedule->group->stepper;
    if (schedule->turn.runnable) {
        return;
    }
    schedule->turn.runnable = true;
    schedule->turn.next_runnable = NULL;
    if (stepper->runnable_head == NULL) {
        stepper->runnable_head = schedule;
    } else {
        stepper->runnable_tail->turn.next_runnable = schedule;
    }
    stepper->runnable_tail = schedule;
}

/* Bits: what a peer of a schedule is to be told. */
enum {
    BATON__TELL_HELLO = 1,   /* this rank has committed the schedule */
    BATON__TELL_WELCOME = 2, /* and has heard that the peer has */
    BATON__TELL_FAILURE = 4  /* how it failed here */
};

static inline bool baton__stepper_has_notices(const baton__stepper_t *stepper)
{
    return stepper->queues.head != NULL;
}

/* Something is about to be added to the queue. */
static inline void baton__stepper_list(baton__peer_queue_t *queue,
                                       baton_group_t *group)
{
    if (queue->answers.head == NULL && queue->due.head == NULL) {
        queue->group = group;
        queue->full = false;
        baton__queue_list_append(&group->stepper->queues, queue);
    }
}

/* `peer` is an index of plan.peers. */
static inline void baton__stepper_tell(baton_schedule_t *schedule,
                                       uint32_t peer, uint8_t what)
{
    baton__peer_notice_t *due = &schedule->notices.due[peer];
    baton__peer_queue_t *queue =
        baton__group_queue(schedule->group, (int)schedule->plan.peers[peer]);
    if (due->what == 0) {
        baton__stepper_list(queue, schedule->group);
        due->schedule = schedule;
        baton__due_list_append(&queue->due, due);
        schedule->notices.due_count++;
        schedule->group->due_count++;
    }
    due->what |= what;
}

/* From now on what becomes of the schedule is told to the peer. */
static inline void baton__stepper_meet(baton_schedule_t *schedule,
                                       uint32_t peer,
                                       baton__acquaintance_t acquaintance)
{
    uint8_t *now = &schedule->notices.due[peer].acquaintance;
    schedule->notices.unmet -= *now == BATON__UNMET;
    *now = acquaintance > *now ? (uint8_t)acquaintance : *now;
}

/* Says hello to a peer, once. */
static inline void baton__stepper_greet(baton_schedule_t *schedule,
                                        uint32_t peer)
{
    if (schedule->notices.due[peer].acquaintance == BATON__UNMET) {
        baton__stepper_meet(schedule, peer, BATON__GREETED);
        baton__stepper_tell(schedule, peer, BATON__TELL_HELLO);
    }
}
