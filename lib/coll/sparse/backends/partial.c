/* Partial sparse all-reduce: the algorithm's schedule, after the activation of
   a partial collective (coll/partial/begin.h).

       begin --> take --> prepare --> [ the algorithm's nodes ] --> publish

   The contribution (coll/partial/contribution.h) keeps the pending gradients,
   those that an epoch has taken, and the results. An epoch computes in `work`,
   which begins as the residual plus the gradients that it has taken. publish
   makes `work` the residual. If the epoch fails after that, recover swaps the
   two vectors back, and the gradients are pending again.

   If an epoch takes nothing from a rank, the rank's `work` begins as zeros. At
   the end `work` holds the values that the residual gains; publish adds the two
   vectors.

   The application holds the contribute lock while it adds a gradient, or uses
   the residual; it uses the residual only while no epoch is working. The
   engine's driver, the thread that makes progress, only tries the lock: the
   node `take` is polled until the application has released the lock.

   With on_loss the epochs run in the groups of coll/partial/survive.c. connect
   passes `epochs` to survive.c, after options were compared. The result that
   survive.c hands over is packed: count, indices, values. */
#include "coll/sparse/backends/backends.h"

#include "base/alloc.h"
#include "base/float_mode.h"
#include "coll/partial/parts.h"

#include <string.h>

typedef struct sparse_partial {
    /* This field is first, since of_epochs casts its address. Its numbers of
       steps and epochs continue after a recovery or a shrink. */
    baton_partial_t epochs;
    baton_sparse_t *sparse;
    char *parts; /* memory for a gradient in parts; NULL until the first part */
    /* Part of the state that baton_sparse_state_export writes: the first and
       the last step whose gradients are pending. */
    uint64_t pending_steps[2];
} sparse_partial_t;

static sparse_partial_t *of_epochs(baton_partial_t *epochs)
{
    return (sparse_partial_t *)epochs;
}

static pthread_mutex_t *lock_of(sparse_partial_t *self)
{
    return &self->epochs.contribution.contribute_lock;
}

static void add_to(const baton_sparse_t *sparse, char *target, const char *left,
                   const char *right)
{
    BATON_SUM->reduce(BATON_SUM->arg, target, left, right, sparse->count,
                      sparse->dtype);
}

/* ---- in an epoch ------------------------------------------------------- */

static baton_status_t sparse_partial_prepare(void *arg, baton_call_t *call)
{
    sparse_partial_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    const baton__contribution_t *c = &self->epochs.contribution;
    sparse->k = self->epochs.epoch > sparse->options.warmup ? sparse->options.k
                                                            : sparse->count;
    sparse->input.gradient = c->source;
    sparse->input.residual = self->epochs.active ? sparse->residual : NULL;
    sparse->results.next = &sparse->results.buffers[c->result];
    return BATON_OK;
}

/* Ends an epoch that has its result: updates the residual, and publishes. */
static void end_epoch(sparse_partial_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    if (!self->epochs.active && sparse->payload) {
        add_to(sparse, sparse->work, sparse->residual, sparse->work);
    }
    baton__sparse_exchange(&sparse->work, &sparse->residual);
    sparse->learned = sparse->next;
    sparse->results.next->stats = sparse->counting;
    sparse->results.shown = sparse->results.next;
    baton__contribution_publish(&self->epochs.contribution, self->epochs.epoch,
                                0);
}

static baton_status_t sparse_partial_publish(void *arg, baton_call_t *call)
{
    end_epoch(arg);
    return BATON_OK;
}

/* ---- failure ----------------------------------------------------------- */

/* Stores the result of a step in sparse->results.last. Pins the result, so that
   its memory is not reused, until the next call of this function. */
static void show_result(sparse_partial_t *self, uint64_t step)
{
    baton_sparse_t *sparse = self->sparse;
    baton__contribution_t *c = &self->epochs.contribution;
    baton_partial_result_t pinned;
    if (!baton__contribution_pin(c, step, step, &pinned)) {
        return;
    }
    const baton__sparse_buffer_t *buffer = &sparse->results.buffers[c->pinned];
    sparse->results.last = baton__sparse_result_of(buffer);
    sparse->results.last.included = pinned.included;
    sparse->stats = buffer->stats;
    if (sparse->input.velocity != NULL && step > sparse->options.warmup) {
        baton__sparse_mask(sparse, buffer->indices, (size_t)*buffer->count);
    }
}

/* ---- recovery ---------------------------------------------------------- */

static void sparse_partial_take_result(baton_sparse_t *sparse)
{
    baton__sparse_make_residual(sparse);
    end_epoch(of_epochs(sparse->epochs));
}

/* Continues after `last`, the last epoch that any rank has completed: later
   epochs begin again. */
static void sparse_partial_go_on(sparse_partial_t *self, uint64_t last)
{
    baton_sparse_t *sparse = self->sparse;
    baton_partial_t *epochs = &self->epochs;
    baton__contribution_recover(&epochs->contribution, last, last + 1);
    /* From now on waits return the results that no wait has returned. */
    sparse->phase = BATON__SPARSE_NO_RESULT;
    sparse->results.unreturned = last - epochs->seen;
    epochs->begin.modes.base = last;
    epochs->arrived = last;
    atomic_store_explicit(&epochs->steps, last, memory_order_relaxed);
}

/* Continues after the last epoch that any rank has completed. Called while the
   application is in baton_group_recover. Later waits return the results that
   the application has not got. Gradients that an epoch has taken are pending
   again, unless some rank has completed the epoch. */
static bool sparse_partial_recover(void *arg, uint64_t epoch)
{
    sparse_partial_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    baton__contribution_t *c = &self->epochs.contribution;
    uint64_t last = self->epochs.begin.modes.base + epoch;
    /* Some rank has completed epoch `last`. This rank lacks the result if it
       has taken gradients for that epoch and not completed it. (If any rank has
       taken gradients for a later epoch, all ranks have completed epoch
       `last`.) */
    bool lacks = baton__contribution_is_working(c) && c->taken_for == last;
    if (epoch > 0 && !baton__sparse_complete_everywhere(sparse, lacks, last)) {
        return false;
    }
    if (c->newest > last) {
        baton__sparse_exchange(&sparse->work, &sparse->residual);
    }
    sparse_partial_go_on(self, last);
    baton__quorum_recover(self->epochs.begin.quorum);
    baton__partial_begin_limit(&self->epochs, true);
    baton__sparse_recover(sparse, false, epoch);
    return true;
}

/* Called in a shrink, after the schedule has failed, so no epoch begins or ends
   meanwhile. */
static bool sparse_partial_survive(baton_sparse_t *sparse)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    baton__contribution_t *c = &self->epochs.contribution;
    bool lacks = baton__contribution_is_working(c);
    uint64_t epoch = lacks ? c->taken_for : c->newest;
    if (!baton__sparse_complete_everywhere(sparse, lacks, epoch)) {
        return false;
    }
    sparse_partial_go_on(self, c->newest);
    sparse->steps = c->newest;
    return true;
}

/* ---- life -------------------------------------------------------------- */

static void add_algorithm(baton_partial_t *epochs)
{
    baton_sparse_t *sparse = of_epochs(epochs)->sparse;
    sparse->algorithm->build(sparse);
}

static baton_status_t open_partial(baton_sparse_t *sparse)
{
    const baton_sparse_options_t *o = &sparse->options;
    if (baton__sparse_goes_on(&sparse->options) &&
        baton_group_is_simulated(sparse->group)) {
        return baton__sparse_error(sparse, BATON_ERR_UNSUPPORTED, "sparse",
                                   "on_loss is BATON_ON_LOSS_CONTINUE, which "
                                   "is not supported with a simulated group");
    }
    sparse_partial_t *self = baton__sparse_keep_memory(
        sparse, baton__sparse_alloc(sparse, 1, sizeof *self));
    if (self == NULL) {
        return BATON_OK;
    }
    self->sparse = sparse;
    sparse->epochs = &self->epochs;
    sparse->extra = self->pending_steps;
    sparse->extra_count = 2;
    self->epochs.name = sparse->name;
    self->epochs.options = (baton_partial_options_t){
        .mode = o->mode,
        .mode_ranks = o->mode_ranks,
        .history = o->history,
        .sync_every = o->sync_every,
        .max_staleness = o->max_staleness,
        .seed = o->seed,
    };
    (void)pthread_mutex_init(&self->epochs.limit_lock, NULL);
    baton__sparse_host_vectors(sparse);
    sparse->results.buffer_count =
        (size_t)o->history + BATON__CONTRIBUTION_RESULTS;
    self->epochs.contribution = (baton__contribution_t){
        .count = sparse->payload ? sparse->count : 0,
        .slot_bytes = sparse->payload ? sparse->vector_bytes : 0,
        .dtype = sparse->dtype,
        .op = BATON_SUM,
        .history = o->history,
        .sparse = true,
    };
    return baton__contribution_init(&self->epochs.contribution);
}

/* Adds the nodes of an epoch to the schedule. Called again for each new
   group. */
static baton_status_t sparse_partial_build(baton_sparse_t *sparse)
{
    baton_status_t status =
        sparse->epochs == NULL ? open_partial(sparse) : BATON_OK;
    sparse_partial_t *self = of_epochs(sparse->epochs);
    if (self == NULL || status != BATON_OK) {
        return status;
    }
    static const baton__epoch_t epoch = {sparse_partial_prepare, add_algorithm,
                                         sparse_partial_publish};
    baton_partial_t *epochs = &self->epochs;
    epochs->schedule = sparse->schedule;
    if (epochs->options.mode_ranks > (uint32_t)sparse->size) {
        epochs->options.mode_ranks = (uint32_t)sparse->size;
    }
    status = baton__partial_build(epochs, &epoch);
    if (status == BATON_OK && !baton__sparse_goes_on(&sparse->options)) {
        baton_schedule_on_recover(sparse->schedule, sparse_partial_recover,
                                  self);
        baton__begin_fail_if_lost(sparse->schedule);
        baton__partial_begin_limit(epochs, true);
    }
    return status;
}

static void free_partial(baton_sparse_t *sparse)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    if (self != NULL) {
        baton__begin_fini(&self->epochs.begin);
        baton__contribution_fini(&self->epochs.contribution);
        baton__free(self->parts);
        (void)pthread_mutex_destroy(&self->epochs.limit_lock);
    }
}

/* ---- ranks are lost ----------------------------------------------------- */

/* The function `commit` of baton__survivor_t. Sets the number of ranks under
   the contribute lock, since the application may be clipping a gradient, for
   which it reads this number. */
static baton_status_t sparse_partial_commit(baton_partial_t *epochs)
{
    sparse_partial_t *self = of_epochs(epochs);
    baton_sparse_t *sparse = self->sparse;
    baton_schedule_t *s = epochs->schedule;
    (void)pthread_mutex_lock(lock_of(self));
    baton__sparse_enter(sparse, baton_schedule_rank(s), baton_schedule_size(s));
    (void)pthread_mutex_unlock(lock_of(self));
    sparse->schedule = s;
    /* A rank may be lost before the comparison, so the ranks compare their
       options here, too. */
    if (sparse->agree != NULL) {
        sparse->agree(sparse->agree_arg, s);
    }
    baton__sparse_agree(s, &sparse->asked);
    baton_status_t status = sparse_partial_build(sparse);
    if (status == BATON_OK) {
        epochs->vector_bytes = baton__sparse_packed_bytes(sparse);
        status = sparse->out_of_memory ? baton__sparse_no_memory(sparse)
                                       : baton_schedule_commit(s);
    }
    return status;
}

/* Returns the packed memory of the result that is being made. Fills this memory
   with a copy of the last result, if `has` is true, or with zeros. */
static char *sparse_partial_give(baton_partial_t *epochs, bool has)
{
    const baton__sparse_results_t *results =
        &of_epochs(epochs)->sparse->results;
    baton__contribution_begin_result(&epochs->contribution);
    char *to = results->buffers[epochs->contribution.result].packed;
    if (has) {
        memcpy(to, results->shown->packed, epochs->vector_bytes);
    } else {
        memset(to, 0, epochs->vector_bytes);
    }
    return to;
}

static void sparse_partial_get(baton_partial_t *epochs, uint64_t epoch,
                               uint32_t active)
{
    sparse_partial_t *self = of_epochs(epochs);
    baton_sparse_t *sparse = self->sparse;
    baton__contribution_t *c = &epochs->contribution;
    /* True if this rank has begun the epoch, and has imported no state
       since. */
    bool begun = c->taken_for == epoch;
    /* If a state was imported, the residual is that of the state, and stays as
       it is. */
    if (!begun) {
        /* This is the slot that sparse_partial_give has filled, and that the
           hand-over has written the result to. */
        sparse->results.shown = &sparse->results.buffers[c->result];
        baton__contribution_publish(c, epoch, 0);
        return;
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    sparse_partial_take_result(sparse);
    baton__float_mode_leave(mode);
}

static baton_status_t connect_epochs(baton_sparse_t *sparse)
{
    static const baton__survivor_t survivor = {.commit = sparse_partial_commit,
                                               .give = sparse_partial_give,
                                               .get = sparse_partial_get};
    baton_partial_t *epochs = sparse->epochs;
    epochs->schedule = NULL;
    return baton__survival_create(epochs, sparse->group, &survivor);
}

static baton_status_t close_epochs(baton_sparse_t *sparse)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    if (self == NULL || self->epochs.survival == NULL) {
        return BATON_OK;
    }
    baton_status_t status = baton__survival_destroy(&self->epochs);
    /* This call has destroyed the schedule, or a later call will. */
    sparse->schedule = NULL;
    return status;
}

bool baton_sparse_lives(baton_sparse_t *sparse, int rank)
{
    return baton__sparse_is_alive(sparse, __func__) &&
           (sparse->epochs == NULL ||
            baton_partial_lives(sparse->epochs, rank));
}

/* ---- steps ------------------------------------------------------------- */

/* Called when the application has seen the results up to that of `step`, or
   will not ask for them. If these epochs have ended, their slots may be reused,
   so further epochs may run. */
static void mark_seen(sparse_partial_t *self, uint64_t step)
{
    if (baton__contribution_newest(&self->epochs.contribution, NULL) >= step) {
        baton__partial_limit(&self->epochs, &self->epochs.seen, step);
    }
}

/* Copies a part of the next step's gradient to `staged`, from which no epoch
   takes. sparse_partial_contribute adds all parts when the step starts. */
static baton_status_t contribute_part(baton_sparse_t *sparse, size_t first,
                                      size_t count, const void *part)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    baton__contribution_t *c = &self->epochs.contribution;
    if (!sparse->payload) {
        return BATON_OK;
    }
    if (self->parts == NULL) {
        c->staged.memory = self->parts = baton__alloc_raw(c->slot_bytes);
    }
    if (self->parts == NULL) {
        return baton__sparse_no_memory(sparse);
    }
    memcpy(c->staged.memory + first * sparse->element_bytes, part,
           count * sparse->element_bytes);
    return BATON_OK;
}

/* Adds the gradient of a step to the pending contribution. If the application
   has given it in parts, it is in `staged`, and `gradient` is not used. The
   caller holds the contribute lock. */
static void sparse_partial_contribute(baton_sparse_t *sparse,
                                      const void *gradient, uint64_t step)
{
    baton__contribution_t *c = &sparse->epochs->contribution;
    bool in_parts = sparse->input.part_count > 0;
    if (in_parts && c->first_step == 0 && sparse->input.velocity == NULL &&
        sparse->options.clip == 0) {
        baton__sparse_exchange(&c->pending.memory, &c->staged.memory);
    } else if (sparse->payload) {
        gradient = in_parts ? c->staged.memory : gradient;
        baton__float_mode_t mode = baton__float_mode_enter();
        baton__sparse_contribute(sparse, gradient, c->pending.memory,
                                 c->first_step == 0);
        baton__float_mode_leave(mode);
    }
    baton__contribution_added(c, step);
}

/* Starts a step. The gradient is added only after baton__partial_start_step,
   the last check that can refuse the start. That call may let the epoch begin
   at once; the contribute lock keeps the epoch from taking the contribution
   before the gradient is in it. baton__partial_limit lets this thread continue
   the epoch, so it is called without the lock: the epoch can then take the
   gradient. `flush` is false: baton_sparse_flush refuses flushes with
   options.partial. */
static baton_status_t sparse_partial_start(baton_sparse_t *sparse, bool flush,
                                           const void *gradient)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    baton_partial_t *epochs = &self->epochs;
    const uint64_t step = baton__partial_steps(epochs) + 1;
    (void)pthread_mutex_lock(lock_of(self));
    baton_status_t status = baton__partial_start_step(epochs);
    if (status == BATON_OK) {
        sparse_partial_contribute(sparse, gradient, step);
    }
    (void)pthread_mutex_unlock(lock_of(self));
    if (status == BATON_OK) {
        mark_seen(self, step - 1);
        baton__partial_limit(epochs, &epochs->arrived, step);
        sparse->recovered = false;
        sparse->results.unreturned = 0;
        baton__sparse_started(sparse, false);
    }
    return status;
}

/* Makes the last step's result the current one (results.last) or, after a
   recovery, the next of the results that no wait has returned. */
static void sparse_partial_complete(baton_sparse_t *sparse,
                                    baton_status_t status)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    const uint64_t steps = baton__partial_steps(&self->epochs);
    if (status == BATON_OK) {
        show_result(self, steps - sparse->results.unreturned);
        sparse->steps = steps;
        mark_seen(self, steps - sparse->results.unreturned);
    }
}

/* ---- between steps ----------------------------------------------------- */

/* Takes the contribute lock, so that no epoch can take a contribution until
   sparse_partial_release(). Returns BATON_ERR_BUSY, without the lock, if an
   epoch is running or has failed here; or, with `even`, if peers have completed
   an epoch whose step this rank has not started. The message begins with
   `doing`, the caller's activity. */
static baton_status_t hold(baton_sparse_t *sparse, const char *doing, bool even)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    baton__contribution_t *c = &self->epochs.contribution;
    (void)pthread_mutex_lock(lock_of(self));
    bool working = baton__contribution_is_working(c);
    uint64_t steps = baton__partial_steps(&self->epochs);
    if (!working && !(even && baton__contribution_newest(c, NULL) > steps)) {
        return BATON_OK;
    }
    (void)pthread_mutex_unlock(lock_of(self));
    return baton__sparse_error(
        sparse, BATON_ERR_BUSY, doing, "an epoch that a peer has begun %s",
        working ? "is running, or has failed"
                : "has ended, and its step was not started here: do it on all "
                  "ranks after the same step, and before any starts the next");
}

static void sparse_partial_release(baton_sparse_t *sparse)
{
    (void)pthread_mutex_unlock(lock_of(of_epochs(sparse->epochs)));
}

/* Copies the velocity, or the sum of the residual and the pending gradients. */
static baton_status_t sparse_partial_read_vector(baton_sparse_t *sparse,
                                                 bool velocity, void *to)
{
    const baton__contribution_t *c = &sparse->epochs->contribution;
    if (velocity) {
        baton__sparse_read_velocity(sparse, to);
        return BATON_OK;
    }
    if (c->first_step == 0) {
        memcpy(to, sparse->residual, sparse->vector_bytes);
        return BATON_OK;
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    add_to(sparse, to, sparse->residual, c->pending.memory);
    baton__float_mode_leave(mode);
    return BATON_OK;
}

static void sparse_partial_save(baton_sparse_t *sparse, char *residual,
                                char *pending)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    const baton__contribution_t *c = &self->epochs.contribution;
    self->pending_steps[0] = c->first_step;
    self->pending_steps[1] = c->first_step != 0 ? c->last_step : 0;
    memcpy(residual, sparse->residual, baton__contribution_bytes(c));
    memset(pending, 0, baton__contribution_bytes(c));
    if (c->first_step != 0) {
        memcpy(pending, c->pending.memory, baton__contribution_bytes(c));
    }
}

/* Continues from an imported state: the next epoch has the number `steps` + 1.
   The schedule's own epoch numbers continue, so modes.base changes. */
static void sparse_partial_load(baton_sparse_t *sparse, uint64_t steps,
                                const char *pending)
{
    sparse_partial_t *self = of_epochs(sparse->epochs);
    baton_partial_t *epochs = &self->epochs;
    baton__contribution_t *c = &epochs->contribution;
    uint64_t base =
        epochs->begin.modes.base + steps - baton__partial_steps(epochs);
    epochs->seen = steps;
    sparse_partial_go_on(self, steps);
    epochs->begin.modes.base = base;
    baton__quorum_recover(epochs->begin.quorum);
    baton__partial_begin_limit(epochs, true);
    (void)pthread_mutex_lock(lock_of(self));
    c->first_step = 0;
    atomic_store_explicit(&c->oldest, 0, memory_order_relaxed);
    for (int i = 0; i < 2 && self->pending_steps[0] != 0; i++) {
        memcpy(c->pending.memory, pending, baton__contribution_bytes(c));
        baton__contribution_added(c, self->pending_steps[i]);
    }
    (void)pthread_mutex_unlock(lock_of(self));
}

const baton__sparse_backend_t baton__sparse_partial = {
    .build = sparse_partial_build,
    .connect = connect_epochs,
    .close = close_epochs,
    .free = free_partial,
    .start = sparse_partial_start,
    .contribute = contribute_part,
    .complete = sparse_partial_complete,
    .survive = sparse_partial_survive,
    .take_result = sparse_partial_take_result,
    .hold = hold,
    .release = sparse_partial_release,
    .save = sparse_partial_save,
    .load = sparse_partial_load,
    .read = sparse_partial_read_vector,
    .write = baton__sparse_host_write,
};
