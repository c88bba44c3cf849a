/* How a rank learns how late it is. baton/lateness.h says what is counted, and
   state/board.h has the layout of the shared memory in which it is stored.

   When a rank comes to a timed epoch, it stores the time in its slot. When the
   epoch ends on the rank, it reads the times of the other ranks of its host,
   one cache line of each. In most collectives all ranks have come by then,
   since each rank needs data of all others. In some an epoch may end on a rank
   before others have come, as at the root of a broadcast. Then the rank reads
   the times once more when it comes to the next timed epoch. If a rank has
   still not come by then, the epoch is not counted.

   All ranks must time the same epochs without asking each other. So a rank
   times the epochs whose scattered number is at most a bound, `mask`. It
   adjusts the bound so that one epoch is timed about every BATON_LATENESS_NS
   times the number of the host's ranks, or every epoch if epochs are slower. If
   the bounds of two ranks differ for a moment, the epochs that the rank with
   the lower bound times are among those that the other rank times. */
#include "progress/epoch/arrivals.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* At least one of 2^MOST_SHIFT epochs is timed. */
    MOST_SHIFT = 16,
    /* The most by which `shift` grows at a time. A growth of 2 divides the
       share of timed epochs by four. */
    STEP = 2,
    TIME_BITS = BATON_LATENESS_TIME_BITS
};

typedef struct baton__arrivals arrivals_t;

/* ---- start times --------------------------------------------------------- */

/* Returns the upper bits of an epoch's start times, by which ranks recognise
   the epoch. Successive epochs have different marks. Epochs of other schedules,
   and of the same schedule before a recovery, nearly always have different
   marks, too: if a slot belongs to another schedule by now, its words match by
   accident once in a million. */
static uint64_t mark_of(const baton__task_t *task, uint64_t epoch)
{
    uint64_t salt =
        (baton__task_key(task) + task->schedule.group->incarnation) *
        UINT64_C(0x9e3779b97f4a7c15);
    return (epoch + (salt >> 32)) << TIME_BITS;
}

static uint64_t start_word(uint64_t mark, uint64_t now_ns)
{
    return mark | (now_ns & ((UINT64_C(1) << TIME_BITS) - 1));
}

/* Stores how long after `start`, a result of start_word, the slot's rank came
   to the same epoch. Returns false if the slot has no start time of that
   epoch. */
static bool arrived_after(const baton__slot_t *slot, uint64_t start,
                          int64_t *after_out)
{
    for (size_t i = 0; i < BATON_LATENESS_CAME; i++) {
        uint64_t word =
            atomic_load_explicit(&slot->starts[i], memory_order_relaxed);
        if (word != 0 && (word ^ start) >> TIME_BITS == 0) {
            *after_out = (int64_t)((word - start) << (64 - TIME_BITS)) /
                         (INT64_C(1) << (64 - TIME_BITS));
            return true;
        }
    }
    return false;
}

/* ---- counting ------------------------------------------------------------ */

static size_t arrivals_bin_of(uint64_t ns)
{
    size_t bin = 0;
    for (uint64_t us = ns / 1000; us > 0 && bin < BATON_LATENESS_BINS - 1;
         us /= 2) {
        bin++;
    }
    return bin;
}

/* Counts the timed epoch. first_ns and last_ns are the times from this rank's
   coming to that of the first and of the last of the other ranks; a rank that
   came before this one has a negative time. `alone` means that there are no
   other ranks. */
static void count_epoch(const arrivals_t *self, bool alone, int64_t first_ns,
                        int64_t last_ns)
{
    baton__slot_t *slot = self->slot;
    uint64_t took_ns = self->end_ns - self->start_ns;
    uint64_t late_ns = first_ns < 0 ? (uint64_t)-first_ns : 0;
    uint64_t waited_ns = last_ns > 0 ? (uint64_t)last_ns : 0;
    if (waited_ns <= took_ns) {
        size_t bin = arrivals_bin_of(took_ns - waited_ns);
        baton__count_add(BATON__COUNT(slot, own_bins) + bin, 1);
    } else { /* the epoch ended here before the last rank came */
        waited_ns = took_ns;
    }
    if (!alone && last_ns < 0) {
        baton__count_add(BATON__COUNT(slot, last), 1);
        baton__count_add(BATON__COUNT(slot, behind_ns), (uint64_t)-last_ns);
    }
    baton__count_add(BATON__COUNT(slot, timed), 1);
    baton__count_add(BATON__COUNT(slot, elapsed_epochs), self->stands_for);
    baton__count_add(BATON__COUNT(slot, took_ns), took_ns);
    baton__count_add(BATON__COUNT(slot, waited_ns), waited_ns);
    baton__count_add(BATON__COUNT(slot, late_ns), late_ns);
    baton__count_add(BATON__COUNT(slot, late_bins) + arrivals_bin_of(late_ns),
                     1);
}

/* Counts the timed epoch, which has ended here, if all ranks of this host that
   have committed the schedule have come to the epoch. Lost ranks are ignored.
   Returns true if the epoch was counted. */
static bool count_if_complete(baton__task_t *task)
{
    arrivals_t *self = task->arrivals;
    const baton_group_t *group = task->schedule.group;
    const baton__member_t *member = baton__member_of(group);
    const uint64_t start =
        start_word(mark_of(task, self->epoch), self->start_ns);
    bool alone = true;
    int64_t first_ns = INT64_MAX;
    int64_t last_ns = INT64_MIN;
    for (uint32_t i = 0; i < member->neighbour_count; i++) {
        const baton__neighbour_t *of = &member->neighbours[i];
        int64_t after_ns;
        if (of->rank == group->rank ||
            (baton__member_has_lost(member) &&
             baton__group_loss(group, of->rank) != NULL)) {
            continue;
        }
        if (self->slots[i] == NULL) {
            self->slots[i] = baton__row_find(of->row, baton__task_key(task));
        }
        if (self->slots[i] == NULL) {
            continue; /* it has no slot for the schedule yet */
        }
        if (!arrived_after(self->slots[i], start, &after_ns)) {
            self->slots[i] = NULL; /* the slot may be another schedule's now */
            return false;
        }
        alone = false;
        first_ns = after_ns < first_ns ? after_ns : first_ns;
        last_ns = after_ns > last_ns ? after_ns : last_ns;
    }
    count_epoch(self, alone, first_ns, last_ns);
    return true;
}

/* ---- timed epochs -------------------------------------------------------- */

/* Chooses the share of the next epochs that is timed. `spent_ns` is the time
   from the end of the timed epoch before to the end of this one, and `epochs`
   the number of epochs in that time. (The time between the starts of the two
   epochs would depend on how late this rank was.) A single short interval
   proves little, so the share falls in small steps. */
static void choose_shift(arrivals_t *self, uint64_t epochs, uint64_t spent_ns,
                         uint32_t neighbours)
{
    const uint64_t wanted_ns = (uint64_t)BATON_LATENESS_NS * neighbours;
    const int most =
        self->shift + STEP < MOST_SHIFT ? self->shift + STEP : MOST_SHIFT;
    int shift = 0;
    while (shift < most && spent_ns << shift < wanted_ns * epochs) {
        shift++;
    }
    self->shift = shift;
    self->mask = UINT32_MAX >> shift;
}

void baton__arrivals_time(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    arrivals_t *self = task->arrivals;
    baton__slot_t *slot = self->slot;
    const uint64_t epoch = task->schedule.run.epoch;
    const uint64_t now_ns = baton__clock_ns();
    atomic_store_explicit(&slot->starts[self->recorded++ % BATON_LATENESS_CAME],
                          start_word(mark_of(task, epoch), now_ns),
                          memory_order_relaxed);
    if (self->pending) {
        (void)count_if_complete(task);
    }
    self->epoch = epoch;
    self->start_ns = now_ns;
    self->open = true;
    self->pending = false;
}

void baton__arrivals_look(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    arrivals_t *self = task->arrivals;
    baton__slot_t *slot = self->slot;
    self->end_ns = baton__clock_ns();
    self->open = false;
    self->stands_for = self->before != 0 ? self->epoch - self->before : 0;
    self->pending = !count_if_complete(task);
    if (self->before != 0) {
        const uint64_t spent_ns = self->end_ns - self->before_ns;
        baton__count_add(BATON__COUNT(slot, elapsed_ns), spent_ns);
        choose_shift(self, self->stands_for, spent_ns,
                     baton__member_of(task->schedule.group)->neighbour_count);
    }
    self->before = self->epoch;
    self->before_ns = self->end_ns;
    baton__count_set(
        BATON__COUNT(slot, bytes),
        atomic_load_explicit(&task->sent_bytes, memory_order_relaxed));
}

void baton__arrivals_fail(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    arrivals_t *self = task->arrivals;
    if (self != NULL) {
        /* After a recovery epochs are numbered from 1 again. */
        self->open = self->pending = false;
        self->before = 0;
        baton__count_add(BATON__COUNT(self->slot, epochs), 1);
        baton__count_add(BATON__COUNT(self->slot, failed), 1);
        baton__count_set(BATON__COUNT(self->slot, ended),
                         task->schedule.run.epoch);
    }
}

/* ---- slots and rows ------------------------------------------------------ */

size_t baton__arrivals_bytes(const baton_schedule_t *schedule)
{
    uint32_t count = baton__member_of(schedule->group)->neighbour_count;
    return count == 0 ? 0
                      : sizeof(arrivals_t) + count * sizeof(baton__slot_t *);
}

void baton__arrivals_open(baton__task_t *task, void *memory)
{
    assert(baton__driven_here(task->schedule.group));
    const baton_group_t *group = task->schedule.group;
    baton__row_t *row = baton__member_row(group, group->rank);
    baton__slot_t *slot = row != NULL ? baton__row_find(row, 0) : NULL;
    if (slot == NULL) {
        return;
    }
    for (size_t i = 0; i < BATON_LATENESS_CAME; i++) {
        baton__count_set(&slot->starts[i], 0);
    }
    for (size_t i = 0; i < BATON__BOARD_COUNTS; i++) {
        baton__count_set(&slot->counts[i], 0);
    }
    baton__count_set(&slot->channel, group->channel);
    slot->rank = group->rank;
    slot->size = group->size;
    (void)snprintf(slot->name, sizeof slot->name, "%s", task->schedule.name);
    task->arrivals = memory;
    task->arrivals->row = row;
    task->arrivals->slot = slot;
    task->arrivals->mask = UINT32_MAX;
    /* Pairs with the load in baton__row_find. */
    atomic_store_explicit(&row->keys[slot - row->slots], baton__task_key(task),
                          memory_order_release);
}

void baton__arrivals_close(baton__task_t *task)
{
    assert(baton__driven_here(task->schedule.group));
    const arrivals_t *self = task->arrivals;
    if (self != NULL) {
        atomic_store_explicit(&self->row->keys[self->slot - self->row->slots],
                              0, memory_order_release);
    }
    task->arrivals = NULL;
}

/* Fills in this rank's row of a board with `rows` rows, and marks it as
   ready. */
static void make_row(baton__row_t *row, uint32_t rows)
{
    for (size_t i = 0; i < BATON__BOARD_SLOTS; i++) {
        baton__count_set(&row->keys[i], 0);
    }
    row->format = BATON__BOARD_FORMAT;
    row->rows = (int32_t)rows;
    row->process = (int32_t)getpid();
    struct stat pids = {0};
    (void)stat("/proc/self/ns/pid", &pids);
    row->container = (uint32_t)pids.st_ino;
    /* Pairs with the load in baton_board_next. */
    atomic_store_explicit(&row->magic, BATON__BOARD_MAGIC,
                          memory_order_release);
}

bool baton__arrivals_meet(baton_group_t *group)
{
    baton__member_t *member = baton__member_of(group);
    const baton_transport_t *transport = group->transport;
    if (transport->board == NULL) {
        return true;
    }
    uint32_t count = 0;
    for (int i = 0; i < group->size; i++) {
        count += transport->board(group->endpoint, i) != NULL;
    }
    member->neighbours = baton__alloc(count, sizeof *member->neighbours);
    if (member->neighbours == NULL) {
        return count == 0;
    }
    for (int i = 0; i < group->size; i++) {
        baton__row_t *row = transport->board(group->endpoint, i);
        if (row != NULL) {
            member->neighbours[member->neighbour_count++] =
                (baton__neighbour_t){i, row};
        }
        if (row != NULL && i == group->rank && group->root == NULL) {
            make_row(row, count);
        }
    }
    return true;
}
