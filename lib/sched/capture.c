/* Recording the nodes of a schedule, and launching them; see capture.h. */
#include "sched/capture.h"

#include "base/alloc.h"
#include "base/error.h"
#include "ops/device.h"
#include "sched/offload.h"

/* ---- what can be captured ------------------------------------------------ */

/* Why the node can't be captured; NULL: it can. */
static const char *find_reason(const baton_schedule_t *schedule, uint32_t node,
                               uint32_t edges)
{
    const baton__op_t *op = &schedule->ops[node];
    uint32_t need = schedule->needs[node];
    if (op->kind == BATON__CALL || op->kind == BATON__ASYNC) {
        return "its function runs on the host";
    }
    if (op->kind != BATON__NOP && !baton__op_offloaded(op)) {
        return baton__kinds[op->kind].message ? "it is a message"
               : op->kind == BATON__ON_START  ? "it depends on who began the "
                                                "epoch"
                                              : "its views are in host memory";
    }
    if (need != BATON_NEED_ALL && need < edges) {
        return "it does not wait for all of its edges";
    }
    return op->length != BATON__NO_LENGTH
               ? "its length is set anew in each epoch"
               : NULL;
}

static baton_status_t refuse(const baton_schedule_t *schedule, const char *why)
{
    return baton__error(BATON_ERR_UNSUPPORTED,
                        "commit of \"%s\" failed: it can't be captured: %s",
                        schedule->name, why);
}

baton_status_t baton__capture_check(const baton_schedule_t *schedule,
                                    const baton__order_t *order)
{
    const baton__device_t *device = schedule->group->device;
    if (!schedule->captured) {
        return BATON_OK;
    }
    if (device == NULL) {
        return refuse(schedule, "the engine has no device "
                                "(baton_engine_attach_device)");
    }
    for (uint32_t i = 0; i < schedule->count; i++) {
        const char *why =
            find_reason(schedule, i, order->first[i + 1] - order->first[i]);
        if (why != NULL) {
            return baton__error(BATON_ERR_UNSUPPORTED,
                                "commit of \"%s\" failed: it can't be captured "
                                "because of %s: %s",
                                schedule->name, baton__node_name(schedule, i),
                                why);
        }
    }
    if (schedule->on_recover != NULL) {
        return refuse(schedule, "it has an on_recover function");
    }
    return device->port.graph_begin != NULL
               ? BATON_OK
               : refuse(schedule, "the device has no graphs");
}

/* The first node with a view that no memory is bound to; BATON__NO_NODE. */
static uint32_t find_unbound(const baton_schedule_t *schedule)
{
    for (uint32_t node = 0; node < schedule->count; node++) {
        const baton__op_t *op = &schedule->ops[node];
        const baton__kind_info_t *kind = &baton__kinds[op->kind];
        for (int i = 0; i < BATON__OPERANDS && op->bytes > 0; i++) {
            if (((kind->reads | kind->writes) >> i & 1) != 0 &&
                schedule->addresses[op->buffer[i]] == NULL) {
                return node;
            }
        }
    }
    return BATON__NO_NODE;
}

/* ---- recording ------------------------------------------------------------
 */

/* A recording: the streams, and an event of each step that is followed. The
   event `probe` is recorded behind device calls: that fails if the function has
   done what can't be recorded. */
typedef struct recording {
    baton_schedule_t *schedule;
    const baton__device_t *device;
    const baton__capture_t *capture;
    baton_stream_t streams[BATON_DEVICE_GRAPH_STREAMS];
    void **events;
    void *probe;
} recording_t;

static void destroy_events(const recording_t *of)
{
    const baton__device_t *device = of->device;
    for (uint32_t i = 0; of->events != NULL && i < of->capture->count; i++) {
        if (of->events[i] != NULL) {
            device->port.event_destroy(device->device, of->events[i]);
        }
    }
    if (of->probe != NULL) {
        device->port.event_destroy(device->device, of->probe);
    }
    baton__free(of->events);
}

static baton_status_t create_events(recording_t *of)
{
    const baton__device_t *device = of->device;
    of->events = baton__alloc(of->capture->count, sizeof *of->events);
    if (of->events == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for %u events",
                            of->capture->count);
    }
    baton_status_t status =
        device->port.event_create(device->device, &of->probe);
    for (uint32_t i = 0; i < of->capture->count && status == BATON_OK; i++) {
        if (of->capture->steps[i].followed) {
            status = device->port.event_create(device->device, &of->events[i]);
        }
    }
    return status;
}

static baton_status_t issue(const recording_t *of, const baton__op_t *op,
                            uint32_t node, baton_stream_t stream)
{
    const baton__device_t *device = of->device;
    const baton__context_t context = {.owner = of->schedule,
                                      .address = of->schedule->addresses};
    baton_status_t status =
        baton__device_issue(op, node, &context, device, stream, op->bytes);
    return status == BATON_OK && op->kind == BATON__DEVICE_CALL
               ? device->port.record(device->device, stream, of->probe)
               : status;
}

static baton_status_t record_step(const recording_t *of, uint32_t i)
{
    const baton__capture_step_t *step = &of->capture->steps[i];
    const baton__device_t *device = of->device;
    const baton__op_t *op = &of->schedule->ops[step->node];
    baton_stream_t stream = of->streams[step->stream];
    baton_status_t status = BATON_OK;
    for (uint32_t f = step->first_follow;
         f < step[1].first_follow && status == BATON_OK; f++) {
        status = device->port.follow(device->device, stream,
                                     of->events[of->capture->follows[f]]);
    }
    if (status == BATON_OK && op->kind != BATON__NOP) {
        status = issue(of, op, step->node, stream);
    }
    if (status == BATON_OK && step->followed) {
        status = device->port.record(device->device, stream, of->events[i]);
    }
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status, "\"%s\": %s can't be captured: %s",
                              of->schedule->name,
                              baton__node_name(of->schedule, step->node),
                              baton_error_message());
}

static baton_status_t record_steps(const recording_t *of, void *graph)
{
    const baton__device_t *device = of->device;
    for (uint32_t i = 0; i < of->capture->count; i++) {
        baton_status_t status = record_step(of, i);
        if (status != BATON_OK) {
            return status;
        }
    }
    baton_status_t status = device->port.graph_end(device->device, graph);
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status, "\"%s\": its nodes can't be captured: %s",
                              of->schedule->name, baton_error_message());
}

/* A schedule without nodes is recorded, too, and its epochs do nothing. */
static baton_status_t record_all(recording_t *of, void **out)
{
    const baton__device_t *device = of->device;
    int streams = of->capture->streams > 0 ? of->capture->streams : 1;
    void *graph = NULL;
    baton_status_t status = create_events(of);
    if (status == BATON_OK) {
        status = device->port.graph_begin(device->device, streams, of->streams,
                                          &graph);
    }
    if (status != BATON_OK) {
        return baton__error(status, "\"%s\": its nodes can't be captured: %s",
                            of->schedule->name, baton_error_message());
    }
    status = record_steps(of, graph);
    if (status != BATON_OK) {
        device->port.graph_destroy(device->device, graph);
        return status;
    }
    *out = graph;
    return BATON_OK;
}

static void forget_graph(const baton__device_t *device,
                         baton__capture_t *capture)
{
    if (capture->graph != NULL) {
        device->port.graph_destroy(device->device, capture->graph);
        capture->graph = NULL;
    }
}

baton_status_t baton__capture_record(baton_schedule_t *schedule)
{
    const baton__device_t *device = schedule->offload->device;
    baton__capture_t *capture = schedule->offload->capture;
    forget_graph(device, capture);
    uint32_t unbound = find_unbound(schedule);
    if (unbound != BATON__NO_NODE) {
        return baton__error(BATON_ERR_INVALID,
                            "\"%s\": %s can't be captured: no memory is bound "
                            "to one of its views",
                            schedule->name,
                            baton__node_name(schedule, unbound));
    }
    recording_t of = {
        .schedule = schedule, .device = device, .capture = capture};
    baton_status_t status = record_all(&of, &capture->graph);
    destroy_events(&of);
    return status;
}

bool baton__capture_is_due(const baton_schedule_t *schedule)
{
    return schedule->captured && schedule->offload->capture->graph == NULL;
}

/* ---- life -----------------------------------------------------------------
 */

baton_status_t baton__capture_create(baton_schedule_t *schedule,
                                     const baton__order_t *order)
{
    baton__capture_t *capture = baton__alloc(1, sizeof *capture);
    schedule->offload->capture = capture;
    if (capture == NULL || !baton__capture_assign(schedule, order, capture)) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "commit of \"%s\" failed: no memory to capture its "
                            "%u nodes",
                            schedule->name, schedule->count);
    }
    if (find_unbound(schedule) != BATON__NO_NODE) {
        return BATON_OK; /* a start records them */
    }
    baton_status_t status = baton__capture_record(schedule);
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status, "commit of %s", baton_error_message());
}

void baton__capture_destroy(baton_schedule_t *schedule)
{
    baton__capture_t *capture = schedule->offload->capture;
    if (capture == NULL) {
        return;
    }
    forget_graph(schedule->offload->device, capture);
    baton__free(capture->steps);
    baton__free(capture->follows);
    baton__free(capture);
    schedule->offload->capture = NULL;
}

/* ---- epochs ---------------------------------------------------------------
 */

/* What is behind a launch that is in its stream already. Where the stream can't
   raise the flag the host will, when the epoch has ended; without its event
   nothing would tell when that is, so a device that refuses to record it is
   asked twice. The event comes last: the flag has been raised then. */
static baton_status_t end_launch(const baton_schedule_t *schedule,
                                 baton_stream_t stream, uint64_t epoch,
                                 bool raise)
{
    const baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    void *event = offload->starts[epoch % BATON__STARTS];
    if (raise) {
        (void)device->port.raise(
            device->device, stream, offload->flag->flag,
            atomic_load_explicit(&offload->base, memory_order_relaxed) + epoch);
    }
    return device->port.record(device->device, stream, event) == BATON_OK
               ? BATON_OK
               : device->port.record(device->device, stream, event);
}

baton_status_t baton__capture_launch(const baton_schedule_t *schedule,
                                     baton_stream_t stream, uint64_t epoch,
                                     bool raise)
{
    const baton__offload_t *offload = schedule->offload;
    const baton__device_t *device = offload->device;
    uint64_t retired =
        atomic_load_explicit(&schedule->shared.retired, memory_order_acquire);
    baton_status_t status = BATON_OK;
    if (retired + 1 < epoch) {
        status =
            device->port.follow(device->device, stream,
                                offload->starts[(epoch - 1) % BATON__STARTS]);
    }
    if (status == BATON_OK) {
        status = device->port.graph_launch(device->device,
                                           offload->capture->graph, stream);
    }
    return status == BATON_OK ? end_launch(schedule, stream, epoch, raise)
                              : status;
}
