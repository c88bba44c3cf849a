#include "support/device_cluster.h"

typedef struct attaching {
    emulated_options_t options;
    emulated_t **devices;
    baton_stream_t *streams;
} attaching_t;

static void attach(void *arg, int rank, baton_engine_t *engine)
{
    attaching_t *attaching = arg;
    emulated_t *device = emulated_open(&attaching->options);
    attaching->options.seed++;
    attaching->devices[rank] = device;
    attaching->streams[rank] = emulated_stream(device);
    support_ok(
        baton_engine_attach_device(engine, emulated_port(device), device));
}

support_cluster_t *device_cluster_open(int size, int variant,
                                       const emulated_options_t *options)
{
    attaching_t attaching = {
        .options = *options,
        .devices = support_alloc((size_t)size, sizeof(emulated_t *)),
        .streams = support_alloc((size_t)size, sizeof(baton_stream_t))};
    support_cluster_t *self =
        support_cluster_prepare(size, variant, attach, &attaching);
    self->devices = attaching.devices;
    self->streams = attaching.streams;
    return self;
}

static baton_view_t view_of(baton_schedule_t *schedule, baton_buffer_t buffer,
                            size_t bytes)
{
    baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
    return baton_view(buffer, 0, bytes);
}

baton_view_t device_view(baton_schedule_t *schedule, void *memory, size_t bytes)
{
    return view_of(schedule, baton_buffer_bind(schedule, memory, bytes), bytes);
}

baton_view_t device_scratch(baton_schedule_t *schedule, size_t bytes)
{
    return view_of(schedule, baton_buffer_scratch(schedule, bytes), bytes);
}

void device_copy(support_cluster_t *self, int rank, void *target,
                 const void *source, size_t bytes)
{
    emulated_t *device = self->devices[rank];
    support_ok(emulated_port(device)->copy(device, self->streams[rank], target,
                                           source, bytes));
}

void device_delay(support_cluster_t *self, int rank, int us)
{
    emulated_delay(self->devices[rank], self->streams[rank], us);
}

void device_synchronise(support_cluster_t *self, int rank)
{
    emulated_synchronise(self->devices[rank], self->streams[rank]);
}

device_gate_t device_gate(support_cluster_t *self, int rank)
{
    return (device_gate_t){.device = self->devices[rank],
                           .stream = self->streams[rank],
                           .flag = emulated_gate(self->devices[rank])};
}

void device_gate_close(device_gate_t *gate)
{
    support_ok(
        emulated_port(gate->device)
            ->await(gate->device, gate->stream, gate->flag, ++gate->closed));
}

void device_gate_open(const device_gate_t *gate)
{
    emulated_open_gate(gate->device, gate->flag, gate->closed);
}

void device_gate_destroy(const device_gate_t *gate)
{
    emulated_free_gate(gate->device, gate->flag);
}
