/* Contributions, and the slots of results; see contribution.h. */
#include "coll/partial/contribution.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/float_mode.h"
#include "base/thread.h"

#include <assert.h>
#include <baton/device.h>

#include <string.h>

#define NO_SLOT UINT32_MAX

static void push_free(baton__contribution_t *self, uint32_t slot)
{
    self->free_slots[self->free_count++] = slot;
}

static void exchange(baton__vector_t *left, baton__vector_t *right)
{
    baton__vector_t other = *left;
    *left = *right;
    *right = other;
}

static void exchange_memory(char **left, char **right)
{
    char *other = *left;
    *left = *right;
    *right = other;
}

/* Allocates `slots` slots. If there is no memory, this may return BATON_OK: the
   caller checks self->memory. */
static baton_status_t contribution_allocate(baton__contribution_t *self,
                                            size_t slots)
{
    size_t bytes = self->slot_bytes > 0 ? self->slot_bytes : 1;
    void *memory = NULL;
    baton_status_t status = BATON_OK;
    if (self->engine == NULL) {
        memory = baton__alloc(slots, self->slot_bytes);
    } else if (bytes <= SIZE_MAX / slots) {
        status = baton_device_alloc(self->engine, BATON_MEMORY_DEVICE,
                                    slots * bytes, &memory);
    }
    self->memory = memory;
    return status;
}

/* Returns the number of vectors: `pending` and `taken`; `nothing`, unless
   `sparse` is set; in device memory `carried` and `sum`; and in main memory
   `staged`, if `stages` is set. */
static uint32_t vectors_of(const baton__contribution_t *self)
{
    if (self->sparse) {
        return 2;
    }
    return self->engine != NULL ? 5 : 3u + self->stages;
}

/* Returns the number of slots for results: one for each of the W (`history`)
   results that are kept, one for the pinned result, one for the result of the
   running epoch, and on a device one for the lent result. So an epoch that
   begins always finds a free slot. */
static uint32_t results_of(const baton__contribution_t *self)
{
    return self->history + (self->engine != NULL
                                ? BATON__CONTRIBUTION_DEVICE_RESULTS
                                : BATON__CONTRIBUTION_RESULTS);
}

static void place_vectors(baton__contribution_t *self)
{
    char **const vectors[] = {
        &self->pending.memory, &self->taken.memory, &self->nothing,
        self->stages ? &self->staged.memory : &self->carried, &self->sum};
    uint32_t count = vectors_of(self);
    for (uint32_t i = 0; i < count; i++) {
        *vectors[i] = self->memory + i * self->slot_bytes;
    }
    self->pending.lent = self->loans;
    self->taken.lent = self->loans + self->parts;
    self->staged.lent = self->loans + 2 * self->parts;
    self->results = self->memory + count * self->slot_bytes;
    for (uint32_t i = 0; i < results_of(self); i++) {
        push_free(self, i);
    }
}

baton_status_t baton__contribution_init(baton__contribution_t *self)
{
    uint32_t results = results_of(self);
    size_t slots = vectors_of(self) + (self->sparse ? 0 : (size_t)results);
    self->element_bytes = baton_op_element_bytes(self->op, self->dtype);
    /* Each slot begins on a cache line, as the pool does. */
    self->slot_bytes = (self->slot_bytes + 63) / 64 * 64;
    if (self->parts == 0) {
        self->parts = 1;
        self->begins = self->whole;
        self->whole[1] = self->count;
    }
    self->loans = self->parts <= SIZE_MAX / 3
                      ? baton__alloc(3 * self->parts, sizeof *self->loans)
                      : NULL;
    self->free_slots = baton__alloc(results, sizeof *self->free_slots);
    self->outcomes = baton__alloc(self->history, sizeof *self->outcomes);
    self->pinned = NO_SLOT;
    self->lent = NO_SLOT;
    self->result = NO_SLOT;
    (void)pthread_mutex_init(&self->contribute_lock, NULL);
    (void)pthread_mutex_init(&self->history_lock, NULL);
    baton_status_t status = contribution_allocate(self, slots);
    if (status != BATON_OK) {
        return status;
    }
    if (self->memory == NULL || self->loans == NULL ||
        self->free_slots == NULL || self->outcomes == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for %zu vectors of %zu bytes", slots,
                            self->slot_bytes);
    }
    place_vectors(self);
    if (self->nothing == NULL || self->engine != NULL) {
        return BATON_OK;
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    self->op->identity(self->op->arg, self->nothing, self->count, self->dtype);
    baton__float_mode_leave(mode);
    return BATON_OK;
}

void baton__contribution_fini(baton__contribution_t *self)
{
    (void)pthread_mutex_destroy(&self->contribute_lock);
    (void)pthread_mutex_destroy(&self->history_lock);
    if (self->engine != NULL) {
        baton_device_free(self->engine, BATON_MEMORY_DEVICE, self->memory);
    } else {
        baton__free(self->memory);
    }
    baton__free(self->loans);
    baton__free(self->free_slots);
    baton__free(self->outcomes);
}

void baton__contribution_added(baton__contribution_t *self, uint64_t step)
{
    if (self->first_step == 0) {
        self->first_step = step;
        /* Pairs with the load in oldest_since, as the stores in use_taken
           do. */
        atomic_store_explicit(&self->oldest, self->is_carrying ? 1 : step,
                              memory_order_release);
    }
    self->last_step = step;
}

/* ---- loans -------------------------------------------------------------- */

static size_t part_count(const baton__contribution_t *self, size_t part)
{
    return self->begins[part + 1] - self->begins[part];
}

/* Copies the parts of `from` to their places in the vector at `to`: all parts
   or, if lent_alone, only the lent ones. */
static void copy_parts(const baton__contribution_t *self, char *to,
                       const baton__vector_t *from, bool lent_alone)
{
    for (size_t i = 0; i < self->parts; i++) {
        size_t bytes = part_count(self, i) * self->element_bytes;
        if (bytes > 0 && (!lent_alone || from->lent[i] != NULL)) {
            memcpy(to + self->begins[i] * self->element_bytes,
                   baton__contribution_part(self, from, i), bytes);
        }
    }
}

static void forget_loan(const baton__contribution_t *self,
                        baton__vector_t *vector)
{
    memset((void *)vector->lent, 0, self->parts * sizeof *vector->lent);
}

void baton__contribution_return_loan(const baton__contribution_t *self,
                                     baton__vector_t *vector)
{
    copy_parts(self, vector->memory, vector, true);
    forget_loan(self, vector);
}

/* Sets `pending` to left (op) right. */
static void add_to_pending(baton__contribution_t *self,
                           const baton__vector_t *left,
                           const baton__vector_t *right)
{
    baton__float_mode_t mode = baton__float_mode_enter();
    for (size_t i = 0; i < self->parts; i++) {
        if (part_count(self, i) > 0) {
            self->op->reduce(self->op->arg,
                             self->pending.memory +
                                 self->begins[i] * self->element_bytes,
                             baton__contribution_part(self, left, i),
                             baton__contribution_part(self, right, i),
                             part_count(self, i), self->dtype);
        }
    }
    baton__float_mode_leave(mode);
    forget_loan(self, &self->pending);
}

/* Copies the lent parts of the pending contribution, because a later epoch
   takes it. All epochs up to that of the step have ended on this rank, so they
   no longer need the contributions that they have taken. If one has failed, its
   contribution is copied, too, because recover may make it pending again. */
void baton__contribution_end_loan(baton__contribution_t *self, bool failed)
{
    if (!atomic_load_explicit(&self->lends, memory_order_relaxed)) {
        return;
    }
    (void)pthread_mutex_lock(&self->contribute_lock);
    baton__contribution_return_loan(self, &self->pending);
    /* If the last epoch has published its result, its contribution in `taken`
       is not needed any more. */
    if (failed && self->steps.first != 0 &&
        baton__contribution_is_working(self)) {
        baton__contribution_return_loan(self, &self->taken);
    }
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

/* ---- contributions ------------------------------------------------------ */

void baton__contribution_add(baton__contribution_t *self, const void *data,
                             uint64_t step, bool lent)
{
    const baton__vector_t added = {(char *)(uintptr_t)data, NULL};
    (void)pthread_mutex_lock(&self->contribute_lock);
    if (self->first_step != 0) {
        add_to_pending(self, &self->pending, &added);
    } else if (lent && self->count > 0) {
        for (size_t i = 0; i < self->parts; i++) {
            self->pending.lent[i] =
                (const char *)data + self->begins[i] * self->element_bytes;
        }
        atomic_store_explicit(&self->lends, true, memory_order_relaxed);
    } else {
        copy_parts(self, self->pending.memory, &added, false);
    }
    baton__contribution_added(self, step);
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

void baton__contribution_add_staged(baton__contribution_t *self, uint64_t step)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    if (self->first_step != 0) {
        add_to_pending(self, &self->pending, &self->staged);
        forget_loan(self, &self->staged);
    } else {
        exchange(&self->pending, &self->staged);
    }
    baton__contribution_added(self, step);
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

bool baton__contribution_pending(baton__contribution_t *self, void *data)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    bool any = self->first_step != 0;
    if (any) {
        copy_parts(self, data, &self->pending, false);
    } else {
        self->op->identity(self->op->arg, data, self->count, self->dtype);
    }
    (void)pthread_mutex_unlock(&self->contribute_lock);
    return any;
}

/* Returns true if the application may read the slot, or the slot is being
   copied to it. */
static bool is_read(const baton__contribution_t *self, uint32_t slot)
{
    return slot == self->pinned || slot == self->lent;
}

/* Makes `taken` the source of the epoch. */
static void use_taken(baton__contribution_t *self)
{
    assert(baton__thread_has_locked(&self->contribute_lock));
    self->source = self->taken.memory;
    /* The order of these stores matters: a thread that no longer sees the
       contribution as pending must see it as taken. */
    atomic_store_explicit(&self->oldest_taken, self->steps.first,
                          memory_order_relaxed);
    atomic_store_explicit(&self->oldest, self->first_step,
                          memory_order_release);
}

/* Takes the whole pending contribution; the vector that the last epoch had
   taken becomes `pending`. */
static void take_pending(baton__contribution_t *self)
{
    assert(baton__thread_has_locked(&self->contribute_lock));
    self->steps.first = self->first_step;
    self->steps.last = self->last_step;
    self->steps.in_parts = self->first_step == self->newest_taken;
    self->newest_taken = self->last_step;
    exchange(&self->pending, &self->taken);
    forget_loan(self, &self->pending);
    if (self->taken_for > self->steps.last) {
        /* The epoch is later than the newest step in this contribution. So
           baton_partial_wait for that step may return before the epoch ends,
           and then the application may change the memory that it has lent.
           Therefore the contribution gets a copy of it now. */
        baton__contribution_return_loan(self, &self->taken);
    }
    self->first_step = 0;
    use_taken(self);
}

/* Takes the contribution that was carried over a recovery. The recovery has
   numbered steps anew, so this contribution counts as a part of step 1, as the
   older part of `pending` does. */
static void take_carried(baton__contribution_t *self)
{
    self->steps.first = 1;
    self->steps.last = 1;
    self->newest_taken = 1;
    exchange_memory(&self->carried, &self->taken.memory);
    self->is_carrying = false;
    use_taken(self);
}

/* Returns true if `pending` would be too old for the epoch after this one. Any
   thread may call this. */
static bool is_due(const baton__contribution_t *self, uint64_t epoch)
{
    uint64_t oldest = atomic_load_explicit(&self->oldest, memory_order_relaxed);
    return self->max_staleness != 0 && oldest != 0 &&
           oldest + self->max_staleness <= epoch;
}

void baton__contribution_begin_result(baton__contribution_t *self)
{
    (void)pthread_mutex_lock(&self->history_lock);
    if (self->result == NO_SLOT) {
        self->result = self->free_slots[--self->free_count];
    }
    (void)pthread_mutex_unlock(&self->history_lock);
}

baton__take_t baton__contribution_take(baton__contribution_t *self,
                                       uint64_t epoch)
{
    bool locked = pthread_mutex_trylock(&self->contribute_lock) == 0;
    if (!locked && (self->sparse || is_due(self, epoch))) {
        return BATON__TAKE_LATER;
    }
    baton__contribution_begin_result(self);
    self->steps = (baton__steps_t){0};
    self->taken_for = epoch;
    self->source = self->nothing;
    if (locked) {
        if (!self->busy && self->is_carrying) {
            take_carried(self);
        } else if (!self->busy && self->first_step != 0) {
            take_pending(self);
        }
        (void)pthread_mutex_unlock(&self->contribute_lock);
    }
    if (self->steps.first != 0) {
        return BATON__TAKE_ALL;
    }
    self->steps.waiting =
        atomic_load_explicit(&self->oldest, memory_order_relaxed);
    return BATON__TAKE_NOTHING;
}

bool baton__contribution_is_working(baton__contribution_t *self)
{
    (void)pthread_mutex_lock(&self->history_lock);
    bool working = self->result != NO_SLOT;
    (void)pthread_mutex_unlock(&self->history_lock);
    return working;
}

void baton__contribution_publish(baton__contribution_t *self, uint64_t epoch,
                                 uint32_t active)
{
    (void)pthread_mutex_lock(&self->history_lock);
    baton__outcome_t *outcome = &self->outcomes[epoch % self->history];
    if (outcome->epoch != 0 && !is_read(self, outcome->slot)) {
        push_free(self, outcome->slot);
    }
    *outcome = (baton__outcome_t){.epoch = epoch,
                                  .slot = self->result,
                                  .active = active,
                                  .living = self->living,
                                  .taken = self->steps};
    self->result = NO_SLOT;
    atomic_store_explicit(&self->oldest_taken, 0, memory_order_relaxed);
    self->newest = epoch;
    (void)pthread_mutex_unlock(&self->history_lock);
}

/* Makes the taken contribution pending again: adds it to the pending one, in
   the order of steps, or in device memory keeps it in `carried`. */
static void contribution_give_back(baton__contribution_t *self)
{
    assert(baton__thread_has_locked(&self->contribute_lock));
    if (self->first_step == 0 && !self->busy) {
        exchange(&self->pending, &self->taken);
        self->last_step = self->steps.last;
    } else if (self->engine != NULL) {
        /* `carried` is free, because the failed epoch has taken the
           contribution that it held, if any. */
        exchange_memory(&self->carried, &self->taken.memory);
        self->is_carrying = true;
        atomic_store_explicit(&self->oldest, 1, memory_order_release);
        return;
    } else {
        add_to_pending(self, &self->taken, &self->pending);
        forget_loan(self, &self->taken);
    }
    self->first_step = self->steps.first;
    atomic_store_explicit(&self->oldest, self->first_step,
                          memory_order_release);
}

/* Counts the pending contribution, which is older than step `next`, as a
   contribution to that step. */
static void contribution_renumber(baton__contribution_t *self, uint64_t next)
{
    assert(baton__thread_has_locked(&self->contribute_lock));
    self->newest_taken = 0;
    if (self->first_step != 0) {
        self->first_step = next;
        self->last_step = next;
        atomic_store_explicit(&self->oldest, next, memory_order_release);
    }
}

void baton__contribution_recover(baton__contribution_t *self, uint64_t epoch,
                                 uint64_t next)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    if (self->steps.first != 0 && self->taken_for > epoch) {
        contribution_give_back(self);
        self->newest_taken = self->steps.in_parts ? self->steps.first : 0;
    }
    self->steps = (baton__steps_t){0};
    self->taken_for = 0;
    if (next != 0) {
        baton__contribution_return_loan(self, &self->pending);
        contribution_renumber(self, next);
    }
    (void)pthread_mutex_lock(&self->history_lock);
    atomic_store_explicit(&self->oldest_taken, 0, memory_order_relaxed);
    if (self->result != NO_SLOT) {
        push_free(self, self->result);
        self->result = NO_SLOT;
    }
    for (uint32_t i = 0; next != 0 && i < self->history; i++) {
        baton__outcome_t *outcome = &self->outcomes[i];
        if (outcome->epoch < next) {
            continue;
        }
        if (!is_read(self, outcome->slot)) {
            push_free(self, outcome->slot);
        }
        outcome->epoch = 0;
    }
    self->newest = next != 0 ? next - 1 : epoch;
    (void)pthread_mutex_unlock(&self->history_lock);
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

static bool in_history(const baton__contribution_t *self, uint32_t slot)
{
    for (uint32_t i = 0; i < self->history; i++) {
        if (self->outcomes[i].epoch != 0 && self->outcomes[i].slot == slot) {
            return true;
        }
    }
    return false;
}

static uint64_t earlier(uint64_t step, uint64_t other)
{
    return step == 0 || (other != 0 && other < step) ? other : step;
}

/* Returns the oldest step whose contribution no epoch up to `epoch` has taken:
   the contribution is pending, or a later epoch has taken it by now. Returns 0
   if there is no such step. */
static uint64_t oldest_since(const baton__contribution_t *self, uint64_t epoch)
{
    assert(baton__thread_has_locked(&self->history_lock));
    uint64_t step = atomic_load_explicit(&self->oldest, memory_order_acquire);
    step = earlier(
        step, atomic_load_explicit(&self->oldest_taken, memory_order_relaxed));
    for (uint32_t i = 0; i < self->history; i++) {
        if (self->outcomes[i].epoch > epoch) {
            step = earlier(step, self->outcomes[i].taken.first);
        }
    }
    return step;
}

/* Returns true if the epoch took all that was contributed for `step`, which has
   ended. Otherwise a part may be pending, or another epoch has taken a part. */
static bool includes(const baton__contribution_t *self,
                     const baton__outcome_t *outcome, uint64_t step)
{
    assert(baton__thread_has_locked(&self->history_lock));
    const baton__steps_t *taken = &outcome->taken;
    uint64_t left = oldest_since(self, outcome->epoch);
    return taken->first != 0 && taken->first <= step && step <= taken->last &&
           (left == 0 || left > step) &&
           !(taken->in_parts && taken->first == step);
}

static void contribution_describe(const baton__contribution_t *self,
                                  const baton__outcome_t *outcome,
                                  uint64_t step, baton_partial_result_t *out)
{
    const baton__steps_t *taken = &outcome->taken;
    uint64_t oldest = taken->first;
    if (oldest == 0) {
        oldest = taken->waiting != 0 ? taken->waiting
                                     : oldest_since(self, outcome->epoch);
    }
    *out = (baton_partial_result_t){
        .epoch = outcome->epoch,
        .data = baton__contribution_result(self, outcome->slot),
        .included = includes(self, outcome, step),
        .active = outcome->active,
        .living = outcome->living,
        .staleness = oldest != 0 && oldest < outcome->epoch
                         ? outcome->epoch - oldest
                         : 0,
    };
}

/* Returns the result of `epoch`, or the newest one if `epoch` is 0. Returns
   NULL if the result is not in the history. */
static const baton__outcome_t *
contribution_find(const baton__contribution_t *self, uint64_t epoch)
{
    assert(baton__thread_has_locked(&self->history_lock));
    uint64_t wanted = epoch != 0 ? epoch : self->newest;
    const baton__outcome_t *outcome = &self->outcomes[wanted % self->history];
    return wanted != 0 && outcome->epoch == wanted ? outcome : NULL;
}

uint64_t baton__contribution_newest(baton__contribution_t *self,
                                    uint32_t *active_out)
{
    (void)pthread_mutex_lock(&self->history_lock);
    uint64_t newest = self->newest;
    if (active_out != NULL && contribution_find(self, 0) != NULL) {
        *active_out = contribution_find(self, 0)->active;
    }
    (void)pthread_mutex_unlock(&self->history_lock);
    return newest;
}

char *baton__contribution_hand_over(baton__contribution_t *self, bool has)
{
    baton__contribution_begin_result(self);
    (void)pthread_mutex_lock(&self->history_lock);
    const baton__outcome_t *newest = has ? contribution_find(self, 0) : NULL;
    char *result = baton__contribution_result(self, self->result);
    if (newest != NULL) {
        memcpy(result, baton__contribution_result(self, newest->slot),
               self->slot_bytes);
    } else {
        memset(result, 0, self->slot_bytes);
    }
    (void)pthread_mutex_unlock(&self->history_lock);
    return result;
}

/* Moves a reader (self->pinned or self->lent) from its slot of results to
   another one, or to NO_SLOT. Frees the slot that it leaves, unless the other
   reader or the history still uses that slot. */
static void read_slot(baton__contribution_t *self, uint32_t *reader,
                      uint32_t slot)
{
    assert(baton__thread_has_locked(&self->history_lock));
    uint32_t before = *reader;
    *reader = slot;
    if (before != NO_SLOT && !is_read(self, before) &&
        !in_history(self, before)) {
        push_free(self, before);
    }
}

bool baton__contribution_pin(baton__contribution_t *self, uint64_t epoch,
                             uint64_t step, baton_partial_result_t *out)
{
    (void)pthread_mutex_lock(&self->history_lock);
    const baton__outcome_t *outcome = contribution_find(self, epoch);
    if (outcome != NULL) {
        read_slot(self, &self->pinned, outcome->slot);
        contribution_describe(self, outcome, step, out);
    }
    (void)pthread_mutex_unlock(&self->history_lock);
    return outcome != NULL;
}

/* ---- in device memory -------------------------------------------------- */

char *baton__contribution_lend(baton__contribution_t *self, uint64_t epoch,
                               bool newest)
{
    (void)pthread_mutex_lock(&self->history_lock);
    bool later = newest && self->newest > epoch;
    const baton__outcome_t *outcome =
        contribution_find(self, later ? self->newest : epoch);
    read_slot(self, &self->lent, outcome != NULL ? outcome->slot : NO_SLOT);
    (void)pthread_mutex_unlock(&self->history_lock);
    return outcome != NULL ? baton__contribution_result(self, outcome->slot)
                           : NULL;
}

void baton__contribution_begin_use(baton__contribution_t *self,
                                   char **carried_out, char **pending_out)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    self->busy = true;
    *carried_out = self->is_carrying ? self->carried : NULL;
    *pending_out = self->first_step != 0 ? self->pending.memory : NULL;
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

void baton__contribution_end_add(baton__contribution_t *self, uint64_t step)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    exchange_memory(&self->pending.memory, &self->sum);
    self->busy = false;
    baton__contribution_added(self, step);
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

void baton__contribution_end_use(baton__contribution_t *self)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    self->busy = false;
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

bool baton__contribution_is_busy(baton__contribution_t *self)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    bool busy = self->busy;
    (void)pthread_mutex_unlock(&self->contribute_lock);
    return busy;
}
