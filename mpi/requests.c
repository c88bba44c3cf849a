#include "mpi/requests.h"

#include "mpi/persistent.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end of an operation --------------------------------------------- */

/* Called when a request no longer uses an entry, so that the entry may be
   freed. A generalized request uses its entry until the request is freed, since
   waits for the request read the entry. A persistent request has an entry of
   its own, which exists as long as it is `retained`. */
static void requests_leave(baton__mpi_entry_t *entry, baton__mpi_comm_t *comm)
{
    atomic_fetch_sub_explicit(&entry->users, 1, memory_order_release);
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
}

/* Ends an operation and completes its request. The operation may be freed when
   this returns. */
static void requests_complete(baton__mpi_op_t *op)
{
    if (op->code == MPI_SUCCESS) {
        op->code = baton__mpi_vectors_unpack(&op->vectors);
    }
    atomic_fetch_sub_explicit(&baton__mpi.outstanding, 1, memory_order_release);
    atomic_store_explicit(&op->ended, true, memory_order_release);
    if (op->persistent) {
        /* The request's receive waits for this message. */
        char byte = 0;
        (void)PMPI_Send(&byte, op->code != MPI_SUCCESS, MPI_BYTE, 0, op->tag,
                        op->comm->self);
        requests_leave(op->entry, op->comm);
    } else {
        (void)PMPI_Grequest_complete(op->request);
    }
}

/* Completes the requests of all ended operations. Called inside calls of the
   program to MPI. Returns false if no operation has ended. */
static bool requests_complete_all(void)
{
    if (atomic_load_explicit(&baton__mpi_ended, memory_order_relaxed) == NULL) {
        return false;
    }
    baton__mpi_op_t *first =
        atomic_exchange_explicit(&baton__mpi_ended, NULL, memory_order_acquire);
    for (baton__mpi_op_t *op = first, *next; op != NULL; op = next) {
        next = op->next;
        requests_complete(op);
    }
    return first != NULL;
}

/* ---- generalized requests ------------------------------------------------ */

/* A request's type, a number that says of what kind the request is, is an int
   at this offset in it. plain_type is the type of a message's request. */
static size_t type_offset;
static int plain_type;

/* Makes MPI pass an operation's error to the error handler of its communicator.
   MPI does so for the requests of messages. The errors of generalized requests
   go to the handler of MPI_COMM_WORLD, or in Open MPI 5 to that of
   MPI_COMM_SELF. So this function turns the request into one of a message on
   the communicator. That is safe in a query callback: afterwards MPI reads the
   type only to find the error handler. A communicator that the program has
   freed has no handler any more. */
static void requests_fail(const baton__mpi_op_t *op)
{
    char *request = (char *)op->request;
    if (!atomic_load_explicit(&op->comm->dead, memory_order_relaxed)) {
        memcpy(request + type_offset, &plain_type, sizeof plain_type);
        memcpy(request + baton__mpi.owner_offset, &op->comm->handle,
               sizeof op->comm->handle);
    }
}

static int requests_query(void *state, MPI_Status *status)
{
    const baton__mpi_op_t *op = state;
    *status =
        (MPI_Status){.MPI_SOURCE = MPI_UNDEFINED, .MPI_TAG = MPI_UNDEFINED};
    /* Pairs with the store in requests_complete(), in case MPI does not order
       these accesses. */
    bool ended =
        op != NULL && atomic_load_explicit(&op->ended, memory_order_acquire);
    status->MPI_ERROR = ended ? op->code : MPI_SUCCESS;
    if (status->MPI_ERROR != MPI_SUCCESS) {
        requests_fail(op);
    }
    return status->MPI_ERROR;
}

static int requests_release(void *state)
{
    baton__mpi_op_t *op = state;
    if (op != NULL) {
        baton__mpi_op_account(op);
        requests_leave(op->entry, op->comm);
        baton__mpi_op_free(op);
    }
    return MPI_SUCCESS;
}

static int requests_cancel(void *state, int complete)
{
    return MPI_SUCCESS;
}

/* ---- progress inside MPI ------------------------------------------------- */

/* Internal functions of Open MPI, which its headers do not declare. */
__attribute__((weak)) void opal_progress(void);
__attribute__((weak)) int opal_progress_register(int (*callback)(void));
__attribute__((weak)) int opal_progress_unregister(int (*callback)(void));

/* True while this thread is in requests_await(). */
static _Thread_local bool waits;

enum { VAIN_CALLS = 64 };

/* Steps the engine. MPI's progress calls this function. During
   requests_await(), which drives the engine itself, the function does nothing.
   If Baton has no thread, it steps the engine even if this rank has no
   operation, so that peers get answers. After VAIN_CALLS calls without progress
   it yields the processor, so that other ranks can run: MPI yields only if it
   knows of more ranks than processors. */
static int requests_progress(void)
{
    static _Thread_local uint32_t vain; /* calls in a row without progress */
    bool steps = atomic_load_explicit(&baton__mpi.outstanding,
                                      memory_order_relaxed) > 0 ||
                 (!baton__mpi.settings.thread && baton__mpi_is_on());
    if (waits || !steps) {
        return waits;
    }
    bool stepped = baton_engine_step(baton__mpi.engine);
    bool moved = requests_complete_all() || stepped;
    vain = moved ? 0 : vain + 1;
    if (vain > VAIN_CALLS) {
        (void)sched_yield();
    }
    return moved;
}

/* ---- the operations of requests --------------------------------------------

   Open MPI stores the arguments of MPI_Grequest_start one after another in a
   generalized request. In each request it stores a communicator, which is
   MPI_COMM_WORLD in generalized requests; the request's status; and before the
   status a number that says whether the request is generalized, of a message or
   of another type. So all offsets can be found. */

typedef struct arguments {
    MPI_Grequest_query_function *query;
    MPI_Grequest_free_function *release;
    MPI_Grequest_cancel_function *cancel;
    void *state;
} arguments_t;

/* The number of bytes of a generalized request that are searched for the
   offsets: all of the request. */
enum { LOOKED_AT = 200 };
static size_t arguments_offset;

static baton__mpi_op_t *op_of(MPI_Request request)
{
    if (request == MPI_REQUEST_NULL) {
        return NULL;
    }
    const arguments_t *of =
        (const void *)((const char *)request + arguments_offset);
    return of->query == requests_query && of->release == requests_release
               ? of->state
               : (void *)baton__mpi_known(request, false);
}

static bool requests_find(MPI_Request request, const void *bytes, size_t count,
                          size_t *offset)
{
    for (size_t at = 0; at + count <= LOOKED_AT; at += sizeof(void *)) {
        if (memcmp((const char *)request + at, bytes, count) == 0) {
            *offset = at;
            return true;
        }
    }
    return false;
}

/* Finds the type in a completed generalized request, and the type of a
   message's request. */
static bool requests_find_type(MPI_Request request)
{
    /* The fields that requests_query() writes into a status. */
    const int asked[] = {MPI_UNDEFINED, MPI_UNDEFINED, MPI_SUCCESS};
    MPI_Request receive;
    MPI_Status status;
    int flag;
    if (PMPI_Request_get_status(request, &flag, &status) != MPI_SUCCESS ||
        !requests_find(request, asked, sizeof asked, &type_offset) ||
        type_offset < sizeof(size_t) ||
        PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, &receive) !=
            MPI_SUCCESS) {
        return false;
    }
    type_offset -= sizeof(size_t); /* a status is aligned like a size_t */
    memcpy(&plain_type, (char *)receive + type_offset, sizeof plain_type);
    (void)PMPI_Request_free(&receive);
    return plain_type >= 0 &&
           plain_type < *(const int *)((const char *)request + type_offset);
}

const char *baton__mpi_find_request(void)
{
    MPI_Request request;
    const arguments_t stored = {.query = requests_query,
                                .release = requests_release,
                                .cancel = requests_cancel};
    const MPI_Comm owner = MPI_COMM_WORLD;
    if (opal_progress == NULL || opal_progress_register == NULL ||
        opal_progress_unregister == NULL) {
        return "this MPI has no opal_progress that can be called";
    }
    bool found =
        PMPI_Grequest_start(stored.query, stored.release, stored.cancel,
                            stored.state, &request) == MPI_SUCCESS;
    if (found) {
        found =
            requests_find(request, &stored, sizeof stored, &arguments_offset) &&
            requests_find(request, &owner, sizeof owner,
                          &baton__mpi.owner_offset);
        (void)PMPI_Grequest_complete(request);
        found = found && requests_find_type(request);
        (void)PMPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return found ? NULL
                 : "the communicator and the functions of a request can't be "
                   "found in this version of MPI";
}

void baton__mpi_drive(bool on)
{
    static _Atomic bool drives;
    if (atomic_load_explicit(&drives, memory_order_relaxed) != on &&
        atomic_exchange(&drives, on) != on) {
        (void)(on ? opal_progress_register
                  : opal_progress_unregister)(requests_progress);
    }
}

/* ---- waits --------------------------------------------------------------- */

/* requests_await waits for an epoch again and again, for at most WAIT_MS each
   time. Meanwhile requests_take_turn is called again and again. Its first
   SHORT_TURNS calls do not make MPI's progress, since that would only delay a
   short wait. Each later call does. */
enum { SHORT_TURNS = 8, WAIT_MS = 1 };

typedef struct waiting {
    baton__mpi_op_t *op;
    int turns;
} waiting_t;

/* Completes the requests of all operations that have ended. Returns whether
   `op` has ended. */
static bool requests_has_ended(const baton__mpi_op_t *op)
{
    (void)requests_complete_all();
    return atomic_load_explicit(&op->ended, memory_order_acquire);
}

static baton_status_t requests_take_turn(void *arg)
{
    waiting_t *waiting = arg;
    if (requests_has_ended(waiting->op)) {
        return BATON_DONE;
    }
    if (waiting->turns < SHORT_TURNS) {
        waiting->turns++;
    } else {
        opal_progress();
    }
    return BATON_OK;
}

/* Waits until an operation has ended. One wait for the schedule is not enough:
   the epoch that ends may be that of another operation, or the callback of the
   epoch may still run. Each wait is short, since a new wait polls longer for
   long vectors: with a single wait, a collective of 16 MiB on 4 ranks and 2
   processors took 1.5 times as long. */
static void requests_await(baton__mpi_op_t *op)
{
    waiting_t waiting = {.op = op};
    waits = true;
    while (op != NULL && !requests_has_ended(op)) {
        (void)!baton_schedule_wait_with(op->entry->schedule, 0, WAIT_MS,
                                        requests_take_turn, &waiting);
        /* A wait for a failed epoch returns without a step of the engine. */
        if (!requests_has_ended(op) && !baton_engine_step(baton__mpi.engine)) {
            (void)sched_yield();
        }
    }
    waits = false;
}

void baton__mpi_await(int count, const MPI_Request *requests)
{
    const int64_t since_ns = baton__mpi_now_ns();
    for (int i = 0; i < count && requests != NULL && since_ns > 0; i++) {
        baton__mpi_op_t *op = op_of(requests[i]);
        if (op != NULL && op->started_ns > 0 && op->awaited_ns == 0) {
            op->awaited_ns = since_ns;
        }
    }
    /* The acquire pairs with the release in requests_complete(): if no
       operation is outstanding, this thread sees the results of all of them. */
    if (requests == NULL || atomic_load_explicit(&baton__mpi.outstanding,
                                                 memory_order_acquire) == 0) {
        return;
    }
    for (int i = 0; i < count && count > 1; i++) {
        if (requests[i] != MPI_REQUEST_NULL && op_of(requests[i]) == NULL) {
            return;
        }
    }
    for (int i = 0; i < count; i++) {
        requests_await(op_of(requests[i]));
    }
}

/* ---- nonblocking --------------------------------------------------------- */

enum { EAGER_BYTES = 1 << 10 }; /* below the eager limits of MPI's transports */

/* Returns true if Open MPI runs the call as one round of messages, as it does
   with short blocks and few ranks. Such messages need no progress, so Baton's
   call would cost more and gain nothing. */
static bool is_one_round(const baton__mpi_call_t *call,
                         const baton__mpi_comm_t *comm)
{
    return baton__mpi.settings.from == 0 &&
           call->way == BATON__MPI_NONBLOCKING &&
           comm->size <= baton__mpi_traits_of(call)->one_round &&
           baton__mpi_block_bytes(call, comm->rank) <= EAGER_BYTES;
}

/* Decides whether a call is taken, from properties that all ranks of the
   communicator know. Makes the shape of the call, whose memory the caller
   frees. */
static baton__mpi_why_t why_left(const baton__mpi_call_t *call,
                                 baton__mpi_comm_t *comm,
                                 baton__mpi_shape_t *shape)
{
    if (comm->why != BATON__MPI_TAKEN) {
        return comm->why;
    }
    if (is_one_round(call, comm)) {
        return BATON__MPI_ONE_ROUND;
    }
    if (!baton__mpi_is_valid(call, comm->rank, comm->size)) {
        return BATON__MPI_WRONG;
    }
    int code = baton__mpi_shape(call, comm->rank, comm->size, shape);
    if (code != MPI_SUCCESS) {
        return code == MPI_ERR_OP ? BATON__MPI_TYPE : BATON__MPI_WRONG;
    }
    size_t least = (size_t)baton__mpi.settings.from;
    bool hidden = baton__mpi_traits_of(call)->hidden;
    size_t bytes = hidden ? 0 : baton__mpi_shape_bytes(shape);
    bool is_short = bytes < least || bytes == 0;
    if (is_short && !hidden && call->kind != BATON__MPI_BARRIER) {
        return BATON__MPI_SHORT;
    }
    comm->counted = bytes + BATON__MPI_WORTH / BATON__MPI_FIRST_CALLS;
    comm->worth += comm->counted;
    return comm->worth < BATON__MPI_WORTH && call->way != BATON__MPI_PERSISTENT
               ? BATON__MPI_FIRST
               : baton__mpi_comm_join(comm);
}

/* Takes a call, or returns LEFT or LEFT_FIRST (call.h). For a taken call, finds
   the communicator's record and makes the call's shape, which the caller
   frees. */
static int requests_take(const baton__mpi_call_t *call,
                         baton__mpi_shape_t *shape, baton__mpi_comm_t **out)
{
    *shape = (baton__mpi_shape_t){.counts = NULL};
    if (!baton__mpi_is_on() ||
        (baton__mpi.settings.kinds >> call->kind & 1u) == 0 ||
        call->comm == MPI_COMM_NULL) {
        return BATON__MPI_LEFT;
    }
    baton__mpi_comms_reap();
    baton__mpi_comm_t *comm = baton__mpi_comm_of(call->comm);
    if (comm == NULL) {
        return BATON__MPI_LEFT;
    }
    baton__mpi_why_t why = why_left(call, comm, shape);
    comm->counts[why][call->kind * BATON__MPI_WAYS + call->way]++;
    if (why != BATON__MPI_TAKEN) {
        baton__mpi_shape_fini(shape);
        return why == BATON__MPI_FIRST ? BATON__MPI_LEFT_FIRST
                                       : BATON__MPI_LEFT;
    }
    *out = comm;
    return MPI_SUCCESS;
}

/* Packs the vectors, finds or creates the schedule, and makes the request. The
   vectors of a persistent call are packed at each start instead of here. */
static int requests_ready(baton__mpi_op_t *op, baton__mpi_shape_t *shape)
{
    int code =
        op->persistent ? MPI_SUCCESS : baton__mpi_vectors_pack(&op->vectors);
    if (code != MPI_SUCCESS) {
        return code;
    }
    baton_status_t status = baton__mpi_entry_for(op, shape);
    if (status != BATON_OK) {
        return baton__mpi_code(status, baton_error_message());
    }
    return op->persistent
               ? baton__mpi_op_persist(op)
               : PMPI_Grequest_start(requests_query, requests_release,
                                     requests_cancel, op, &op->request);
}

/* Makes the operation of a call. Returns an MPI error code; after an error
   there is no operation. */
static int op_make(const baton__mpi_call_t *call, baton__mpi_comm_t *comm,
                   baton__mpi_shape_t *shape, baton__mpi_op_t **out)
{
    /* malloc() reuses blocks from a cache of the calling thread; calloc() does
       not. */
    baton__mpi_op_t *op = malloc(sizeof *op);
    if (op == NULL) {
        return MPI_ERR_NO_MEM;
    }
    *op = (baton__mpi_op_t){.comm = comm,
                            .persistent = call->way == BATON__MPI_PERSISTENT};
    int code = baton__mpi_vectors_init(call, shape, comm->rank, &op->vectors);
    if (code == MPI_SUCCESS) {
        code = comm->group != NULL ? requests_ready(op, shape) : MPI_ERR_OTHER;
    }
    if (code != MPI_SUCCESS) {
        baton__mpi_op_free(op);
        return code;
    }
    *out = op;
    return MPI_SUCCESS;
}

int baton__mpi_begin(const baton__mpi_call_t *call, MPI_Request *request)
{
    baton__mpi_shape_t shape;
    baton__mpi_comm_t *comm = NULL;
    baton__mpi_op_t *op = NULL;
    int code = requests_take(call, &shape, &comm);
    if (code < 0) {
        return code;
    }
    code = op_make(call, comm, &shape, &op);
    baton__mpi_shape_fini(&shape);
    if (code != MPI_SUCCESS) {
        return baton__mpi_fail(call->comm, code);
    }
    baton__mpi_drive(true);
    *request = op->request;
    if (!op->persistent) {
        baton__mpi_op_post(op);
    }
    return MPI_SUCCESS;
}

int baton__mpi_finish(const baton__mpi_call_t *call)
{
    MPI_Request request;
    /* A schedule for this call would be used only once, which costs more than
       MPI's call. */
    if (baton__mpi_traits_of(call)->hidden) {
        return BATON__MPI_LEFT;
    }
    int code = baton__mpi_begin(call, &request);
    if (code != MPI_SUCCESS) {
        return code;
    }
    baton__mpi_await(1, &request);
    return PMPI_Wait(&request, MPI_STATUS_IGNORE);
}
