/* Partial sparse all-reduce: the algorithm's schedule behind the activation of
   a partial collective (coll/partial/begin.h).

       begin --> take --> [ the algorithm's nodes ] --> publish

   Vectors of n elements, which move by changing places:

       start adds to        take, where a           the epoch works in
         pending  <-------> gradient is   taken --+
                            pending               +--> work <----> residual
                                                         publish, or recover

   A rank of which an epoch takes nothing works from zeros: what `work` is at
   the end is then what the residual gains, and publish adds the two up. After a
   publish, `work` is the old residual and `taken` what was added to it, until
   the next take: if the epoch fails after all, both go back.

   `lock` is held by the application while it adds to `pending`, or uses the
   residual, for which no epoch may be working. The driver only tries it, in
   take, which is polled until the application has done. */
#include "coll/sparse/sparse.h"

#include "base/error.h"
#include "base/float_mode.h"
#include "coll/partial/begin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* What the vectors are. WORKING begins and PUBLISHED and IDLE end it, on the
   driver; the application sees with the lock held that no epoch works, and none
   can begin then. */
typedef enum work_state {
    IDLE,      /* no epoch has worked since the first, or a recovery */
    WORKING,   /* from take to publish, or recover */
    PUBLISHED, /* until the next take, or recover */
} work_state_t;

/* Steps whose gradients are in a vector; 0 is any before the last recovery. */
typedef struct steps {
    bool any;
    uint64_t first, last;
} steps_t;

/* The result of an epoch, for the application. */
typedef struct result {
    uint32_t *indices;
    char *values;
    size_t count;
    steps_t taken;
    baton_sparse_stats_t stats;
} result_t;

struct baton__sparse_partial {
    baton_sparse_t *sparse;
    baton__begin_t begin;
    uint32_t history;
    uint32_t max_staleness; /* 0: unbounded */
    result_t *results;      /* epoch e's is at e % (history + 1) */

    pthread_mutex_t lock;
    char *pending;
    steps_t pending_steps;

    _Atomic work_state_t state;
    char *taken;
    steps_t taken_steps;
    uint64_t epoch; /* the last that has begun to work */

    uint64_t steps; /* that this rank has started; the application's */
    /* Under the lock: steps whose results the application has got, or does not
       ask for any more. */
    uint64_t seen;
};

static result_t *result_of(const baton__sparse_partial_t *self, uint64_t epoch)
{
    return &self->results[epoch % ((uint64_t)self->history + 1)];
}

/* Pairs with the release in set_state: who sees that no epoch works sees what
   the last one has left. */
static work_state_t state_of(const baton__sparse_partial_t *self)
{
    return atomic_load_explicit(&self->state, memory_order_acquire);
}

static void set_state(baton__sparse_partial_t *self, work_state_t state)
{
    atomic_store_explicit(&self->state, state, memory_order_release);
}

static void add_to(const baton_sparse_t *sparse, char *target, const char *left,
                   const char *right)
{
    BATON_SUM->reduce(BATON_SUM->arg, target, left, right,
                      sparse->options.count, sparse->options.dtype);
}

static bool is_included(const result_t *result, uint64_t step)
{
    const steps_t *taken = &result->taken;
    return taken->any && taken->first <= step && step <= taken->last;
}

/* ---- in an epoch ------------------------------------------------------- */

/* False: the application holds the lock. */
static bool try_take(baton__sparse_partial_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    if (pthread_mutex_trylock(&self->lock) != 0) {
        return false;
    }
    bool any = self->pending_steps.any;
    self->taken_steps = self->pending_steps;
    if (any) {
        baton__sparse_exchange(&self->pending, &self->taken);
        self->pending_steps = (steps_t){0};
    }
    set_state(self, WORKING);
    (void)pthread_mutex_unlock(&self->lock);
    sparse->absent = !any;
    sparse->gradient = self->taken;
    sparse->result_indices = result_of(self, self->epoch)->indices;
    sparse->result_values = result_of(self, self->epoch)->values;
    return true;
}

static baton_status_t take(void *arg, baton_call_t *call, baton_async_t async)
{
    baton__sparse_partial_t *self = arg;
    (void)async; /* only poll completes it */
    baton_status_t status = baton__begin_check_peers(&self->begin, call);
    if (status != BATON_OK) {
        return status;
    }
    self->epoch = baton_call_epoch(call);
    return try_take(self) ? BATON_DONE : BATON_OK;
}

static baton_status_t poll_take(void *arg)
{
    return try_take(arg) ? BATON_OK : BATON_AGAIN;
}

static const baton_async_ops_t take_ops = {.start = take, .poll = poll_take};

static baton_status_t publish(void *arg, baton_call_t *call)
{
    baton__sparse_partial_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    /* Where this rank began the epoch by itself they come meanwhile. */
    baton_status_t status = baton__begin_check_peers(&self->begin, call);
    if (status != BATON_OK) {
        return status;
    }
    if (sparse->absent && sparse->payload) {
        add_to(sparse, sparse->work, sparse->residual, sparse->work);
    }
    baton__sparse_exchange(&sparse->work, &sparse->residual);
    sparse->learned = sparse->next;
    sparse->counting.algorithm = sparse->options.algorithm;
    sparse->counting.rounds = sparse->rounds;
    result_t *result = result_of(self, self->epoch);
    result->count = sparse->payload ? sparse->result_count : 0;
    result->taken = self->taken_steps;
    result->stats = sparse->counting;
    set_state(self, PUBLISHED);
    return BATON_OK;
}

/* ---- failure ----------------------------------------------------------- */

/* Epochs that peers may begin here. The results of those that this rank has not
   seen need a place; and epoch e takes this rank's next gradient, of step
   steps + 1, or a later epoch does, so e may be steps + S. The lock is held, or
   no other thread adds anything. */
static void set_limit(const baton__sparse_partial_t *self)
{
    uint64_t limit = self->seen + self->history;
    if (self->max_staleness != 0 && self->steps + self->max_staleness < limit) {
        limit = self->steps + self->max_staleness;
    }
    baton_schedule_limit(self->sparse->schedule, limit);
}

/* The lock is held. */
static void give_back(baton__sparse_partial_t *self)
{
    if (!self->taken_steps.any) {
        return;
    }
    if (!self->pending_steps.any) {
        baton__sparse_exchange(&self->pending, &self->taken);
    } else if (self->sparse->payload) {
        baton__float_mode_t mode = baton__float_mode_enter();
        add_to(self->sparse, self->pending, self->taken, self->pending);
        baton__float_mode_leave(mode);
    }
    self->pending_steps = self->taken_steps;
}

/* The result of the last step is the application's until its next start, and it
   may not have got it yet. It becomes that of step 0, whose place no epoch
   takes before. */
static void keep_last_result(baton__sparse_partial_t *self)
{
    if (self->steps == 0) {
        return;
    }
    result_t *result = result_of(self, self->steps);
    result_t last = *result;
    bool included = is_included(&last, self->steps);
    last.taken = (steps_t){.any = included};
    *result = self->results[0];
    self->results[0] = last;
}

/* What the last epoch has taken is pending again, unless it stands: `epoch` is
   the last that any rank has completed. The lock is held. */
static void recover_vectors(baton__sparse_partial_t *self, uint64_t epoch)
{
    baton_sparse_t *sparse = self->sparse;
    bool published = state_of(self) == PUBLISHED;
    bool stands = published && self->epoch <= epoch;
    if (published && !stands) {
        baton__sparse_exchange(&sparse->work, &sparse->residual);
    }
    if (state_of(self) != IDLE && !stands) {
        give_back(self);
    }
    self->pending_steps = (steps_t){.any = self->pending_steps.any};
    set_state(self, IDLE);
}

static void recover_steps(baton__sparse_partial_t *self)
{
    keep_last_result(self);
    self->steps = 0;
    self->seen = 0;
}

/* The application is in baton_group_recover. */
static void recover(void *arg, uint64_t epoch)
{
    baton__sparse_partial_t *self = arg;
    baton_sparse_t *sparse = self->sparse;
    (void)pthread_mutex_lock(&self->lock);
    recover_vectors(self, epoch);
    recover_steps(self);
    baton__sparse_recover(sparse, false, epoch);
    baton__begin_recover(&self->begin);
    set_limit(self);
    (void)pthread_mutex_unlock(&self->lock);
}

/* ---- life -------------------------------------------------------------- */

static bool init(baton__sparse_partial_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    const baton_sparse_options_t *o = &sparse->options;
    bool ok = baton__sparse_host_vectors(sparse);
    self->history = o->history;
    self->max_staleness = o->max_staleness;
    sparse->result_sets = (size_t)o->history + 1;
    self->results = baton__sparse_alloc(sparse, sparse->result_sets,
                                        sizeof *self->results, &ok);
    self->pending =
        baton__sparse_room(sparse, o->count, sparse->element_bytes, &ok);
    self->taken =
        baton__sparse_room(sparse, o->count, sparse->element_bytes, &ok);
    self->begin = (baton__begin_t){
        .schedule = sparse->schedule,
        .seed = o->seed,
        .sync_every = o->sync_every,
        .choice = {o->mode, o->mode_ranks},
    };
    return ok && baton__begin_init(&self->begin) == BATON_OK;
}

static bool add_nodes(baton__sparse_partial_t *self)
{
    baton_sparse_t *sparse = self->sparse;
    baton_schedule_t *s = sparse->schedule;
    baton_node_t begin = baton__begin_add(&self->begin);
    baton_node_t taken = baton_add_async(s, &take_ops, self);
    baton_node_t published = baton_add_call(s, publish, self);
    baton_before(s, begin, taken);
    baton_before(s, self->begin.activated, published);
    baton_enclosure_t inside = baton_enclose_begin(s);
    bool ok = sparse->algorithm->build(sparse);
    baton_enclose_end(s, inside, taken, published);
    baton_schedule_on_recover(s, recover, self);
    set_limit(self);
    for (size_t i = 0; ok && sparse->payload && i < sparse->result_sets; i++) {
        size_t first = i * sparse->result_capacity;
        self->results[i].indices = sparse->result_indices + first;
        self->results[i].values =
            sparse->result_values + first * sparse->element_bytes;
    }
    return ok;
}

static baton_status_t build(baton_sparse_t *sparse)
{
    bool ok = true;
    baton__sparse_partial_t *self =
        baton__sparse_alloc(sparse, 1, sizeof *self, &ok);
    if (self != NULL) {
        self->sparse = sparse;
        sparse->partial = self;
        (void)pthread_mutex_init(&self->lock, NULL);
        ok = init(self) && add_nodes(self);
    }
    return ok ? BATON_OK : baton__sparse_no_memory(sparse);
}

static void free_partial(baton_sparse_t *sparse)
{
    baton__sparse_partial_t *self = sparse->partial;
    if (self != NULL) {
        baton__begin_fini(&self->begin);
        (void)pthread_mutex_destroy(&self->lock);
    }
}

/* ---- steps ------------------------------------------------------------- */

/* The results up to this step's have been seen, and their places are free. The
   lock is held. */
static void see(baton__sparse_partial_t *self, uint64_t step)
{
    bool failed = baton_schedule_epoch(self->sparse->schedule) < step;
    if (!failed) {
        self->seen = step;
    }
}

/* Adds the gradient of the next step. The lock is held. */
static void contribute(baton__sparse_partial_t *self, const void *gradient)
{
    steps_t *pending = &self->pending_steps;
    see(self, self->steps); /* they are not asked for any more */
    self->steps++;
    if (self->sparse->payload) {
        baton__float_mode_t mode = baton__float_mode_enter();
        baton__sparse_contribute(self->sparse, gradient, self->pending,
                                 !pending->any);
        baton__float_mode_leave(mode);
    }
    if (!pending->any) {
        *pending = (steps_t){.any = true, .first = self->steps};
    }
    pending->last = self->steps;
}

/* The application has changed something. A limit that is raised has this thread
   go on with the epoch: without the lock, so that it may take what was added.
 */
static void unlock(baton__sparse_partial_t *self)
{
    (void)pthread_mutex_unlock(&self->lock);
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
    (void)factor; /* 1: sets of tensors are not partial */
    (void)pthread_mutex_lock(&self->lock);
    baton_status_t status = baton_schedule_start(sparse->schedule);
    if (status == BATON_OK) {
        contribute(self, gradient);
    }
    unlock(self);
    if (status == BATON_OK) {
        baton__sparse_started(sparse, false);
    }
    return status;
}

static void complete(baton_sparse_t *sparse, bool dense, baton_status_t status)
{
    baton__sparse_partial_t *self = sparse->partial;
    uint64_t step = self->steps;
    (void)dense; /* it is not */
    if (status != BATON_OK) {
        return;
    }
    const result_t *result = result_of(self, step);
    sparse->last = (baton_sparse_result_t){
        .count = result->count,
        .indices = result->indices,
        .values = result->values,
        .included = is_included(result, step),
    };
    sparse->stats = result->stats;
    sparse->steps = sparse->sparse_base + step;
    (void)pthread_mutex_lock(&self->lock);
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
    (void)pthread_mutex_lock(&self->lock);
    if (state_of(self) != WORKING) {
        return BATON_OK;
    }
    (void)pthread_mutex_unlock(&self->lock);
    return baton__error(BATON_ERR_BUSY,
                        "%s \"%s\": an epoch that a peer has begun is running, "
                        "or has failed",
                        doing, sparse->name);
}

static void release(baton_sparse_t *sparse)
{
    (void)pthread_mutex_unlock(&sparse->partial->lock);
}

/* The residual, and what is pending. */
static baton_status_t read_vector(baton_sparse_t *sparse, bool velocity,
                                  void *to)
{
    const baton__sparse_partial_t *self = sparse->partial;
    (void)velocity; /* is saved, which is refused */
    if (!self->pending_steps.any) {
        memcpy(to, sparse->residual,
               sparse->options.count * sparse->element_bytes);
        return BATON_OK;
    }
    baton__float_mode_t mode = baton__float_mode_enter();
    add_to(sparse, to, sparse->residual, self->pending);
    baton__float_mode_leave(mode);
    return BATON_OK;
}

const baton__sparse_backend_t baton__sparse_partial = {
    .accumulates = false, /* start does */
    .build = build,
    .free = free_partial,
    .start = start,
    .complete = complete,
    .hold = hold,
    .release = release,
    .read = read_vector,
    .write = NULL, /* no state is imported */
    .square_sum = baton__sparse_host_square_sum,
};
