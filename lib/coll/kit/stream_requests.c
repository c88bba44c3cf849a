/* Requests of streams; see stream_requests.h. */
#include "coll/kit/stream_requests.h"

#include "base/alloc.h"
#include "base/error.h"
#include "coll/kit/check.h"

#include <stdio.h>
#include <string.h>

static char *request_of(const baton__requests_t *self, uint64_t epoch)
{
    return self->queue + epoch % BATON__REQUESTS * self->bytes;
}

static baton_status_t stream_requests_begin(void *arg, baton_call_t *call)
{
    baton__requests_t *self = arg;
    self->begun = baton_call_epoch(call);
    if (self->begin != NULL) {
        self->begin(self->arg, request_of(self, self->begun));
    }
    return BATON_OK;
}

static baton_status_t serve(void *arg, baton_call_t *call,
                            baton_stream_t stream)
{
    const baton__requests_t *self = arg;
    return self->serve(self->arg, request_of(self, self->begun), stream);
}

static baton_status_t stream_requests_end(void *arg, baton_call_t *call)
{
    const baton__requests_t *self = arg;
    self->end(self->arg, request_of(self, self->begun));
    return BATON_OK;
}

baton_status_t baton__requests_init(baton__requests_t *self,
                                    baton_group_t *group, const char *what,
                                    const char *name)
{
    char text[256];
    self->started = 0;
    self->queue = baton__alloc(BATON__REQUESTS, self->bytes);
    if (self->queue == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for %d requests",
                            (int)BATON__REQUESTS);
    }
    (void)snprintf(text, sizeof text, "%s %s", what, name);
    baton_status_t status = baton_schedule_create(group, text, &self->schedule);
    if (status != BATON_OK) {
        return status;
    }
    baton_node_t first =
        baton_add_call(self->schedule, stream_requests_begin, self);
    baton_node_t served = baton_add_device_call(self->schedule, serve, self);
    baton_before(self->schedule, first, served);
    if (self->end != NULL) {
        baton_before(self->schedule, served,
                     baton_add_call(self->schedule, stream_requests_end, self));
    }
    return baton_schedule_commit(self->schedule);
}

baton_status_t baton__requests_fini(baton__requests_t *self)
{
    baton_status_t status = baton_schedule_destroy(self->schedule);
    if (status == BATON_OK) {
        self->schedule = NULL;
        baton__free(self->queue);
        self->queue = NULL;
    }
    return status;
}

/* Stores the request for the epoch that the next start will begin. */
static void put_request(baton__requests_t *self, const void *request)
{
    memcpy(request_of(self, self->started + 1), request, self->bytes);
}

baton_status_t baton__requests_start_on(baton__requests_t *self,
                                        const void *request,
                                        baton_stream_t stream, bool ordered)
{
    put_request(self, request);
    baton_status_t status = baton_schedule_start_on(self->schedule, stream);
    if (status != BATON_OK) {
        return status;
    }
    self->started++;
    return ordered ? baton_schedule_wait_on(self->schedule, stream) : BATON_OK;
}

baton_status_t baton__requests_run(baton__requests_t *self, const void *request)
{
    if (self->started > 0 &&
        baton__wait_out(self->schedule, -1) == BATON_ERR_STATE) {
        /* BATON_ERR_STATE: this function was called in a call node. */
        return BATON_ERR_STATE;
    }
    put_request(self, request);
    baton_status_t status = baton_schedule_start(self->schedule);
    if (status != BATON_OK) {
        return status;
    }
    self->started++;
    return baton__wait_out(self->schedule, -1);
}
