#include "sim/device.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

typedef struct event {
    double at_us;
} event_t;

/* ---- memory ------------------------------------------------------------- */

static baton_status_t allocate(void *device, baton_memory_t kind, size_t bytes,
                               void **out)
{
    (void)device;
    (void)kind;
    *out = baton__alloc(bytes, 1);
    return *out != NULL ? BATON_OK
                        : baton__error(BATON_ERR_NO_MEMORY,
                                       "no memory for the simulated device");
}

static void release(void *device, baton_memory_t kind, void *memory)
{
    (void)device;
    (void)kind;
    baton__free(memory);
}

/* All of it is the host's. */
static baton_status_t check(void *device, const void *memory, size_t bytes,
                            baton_memory_t kind)
{
    (void)device;
    (void)memory;
    (void)bytes;
    (void)kind;
    return BATON_OK;
}

/* ---- streams ------------------------------------------------------------ */

static baton_stream_t stream_of(void *device, int k, bool *there)
{
    baton__sim_device_t *self = device;
    *there = k < BATON__SIM_STREAMS;
    return *there ? &self->streams[k] : NULL;
}

static double now_us(const baton__sim_device_t *self)
{
    const baton__sim_port_t *port = self->port;
    return port->clock > port->net->now_us ? port->clock : port->net->now_us;
}

/* When something that is put into the stream now may begin. NULL, a user's
   stream, has nothing in it. */
static double free_us(const baton__sim_device_t *self,
                      const baton__sim_stream_t *stream)
{
    double now = now_us(self);
    return stream != NULL && stream->free_us > now ? stream->free_us : now;
}

static baton_status_t copy(void *device, baton_stream_t stream, void *target,
                           const void *source, size_t bytes)
{
    baton__sim_device_t *self = device;
    baton__sim_stream_t *in = stream;
    const baton_sim_options_t *options = self->port->net->options;
    double begin_us = free_us(self, in);
    if (!options->cost_only) {
        memmove(target, source, bytes);
    }
    if (in == &self->streams[BATON__STREAM_IN] ||
        in == &self->streams[BATON__STREAM_OUT]) {
        double *link = &self->link_free_us[in - self->streams];
        begin_us = *link > begin_us ? *link : begin_us;
        in->free_us = begin_us + options->device_link.alpha_us +
                      (double)bytes * options->device_link.beta_ns * 1e-3;
        *link = in->free_us;
    } else if (in != NULL) {
        in->free_us = begin_us + options->launch_us +
                      (double)bytes * options->device_gamma_ns * 1e-3;
    }
    return BATON_OK;
}

static bool reduces(void *device, const baton_op_t *op, baton_dtype_t dtype)
{
    (void)device;
    (void)op;
    (void)dtype;
    return true;
}

static baton_status_t reduce(void *device, baton_stream_t stream,
                             const baton_op_t *op, baton_dtype_t dtype,
                             void *target, const void *left, const void *right,
                             size_t count)
{
    baton__sim_device_t *self = device;
    baton__sim_stream_t *in = stream;
    const baton_sim_options_t *options = self->port->net->options;
    if (!options->cost_only) {
        op->reduce(op->arg, target, left, right, count, dtype);
    }
    double bytes = (double)(count * baton_op_element_bytes(op, dtype));
    in->free_us = free_us(self, in) + options->launch_us +
                  bytes * options->device_gamma_ns * 1e-3;
    return BATON_OK;
}

/* ---- events ------------------------------------------------------------- */

static baton_status_t event_create(void *device, void **out)
{
    (void)device;
    *out = baton__alloc(1, sizeof(event_t));
    return *out != NULL ? BATON_OK
                        : baton__error(BATON_ERR_NO_MEMORY,
                                       "no memory for a simulated event");
}

static void event_destroy(void *device, void *event)
{
    (void)device;
    baton__free(event);
}

/* The rank is stepped when its time has come. */
static baton_status_t record(void *device, baton_stream_t stream, void *event)
{
    const baton__sim_device_t *self = device;
    event_t *to = event;
    baton__sim_port_t *port = self->port;
    to->at_us = free_us(self, stream);
    if (to->at_us > port->net->now_us) {
        baton__sim_net_push(port->net, to->at_us, BATON__SIM_DEVICE,
                            port->rank);
    } else {
        baton__sim_net_due(port);
    }
    return BATON_OK;
}

static baton_status_t follow(void *device, baton_stream_t stream, void *event)
{
    baton__sim_stream_t *in = stream;
    const event_t *from = event;
    (void)device;
    if (from->at_us > in->free_us) {
        in->free_us = from->at_us;
    }
    return BATON_OK;
}

static baton_status_t query(void *device, void *event)
{
    const baton__sim_device_t *self = device;
    const event_t *from = event;
    return from->at_us <= self->port->net->now_us ? BATON_OK : BATON_AGAIN;
}

/* ---- flags -------------------------------------------------------------- */

static baton_status_t flag_create(void *device, void **out)
{
    (void)device;
    *out = baton__alloc(1, 1);
    return *out != NULL ? BATON_OK : BATON_ERR_NO_MEMORY;
}

static void flag_destroy(void *device, void *flag)
{
    (void)device;
    baton__free(flag);
}

/* Nobody looks at the flags: users have no streams here that go on. */
static baton_status_t await(void *device, baton_stream_t stream, void *flag,
                            uint64_t value)
{
    (void)device;
    (void)stream;
    (void)flag;
    (void)value;
    return baton__error(BATON_ERR_UNSUPPORTED,
                        "the simulator's devices have no streams of users that "
                        "could wait");
}

static baton_status_t raise_in_stream(void *device, baton_stream_t stream,
                                      void *flag, uint64_t value)
{
    (void)device;
    (void)stream;
    (void)flag;
    (void)value;
    return BATON_OK;
}

static void raise_now(void *device, void *flag, uint64_t value)
{
    (void)device;
    (void)flag;
    (void)value;
}

/* ---- life --------------------------------------------------------------- */

static int descriptor(void *device)
{
    (void)device;
    return -1;
}

static void nothing(void *device)
{
    (void)device;
}

/* Each record makes its rank step in time. */
static baton_status_t arm(void *device)
{
    (void)device;
    return BATON_OK;
}

static const baton_device_port_t sim_port = {
    .size = sizeof(baton_device_port_t),
    .name = "simulated device",
    .allocate = allocate,
    .release = release,
    .check = check,
    .stream = stream_of,
    .copy = copy,
    .reduces = reduces,
    .reduce = reduce,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .record = record,
    .follow = follow,
    .query = query,
    .flag_create = flag_create,
    .flag_destroy = flag_destroy,
    .await = await,
    .raise = raise_in_stream,
    .raise_now = raise_now,
    .descriptor = descriptor,
    .drain = nothing,
    .arm = arm,
    .close = nothing,
};

void baton__sim_device_init(baton__sim_device_t *device,
                            baton__sim_port_t *port)
{
    device->port = port;
    device->shared.port = sim_port;
    device->shared.device = device;
    device->shared.work_end = BATON__SIM_STREAMS;
    (void)pthread_mutex_init(&device->shared.lock, NULL);
    for (int k = 0; k < BATON__SIM_STREAMS; k++) {
        device->shared.streams[k] = &device->streams[k];
    }
}

void baton__sim_device_fini(baton__sim_device_t *device)
{
    baton__device_t *shared = &device->shared;
    while (shared->flags != NULL) {
        baton__flag_t *flag = shared->flags;
        shared->flags = flag->next;
        flag_destroy(device, flag->flag);
        baton__free(flag);
    }
    (void)pthread_mutex_destroy(&shared->lock);
}
