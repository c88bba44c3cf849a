/* When ranks come to the epochs of a schedule, and which of them is late; for
   baton/lateness.h, which says what is counted. */
#pragma once

#include "progress/state/board.h"
#include "progress/state/stepper.h"

/* What a rank knows of its own coming. The driver alone uses this. */
struct baton__arrivals {
    baton__row_t *row;   /* this rank's */
    baton__slot_t *slot; /* in that row */
    /* The epochs are timed whose scattered number is at most this: one of
       2^shift. */
    uint32_t mask;
    int shift;
    bool open; /* the epoch `epoch` is timed, and runs */
    /* `epoch` has ended, and not all ranks had come then. */
    bool pending;
    uint64_t epoch; /* the last timed epoch */
    uint64_t start_ns, end_ns;
    /* The last timed epoch before that; 0: none since the last failure. */
    uint64_t before;
    uint64_t before_ns; /* when it ended */
    /* The number of epochs since then, `epoch` included; 0: none since the last
       failure. */
    uint64_t stands_for;
    uint64_t recorded; /* number of start times that were stored */
    /* By neighbour (member.h): the neighbour's slot for this schedule, or NULL
       if it is unknown. */
    baton__slot_t *slots[];
};

/* Scatters the numbers of epochs over 32 bits, so evenly that among any 2^n
   successive epochs about one is below 2^(32 - n), and in no short period,
   which an application may have as well (Knuth, volume 3, 6.4: multiplication
   by the golden section). */
static inline uint32_t baton__arrivals_scatter(uint64_t epoch)
{
    return (uint32_t)epoch * UINT32_C(0x9e3779b1);
}

/* Parts of the two functions below that only timed epochs need. */
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
/* Called when it is destroyed: gives the slot back. */
void baton__arrivals_close(baton__task_t *task);

/* Called when a group is created: finds the rows of its ranks. The row of a
   root's own rank is made ready. Returns false if there is no memory. */
bool baton__arrivals_meet(baton_group_t *group);
