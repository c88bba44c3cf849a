/* See wire_ucx.h. */
#include "transport/mpi/wire_ucx.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#ifdef BATON_UCX

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>

enum {
    /* How long requests that have failed with a connection stay in progress.
       Within this time a rank notices that the peer's process has ended, even
       if there is no link to it (REFUSED_NS in poll.c is 2 s). */
    DOUBT_MS = 10000,
    /* How long `close` waits until UCX has handed its buffered data to the
       kernel. */
    FLUSH_NS = 200000000
};

/* ---- the library --------------------------------------------------------- */

#define UCX_FUNCTIONS(DO)                                                      \
    DO(ucp_init_version)                                                       \
    DO(ucp_cleanup)                                                            \
    DO(ucp_config_read)                                                        \
    DO(ucp_config_modify)                                                      \
    DO(ucp_config_release)                                                     \
    DO(ucp_worker_create)                                                      \
    DO(ucp_worker_destroy)                                                     \
    DO(ucp_worker_get_address)                                                 \
    DO(ucp_worker_release_address)                                             \
    DO(ucp_worker_progress)                                                    \
    DO(ucp_worker_flush_nbx)                                                   \
    DO(ucp_ep_create)                                                          \
    DO(ucp_tag_send_nbx)                                                       \
    DO(ucp_tag_recv_nbx)                                                       \
    DO(ucp_tag_probe_nb)                                                       \
    DO(ucp_request_cancel)                                                     \
    DO(ucp_request_check_status)                                               \
    DO(ucp_request_free)                                                       \
    DO(ucs_global_opts_set_value)                                              \
    DO(ucs_status_string)

#define UCX_DECLARE(name) __typeof__(name) *name;
#define UCX_NAME(name)    #name,

static struct ucx {
    UCX_FUNCTIONS(UCX_DECLARE)
} ucx;

/* Why the library could not be opened; "" if it is open. */
static char ucx_lack[200];

static bool find_functions(void *library)
{
    static const char *const names[] = {UCX_FUNCTIONS(UCX_NAME)};
    static_assert(sizeof ucx == sizeof names, "a pointer for each name");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *found = dlsym(library, names[i]);
        memcpy((char *)&ucx + i * sizeof found, &found, sizeof found);
        if (found == NULL) {
            (void)snprintf(ucx_lack, sizeof ucx_lack,
                           "libucp.so.0 is not UCX 1.13 or later: it lacks %s",
                           names[i]);
            return false;
        }
    }
    return true;
}

/* Loads UCX. When it is loaded, UCX installs handlers for SIGSEGV and other
   signals of errors, so this function restores the application's handlers,
   unless the application had loaded UCX itself. It also makes UCX log only
   fatal errors, unless UCX_LOG_LEVEL is set. */
static void open_library(void)
{
    struct sigaction before[NSIG];
    for (int i = 1; i < NSIG; i++) {
        (void)sigaction(i, NULL, &before[i]);
    }
    const bool loaded =
        dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL) != NULL;
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)snprintf(ucx_lack, sizeof ucx_lack,
                       "%s (Debian's package libucx0)", dlerror());
        return;
    }
    for (int i = 1; i < NSIG && !loaded; i++) {
        (void)sigaction(i, &before[i], NULL);
    }
    if (find_functions(library) && !loaded && getenv("UCX_LOG_LEVEL") == NULL) {
        (void)ucx.ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    }
}

static void wire_ucx_text(int code, char out[BATON__WIRE_TEXT])
{
    (void)snprintf(out, BATON__WIRE_TEXT, "UCX: %s%s",
                   ucx.ucs_status_string((ucs_status_t)code),
                   code == UCS_ERR_UNREACHABLE
                       ? ": no connection to it could be made; name a network "
                         "device that reaches its host (UCX_NET_DEVICES)"
                       : "");
}

/* ---- requests ------------------------------------------------------------ */

/* The part of each of UCX's requests that belongs to Baton (its size is the
   context's request_size, below). The address of this part is the request's
   handle. */
typedef struct ucx_request {
    bool done;
    ucs_status_t status; /* if done: the outcome */
    size_t got;          /* if done: the number of bytes received */
    /* The rank that is sent to, or received from; it may be BATON__WIRE_ANY. */
    int peer;
    int tag;
    void *data;
    size_t bytes;
} ucx_request_t;

/* A request is the address of a ucx_request_t, or one of the odd numbers: DONE
   is a send that was complete at once, and the others are sends and receives
   that have failed with the connection to a peer. */
#define DONE ((baton__request_t)1)

static baton__request_t failed_with(int peer)
{
    return ((baton__request_t)peer + 1) << 1 | DONE;
}

typedef struct ucx_peer {
    ucp_ep_h endpoint; /* NULL: this rank has not sent to the peer */
    /* The error with which the connection has failed, and the time at which UCX
       reported it. UCS_OK: it has not failed. */
    ucs_status_t status;
    uint64_t failed_ns;
} ucx_peer_t;

typedef struct wire_ucx {
    baton__wire_ucx_t open; /* first, since its address is cast */
    ucp_context_h context;
    ucp_worker_h worker;
    int rank;
    ucx_peer_t *peers;
    /* Number of UCX's requests that may be in progress. A request that was
       released before it ended stays counted, because its end is not
       noticed. */
    size_t active;
} wire_ucx_t;

static wire_ucx_t *ucx_of(baton__wire_t *wire)
{
    return (wire_ucx_t *)wire;
}

static void init_request(void *request)
{
    memset(request, 0, sizeof(ucx_request_t));
}

static void ucx_end_send(void *request, ucs_status_t status, void *unused)
{
    ucx_request_t *own = request;
    own->done = true;
    own->status = status;
}

static void ucx_end_receive(void *request, ucs_status_t status,
                            const ucp_tag_recv_info_t *info, void *unused)
{
    ucx_request_t *own = request;
    own->done = true;
    own->status = status;
    own->got = status == UCS_OK ? info->length : 0;
}

static void free_request(wire_ucx_t *self, ucx_request_t *request, bool ended)
{
    self->active -= ended;
    request->done = false;
    ucx.ucp_request_free(request);
}

static ucs_status_t fail_peer(ucx_peer_t *peer, ucs_status_t status)
{
    if (peer->status == UCS_OK) {
        peer->status = status;
        peer->failed_ns = baton__clock_ns();
    }
    return status;
}

/* Called by UCX when a connection has failed. */
static void connection_failed(void *peer, ucp_ep_h endpoint,
                              ucs_status_t status)
{
    (void)fail_peer(peer, status);
}

/* ---- messages ------------------------------------------------------------ */

static ucp_tag_t tag_of(int source, int tag)
{
    return (ucp_tag_t)(uint32_t)source << 32 | (uint32_t)tag;
}

static void ucx_connect(wire_ucx_t *self, int rank)
{
    ucx_peer_t *peer = &self->peers[rank];
    const ucp_ep_params_t parameters = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address =
            (void *)(self->open.addresses + (size_t)rank * self->open.row),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = connection_failed, .arg = peer}};
    ucs_status_t status =
        ucx.ucp_ep_create(self->worker, &parameters, &peer->endpoint);
    if (status != UCS_OK) {
        peer->endpoint = NULL;
        (void)fail_peer(peer, status);
    }
}

static int wire_ucx_send(baton__wire_t *shared, const void *data, size_t bytes,
                         int to, int tag, baton__request_t *out)
{
    static const ucp_request_param_t parameters = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = ucx_end_send,
        .memory_type = UCS_MEMORY_TYPE_HOST};
    wire_ucx_t *self = ucx_of(shared);
    ucx_peer_t *peer = &self->peers[to];
    if (peer->endpoint == NULL && peer->status == UCS_OK) {
        ucx_connect(self, to);
    }
    *out = failed_with(to);
    if (peer->status != UCS_OK) {
        return 0;
    }
    ucs_status_ptr_t begun = ucx.ucp_tag_send_nbx(
        peer->endpoint, data, bytes, tag_of(self->rank, tag), &parameters);
    if (begun == NULL) {
        *out = DONE;
    } else if (UCS_PTR_IS_ERR(begun)) {
        (void)fail_peer(peer, UCS_PTR_STATUS(begun));
    } else {
        self->active++;
        ((ucx_request_t *)begun)->peer = to;
        *out = (baton__request_t)begun;
    }
    return 0;
}

static int wire_ucx_receive(baton__wire_t *shared, void *data, size_t bytes,
                            int from, int tag, baton__request_t *out)
{
    static const ucp_request_param_t parameters = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv = ucx_end_receive,
        .memory_type = UCS_MEMORY_TYPE_HOST};
    wire_ucx_t *self = ucx_of(shared);
    ucs_status_ptr_t begun = ucx.ucp_tag_recv_nbx(
        self->worker, data, bytes,
        tag_of(from == BATON__WIRE_ANY ? 0 : from, tag),
        from == BATON__WIRE_ANY ? tag_of(0, -1) : tag_of(-1, -1), &parameters);
    *out = 0;
    if (UCS_PTR_IS_ERR(begun)) {
        return UCS_PTR_STATUS(begun);
    }
    ucx_request_t *request = begun;
    self->active++;
    request->peer = from;
    request->tag = tag;
    request->data = data;
    request->bytes = bytes;
    *out = (baton__request_t)begun;
    return 0;
}

/* Ends a request that has failed with a connection. A receive from any rank
   does not end: it is posted again, for the packets of other ranks, since no
   more packets come from the rank that has failed. So for such a receive an
   error code means that it could not be posted again, and that its request is
   gone. */
static int end_failed(wire_ucx_t *self, baton__request_t *request)
{
    ucx_request_t *ended = (ucx_request_t *)*request;
    const ucx_request_t was = *ended;
    free_request(self, ended, true);
    if (was.peer == BATON__WIRE_ANY) {
        return wire_ucx_receive(&self->open.shared, was.data, was.bytes,
                                BATON__WIRE_ANY, was.tag, request);
    }
    (void)fail_peer(&self->peers[was.peer], was.status);
    *request = failed_with(was.peer);
    return 0;
}

/* Does what `test` in wire.h says, but without letting UCX make progress. */
static int find_ended(wire_ucx_t *self, int count, baton__request_t *requests,
                      int *at_out, size_t *bytes_out)
{
    for (int i = 0; i < count; i++) {
        baton__request_t *request = &requests[i];
        ucx_request_t *own = (ucx_request_t *)*request;
        if (*request == 0) {
            continue;
        }
        if ((*request & 1) == 0 && own->done && own->status != UCS_OK) {
            int code = end_failed(self, request);
            if (code != 0) {
                *at_out = i;
                return code;
            }
        }
        if (*request == DONE) {
            *at_out = i;
        } else if ((*request & 1) != 0) {
            const ucx_peer_t *peer = &self->peers[(*request >> 1) - 1];
            if (baton__clock_ns() - peer->failed_ns <
                (uint64_t)DOUBT_MS * 1000000) {
                continue;
            }
            *at_out = i;
            *request = 0;
            return peer->status;
        } else if (own->done) {
            *at_out = i;
            *bytes_out = own->got;
            free_request(self, own, true);
        }
        if (*at_out >= 0) {
            *request = 0;
            return 0;
        }
    }
    return 0;
}

static int wire_ucx_test(baton__wire_t *shared, int count,
                         baton__request_t *requests, int *at_out,
                         bool *ended_out, size_t *bytes_out)
{
    wire_ucx_t *self = ucx_of(shared);
    *at_out = -1;
    *bytes_out = 0;
    int code = find_ended(self, count, requests, at_out, bytes_out);
    if (*at_out < 0 && ucx.ucp_worker_progress(self->worker) > 0) {
        code = find_ended(self, count, requests, at_out, bytes_out);
    }
    *ended_out = *at_out >= 0;
    return code;
}

static int wire_ucx_probe(baton__wire_t *shared, int tag, bool *waits_out)
{
    wire_ucx_t *self = ucx_of(shared);
    ucp_tag_recv_info_t info;
    (void)ucx.ucp_worker_progress(self->worker);
    *waits_out = ucx.ucp_tag_probe_nb(self->worker, tag_of(0, tag),
                                      tag_of(0, -1), 0, &info) != NULL;
    return 0;
}

static int wire_ucx_release(baton__wire_t *shared, baton__request_t *request)
{
    ucx_request_t *own = (ucx_request_t *)*request;
    if (*request != 0 && (*request & 1) == 0) {
        free_request(ucx_of(shared), own, own->done);
    }
    *request = 0;
    return 0;
}

/* ucp_request_cancel ends a receive that no message has matched yet, and does
   nothing for any other request. */
static void wire_ucx_cancel(baton__wire_t *shared, baton__request_t *request)
{
    if (*request != 0 && (*request & 1) == 0) {
        ucx.ucp_request_cancel(ucx_of(shared)->worker, (void *)*request);
    }
    (void)wire_ucx_release(shared, request);
}

/* ---- opening and closing ------------------------------------------------- */

/* Makes UCX hand its buffered data to the kernel, for at most FLUSH_NS. */
static void ucx_flush(const wire_ucx_t *self)
{
    const ucp_request_param_t parameters = {0};
    const uint64_t until_ns = baton__clock_ns() + FLUSH_NS;
    ucs_status_ptr_t begun =
        ucx.ucp_worker_flush_nbx(self->worker, &parameters);
    if (!UCS_PTR_IS_PTR(begun)) {
        return;
    }
    while (ucx.ucp_request_check_status(begun) == UCS_INPROGRESS &&
           baton__clock_ns() < until_ns) {
        (void)ucx.ucp_worker_progress(self->worker);
    }
    ucx.ucp_request_free(begun);
}

/* If requests are in progress, nothing is flushed, because the memory of these
   requests may be freed already. UCX does not touch that memory while the
   worker is destroyed. */
static void wire_ucx_close(baton__wire_t *shared, bool in_use)
{
    wire_ucx_t *self = ucx_of(shared);
    if (self->open.own != NULL) {
        ucx.ucp_worker_release_address(self->worker, (void *)self->open.own);
    }
    if (self->worker != NULL) {
        if (!in_use && self->active == 0) {
            ucx_flush(self);
        }
        ucx.ucp_worker_destroy(self->worker);
    }
    if (self->context != NULL) {
        ucx.ucp_cleanup(self->context);
    }
    baton__free(self->open.addresses);
    baton__free(self->peers);
    baton__free(self);
}

/* Reads UCX's variables from the environment, and sets those that the user has
   not set. Measured with all-reduces of 128 KiB to 16 MiB over TCP between two
   hosts of 2 processors: with UCX's own defaults UCX 1.13 took 1.0 to 1.5 times
   as long as Open MPI, and without UCX's rendezvous protocol 0.6 to 0.9 times
   as long. With ZCOPY_THRESH=8k, segments of 64 KiB took 0.5 to 0.8 times as
   long as segments of 8 KiB. */
static ucs_status_t configure(ucp_config_t **out)
{
    static const char *const settings[][3] = {
        /* Ranks of one host that can share memory do so without UCX. */
        {"UCX_TLS", "TLS", "^sm"},
        {"UCX_KEEPALIVE_INTERVAL", "KEEPALIVE_INTERVAL", "inf"},
        {"UCX_TCP_KEEPIDLE", "KEEPIDLE", "inf"},
        /* A message is sent only after its receiver has asked for it, or has a
           buffer for it (packet.h), so UCX need not ask the receiver once
           more. */
        {"UCX_RNDV_THRESH", "RNDV_THRESH", "inf"},
        {"UCX_TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "64k"},
        /* Without this setting a connection to a host that can't be reached
           blocks the driver for minutes. */
        {"UCX_TCP_CONN_NB", "CONN_NB", "y"},
    };
    ucs_status_t status = ucx.ucp_config_read(NULL, NULL, out);
    for (size_t i = 0;
         i < sizeof settings / sizeof settings[0] && status == UCS_OK; i++) {
        if (getenv(settings[i][0]) == NULL) {
            status =
                ucx.ucp_config_modify(*out, settings[i][1], settings[i][2]);
        }
    }
    return status;
}

static ucs_status_t open_worker(wire_ucx_t *self, size_t size)
{
    const ucp_params_t parameters = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE |
                      UCP_PARAM_FIELD_REQUEST_INIT |
                      UCP_PARAM_FIELD_TAG_SENDER_MASK |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_TAG,
        .request_size = sizeof(ucx_request_t),
        .request_init = init_request,
        .tag_sender_mask = tag_of(-1, 0),
        .estimated_num_eps = size};
    /* No two threads call the functions of a wire at a time. */
    const ucp_worker_params_t of_worker = {
        .field_mask =
            UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK};
    ucp_config_t *config = NULL;
    ucp_address_t *address = NULL;
    ucs_status_t status = configure(&config);
    if (status == UCS_OK) {
        status = ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters,
                                      config, &self->context);
    }
    if (config != NULL) {
        ucx.ucp_config_release(config);
    }
    if (status == UCS_OK) {
        status =
            ucx.ucp_worker_create(self->context, &of_worker, &self->worker);
    }
    if (status == UCS_OK) {
        status = ucx.ucp_worker_get_address(self->worker, &address,
                                            &self->open.own_bytes);
        self->open.own = address;
    }
    return status;
}

static const baton__wire_t ucx_wire = {.send = wire_ucx_send,
                                       .receive = wire_ucx_receive,
                                       .test = wire_ucx_test,
                                       .probe = wire_ucx_probe,
                                       .release = wire_ucx_release,
                                       .cancel = wire_ucx_cancel,
                                       .text = wire_ucx_text,
                                       .close = wire_ucx_close,
                                       .is_threaded = true};

baton_status_t baton__wire_open_ucx(int rank, int size, baton__wire_ucx_t **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, open_library);
    if (ucx_lack[0] != '\0') {
        return baton__error(BATON_ERR_UNSUPPORTED, "%s", ucx_lack);
    }
    wire_ucx_t *self = baton__alloc(1, sizeof *self);
    ucx_peer_t *peers = baton__alloc((size_t)size, sizeof *peers);
    if (self == NULL || peers == NULL) {
        baton__free(self);
        baton__free(peers);
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a group");
    }
    self->open.shared = ucx_wire;
    self->rank = rank;
    self->peers = peers;
    ucs_status_t status = open_worker(self, (size_t)size);
    if (status != UCS_OK) {
        wire_ucx_close(&self->open.shared, true);
        return baton__error(BATON_ERR_TRANSPORT, "UCX can't be opened: %s",
                            ucx.ucs_status_string(status));
    }
    *out = &self->open;
    return BATON_OK;
}

#else

baton_status_t baton__wire_open_ucx(int rank, int size, baton__wire_ucx_t **out)
{
    return baton__error(BATON_ERR_UNSUPPORTED,
                        "this libbaton was built without UCX (Debian's package "
                        "libucx-dev)");
}

#endif
