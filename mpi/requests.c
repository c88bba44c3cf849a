#include "mpi/requests.h"

#include "mpi/runtime.h"

#include <baton/build.h>

#include <assert.h>
#include <dlfcn.h>
#include <stdlib.h>

/* ---- progress inside MPI ------------------------------------------------- */

static void *opal_progress_register, *opal_progress_unregister, *opal_progress;

static int progress(void)
{
    return atomic_load_explicit(&baton__mpi.outstanding, memory_order_relaxed) >
               0 &&
           baton_engine_step(baton__mpi.engine);
}

/* Open MPI's own functions, which its headers do not declare. */
static void call(void *symbol)
{
    if (symbol != NULL) {
        (void)(*(int (**)(int (*)(void))) & symbol)(progress);
    }
}

void baton__mpi_drive(bool on)
{
    if (on) {
        opal_progress = dlsym(RTLD_DEFAULT, "opal_progress");
        opal_progress_register = dlsym(RTLD_DEFAULT, "opal_progress_register");
        opal_progress_unregister =
            dlsym(RTLD_DEFAULT, "opal_progress_unregister");
    }
    call(on ? opal_progress_register : opal_progress_unregister);
}

/* ---- the operations of requests -------------------------------------------
 */

enum { BUCKETS = 256 };

static struct {
    pthread_mutex_t lock;
    baton__mpi_op_t *first;
} known[BUCKETS];

static size_t bucket_of(MPI_Request request)
{
    uintptr_t address = (uintptr_t)request;
    return (address >> 6 ^ address >> 14) % BUCKETS;
}

void baton__mpi_op_know(baton__mpi_op_t *op)
{
    size_t bucket = bucket_of(op->request);
    (void)pthread_mutex_lock(&known[bucket].lock);
    op->next_known = known[bucket].first;
    known[bucket].first = op;
    (void)pthread_mutex_unlock(&known[bucket].lock);
}

/* NULL: the request is none of ours. */
baton__mpi_op_t *baton__mpi_op_of(MPI_Request request, bool forgets)
{
    size_t bucket = bucket_of(request);
    (void)pthread_mutex_lock(&known[bucket].lock);
    baton__mpi_op_t **at = &known[bucket].first;
    while (*at != NULL && (*at)->request != request) {
        at = &(*at)->next_known;
    }
    baton__mpi_op_t *op = *at;
    if (op != NULL && forgets) {
        *at = op->next_known;
    }
    (void)pthread_mutex_unlock(&known[bucket].lock);
    return op;
}

static void await(baton__mpi_op_t *op)
{
    while (op != NULL &&
           !atomic_load_explicit(&op->ended, memory_order_acquire)) {
        (void)!baton_schedule_wait(op->entry->schedule, 1);
        call(opal_progress);
    }
}

void baton__mpi_see(void)
{
    /* Pairs with the subtraction in complete(). */
    (void)atomic_load_explicit(&baton__mpi.outstanding, memory_order_acquire);
}

void baton__mpi_await(int count, const MPI_Request *requests)
{
    /* Pairs with the subtraction in complete(). */
    if (atomic_load_explicit(&baton__mpi.outstanding, memory_order_acquire) ==
        0) {
        return;
    }
    for (int i = 0; i < count && count > 1; i++) {
        if (requests[i] != MPI_REQUEST_NULL &&
            baton__mpi_op_of(requests[i], false) == NULL) {
            return;
        }
    }
    for (int i = 0; i < count; i++) {
        await(baton__mpi_op_of(requests[i], false));
    }
}

/* ---- the end of an operation --------------------------------------------- */

void baton__mpi_op_free(baton__mpi_op_t *op)
{
    baton__mpi_vectors_fini(&op->vectors);
    free(op);
}

/* Of a persistent request: the message that it waits for. */
static void send_end(const baton__mpi_op_t *op)
{
    char byte = 0;
    (void)PMPI_Send(&byte, op->code != MPI_SUCCESS, MPI_BYTE, 0, op->tag,
                    op->comm->self);
}

/* An entry is in use until the request is freed, whose waits look at it. */
static void leave(baton__mpi_entry_t *entry, baton__mpi_comm_t *comm)
{
    atomic_fetch_sub_explicit(&entry->users, 1, memory_order_release);
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
}

/* The operation may be gone when this returns. */
static void complete(baton__mpi_op_t *op)
{
    if (op->code == MPI_SUCCESS) {
        op->code = baton__mpi_vectors_unpack(&op->vectors);
    }
    atomic_fetch_sub_explicit(&baton__mpi.outstanding, 1, memory_order_release);
    if (op->persistent) {
        baton__mpi_entry_t *entry = op->entry;
        baton__mpi_comm_t *comm = op->comm;
        atomic_store_explicit(&op->ended, true, memory_order_release);
        send_end(op);
        leave(entry, comm);
    } else {
        MPI_Request request = op->request;
        atomic_store_explicit(&op->ended, true, memory_order_release);
        (void)PMPI_Grequest_complete(request);
    }
}

static baton__mpi_op_t *take_next(baton__mpi_entry_t *entry)
{
    baton__mpi_op_t *op = entry->first;
    if (op != NULL) {
        entry->first = op->next;
        if (entry->first == NULL) {
            entry->last = &entry->first;
        }
    }
    entry->running = op;
    return op;
}

static baton_status_t start(baton__mpi_entry_t *entry,
                            const baton__mpi_vectors_t *v)
{
    if (entry->source != v->source || entry->target != v->target) {
        baton_status_t status =
            baton_schedule_rebind(entry->schedule, v->source, v->target);
        if (status != BATON_OK) {
            return status;
        }
        entry->source = v->source;
        entry->target = v->target;
    }
    return baton_schedule_start(entry->schedule);
}

/* Starts the operation that is running by the entry's books; if that fails it
   has ended, and it is the next one's turn. */
static void run(baton__mpi_entry_t *entry, baton__mpi_op_t *op)
{
    while (op != NULL) {
        baton_status_t status = start(entry, &op->vectors);
        if (status == BATON_OK) {
            return;
        }
        op->code = baton__mpi_code(status, baton_error_message());
        (void)pthread_mutex_lock(&entry->lock);
        baton__mpi_op_t *next = take_next(entry);
        (void)pthread_mutex_unlock(&entry->lock);
        complete(op);
        op = next;
    }
}

void baton__mpi_on_end(void *arg, uint64_t epoch, baton_status_t status)
{
    baton__mpi_entry_t *entry = arg;
    (void)epoch;
    (void)pthread_mutex_lock(&entry->lock);
    baton__mpi_op_t *op = entry->running;
    baton__mpi_op_t *next = take_next(entry);
    (void)pthread_mutex_unlock(&entry->lock);
    assert(op != NULL); /* an epoch is started for each alone */
    run(entry, next);
    if (status != BATON_OK) {
        baton_failure_t failure;
        bool told =
            baton_schedule_failure(entry->schedule, &failure) == BATON_OK;
        op->code = baton__mpi_code(status, told ? failure.message : "");
    }
    complete(op);
}

void baton__mpi_op_post(baton__mpi_entry_t *entry, baton__mpi_op_t *op)
{
    op->entry = entry;
    op->next = NULL;
    op->code = MPI_SUCCESS;
    atomic_store_explicit(&op->ended, false, memory_order_relaxed);
    atomic_fetch_add_explicit(&baton__mpi.outstanding, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&op->comm->users, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&entry->users, 1, memory_order_relaxed);
    (void)pthread_mutex_lock(&entry->lock);
    bool idle = entry->running == NULL;
    if (idle) {
        entry->running = op;
    } else {
        *entry->last = op;
        entry->last = &op->next;
    }
    (void)pthread_mutex_unlock(&entry->lock);
    if (idle) {
        run(entry, op);
    }
}

/* ---- nonblocking ----------------------------------------------------------
 */

static int query(void *state, MPI_Status *status)
{
    const baton__mpi_op_t *op = state;
    /* Pairs with the store in complete(), should MPI's own order not do. */
    (void)atomic_load_explicit(&op->ended, memory_order_acquire);
    (void)PMPI_Status_set_elements(status, MPI_BYTE, 0);
    (void)PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    status->MPI_ERROR = op->code;
    return op->code;
}

static int release(void *state)
{
    baton__mpi_op_t *op = state;
    (void)baton__mpi_op_of(op->request, true);
    leave(op->entry, op->comm);
    baton__mpi_op_free(op);
    return MPI_SUCCESS;
}

/* MPI has no cancel of collectives. */
static int cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

int baton__mpi_fail(MPI_Comm comm, int code)
{
    (void)PMPI_Comm_call_errhandler(comm, code);
    return code;
}

/* Whether a call is taken, by what all ranks of its communicator know; then its
   shape, whose counts are the caller's. */
static baton__mpi_why_t why_left(const baton__mpi_call_t *call,
                                 const baton__mpi_comm_t *comm,
                                 baton__mpi_shape_t *shape)
{
    if (comm->why != BATON__MPI_TAKEN) {
        return comm->why;
    }
    if (!baton__mpi_is_valid(call, comm->rank, comm->size)) {
        return BATON__MPI_WRONG;
    }
    switch (baton__mpi_shape(call, comm->rank, comm->size, shape)) {
    case MPI_SUCCESS:
        break;
    case MPI_ERR_OP:
        return BATON__MPI_TYPE;
    default:
        return BATON__MPI_WRONG;
    }
    size_t least = (size_t)baton__mpi.settings.from;
    size_t bytes = baton__mpi_shape_bytes(shape);
    bool is_short = bytes < least || bytes == 0;
    return is_short && !baton__mpi_has(call, BATON__MPI_PRIVATE) &&
                   call->kind != BATON__MPI_BARRIER
               ? BATON__MPI_SHORT
               : BATON__MPI_TAKEN;
}

/* The communicator of a call that is taken, and its shape; else NULL. */
baton__mpi_comm_t *baton__mpi_take(const baton__mpi_call_t *call,
                                   baton__mpi_shape_t *shape)
{
    shape->counts = NULL;
    if (!atomic_load_explicit(&baton__mpi.on, memory_order_acquire) ||
        (baton__mpi.settings.kinds >> call->kind & 1u) == 0 ||
        call->comm == MPI_COMM_NULL) {
        return NULL;
    }
    baton__mpi_comms_reap();
    baton__mpi_comm_t *comm = baton__mpi_comm_of(call->comm);
    if (comm == NULL) {
        return NULL;
    }
    baton__mpi_why_t why = why_left(call, comm, shape);
    comm->counts[call->kind][why]++;
    if (why != BATON__MPI_TAKEN) {
        free(shape->counts);
        return NULL;
    }
    return comm;
}

/* The operation of a call; on an error none. */
int baton__mpi_op_make(const baton__mpi_call_t *call, baton__mpi_comm_t *comm,
                       const baton__mpi_shape_t *shape, baton__mpi_op_t **out)
{
    baton__mpi_op_t *op = calloc(1, sizeof *op);
    if (op == NULL) {
        return MPI_ERR_NO_MEM;
    }
    op->comm = comm;
    int code = baton__mpi_vectors_init(call, shape, comm->rank, &op->vectors);
    if (code == MPI_SUCCESS && comm->group == NULL) {
        code = MPI_ERR_OTHER;
    }
    if (code != MPI_SUCCESS) {
        baton__mpi_op_free(op);
        return code;
    }
    *out = op;
    return MPI_SUCCESS;
}

/* Packs, and finds or makes the schedule. */
static int ready(baton__mpi_op_t *op, baton__mpi_shape_t *shape,
                 baton__mpi_entry_t **entry)
{
    int code = baton__mpi_vectors_pack(&op->vectors);
    if (code == MPI_SUCCESS) {
        baton_status_t status =
            baton__mpi_entry_for(op->comm, shape, &op->vectors, entry);
        code = status == BATON_OK
                   ? MPI_SUCCESS
                   : baton__mpi_code(status, baton_error_message());
    }
    if (code == MPI_SUCCESS && *entry == NULL) {
        code = MPI_ERR_INTERN; /* it is not NULL, which lint can't know */
    }
    return code == MPI_SUCCESS
               ? PMPI_Grequest_start(query, release, cancel, op, &op->request)
               : code;
}

int baton__mpi_begin(const baton__mpi_call_t *call, MPI_Request *request)
{
    baton__mpi_shape_t shape;
    baton__mpi_comm_t *comm = baton__mpi_take(call, &shape);
    if (comm == NULL) {
        return BATON__MPI_LEFT;
    }
    baton__mpi_op_t *op = NULL;
    baton__mpi_entry_t *entry = NULL;
    int code = baton__mpi_op_make(call, comm, &shape, &op);
    if (code == MPI_SUCCESS) {
        code = ready(op, &shape, &entry);
        if (code != MPI_SUCCESS) {
            baton__mpi_op_free(op);
        }
    }
    free(shape.counts);
    if (code != MPI_SUCCESS) {
        return baton__mpi_fail(call->comm, code);
    }
    *request = op->request;
    baton__mpi_op_know(op);
    baton__mpi_op_post(entry, op);
    return MPI_SUCCESS;
}

int baton__mpi_finish(const baton__mpi_call_t *call)
{
    MPI_Request request;
    if (!baton__mpi.settings.blocking) {
        return BATON__MPI_LEFT;
    }
    int code = baton__mpi_begin(call, &request);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Status status;
    baton__mpi_await(1, &request);
    code = PMPI_Wait(&request, &status);
    return code == MPI_SUCCESS ? code : baton__mpi_fail(call->comm, code);
}
