/* The device of an engine: how it is attached and closed, and its memory. */
#include "progress/driving/engine.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/options.h"

#include <sched.h>
#include <unistd.h>

static int descriptor_of(void *object, int k)
{
    const baton__device_t *device = object;
    return k == 0 ? device->port.descriptor : -1;
}

static void devices_drain(void *object)
{
    const baton__device_t *device = object;
    uint64_t wake_ups;
    /* read fails if no wake-up has been counted. */
    (void)!read(device->port.descriptor, &wake_ups, sizeof wake_ups);
}

/* Checks that a port has all functions of an optional set, or none. */
static baton_status_t check_group(const baton_device_port_t *port,
                                  const char *names, int there, int all)
{
    return there == 0 || there == all
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "device: port \"%s\" has only %d of the "
                              "functions %s: set all of them or none",
                              port->name, there, names);
}

static baton_status_t check_optional(const baton_device_port_t *port)
{
    int handles = (port->get_handle != NULL) + (port->open_handle != NULL);
    int selection = (port->select_bytes != NULL) + (port->select != NULL) +
                    (port->entries != NULL) + (port->scale != NULL) +
                    (port->square_sum != NULL);
    baton_status_t status =
        check_group(port, "get_handle and open_handle", handles, 2);
    return status != BATON_OK
               ? status
               : check_group(port,
                             "select_bytes, select, entries, scale and "
                             "square_sum",
                             selection, 5);
}

static baton_status_t read_port(const baton_device_port_t *from,
                                baton_device_port_t *out)
{
    baton_status_t status = baton__options_read(
        out, sizeof *out, from, "device: port", "BATON_DEVICE_PORT");
    if (status != BATON_OK) {
        return status;
    }
    if (out->name == NULL || out->allocate == NULL || out->release == NULL ||
        out->check == NULL || out->copy == NULL || out->reduces == NULL ||
        out->reduce == NULL || out->event_create == NULL ||
        out->event_destroy == NULL || out->record == NULL ||
        out->follow == NULL || out->query == NULL || out->await == NULL ||
        out->raise == NULL || out->arm == NULL || out->close == NULL) {
        return baton__error(BATON_ERR_INVALID,
                            "device: a function of port \"%s\" is NULL, or its "
                            "name is",
                            out->name != NULL ? out->name : "?");
    }
    return check_optional(out);
}

/* Allocates the first flags: the words of memory by which users' streams wait
   for epochs. An allocation at a later commit could block, because a stream may
   already wait for a flag then. */
static baton_status_t reserve_flags(baton__device_t *device)
{
    baton__flag_t *flag = baton__flag_take(device);
    if (flag == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory for the state of %s", device->port.name);
    }
    baton__flag_give(device, flag, 0);
    return BATON_OK;
}

static void free_device(baton__device_t *device)
{
    (void)pthread_mutex_destroy(&device->lock);
    baton__free(device);
}

/* Sets the device and watches its descriptor, unless the engine already has a
   device or a group. */
static baton_status_t set_device(baton_engine_t *engine,
                                 baton__device_t *device)
{
    const baton__watched_t descriptors = {.name = device->port.name,
                                          .object = device,
                                          .descriptor = descriptor_of,
                                          .drain = devices_drain};
    baton_status_t status = BATON_OK;
    engine->driver->enter(engine);
    if (engine->device != NULL || engine->stepper.groups != NULL) {
        status = baton__error(
            BATON_ERR_STATE, "device \"%s\": the engine has %s already",
            device->port.name, engine->device != NULL ? "a device" : "a group");
    } else {
        status = baton__event_loop_watch(engine->event_loop, &descriptors,
                                         &engine->device_watch);
        engine->device = status == BATON_OK ? device : NULL;
    }
    engine->driver->leave(engine);
    return status;
}

baton_status_t baton_engine_attach_device(baton_engine_t *engine,
                                          const baton_device_port_t *port,
                                          void *object)
{
    if (!baton__is_given(engine, true, __func__, "engine") ||
        !baton__is_given(port, true, __func__, "port") ||
        !baton__process_is_own(__func__)) {
        return baton__error_status();
    }
    baton__device_t *device = baton__alloc(1, sizeof *device);
    if (device == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a device");
    }
    (void)pthread_mutex_init(&device->lock, NULL);
    device->device = object;
    baton_status_t status = read_port(port, &device->port);
    if (status == BATON_OK) {
        status = reserve_flags(device);
    }
    if (status == BATON_OK) {
        status = set_device(engine, device);
    }
    if (status != BATON_OK) {
        baton__flags_free(device);
        free_device(device);
    }
    return status;
}

/* Waits until the device's streams are empty. One of them may still have an
   operation that raises a flag, and the flags are freed next. */
static void await_streams(const baton__device_t *device)
{
    void *event = NULL;
    if (device->port.event_create(device->device, &event) != BATON_OK) {
        return;
    }
    for (int k = 0; k < BATON_DEVICE_STREAMS; k++) {
        if (device->port.record(device->device, device->port.streams[k],
                                event) == BATON_OK) {
            while (device->port.query(device->device, event) == BATON_AGAIN) {
                (void)sched_yield();
            }
        }
    }
    device->port.event_destroy(device->device, event);
}

void baton__engine_close_device(baton_engine_t *engine)
{
    baton__device_t *device = engine->device;
    if (device == NULL) {
        return;
    }
    baton__event_loop_unwatch(engine->device_watch);
    await_streams(device);
    baton__flags_free(device);
    device->port.close(device->device);
    free_device(device);
    engine->device = NULL;
}

static baton_status_t devices_check_engine(const baton_engine_t *engine,
                                           const char *function)
{
    if (!baton__is_given(engine, true, function, "engine") ||
        !baton__process_is_own(function)) {
        return baton__error_status();
    }
    return engine->device != NULL ? BATON_OK
                                  : baton__error(BATON_ERR_UNSUPPORTED,
                                                 "%s: the engine has no device "
                                                 "(baton_engine_attach_device)",
                                                 function);
}

baton_status_t baton_engine_device(const baton_engine_t *engine,
                                   const baton_device_port_t **port_out,
                                   void **device_out)
{
    if (devices_check_engine(engine, __func__) != BATON_OK ||
        !baton__is_given(port_out, true, __func__, "port_out") ||
        !baton__is_given(device_out, true, __func__, "device_out")) {
        return baton__error_status();
    }
    *port_out = &engine->device->port;
    *device_out = engine->device->device;
    return BATON_OK;
}

/* ---- memory ------------------------------------------------------------ */

static baton_status_t devices_check_kind(baton_memory_t kind,
                                         const char *function)
{
    return (unsigned)kind <= BATON_MEMORY_DEVICE
               ? BATON_OK
               : baton__error(BATON_ERR_INVALID,
                              "%s: kind is %d, must be BATON_MEMORY_HOST or "
                              "_DEVICE, 0 to %d",
                              function, (int)kind, (int)BATON_MEMORY_DEVICE);
}

baton_status_t baton_device_alloc(baton_engine_t *engine, baton_memory_t kind,
                                  size_t bytes, void **out)
{
    baton_status_t status = devices_check_engine(engine, __func__);
    if (status != BATON_OK) {
        return status;
    }
    if (out == NULL || bytes == 0) {
        return baton__error(BATON_ERR_INVALID, "%s: %s", __func__,
                            out == NULL ? "out is NULL"
                                        : "bytes is 0, must be at least 1");
    }
    status = devices_check_kind(kind, __func__);
    if (status != BATON_OK) {
        return status;
    }
    if (kind == BATON_MEMORY_HOST && !baton__memory_fits(bytes)) {
        return baton__error(BATON_ERR_NO_MEMORY, "%s: no memory for %zu bytes",
                            __func__, bytes);
    }
    const baton__device_t *device = engine->device;
    return device->port.allocate(device->device, kind, bytes, out);
}

void baton_device_free(baton_engine_t *engine, baton_memory_t kind,
                       void *memory)
{
    if (memory != NULL && devices_check_engine(engine, __func__) == BATON_OK) {
        const baton__device_t *device = engine->device;
        device->port.release(device->device, kind, memory);
    }
}

baton_status_t baton_device_check(baton_engine_t *engine, const void *memory,
                                  size_t bytes, baton_memory_t kind)
{
    baton_status_t status = devices_check_engine(engine, __func__);
    if (status == BATON_OK) {
        status = devices_check_kind(kind, __func__);
    }
    if (status != BATON_OK) {
        return status;
    }
    const baton__device_t *device = engine->device;
    return device->port.check(device->device, memory, bytes, kind);
}
