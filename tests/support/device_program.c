#include "support/device_program.h"

#include <stdlib.h>
#include <string.h>

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* ---- functions of nodes ------------------------------------------------- */

/* Makes the change of a device call. A thread of the device calls this function
   when the stream has reached the call. */
static void change_on_device(void *arg)
{
    const program_site_t *site = arg;
    emulated_t *device = ((device_program_t *)site->part)->device;
    unsigned char *copy = allocate(site->view.bytes);
    emulated_read(device, copy, site->address, site->view.bytes);
    program_change(site, copy);
    emulated_write(device, site->address, copy, site->view.bytes);
    free(copy);
}

static baton_status_t queue_change(void *arg, baton_call_t *call,
                                   baton_stream_t stream)
{
    program_site_t *site = arg;
    program_begin(site, call);
    return emulated_call(((device_program_t *)site->part)->device, stream,
                         change_on_device, site);
}

static baton_status_t change_when_polled(void *arg)
{
    const program_site_t *site = arg;
    program_change(site, site->address);
    return BATON_OK;
}

static baton_status_t begin_change(void *arg, baton_call_t *call,
                                   baton_async_t async)
{
    program_site_t *site = arg;
    program_begin(site, call);
    if (site->epoch % 2 == 0) {
        return BATON_OK;
    }
    program_change(site, site->address);
    return BATON_DONE;
}

static const baton_async_ops_t async_ops = {.start = begin_change,
                                            .poll = change_when_polled};

/* ---- memory ------------------------------------------------------------- */

static bool is_on_device(const device_program_t *self, int slot)
{
    return self->part.program->slots[self->part.rank][slot].place ==
           PROGRAM_DEVICE;
}

void device_program_open(device_program_t *self, const program_t *program,
                         int rank, emulated_t *device)
{
    self->device = device;
    self->part = (program_part_t){.program = program,
                                  .rank = rank,
                                  .async = &async_ops,
                                  .device_call = queue_change};
    for (int i = 0; i < PROGRAM_SLOTS; i++) {
        if (!program->slots[rank][i].scratch) {
            self->part.memory[i] =
                is_on_device(self, i)
                    ? emulated_allocate(device, program->slot_bytes + 1)
                    : allocate(program->slot_bytes);
        }
    }
}

void device_program_close(device_program_t *self)
{
    for (int i = 0; i < PROGRAM_SLOTS; i++) {
        if (is_on_device(self, i)) {
            emulated_release(self->device, self->part.memory[i]);
        } else {
            free(self->part.memory[i]);
        }
    }
}

void device_program_write(const device_program_t *self, int slot,
                          const unsigned char *contents)
{
    void *memory = self->part.memory[slot];
    size_t bytes = self->part.program->slot_bytes;
    if (memory != NULL && is_on_device(self, slot)) {
        emulated_write(self->device, memory, contents, bytes);
    } else if (memory != NULL) {
        memcpy(memory, contents, bytes);
    }
}

bool device_program_holds(const device_program_t *self, int slot,
                          const unsigned char *right)
{
    void *memory = self->part.memory[slot];
    size_t bytes = self->part.program->slot_bytes;
    if (memory == NULL || !is_on_device(self, slot)) {
        return memory == NULL || memcmp(memory, right, bytes) == 0;
    }
    unsigned char *copy = allocate(bytes);
    emulated_read(self->device, copy, memory, bytes);
    bool same = memcmp(copy, right, bytes) == 0;
    free(copy);
    return same;
}
