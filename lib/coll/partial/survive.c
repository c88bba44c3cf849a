/* How a partial goes on when ranks are lost (on_loss, baton/partial.h).

       runs --a schedule fails for a loss, and no call uses it--> shrinks
         ^                                                        |      ^
         |                                      those that live   |      |
         |                                      have agreed       v      |
         +--- all know the last epoch ----------------------- hands over-+
                                                               a loss

   The partial has a copy of the group, and then the groups of its survivors: so
   shrinks of the application, and of other partials, are not taken for its own.
   In each group there is its schedule, and a second one by which the ranks tell
   each other the last epoch that any of them has completed, and hand its result
   to those that have not:

       offer --> all-reduce of {newest, ~newest} --> choose --+
                                                              |
          +---------------------------------------------------+
          +--> all-reduce of the result's bytes -----> done
          +--> all-reduce of its count of active ----> done

   Ranks that have the result give its bytes, which are the same, others zeros;
   so the maximum is the result. All have the one before: nobody completes an
   epoch that not all have begun. What was taken for a later one is pending
   again. If another rank is lost meanwhile, all begin again; until a rank knows
   the last epoch it has given nothing up. The new schedule's epochs follow
   modes.base; peers begin none here before that is known, since its limit is 0.

   A thread does all this, which sleeps until then; with manual progress the
   application's calls do. And it is the second schedule by which ranks that
   destroy the partial wait for each other: none is missing in a shrink. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "coll/partial/parts.h"

#include <baton/engine.h>
#include <baton/partial.h>
#include <stdio.h>

enum { WHY_BYTES = 320, THREAD_MS = 100 };

typedef enum stage { RUNS, SHRINKS, HANDS_OVER, GONE } stage_t;

struct baton__survival {
    baton_partial_t *partial;
    baton_partial_options_t options;
    baton__partial_commit_fn commit;
    baton_group_t *group;
    int *ranks;   /* of each rank of `group`: the one in the application's */
    bool created; /* the peers will wait for this rank when it leaves */

    /* The second schedule's. */
    baton_schedule_t *hand_over;
    baton_buffer_t result; /* that is handed over */
    struct baton_given given;
    uint64_t ends[2]; /* the newest epoch of all; and ~ the oldest newest */
    uint32_t active;

    pthread_t thread;
    bool threaded;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    stage_t stage;
    bool lost;      /* a schedule has failed, of the group or an older one */
    bool closing;   /* the thread ends */
    bool parting;   /* the epoch that ends the partial was started */
    uint32_t users; /* calls that use the schedules */
    baton_status_t status;
    char why[WHY_BYTES]; /* it is gone; or what the last timeout said */
};

typedef baton__survival_t survival_t;

static void lock(survival_t *self)
{
    (void)pthread_mutex_lock(&self->lock);
}

static void unlock(survival_t *self)
{
    (void)pthread_mutex_unlock(&self->lock);
}

static void set_stage(survival_t *self, stage_t stage)
{
    lock(self);
    self->stage = stage;
    (void)pthread_cond_broadcast(&self->changed);
    unlock(self);
}

/* The lock is held. */
static bool is_running(const survival_t *self)
{
    return self->stage == RUNS && !self->lost;
}

/* On the driver; both schedules'. */
static void note_failure(void *arg, baton_status_t status)
{
    survival_t *self = arg;
    lock(self);
    self->lost |= status == BATON_ERR_TRANSPORT;
    (void)pthread_cond_broadcast(&self->changed);
    unlock(self);
}

/* Milliseconds until then; negative without a limit. */
static uint64_t deadline(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX
                          : baton__clock_ns() + (uint64_t)timeout_ms * 1000000;
}

static int left_ms(uint64_t until_ns)
{
    uint64_t now = baton__clock_ns();
    return until_ns == UINT64_MAX ? -1
           : until_ns <= now      ? 0
                                  : (int)((until_ns - now + 999999) / 1000000);
}

/* ---- use of the schedules ---------------------------------------------- */

static bool enter(const baton_partial_t *partial)
{
    survival_t *self = partial->survival;
    lock(self);
    bool running = is_running(self);
    self->users += running;
    unlock(self);
    return running;
}

/* Returns whether a call of a schedule has failed because of a loss, and is to
   be tried again: as long as this rank has not left nobody goes on. */
static bool leave(survival_t *self, baton_status_t status)
{
    lock(self);
    bool lost = self->lost && status != BATON_OK;
    self->users--;
    (void)pthread_cond_broadcast(&self->changed);
    unlock(self);
    return lost;
}

static void leave_unfailed(const baton_partial_t *partial)
{
    (void)leave(partial->survival, BATON_OK);
}

static void await_users(survival_t *self)
{
    lock(self);
    while (self->users > 0) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    self->stage = SHRINKS;
    unlock(self);
}

/* Steps up to this one have ended, or will do without the application. The lock
   is held. */
static uint64_t last_ended(const survival_t *self)
{
    return is_running(self)
               ? self->partial->begin.modes.base
               : baton__contribution_newest(&self->partial->contribution);
}

static bool has_ended(survival_t *self)
{
    lock(self);
    bool ended = baton__partial_steps(self->partial) <= last_ended(self);
    unlock(self);
    return ended;
}

/* ---- the second schedule ------------------------------------------------ */

static baton_status_t offer(void *arg, baton_call_t *call)
{
    survival_t *self = arg;
    baton__contribution_t *c = &self->partial->contribution;
    (void)call;
    lock(self);
    bool hands_over = self->stage == HANDS_OVER;
    unlock(self);
    self->ends[0] = hands_over ? baton__contribution_newest(c) : 0;
    self->ends[1] = ~self->ends[0];
    return BATON_OK;
}

static baton_status_t choose(void *arg, baton_call_t *call)
{
    survival_t *self = arg;
    baton__contribution_t *c = &self->partial->contribution;
    bool some_lack = self->ends[0] != ~self->ends[1];
    bool gives = some_lack && baton__contribution_newest(c) == self->ends[0];
    self->active = 0;
    baton_status_t status = baton_buffer_rebind(
        self->hand_over, self->result,
        some_lack ? baton__contribution_hand_over(c, gives, &self->active)
                  : NULL);
    return status == BATON_OK
               ? baton_call_set_length(call, self->given.source.length,
                                       gives ? self->partial->vector_bytes : 0)
               : status;
}

/* The maximum over all ranks, in place. */
static void add_maximum(baton_schedule_t *s, baton_buffer_t buffer,
                        baton_dtype_t dtype, struct baton_given *given)
{
    baton_view_t view = baton_view(buffer, 0, baton_buffer_bytes(s, buffer));
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = dtype,
                                   .op = BATON_MAX,
                                   .given = given};
    baton_add_allreduce_binomial(s, &args);
}

static baton_status_t build_hand_over(survival_t *self)
{
    baton_schedule_t *s = NULL;
    size_t bytes = self->partial->vector_bytes;
    baton_status_t status = baton_schedule_create(
        self->group, "hand-over of a partial", &self->hand_over);
    if (status != BATON_OK) {
        return status;
    }
    s = self->hand_over;
    baton_node_t offers = baton_add_call(s, offer, self);
    baton_node_t chooses = baton_add_call(s, choose, self);
    baton_node_t done = baton_add_nop(s);
    baton_buffer_t ends = baton_buffer_bind(s, self->ends, sizeof self->ends);
    baton_buffer_t active =
        baton_buffer_bind(s, &self->active, sizeof self->active);
    self->result = baton_buffer_bind(s, NULL, bytes);
    self->given = (struct baton_given){
        .source = {baton_view(self->result, 0, bytes), baton_add_length(s)}};
    baton_enclosure_t inside = baton_enclose_begin(s);
    add_maximum(s, ends, BATON_U64, NULL);
    baton_enclose_end(s, inside, offers, chooses);
    inside = baton_enclose_begin(s);
    add_maximum(s, self->result, BATON_U8, &self->given);
    add_maximum(s, active, BATON_U32, NULL);
    baton_enclose_end(s, inside, chooses, done);
    baton_schedule_on_failure(s, note_failure, self);
    return baton_schedule_commit(s);
}

/* Both schedules, in the group. */
static baton_status_t build(survival_t *self)
{
    baton_partial_options_t options = self->options;
    uint32_t size = (uint32_t)baton_group_size(self->group);
    if (options.mode_ranks > size) {
        options.mode_ranks = size;
    }
    baton_status_t status = baton_schedule_create(self->group, options.name,
                                                  &self->partial->schedule);
    if (status == BATON_OK) {
        baton_schedule_limit(self->partial->schedule, 0);
        baton_schedule_on_failure(self->partial->schedule, note_failure, self);
        status = self->commit(self->partial, &options);
    }
    return status == BATON_OK ? build_hand_over(self) : status;
}

static baton_status_t destroy_schedules(survival_t *self)
{
    baton_partial_t *partial = self->partial;
    baton_status_t other = baton_schedule_destroy(self->hand_over);
    baton_status_t status = baton_schedule_destroy(partial->schedule);
    self->hand_over = partial->schedule = NULL;
    if (status == BATON_OK) {
        baton__begin_fini(&partial->begin);
    }
    return status == BATON_OK ? other : status;
}

/* ---- from one group to the next ---------------------------------------- */

/* The ranks that live have agreed: this one leaves the old group. */
static baton_status_t adopt(survival_t *self, baton_group_t *survivors)
{
    baton_status_t status = destroy_schedules(self);
    if (status == BATON_OK) {
        status = baton_group_destroy(self->group);
    }
    lock(self);
    self->group = survivors;
    for (int i = 0; i < baton_group_size(survivors); i++) {
        self->ranks[i] = self->ranks[baton_group_origin(survivors, i)];
    }
    self->lost = false;
    self->parting = false;
    self->stage = HANDS_OVER;
    unlock(self);
    if (status == BATON_OK) {
        status = build(self);
    }
    return status == BATON_OK ? baton_schedule_start(self->hand_over) : status;
}

/* The survivors know the last epoch, and this rank has its result. What it has
   started meanwhile begins. */
static void go_on(survival_t *self)
{
    baton_partial_t *partial = self->partial;
    baton__contribution_t *c = &partial->contribution;
    uint64_t last = self->ends[0];
    if (baton__contribution_newest(c) < last) {
        baton__contribution_publish(c, last, self->active);
    }
    baton__contribution_recover(c, last, 0);
    c->living = (uint32_t)baton_group_size(self->group);
    partial->begin.modes.base = last;
    bool due = false;
    do {
        lock(self);
        due = !due && baton__partial_steps(partial) > last;
        self->stage = due ? HANDS_OVER : RUNS;
        (void)pthread_cond_broadcast(&self->changed);
        unlock(self);
        if (due) { /* it may be lost already */
            (void)!baton_schedule_start(partial->schedule);
        }
    } while (due);
    baton__partial_limit_again(partial);
}

static baton_status_t gone(survival_t *self, baton_status_t status)
{
    lock(self);
    (void)snprintf(self->why, sizeof self->why, "%s", baton_error_message());
    if (status != BATON_ERR_TIMEOUT) {
        self->status = status;
        self->stage = GONE;
    }
    (void)pthread_cond_broadcast(&self->changed);
    unlock(self);
    return status;
}

static stage_t stage_of(survival_t *self, bool *lost_out)
{
    lock(self);
    stage_t stage = self->stage;
    *lost_out = self->lost;
    unlock(self);
    return stage;
}

/* Until the partial runs again. BATON_ERR_TIMEOUT: it is to be called again. */
static baton_status_t advance(survival_t *self, int timeout_ms)
{
    uint64_t until = deadline(timeout_ms);
    baton_status_t status = BATON_OK;
    while (status == BATON_OK) {
        bool lost = false;
        baton_group_t *survivors = NULL;
        switch (stage_of(self, &lost)) {
        case RUNS:
            if (!lost) {
                return BATON_OK;
            }
            await_users(self);
            break;
        case SHRINKS:
            status =
                baton_group_shrink(self->group, left_ms(until), &survivors);
            if (status == BATON_OK) {
                status = adopt(self, survivors);
            }
            break;
        case HANDS_OVER:
            status = baton_schedule_wait(self->hand_over, left_ms(until));
            if (status == BATON_OK) {
                go_on(self);
            }
            break;
        case GONE:
            return baton__error(self->status, "%s", self->why);
        }
        if (status != BATON_OK && status != BATON_ERR_TIMEOUT &&
            stage_of(self, &lost) == HANDS_OVER && lost) {
            set_stage(self, SHRINKS);
            status = BATON_OK;
        }
    }
    return gone(self, status);
}

static void *run_thread(void *arg)
{
    survival_t *self = arg;
    lock(self);
    while (!self->closing) {
        if (is_running(self) || self->stage == GONE) {
            (void)pthread_cond_wait(&self->changed, &self->lock);
            continue;
        }
        unlock(self);
        (void)!advance(self, THREAD_MS);
        lock(self);
    }
    unlock(self);
    return NULL;
}

/* The application waits for what the thread does, or does it. */
static baton_status_t await_running(survival_t *self, uint64_t until_ns)
{
    if (!self->threaded) {
        return advance(self, left_ms(until_ns));
    }
    int error = 0;
    struct timespec at = {(time_t)(until_ns / 1000000000),
                          (long)(until_ns % 1000000000)};
    lock(self);
    while (!is_running(self) && self->stage != GONE && error == 0) {
        error = until_ns == UINT64_MAX
                    ? pthread_cond_wait(&self->changed, &self->lock)
                    : pthread_cond_timedwait(&self->changed, &self->lock, &at);
    }
    baton_status_t status = self->stage == GONE ? self->status
                            : error != 0        ? BATON_ERR_TIMEOUT
                                                : BATON_OK;
    if (status != BATON_OK) {
        (void)baton__error(status, "partial \"%s\" goes on after a loss: %s",
                           self->options.name, self->why);
    }
    unlock(self);
    return status;
}

/* ---- steps -------------------------------------------------------------- */

baton_status_t baton__survival_start(baton_partial_t *partial)
{
    survival_t *self = partial->survival;
    baton_status_t status = BATON_OK;
    do {
        lock(self);
        bool running = is_running(self);
        uint64_t steps = baton__partial_steps(partial),
                 ended = last_ended(self);
        bool uses = running && steps >= ended;
        self->users += uses;
        if (self->stage == GONE) {
            status = baton__error(self->status, "%s", self->why);
        } else if (!running && steps > ended) {
            status = baton__error(BATON_ERR_BUSY,
                                  "start of \"%s\": epoch %llu is still "
                                  "running: wait for it",
                                  partial->name, (unsigned long long)steps);
        } else if (!uses) {
            status = BATON_OK;
            baton__partial_count_step(partial, BATON_OK);
        }
        unlock(self);
        if (!uses) {
            return status;
        }
        status = baton_schedule_start(partial->schedule);
        baton__partial_count_step(partial, status);
    } while (leave(self, status));
    return status;
}

baton_status_t baton__survival_test(baton_partial_t *partial, bool *done_out)
{
    survival_t *self = partial->survival;
    baton_status_t status = await_running(self, 0);
    bool done = has_ended(self);
    if (status == BATON_OK && !done && enter(partial)) {
        status = baton_schedule_test(partial->schedule, &done);
        status = leave(self, status) ? BATON_ERR_TIMEOUT : status;
    }
    if (status != BATON_OK && status != BATON_ERR_TIMEOUT) {
        return status;
    }
    *done_out = done;
    return BATON_OK;
}

baton_status_t baton__survival_wait(baton_partial_t *partial, int timeout_ms)
{
    survival_t *self = partial->survival;
    uint64_t until = deadline(timeout_ms);
    baton_status_t status = BATON_OK;
    while (status == BATON_OK && !has_ended(self)) {
        if (!enter(partial)) {
            status = await_running(self, until);
            continue;
        }
        status = baton_schedule_wait(partial->schedule, left_ms(until));
        bool lost = leave(self, status);
        if (status == BATON_OK || status == BATON_ERR_TIMEOUT || !lost) {
            return status;
        }
        status = BATON_OK;
    }
    return status;
}

bool baton_partial_lives(baton_partial_t *partial, int rank)
{
    survival_t *self = partial != NULL ? partial->survival : NULL;
    if (self == NULL) {
        return partial != NULL;
    }
    bool lives = false;
    lock(self);
    for (int i = 0; i < baton_group_size(self->group); i++) {
        lives |= self->ranks[i] == rank;
    }
    unlock(self);
    return lives;
}

/* ---- life ---------------------------------------------------------------- */

static void init_changed(survival_t *self)
{
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&self->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_mutex_init(&self->lock, NULL);
}

baton_status_t baton__survival_create(baton_partial_t *partial,
                                      baton_group_t *group,
                                      const baton_partial_options_t *options,
                                      baton__partial_commit_fn commit)
{
    int size = baton_group_size(group);
    survival_t *self = baton__alloc(1, sizeof *self);
    int *ranks = baton__alloc((size_t)size, sizeof *ranks);
    if (self == NULL || ranks == NULL) {
        baton__free(self);
        baton__free(ranks);
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for partial \"%s\"",
                            options->name);
    }
    *self = (survival_t){.partial = partial,
                         .options = *options,
                         .ranks = ranks,
                         .commit = commit};
    self->options.name = partial->name;
    partial->survival = self;
    partial->enter = enter;
    partial->leave = leave_unfailed;
    init_changed(self);
    for (int i = 0; i < size; i++) {
        self->ranks[i] = i;
    }
    baton_status_t status = baton_group_copy(group, &self->group);
    if (status == BATON_OK) {
        status = build(self);
    }
    self->created = status == BATON_OK;
    if (status == BATON_OK && baton_engine_progress(baton_group_engine(
                                  group)) == BATON_PROGRESS_THREAD) {
        self->threaded =
            pthread_create(&self->thread, NULL, run_thread, self) == 0;
        status = self->threaded
                     ? BATON_OK
                     : baton__error(BATON_ERR_SYSTEM,
                                    "partial \"%s\": no thread", partial->name);
    }
    return status;
}

/* Waits until all that live have come to this. */
static void meet(survival_t *self)
{
    uint64_t until =
        deadline((int)baton__config_number(BATON__CONFIG_DESTROY_MS));
    baton_status_t status = self->created ? BATON_ERR_TIMEOUT : BATON_OK;
    while (status != BATON_OK && left_ms(until) > 0) {
        if (!enter(self->partial)) {
            status = await_running(self, until);
            if (status == BATON_OK) {
                status = BATON_ERR_TIMEOUT;
                continue;
            }
            return;
        }
        status =
            self->parting ? BATON_OK : baton_schedule_start(self->hand_over);
        self->parting = true;
        if (status == BATON_OK) {
            status = baton_schedule_wait(self->hand_over, left_ms(until));
        }
        if (!leave(self, status)) {
            return;
        }
    }
}

baton_status_t baton__survival_destroy(baton_partial_t *partial)
{
    survival_t *self = partial->survival;
    if (self == NULL) {
        return BATON_OK;
    }
    meet(self);
    if (self->threaded) {
        lock(self);
        self->closing = true;
        (void)pthread_cond_broadcast(&self->changed);
        unlock(self);
        (void)pthread_join(self->thread, NULL);
        self->threaded = false;
    }
    baton_status_t status = destroy_schedules(self);
    if (status == BATON_OK) {
        status = baton_group_destroy(self->group);
    }
    if (status == BATON_OK) {
        (void)pthread_cond_destroy(&self->changed);
        (void)pthread_mutex_destroy(&self->lock);
        baton__free(self->ranks);
        baton__free(self);
        partial->survival = NULL;
        partial->enter = NULL;
        partial->leave = NULL;
    }
    return status;
}
