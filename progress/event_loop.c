/* The engine's sleep, on libevent. Kicks go through an eventfd of our own:
   libevent's event_active from another thread takes a lock and a system call
   each time, a second kick of ours is one atomic exchange. The timer is a
   descriptor of our own, too: libevent sets its precise one anew in each wait,
   also in those without a timer; ours stays as it is while it ends the wait
   about in time. */
#include "progress/event_loop.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { DESCRIPTORS = 4 }; /* of an object, at most */

struct baton__watch {
    baton__event_loop_t *loop;
    baton__watched_t watched;
    struct event *events[DESCRIPTORS];
};

struct baton__event_loop {
    struct event_base *base;
    struct event *kick;
    struct event *timer;
    int kick_fd;
    int timer_fd;
    int epoll_fd;       /* kicks and watched descriptors, for an outer loop */
    uint64_t due_ns;    /* when the timer ends, UINT64_MAX: it is not set */
    _Atomic bool moved; /* another thread has set the timer since */
    baton__wakeup_t wakeup; /* of this wait */
    _Atomic bool kicked;
};

/* The base is used by several threads (watch, unwatch), so libevent needs its
   locks, and must be told before the first base is made. */
static void use_threads(void)
{
    (void)evthread_use_pthreads();
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
    baton__event_loop_t *loop = arg;
    uint64_t count;
    (void)what;
    (void)!read(fd, &count, sizeof count);
    if (loop->wakeup < BATON__WAKEUP_KICK) {
        loop->wakeup = BATON__WAKEUP_KICK;
    }
    /* After the read: a kick that comes now writes again. Pairs with the
       exchange in baton__event_loop_kick. */
    atomic_store_explicit(&loop->kicked, false, memory_order_seq_cst);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    baton__event_loop_t *loop = arg;
    uint64_t count;
    (void)what;
    (void)!read(fd, &count, sizeof count);
    loop->due_ns = UINT64_MAX;
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    baton__watch_t *watch = arg;
    (void)fd;
    (void)what;
    watch->watched.drain(watch->watched.object);
    watch->loop->wakeup = BATON__WAKEUP_MESSAGE;
}

static struct event_base *make_base(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, use_threads);
    struct event_config *config = event_config_new();
    if (config == NULL) {
        return NULL;
    }
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static bool show_outside(const baton__event_loop_t *loop, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

baton_status_t baton__event_loop_open(baton__event_loop_t **out)
{
    baton__event_loop_t *loop = baton__alloc(1, sizeof *loop);
    if (loop == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a loop");
    }
    loop->due_ns = UINT64_MAX;
    loop->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->timer_fd =
        timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->kick_fd < 0 || loop->timer_fd < 0 ||
        !show_outside(loop, loop->kick_fd)) {
        baton_status_t status =
            baton__error(BATON_ERR_SYSTEM, "%s failed: %s",
                         loop->kick_fd < 0    ? "eventfd"
                         : loop->timer_fd < 0 ? "timerfd_create"
                                              : "epoll",
                         strerror(errno));
        baton__event_loop_close(loop);
        return status;
    }
    loop->base = make_base();
    if (loop->base != NULL) {
        loop->kick = event_new(loop->base, loop->kick_fd, EV_READ | EV_PERSIST,
                               on_kick, loop);
        loop->timer = event_new(loop->base, loop->timer_fd,
                                EV_READ | EV_PERSIST, on_timer, loop);
    }
    if (loop->kick == NULL || loop->timer == NULL ||
        event_add(loop->kick, NULL) != 0 || event_add(loop->timer, NULL) != 0) {
        baton__event_loop_close(loop);
        return baton__error(BATON_ERR_SYSTEM,
                            "libevent could not make an event loop");
    }
    *out = loop;
    return BATON_OK;
}

void baton__event_loop_close(baton__event_loop_t *loop)
{
    if (loop == NULL) {
        return;
    }
    if (loop->kick != NULL) {
        event_free(loop->kick);
    }
    if (loop->timer != NULL) {
        event_free(loop->timer);
    }
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    if (loop->kick_fd >= 0) {
        (void)close(loop->kick_fd);
    }
    if (loop->timer_fd >= 0) {
        (void)close(loop->timer_fd);
    }
    if (loop->epoll_fd >= 0) {
        (void)close(loop->epoll_fd);
    }
    baton__free(loop);
}

static void program(const baton__event_loop_t *loop, uint64_t due_ns)
{
    struct itimerspec at = {{0, 0}, {0, 0}};
    if (due_ns != UINT64_MAX) {
        at.it_value.tv_sec = (time_t)(due_ns / 1000000000u);
        at.it_value.tv_nsec = (long)(due_ns % 1000000000u);
    }
    (void)timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

void baton__event_loop_set_timer(baton__event_loop_t *loop, uint32_t us)
{
    uint64_t now = baton__clock_ns();
    uint64_t due =
        us == BATON_SLEEP_FOREVER ? UINT64_MAX : now + (uint64_t)us * 1000;
    uint64_t early = us == BATON_SLEEP_FOREVER ? 0 : (uint64_t)us * 250;
    bool moved =
        atomic_load_explicit(&loop->moved, memory_order_relaxed) &&
        atomic_exchange_explicit(&loop->moved, false, memory_order_seq_cst);
    if (!moved && loop->due_ns <= due && loop->due_ns >= due - early) {
        return;
    }
    program(loop, due);
    loop->due_ns = due;
}

void baton__event_loop_move_timer(baton__event_loop_t *loop, uint32_t us)
{
    atomic_store_explicit(&loop->moved, true, memory_order_seq_cst);
    program(loop, baton__clock_ns() + (uint64_t)us * 1000);
}

baton__wakeup_t baton__event_loop_wait(baton__event_loop_t *loop)
{
    loop->wakeup = BATON__WAKEUP_TIMER;
    (void)event_base_loop(loop->base, EVLOOP_ONCE);
    return loop->wakeup;
}

int baton__event_loop_descriptor(const baton__event_loop_t *loop)
{
    return loop->epoll_fd;
}

void baton__event_loop_drain(baton__event_loop_t *loop)
{
    (void)event_base_loop(loop->base, EVLOOP_NONBLOCK);
}

void baton__event_loop_kick(baton__event_loop_t *loop)
{
    /* Pairs with the store in on_kick. */
    if (!atomic_exchange_explicit(&loop->kicked, true, memory_order_seq_cst)) {
        uint64_t one = 1;
        (void)!write(loop->kick_fd, &one, sizeof one);
    }
}

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
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for a watch");
    }
    watch->loop = loop;
    watch->watched = *watched;
    for (int k = 0; k < DESCRIPTORS && fd >= 0; k++) {
        watch->events[k] =
            event_new(loop->base, fd, EV_READ | EV_PERSIST, on_watch, watch);
        if (watch->events[k] == NULL ||
            event_add(watch->events[k], NULL) != 0 || !show_outside(loop, fd)) {
            baton__event_loop_unwatch(watch);
            return baton__error(BATON_ERR_SYSTEM,
                                "libevent could not watch a descriptor of %s",
                                watched->name);
        }
        fd = watched->descriptor(watched->object, k + 1);
    }
    *out = watch;
    return BATON_OK;
}

void baton__event_loop_unwatch(baton__watch_t *watch)
{
    if (watch == NULL) {
        return;
    }
    for (int k = 0; k < DESCRIPTORS; k++) {
        if (watch->events[k] != NULL) {
            (void)epoll_ctl(watch->loop->epoll_fd, EPOLL_CTL_DEL,
                            event_get_fd(watch->events[k]), NULL);
            event_free(watch->events[k]); /* waits for a running callback */
        }
    }
    baton__free(watch);
}
