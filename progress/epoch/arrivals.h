/* Counts when ranks come to the epochs of a schedule, and which of them is
   late. baton/lateness.h says what it means that a rank comes to an epoch, and
   what is counted. arrivals.c describes the method. */
#pragma once

#include "progress/state/stepper.h"

/* The state by which this rank times the epochs of one schedule. The driver
   alone uses this struct. */
struct baton__arrivals {
    baton__row_t *row;   /* this rank's row of the board */
    baton__slot_t *slot; /* the schedule's slot in `row` */
    /* An epoch is timed if its scattered number (baton__arrivals_scatter) is at
       most `mask`. This is true of one in 2^shift epochs. */
    uint32_t mask;
    int shift;
    bool open; /* the epoch `epoch` is timed, and runs */
    /* `epoch` has ended here, but some ranks had not come to it then. It is
       counted later, if they have come by the next timed epoch. */
    bool pending;
    uint64_t epoch; /* the last timed epoch to which this rank has come */
    /* The times at which this rank came to `epoch`, and at which `epoch` ended
       here. */
    uint64_t start_ns, end_ns;
    /* The last timed epoch that has ended here; 0: no timed epoch has ended
       since the last failure. */
    uint64_t before;
    uint64_t before_ns; /* the time at which `before` ended */
    /* The number of epochs that `epoch` represents in the statistics: itself,
       and those since the timed epoch before it. 0: no epoch was timed before
       it since the last failure. */
    uint64_t stands_for;
    uint64_t recorded; /* number of start times stored so far */
    /* By neighbour (state/board.h): the neighbour's slot for this schedule, or
       NULL if it is not known. */
    baton__slot_t *slots[];
};

/* Returns the scattered number of an epoch, of 32 bits: the epoch's number
   times the golden section (Knuth, volume 3, 6.4). Among any 2^n successive
   epochs about one has a scattered number below 2^(32 - n). These epochs have
   no short period. A period could coincide with one of the application, such as
   a validation in every tenth step. */
static inline uint32_t baton__arrivals_scatter(uint64_t epoch)
{
    return (uint32_t)epoch * UINT32_C(0x9e3779b1);
}

/* baton__arrivals_time does the part of baton__arrivals_come that only timed
   epochs need, and baton__arrivals_look that part of baton__arrivals_end. */
void baton__arrivals_time(baton__task_t *task);
void baton__arrivals_look(baton__task_t *task);

/* Called when this rank's application has come to the running epoch. */
static inline void baton__arrivals_come(baton__task_t *task)
{
    struct baton__arrivals *self = task->arrivals;
    if (self == NULL) {
        return;
    }
    uint64_t epoch = task->schedule.run.epoch;
    baton__count_set(BATON__COUNT(self->slot, started), epoch);
    if (baton__arrivals_scatter(epoch) <= self->mask) {
        baton__arrivals_time(task);
    }
}

/* Called when an epoch has retired. */
static inline void baton__arrivals_end(baton__task_t *task)
{
    const struct baton__arrivals *self = task->arrivals;
    if (self == NULL) {
        return;
    }
    baton__count_set(BATON__COUNT(self->slot, ended), task->schedule.run.epoch);
    baton__count_add(BATON__COUNT(self->slot, epochs), 1);
    if (!task->schedule.run.started) {
        baton__count_add(BATON__COUNT(self->slot, missed), 1);
    } else if (self->open) {
        baton__arrivals_look(task);
    }
}

/* Called when a running epoch has failed. */
void baton__arrivals_fail(baton__task_t *task);

/* Returns the bytes that a schedule's arrivals take, a multiple of 8; 0 if its
   group has no board. */
size_t baton__arrivals_bytes(const baton_schedule_t *schedule);

/* Called when a schedule is committed: takes a slot, if one is free. `memory`
   has baton__arrivals_bytes zeros. */
void baton__arrivals_open(baton__task_t *task, void *memory);
/* Called when the schedule is destroyed: gives the slot back. */
void baton__arrivals_close(baton__task_t *task);

/* Called when a group is created: finds the rows of its ranks on this host. If
   the group is no subset of another one, also makes this rank's own row ready.
   Returns false if there is no memory. */
bool baton__arrivals_meet(baton_group_t *group);
