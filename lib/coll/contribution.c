/* Slots and their owners; see contribution.h. */
#include "coll/contribution.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/float_mode.h"

#include <string.h>

#define NO_SLOT UINT32_MAX

static char *slot_memory(const baton__contribution_t *self, uint32_t slot)
{
    return self->memory + (size_t)slot * self->slot_bytes;
}

/* There are as many slots as owners can hold at once, so one is always free
   here: W results, one pinned, one pending, one taken, one that is being made,
   and the identity. */
static uint32_t pop_free(baton__contribution_t *self)
{
    return self->free_slots[--self->free_count];
}

static void push_free(baton__contribution_t *self, uint32_t slot)
{
    self->free_slots[self->free_count++] = slot;
}

baton_status_t baton__contribution_init(baton__contribution_t *self,
                                        const baton_partial_options_t *options,
                                        size_t count, size_t extra_bytes)
{
    size_t element_bytes = baton_op_element_bytes(options->op, options->dtype);
    size_t results = count > 0 ? options->result_count : 0;
    size_t data_bytes = (results > count ? results : count) * element_bytes;
    uint32_t slots = options->history + BATON__CONTRIBUTION_SLOTS;
    *self = (baton__contribution_t){
        .count = count,
        /* Each slot begins on a cache line, as the pool does. */
        .slot_bytes = (data_bytes + extra_bytes + 63) / 64 * 64,
        .element_bytes = element_bytes,
        .dtype = options->dtype,
        .op = options->op,
        .history = options->history,
        .free_slots = baton__alloc(slots, sizeof *self->free_slots),
        .outcomes = baton__alloc(options->history, sizeof *self->outcomes),
        .pinned = NO_SLOT,
        .source = NO_SLOT,
        .result = NO_SLOT,
    };
    self->memory = baton__alloc(slots, self->slot_bytes);
    (void)pthread_mutex_init(&self->contribute_lock, NULL);
    (void)pthread_mutex_init(&self->history_lock, NULL);
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
    baton__free(self->memory);
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

bool baton__contribution_take(baton__contribution_t *self, uint64_t epoch,
                              char **source_out, char **result_out)
{
    /* Kept until here: the last epoch may have failed behind its publish. */
    (void)pthread_mutex_lock(&self->history_lock);
    free_source(self);
    if (self->result != NO_SLOT) { /* it failed before */
        push_free(self, self->result);
        self->result = NO_SLOT;
    }
    (void)pthread_mutex_unlock(&self->history_lock);
    uint32_t fresh = locked_pop(self);
    bool active = false;
    self->taken = (baton__taken_t){0};
    self->taken_for = epoch;
    self->source = self->nothing;
    if (pthread_mutex_trylock(&self->contribute_lock) == 0) {
        active = self->first_step != 0;
        if (active) {
            self->taken.first_step = self->first_step;
            self->taken.last_step = self->last_step;
            self->taken.in_parts = self->first_step == self->newest_taken;
            self->newest_taken = self->last_step;
            self->source = self->pending;
            self->pending = fresh;
            /* In this order: a thread that no longer sees it pending sees it
               taken. */
            atomic_store_explicit(&self->oldest_taken, self->first_step,
                                  memory_order_relaxed);
            atomic_store_explicit(&self->oldest, 0, memory_order_release);
            self->first_step = 0;
        }
        (void)pthread_mutex_unlock(&self->contribute_lock);
    }
    if (!active) {
        self->taken.waiting =
            atomic_load_explicit(&self->oldest, memory_order_relaxed);
        locked_push(self, fresh);
    }
    self->result = locked_pop(self);
    *source_out = slot_memory(self, self->source);
    *result_out = slot_memory(self, self->result);
    return active;
}

void baton__contribution_publish(baton__contribution_t *self, uint64_t epoch,
                                 uint32_t active)
{
    (void)pthread_mutex_lock(&self->history_lock);
    baton__outcome_t *outcome = &self->outcomes[epoch % self->history];
    if (outcome->epoch != 0 && outcome->slot != self->pinned) {
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
    if (self->first_step == 0) {
        uint32_t empty = self->pending;
        self->pending = self->source;
        self->source = empty; /* to be freed */
        self->last_step = self->taken.last_step;
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
        if (outcome->epoch != 0 && outcome->slot != self->pinned) {
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

bool baton__contribution_pin(baton__contribution_t *self, uint64_t epoch,
                             uint64_t step, baton_partial_result_t *out)
{
    (void)pthread_mutex_lock(&self->history_lock);
    uint64_t wanted = epoch != 0 ? epoch : self->newest;
    const baton__outcome_t *outcome = &self->outcomes[wanted % self->history];
    bool found = wanted != 0 && outcome->epoch == wanted;
    if (found) {
        if (self->pinned != NO_SLOT && self->pinned != outcome->slot &&
            !in_history(self, self->pinned)) {
            push_free(self, self->pinned);
        }
        self->pinned = outcome->slot;
        describe(self, outcome, step, out);
    }
    (void)pthread_mutex_unlock(&self->history_lock);
    return found;
}
