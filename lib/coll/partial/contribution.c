/* Slots and their owners; see contribution.h. */
#include "coll/partial/contribution.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/float_mode.h"

#include <baton/device.h>

#include <string.h>

#define NO_SLOT UINT32_MAX

static char *slot_memory(const baton__contribution_t *self, uint32_t slot)
{
    return baton__contribution_memory(self, slot);
}

/* There are as many slots as owners can hold at once, so one is always free
   here: W results, one pinned, one pending, one taken, one that is being made,
   and the identity; on a device one carried over, one that is added into, and
   one lent.
 */
static uint32_t pop_free(baton__contribution_t *self)
{
    return self->free_slots[--self->free_count];
}

static void push_free(baton__contribution_t *self, uint32_t slot)
{
    self->free_slots[self->free_count++] = slot;
}

/* On the host the caller looks whether there is memory. */
static baton_status_t allocate_slots(baton__contribution_t *self,
                                     uint32_t slots)
{
    if (self->engine == NULL) {
        self->memory = baton__alloc(slots, self->slot_bytes);
        return BATON_OK;
    }
    void *memory = NULL;
    if (self->slot_bytes > SIZE_MAX / slots) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for %u vectors of %zu bytes", slots,
                            self->slot_bytes);
    }
    size_t bytes = slots * self->slot_bytes;
    baton_status_t status = baton_device_alloc(
        self->engine, BATON_MEMORY_DEVICE, bytes > 0 ? bytes : 1, &memory);
    self->memory = memory;
    return status;
}

/* The bound of KEEP_ALL is the history, which max_staleness does not exceed. */
static uint32_t bound_of(const baton_partial_options_t *options)
{
    return options->keep == BATON_KEEP_ALL && options->max_staleness == 0
               ? options->history
               : options->max_staleness;
}

baton_status_t baton__contribution_init(baton__contribution_t *self,
                                        const baton_partial_options_t *options,
                                        baton_engine_t *engine, size_t count,
                                        size_t extra_bytes)
{
    size_t element_bytes = baton_op_element_bytes(options->op, options->dtype);
    size_t results = count > 0 ? options->result_count : 0;
    size_t data_bytes = (results > count ? results : count) * element_bytes;
    uint32_t slots =
        options->history + (engine != NULL ? BATON__CONTRIBUTION_DEVICE_SLOTS
                                           : BATON__CONTRIBUTION_SLOTS);
    *self = (baton__contribution_t){
        .count = count,
        /* Each slot begins on a cache line, as the pool does. */
        .slot_bytes = (data_bytes + extra_bytes + 63) / 64 * 64,
        .element_bytes = element_bytes,
        .dtype = options->dtype,
        .op = options->op,
        .history = options->history,
        .max_staleness = bound_of(options),
        .free_slots = baton__alloc(slots, sizeof *self->free_slots),
        .outcomes = baton__alloc(options->history, sizeof *self->outcomes),
        .engine = engine,
        .carried = NO_SLOT,
        .sum = NO_SLOT,
        .pinned = NO_SLOT,
        .lent = NO_SLOT,
        .source = NO_SLOT,
        .result = NO_SLOT,
    };
    (void)pthread_mutex_init(&self->contribute_lock, NULL);
    (void)pthread_mutex_init(&self->history_lock, NULL);
    baton_status_t status = allocate_slots(self, slots);
    if (status != BATON_OK) {
        return baton__error(status, "partial \"%s\": %s", options->name,
                            baton_error_message());
    }
    if (self->memory == NULL || self->free_slots == NULL ||
        self->outcomes == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "partial \"%s\": no memory for %u vectors of %zu "
                            "bytes",
                            options->name, slots, self->slot_bytes);
    }
    for (uint32_t i = 0; i < slots; i++) {
        push_free(self, i);
    }
    self->pending = pop_free(self);
    self->nothing = pop_free(self);
    if (engine != NULL) {
        return BATON_OK;
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    self->op->identity(self->op->arg, slot_memory(self, self->nothing), count,
                       self->dtype);
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
    baton__free(self->free_slots);
    baton__free(self->outcomes);
}

void baton__contribution_add(baton__contribution_t *self, const void *data,
                             uint64_t step)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    char *pending = slot_memory(self, self->pending);
    if (self->first_step == 0) {
        if (self->count > 0) {
            memcpy(pending, data, self->count * self->element_bytes);
        }
        self->first_step = step;
        /* Pairs with the load in oldest_since(), as take's stores do. */
        atomic_store_explicit(&self->oldest, step, memory_order_release);
    } else if (self->count > 0) {
        baton__float_mode_t mode = baton__float_mode_enter();
        self->op->reduce(self->op->arg, pending, pending, data, self->count,
                         self->dtype);
        baton__float_mode_leave(mode);
    }
    self->last_step = step;
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

bool baton__contribution_pending(baton__contribution_t *self, void *data)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    bool any = self->first_step != 0;
    if (any && self->count > 0) {
        memcpy(data, slot_memory(self, self->pending),
               self->count * self->element_bytes);
    } else if (!any) {
        self->op->identity(self->op->arg, data, self->count, self->dtype);
    }
    (void)pthread_mutex_unlock(&self->contribute_lock);
    return any;
}

/* What was taken is nobody's any more. The history lock is held. */
static void free_source(baton__contribution_t *self)
{
    if (self->source != NO_SLOT && self->source != self->nothing) {
        push_free(self, self->source);
    }
    self->source = NO_SLOT;
}

/* Whether the application reads the slot. The history lock is held. */
static bool is_read(const baton__contribution_t *self, uint32_t slot)
{
    return slot == self->pinned || slot == self->lent;
}

static uint32_t locked_pop(baton__contribution_t *self)
{
    (void)pthread_mutex_lock(&self->history_lock);
    uint32_t slot = pop_free(self);
    (void)pthread_mutex_unlock(&self->history_lock);
    return slot;
}

static void locked_push(baton__contribution_t *self, uint32_t slot)
{
    (void)pthread_mutex_lock(&self->history_lock);
    push_free(self, slot);
    (void)pthread_mutex_unlock(&self->history_lock);
}

/* Takes the whole of what is pending; `fresh`, an empty slot, takes its place.
   The contribute lock is held. */
static bool take_pending(baton__contribution_t *self, uint32_t *fresh)
{
    if (self->first_step == 0) {
        return false;
    }
    self->taken.first_step = self->first_step;
    self->taken.last_step = self->last_step;
    self->taken.in_parts = self->first_step == self->newest_taken;
    self->newest_taken = self->last_step;
    self->source = self->pending;
    self->pending = *fresh;
    *fresh = NO_SLOT;
    /* In this order: a thread that no longer sees it pending sees it taken. */
    atomic_store_explicit(&self->oldest_taken, self->first_step,
                          memory_order_relaxed);
    atomic_store_explicit(&self->oldest, 0, memory_order_release);
    self->first_step = 0;
    return true;
}

/* Takes what was carried over: steps are numbered anew, and it is of before the
   first, as what is pending is in part, if anything is. */
static bool take_carried(baton__contribution_t *self)
{
    self->taken.first_step = 1;
    self->taken.last_step = 1;
    self->newest_taken = 1;
    self->source = self->carried;
    self->carried = NO_SLOT;
    /* In this order, as in take_pending(). */
    atomic_store_explicit(&self->oldest_taken, 1, memory_order_relaxed);
    atomic_store_explicit(&self->oldest, self->first_step,
                          memory_order_release);
    return true;
}

/* Whether what is pending would be too old for the epoch after this one. Any
   thread. */
static bool is_due(const baton__contribution_t *self, uint64_t epoch)
{
    uint64_t oldest = atomic_load_explicit(&self->oldest, memory_order_relaxed);
    return self->max_staleness != 0 && oldest != 0 &&
           oldest + self->max_staleness <= epoch;
}

/* What the last epoch has left. */
static void clean_up(baton__contribution_t *self)
{
    /* Kept until here: the last epoch may have failed behind its publish. */
    (void)pthread_mutex_lock(&self->history_lock);
    free_source(self);
    if (self->result != NO_SLOT) { /* it failed before */
        push_free(self, self->result);
        self->result = NO_SLOT;
    }
    (void)pthread_mutex_unlock(&self->history_lock);
}

baton__take_t baton__contribution_take(baton__contribution_t *self,
                                       uint64_t epoch)
{
    bool locked = pthread_mutex_trylock(&self->contribute_lock) == 0;
    if (!locked && is_due(self, epoch)) {
        return BATON__TAKE_LATER;
    }
    clean_up(self);
    uint32_t fresh = locked_pop(self);
    bool active = false;
    self->taken = (baton__taken_t){0};
    self->taken_for = epoch;
    self->source = self->nothing;
    if (locked) {
        active = !self->busy &&
                 (self->carried != NO_SLOT ? take_carried(self)
                                           : take_pending(self, &fresh));
        (void)pthread_mutex_unlock(&self->contribute_lock);
    }
    if (!active) {
        self->taken.waiting =
            atomic_load_explicit(&self->oldest, memory_order_relaxed);
    }
    if (fresh != NO_SLOT) {
        locked_push(self, fresh);
    }
    self->result = locked_pop(self);
    return active ? BATON__TAKE_ALL : BATON__TAKE_NOTHING;
}

void baton__contribution_publish(baton__contribution_t *self, uint64_t epoch,
                                 uint32_t active)
{
    (void)pthread_mutex_lock(&self->history_lock);
    baton__outcome_t *outcome = &self->outcomes[epoch % self->history];
    if (outcome->epoch != 0 && !is_read(self, outcome->slot)) {
        push_free(self, outcome->slot);
    }
    *outcome = (baton__outcome_t){epoch, self->result, active, self->taken};
    self->result = NO_SLOT;
    atomic_store_explicit(&self->oldest_taken, 0, memory_order_relaxed);
    self->newest = epoch;
    (void)pthread_mutex_unlock(&self->history_lock);
}

/* Gives what was taken back to what is pending, in the order of steps. The
   contribute lock is held. */
static void give_back(baton__contribution_t *self)
{
    char *taken = slot_memory(self, self->source);
    if (self->first_step == 0 && !self->busy) {
        uint32_t empty = self->pending;
        self->pending = self->source;
        self->source = empty; /* to be freed */
        self->last_step = self->taken.last_step;
    } else if (self->engine != NULL) {
        /* The epoch has taken what was carried over before, or nothing was. */
        self->carried = self->source;
        self->source = NO_SLOT;
        atomic_store_explicit(&self->oldest, 1, memory_order_release);
        return;
    } else if (self->count > 0) {
        char *pending = slot_memory(self, self->pending);
        baton__float_mode_t mode = baton__float_mode_enter();
        self->op->reduce(self->op->arg, pending, taken, pending, self->count,
                         self->dtype);
        baton__float_mode_leave(mode);
    }
    self->first_step = self->taken.first_step;
    atomic_store_explicit(&self->oldest, self->first_step,
                          memory_order_release);
}

/* Steps are numbered from 1 again: what is pending is from before the first. */
static void renumber(baton__contribution_t *self)
{
    self->newest_taken = 0;
    if (self->first_step != 0) {
        self->first_step = 1;
        self->last_step = 1;
        atomic_store_explicit(&self->oldest, 1, memory_order_release);
    }
}

void baton__contribution_recover(baton__contribution_t *self, uint64_t epoch)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    bool holds = self->source != NO_SLOT && self->source != self->nothing;
    if (holds && self->taken_for > epoch) {
        give_back(self);
    }
    renumber(self);
    (void)pthread_mutex_lock(&self->history_lock);
    free_source(self);
    atomic_store_explicit(&self->oldest_taken, 0, memory_order_relaxed);
    if (self->result != NO_SLOT) {
        push_free(self, self->result);
        self->result = NO_SLOT;
    }
    for (uint32_t i = 0; i < self->history; i++) {
        baton__outcome_t *outcome = &self->outcomes[i];
        if (outcome->epoch != 0 && !is_read(self, outcome->slot)) {
            push_free(self, outcome->slot);
        }
        outcome->epoch = 0;
    }
    self->newest = 0;
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

/* The oldest step of what no epoch up to this one has taken; it may be pending,
   or be taken by a later epoch by now. The lock is held. */
static uint64_t oldest_since(const baton__contribution_t *self, uint64_t epoch)
{
    uint64_t step = atomic_load_explicit(&self->oldest, memory_order_acquire);
    step = earlier(
        step, atomic_load_explicit(&self->oldest_taken, memory_order_relaxed));
    for (uint32_t i = 0; i < self->history; i++) {
        if (self->outcomes[i].epoch > epoch) {
            step = earlier(step, self->outcomes[i].taken.first_step);
        }
    }
    return step;
}

/* Whether the epoch took all that was contributed for `step`, which is over:
   more may be pending, or be taken by another epoch. The lock is held. */
static bool includes(const baton__contribution_t *self,
                     const baton__outcome_t *outcome, uint64_t step)
{
    const baton__taken_t *taken = &outcome->taken;
    uint64_t left = oldest_since(self, outcome->epoch);
    return taken->first_step != 0 && taken->first_step <= step &&
           step <= taken->last_step && (left == 0 || left > step) &&
           !(taken->in_parts && taken->first_step == step);
}

static void describe(const baton__contribution_t *self,
                     const baton__outcome_t *outcome, uint64_t step,
                     baton_partial_result_t *out)
{
    const baton__taken_t *taken = &outcome->taken;
    uint64_t oldest = taken->first_step;
    if (oldest == 0) {
        oldest = taken->waiting != 0 ? taken->waiting
                                     : oldest_since(self, outcome->epoch);
    }
    *out = (baton_partial_result_t){
        .epoch = outcome->epoch,
        .data = slot_memory(self, outcome->slot),
        .included = includes(self, outcome, step),
        .active = outcome->active,
        .staleness = oldest != 0 && oldest < outcome->epoch
                         ? outcome->epoch - oldest
                         : 0,
    };
}

/* The result of `epoch`, or the newest for 0; NULL when it is not there. The
   lock is held. */
static const baton__outcome_t *find(const baton__contribution_t *self,
                                    uint64_t epoch)
{
    uint64_t wanted = epoch != 0 ? epoch : self->newest;
    const baton__outcome_t *outcome = &self->outcomes[wanted % self->history];
    return wanted != 0 && outcome->epoch == wanted ? outcome : NULL;
}

/* A reader goes on to another slot, or to none. The lock is held. */
static void read_slot(baton__contribution_t *self, uint32_t *reader,
                      uint32_t slot)
{
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
    const baton__outcome_t *outcome = find(self, epoch);
    if (outcome != NULL) {
        read_slot(self, &self->pinned, outcome->slot);
        describe(self, outcome, step, out);
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
    const baton__outcome_t *outcome = find(self, later ? self->newest : epoch);
    read_slot(self, &self->lent, outcome != NULL ? outcome->slot : NO_SLOT);
    (void)pthread_mutex_unlock(&self->history_lock);
    return outcome != NULL ? slot_memory(self, outcome->slot) : NULL;
}

void baton__contribution_begin_add(baton__contribution_t *self,
                                   char **pending_out, char **sum_out)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    if (self->sum == NO_SLOT) { /* else the last addition failed */
        self->sum = locked_pop(self);
    }
    self->busy = true;
    *pending_out =
        self->first_step != 0 ? slot_memory(self, self->pending) : NULL;
    *sum_out = slot_memory(self, self->sum);
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

void baton__contribution_end_add(baton__contribution_t *self, uint64_t step)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    locked_push(self, self->pending);
    self->pending = self->sum;
    self->sum = NO_SLOT;
    self->busy = false;
    if (self->first_step == 0) {
        self->first_step = step;
        uint64_t oldest = self->carried != NO_SLOT ? 1 : step;
        atomic_store_explicit(&self->oldest, oldest, memory_order_release);
    }
    self->last_step = step;
    (void)pthread_mutex_unlock(&self->contribute_lock);
}

void baton__contribution_begin_copy(baton__contribution_t *self,
                                    char **carried_out, char **pending_out)
{
    (void)pthread_mutex_lock(&self->contribute_lock);
    self->busy = true;
    *carried_out =
        self->carried != NO_SLOT ? slot_memory(self, self->carried) : NULL;
    *pending_out =
        self->first_step != 0 ? slot_memory(self, self->pending) : NULL;
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
