/* How a partial goes on when ranks are lost (on_loss, baton/partial.h).

       runs ------- a loss makes a schedule fail -------------> shrinks
         ^                                                      |     ^
         |        no call uses the schedules, and those that    |     |
         |        live have agreed                              v     | a loss
         +------- all know the last epoch ----------------- hands over

   The partial has a copy of the group, and after losses groups of its own
   survivors, so that its shrinks are not mistaken for those of the application
   or of other partials. In each group it has the steps' schedule, and a second
   one, by which the ranks tell each other the last epoch that any of them has
   completed, and hand the epoch's result to the ranks that have not completed
   it:

       offer --> all-reduce of the ends --> choose --+
                                                     |
              +--------------------------------------+
              +--> all-reduce of the result's bytes --> done

   Ranks that have the result give its bytes, which are the same on all of them,
   and the other ranks give zeros; so the maximum is the result. All ranks have
   the result of the previous epoch, since no rank completes an epoch that not
   all ranks have begun. Contributions to a later epoch become pending again.

   If another rank is lost meanwhile, all survivors begin again. Until a rank
   knows the last epoch, it keeps the steps' schedule that failed, because a
   partial sparse all-reduce (coll/sparse/backends/partial.c) completes that
   epoch from the entries that this schedule has selected. After that the steps'
   schedule is built anew; its epochs follow modes.base.

   If one rank's on_loss is FAIL and another's is CONTINUE, the schedules of the
   two ranks are in different groups. To compare
   such options, too, a schedule that never runs states the options in the
   application's group, until the first epoch has ended: by then all ranks have
   agreed. (A sparse all-reduce has compared options before.)

   The library has a thread for all this, which sleeps until there is a loss;
   with manual progress the application's calls do it. Ranks that destroy the
   partial wait for each other in the second schedule, so that no rank is
   missing in a shrink. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "base/thread.h"
#include "coll/partial/parts.h"

#include <baton/engine.h>
#include <stdio.h>

enum { WHY_BYTES = 320, NAME_BYTES = 320, THREAD_MS = 100, ACTIVE_BITS = 24 };

typedef enum stage {
    RUNS,
    SHRINKS,
    HANDS_OVER,
    /* A step that the application has started during the recovery is being
       started again. */
    RESTARTS,
    DIFFERS,
    GONE
} stage_t;

struct baton__survival {
    baton_partial_t *partial;
    const baton__survivor_t *kind;
    baton_engine_t *engine;
    baton_group_t *group;
    /* The group of the steps' schedule: the same as `group`, or an earlier
       group. */
    baton_group_t *steps_group;
    int size; /* the number of ranks of the application's group */
    /* For each rank of `group`, its rank in the application's group. */
    int *ranks;

    /* The schedule that compares the options of all ranks (see above), in the
       application's group. NULL: the ranks need not compare options, or have
       done so. */
    baton_schedule_t *terms;

    /* The second schedule, by which ranks hand over a result (see above). */
    baton_schedule_t *hand_over; /* NULL: not built */
    /* Schedules that could not be destroyed within the time limit, since a peer
       may still use their vectors. The array has room for the schedules of all
       groups. */
    baton_schedule_t **in_motion;
    int in_motion_count;
    /* The buffer of `hand_over` for the result. It is bound to memory only if
       some rank lacks the result. */
    baton_buffer_t result;
    struct baton_given given;
    /* The vector of the all-reduce (maximum) that finds the last completed
       epoch. ends[0] is a rank's newest completed epoch, shifted left by
       ACTIVE_BITS, plus the number of ranks active in it. ends[1] is the
       complement (~) of that epoch, so that the maximum gives the least of the
       ranks' newest epochs. If both give the same epoch, all ranks have its
       result. */
    uint64_t ends[2];

    pthread_t thread;
    bool threaded;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    stage_t stage;
    /* The steps' schedule has failed, and none of its messages is in flight. */
    bool ended;
    uint32_t users; /* number of calls that use the schedules now */
    baton_status_t status;
    /* The message of the last error: the error that has ended the partial
       (GONE), or a time-out. */
    char why[WHY_BYTES];
};

typedef baton__survival_t survival_t;

static void survive_lock(survival_t *self)
{
    (void)pthread_mutex_lock(&self->lock);
}

static void survive_unlock(survival_t *self)
{
    (void)pthread_mutex_unlock(&self->lock);
}

static stage_t stage_of(survival_t *self)
{
    survive_lock(self);
    stage_t stage = self->stage;
    survive_unlock(self);
    return stage;
}

/* Changes the stage from `from` to `to`. Does nothing if the stage is not
   `from`, because a loss or the end has changed it. Wakes the library's thread,
   and waiting threads of the application. The caller holds self->lock. */
static void go_to(survival_t *self, stage_t from, stage_t to)
{
    if (self->stage == from) {
        self->stage = to;
        (void)pthread_cond_broadcast(&self->changed);
        baton_engine_notify(self->engine);
    }
}

static baton_status_t be_gone(survival_t *self, baton_status_t status)
{
    survive_lock(self);
    (void)snprintf(self->why, sizeof self->why, "%s", baton_error_message());
    if (!baton__goes_on(status)) {
        self->status = status;
        go_to(self, self->stage, GONE);
    }
    survive_unlock(self);
    return status;
}

/* The engine's driver, the thread that makes progress, calls this function when
   the steps' schedule or the second schedule has failed. */
static void survive_note_failure(void *arg, baton_status_t status)
{
    survival_t *self = arg;
    survive_lock(self);
    if (status == BATON_ERR_TRANSPORT &&
        (self->stage == RUNS || self->stage == HANDS_OVER ||
         self->stage == RESTARTS)) {
        go_to(self, self->stage, SHRINKS);
    }
    survive_unlock(self);
}

static void note_end(void *arg, baton_status_t status)
{
    survival_t *self = arg;
    survive_lock(self);
    self->ended = true;
    baton_engine_notify(self->engine);
    survive_unlock(self);
    survive_note_failure(self, status);
}

/* ---- use of the schedules ---------------------------------------------- */

static bool survive_enter(survival_t *self)
{
    survive_lock(self);
    bool running = self->stage == RUNS;
    self->users += running;
    survive_unlock(self);
    return running;
}

/* Ends a use of the schedules, which survive_enter() has begun. During a use
   the schedules are not replaced after a loss. Returns true if the call of this
   use failed because of a loss, and so has to be repeated. */
static bool survive_leave(survival_t *self, baton_status_t status)
{
    survive_lock(self);
    bool lost = self->stage != RUNS && status != BATON_OK;
    self->users--;
    (void)pthread_cond_broadcast(&self->changed);
    survive_unlock(self);
    return lost;
}

/* The driver calls this function when the schedule that compares options has
   failed. The status BATON_ERR_MISMATCH means that options differ. */
static void note_terms(void *arg, baton_status_t status)
{
    survival_t *self = arg;
    if (status != BATON_ERR_MISMATCH) {
        return;
    }
    survive_lock(self);
    go_to(self, self->stage == GONE ? RUNS : self->stage, DIFFERS);
    survive_unlock(self);
}

static void forget_terms(survival_t *self)
{
    survive_lock(self);
    baton_schedule_t *terms = self->terms;
    self->terms = NULL;
    survive_unlock(self);
    (void)!baton_schedule_destroy(terms);
}

static void await_users(survival_t *self)
{
    survive_lock(self);
    while (self->users > 0) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    survive_unlock(self);
}

static bool steps_have_ended(const void *arg)
{
    survival_t *self = (survival_t *)(uintptr_t)arg;
    survive_lock(self);
    bool ended = self->ended;
    survive_unlock(self);
    return ended;
}

/* Waits until the steps' schedule has failed, and none of its messages is in
   flight. After a loss the second schedule may have failed earlier. */
static baton_status_t await_end(survival_t *self, uint64_t until_ns)
{
    if (self->partial->schedule == NULL) {
        return BATON_OK;
    }
    baton_status_t status = baton_engine_wait(self->engine, steps_have_ended,
                                              self, baton__left_ms(until_ns));
    return status != BATON_ERR_TIMEOUT
               ? status
               : baton__error(status, "a step of \"%s\" has not ended",
                              self->partial->name);
}

/* Returns the last step that has ended, or that will end without further
   calls of the application. The caller holds self->lock. */
static uint64_t last_ended(const survival_t *self)
{
    baton_partial_t *partial = self->partial;
    if (self->stage != RUNS && self->stage != RESTARTS) {
        return baton__contribution_newest(&partial->contribution, NULL);
    }
    int64_t base = (int64_t)partial->begin.modes.base;
    return base > 0 ? (uint64_t)base : 0;
}

static bool survive_has_ended(survival_t *self)
{
    survive_lock(self);
    bool ended = baton__partial_steps(self->partial) <= last_ended(self);
    survive_unlock(self);
    return ended;
}

/* ---- the second schedule ------------------------------------------------ */

/* Offers the number of this rank's newest result. If ranks only meet to destroy
   the partial, offers nothing. */
static baton_status_t offer(void *arg, baton_call_t *call)
{
    survival_t *self = arg;
    uint32_t active = 0;
    uint64_t newest =
        baton__contribution_newest(&self->partial->contribution, &active);
    bool parts = stage_of(self) != HANDS_OVER;
    self->ends[0] = parts ? 0 : newest << ACTIVE_BITS | active;
    self->ends[1] = parts ? ~(uint64_t)0 : ~newest;
    return BATON_OK;
}

static baton_status_t survive_choose(void *arg, baton_call_t *call)
{
    survival_t *self = arg;
    baton__contribution_t *c = &self->partial->contribution;
    uint64_t last = self->ends[0] >> ACTIVE_BITS;
    bool some_lack = last != ~self->ends[1];
    bool gives = some_lack && baton__contribution_newest(c, NULL) == last;
    baton_status_t status = baton_buffer_rebind(
        self->hand_over, self->result,
        some_lack ? self->kind->give(self->partial, gives) : NULL);
    return status == BATON_OK
               ? baton_call_set_length(call, self->given.source.length,
                                       gives ? self->partial->vector_bytes : 0)
               : status;
}

/* Adds an all-reduce in place, with the maximum, between two nodes. */
static void add_maximum(baton_schedule_t *s, baton_buffer_t buffer,
                        baton_dtype_t dtype, struct baton_given *given,
                        baton_node_t from, baton_node_t to)
{
    baton_view_t view = baton_view(buffer, 0, baton_buffer_bytes(s, buffer));
    baton_allreduce_args_t args = {.size = sizeof args,
                                   .source = view,
                                   .target = view,
                                   .dtype = dtype,
                                   .op = BATON_MAX,
                                   .given = given};
    baton_enclosure_t inside = baton_enclose_begin(s);
    baton_add_allreduce_binomial(s, &args);
    baton_enclose_end(s, inside, from, to);
}

static baton_status_t build_hand_over(survival_t *self)
{
    size_t bytes = self->partial->vector_bytes;
    const char *step = self->partial->name;
    /* If a rank waits in vain in this schedule, the error message names the
       schedule. So its name says what the rank waits for. */
    char name[NAME_BYTES];
    bool first = baton_group_size(self->group) == self->size;
    (void)snprintf(name, sizeof name,
                   first ? "destroy of %s" : "%s after a loss, or its destroy",
                   step);
    baton_status_t status =
        baton_schedule_create(self->group, name, &self->hand_over);
    if (status != BATON_OK) {
        return status;
    }
    baton_schedule_t *s = self->hand_over;
    baton_node_t offers = baton_add_call(s, offer, self);
    baton_node_t chooses = baton_add_call(s, survive_choose, self);
    baton_buffer_t ends = baton_buffer_bind(s, self->ends, sizeof self->ends);
    self->result = baton_buffer_bind(s, NULL, bytes);
    self->given = (struct baton_given){
        .source = {baton_view(self->result, 0, bytes), baton_add_length(s)}};
    add_maximum(s, ends, BATON_U64, NULL, offers, chooses);
    add_maximum(s, self->result, BATON_U8, &self->given, chooses,
                baton_add_nop(s));
    baton_schedule_on_failure(s, survive_note_failure, self);
    return baton_schedule_commit(s);
}

/* Builds the schedule that compares options. Each rank exchanges messages with
   each other rank, so any difference between two ranks is found. */
static baton_status_t build_terms(survival_t *self, baton_group_t *group)
{
    size_t size = (size_t)baton_group_size(group);
    baton_schedule_t *s = NULL;
    if (self->kind->agree == NULL) {
        return BATON_OK;
    }
    baton_status_t status =
        baton_schedule_create(group, self->partial->name, &s);
    self->terms = s;
    if (status != BATON_OK) {
        return status;
    }
    baton_alltoall_args_t args = {
        .size = sizeof args,
        .source = baton_view(baton_buffer_scratch(s, size), 0, size),
        .target = baton_view(baton_buffer_scratch(s, size), 0, size)};
    self->kind->agree(self->partial, s);
    baton_add_alltoall_pairwise(s, &args);
    baton_schedule_on_failure(s, note_terms, self);
    return baton_schedule_commit(s);
}

static baton_status_t destroy_schedule(survival_t *self,
                                       baton_schedule_t *schedule)
{
    baton_status_t status = baton_schedule_destroy(schedule);
    if (status != BATON_OK) {
        self->in_motion[self->in_motion_count++] = schedule;
    }
    return status;
}

/* Destroys those schedules of `in_motion` that have ended. */
static void destroy_ended(survival_t *self)
{
    int count = self->in_motion_count;
    self->in_motion_count = 0;
    for (int i = 0; i < count; i++) {
        (void)!destroy_schedule(self, self->in_motion[i]);
    }
}

/* Destroys the steps' schedule. Also destroys its group, unless that is still
   `group`. */
static baton_status_t leave_steps(survival_t *self)
{
    baton_partial_t *partial = self->partial;
    baton__partial_begin_limit(partial, false);
    baton_status_t status = destroy_schedule(self, partial->schedule);
    partial->schedule = NULL;
    if (status == BATON_OK) {
        baton__begin_fini(&partial->begin);
    }
    if (status == BATON_OK && self->steps_group != self->group) {
        status = baton_group_destroy(self->steps_group);
        self->steps_group = self->group;
    }
    return status;
}

/* Builds the steps' schedule, whose epochs are numbered from modes.base + 1.
   Until baton__partial_begin_limit sets a limit, peers can't begin an epoch on
   this rank. */
static baton_status_t build_steps(survival_t *self)
{
    baton_partial_t *partial = self->partial;
    uint32_t size = (uint32_t)baton_group_size(self->group);
    if (partial->options.mode_ranks > size) {
        partial->options.mode_ranks = size;
    }
    baton_status_t status =
        baton_schedule_create(self->group, partial->name, &partial->schedule);
    if (status == BATON_OK) {
        self->ended = false;
        baton_schedule_limit(partial->schedule, 0);
        baton_schedule_on_failure(partial->schedule, note_end, self);
        status = self->kind->commit(partial);
    }
    if (status == BATON_OK) {
        baton__partial_begin_limit(partial, true);
    } else {
        (void)!leave_steps(self);
    }
    return status;
}

/* Destroys both schedules and the group on this rank. */
static baton_status_t leave_all(survival_t *self)
{
    destroy_ended(self);
    baton_status_t other = destroy_schedule(self, self->hand_over);
    baton_status_t status = leave_steps(self);
    self->hand_over = NULL;
    status = status == BATON_OK ? other : status;
    if (status == BATON_OK && self->in_motion_count > 0) {
        status = baton__error(BATON_ERR_TIMEOUT,
                              "destroy of \"%s\": a message of a step has not "
                              "ended; its memory is still in use",
                              self->partial->name);
    }
    return status == BATON_OK ? baton_group_destroy(self->group) : status;
}

/* ---- from one group to the next ---------------------------------------- */

/* Changes to the survivors' group. Called when the survivors have agreed on
   it. */
static baton_status_t adopt(survival_t *self, baton_group_t *survivors)
{
    forget_terms(self);
    baton_status_t status = destroy_schedule(self, self->hand_over);
    self->hand_over = NULL;
    baton_group_t *before = self->group;
    survive_lock(self);
    self->group = survivors;
    for (int i = 0; i < baton_group_size(survivors); i++) {
        self->ranks[i] = self->ranks[baton_group_origin(survivors, i)];
    }
    go_to(self, SHRINKS, HANDS_OVER);
    survive_unlock(self);
    return status == BATON_OK && self->steps_group != before
               ? baton_group_destroy(before)
               : status;
}

static baton_status_t survive_hand_over(survival_t *self, int timeout_ms)
{
    baton_status_t status = BATON_OK;
    if (self->hand_over == NULL) {
        status = build_hand_over(self);
        if (status == BATON_OK) {
            status = baton_schedule_start(self->hand_over);
        }
    }
    return status == BATON_OK ? baton_schedule_wait(self->hand_over, timeout_ms)
                              : status;
}

/* Called when all survivors know the last epoch. If this rank has not completed
   that epoch, completes it by the result that was handed over. Then builds the
   steps' schedule anew, and starts a step that was started in the meantime.
   Until that is done the application can't start another step. */
static baton_status_t survive_go_on(survival_t *self)
{
    baton_partial_t *partial = self->partial;
    baton__contribution_t *c = &partial->contribution;
    uint64_t last = self->ends[0] >> ACTIVE_BITS;
    /* If this is true, the application is destroying the partial on this rank,
       and needs no result. */
    bool destroys = partial->schedule == NULL;
    if (baton__contribution_newest(c, NULL) < last && !destroys) {
        self->kind->get(partial, last,
                        (uint32_t)(self->ends[0] - (last << ACTIVE_BITS)));
    }
    baton__contribution_recover(c, last, 0);
    c->living = (uint32_t)baton_group_size(self->group);
    baton_status_t status = leave_steps(self);
    if (status == BATON_OK) {
        partial->begin.modes.base = last;
        status = build_steps(self);
    }
    if (status != BATON_OK) {
        return status;
    }
    survive_lock(self);
    if (baton__partial_steps(partial) > last) {
        /* The restarted epoch may end at once. The stage RESTARTS keeps the
           application from starting the next step before
           baton_schedule_start below has returned. */
        go_to(self, HANDS_OVER, RESTARTS);
        survive_unlock(self);
        /* This start fails if a rank is lost; then the partial shrinks
           again. */
        (void)!baton_schedule_start(partial->schedule);
        survive_lock(self);
        go_to(self, RESTARTS, RUNS);
    }
    go_to(self, HANDS_OVER, RUNS);
    survive_unlock(self);
    return BATON_OK;
}

/* Goes through the stages until the partial runs again. After
   BATON_ERR_TIMEOUT, must be called again. */
static baton_status_t survive_advance(survival_t *self, int timeout_ms)
{
    uint64_t until = baton__deadline(timeout_ms);
    for (;;) {
        baton_group_t *survivors = NULL;
        baton_failure_t failure;
        baton_status_t status = BATON_OK;
        stage_t stage = stage_of(self);
        switch (stage) {
        case RUNS:
            return BATON_OK;
        case SHRINKS:
            await_users(self);
            status = await_end(self, until);
            if (status == BATON_OK) {
                status = baton_group_shrink(self->group, baton__left_ms(until),
                                            &survivors);
            }
            if (status == BATON_OK) {
                status = adopt(self, survivors);
            }
            break;
        case RESTARTS: /* this stage exists only within survive_go_on() */
        case HANDS_OVER:
            status = survive_hand_over(self, baton__left_ms(until));
            if (status == BATON_OK) {
                status = survive_go_on(self);
            }
            break;
        case DIFFERS:
            status = baton_schedule_failure(self->terms, &failure);
            /* If the cause of the failure can't be read yet, the caller tries
               again. */
            status = status == BATON_OK
                         ? baton__error(failure.status, "%s", failure.message)
                         : BATON_ERR_TIMEOUT;
            break;
        case GONE:
            return baton__error(self->status, "%s", self->why);
        }
        bool lost = stage == HANDS_OVER && stage_of(self) == SHRINKS;
        if (status != BATON_OK && (!lost || status == BATON_ERR_INTERRUPTED)) {
            return be_gone(self, status);
        }
    }
}

static void *run_thread(void *arg)
{
    survival_t *self = arg;
    baton__thread_patience++;
    survive_lock(self);
    while (self->stage != GONE) {
        if (self->stage == RUNS) {
            (void)pthread_cond_wait(&self->changed, &self->lock);
            continue;
        }
        survive_unlock(self);
        (void)!survive_advance(self, THREAD_MS);
        survive_lock(self);
    }
    survive_unlock(self);
    return NULL;
}

static bool has_settled(const void *arg)
{
    stage_t stage = stage_of((survival_t *)(uintptr_t)arg);
    return stage == RUNS || stage == GONE;
}

/* Waits until the partial runs again. The library's thread makes that happen;
   without a thread, this function does. */
static baton_status_t await_running(survival_t *self, uint64_t until_ns)
{
    baton_status_t status =
        baton_engine_wait(self->engine, has_settled, self,
                          self->threaded ? baton__left_ms(until_ns) : 0);
    if (!self->threaded && status == BATON_ERR_TIMEOUT) {
        return survive_advance(self, baton__left_ms(until_ns));
    }
    survive_lock(self);
    if (self->stage == GONE) {
        status = baton__error(self->status, "%s", self->why);
    } else if (status == BATON_ERR_TIMEOUT) {
        status = baton__error(status, "partial \"%s\" goes on after a loss: %s",
                              self->partial->name, self->why);
    }
    survive_unlock(self);
    return status;
}

/* ---- steps -------------------------------------------------------------- */

baton_status_t baton__survival_start(baton_partial_t *partial)
{
    survival_t *self = partial->survival;
    baton_status_t status = BATON_OK;
    bool uses = false;
    do {
        survive_lock(self);
        bool running = self->stage == RUNS;
        uint64_t steps = baton__partial_steps(partial),
                 ended = last_ended(self);
        uses = running && steps >= ended;
        if (self->stage == GONE) {
            status = baton__error(self->status, "%s", self->why);
        } else if (!running && steps > ended) {
            status = baton__error(BATON_ERR_BUSY,
                                  "start of \"%s\": epoch %llu is still "
                                  "running: wait for it",
                                  partial->name, (unsigned long long)steps);
        } else if (!uses) {
            status = BATON_OK;
            baton__partial_count_step(partial, status);
        }
        self->users += uses;
        survive_unlock(self);
        if (uses) {
            status = baton_schedule_start(partial->schedule);
            baton__partial_count_step(partial, status);
        }
    } while (uses && survive_leave(self, status));
    return status;
}

static bool first_step_has_ended(const void *arg)
{
    survival_t *self = (survival_t *)(uintptr_t)arg;
    survive_lock(self);
    baton_schedule_t *steps = self->partial->schedule;
    bool ended = self->stage != RUNS || self->ended ||
                 baton_schedule_epoch(steps) >= baton_schedule_started(steps);
    survive_unlock(self);
    return ended;
}

/* Waits for the running step, as a user of the schedules. Until the first step
   has ended, the ranks' options may turn out to differ. This ends the wait, but
   not the epoch: other ranks must learn that options differ, and not that a
   step was cancelled here. */
static baton_status_t wait_for_step(survival_t *self, uint64_t until_ns)
{
    baton_status_t status = BATON_OK;
    survive_lock(self);
    bool agreed = self->terms == NULL;
    survive_unlock(self);
    if (!agreed) {
        status = baton_engine_wait(self->engine, first_step_has_ended, self,
                                   baton__left_ms(until_ns));
        until_ns = 0;
    }
    return status == BATON_OK || status == BATON_ERR_TIMEOUT
               ? baton_schedule_wait(self->partial->schedule,
                                     baton__left_ms(until_ns))
               : status;
}

static baton_status_t wait_or_test(baton_partial_t *partial, int timeout_ms,
                                   bool *done_out)
{
    survival_t *self = partial->survival;
    uint64_t until = baton__deadline(timeout_ms);
    baton_status_t status =
        done_out != NULL ? await_running(self, 0) : BATON_OK;
    bool done = true;
    if (done_out != NULL && !self->threaded && survive_has_ended(self)) {
        /* Makes progress, because the steps of other ranks need messages of
           this rank. */
        (void)baton_engine_step(self->engine);
    }
    while (status == BATON_OK && !survive_has_ended(self)) {
        if (!survive_enter(self)) {
            status = await_running(self, until);
            continue;
        }
        status = done_out != NULL
                     ? baton_schedule_test(partial->schedule, &done)
                     : wait_for_step(self, until);
        if (!survive_leave(self, status) || status == BATON_ERR_INTERRUPTED) {
            break;
        }
        status = BATON_OK;
    }
    if (status == BATON_OK && done) {
        forget_terms(self);
    }
    if (done_out == NULL ||
        (status != BATON_OK && status != BATON_ERR_TIMEOUT)) {
        return status;
    }
    *done_out = status == BATON_OK ? done : survive_has_ended(self);
    return BATON_OK;
}

baton_status_t baton__survival_wait(baton_partial_t *partial, int timeout_ms,
                                    bool *done_out)
{
    /* If done_out is given, the caller is baton_partial_test, and must not get
       BATON_ERR_INTERRUPTED: a test does not wait. */
    baton__thread_patience += done_out != NULL;
    baton_status_t status = wait_or_test(partial, timeout_ms, done_out);
    baton__thread_patience -= done_out != NULL;
    return status;
}

bool baton_partial_lives(baton_partial_t *partial, int rank)
{
    if (!baton__partial_is_alive(partial, __func__)) {
        return false;
    }
    survival_t *self = partial->survival;
    if (self == NULL) {
        return true;
    }
    bool lives = false;
    survive_lock(self);
    for (int i = 0; i < baton_group_size(self->group); i++) {
        lives |= self->ranks[i] == rank;
    }
    survive_unlock(self);
    return lives;
}

baton_status_t baton__survival_enter(baton_partial_t *partial,
                                     const char *doing)
{
    survival_t *self = partial != NULL ? partial->survival : NULL;
    if (self == NULL || survive_enter(self)) {
        return BATON_OK;
    }
    survive_lock(self);
    baton_status_t status =
        self->stage == GONE
            ? baton__error(self->status, "%s", self->why)
            : baton__error(
                  BATON_ERR_BUSY,
                  "%s \"%s\": it is being continued after the loss of a rank",
                  doing, partial->name);
    survive_unlock(self);
    return status;
}

void baton__survival_leave(baton_partial_t *partial)
{
    if (partial != NULL && partial->survival != NULL) {
        (void)survive_leave(partial->survival, BATON_OK);
    }
}

/* ---- life ---------------------------------------------------------------- */

/* Makes a copy of the group, builds the schedules in it, and starts the
   thread. */
static baton_status_t survive_begin(survival_t *self, baton_group_t *group)
{
    baton_status_t status = build_terms(self, group);
    if (status == BATON_OK) {
        status = baton_group_create_sub(
            group, self->ranks, baton_group_size(group), "", &self->group);
        self->steps_group = self->group;
    }
    if (status == BATON_OK) {
        status = build_steps(self);
    }
    if (status == BATON_OK) {
        status = build_hand_over(self);
    }
    if (status == BATON_OK && baton_engine_progress(baton_group_engine(
                                  group)) == BATON_PROGRESS_THREAD) {
        self->threaded = baton__thread_start(&self->thread, "baton survivors",
                                             run_thread, self) == 0;
        status = self->threaded ? BATON_OK
                                : baton__error(BATON_ERR_SYSTEM,
                                               "partial \"%s\": can't start a "
                                               "thread to go on after a loss",
                                               self->partial->name);
    }
    return status == BATON_OK ? BATON_OK : be_gone(self, status);
}

baton_status_t baton__survival_create(baton_partial_t *partial,
                                      baton_group_t *group,
                                      const baton__survivor_t *kind)
{
    int size = baton_group_size(group);
    survival_t *self = baton__alloc(1, sizeof *self);
    int *ranks = baton__alloc((size_t)size, sizeof *ranks);
    /* There are two schedules in each group, and each further group has at
       least one rank fewer. */
    baton_schedule_t **in_motion =
        baton__alloc(2 * (size_t)size + 2, sizeof *in_motion);
    if (self == NULL || ranks == NULL || in_motion == NULL) {
        baton__free(self);
        baton__free(ranks);
        baton__free(in_motion);
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for partial \"%s\"",
                            partial->name);
    }
    *self = (survival_t){.partial = partial,
                         .kind = kind,
                         .engine = baton_group_engine(group),
                         .size = size,
                         .ranks = ranks,
                         .in_motion = in_motion};
    partial->survival = self;
    (void)pthread_cond_init(&self->changed, NULL);
    (void)pthread_mutex_init(&self->lock, NULL);
    for (int i = 0; i < size; i++) {
        ranks[i] = i;
    }
    return survive_begin(self, group);
}

/* Ends the steps' schedule, and destroys it. So peers that wait for a step that
   this rank never starts fail at once. */
static void end_steps(survival_t *self, uint64_t until_ns)
{
    survive_lock(self);
    baton_schedule_t *steps = self->partial->schedule;
    survive_unlock(self);
    baton__partial_begin_limit(self->partial, false);
    if (steps != NULL &&
        baton_schedule_epoch(steps) < baton_schedule_started(steps) &&
        baton_schedule_wait(steps, baton__left_ms(until_ns)) ==
            BATON_ERR_TIMEOUT) {
        (void)!baton_schedule_cancel(steps);
    }
    /* leave_all() reports the error, if any. */
    (void)!destroy_schedule(self, steps);
    survive_lock(self);
    self->partial->schedule = NULL;
    survive_unlock(self);
}

/* Waits until all living ranks destroy the partial. After a loss, waits again,
   in the group of the survivors. */
static void survive_meet(survival_t *self)
{
    uint64_t until =
        baton__deadline((int)baton__config_number(BATON__CONFIG_DESTROY_MS));
    bool again = true;
    while (again && await_running(self, until) == BATON_OK) {
        if (survive_enter(self)) {
            end_steps(self, until);
            baton_status_t status = baton_schedule_start(self->hand_over);
            if (status == BATON_OK) {
                status =
                    baton_schedule_wait(self->hand_over, baton__left_ms(until));
            }
            /* Destroying a schedule whose epoch runs would time out, too, so
               the epoch is cancelled. */
            if (status == BATON_ERR_TIMEOUT) {
                (void)!baton_schedule_cancel(self->hand_over);
            }
            again = survive_leave(self, status);
        }
    }
}

baton_status_t baton__survival_destroy(baton_partial_t *partial)
{
    survival_t *self = partial->survival;
    if (self == NULL) {
        return BATON_OK;
    }
    baton__thread_patience++;
    survive_meet(self);
    baton__thread_patience--;
    (void)be_gone(self, baton_error_set(BATON_ERR_STATE, "\"%s\" was destroyed",
                                        partial->name));
    if (self->threaded) {
        (void)pthread_join(self->thread, NULL);
        self->threaded = false;
    }
    /* If the ranks' options differ, survive_meet has not ended the steps'
       schedule, and a step of it may still be running. */
    (void)!baton_schedule_cancel(self->partial->schedule);
    forget_terms(self);
    baton_status_t status = leave_all(self);
    if (status == BATON_OK) {
        (void)pthread_cond_destroy(&self->changed);
        (void)pthread_mutex_destroy(&self->lock);
        baton__free(self->ranks);
        baton__free(self->in_motion);
        baton__free(self);
        partial->survival = NULL;
    }
    return status;
}
