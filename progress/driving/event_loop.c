/* Where an engine's threads sleep; see event_loop.h. The set is an epoll
   instance of Baton's own. The gate, another epoll instance, contains the set
   while the gate is open, and libevent's loop watches the gate. So a thread
   that sleeps at the set can close the gate without waking the thread in
   libevent's loop. */
#include "progress/driving/event_loop.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"

#include <baton/transport.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { EVENTS = 16 /* events taken at a time */ };

struct baton__watch {
    baton__event_loop_t *loop;
    baton__watched_t watched;
    int count; /* number of descriptors of the watched object */
};

struct baton__event_loop {
    int kick_fd;
    /* The epoll instance of kick_fd, whose data is NULL, and of the watched
       descriptors, whose data is their watch. */
    int set;
    /* An epoll instance that contains the set while the gate is open. */
    int gate;
    int timer_fd;
    struct event_base *base; /* watches the gate and the timer */
    struct event *gate_event;
    struct event *timer;
    baton__wakeup_t
        wakeup; /* the cause that has ended the progress thread's wait */
    /* the time at which the timer ends or has ended; UINT64_MAX: never */
    uint64_t due_ns;
    _Atomic bool kicked;
    /* Held while draining, so that no watch ends meanwhile. */
    pthread_mutex_t lock;
};

/* ---- draining ---------------------------------------------------------- */

static void drain_kick(baton__event_loop_t *loop)
{
    uint64_t count;
    (void)!read(loop->kick_fd, &count, sizeof count);
    /* This store comes after the read, so that the read can't drain the write
       of a kick that comes after the store. It pairs with the exchange in
       baton__event_loop_kick. */
    atomic_store_explicit(&loop->kicked, false, memory_order_seq_cst);
}

/* Drains the readable descriptors of the set. Returns what they report. */
static baton__wakeup_t drain_set(baton__event_loop_t *loop)
{
    baton__wakeup_t wakeup = BATON__WAKEUP_TIMER;
    struct epoll_event events[EVENTS];
    (void)pthread_mutex_lock(&loop->lock);
    int count = epoll_wait(loop->set, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        const baton__watch_t *watch = events[i].data.ptr;
        if (watch != NULL) {
            watch->watched.drain(watch->watched.object);
            wakeup = BATON__WAKEUP_MESSAGE;
        } else {
            drain_kick(loop);
            wakeup =
                wakeup == BATON__WAKEUP_TIMER ? BATON__WAKEUP_KICK : wakeup;
        }
    }
    (void)pthread_mutex_unlock(&loop->lock);
    return wakeup;
}

static void on_gate(evutil_socket_t fd, short what, void *arg)
{
    baton__event_loop_t *loop = arg;
    loop->wakeup = drain_set(loop);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    uint64_t count;
    (void)!read(fd, &count, sizeof count);
}

/* ---- opening and closing ----------------------------------------------- */

static bool put_in(int epoll, int fd, baton__watch_t *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Makes libevent's loop. Only the progress thread uses it, so it gets no locks
   (by default a base has locks if the process has called evthread_use_pthreads,
   as Open MPI does). Nothing in it needs a cached time, so it keeps none. The
   descriptors that libevent opens can't be moved. If the program has closed
   descriptor 0, 1 or 2, a placeholder has this number meanwhile, so that
   libevent does not get it. If libevent could not open its descriptors it would
   call exit(), so this function first tries whether as many can be opened, and
   closes them again. */
static bool make_base(baton__event_loop_t *loop)
{
    enum { PLACES = STDERR_FILENO + 1, OF_LIBEVENT = 5 };
    int taken[PLACES + OF_LIBEVENT];
    bool enough = true;
    for (int i = 0; i < PLACES + OF_LIBEVENT; i++) {
        taken[i] = fcntl(loop->kick_fd, F_DUPFD_CLOEXEC, 0);
        enough = enough && taken[i] >= 0;
    }
    for (int i = PLACES; i < PLACES + OF_LIBEVENT; i++) {
        baton__descriptor_close(&taken[i]);
    }
    struct event_config *config = enough ? event_config_new() : NULL;
    if (config != NULL) {
        (void)event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK |
                                                EVENT_BASE_FLAG_NO_CACHE_TIME);
        loop->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    for (int i = 0; i < PLACES; i++) {
        baton__descriptor_close(&taken[i]);
    }
    if (loop->base == NULL) {
        return false;
    }
    loop->gate_event =
        event_new(loop->base, loop->gate, EV_READ | EV_PERSIST, on_gate, loop);
    loop->timer = event_new(loop->base, loop->timer_fd, EV_READ | EV_PERSIST,
                            on_timer, loop);
    return loop->gate_event != NULL && loop->timer != NULL &&
           event_add(loop->gate_event, NULL) == 0 &&
           event_add(loop->timer, NULL) == 0;
}

/* Returns the name of the call that could not open its descriptor. */
static const char *failed_call(const baton__event_loop_t *loop)
{
    if (loop->kick_fd < 0) {
        return "eventfd";
    }
    return loop->set >= 0 && loop->timer_fd < 0 ? "timerfd" : "epoll";
}

baton_status_t baton__event_loop_open(baton__event_loop_t **out)
{
    baton__event_loop_t *loop = baton__alloc(1, sizeof *loop);
    if (loop == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for an event loop");
    }
    (void)pthread_mutex_init(&loop->lock, NULL);
    loop->due_ns = UINT64_MAX;
    loop->kick_fd =
        baton__descriptor_move(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    loop->set = baton__descriptor_move(epoll_create1(EPOLL_CLOEXEC));
    loop->gate = baton__descriptor_move(epoll_create1(EPOLL_CLOEXEC));
    loop->timer_fd = baton__descriptor_move(
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    baton_status_t status = BATON_OK;
    if (loop->kick_fd < 0 || loop->set < 0 || loop->gate < 0 ||
        loop->timer_fd < 0 || !put_in(loop->set, loop->kick_fd, NULL) ||
        !put_in(loop->gate, loop->set, NULL)) {
        status = baton__error(BATON_ERR_SYSTEM, "%s failed: %s",
                              failed_call(loop), baton__errno_text(errno));
    } else if (!make_base(loop)) {
        status = baton__error(BATON_ERR_SYSTEM,
                              "libevent could not make an event loop: %s",
                              baton__errno_text(errno));
    }
    if (status != BATON_OK) {
        baton__event_loop_close(loop);
        return status;
    }
    *out = loop;
    return BATON_OK;
}

void baton__event_loop_close(baton__event_loop_t *loop)
{
    if (loop == NULL) {
        return;
    }
    if (loop->gate_event != NULL) {
        event_free(loop->gate_event);
    }
    if (loop->timer != NULL) {
        event_free(loop->timer);
    }
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    baton__descriptor_close(&loop->kick_fd);
    baton__descriptor_close(&loop->set);
    baton__descriptor_close(&loop->gate);
    baton__descriptor_close(&loop->timer_fd);
    (void)pthread_mutex_destroy(&loop->lock);
    baton__free(loop);
}

/* ---- the thread's timer ------------------------------------------------ */

static uint64_t due_in(uint64_t now, uint32_t us)
{
    return us == BATON_SLEEP_FOREVER ? UINT64_MAX : now + (uint64_t)us * 1000;
}

static void program(baton__event_loop_t *loop, uint64_t due_ns)
{
    struct itimerspec at = {{0, 0}, {0, 0}};
    if (due_ns != UINT64_MAX) {
        at.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
        at.it_value.tv_nsec = (long)(due_ns % 1000000000u);
    }
    (void)timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    loop->due_ns = due_ns;
}

/* If the timer will end the wait at about the right time, leaves it as it is,
   which saves a system call. */
void baton__event_loop_set_timer(baton__event_loop_t *loop, uint32_t us)
{
    uint64_t now = baton__clock_ns();
    uint64_t due = due_in(now, us);
    uint64_t early = us == BATON_SLEEP_FOREVER ? 0 : (uint64_t)us * 250;
    bool ended = loop->due_ns <= now;
    if (ended ? due != UINT64_MAX
              : loop->due_ns > due || loop->due_ns < due - early) {
        program(loop, due);
    }
}

void baton__event_loop_wait_sooner(baton__event_loop_t *loop, uint32_t us)
{
    uint64_t now = baton__clock_ns();
    uint64_t due = due_in(now, us);
    if (loop->due_ns <= now || loop->due_ns > due) {
        program(loop, due);
    }
}

/* ---- sleeping ---------------------------------------------------------- */

baton__wakeup_t baton__event_loop_wait(baton__event_loop_t *loop)
{
    loop->wakeup = BATON__WAKEUP_TIMER;
    (void)event_base_loop(loop->base, EVLOOP_ONCE);
    return loop->wakeup;
}

baton__wakeup_t baton__event_loop_sleep(baton__event_loop_t *loop, uint32_t us)
{
    struct pollfd pollfd = {loop->set, POLLIN, 0};
    struct timespec time = {us / 1000000, (long)(us % 1000000) * 1000};
    int count =
        ppoll(&pollfd, 1, us == BATON_SLEEP_FOREVER ? NULL : &time, NULL);
    return count > 0 ? drain_set(loop) : BATON__WAKEUP_TIMER;
}

void baton__event_loop_gate(baton__event_loop_t *loop, bool open)
{
    struct epoll_event event = {.events = open ? EPOLLIN : 0};
    (void)epoll_ctl(loop->gate, EPOLL_CTL_MOD, loop->set, &event);
}

void baton__event_loop_kick(baton__event_loop_t *loop)
{
    /* Pairs with the store in drain_kick. */
    if (!atomic_exchange_explicit(&loop->kicked, true, memory_order_seq_cst)) {
        uint64_t one = 1;
        (void)!write(loop->kick_fd, &one, sizeof one);
    }
}

/* ---- watching ---------------------------------------------------------- */

baton_status_t baton__event_loop_watch(baton__event_loop_t *loop,
                                       const baton__watched_t *watched,
                                       baton__watch_t **out)
{
    int fd = watched->descriptor(watched->object, 0);
    *out = NULL;
    if (fd < 0) {
        return BATON_OK;
    }
    baton__watch_t *watch = baton__alloc(1, sizeof *watch);
    if (watch == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory to watch a descriptor");
    }
    watch->loop = loop;
    watch->watched = *watched;
    for (; fd >= 0; watch->count++) {
        if (!put_in(loop->set, fd, watch)) {
            baton_status_t status = baton__error(
                BATON_ERR_SYSTEM, "a descriptor of %s can't be watched: %s",
                watched->name, baton__errno_text(errno));
            baton__event_loop_unwatch(watch);
            return status;
        }
        fd = watched->descriptor(watched->object, watch->count + 1);
    }
    *out = watch;
    return BATON_OK;
}

void baton__event_loop_unwatch(baton__watch_t *watch)
{
    if (watch == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&watch->loop->lock);
    for (int k = 0; k < watch->count; k++) {
        (void)epoll_ctl(watch->loop->set, EPOLL_CTL_DEL,
                        watch->watched.descriptor(watch->watched.object, k),
                        NULL);
    }
    (void)pthread_mutex_unlock(&watch->loop->lock);
    baton__free(watch);
}
