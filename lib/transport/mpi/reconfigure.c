/* Makes a group of the living ranks of another group and of processes that
   join. All of them meet in a store.

   The living ranks agree by baton_group_shrink on which ranks live. The lowest
   of them leads: it puts a record (call_t), the call, under NAME.call, with a
   random number. A process that joins puts a request under NAME.join, with a
   random number of its own and the number of the call. The leader reads the
   request, and writes the process's number to a free place of the call: a place
   stands for a rank of the new group. A process whose number is not in the call
   puts its request again, so it does no harm that one request overwrites
   another. When all places are taken, the call is complete, and all make a
   group by the name NAME.NUMBER, under which the store has nothing of an
   earlier attempt.

   The leader passes its call on to the other living ranks by all-reduces, to
   which they add nothing. It repeats these all-reduces while it waits, so that
   the death of a living rank is noticed. */
#include "transport/mpi/bootstrap_store.h"
#include "transport/mpi/exchange.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "transport/group.h"
#include "transport/shm/share.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long the leader, and a process that joins, wait between two looks at the
   store. */
enum { PAUSE_NS = 2000000 };

/* A place of the new group. */
typedef struct place {
    /* 0: the place is free. 1 + a rank of the old group: it has that rank. Any
       larger number is that of a process that joins. */
    int64_t owner;
    /* By this the others notice that the process at this place has ended before
       it has met them. */
    baton__process_id_t process_id;
} place_t;

/* The call by which the leader, the lowest rank that lives, asks processes to
   join a new group. The call lies in the store. The leader passes it on to the
   other ranks of the old group by an all-reduce (maximum), in which each of
   them gives its own place, and else zeros; so no field may be negative. */
typedef struct call {
    int64_t number; /* a random number that identifies this call */
    int64_t size;   /* number of ranks of the new group */
    /* number of places that are free; 0: the call is complete */
    int64_t free;
    /* why the leader has given up: minus the status; 0: it has not */
    int64_t error;
    place_t places[BATON__SHRINK_RANKS]; /* by rank of the new group */
} call_t;

/* The request that a process puts into the store to join. */
typedef struct request {
    /* process: the random number of the process. call: the number of the call
       that the process answers. */
    int64_t process, call;
    baton__process_id_t process_id;
} request_t;

static size_t call_bytes(int64_t size)
{
    return offsetof(call_t, places) + (size_t)size * sizeof(place_t);
}

static baton__process_id_t own_process_id(void)
{
    const baton__location_t *location = baton__location_own();
    return (baton__process_id_t){.host = (int64_t)(location->host & INT64_MAX),
                                 .pids = (int64_t)(location->pids & INT64_MAX),
                                 .process = getpid()};
}

static int64_t random_number(void)
{
    return (int64_t)(baton__share_random() >> 1 | (uint64_t)1 << 62);
}

static void call_pause(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

/* Makes the group of a complete call, in which this process has the place
   `own`. All of the group's processes have taken part in the call a moment ago.
   So the time limit is BATON_PEER_TIMEOUT_MS, not the timeout of the
   application's call. */
static baton_status_t call_make_group(const baton__store_use_t *use,
                                      baton_engine_t *engine,
                                      const call_t *call, int64_t own,
                                      baton_group_t **out)
{
    const int ms = (int)baton__config_number(BATON__CONFIG_PEER_TIMEOUT_MS);
    const int size = (int)call->size;
    char name[140];
    int *origins = baton__alloc((size_t)size, sizeof *origins);
    baton__process_id_t *process_ids =
        baton__alloc((size_t)size, sizeof *process_ids);
    const baton__store_use_t made = {.function = use->function,
                                     .store = use->store,
                                     .name = name,
                                     .process_ids = process_ids};
    int rank = 0;
    if (origins == NULL || process_ids == NULL) {
        baton__free(origins);
        baton__free(process_ids);
        return baton__error(BATON_ERR_NO_MEMORY, "%s: no memory for a group",
                            use->function);
    }
    for (int i = 0; i < size; i++) {
        const int64_t owner = call->places[i].owner;
        origins[i] = owner <= INT32_MAX ? (int)owner - 1 : -1;
        process_ids[i] = call->places[i].process_id;
        rank = owner == own ? i : rank;
    }
    (void)snprintf(name, sizeof name, "%s.%016llx", use->name,
                   (unsigned long long)call->number);
    baton_status_t status = baton__store_create_group(&made, engine, rank, size,
                                                      ms > 0 ? ms : -1, out);
    baton__free(process_ids);
    if (status != BATON_OK) {
        baton__free(origins);
        return status;
    }
    (*out)->origins = origins;
    return BATON_OK;
}

/* ---- ranks of the old group ---------------------------------------------- */

typedef struct caller {
    baton__store_use_t use;
    baton_group_t *living;
    int size;
    uint64_t until_ns; /* when the leader gives up */
    call_t call;
} caller_t;

/* Gives the living ranks their places, which are their old numbers. If the new
   group is smaller, the living ranks whose old numbers it does not have come
   last, and get the first places that are left. */
static void place_living(caller_t *self)
{
    call_t *call = &self->call;
    const int count = baton_group_size(self->living);
    for (int i = 0; i < count; i++) {
        const int old = baton_group_origin(self->living, i);
        int at = old < self->size ? old : 0;
        while (call->places[at].owner != 0) {
            at++;
        }
        call->places[at].owner = old + 1;
        if (i == baton_group_rank(self->living)) {
            call->places[at].process_id = own_process_id();
        }
    }
}

/* Looks once for a request, and gives its process the first free place, unless
   the process has a place already. */
static baton_status_t call_lead(caller_t *self)
{
    call_t *call = &self->call;
    request_t request;
    size_t stored = 0;
    bool changed = call->number == 0;
    baton_status_t status = BATON_AGAIN;
    if (changed) {
        place_living(self);
        call->size = self->size;
        call->free = self->size - baton_group_size(self->living);
        call->number = random_number();
    } else {
        status = baton__store_get(&self->use, "join", &request, sizeof request,
                                  &stored);
    }
    const bool found = status == BATON_OK && stored == sizeof request;
    if (found && request.call != call->number) {
        /* The request is an old one; or this call was overwritten by a rank
           that had led before, was stopped, and has continued. */
        baton__store_remove(&self->use, "join");
        call_pause();
        changed = true;
    } else if (found) {
        int at = 0;
        while (call->places[at].owner != 0 &&
               call->places[at].owner != request.process) {
            at++;
        }
        changed = call->places[at].owner == 0;
        call->free -= changed;
        call->places[at] = (place_t){request.process, request.process_id};
    }
    if (changed) {
        return baton__store_put(&self->use, "call", call,
                                call_bytes(call->size));
    }
    call_pause();
    if (status != BATON_OK && status != BATON_AGAIN) {
        return status;
    }
    return baton__clock_ns() < self->until_ns ? BATON_OK : BATON_ERR_TIMEOUT;
}

/* Passes the call on to the other living ranks, again and again, until it is
   complete or the leader gives up. All living ranks call this function. */
static baton_status_t pass_call_on(caller_t *self)
{
    const bool leads = baton_group_rank(self->living) == 0;
    const size_t bytes = call_bytes(self->size);
    call_t *call = &self->call;
    baton_status_t own = BATON_OK;
    baton_status_t status = BATON_OK;
    while (status == BATON_OK && call->error == 0 &&
           (call->number == 0 || call->free > 0)) {
        if (leads) {
            own = call_lead(self);
        } else {
            memset(call, 0, bytes);
            place_living(self);
        }
        call->error = -own;
        status =
            baton_allreduce_now(self->living, NULL, call,
                                bytes / sizeof(int64_t), BATON_I64, BATON_MAX);
    }
    if (status != BATON_OK || call->error == 0 ||
        (own != BATON_OK && own != BATON_ERR_TIMEOUT)) {
        return status != BATON_OK ? status : own;
    }
    status = (baton_status_t)-call->error;
    return baton__error(status,
                        "%s: rank %d has looked for processes that join: %d of "
                        "the %d places are free (%s)",
                        self->use.function, baton_group_origin(self->living, 0),
                        (int)call->free, self->size, baton_status_text(status));
}

baton_status_t baton_group_reconfigure(baton_group_t *old,
                                       const baton_store_t *store, int size,
                                       const char *name, int timeout_ms,
                                       baton_group_t **out)
{
    caller_t self = {
        .use = {.function = __func__, .store = store, .name = name},
        .size = size,
        .until_ns = baton__deadline(timeout_ms)};
    baton_status_t status = baton__store_check(&self.use);
    if (status == BATON_OK && (!baton__is_group(old, __func__) ||
                               !baton__is_given(out, true, __func__, "out"))) {
        status = baton__error_status();
    }
    if (status != BATON_OK) {
        return status;
    }
    status = baton_group_shrink(old, timeout_ms, &self.living);
    if (status != BATON_OK) {
        return baton_error_set(status, "%s: %s", __func__,
                               baton_error_message());
    }
    const int count = baton_group_size(self.living);
    status = size >= count && size <= BATON__SHRINK_RANKS
                 ? pass_call_on(&self)
                 : baton__error(
                       BATON_ERR_INVALID,
                       "%s: size is %d, and %d ranks live; allowed: %d to %d "
                       "(for a smaller group see baton_group_create_sub)",
                       __func__, size, count, count, BATON__SHRINK_RANKS);
    if (status == BATON_OK) {
        status = call_make_group(&self.use, old->engine, &self.call,
                                 old->rank + 1, out);
    }
    (void)!baton_group_destroy(self.living);
    return status;
}

/* ---- processes that join ------------------------------------------------- */

/* Looks once for a complete call in which the process `own` has a place. Asks
   for a place if it has none. Returns BATON_AGAIN if the caller must look
   again. */
static baton_status_t find_call(const baton__store_use_t *use, int64_t own,
                                call_t *call)
{
    int64_t at = 0;
    size_t stored = 0;
    baton_status_t status =
        baton__store_get(use, "call", call, sizeof *call, &stored);
    if (status != BATON_OK) {
        return status;
    }
    if (stored < call_bytes(0) || call->size < 1 ||
        call->size > BATON__SHRINK_RANKS || stored != call_bytes(call->size)) {
        return baton__error(BATON_ERR_MISMATCH,
                            "%s: %s.call is not a call of this version of "
                            "Baton: have all ranks load one libbaton",
                            use->function, use->name);
    }
    while (at < call->size && call->places[at].owner != own) {
        at++;
    }
    if (at < call->size || call->free == 0) {
        return at < call->size && call->free == 0 ? BATON_OK : BATON_AGAIN;
    }
    const request_t request = {own, call->number, own_process_id()};
    status = baton__store_put(use, "join", &request, sizeof request);
    return status == BATON_OK ? BATON_AGAIN : status;
}

baton_status_t baton_group_join(baton_engine_t *engine,
                                const baton_store_t *store, const char *name,
                                int timeout_ms, baton_group_t **out)
{
    const baton__store_use_t use = {
        .function = __func__, .store = store, .name = name};
    const uint64_t until_ns = baton__deadline(timeout_ms);
    const int64_t own = random_number();
    call_t call;
    baton_status_t status = baton__store_check(&use);
    if (status == BATON_OK &&
        (!baton__is_given(engine, true, __func__, "engine") ||
         !baton__is_given(out, true, __func__, "out"))) {
        status = BATON_ERR_INVALID;
    }
    if (status != BATON_OK) {
        return status;
    }
    while ((status = find_call(&use, own, &call)) == BATON_AGAIN &&
           baton__clock_ns() < until_ns) {
        call_pause();
    }
    if (status == BATON_AGAIN) {
        status =
            baton__error(BATON_ERR_TIMEOUT,
                         "%s: the ranks of \"%s\" have not called "
                         "baton_group_reconfigure within %d ms, or have no "
                         "place for this process, or lack another one",
                         use.function, name, timeout_ms);
    }
    return status == BATON_OK ? call_make_group(&use, engine, &call, own, out)
                              : status;
}
