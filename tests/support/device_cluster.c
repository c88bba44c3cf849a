#include "support/device_cluster.h"

#include "support/cmocka.h"

#include <stdlib.h>

typedef struct attaching {
    device_cluster_t *self;
    const emulated_options_t *options;
} attaching_t;

static void attach(void *arg, int rank, baton_engine_t *engine)
{
    const attaching_t *attaching = arg;
    emulated_options_t options = *attaching->options;
    options.seed += (uint64_t)rank;
    emulated_t *device = emulated_open(&options);
    attaching->self->devices[rank] = device;
    attaching->self->streams[rank] = emulated_stream(device);
    support_ok(
        baton_engine_attach_device(engine, emulated_port(device), device));
}

device_cluster_t *device_cluster_open(int size, int variant,
                                      const emulated_options_t *options)
{
    device_cluster_t *self = support_alloc(1, sizeof *self);
    self->devices = calloc((size_t)size, sizeof(emulated_t *));
    self->streams = calloc((size_t)size, sizeof(baton_stream_t));
    assert_true(self->devices != NULL && self->streams != NULL);
    attaching_t attaching = {self, options};
    self->cluster = support_cluster_prepare(size, variant, attach, &attaching);
    return self;
}

void device_cluster_close(device_cluster_t *self)
{
    support_cluster_close(self->cluster);
    free(self->devices);
    free(self->streams);
    free(self);
}

baton_view_t device_view(baton_schedule_t *schedule, void *memory, size_t bytes)
{
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, bytes);
    baton_buffer_set_memory(schedule, buffer, BATON_MEMORY_DEVICE);
    return baton_view(buffer, 0, bytes);
}

void device_cluster_copy(device_cluster_t *self, int rank, void *target,
                         const void *source, size_t bytes)
{
    emulated_t *device = self->devices[rank];
    support_ok(emulated_port(device)->copy(device, self->streams[rank], target,
                                           source, bytes));
}

void device_cluster_delay(device_cluster_t *self, int rank, int us)
{
    emulated_delay(self->devices[rank], self->streams[rank], us);
}

void device_cluster_synchronise(device_cluster_t *self, int rank)
{
    emulated_synchronise(self->devices[rank], self->streams[rank]);
}

static void recover(void *group)
{
    support_ok(baton_group_recover(group, SUPPORT_WAIT_MS));
}

void device_cluster_recover(device_cluster_t *self)
{
    int size = self->cluster->size;
    support_thread_t **threads = support_alloc((size_t)size, sizeof(*threads));
    for (int rank = 0; rank < size; rank++) {
        threads[rank] =
            support_thread_start(recover, self->cluster->groups[rank]);
    }
    for (int rank = 0; rank < size; rank++) {
        support_thread_join(threads[rank]);
    }
    free(threads);
}
