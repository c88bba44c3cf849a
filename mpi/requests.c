#include "mpi/requests.h"

#include "mpi/runtime.h"

#include <baton/build.h>

#include <assert.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    KEPT = 64,     /* schedules of a communicator for shapes that come again */
    TAGS = 1 << 20 /* of persistent requests; Open MPI has 2^31 - 1 */
};

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

static void make_known(baton__mpi_op_t *op)
{
    size_t bucket = bucket_of(op->request);
    (void)pthread_mutex_lock(&known[bucket].lock);
    op->next_known = known[bucket].first;
    known[bucket].first = op;
    (void)pthread_mutex_unlock(&known[bucket].lock);
}

/* NULL: the request is none of ours. */
static baton__mpi_op_t *op_of(MPI_Request request, bool forgets)
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

void baton__mpi_await(MPI_Request request)
{
    baton__mpi_op_t *op = op_of(request, false);
    while (op != NULL &&
           !atomic_load_explicit(&op->ended, memory_order_acquire)) {
        (void)!baton_schedule_wait(op->entry->schedule, 1);
        call(opal_progress);
    }
}

/* ---- the end of an operation --------------------------------------------- */

static void free_op(baton__mpi_op_t *op)
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
    atomic_fetch_sub_explicit(&baton__mpi.outstanding, 1, memory_order_relaxed);
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

static void on_end(void *arg, uint64_t epoch, baton_status_t status)
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

static void post(baton__mpi_entry_t *entry, baton__mpi_op_t *op)
{
    assert(entry != NULL);
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

/* ---- schedules ------------------------------------------------------------
 */

typedef baton_status_t (*create_fn)(baton_group_t *group,
                                    const baton_operands_t *operands,
                                    baton_schedule_t **out);

static const create_fn creates[BATON__MPI_KINDS] = {
    [BATON__MPI_BARRIER] = baton_barrier_create,
    [BATON__MPI_BCAST] = baton_broadcast_create,
    [BATON__MPI_REDUCE] = baton_reduce_create,
    [BATON__MPI_ALLREDUCE] = baton_allreduce_create,
    [BATON__MPI_GATHER] = baton_gather_create,
    [BATON__MPI_GATHERV] = baton_gatherv_create,
    [BATON__MPI_SCATTER] = baton_scatter_create,
    [BATON__MPI_SCATTERV] = baton_scatterv_create,
    [BATON__MPI_ALLGATHER] = baton_allgather_create,
    [BATON__MPI_ALLGATHERV] = baton_allgatherv_create,
    [BATON__MPI_ALLTOALL] = baton_alltoall_create,
    [BATON__MPI_ALLTOALLV] = baton_alltoallv_create,
    [BATON__MPI_REDUCE_SCATTER] = baton_reduce_scatter_create,
    [BATON__MPI_REDUCE_SCATTER_BLOCK] = baton_reduce_scatter_create,
    [BATON__MPI_SCAN] = baton_scan_create,
    [BATON__MPI_EXSCAN] = baton_exscan_create,
};

static baton_status_t create(baton__mpi_entry_t *entry, baton_group_t *group,
                             const baton__mpi_vectors_t *v, const char *prefix)
{
    const baton__mpi_shape_t *shape = &entry->shape;
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s", prefix,
                   baton__mpi_traits[shape->kind].name);
    baton_operands_t on = {.source = v->source,
                           .target = v->target,
                           .count = shape->count,
                           .dtype = shape->dtype,
                           .op = shape->op,
                           .root = shape->root,
                           .counts = shape->counts,
                           .name = name};
    if (shape->kind == BATON__MPI_ALLTOALLV) {
        on.target_counts = shape->counts + shape->size;
    }
    if (shape->kind == BATON__MPI_BARRIER) {
        on.dtype = BATON_DTYPE_NONE;
    }
    entry->source = v->source;
    entry->target = v->target;
    return creates[shape->kind](group, &on, &entry->schedule);
}

static void free_entry(baton__mpi_entry_t *entry)
{
    if (entry->schedule != NULL) {
        (void)!baton_schedule_destroy(entry->schedule);
    }
    if (entry->own != NULL) {
        free_op(entry->own);
    }
    (void)pthread_mutex_destroy(&entry->lock);
    free(entry->shape.counts);
    free(entry);
}

/* Takes the shape's counts. */
static baton_status_t make_entry(baton__mpi_comm_t *comm,
                                 baton__mpi_shape_t *shape,
                                 const baton__mpi_vectors_t *v,
                                 const char *prefix, baton__mpi_entry_t **out)
{
    baton__mpi_entry_t *entry = calloc(1, sizeof *entry);
    if (entry == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    entry->shape = *shape;
    shape->counts = NULL;
    entry->last = &entry->first;
    (void)pthread_mutex_init(&entry->lock, NULL);
    baton_status_t status = create(entry, comm->group, v, prefix);
    if (status != BATON_OK) {
        entry->schedule = NULL;
        free_entry(entry);
        return status;
    }
    baton_schedule_on_end(entry->schedule, on_end, entry);
    entry->next = comm->entries;
    comm->entries = entry;
    *out = entry;
    return BATON_OK;
}

static bool is_unused(baton__mpi_entry_t *entry)
{
    return atomic_load_explicit(&entry->users, memory_order_acquire) == 0;
}

void baton__mpi_entries_reap(baton__mpi_comm_t *comm)
{
    baton__mpi_entry_t **at = &comm->entries;
    while (*at != NULL) {
        baton__mpi_entry_t *entry = *at;
        if (!entry->kept && is_unused(entry)) {
            *at = entry->next;
            free_entry(entry);
        } else {
            at = &entry->next;
        }
    }
}

void baton__mpi_entries_close(baton__mpi_comm_t *comm)
{
    while (comm->entries != NULL) {
        baton__mpi_entry_t *entry = comm->entries;
        comm->entries = entry->next;
        free_entry(entry);
    }
}

/* The one of the shape, if there is one. Else, where too many are kept, the one
   that was used longest ago goes: on all ranks the same, as they have made the
   same calls. */
static baton__mpi_entry_t *find(baton__mpi_comm_t *comm,
                                const baton__mpi_shape_t *shape)
{
    baton__mpi_entry_t *oldest = NULL;
    int kept = 0;
    for (baton__mpi_entry_t *e = comm->entries; e != NULL; e = e->next) {
        if (!e->kept || e->own != NULL) {
            continue;
        }
        if (baton__mpi_shape_equals(&e->shape, shape)) {
            return e;
        }
        oldest = oldest == NULL || e->used < oldest->used ? e : oldest;
        kept++;
    }
    if (kept >= KEPT) {
        oldest->kept = false;
    }
    return NULL;
}

/* Takes the shape's counts, or not. */
static baton_status_t entry_for(baton__mpi_comm_t *comm,
                                baton__mpi_shape_t *shape,
                                const baton__mpi_vectors_t *v,
                                baton__mpi_entry_t **out)
{
    bool keeps =
        (baton__mpi_traits[shape->kind].traits & BATON__MPI_PRIVATE) == 0;
    baton_status_t status = BATON_OK;
    (void)pthread_mutex_lock(&comm->lock);
    *out = keeps ? find(comm, shape) : NULL;
    if (*out == NULL) {
        baton__mpi_entries_reap(comm);
        status = make_entry(comm, shape, v, "", out);
        if (status == BATON_OK) {
            (*out)->kept = keeps;
        }
    }
    if (status == BATON_OK) {
        (*out)->used = ++comm->calls;
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return status;
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
    (void)op_of(op->request, true);
    leave(op->entry, op->comm);
    free_op(op);
    return MPI_SUCCESS;
}

/* MPI has no cancel of collectives. */
static int cancel(void *state, int complete)
{
    (void)state;
    (void)complete;
    return MPI_SUCCESS;
}

static int fail(MPI_Comm comm, int code)
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
static baton__mpi_comm_t *take(const baton__mpi_call_t *call,
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
static int make_op(const baton__mpi_call_t *call, baton__mpi_comm_t *comm,
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
        free_op(op);
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
        baton_status_t status = entry_for(op->comm, shape, &op->vectors, entry);
        code = status == BATON_OK
                   ? MPI_SUCCESS
                   : baton__mpi_code(status, baton_error_message());
    }
    return code == MPI_SUCCESS
               ? PMPI_Grequest_start(query, release, cancel, op, &op->request)
               : code;
}

int baton__mpi_begin(const baton__mpi_call_t *call, MPI_Request *request)
{
    baton__mpi_shape_t shape;
    baton__mpi_comm_t *comm = take(call, &shape);
    if (comm == NULL) {
        return BATON__MPI_LEFT;
    }
    baton__mpi_op_t *op = NULL;
    baton__mpi_entry_t *entry = NULL;
    int code = make_op(call, comm, &shape, &op);
    if (code == MPI_SUCCESS) {
        code = ready(op, &shape, &entry);
        if (code != MPI_SUCCESS) {
            free_op(op);
        }
    }
    free(shape.counts);
    if (code != MPI_SUCCESS) {
        return fail(call->comm, code);
    }
    *request = op->request;
    make_known(op);
    post(entry, op);
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
    baton__mpi_await(request);
    code = PMPI_Wait(&request, &status);
    return code == MPI_SUCCESS ? code : fail(call->comm, code);
}

/* ---- persistent ------------------------------------------------------------
 */

static _Atomic bool any_persistent; /* has ever been made */

static baton__mpi_op_t *persistent_of(MPI_Request request, bool forgets)
{
    if (!atomic_load_explicit(&any_persistent, memory_order_acquire)) {
        return NULL;
    }
    baton__mpi_op_t *op = op_of(request, false);
    if (op == NULL || !op->persistent) {
        return NULL;
    }
    return forgets ? op_of(request, true) : op;
}

/* Errors of a request are told to its communicator's handler, which may change
   from start to start. */
static int copy_handler(const baton__mpi_comm_t *comm)
{
    MPI_Errhandler handler;
    if (comm->dead) {
        return MPI_SUCCESS;
    }
    int code = PMPI_Comm_get_errhandler(comm->handle, &handler);
    if (code == MPI_SUCCESS) {
        code = PMPI_Comm_set_errhandler(comm->self, handler);
        (void)PMPI_Errhandler_free(&handler);
    }
    return code;
}

static int add_persistent(baton__mpi_entry_t *entry, baton__mpi_op_t *op)
{
    static _Atomic int tags;
    op->persistent = true;
    op->tag = atomic_fetch_add_explicit(&tags, 1, memory_order_relaxed) % TAGS;
    int code = MPI_SUCCESS;
    if (op->comm->self == MPI_COMM_NULL) {
        code = PMPI_Comm_dup(MPI_COMM_SELF, &op->comm->self);
    }
    if (code == MPI_SUCCESS) {
        code = PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, op->tag, op->comm->self,
                              &op->request);
    }
    if (code == MPI_SUCCESS) {
        entry->own = op;
        entry->kept = true;
        op->entry = entry;
        atomic_store_explicit(&op->ended, true, memory_order_relaxed);
        atomic_fetch_add_explicit(&op->comm->users, 1, memory_order_relaxed);
        make_known(op);
        atomic_store_explicit(&any_persistent, true, memory_order_release);
    }
    return code;
}

int baton__mpi_prepare(const baton__mpi_call_t *call, MPI_Request *request)
{
    baton__mpi_shape_t shape;
    baton__mpi_comm_t *comm = take(call, &shape);
    if (comm == NULL) {
        return BATON__MPI_LEFT;
    }
    baton__mpi_op_t *op = NULL;
    int code = make_op(call, comm, &shape, &op);
    if (code == MPI_SUCCESS) {
        baton__mpi_entry_t *entry;
        (void)pthread_mutex_lock(&comm->lock);
        baton__mpi_entries_reap(comm);
        baton_status_t status =
            make_entry(comm, &shape, &op->vectors, "persistent ", &entry);
        code = status == BATON_OK
                   ? add_persistent(entry, op)
                   : baton__mpi_code(status, baton_error_message());
        (void)pthread_mutex_unlock(&comm->lock);
        if (code != MPI_SUCCESS) {
            free_op(op);
        }
    }
    free(shape.counts);
    if (code != MPI_SUCCESS) {
        return fail(call->comm, code);
    }
    *request = op->request;
    return MPI_SUCCESS;
}

bool baton__mpi_start(MPI_Request *request, int *code)
{
    baton__mpi_op_t *op = persistent_of(*request, false);
    if (op == NULL) {
        return false;
    }
    *code = copy_handler(op->comm);
    if (*code == MPI_SUCCESS) {
        *code = baton__mpi_vectors_pack(&op->vectors);
    }
    if (*code == MPI_SUCCESS) {
        *code = PMPI_Start(&op->request);
    }
    if (*code == MPI_SUCCESS) {
        post(op->entry, op);
    }
    return true;
}

bool baton__mpi_request_free(MPI_Request *request, int *code)
{
    baton__mpi_op_t *op = persistent_of(*request, true);
    if (op == NULL) {
        return false;
    }
    baton__mpi_comm_t *comm = op->comm;
    *code = PMPI_Request_free(request);
    (void)pthread_mutex_lock(&comm->lock);
    op->entry->kept = false;
    (void)pthread_mutex_unlock(&comm->lock);
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
    return true;
}

bool baton__mpi_is_persistent(MPI_Request request)
{
    return persistent_of(request, false) != NULL;
}
