/* How a rank asks other ranks whether they still run, and answers them; see
   answers.h. */
#include "transport/mpi/answers.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/thread.h"
#include "transport/mpi/links.h"
#include "transport/shm/share.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* LOOK_NS: each look for an answer adds the time since the previous look to the
   time of silence, but no more than this. PARTS, AGAIN_NS: a rank that has
   answered is asked again after 1 / PARTS of the timeout, but not before
   AGAIN_NS have passed. KEY_BYTES and HEAD are the bytes of an answer's key,
   and of an answer without the bits of the lost ranks. */
#define LOOK_NS   UINT64_C(1000000000)
#define AGAIN_NS  UINT64_C(300000000)
#define PARTS     8
#define KEY_BYTES sizeof(uint64_t)
#define HEAD      (KEY_BYTES + 1)

/* Flags in the byte after the key; see baton__answers_t. */
enum { LEFT_OUT = 1, INSIDE = 2 };

/* ---- answering --------------------------------------------------------- */

static size_t answer_bytes(const baton__answers_t *self)
{
    return HEAD + (size_t)(self->size + 7) / 8;
}

/* True if the driver has been in one call of MPI for too long. The answering
   thread looks whenever it is asked. Between two looks only a limited time
   counts, because the process may have been stopped. */
static bool answers_is_inside(baton__answers_t *self)
{
    uint32_t returned =
        atomic_load_explicit(&self->returned, memory_order_relaxed);
    uint32_t begun = atomic_load_explicit(&self->begun, memory_order_relaxed);
    uint64_t now = baton__clock_ns();
    uint64_t since = now - self->seen_ns;
    uint64_t most = self->timeout_ns / PARTS * 2;
    most = most > LOOK_NS ? most : LOOK_NS;
    bool same = returned == self->seen && begun != returned;
    self->inside_ns += since < most ? since : most;
    self->inside_ns = same ? self->inside_ns : 0;
    /* If no call is in progress, `seen` gets a value that `returned` does not
       have, so that no call counts as seen. */
    self->seen = returned - (begun == returned);
    self->seen_ns = now;
    return self->timeout_ns > 0 && self->inside_ns >= self->timeout_ns;
}

static void *answer_all(void *arg)
{
    baton__answers_t *self = arg;
    struct pollfd listener = {.fd = self->listener, .events = POLLIN};
    for (;;) {
        (void)poll(&listener, 1, -1);
        if ((listener.revents & POLLHUP) != 0) {
            /* baton__answers_close has shut the listener down, so the thread
               ends. */
            return NULL;
        }
        int fd = baton__descriptor_move(
            accept4(self->listener, NULL, NULL, SOCK_CLOEXEC));
        if (fd < 0) { /* this process probably has too many open descriptors */
            (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
            continue;
        }
        bool inside = answers_is_inside(self);
        (void)pthread_mutex_lock(&self->lock);
        self->answer[KEY_BYTES] &= (unsigned char)~INSIDE;
        self->answer[KEY_BYTES] |= inside ? INSIDE : 0;
        (void)!send(fd, self->answer, answer_bytes(self),
                    MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)pthread_mutex_unlock(&self->lock);
        baton__descriptor_close(&fd);
        if (self->doorbell != NULL) {
            baton__doorbell_ring_now(self->doorbell, self->doorbell->index);
        }
    }
}

baton_status_t baton__answers_open(baton__answers_t *self, int listener,
                                   int rank, int size,
                                   const baton__doorbell_t *doorbell)
{
    int64_t ms = baton__config_number(BATON__CONFIG_PEER_TIMEOUT_MS);
    *self = (baton__answers_t){
        .listener = -1,
        .rank = rank,
        .size = size,
        .doorbell = doorbell,
        .timeout_ns = (uint64_t)ms * 1000000,
        /* This value says that no call was seen in progress. */
        .seen = UINT32_MAX,
        .places = baton__alloc((size_t)size, sizeof *self->places),
        .asked = baton__alloc((size_t)size, sizeof *self->asked)};
    self->answer = baton__alloc(1, answer_bytes(self));
    self->lost = baton__alloc(1, answer_bytes(self) - HEAD);
    (void)pthread_mutex_init(&self->lock, NULL);
    if (self->places == NULL || self->asked == NULL || self->answer == NULL ||
        self->lost == NULL) {
        baton__descriptor_close(&listener);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "mpi: no memory for answers to %d ranks", size);
    }
    (void)snprintf(self->silent, sizeof self->silent,
                   "it has not answered for %s (BATON_PEER_TIMEOUT_MS)",
                   baton__time_text(self->timeout_ns));
    (void)snprintf(self->inside, sizeof self->inside,
                   "its engine has been in a call of MPI for %s "
                   "(BATON_PEER_TIMEOUT_MS)",
                   baton__time_text(self->timeout_ns));
    for (int i = 0; i < size; i++) {
        self->asked[i].fd = -1;
    }
    self->places[rank].key = baton__share_random();
    memcpy(self->answer, &self->places[rank].key, KEY_BYTES);
    self->listener = listener;
    int error =
        baton__thread_start(&self->thread, "baton answers", answer_all, self);
    if (error != 0) {
        baton__descriptor_close(&self->listener);
        return baton__error(BATON_ERR_SYSTEM,
                            "mpi: no thread to answer other ranks: %s",
                            baton__errno_text(error));
    }
    return BATON_OK;
}

void baton__answers_close(baton__answers_t *self)
{
    if (self->listener >= 0) {
        (void)shutdown(self->listener, SHUT_RD);
        (void)pthread_join(self->thread, NULL);
        baton__descriptor_close(&self->listener);
    }
    baton__answers_hang_up(self);
    baton__free(self->places);
    baton__free(self->asked);
    baton__free(self->answer);
    baton__free(self->lost);
    *self = (baton__answers_t){.listener = -1};
}

static unsigned char bit_of(int rank)
{
    return (unsigned char)(1 << rank % 8);
}

void baton__answers_lose(baton__answers_t *self, int peer, bool left_out)
{
    if (self->listener >= 0) {
        (void)pthread_mutex_lock(&self->lock);
        self->answer[KEY_BYTES] |= left_out ? LEFT_OUT : 0;
        self->answer[HEAD + (size_t)peer / 8] |= bit_of(peer);
        (void)pthread_mutex_unlock(&self->lock);
    }
}

int baton__answers_next_lost(const baton__answers_t *self, int from)
{
    while (from < self->size && (self->lost[from / 8] & bit_of(from)) == 0) {
        from++;
    }
    return from < self->size ? from : -1;
}

/* ---- asking ------------------------------------------------------------ */

void baton__answers_hang_up(baton__answers_t *self)
{
    for (int i = 0; self->asked != NULL && i < self->size; i++) {
        baton__descriptor_close(&self->asked[i].fd);
        self->asked[i].silent_ns = 0;
    }
}

/* Looks for the answer of a peer that was asked. Closes the connection, unless
   the answer has yet to come. */
static baton__reply_t look(baton__answers_t *self, int peer)
{
    unsigned char in[4096] = {0};
    size_t at = HEAD + (size_t)self->rank / 8;
    size_t end =
        answer_bytes(self) < sizeof in ? answer_bytes(self) : sizeof in;
    baton__asked_t *asked = &self->asked[peer];
    ssize_t got = recv(asked->fd, in, sizeof in, MSG_DONTWAIT);
    int error = got < 0 ? errno : 0;
    if (error == EAGAIN || error == EINTR) {
        return BATON__REPLY_NONE;
    }
    baton__descriptor_close(&asked->fd);
    if (got < (ssize_t)KEY_BYTES ||
        memcmp(in, &self->places[peer].key, KEY_BYTES) != 0) {
        return error == ECONNREFUSED ? BATON__REPLY_REFUSED : BATON__REPLY_NONE;
    }
    asked->silent_ns = 0;
    asked->lived_ns = asked->began_ns;
    if ((in[KEY_BYTES] & INSIDE) != 0) {
        return BATON__REPLY_INSIDE;
    }
    if (at < end && (in[at] & bit_of(self->rank)) != 0) {
        return in[KEY_BYTES] == 0 ? BATON__REPLY_DISOWNED
                                  : BATON__REPLY_REFUSED;
    }
    for (size_t i = HEAD; i < end && in[KEY_BYTES] == 0; i++) {
        self->any_lost |= (in[i] & ~self->lost[i - HEAD]) != 0;
        self->lost[i - HEAD] |= in[i];
    }
    return BATON__REPLY_NONE;
}

static baton__reply_t answers_ask(baton__asked_t *asked,
                                  const struct sockaddr *to, socklen_t bytes)
{
    /* A silent_ns other than 0 marks the peer as asked. So if this connection
       fails at once, the next call of baton__answers_ask makes another. */
    asked->silent_ns += 1;
    asked->fd = baton__links_begin(to, bytes);
    return asked->fd < 0 && errno == ECONNREFUSED ? BATON__REPLY_REFUSED
                                                  : BATON__REPLY_NONE;
}

baton__reply_t baton__answers_ask(baton__answers_t *self, int peer,
                                  const struct sockaddr *to, socklen_t bytes)
{
    baton__asked_t *asked = &self->asked[peer];
    uint64_t now = baton__clock_ns();
    uint64_t since = now - asked->looked_ns;
    uint64_t again = self->timeout_ns / PARTS;
    baton__reply_t answer = BATON__REPLY_NONE;
    asked->looked_ns = now;
    if (asked->silent_ns > 0) {
        asked->silent_ns += since < LOOK_NS ? since : LOOK_NS;
        answer = asked->fd >= 0 ? look(self, peer) : BATON__REPLY_NONE;
    }
    if (answer == BATON__REPLY_NONE && self->timeout_ns > 0 &&
        asked->silent_ns >= self->timeout_ns) {
        return BATON__REPLY_LATE;
    }
    again = again > AGAIN_NS ? again : AGAIN_NS;
    if (answer == BATON__REPLY_NONE && asked->fd < 0 &&
        (asked->silent_ns > 0 || now - asked->asked_ns >= again)) {
        asked->asked_ns = asked->began_ns = now;
        answer = answers_ask(asked, to, bytes);
    }
    return answer;
}

bool baton__answers_prove(baton__answers_t *self, int peer,
                          const struct sockaddr *to, socklen_t bytes,
                          uint64_t deadline_ns)
{
    const baton__asked_t *asked = &self->asked[peer];
    baton__reply_t reply = baton__answers_ask(self, peer, to, bytes);
    while (reply == BATON__REPLY_NONE && asked->silent_ns > 0 &&
           baton__clock_ns() < deadline_ns) {
        struct pollfd answer = {.fd = asked->fd, .events = POLLIN};
        (void)poll(&answer, 1, 1);
        reply = baton__answers_ask(self, peer, to, bytes);
    }
    return asked->silent_ns == 0;
}
