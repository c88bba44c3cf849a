/* All interleavings of an engine's threads, up to a number of preemptions. The
   test runs the real code that waits and wakes: the engine, the event loop, the
   idle policy, the step with its mailbox, and the doorbell. Threads are fibers.
   Each access to an atomic, each lock and each system call of that code is
   replaced by a model; before it, another fiber may go on. Epochs, a transport
   and a peer are small models, too. No time passes, so a lost wake-up is found:
   all fibers sleep, and something has not ended. Then the test prints the
   interleaving. Accesses are sequentially consistent here; of the real ones,
   only the doorbell's fences are tested. */
#include "base/thread.h"
#include "progress/driving/engine.h"
#include "progress/epoch/epoch.h"
#include "progress/epoch/queues.h"
#include "progress/membership/notice.h"
#include "progress/membership/recovery.h"
#include "support/cmocka.h"
#include "support/sanitized.h"
#include "transport/shm/doorbell.h"
#include "transport/shm/share.h"

#include <errno.h>
#include <event2/event.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- replacements in the real code --------------------------------------- */

/* Before the operation that follows, another fiber may go on. */
static void point(const char *function, const char *what);

static void lock_mutex(const char *function, pthread_mutex_t *mutex);
static void unlock_mutex(pthread_mutex_t *mutex);
static long use_futex(const char *function, const _Atomic uint32_t *word,
                      int how, uint32_t value);
static int yield(const char *function);
static uint64_t engine_clock(void);
static uint64_t bell_clock(void);
static void drain_fd(const char *function, int fd);
static void kick_fd(const char *function);
static int control_gate(const char *function, const struct epoll_event *event);
static void set_timer(const char *function, const struct itimerspec *at);
static int look_at_set(const char *function, struct epoll_event *events);
static int sleep_at_set(const char *function, const struct timespec *time);
static void sleep_in_loop(const char *function);
static ssize_t ring_bell(const char *function);
static ssize_t take_ring(const char *function);
/* A model of a fence, or of an operation that takes the place of one. */
static void pass_fence(void);

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_thread_fence
#define atomic_load_explicit(object, order)                                    \
    (point(__func__, "loads " #object), *(object))
#define atomic_store_explicit(object, value, order)                            \
    (point(__func__, "stores " #object), (void)(*(object) = (value)))
#define VALUE(object) __typeof__(((void)0, *(object)))
#define CHANGE(what, object, value)                                            \
    __extension__({                                                            \
        point(__func__, what);                                                 \
        VALUE(object) was = *(object);                                         \
        *(object) = (value);                                                   \
        was;                                                                   \
    })
#define atomic_exchange_explicit(object, value, order)                         \
    CHANGE("exchanges " #object, object, value)
#define atomic_fetch_add_explicit(object, value, order)                        \
    (pass_fence(), ADD(object, value))
#define ADD(object, value) CHANGE("adds to " #object, object, was + (value))
#define atomic_fetch_sub_explicit(object, value, order)                        \
    CHANGE("subtracts from " #object, object, was - (value))
#define atomic_compare_exchange_strong_explicit(object, old, value, order,     \
                                                other)                         \
    __extension__({                                                            \
        point(__func__, "compares and exchanges " #object);                    \
        VALUE(object) was = *(object);                                         \
        bool same = was == *(old);                                             \
        if (same) {                                                            \
            *(object) = (value);                                               \
        } else {                                                               \
            *(old) = was;                                                      \
        }                                                                      \
        same;                                                                  \
    })
#define atomic_compare_exchange_weak_explicit                                  \
    atomic_compare_exchange_strong_explicit
#define atomic_thread_fence(order) pass_fence()

#define pthread_mutex_lock(mutex)   lock_mutex(__func__, mutex)
#define pthread_mutex_unlock(mutex) unlock_mutex(mutex)
#define sched_yield()               yield(__func__)
#define prctl(...)                  0
#define syscall(number, word, how, value, until, ...)                          \
    ((void)(until), use_futex(__func__, word, how, value))

/* ---- the real code ------------------------------------------------------- */

#define baton__clock_ns               engine_clock
#define baton__watchdog_look(stepper) ((void)0)
#define baton__notice_inquire(task)   ((void)(task))
#define _Thread_local
#include "progress/driving/engine.c"
#undef _Thread_local

#define WAKES IDLE_WAKES
#include "progress/driving/idle.c"
#undef WAKES

#define read(fd, to, bytes)                 ((void)(to), drain_fd(__func__, fd), 8)
#define write(fd, from, bytes)              ((void)(from), kick_fd(__func__), 8)
#define epoll_ctl(epoll, how, fd, event)    control_gate(__func__, event)
#define epoll_wait(epoll, events, most, ms) look_at_set(__func__, events)
#define ppoll(descriptors, count, time, mask)                                  \
    ((void)(descriptors), sleep_at_set(__func__, time))
#define event_base_loop(base, how)        (sleep_in_loop(__func__), 0)
#define timerfd_settime(fd, how, at, old) (set_timer(__func__, at), 0)
#include "progress/driving/event_loop.c"

static void begin_epoch(baton_schedule_t *schedule);
static void advance(baton_schedule_t *schedule);
static bool poll_node(baton_schedule_t *schedule);
static void deliver(const baton_message_t *message);
#define baton__epoch_begin_if_due             begin_epoch
#define baton__epoch_advance(schedule, nodes) advance(schedule)
#define baton__epoch_poll_asyncs              poll_node
#define baton__epoch_deliver(group, message)  deliver(message)
#define baton__epoch_collect_asyncs(schedule) ((void)0)
#include "progress/driving/step.c"

#undef baton__clock_ns
#define baton__clock_ns bell_clock
#define sendto(socket, from, bytes, how, address, size)                        \
    ((void)(size), ring_bell(__func__))
#define recv(socket, to, bytes, how) ((void)(to), take_ring(__func__))
#include "transport/shm/doorbell.c"

/* ---- scenarios ----------------------------------------------------------- */

enum {
    APPS = 2,
    /* The fiber of the progress thread, which comes after those of the
       application. */
    THREAD = APPS,
    PEER,
    FIBERS,
    NOBODY = -1,
    STACK_WORDS = SUPPORT_SANITIZED ? 8192 : 4096,
    POINTS = 3000,    /* the most points in a run; a longer run fails */
    STATES = 1 << 22, /* the most states that are remembered */
    YIELD_NS = 1000,  /* the time to yield, if ranks share processors */
    SOCKET = 5
};

/* The actions of the threads. Each letter is a step. A thread of the
   application can

       s S   start the epoch of its own schedule, and wait soon (s) or not (S)
       w W   wait for it, without (w) or with a deadline (W)
       i     wait for it until the wait is interrupted
       o     wait for the first epoch of the other thread's schedule
       t     test
       e l   enter and leave the engine, as commit does, at once or after a long
             time (l)
       x     end the progress thread, as close does

   The peer can

       0 1   send a message to this schedule, and ring
       !     make the next message urgent
       ?     first wait until another epoch is requested
       i     interrupt the engine, as a signal handler does, and wait until all
             waits were told

   An epoch ends when it has all that it needs: a message (m), then a slow call
   (c), then a node that is polled (p). */
typedef enum how {
    MANUAL,  /* there is no progress thread */
    FRESH,   /* there is a progress thread, which has not slept yet */
    SETTLED, /* there is a progress thread, which has slept */
    /* Like SETTLED, but ranks share processors: starts and waits yield for a
       while. */
    SHARED,
    /* Like SHARED, but a wait yields for ever, the time in which a peer may
       still send does not end, and no thread need ever be woken. */
    PATIENT
} how_t;

typedef struct scenario {
    const char *name;
    how_t how;
    const char *apps[APPS];
    const char *peer;
    const char *needs[APPS];
    int timers; /* the most timers that end when nothing else happens */
    bool few;   /* it is explored with FEW preemptions, though it has one app */
} scenario_t;

typedef struct fiber {
    /* returns true if the event for which the fiber sleeps has come; NULL: it
       does not sleep for an event */
    bool (*ready)(const struct fiber *fiber);
    const pthread_mutex_t *mutex;
    uint64_t due_ns; /* when the fiber's sleep ends; UINT64_MAX: never */
    const baton_engine_t *driven;
    uint64_t heeded;
    const uintptr_t *top; /* the top of its stack */
    bool there;
    bool yielded;
    bool signalled;
    bool unfenced; /* the fiber must still pass a fence */
} fiber_t;

typedef struct task {
    baton__task_t base;
    uint64_t arrived; /* number of messages that have arrived */
    bool requested;   /* the peer has requested the epoch */
    bool called;
    bool begun; /* the node that is polled for has begun */
    int polls_left;
} task_t;

/* Everything that a run can change. */
typedef struct world {
    fiber_t fibers[FIBERS];
    int current;
    int ended; /* number of timers that have ended */
    bool seen; /* the states from here on were explored before */
    /* Describes the first condition that is violated. NULL: no condition is. */
    const char *broken;
    uint64_t now_ns;

    baton_engine_t engine;
    baton_group_t group;
    task_t tasks[APPS];
    bool polls;

    struct baton__event_loop loop;
    struct baton__watch watch;
    uint64_t due_ns; /* when the timer ends */
    bool kicked;
    bool gate_closed;
    bool settled; /* the progress thread has begun to sleep */
    int rings;    /* number of rings in the socket of the doorbell */

    baton__peer_state_t states[2];
    baton__doorbell_t bell;
    baton__doorbell_t peers_bell;
    int ring[APPS]; /* by schedule: number of messages for it */
    int requests;
    int told;         /* number of waits that were told of an interrupt */
    uint64_t moments; /* number of times that the doorbell has read its clock */
} world_t;

static world_t w;

/* State for tests of single starts. It is not part of the states of runs. */
static struct {
    /* The time that each reading of the engine's clock takes. */
    uint64_t tick_ns;
    uint64_t yield_ns;  /* the time for which others run during a yield */
    int looks, flushes; /* number of polls and flushes of the transport */
    int reply_at;       /* the number of the poll that finds a message */
    size_t work;        /* the number of bytes that the epoch then computes */
    bool unfenced;
} alone;

static int preemptions;      /* number of preemptions in this run */
static int most_preemptions; /* 0 in tests without fibers */
static int points;
static const scenario_t *scenario;
static uintptr_t stacks[FIBERS][STACK_WORDS];
static ucontext_t contexts[FIBERS];
static ucontext_t explorer;
static ucontext_t fresh;

/* The choices of a run. Those up to `chosen` are given. */
static struct {
    int at;
    int of;
} choices[2 * POINTS];
static int chosen;
static int choice;
/* Hashes of the states that were met; 0: the place is free. */
static uint64_t states[STATES];
static int state_count;
static bool prints;

/* ---- fibers -------------------------------------------------------------- */

/* Reads stacks as raw memory, which the sanitizer would report. */
__attribute__((no_sanitize_address)) static uint64_t
mix(uint64_t hash, const uintptr_t *from, const uintptr_t *to)
{
    for (; from < to; from++) {
        hash = (hash ^ *from) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Returns true if a run has been in the present state before. The stacks are
   part of the state. */
static bool is_seen(void)
{
    uint64_t hash = mix((uintptr_t)scenario, (const uintptr_t *)&w,
                        (const uintptr_t *)(&w + 1));
    for (int i = 0; i < FIBERS; i++) {
        if (w.fibers[i].top != NULL) {
            hash = mix(hash, w.fibers[i].top, stacks[i] + STACK_WORDS);
        }
    }
    /* These bits hold the fewest preemptions with which the state was
       reached. */
    hash |= 15;
    size_t at = (hash >> 4) % STATES;
    while (states[at] != 0 && (states[at] | 15) != hash) {
        at = (at + 1) % STATES;
    }
    uint64_t mine = hash - 15 + (uint64_t)preemptions + 1;
    bool seen = states[at] != 0 && states[at] <= mine;
    if (!seen && state_count < STATES / 2) {
        state_count += states[at] == 0;
        states[at] = mine;
    }
    return seen;
}

static int choose(int count)
{
    if (count == 1) {
        return 0;
    }
    if (choice == chosen) {
        w.seen = is_seen();
        choices[chosen].at = 0;
        choices[chosen].of = w.seen ? 1 : count;
        chosen++;
    }
    return choices[choice++].at;
}

static bool is_ready(const fiber_t *fiber)
{
    return fiber->there && (fiber->ready == NULL || fiber->ready(fiber));
}

static int find_others(int *out, bool yielded_too)
{
    int count = 0;
    for (int i = 0; i < FIBERS; i++) {
        if (i != w.current && is_ready(&w.fibers[i]) &&
            (yielded_too || !w.fibers[i].yielded)) {
            out[count++] = i;
        }
    }
    return count;
}

/* Chooses the fiber that goes on: the current one, if it can, or another one,
   which costs a preemption. If the current one can't go on, chooses a fiber
   that has not yielded yet. If all have yielded, forgets that, and chooses
   again. */
static int pick(bool can)
{
    int those[FIBERS] = {w.current};
    int count =
        can ? 1 + find_others(those + 1, true) : find_others(those, false);
    if (count == 0) {
        for (int i = 0; i < FIBERS; i++) {
            w.fibers[i].yielded = false;
        }
        count = find_others(those, true);
    }
    if (count == 0) {
        return w.current != NOBODY && is_ready(&w.fibers[w.current]) ? w.current
                                                                     : NOBODY;
    }
    int next = those[choose(count)];
    preemptions += can && next != w.current;
    return w.seen ? NOBODY : next;
}

/* Returns the flag of the running fiber or, in a test without fibers, of that
   test. */
static bool *unfenced(void)
{
    return w.current != NOBODY ? &w.fibers[w.current].unfenced
                               : &alone.unfenced;
}

static void pass_fence(void)
{
    *unfenced() = false;
}

static __attribute__((noinline)) const uintptr_t *stack_top(void)
{
    return (const uintptr_t *)__builtin_frame_address(0) + 2;
}

/* Replaces the thread-local variables by those of the fiber `next`. */
static void switch_to(int next)
{
    driven = next != NOBODY ? w.fibers[next].driven : NULL;
    last_heeded = next != NOBODY ? w.fibers[next].heeded : 0;
    w.current = next;
}

/* Lets another fiber go on, or this one. Lets the explorer go on if no fiber
   can. */
static __attribute__((noinline)) void reschedule(bool can)
{
    __builtin_unwind_init(); /* this puts the registers on the stack */
    int self = w.current;
    fiber_t *fiber = &w.fibers[self];
    fiber->top = stack_top();
    int next = w.broken != NULL ? NOBODY : pick(can);
    if (next != self) {
        fiber->driven = driven;
        fiber->heeded = last_heeded;
        switch_to(next);
        (void)swapcontext(&contexts[self],
                          next != NOBODY ? &contexts[next] : &explorer);
    }
    fiber->yielded = false;
}

static void expect(bool holds, const char *else_what)
{
    if (!holds && w.broken == NULL) {
        w.broken = else_what;
        if (w.current != NOBODY) {
            reschedule(false);
        }
    }
}

static void point(const char *function, const char *what)
{
    static const char *const names[FIBERS] = {"application", "second", "thread",
                                              "peer"};
    if (preemptions < most_preemptions) {
        reschedule(true);
    }
    expect(++points < POINTS, "a run does not end");
    if (prints && w.current >= 0 && w.current < FIBERS) {
        print_message("    %-12s %-26s %s\n", names[w.current], function, what);
    }
}

static void sleep_until(bool (*ready)(const fiber_t *fiber))
{
    fiber_t *fiber = &w.fibers[w.current];
    fiber->ready = ready;
    while (!ready(fiber)) {
        reschedule(false);
    }
    fiber->ready = NULL;
    fiber->due_ns = UINT64_MAX;
}

static int yield(const char *function)
{
    point(function, "yields");
    if (w.current != NOBODY) {
        w.fibers[w.current].yielded = true;
        reschedule(false);
    }
    w.now_ns += scenario->how == SHARED ? YIELD_NS + alone.yield_ns : 0;
    return 0;
}

/* ---- locks, and where the engine sleeps ---------------------------------- */

/* The first byte of a mutex shows whether it is locked. */
static bool is_unlocked(const fiber_t *fiber)
{
    return *(const char *)fiber->mutex == 0;
}

static void lock_mutex(const char *function, pthread_mutex_t *mutex)
{
    point(function, "locks");
    w.fibers[w.current].mutex = mutex;
    sleep_until(is_unlocked);
    *(char *)mutex = 1;
}

static void unlock_mutex(pthread_mutex_t *mutex)
{
    *(char *)mutex = 0;
}

static bool is_signalled(const fiber_t *fiber)
{
    return fiber->signalled;
}

static long use_futex(const char *function, const _Atomic uint32_t *word,
                      int how, uint32_t value)
{
    bool waits = (how & FUTEX_CMD_MASK) != FUTEX_WAKE;
    point(function, waits ? "sleeps if not called" : "wakes those that sleep");
    if (!waits) {
        for (int i = 0; i < FIBERS; i++) {
            w.fibers[i].signalled = true;
        }
    } else if (*word == value) {
        w.fibers[w.current].signalled = false;
        sleep_until(is_signalled);
    }
    return 0;
}

static uint64_t engine_clock(void)
{
    w.now_ns += alone.tick_ns;
    return w.now_ns;
}

static uint64_t bell_clock(void)
{
    w.moments += scenario->how != PATIENT;
    return w.moments * MOMENT_NS / 2;
}

static bool is_set_readable(const fiber_t *fiber)
{
    return w.kicked || w.rings > 0 || fiber->due_ns <= w.now_ns;
}

static bool is_gate_readable(void)
{
    return !w.gate_closed && (w.kicked || w.rings > 0);
}

static bool has_loop_event(const fiber_t *fiber)
{
    return is_gate_readable() || w.due_ns <= w.now_ns;
}

static void drain_fd(const char *function, int fd)
{
    point(function,
          fd == w.loop.kick_fd ? "reads the kick" : "reads the timer");
    w.kicked &= fd != w.loop.kick_fd;
    w.due_ns = fd == w.loop.timer_fd ? UINT64_MAX : w.due_ns;
}

static void kick_fd(const char *function)
{
    point(function, "writes a kick");
    expect(scenario->how != PATIENT, "a thread is kicked for nothing");
    w.kicked = true;
}

static int control_gate(const char *function, const struct epoll_event *event)
{
    bool open = event->events != 0;
    point(function, open ? "opens the gate" : "closes the gate");
    w.gate_closed = !open;
    return 0;
}

static void set_timer(const char *function, const struct itimerspec *at)
{
    uint64_t ns = (uint64_t)at->it_value.tv_sec * 1000000000u +
                  (uint64_t)at->it_value.tv_nsec;
    point(function, ns == 0 ? "stops the timer" : "sets the timer");
    expect(driven == &w.engine, "who does not drive sets the timer");
    w.due_ns = ns == 0 ? UINT64_MAX : ns;
}

static int look_at_set(const char *function, struct epoll_event *events)
{
    int count = 0;
    point(function, "looks what is readable");
    if (w.rings > 0) {
        events[count++].data.ptr = &w.watch;
    }
    if (w.kicked) {
        events[count++].data.ptr = NULL;
    }
    return count;
}

static int sleep_at_set(const char *function, const struct timespec *time)
{
    point(function, "sleeps");
    expect(w.gate_closed || scenario->how == MANUAL, "the gate is open");
    if (time != NULL) {
        w.fibers[w.current].due_ns = w.now_ns +
                                     (uint64_t)time->tv_sec * 1000000000u +
                                     (uint64_t)time->tv_nsec;
    }
    sleep_until(is_set_readable);
    return w.kicked || w.rings > 0;
}

static void sleep_in_loop(const char *function)
{
    point(function, "sleeps");
    w.settled = true;
    sleep_until(has_loop_event);
    expect(scenario->how != PATIENT, "the thread is woken for nothing");
    bool gate = is_gate_readable();
    if (w.due_ns <= w.now_ns) {
        on_timer(w.loop.timer_fd, EV_READ, &w.loop);
    }
    if (gate) {
        on_gate(w.loop.gate, EV_READ, &w.loop);
    }
}

static ssize_t ring_bell(const char *function)
{
    point(function, "rings");
    expect(scenario->how != PATIENT, "a bell is rung for nothing");
    w.rings += w.rings < 2;
    return 1;
}

static ssize_t take_ring(const char *function)
{
    point(function, "takes a ring");
    bool any = w.rings > 0;
    w.rings -= any;
    return any;
}

static int descriptor_of(void *object, int k)
{
    return k == 0 ? SOCKET : -1;
}

static void drain_bell(void *object)
{
    baton__doorbell_drain(&w.bell);
}

/* ---- a transport --------------------------------------------------------- */

static size_t transport_poll(void *endpoint, baton_event_t *out, size_t max)
{
    static baton_message_t messages[APPS] = {{.header = {.schedule = 0}},
                                             {.header = {.schedule = 1}}};
    size_t count = 0;
    expect(driven == &w.engine && !w.polls, "two threads drive");
    w.polls = true;
    point(__func__, "looks at the ring");
    w.ring[0] += ++alone.looks == alone.reply_at;
    for (int i = 0; i < APPS; i++) {
        for (; w.ring[i] > 0; w.ring[i]--) {
            out[count++] = (baton_event_t){.kind = BATON_EVENT_ARRIVED,
                                           .message = &messages[i]};
        }
    }
    w.polls = false;
    return count;
}

static void transport_disarm(void *endpoint)
{
    expect(driven == &w.engine, "who does not drive disarms");
    baton__doorbell_disarm(&w.bell);
}

static bool transport_arm(void *endpoint, baton_arm_t how, uint32_t *us_out)
{
    expect(driven == &w.engine, "who does not drive arms");
    const uint32_t armed = w.states[0].armed;
    *unfenced() = true;
    static const uint32_t bells[] = {[BATON_ARM_NOTICES] = BATON__BELL_URGENT,
                                     [BATON_ARM_SOON] = BATON__BELL_SOON,
                                     [BATON_ARM_ALL] = BATON__BELL_ALL,
                                     [BATON_ARM_INSIST] = BATON__BELL_ALL};
    baton__doorbell_arm(&w.bell, bells[how]);
    expect(!*unfenced() || (w.states[0].armed | BELL) == (armed | BELL),
           "no fence is between what is armed and the look at the ring");
    *unfenced() = false;
    point(__func__, "looks at the ring");
    if (w.ring[0] + w.ring[1] > 0) {
        transport_disarm(endpoint);
        return false;
    }
    return true;
}

static void transport_flush(void *endpoint)
{
    expect(driven == &w.engine, "who does not drive rings");
    alone.flushes++;
}

static const baton_transport_t transport = {.poll = transport_poll,
                                            .arm = transport_arm,
                                            .disarm = transport_disarm,
                                            .flush = transport_flush};

/* ---- epochs -------------------------------------------------------------- */

static task_t *task_of(baton_schedule_t *schedule)
{
    return (task_t *)(void *)baton__task_of(schedule);
}

static bool needs(const task_t *task, char what)
{
    const char *all = scenario->needs[task - w.tasks];
    return all != NULL && strchr(all, what) != NULL;
}

static bool awaits_message(const task_t *task)
{
    return needs(task, 'm') && task->arrived < task->base.schedule.run.epoch;
}

static void begin_epoch(baton_schedule_t *schedule)
{
    task_t *task = task_of(schedule);
    if (schedule->run.phase == BATON__RUN_IDLE &&
        atomic_load_explicit(&task->base.requested, memory_order_acquire) >
            schedule->run.epoch) {
        schedule->run.epoch++;
        schedule->run.phase = BATON__RUN_RUNNING;
        w.engine.stepper.running++;
        w.engine.stepper.waited += awaits_message(task);
        task->requested = task->called = task->begun = false;
    }
    if (schedule->run.phase == BATON__RUN_RUNNING) {
        baton__stepper_add_runnable(schedule);
    }
}

static void deliver(const baton_message_t *message)
{
    task_t *task = &w.tasks[message->header.schedule];
    bool awaited = task->base.schedule.run.phase == BATON__RUN_RUNNING &&
                   awaits_message(task);
    task->arrived++;
    if (awaited && !awaits_message(task)) {
        w.engine.stepper.waited--;
        task->base.schedule.run.progress_count++;
        baton__stepper_add_runnable(&task->base.schedule);
    }
}

static bool poll_node(baton_schedule_t *schedule)
{
    if (task_of(schedule)->polls_left-- > 0) {
        return false;
    }
    w.engine.stepper.polled--;
    baton__task_of(schedule)->begun--;
    baton__stepper_add_runnable(schedule);
    return true;
}

/* Returns true if the epoch has all that it needs. */
static bool is_complete(task_t *task)
{
    if (awaits_message(task)) {
        return false;
    }
    if (w.engine.stepper.bytes_left < alone.work) {
        baton__stepper_add_runnable(&task->base.schedule);
        return false;
    }
    if (needs(task, 'c') && !task->called) {
        if (w.engine.stepper.leaves_calls) {
            w.engine.stepper.left_calls = true;
            baton__stepper_add_runnable(&task->base.schedule);
            return false;
        }
        point(__func__, "calls");
        task->called = true;
    }
    if (needs(task, 'p') && !task->begun) {
        task->begun = true;
        task->polls_left = 1;
        w.engine.stepper.polled++;
        task->base.begun++;
    }
    return task->base.begun == 0;
}

static void advance(baton_schedule_t *schedule)
{
    task_t *task = task_of(schedule);
    expect(driven == &w.engine, "who does not drive advances a schedule");
    if (schedule->run.phase != BATON__RUN_RUNNING) {
        return;
    }
    w.requests += !task->requested;
    task->requested = true;
    if (is_complete(task)) {
        schedule->run.phase = BATON__RUN_IDLE;
        schedule->run.progress_count++;
        w.engine.stepper.running--;
        atomic_store_explicit(&task->base.retired, schedule->run.epoch,
                              memory_order_release);
        w.engine.stepper.hooks->on_epoch_end(schedule);
        begin_epoch(schedule);
    }
}

/* ---- the threads' steps -------------------------------------------------- */

typedef struct awaited {
    const baton__task_t *task;
    uint64_t epoch;
} awaited_t;

static bool has_ended(const void *arg)
{
    const awaited_t *awaited = arg;
    return atomic_load_explicit(&awaited->task->retired,
                                memory_order_acquire) >= awaited->epoch;
}

static bool is_settled(const fiber_t *fiber)
{
    return w.settled;
}

static bool has_thread_ended(const fiber_t *fiber)
{
    return !w.fibers[THREAD].there;
}

static void await_interrupt(const baton__task_t *task)
{
    const awaited_t awaited = {task, task->requested};
    baton_status_t status = baton__real_driver.wait(
        &w.engine, &(baton__wait_t){.condition = has_ended,
                                    .arg = &awaited,
                                    .timeout_ms = -1,
                                    .interruptible = true});
    expect(status == BATON_ERR_INTERRUPTED, "a wait is not interrupted");
    expect(driven == NULL, "a thread keeps the lock");
    w.told++;
}

static void await_epoch(baton__task_t *task, uint64_t epoch, int ms)
{
    const awaited_t awaited = {task, epoch};
    if (!has_ended(&awaited)) {
        baton_status_t status = baton__real_driver.wait(
            &w.engine, &(baton__wait_t){.condition = has_ended,
                                        .arg = &awaited,
                                        .schedule = &task->schedule,
                                        .timeout_ms = ms});
        expect(status == BATON_OK, "a wait fails");
    }
    expect(driven == NULL, "a thread keeps the lock");
}

static void act(int self, char what)
{
    baton__task_t *task = &w.tasks[self].base;
    switch (what) {
    case 's':
    case 'S':
        atomic_store_explicit(&task->requested, task->requested + 1,
                              memory_order_release);
        (void)baton__real_driver.start(
            &task->schedule, what == 's' ? BATON__NEXT_WAIT : BATON__NEXT_WORK);
        break;
    case 'w':
    case 'W':
        await_epoch(task, task->requested, what == 'W' ? 1000000 : -1);
        break;
    case 'i':
        await_interrupt(task);
        break;
    case 'o':
        await_epoch(&w.tasks[1 - self].base, 1, -1);
        break;
    case 't':
        (void)baton__real_driver.test(&w.engine);
        break;
    case 'e':
    case 'l':
        baton__real_driver.enter(&w.engine);
        for (int i = 0; i < (what == 'e' ? 1 : TAKE_OVER_YIELDS + 2); i++) {
            (void)sched_yield();
        }
        baton__real_driver.leave(&w.engine);
        break;
    default: /* this does the same as stop_thread() */
        atomic_store_explicit(&w.engine.stopping, true, memory_order_release);
        baton__event_loop_kick(&w.loop);
        sleep_until(has_thread_ended);
        break;
    }
}

static void use(int self)
{
    if (scenario->how > FRESH) {
        sleep_until(is_settled);
    }
    for (const char *at = scenario->apps[self]; *at != '\0'; at++) {
        act(self, *at);
    }
}

static bool has_request(const fiber_t *fiber)
{
    return w.requests > 0;
}

/* Returns true if all application threads that wait for an interrupt were told
   of it. */
static bool are_told(const fiber_t *fiber)
{
    int waits = 0;
    for (int i = 0; i < APPS; i++) {
        waits +=
            scenario->apps[i] != NULL && strchr(scenario->apps[i], 'i') != NULL;
    }
    return w.told == waits;
}

static void send_messages(void)
{
    bool urgent = false;
    for (const char *at = scenario->peer; *at != '\0'; at++) {
        if (*at == '?') {
            sleep_until(has_request);
            w.requests--;
        } else if (*at == '!') {
            urgent = true;
        } else if (*at == 'i') {
            baton_engine_interrupt(&w.engine);
            sleep_until(are_told);
        } else {
            point(__func__, "sends a message");
            w.ring[*at - '0']++;
            *unfenced() = true;
            baton__doorbell_ring(&w.peers_bell, 0, urgent);
            expect(!*unfenced(), "no fence is between message and ring");
            urgent = false;
        }
    }
    if (scenario->how != PATIENT) {
        baton__doorbell_ring_due(&w.peers_bell, true);
    }
}

static void live(int self)
{
    if (self == PEER) {
        send_messages();
    } else if (self == THREAD) {
        (void)thread_main(&w.engine);
    } else {
        use(self);
    }
    w.fibers[self].there = false;
    reschedule(false);
}

/* ---- exploring ----------------------------------------------------------- */

__attribute__((no_sanitize_address)) static void set_up(void)
{
    memset(&w, 0, sizeof w);
    for (int i = 0; i < FIBERS; i++) {
        /* Otherwise words that an earlier run has left there would make equal
           states look different. */
        volatile uintptr_t *word = stacks[i] + STACK_WORDS;
        for (int k = 0; k < STACK_WORDS / 8; k++) {
            *--word = 0;
        }
    }
    baton__engine_rechecks = false;
    interrupts = last_heeded = 0;
    heeds = true;
    w.current = NOBODY;
    w.now_ns = 1000000000;
    w.due_ns = UINT64_MAX;
    w.loop = (struct baton__event_loop){
        .kick_fd = 1, .set = 2, .gate = 3, .timer_fd = 4, .due_ns = UINT64_MAX};
    w.watch = (struct baton__watch){
        .loop = &w.loop,
        .watched = {.descriptor = descriptor_of, .drain = drain_bell}};
    w.bell.states = w.peers_bell.states = w.states;
    w.peers_bell.index = 1;
    w.engine.driver = &baton__real_driver;
    w.engine.threaded = scenario->how != MANUAL;
    w.engine.event_loop = &w.loop;
    w.engine.stepper.stall_ms = UINT32_MAX;
    init_stepper(&w.engine.stepper);
    w.engine.idle.yield_ns = w.engine.idle.share_ns =
        scenario->how == PATIENT ? UINT64_MAX : 0;
    if (scenario->how == SHARED) {
        baton__idle_share(&w.engine.idle);
        w.engine.idle.yield_ns = UINT64_MAX;
        w.engine.idle.share_ns = 3 * YIELD_NS;
        w.engine.idle.wake_ns = 2 * YIELD_NS;
    }
    w.engine.stepper.groups = &w.group;
    w.group.transport = &transport;
    w.group.engine = &w.engine;
    w.group.stepper = &w.engine.stepper;
    for (int i = 0; i < APPS; i++) {
        baton__task_t *task = &w.tasks[i].base;
        task->magic = BATON__TASK_MAGIC;
        task->schedule.group = &w.group;
        task->identity = (uint64_t)i;
        link_to(&w.engine.stepper.tasks, task);
    }
    for (int i = 0; i < FIBERS; i++) {
        w.fibers[i].due_ns = UINT64_MAX;
        w.fibers[i].there = i < APPS && scenario->apps[i] != NULL;
        contexts[i] = fresh;
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = sizeof stacks[i];
        makecontext(&contexts[i], (void (*)(void))live, 1, i);
    }
    w.fibers[THREAD].there = scenario->how != MANUAL;
    w.fibers[PEER].there = scenario->peer != NULL;
}

/* Called if all fibers sleep. Lets the timer or the sleep that is due first
   end. Returns false if none may end. */
static bool pass_time(void)
{
    uint64_t due_ns = w.fibers[THREAD].there ? w.due_ns : UINT64_MAX;
    for (int i = 0; i < APPS; i++) {
        due_ns = w.fibers[i].due_ns < due_ns ? w.fibers[i].due_ns : due_ns;
    }
    if (due_ns == UINT64_MAX || w.ended == scenario->timers) {
        return false;
    }
    w.ended++;
    w.now_ns = due_ns > w.now_ns ? due_ns : w.now_ns;
    return true;
}

/* Called if all fibers sleep, and nothing will wake them. Checks that
   everything has ended. */
static void check_end(void)
{
    const baton_engine_t *engine = &w.engine;
    for (int i = 0; i < FIBERS; i++) {
        expect(i == THREAD || !w.fibers[i].there, "a thread sleeps for ever");
    }
    for (int i = 0; i < APPS; i++) {
        expect(scenario->how == MANUAL ||
                   w.tasks[i].base.requested == w.tasks[i].base.retired,
               "an epoch does not end");
    }
    expect(!engine->driving && driven == NULL, "a thread sleeps and drives");
    expect(!engine->leading && !engine->asleep && engine->followers == 0 &&
               engine->wanted == 0,
           "a thread that is gone waits");
    expect(!w.gate_closed && !engine->gate_closed, "the gate is closed");
    expect(w.loop.kicked == w.kicked, "kicks are lost from now on");
    expect(!w.fibers[THREAD].there ||
               (engine->armed && (w.states[0].armed & BELL) != BATON__BELL_OFF),
           "all sleep, and nothing is armed");
}

static void run(void)
{
    set_up();
    choice = preemptions = points = 0;
    do {
        int next = pick(false);
        if (next != NOBODY) {
            switch_to(next);
            (void)swapcontext(&explorer, &contexts[next]);
        }
    } while (w.broken == NULL && !w.seen && pass_time());
    if (w.broken == NULL && !w.seen) {
        check_end();
    }
}

/* Changes the last choice for which there is an alternative. Returns false if
   there is none. */
static bool go_elsewhere(void)
{
    while (chosen > 0 && ++choices[chosen - 1].at == choices[chosen - 1].of) {
        chosen--;
    }
    return chosen > 0;
}

/* Scenarios with fewer fibers are explored with MANY preemptions. */
enum { FEW = SUPPORT_SANITIZED ? 1 : 2, MANY = FEW + 1 };

static void explore(const scenario_t *of)
{
    long runs = 0;
    scenario = of;
    chosen = 0;
    most_preemptions = of->few || of->apps[1] != NULL ? FEW : MANY;
    do {
        run();
        runs++;
        if (w.broken != NULL) {
            const char *broken = w.broken;
            prints = true;
            print_message("%s: %s:\n", of->name, broken);
            run();
            fail_msg("%s: %s", of->name, broken);
        }
    } while (go_elsewhere());
    most_preemptions = 0;
    print_message("%-36s %7ld runs\n", of->name, runs);
}

static const scenario_t scenarios[] = {
    {"start and wait", SETTLED, {"sw"}, "0", .needs = {"m"}},
    {"start and wait, the thread woken", SETTLED, {"sw"}, "!0", .needs = {"m"}},
    {"start and wait, the thread new", FRESH, {"sw"}, "0", {"m"}, .few = true},
    {"start and wait twice", SETTLED, {"swsw"}, "00", .needs = {"m"}},
    {"never sleep", PATIENT, {"swswsw"}, "?0?0?0", .needs = {"m"}},
    {"stay away", SETTLED, {"SwS"}, "00", .needs = {"m"}},
    {"stay away unforeseen", SETTLED, {"st"}, "0", {"m"}, .timers = 2},
    {"stay away from a call", SETTLED, {"S"}, "0", .needs = {"mc"}},
    {"stay away from a polled node", SETTLED, {"S"}, "0", {"mp"}, .timers = 3},
    {"a deadline and a call", SETTLED, {"sW"}, "0", .needs = {"mc"}},
    {"close", SETTLED, {"swx"}, "0", .needs = {"m"}},
    {"a start yields", SHARED, {"S"}, "0", .needs = {"m"}},
    {"a start yields, and waits", SHARED, {"SwSw"}, "00", {"m"}, .few = true},
    {"a start yields, woken", SHARED, {"SS"}, "!00", {"m"}, .few = true},
    {"a start yields before a call", SHARED, {"S"}, "0", .needs = {"mc"}},
    {"starts yield", SHARED, {"S", "S"}, "10", .needs = {"m", "m"}},
    {"a start yields, one waits",
     SHARED,
     {"S", "sw"},
     "01",
     .needs = {"m", "m"}},
    {"a start yields, one enters", SHARED, {"S", "e"}, "0", .needs = {"m"}},
    {"a second starts", SETTLED, {"sw", "S"}, "10", .needs = {"m", "m"}},
    {"a second starts alone", SETTLED, {"sw", "S"}, "0", .needs = {"m"}},
    {"a second polls", SETTLED, {"sw", "S"}, "0", {"m", "cp"}, .timers = 3},
    {"a second enters", SETTLED, {"sw", "e"}, "0", .needs = {"m"}},
    {"a second enters for long", SETTLED, {"sw", "l"}, "0", .needs = {"m"}},
    {"two wait", SETTLED, {"sw", "sw"}, "01", .needs = {"m", "m"}},
    {"two wait for one", SETTLED, {"sw", "o"}, "0", .needs = {"m"}},
    {"an interrupt", SETTLED, {"siw"}, "i0", .needs = {"m"}},
    {"an interrupt of two",
     SETTLED,
     {"siw", "siw"},
     "i01",
     .needs = {"m", "m"}},
    {"an interrupt, one enters", SETTLED, {"siw", "l"}, "i0", .needs = {"m"}},
    {"manual: an interrupt", MANUAL, {"siw"}, "i0", .needs = {"m"}},
    {"manual: an interrupt of two",
     MANUAL,
     {"siw", "siw"},
     "i01",
     .needs = {"m", "m"}},
    {"manual: wait twice", MANUAL, {"swsw"}, "00", .needs = {"m"}},
    {"manual: a second starts", MANUAL, {"sw", "S"}, "10", .needs = {"m", "m"}},
    {"manual: a second enters", MANUAL, {"sw", "e"}, "0", .needs = {"m"}},
    {"manual: for long", MANUAL, {"sw", "l"}, "0", .needs = {"m"}},
    {"manual: two wait", MANUAL, {"sw", "sw"}, "01", .needs = {"m", "m"}},
    {"manual: two wait for one", MANUAL, {"o", "sw"}, "1", .needs = {"m", "m"}},
};

TEST(test_interleavings)
{
    (void)getcontext(&fresh);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        explore(&scenarios[i]);
    }
}

/* A notice that finds no room makes the sender ring at once. No scenario sends
   such notices. */
TEST(test_ring_at_once_has_a_fence)
{
    static const scenario_t nothing = {
        .how = SETTLED, .apps = {""}, .needs = {"m"}};
    scenario = &nothing;
    set_up();
    w.states[0].armed = BATON__BELL_OFF;
    alone.unfenced = true;
    baton__doorbell_ring_now(&w.peers_bell, 0);
    assert_false(alone.unfenced);
}

/* Starts an epoch and ends it. Returns the number of polls that the start has
   made. */
static int looks_of_start(int reply_at)
{
    points = alone.looks = alone.flushes = 0;
    alone.reply_at = reply_at;
    act(0, 'S');
    int looks = alone.looks;
    w.ring[0] += reply_at == 0;
    act(0, 't');
    return looks;
}

/* If polls find nothing, only one start of 16 polls. A start leaves long
   computations to the progress thread, after it has sent the wake-ups that are
   due. */
TEST(test_start_polls_for_a_wake_up)
{
    static const scenario_t start = {
        .how = SETTLED, .apps = {"S"}, .needs = {"m"}};
    int polled = 0;
    scenario = &start;
    set_up();
    alone.tick_ns = 1000;
    w.engine.idle.spins = 1;
    w.engine.idle.wake_ns = 20 * alone.tick_ns;
    assert_in_range(looks_of_start(0), 18, 20);
    for (int epoch = 2; epoch < 32 + (4 << MOST_VAIN); epoch++) {
        polled += looks_of_start(0) > 0 && epoch >= 32;
    }
    assert_int_equal(polled, 4);
    /* The poll finds a message, since the ranks have met. */
    assert_in_range(looks_of_start(5), 5, 7);
    w.tasks[0].base.schedule.plan.awaited_bytes = LONG_BYTES;
    w.engine.stepper.awaited_bytes = LONG_BYTES;
    alone.work = START_BYTES + 1;
    assert_in_range(looks_of_start(5), 5, 7);
    assert_true(w.kicked && alone.flushes > 0);
    assert_int_equal(w.tasks[0].base.vain, 0);
}

/* If ranks share processors, a start yields, for as long as a wake-up takes, or
   as long as others run, but no longer than a wait would. After a yield that
   has taken a time slice, only few starts yield, and their number grows again
   slowly. A thread that has not started an epoch does not yield, nor does one
   whose peers are on other hosts. */
TEST(test_start_yields_where_ranks_share_processors)
{
    static const scenario_t start = {
        .how = SHARED, .apps = {"S"}, .needs = {"m"}};
    const baton_transport_t far = {.poll = transport_poll,
                                   .arm = transport_arm,
                                   .disarm = transport_disarm,
                                   .flush = transport_flush,
                                   .hosts = 2};
    baton__task_t *task = &w.tasks[0].base;
    scenario = &start;
    set_up();
    memset(&alone, 0, sizeof alone);
    w.engine.idle.share_ns = 20 * YIELD_NS;
    /* Epoch 1; the polls find nothing. */
    assert_in_range(looks_of_start(0), 2, 3);
    assert_true(alone.flushes > 0);
    alone.yield_ns = 4 * YIELD_NS;
    assert_in_range(looks_of_start(0), 4, 5);
    assert_int_equal(looks_of_start(0), 0); /* epoch 3 */
    assert_in_range(looks_of_start(2), 2, 3);
    assert_int_equal(task->vain, 1);
    alone.yield_ns = 20 * YIELD_NS;
    assert_int_equal(looks_of_start(0), 0);
    /* Epoch 6; the yield takes a time slice. */
    assert_int_equal(looks_of_start(2), 1);
    assert_int_equal(task->vain, MOST_VAIN);
    task->vain = 0;
    alone.yield_ns = 0;
    atomic_store(&w.engine.wanted, 1);
    assert_int_equal(looks_of_start(0), 1);
    atomic_store(&w.engine.wanted, 0);
    task->vain = 0;
    w.group.transport = &far;
    assert_int_equal(looks_of_start(0), 0);
    w.group.transport = &transport;
    task->requested++;
    points = alone.looks = 0;
    assert_true(baton__real_driver.start(&task->schedule, BATON__NEXT_UNKNOWN));
    assert_int_equal(alone.looks, 0);
}
