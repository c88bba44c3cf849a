#include "mpi/entries.h"

#include <baton/build.h>

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- operations ---------------------------------------------------------- */

baton__mpi_op_t *_Atomic baton__mpi_ended;

void baton__mpi_op_free(baton__mpi_op_t *op)
{
    baton__mpi_vectors_fini(&op->vectors);
    free(op);
}

#define LATER(a, b) ((a) > (b) ? (a) : (b))

void baton__mpi_op_account(baton__mpi_op_t *op)
{
    baton__mpi_comm_t *comm = op->comm;
    const int64_t counted_ns = comm->counted_to_ns;
    const int64_t from_ns = LATER(op->started_ns, counted_ns);
    const int64_t to_ns = LATER(op->ended_ns, from_ns);
    const int64_t waits_ns = LATER(op->awaited_ns, from_ns);
    if (op->awaited_ns > 0) {
        comm->bytes += (int64_t)baton__mpi_shape_bytes(&op->entry->shape);
        comm->flight_ns += to_ns - from_ns;
        comm->waited_ns += LATER(to_ns, waits_ns) - waits_ns;
        comm->counted_to_ns = to_ns;
        op->awaited_ns = 0;
    }
}

static void entries_push(baton__mpi_op_t *op)
{
    op->ended_ns = baton__mpi_now_ns();
    op->next = atomic_load_explicit(&baton__mpi_ended, memory_order_relaxed);
    /* Pairs with the exchange in requests_complete_all(). */
    while (!atomic_compare_exchange_weak_explicit(&baton__mpi_ended, &op->next,
                                                  op, memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

static void entries_lock(baton__mpi_entry_t *entry)
{
    while (
        atomic_flag_test_and_set_explicit(&entry->lock, memory_order_acquire)) {
        (void)sched_yield();
    }
}

static void entries_unlock(baton__mpi_entry_t *entry)
{
    atomic_flag_clear_explicit(&entry->lock, memory_order_release);
}

/* Takes the next operation out of the queue and makes it the running one.
   Returns NULL if the queue is empty. */
static baton__mpi_op_t *take_next(baton__mpi_entry_t *entry)
{
    entries_lock(entry);
    baton__mpi_op_t *op = entry->first;
    if (op != NULL) {
        entry->first = op->next;
        if (entry->first == NULL) {
            entry->last = &entry->first;
        }
    }
    entry->running = op;
    entries_unlock(entry);
    return op;
}

static baton_status_t entries_start(baton__mpi_entry_t *entry,
                                    const baton__mpi_vectors_t *v)
{
    void *source = v->source.memory;
    void *target = v->target.memory;
    if (entry->source != source || entry->target != target) {
        baton_status_t status =
            baton_schedule_rebind(entry->schedule, source, target);
        if (status != BATON_OK) {
            return status;
        }
        entry->source = source;
        entry->target = target;
    }
    return baton_schedule_start(entry->schedule);
}

/* Starts `op`, the running operation of the entry. If the start fails, the
   operation ends, and the next one is started. */
static void entries_proceed(baton__mpi_entry_t *entry, baton__mpi_op_t *op)
{
    while (op != NULL) {
        baton_status_t status = entries_start(entry, &op->vectors);
        if (status == BATON_OK) {
            return;
        }
        op->code = baton__mpi_code(status, baton_error_message());
        baton__mpi_op_t *next = take_next(entry);
        entries_push(op);
        op = next;
    }
}

static void entries_on_end(void *arg, uint64_t epoch, baton_status_t status)
{
    baton__mpi_entry_t *entry = arg;
    baton__mpi_op_t *op = entry->running;
    assert(op != NULL); /* every epoch belongs to one operation */
    entries_proceed(entry, take_next(entry));
    if (status != BATON_OK) {
        baton_failure_t failure;
        bool described =
            baton_schedule_failure(entry->schedule, &failure) == BATON_OK;
        op->code = baton__mpi_code(status, described ? failure.message : "");
    }
    entries_push(op);
}

void baton__mpi_op_post(baton__mpi_op_t *op)
{
    baton__mpi_entry_t *entry = op->entry;
    op->next = NULL;
    op->started_ns = baton__mpi_now_ns();
    op->code = MPI_SUCCESS;
    atomic_store_explicit(&op->ended, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&baton__mpi.outstanding, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&op->comm->users, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&entry->users, 1, memory_order_relaxed);
    entries_lock(entry);
    bool idle = entry->running == NULL;
    if (idle) {
        entry->running = op;
    } else {
        *entry->last = op;
        entry->last = &op->next;
    }
    entries_unlock(entry);
    if (idle) {
        entries_proceed(entry, op);
    }
}

/* ---- schedules ----------------------------------------------------------- */

/* Limits of the entries that a communicator retains for further calls: always
   the RETAINED entries that were used last, and more entries as long as all
   retained ones together take at most RETAINED_BYTES. An entry counts as
   ENTRY_BYTES and the bytes of its vector. */
enum { RETAINED = 64, RETAINED_BYTES = 8 << 20, ENTRY_BYTES = 8 << 10 };

static baton_status_t entries_create(baton__mpi_entry_t *entry,
                                     const baton__mpi_op_t *op)
{
    const baton__mpi_shape_t *shape = &entry->shape;
    const baton__mpi_traits_t *traits = &baton__mpi_traits[shape->kind];
    const baton__mpi_vectors_t *v = &op->vectors;
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s",
                   op->persistent ? "persistent " : "", traits->name);
    entry->source = v->source.memory;
    entry->target = v->target.memory;
    baton_operands_t on = {.source = entry->source,
                           .target = entry->target,
                           .count = shape->count,
                           .dtype = shape->dtype,
                           .op = shape->op,
                           .root = shape->root,
                           .counts = shape->counts,
                           .name = name,
                           .depth = 2};
    if (shape->kind == BATON__MPI_ALLTOALLV) {
        on.target_counts = shape->counts + shape->size;
    }
    return traits->create(op->comm->group, &on, &entry->schedule);
}

static void free_entry(baton__mpi_entry_t *entry)
{
    if (entry->schedule != NULL) {
        (void)!baton_schedule_destroy(entry->schedule);
    }
    if (entry->own != NULL) {
        baton__mpi_op_free(entry->own);
    }
    baton__mpi_shape_fini(&entry->shape);
    free(entry);
}

static baton_status_t entries_make(baton__mpi_op_t *op,
                                   baton__mpi_shape_t *shape)
{
    baton__mpi_entry_t *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    entry->shape = *shape;
    shape->counts = NULL;
    shape->function = NULL;
    entry->last = &entry->first;
    atomic_flag_clear(&entry->lock);
    baton_status_t status = entries_create(entry, op);
    if (status != BATON_OK) {
        entry->schedule = NULL;
        free_entry(entry);
        return status;
    }
    baton_schedule_on_end(entry->schedule, entries_on_end, entry);
    entry->next = op->comm->entries;
    op->comm->entries = entry;
    op->entry = entry;
    return BATON_OK;
}

void baton__mpi_entries_reap(baton__mpi_comm_t *comm, bool all)
{
    baton__mpi_entry_t **at = &comm->entries;
    while (*at != NULL) {
        baton__mpi_entry_t *entry = *at;
        if (all ||
            (!atomic_load_explicit(&entry->retained, memory_order_acquire) &&
             atomic_load_explicit(&entry->users, memory_order_acquire) == 0)) {
            *at = entry->next;
            free_entry(entry);
        } else {
            at = &entry->next;
        }
    }
}

/* Finds the shape's entry and moves it to the front of the list. If there is
   none, marks the least recently used entries that exceed the limits as not
   retained. These entries are the same on all ranks, as all ranks make the same
   calls. */
static baton__mpi_entry_t *entries_find(baton__mpi_comm_t *comm,
                                        const baton__mpi_shape_t *shape)
{
    size_t bytes = 0;
    int retained = 1; /* counts the new entry */
    baton__mpi_entry_t **at = &comm->entries;
    for (; *at != NULL; at = &(*at)->next) {
        baton__mpi_entry_t *entry = *at;
        if (!entry->retained || entry->own != NULL) {
            continue;
        }
        if (baton__mpi_shape_equals(&entry->shape, shape)) {
            *at = entry->next;
            entry->next = comm->entries;
            comm->entries = entry;
            return entry;
        }
        bytes += ENTRY_BYTES + baton__mpi_shape_bytes(&entry->shape);
        entry->retained = ++retained <= RETAINED || bytes <= RETAINED_BYTES;
    }
    return NULL;
}

/* An entry is not retained for further calls if the call is persistent, if the
   collective has the trait `hidden`, or if the shape has a reduction function
   of the program: the same MPI_Op may later stand for another function, and the
   same MPI_Datatype for another type. */
baton_status_t baton__mpi_entry_for(baton__mpi_op_t *op,
                                    baton__mpi_shape_t *shape)
{
    bool retains = !baton__mpi_traits[shape->kind].hidden &&
                   shape->function == NULL && !op->persistent;
    op->entry = retains ? entries_find(op->comm, shape) : NULL;
    if (op->entry != NULL) {
        return BATON_OK;
    }
    baton__mpi_entries_reap(op->comm, false);
    baton_status_t status = entries_make(op, shape);
    if (status == BATON_OK) {
        op->entry->retained = retains;
    }
    return status;
}
