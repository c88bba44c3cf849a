/* Gradients on their way from a device to what is pending; see incoming.h. */
#include "coll/sparse/incoming.h"

#include "base/alloc.h"
#include "base/error.h"
#include "coll/sparse/ordered.h"
#include "coll/sparse/partial.h"

#include <stdatomic.h>
#include <stdio.h>

/* More than can be in flight. */
enum { ARRIVALS = 16 };

struct baton__incoming {
    baton_sparse_t *sparse;
    baton_group_t *alone; /* this rank */
    baton_schedule_t *bringing;
    baton_buffer_t gradient;
    char *here; /* n elements, to which the device copies at full speed */
    baton__arrival_t arrivals[ARRIVALS]; /* epoch e's is at e % ARRIVALS */
    const baton__arrival_t *now;         /* the driver's */
    uint64_t started, lost;              /* the application's; lost: and told */
    _Atomic uint64_t brought;            /* and added, if they were to be */
};

/* ---- on the driver ----------------------------------------------------- */

static baton_status_t poll_ready(void *arg)
{
    const baton__incoming_t *self = arg;
    return baton__sparse_ordered_are_given(self->sparse, self->now->gifts)
               ? BATON_OK
               : BATON_AGAIN;
}

static baton_status_t ready(void *arg, baton_call_t *call, baton_async_t async)
{
    baton__incoming_t *self = arg;
    (void)async; /* only poll completes it */
    self->now = &self->arrivals[baton_call_epoch(call) % ARRIVALS];
    return poll_ready(self) == BATON_OK ? BATON_DONE : BATON_OK;
}

static baton_status_t bind(void *arg, baton_call_t *call)
{
    const baton__incoming_t *self = arg;
    (void)call;
    return baton_buffer_rebind(self->bringing, self->gradient,
                               (void *)(uintptr_t)self->now->gradient);
}

/* Pairs with the load in baton__incoming_outcome. */
static baton_status_t poll_add(void *arg)
{
    baton__incoming_t *self = arg;
    if (self->now->step != 0 &&
        !baton__sparse_partial_try_add(self->sparse, self->here, self->now)) {
        return BATON_AGAIN;
    }
    atomic_fetch_add_explicit(&self->brought, 1, memory_order_relaxed);
    return BATON_OK;
}

static baton_status_t add(void *arg, baton_call_t *call, baton_async_t async)
{
    (void)call;
    (void)async; /* as above */
    return poll_add(arg) == BATON_OK ? BATON_DONE : BATON_OK;
}

static const baton_async_ops_t ready_ops = {.start = ready, .poll = poll_ready};
static const baton_async_ops_t add_ops = {.start = add, .poll = poll_add};

/* ---- life -------------------------------------------------------------- */

static baton_status_t build(baton__incoming_t *self)
{
    baton_schedule_t *s = self->bringing;
    const size_t bytes =
        self->sparse->options.count * self->sparse->element_bytes;
    self->gradient = baton_buffer_bind(s, NULL, bytes);
    baton_buffer_set_memory(s, self->gradient, BATON_MEMORY_DEVICE);
    baton_buffer_t here = baton_buffer_bind(s, self->here, bytes);
    baton_node_t nodes[] = {
        baton_add_async(s, &ready_ops, self),
        baton_add_call(s, bind, self),
        baton_add_copy(s, baton_view(here, 0, bytes),
                       baton_view(self->gradient, 0, bytes)),
        baton_add_async(s, &add_ops, self),
    };
    for (int i = 0; i < 3; i++) {
        baton_before(s, nodes[i], nodes[i + 1]);
    }
    return baton_schedule_commit(s);
}

baton_status_t baton__incoming_create(baton_sparse_t *sparse,
                                      baton__incoming_t **out)
{
    baton_engine_t *engine = baton_group_engine(sparse->group);
    baton__incoming_t *self = baton__alloc(1, sizeof *self);
    *out = self;
    if (self == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for sparse \"%s\"",
                            sparse->name);
    }
    self->sparse = sparse;
    void *here = NULL;
    char name[256];
    baton_status_t status = baton_device_alloc(
        engine, BATON_MEMORY_HOST,
        sparse->options.count * sparse->element_bytes, &here);
    self->here = here;
    if (status == BATON_OK) {
        status = baton_group_create_self(engine, &self->alone);
    }
    (void)snprintf(name, sizeof name, "gradient of %s", sparse->name);
    if (status == BATON_OK) {
        status = baton_schedule_create(self->alone, name, &self->bringing);
    }
    return status == BATON_OK ? build(self) : status;
}

baton_status_t baton__incoming_destroy(baton__incoming_t *self)
{
    if (self == NULL) {
        return BATON_OK;
    }
    baton_engine_t *engine = baton_group_engine(self->sparse->group);
    baton_status_t status = baton_schedule_destroy(self->bringing);
    if (status != BATON_ERR_STATE) {
        self->bringing = NULL;
    }
    if (status == BATON_OK) {
        status = baton_group_destroy(self->alone);
    }
    if (status == BATON_OK) {
        baton_device_free(engine, BATON_MEMORY_HOST, self->here);
        baton__free(self);
    }
    return status;
}

/* ---- the application --------------------------------------------------- */

/* Its epoch is the one that the next start begins. */
static void put_arrival(baton__incoming_t *self, const void *gradient,
                        uint64_t step)
{
    const baton_sparse_t *sparse = self->sparse;
    self->arrivals[(self->started + 1) % ARRIVALS] = (baton__arrival_t){
        .gradient = gradient,
        .step = step,
        .gifts = baton__sparse_ordered_gifts(sparse),
        .generation = baton__sparse_ordered_generation(sparse),
    };
}

void baton__incoming_refuse(baton__incoming_t *self)
{
    self->arrivals[self->started % ARRIVALS].refused = true;
}

baton_status_t baton__incoming_start_on(baton__incoming_t *self,
                                        const void *gradient, uint64_t step,
                                        baton_stream_t stream)
{
    baton_status_t status =
        baton_schedule_wait_on(self->sparse->schedule, stream);
    if (status != BATON_OK) {
        return status;
    }
    put_arrival(self, gradient, step);
    status = baton_schedule_start_on(self->bringing, stream);
    if (status != BATON_OK) {
        return status;
    }
    self->started++;
    status = baton_schedule_wait_on(self->bringing, stream);
    if (status != BATON_OK) {
        baton__incoming_refuse(self);
    }
    return status;
}

baton_status_t baton__incoming_wait(baton__incoming_t *self)
{
    baton_status_t status = baton_schedule_wait(self->bringing, -1);
    return status == BATON_ERR_STATE ? status /* in a call node */ : BATON_OK;
}

baton_status_t baton__incoming_bring(baton__incoming_t *self,
                                     const void *gradient,
                                     const void **here_out)
{
    baton_status_t status = baton__incoming_wait(self);
    if (status != BATON_OK) {
        return status;
    }
    put_arrival(self, gradient, 0);
    status = baton_schedule_start(self->bringing);
    if (status != BATON_OK) {
        return status;
    }
    self->started++;
    status = baton_schedule_wait(self->bringing, -1);
    if (status == BATON_OK) {
        *here_out = self->here;
    } else {
        self->lost++; /* this tells it */
    }
    return status;
}

baton_status_t baton__incoming_outcome(baton__incoming_t *self)
{
    uint64_t ended = baton_schedule_epoch(self->bringing);
    ended = ended < self->started ? ended : self->started;
    uint64_t brought =
        atomic_load_explicit(&self->brought, memory_order_relaxed);
    /* One that is brought just now may not have ended. */
    if (ended <= brought + self->lost) {
        return BATON_OK;
    }
    uint64_t lost = ended - brought - self->lost;
    self->lost += lost;
    return baton__error(BATON_ERR_SYSTEM,
                        "\"%s\": %llu gradients that were started are lost: "
                        "the device failed when it copied them",
                        self->sparse->name, (unsigned long long)lost);
}
