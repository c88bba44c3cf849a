/* Partial sparse all-reduce: the algorithm's schedule behind the activation of
   a partial collective (coll/partial/begin.h).

       begin --> take --> [ the algorithm's nodes ] --> publish

   What is pending, what an epoch has taken, and which results are kept, is
   the contribution's (coll/partial/contribution.h). An epoch works in `work`,
   which begins as the residual plus what was taken. publish makes it the
   residual. If the epoch fails after all, recover undoes both.

   A rank of which an epoch takes nothing works from zeros: what `work` is at
   the end is then what the residual gains, and publish adds the two up.

   The contribute lock is held by the application while it adds a gradient, or
   uses the residual, for which no epoch may be working. The driver only tries
   it, in take, which is polled until the application has done. */
#include "coll/sparse/sparse.h"

#include "base/error.h"
#include "base/float_mode.h"
#include "coll/partial/begin.h"
#include "coll/partial/contribution.h"

#include <string.h>

struct baton__sparse_partial {
    baton_sparse_t *sparse;
    baton__begin_t begin;
    baton__contribution_t contribution;
    uint32_t max_staleness; /* 0: unbounded */
    uint64_t base;          /* epochs before the last recovery */
    uint64_t epoch;         /* the last that has begun; the driver's */

    uint64_t steps; /* that this rank has started; the application's */
    char *velocity; /* of momentum, or NULL; the application's */
    /* Under the lock: steps whose results the application has got, or does not
       ask for any more. */
    uint64_t seen;
};

static pthread_mutex_t *lock_of(baton__sparse_partial_t *self)
{
    return &self->contribution.contribute_lock;
}

static void add_to(const baton_sparse_t *sparse, char *target, const char *left,
                   const char *right)
{
    BATON_SUM->reduce(BATON_SUM->arg, target, left, right,
                      sparse->options.count, sparse->options.dtype);
}

/* ---- in an epoch ------------------------------------------------------- */

/* False: the application holds the lock. */
static bool try_take(baton__sparse_partial_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    baton__contribution_t *c = &self->contribution;
    baton__take_t took = baton__contribution_take(c, self->epoch);
    if (took == BATON__TAKE_LATER) {
        return false;
    }
    sparse->absent = took == BATON__TAKE_NOTHING;
    sparse->k = self->epoch > sparse->options.warmup ? sparse->options.k
                                                     : sparse->options.count;
    sparse->gradient = c->source;
    baton__sparse_use_room(sparse, c->result);
    return true;
}

static baton_status_t take(void *arg, baton_call_t *call, baton_async_t async)
{
    baton__sparse_partial_t *self = arg;
    (void)async; /* only poll completes it */
    self->epoch = self->base + baton_call_epoch(call);
    return try_take(self) ? BATON_DONE : BATON_OK;
}

static baton_status_t poll_take(void *arg)
{
    return try_take(arg) ? BATON_OK : BATON_AGAIN;
}

static const baton_async_ops_t take_ops = {.start = take, .poll = poll_take};

/* The epoch has its result, and ends. */
static void end_epoch(baton__sparse_partial_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    if (sparse->absent && sparse->payload) {
        add_to(sparse, sparse->work, sparse->residual, sparse->work);
    }
    baton__sparse_exchange(&sparse->work, &sparse->residual);
    sparse->learned = sparse->next;
    sparse->counting.algorithm = sparse->options.algorithm;
    sparse->counting.rounds = sparse->rounds;
    sparse->rooms[sparse->room].stats = sparse->counting;
    sparse->shown = sparse->room;
    baton__contribution_publish(&self->contribution, self->epoch, 0);
}

static baton_status_t publish(void *arg, baton_call_t *call)
{
    (void)call;
    end_epoch(arg);
    return BATON_OK;
}

/* ---- failure ----------------------------------------------------------- */

/* Epochs that peers may begin here. The results of those that this rank has not
   seen need a place; and epoch e takes this rank's next gradient, of step
   steps + 1, or a later epoch does, so e may be steps + S. The lock is held, or
   no other thread adds anything. */
static void set_limit(const baton__sparse_partial_t *self)
{
    uint64_t limit = self->seen + self->contribution.history;
    if (self->max_staleness != 0 && self->steps + self->max_staleness < limit) {
        limit = self->steps + self->max_staleness;
    }
    baton_schedule_limit(self->sparse->schedule, limit - self->base);
}

/* Pins the result of a step, which becomes `last`, until the next one is. */
static void show_result(baton__sparse_partial_t *self, uint64_t step)
{
    baton_sparse_t *sparse = self->sparse;
    baton__contribution_t *c = &self->contribution;
    baton_partial_result_t pinned;
    if (!baton__contribution_pin(c, step, step, &pinned)) {
        return;
    }
    const baton__sparse_room_t *room = &sparse->rooms[c->pinned];
    sparse->last = (baton_sparse_result_t){
        .count = room->count,
        .indices = room->indices,
        .values = room->values,
        .included = pinned.included,
    };
    sparse->stats = room->stats;
    if (self->velocity != NULL && step > sparse->options.warmup) {
        baton__sparse_mask(sparse, self->velocity, room->indices, room->count);
    }
}

/* ---- recovery ---------------------------------------------------------- */

/* Completes an epoch that this rank lacks, if any rank has completed it. */
static bool agree(baton__sparse_partial_t *self, bool lacks, uint64_t epoch)
{
    baton_sparse_t *sparse = self->sparse;
    if (!baton__sparse_tell(sparse, lacks, epoch)) {
        return false;
    }
    bool gets = lacks && baton__sparse_is_had(sparse, epoch);
    size_t room = gets ? self->contribution.result : sparse->shown;
    if (!baton__sparse_hand_over(sparse, gets, epoch, room, NULL)) {
        return false;
    }
    if (gets) {
        baton__sparse_settle(sparse, room);
        end_epoch(self);
    }
    baton__sparse_make_up(sparse, lacks && !gets ? epoch - 1 : epoch);
    return true;
}

/* True once this rank has completed `last`, as some rank has. All have
   completed it where one has taken for a later one. */
static bool mend(baton__sparse_partial_t *self, uint64_t last)
{
    baton__contribution_t *c = &self->contribution;
    bool lacks = baton__contribution_is_working(c) && c->taken_for == last;
    return agree(self, lacks, last);
}

/* Epochs after the last one that any rank has completed are begun again. */
static void go_on(baton__sparse_partial_t *self, uint64_t last)
{
    baton_sparse_t *sparse = self->sparse;
    baton__contribution_recover(&self->contribution, last, last + 1);
    sparse->phase = BATON__SPARSE_NO_RESULT; /* that is not to be asked for */
    sparse->missed = last - self->seen;
    self->base = last;
    self->steps = last;
}

/* The application is in baton_group_recover, and gets the results that it has
   not got yet behind it. What an epoch has taken that no rank has completed is
   pending again. */
static bool recover(void *arg, uint64_t epoch)
{
    baton__sparse_partial_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    baton__contribution_t *c = &self->contribution;
    uint64_t last = self->base + epoch;
    if (epoch > 0 && !mend(self, last)) {
        return false;
    }
    if (c->newest > last) {
        baton__sparse_exchange(&sparse->work, &sparse->residual);
    }
    go_on(self, last);
    baton__quorum_recover(self->begin.quorum);
    set_limit(self);
    return baton__sparse_recover(sparse, false, epoch);
}

/* The schedule has failed, so nothing begins or ends meanwhile. */
static bool survive(baton_sparse_t *sparse)
{
    baton__sparse_partial_t *self = sparse->partial;
    baton__contribution_t *c = &self->contribution;
    bool lacks = baton__contribution_is_working(c);
    uint64_t epoch = lacks ? c->taken_for : c->newest;
    if (!agree(self, lacks, epoch)) {
        return false;
    }
    go_on(self, c->newest);
    sparse->steps = c->newest;
    return true;
}

/* ---- life -------------------------------------------------------------- */

static void init(baton__sparse_partial_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    const baton_sparse_options_t *o = &sparse->options;
    baton__sparse_host_vectors(sparse);
    self->velocity = sparse->velocity;
    sparse->velocity = NULL; /* no epoch accumulates with it */
    self->max_staleness = o->max_staleness;
    sparse->room_count = (size_t)o->history + BATON__CONTRIBUTION_RESULTS;
}

static baton__begin_t begin_of(const baton_sparse_t *sparse)
{
    const baton_sparse_options_t *o = &sparse->options;
    return (baton__begin_t){
        .schedule = sparse->schedule,
        .modes = {.choice = {o->mode, o->mode_ranks},
                  .sync_every = o->sync_every,
                  .seed = o->seed},
    };
}

static void add_nodes(baton__sparse_partial_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    baton_schedule_t *s = sparse->schedule;
    baton_node_t begin = baton__begin_add(&self->begin);
    baton_node_t taken = baton_add_async(s, &take_ops, self);
    baton_node_t published = baton_add_call(s, publish, self);
    baton_before(s, begin, taken);
    baton_before(s, self->begin.activated, published);
    baton_enclosure_t inside = baton_enclose_begin(s);
    sparse->algorithm->build(sparse);
    baton_enclose_end(s, inside, taken, published);
    baton_schedule_on_recover(s, recover, self);
    baton__begin_fail_if_lost(s);
    set_limit(self);
}

static baton__contribution_t contribution_of(const baton_sparse_t *sparse)
{
    size_t count = sparse->payload ? sparse->options.count : 0;
    return (baton__contribution_t){
        .count = count,
        .slot_bytes = count * sparse->element_bytes,
        .dtype = sparse->options.dtype,
        .op = BATON_SUM,
        .history = sparse->options.history,
        .sparse = true,
    };
}

static baton_status_t open_partial(baton_sparse_t *sparse)
{
    sparse->lasting = true;
    baton__sparse_partial_t *self =
        baton__sparse_alloc(sparse, 1, sizeof *self);
    sparse->lasting = false;
    if (self == NULL) {
        return BATON_OK;
    }
    self->sparse = sparse;
    sparse->partial = self;
    self->contribution = contribution_of(sparse);
    init(self);
    return baton__contribution_init(&self->contribution);
}

/* Once more in another group. */
static baton_status_t build(baton_sparse_t *sparse)
{
    baton_status_t status =
        sparse->partial == NULL ? open_partial(sparse) : BATON_OK;
    baton__sparse_partial_t *self = sparse->partial;
    if (self == NULL) {
        return status;
    }
    if (status == BATON_OK) {
        baton__begin_fini(&self->begin);
        self->begin = begin_of(sparse);
        status = baton__begin_init(&self->begin);
    }
    if (status == BATON_OK) {
        add_nodes(self);
    }
    return status;
}

static void free_partial(baton_sparse_t *sparse)
{
    baton__sparse_partial_t *self = sparse->partial;
    if (self != NULL) {
        baton__begin_fini(&self->begin);
        baton__contribution_fini(&self->contribution);
    }
}

/* ---- steps ------------------------------------------------------------- */

/* The results up to this step's have been seen, and their places are free. The
   lock is held. */
static void see(baton__sparse_partial_t *self, uint64_t step)
{
    if (baton__contribution_newest(&self->contribution, NULL) >= step) {
        self->seen = step;
    }
}

/* Adds the gradient of the next step. The lock is held. */
static void contribute(baton__sparse_partial_t *self, const void *gradient)
{
    baton__contribution_t *c = &self->contribution;
    see(self, self->steps); /* they are not asked for any more */
    self->steps++;
    if (self->sparse->payload) {
        baton__float_mode_t mode = baton__float_mode_enter();
        baton__sparse_contribute(self->sparse, gradient, self->velocity,
                                 c->pending, c->first_step == 0);
        baton__float_mode_leave(mode);
    }
    baton__contribution_added(c, self->steps);
}

/* The application has changed something. A limit that is raised has this thread
   go on with the epoch: without the lock, so that it may take what was added.
 */
static void unlock(baton__sparse_partial_t *self)
{
    (void)pthread_mutex_unlock(lock_of(self));
    set_limit(self);
}

/* The gradient is added once the start cannot be refused any more. The lock
   keeps the epoch, which may begin at once, from taking anything before that.
 */
static baton_status_t start(baton_sparse_t *sparse, bool flush,
                            const void *gradient, double factor)
{
    baton__sparse_partial_t *self = sparse->partial;
    (void)flush;  /* is refused */
    (void)factor; /* 1: of sets of tensors, too */
    (void)pthread_mutex_lock(lock_of(self));
    baton_status_t status = baton_schedule_start(sparse->schedule);
    if (status == BATON_OK) {
        contribute(self, gradient);
    }
    unlock(self);
    if (status == BATON_OK) {
        sparse->recovered = false;
        sparse->missed = 0;
        baton__sparse_started(sparse, false);
    }
    return status;
}

/* Shows the last step's result, or the next that was missed. */
static void complete(baton_sparse_t *sparse, bool dense, baton_status_t status)
{
    baton__sparse_partial_t *self = sparse->partial;
    uint64_t step = self->steps - sparse->missed;
    (void)dense; /* it is not */
    if (status != BATON_OK) {
        return;
    }
    show_result(self, step);
    sparse->steps = self->steps;
    (void)pthread_mutex_lock(lock_of(self));
    see(self, step);
    /* The place of the result before this one is free: one more epoch may run.
     */
    unlock(self);
}

/* ---- between steps ----------------------------------------------------- */

/* The driver takes nothing that is pending meanwhile, so no epoch begins to
   work. */
static baton_status_t hold(baton_sparse_t *sparse, const char *doing)
{
    baton__sparse_partial_t *self = sparse->partial;
    (void)pthread_mutex_lock(lock_of(self));
    if (!baton__contribution_is_working(&self->contribution)) {
        return BATON_OK;
    }
    (void)pthread_mutex_unlock(lock_of(self));
    return baton__error(BATON_ERR_BUSY,
                        "%s \"%s\": an epoch that a peer has begun is running, "
                        "or has failed",
                        doing, sparse->name);
}

static void release(baton_sparse_t *sparse)
{
    (void)pthread_mutex_unlock(lock_of(sparse->partial));
}

/* The residual, and what is pending. */
static baton_status_t read_vector(baton_sparse_t *sparse, bool velocity,
                                  void *to)
{
    const baton__contribution_t *c = &sparse->partial->contribution;
    if (velocity) {
        baton__sparse_read_velocity(sparse, sparse->partial->velocity, to);
        return BATON_OK;
    }
    if (c->first_step == 0) {
        memcpy(to, sparse->residual,
               sparse->options.count * sparse->element_bytes);
        return BATON_OK;
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    add_to(sparse, to, sparse->residual, c->pending);
    baton__float_mode_leave(mode);
    return BATON_OK;
}

static baton_status_t write_vectors(baton_sparse_t *sparse,
                                    const void *residual, const void *velocity)
{
    if (velocity != NULL) {
        baton__sparse_write_velocity(sparse, sparse->partial->velocity,
                                     velocity);
    }
    memcpy(sparse->residual, residual,
           sparse->options.count * sparse->element_bytes);
    return BATON_OK;
}

const baton__sparse_backend_t baton__sparse_partial = {
    .accumulates = false, /* start does */
    .build = build,
    .free = free_partial,
    .start = start,
    .complete = complete,
    .survive = survive,
    .hold = hold,
    .release = release,
    .read = read_vector,
    .write = write_vectors,
};
