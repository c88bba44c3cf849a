/* See fake_mpi.h. A rank's communicator is 1 + the rank's number. A request is
   1 + the index of its operation. */
#include "support/fake_mpi/fake_mpi.h"

#include "support/cluster.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { REQUESTS = 16384 };

typedef struct operation {
    struct operation *next; /* the next in the list `sends` or `receives` */
    bool used, complete;
    /* The data have arrived, but the receive must not complete yet. */
    bool held;
    /* The program has freed the request before the message was received. */
    bool detached;
    bool copied;  /* this file has allocated `data` */
    bool failing; /* the request is complete, but reports an error */
    int from, to, tag;
    /* The capacity of a receive. After the receive's completion, the size of
       the message. */
    size_t bytes;
    void *data;
} operation_t;

typedef struct list {
    operation_t *head, **tail;
} list_t;

baton__mpi_t *fake_mpi_ranks[FAKE_MPI_RANKS];
size_t fake_mpi_eager_bytes = 65536;
int fake_mpi_failing_sends, fake_mpi_failing_receives;
int fake_mpi_deliveries = -1;
int fake_mpi_refusal;

static operation_t operations[REQUESTS];
/* The operations that were not matched yet, the oldest first. */
static list_t sends, receives;
static bool is_stopped;
static uint32_t held_ranks;
static int rank_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- matching ---------------------------------------------------------- */

static void append(list_t *list, operation_t *operation)
{
    operation->next = NULL;
    *list->tail = operation;
    list->tail = &operation->next;
}

static void unlink_at(list_t *list, operation_t **link)
{
    operation_t *operation = *link;
    *link = operation->next;
    if (list->tail == &operation->next) {
        list->tail = link;
    }
}

static void release(operation_t *operation)
{
    if (operation->copied) {
        free(operation->data);
    }
    *operation = (operation_t){.used = false};
}

static void end_send(operation_t *send)
{
    send->complete = true;
    if (send->detached) {
        release(send);
    }
}

static void match(operation_t *send, operation_t *receive)
{
    assert_true(send->bytes <= receive->bytes);
    if (send->bytes > 0) {
        memcpy(receive->data, send->data, send->bytes);
    }
    receive->bytes = send->bytes;
    receive->from = send->from;
    receive->held = send->bytes > fake_mpi_eager_bytes &&
                    (held_ranks >> send->from & 1) != 0;
    receive->complete = !receive->held;
    receive->failing = fake_mpi_failing_receives > 0;
    fake_mpi_failing_receives -= receive->failing;
    end_send(send);
}

static operation_t **find_receive(const operation_t *send)
{
    operation_t **link = &receives.head;
    while (*link != NULL &&
           ((*link)->to != send->to || (*link)->tag != send->tag ||
            ((*link)->from != MPI_ANY_SOURCE && (*link)->from != send->from))) {
        link = &(*link)->next;
    }
    return link;
}

/* Delivers all messages that can be delivered, in the order in which they were
   sent. */
static void advance(void)
{
    operation_t **link = &sends.head;
    while (!is_stopped && *link != NULL) {
        operation_t *send = *link;
        if (send->bytes <= fake_mpi_eager_bytes) {
            if (!send->copied) {
                void *copy = support_alloc(1, send->bytes + 1);
                if (send->bytes > 0) {
                    memcpy(copy, send->data, send->bytes);
                }
                send->data = copy;
                send->copied = true;
            }
            send->complete = true;
        }
        operation_t **to = find_receive(send);
        if (*to == NULL || fake_mpi_deliveries == 0) {
            link = &send->next;
            continue;
        }
        operation_t *receive = *to;
        fake_mpi_deliveries -= fake_mpi_deliveries > 0;
        unlink_at(&receives, to);
        unlink_at(&sends, link);
        match(send, receive);
    }
}

static void add(list_t *list, operation_t operation, MPI_Request *request)
{
    static int at;
    for (int i = 0; i < REQUESTS; i++) {
        at = (at + 1) % REQUESTS;
        if (!operations[at].used) {
            operations[at] = operation;
            operations[at].used = true;
            append(list, &operations[at]);
            *request = (MPI_Request)(uintptr_t)(at + 1);
            return;
        }
    }
    fail_msg("too many requests");
}

static operation_t *operation_of(MPI_Request request)
{
    return &operations[(uintptr_t)request - 1];
}

/* Frees an operation whose request was freed. If it is a send that has yet to
   be delivered, marks it, so that it is freed after its delivery. */
static void forget(operation_t *operation)
{
    for (const operation_t *each = sends.head; each; each = each->next) {
        if (each == operation) {
            operation->detached = true;
            return;
        }
    }
    release(operation);
}

/* ---- the functions of MPI ---------------------------------------------- */

int PMPI_Comm_size(MPI_Comm comm, int *size)
{
    *size = rank_count;
    return MPI_SUCCESS;
}

int PMPI_Comm_rank(MPI_Comm comm, int *rank)
{
    *rank = (int)(uintptr_t)comm - 1;
    return MPI_SUCCESS;
}

int PMPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag,
               MPI_Comm comm, MPI_Request *request)
{
    int from;
    (void)PMPI_Comm_rank(comm, &from);
    pthread_mutex_lock(&lock);
    int code = MPI_SUCCESS;
    if (fake_mpi_failing_sends > 0) {
        fake_mpi_failing_sends--;
        code = MPI_ERR_OTHER;
    } else {
        add(&sends,
            (operation_t){.from = from,
                          .to = to,
                          .tag = tag,
                          .bytes = (size_t)count,
                          .data = (void *)data},
            request);
        advance();
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int PMPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag,
               MPI_Comm comm, MPI_Request *request)
{
    int to;
    (void)PMPI_Comm_rank(comm, &to);
    pthread_mutex_lock(&lock);
    add(&receives,
        (operation_t){.from = from,
                      .to = to,
                      .tag = tag,
                      .bytes = (size_t)count,
                      .data = data},
        request);
    advance();
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

static bool test(MPI_Request *request, MPI_Status *status)
{
    operation_t *operation = operation_of(*request);
    if (!operation->complete || is_stopped) {
        return false;
    }
    if (status != MPI_STATUS_IGNORE) {
        /* MPI_Get_count reads the size of the message from this field. */
        status->MPI_ERROR = (int)operation->bytes;
    }
    if (!operation->failing) {
        forget(operation);
        *request = MPI_REQUEST_NULL;
    }
    return true;
}

static int code_of(MPI_Request request, int done)
{
    return done && request != MPI_REQUEST_NULL ? MPI_ERR_OTHER : MPI_SUCCESS;
}

int PMPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    pthread_mutex_lock(&lock);
    *done = *request == MPI_REQUEST_NULL || test(request, status);
    pthread_mutex_unlock(&lock);
    return code_of(*request, *done);
}

int PMPI_Testany(int count, MPI_Request requests[], int *at, int *done,
                 MPI_Status *status)
{
    pthread_mutex_lock(&lock);
    *at = MPI_UNDEFINED;
    bool all_null = true;
    for (int i = 0; i < count && *at == MPI_UNDEFINED; i++) {
        if (requests[i] == MPI_REQUEST_NULL) {
            continue;
        }
        all_null = false;
        if (test(&requests[i], status)) {
            *at = i;
        }
    }
    *done = all_null || *at != MPI_UNDEFINED;
    pthread_mutex_unlock(&lock);
    return *at == MPI_UNDEFINED ? MPI_SUCCESS : code_of(requests[*at], *done);
}

/* Only supports the source MPI_ANY_SOURCE. */
int PMPI_Iprobe(int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    int to;
    (void)PMPI_Comm_rank(comm, &to);
    pthread_mutex_lock(&lock);
    *flag = 0;
    for (const operation_t *each = sends.head; each; each = each->next) {
        *flag |= each->to == to && each->tag == tag;
    }
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

int PMPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count)
{
    *count = status->MPI_ERROR;
    return MPI_SUCCESS;
}

int PMPI_Cancel(MPI_Request *request)
{
    return MPI_SUCCESS;
}

/* Only supports receives that were cancelled or are complete. */
int PMPI_Request_free(MPI_Request *request)
{
    pthread_mutex_lock(&lock);
    operation_t *operation = operation_of(*request);
    operation_t **link = &receives.head;
    while (*link != NULL && *link != operation) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        unlink_at(&receives, link);
    }
    forget(operation);
    *request = MPI_REQUEST_NULL;
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

int PMPI_Error_string(int code, char *text, int *length)
{
    static const char why[] = "MPI was told to fail";
    memcpy(text, why, sizeof why);
    *length = (int)sizeof why - 1;
    return MPI_SUCCESS;
}

/* ---- the system's functions -------------------------------------------- */

#define COPY(name)                                                             \
    ssize_t name(pid_t process, const struct iovec *here, unsigned long parts, \
                 const struct iovec *there, unsigned long there_parts,         \
                 unsigned long flags)                                          \
    {                                                                          \
        errno = fake_mpi_refusal;                                              \
        return fake_mpi_refusal != 0                                           \
                   ? -1                                                        \
                   : (ssize_t)syscall(SYS_##name, process, here, parts, there, \
                                      there_parts, flags);                     \
    }
COPY(process_vm_readv)
COPY(process_vm_writev)

/* ---- controls for tests ------------------------------------------------ */

void fake_mpi_stop(bool stopped)
{
    pthread_mutex_lock(&lock);
    is_stopped = stopped;
    advance();
    pthread_mutex_unlock(&lock);
}

void fake_mpi_hold(uint32_t ranks)
{
    pthread_mutex_lock(&lock);
    held_ranks = ranks;
    for (int i = 0; i < REQUESTS; i++) {
        operation_t *each = &operations[i];
        if (each->held && (ranks >> each->from & 1) == 0) {
            each->held = false;
            each->complete = true;
        }
    }
    pthread_mutex_unlock(&lock);
}

int fake_mpi_unreceived(void)
{
    int count = 0;
    for (const operation_t *each = sends.head; each; each = each->next) {
        count++;
    }
    return count;
}

/* Closes a rank as the port's function `close` does, but without the collective
   part. */
static void close_endpoint(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    fake_mpi_ranks[mpi->rank] = NULL;
    mpi->net.closing = true;
    baton__wire_t *wire = mpi->wire;
    baton__mpi_free(mpi);
    wire->close(wire, true);
}

static void open_rank(int rank, const fake_mpi_options_t *options, int *file)
{
    baton__mpi_t *mpi = NULL;
    MPI_Comm comm = (MPI_Comm)(uintptr_t)(rank + 1);
    support_ok(baton__mpi_make(rank, options->size, &mpi));
    support_ok(baton__wire_open_mpi(comm, &mpi->wire));
    int first = rank - rank % options->host_ranks;
    int left = options->size - first;
    int count = left < options->host_ranks ? left : options->host_ranks;
    for (int i = 0; i < options->size; i++) {
        mpi->host_of[i] = i / options->host_ranks;
    }
    if (rank == first) {
        support_ok(baton__host_create(count, options->buffers, file));
    }
    support_ok(baton__host_open(&mpi->host, *file, count, rank - first,
                                options->buffers));
    for (int i = 0; i < count; i++) {
        mpi->peers[first + i].local = i;
        mpi->peers[first + i].ring = baton__host_ring(&mpi->host, i);
    }
    if (rank == first + count - 1) {
        (void)close(*file);
    }
    mpi->reads = options->reads || count == 1;
    mpi->put_bytes = options->reads ? SIZE_MAX : 0;
    mpi->put_above = BATON__MPI_OWN_BYTES;
    mpi->buffered_bytes = options->buffers > 0 ? BATON__HOST_BUFFER_BYTES : 0;
    mpi->window = options->window > 0 ? options->window : mpi->window;
    mpi->net.peers = options->size - count;
    mpi->transport.close = close_endpoint;
    support_ok(baton__mpi_reserve_notices(mpi));
    support_ok(baton__net_open(mpi));
    fake_mpi_ranks[rank] = mpi;
}

/* Tells the ranks each other's addresses. */
static void open_links(int size)
{
    for (int rank = 0; rank < size; rank++) {
        baton__links_t *links = &fake_mpi_ranks[rank]->net.links;
        support_ok(baton__links_open(links, rank, size, true));
        links->nonce = 7;
    }
    for (int rank = 0; rank < size; rank++) {
        for (int peer = 0; peer < size; peer++) {
            fake_mpi_ranks[rank]->net.links.places[peer] =
                fake_mpi_ranks[peer]->net.links.places[peer];
        }
    }
}

void fake_mpi_close(void)
{
    for (int rank = 0; rank < rank_count; rank++) {
        if (fake_mpi_ranks[rank] != NULL) {
            close_endpoint(fake_mpi_ranks[rank]);
        }
    }
    is_stopped = false;
    for (int i = 0; i < REQUESTS; i++) {
        /* This also releases operations that did not complete. */
        release(&operations[i]);
    }
}

void fake_mpi_open(const fake_mpi_options_t *options)
{
    int file = -1;
    fake_mpi_close();
    memset(operations, 0, sizeof operations);
    sends = (list_t){NULL, &sends.head};
    receives = (list_t){NULL, &receives.head};
    is_stopped = false;
    held_ranks = 0;
    fake_mpi_failing_sends = fake_mpi_failing_receives = 0;
    fake_mpi_deliveries = -1;
    fake_mpi_refusal = options->refusal;
    fake_mpi_eager_bytes = 65536;
    rank_count = options->size;
    for (int rank = 0; rank < options->size; rank++) {
        open_rank(rank, options, &file);
    }
    if (options->links) {
        open_links(options->size);
    }
}
