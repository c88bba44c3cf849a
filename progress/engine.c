/* Which thread drives an engine, and how others sleep; see engine.h. From top
   to bottom: the driver lock, how a driver leaves, how an application thread
   waits, the progress thread, the functions of the driver's table, opening and
   closing. */
#include "progress/engine.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/options.h"
#include "base/thread.h"
#include "progress/notice.h"
#include "progress/placement.h"
#include "progress/recovery.h"

#include <baton/engine.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    /* A driver that leaves does so many steps for others that came late, and
       none that begins later than this. */
    LEAVE_STEPS = 64,
    LEAVE_NS = 10000,
    /* An epoch whose messages have so many bytes is waited for with patience.
     */
    LONG_BYTES = 1 << 18,
    YIELD_BYTES = 1 << 15,  /* for which a start lets other threads run */
    START_NODES = 64,       /* that start issues itself */
    START_BYTES = 68 << 10, /* that it and a driver that leaves compute */
    ALONE_NS = 1500,        /* a yield in which no other thread ran */
    START_POLLS = 32,       /* of a start that is probably followed by a wait */
    POLL_WAKES = 4,         /* for which a start polls at most */
    MOST_VAIN = 4, /* one of 16 starts polls in vain: 0.6 to 2.5 us each */
    /* That what is left waits for who will probably be back. A timer's
       interrupt takes some 30 us of a virtual machine's processor, in the
       middle of a copy, and setting one 2: with 400 us all-reduces of 256 KiB
       to 4 MiB took 5 to 20 % longer. So it is put off before it ends, and
       seldom set. */
    LEFT_US = 2000,
    TEST_STEPS = 16,
    /* The longest sleep while armed: nothing is known to need it but a message
       that another thread in MPI keeps back. */
    CHECK_US = 1000000,
    /* The same while an epoch runs: whether those live that it waits for. */
    ASK_US = 500000,
    /* The longest sleep while something is awaited that no descriptor tells of.
     */
    POLL_US = 1000,
    MEASURED = 5,     /* wake-ups, */
    WAKE_NS = 200000, /* each for as long at most */
    /* A wait of at least ASKS_MS asks, when half of its time is over or
       INQUIRE_MS are left, which ranks it waits for at the end of the chain. */
    ASKS_MS = 100,
    INQUIRE_MS = 1000,
    INSIST_US = 1000,     /* asleep, after which peers are rung that need not */
    UNWAITED_US = 10000,  /* where nobody sleeps: the longest tick that systems
                             have. One that ends sooner takes 6 to 11 us to set,
                             any other 1.4, up to 1 s. */
    PARK_NS = 10000000,   /* after which a parked thread looks itself */
    TURN_NS = 50000,      /* and calls the function of its wait */
    TAKE_OVER_YIELDS = 64 /* tries to become the driver before parking */
};

#define NEVER_NS ((uint64_t)INT64_MAX)

bool baton__engine_rechecks = true;

/* The engine that this thread drives, the innermost one. */
static _Thread_local const baton_engine_t *driven;

static bool is_inside(const baton_engine_t *engine)
{
    const baton_engine_t *each = driven;
    while (each != NULL && each != engine) {
        each = each->outer;
    }
    return each != NULL;
}

/* All interrupts of the process are numbered, whatever engine they are for. So
   a thread that is told of the last one of an engine, and looks why then, need
   not be told of earlier ones of any. A new thread need not be told of those
   before its first start. */
static _Atomic uint64_t interrupts;
static _Thread_local uint64_t last_heeded;
static _Thread_local bool heeds;

static void begin_to_heed(void)
{
    if (!heeds) {
        heeds = true;
        last_heeded = atomic_load_explicit(&interrupts, memory_order_seq_cst);
    }
}

/* ---- the driver lock --------------------------------------------------- */

/* For the progress thread, which comes and goes: transports stay as they are.
 */
static bool lock(baton_engine_t *engine)
{
    /* Pairs with the store in unlock: the last driver's writes are seen. The
       load is sequentially consistent too: one that read an old value would let
       mail and lock pass each other (see stop_driving). */
    if (atomic_load_explicit(&engine->driving, memory_order_seq_cst) ||
        atomic_exchange_explicit(&engine->driving, true,
                                 memory_order_seq_cst)) {
        return false;
    }
    engine->outer = driven;
    driven = engine;
    if (atomic_load_explicit(&engine->woken, memory_order_relaxed)) {
        atomic_store_explicit(&engine->woken, false, memory_order_relaxed);
    }
    return true;
}

static void unlock(baton_engine_t *engine)
{
    driven = engine->outer;
    atomic_store_explicit(&engine->driving, false, memory_order_seq_cst);
}

static void disarm(baton_engine_t *engine)
{
    if (!engine->armed) {
        return;
    }
    engine->armed = false;
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        if (g->root == NULL) {
            g->transport->disarm(g->endpoint);
        }
    }
}

/* True if a message may be awaited. */
static bool awaits(const baton__stepper_t *stepper)
{
    return stepper->running > 0 || stepper->activatable > 0 ||
           stepper->draining > 0 || stepper->recovering > 0;
}

/* For how long nothing has moved, as far as is known. */
static uint64_t still_us(const baton_engine_t *engine)
{
    const baton__idle_t *idle = &engine->idle;
    return idle->since_ns == 0 ? 0 : (idle->now_ns - idle->since_ns) / 1000;
}

static baton_arm_t arm_for(baton_engine_t *engine, bool sleeps)
{
    const baton__idle_t *idle = &engine->idle;
    if (!awaits(&engine->stepper) &&
        !atomic_load_explicit(&engine->leading, memory_order_relaxed)) {
        return BATON_ARM_NOTICES;
    }
    if (still_us(engine) >= INSIST_US &&
        idle->now_ns - engine->insisted_ns >= INSIST_US * UINT64_C(1000)) {
        engine->insisted_ns = idle->now_ns;
        return BATON_ARM_INSIST;
    }
    return sleeps || atomic_load_explicit(&engine->asleep, memory_order_relaxed)
               ? BATON_ARM_ALL
               : BATON_ARM_SOON;
}

/* Lets transports tell of what happens by their descriptors. False, and not
   armed: something has happened already. sleeps: the caller is about to. */
static bool arm(baton_engine_t *engine, bool sleeps)
{
    baton_arm_t how = arm_for(engine, sleeps);
    engine->armed = true;
    engine->armed_us = BATON_SLEEP_FOREVER;
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        uint32_t us = BATON_SLEEP_FOREVER;
        if (g->root == NULL && !g->transport->arm(g->endpoint, how, &us)) {
            disarm(engine);
            return false;
        }
        engine->armed_us = us < engine->armed_us ? us : engine->armed_us;
    }
    return true;
}

/* Whether something may be in the device's streams: nodes, or copies of the
   transport's. */
static bool uses_device(const baton_engine_t *engine)
{
    return engine->device != NULL &&
           (engine->stepper.offloads != NULL || engine->stepper.waited > 0);
}

/* Has the device's descriptor tell when what is in its streams now has been
   done. What was done before that it does not tell: so this looks once more.
   False: something has been done. */
static bool arm_device(baton_engine_t *engine)
{
    const baton__device_t *device = engine->device;
    if (!uses_device(engine)) {
        return true;
    }
    engine->unarmed = device->port.arm(device->device) != BATON_OK;
    return !baton__step(&engine->stepper, BATON__STEP_BYTES) &&
           !baton__step_is_due(&engine->stepper);
}

/* Tries to become the driver. */
static bool try_drive(baton_engine_t *engine)
{
    if (!lock(engine)) {
        return false;
    }
    disarm(engine);
    return true;
}

/* How long a sleep may be for the watchdog: an epoch may begin meanwhile. */
static uint32_t watch_us(const baton_engine_t *engine)
{
    uint64_t us = (uint64_t)engine->watchdog.stall_ms * 1000 / 2 + 1;
    return us < BATON_SLEEP_FOREVER ? (uint32_t)us : BATON_SLEEP_FOREVER;
}

/* For how long the driver may sleep, armed. */
static uint32_t sleep_us(const baton_engine_t *engine)
{
    const baton__stepper_t *stepper = &engine->stepper;
    bool recovers = stepper->recovering > 0;
    bool awaits_peers = stepper->running + stepper->draining > 0 || recovers;
    uint32_t most = !baton__engine_rechecks ? BATON_SLEEP_FOREVER
                    : awaits_peers          ? ASK_US
                                            : CHECK_US;
    uint32_t us = engine->armed_us < most ? engine->armed_us : most;
    uint64_t still = still_us(engine);
    bool asks = stepper->polled > 0 || baton__stepper_has_notices(stepper) ||
                baton__recovery_asks(stepper) || stepper->starts > 0 ||
                engine->unarmed;
    if (asks && us > POLL_US) {
        us = POLL_US;
    }
    if (stepper->running + stepper->draining > 0 && still < INSIST_US &&
        us > INSIST_US) {
        us = INSIST_US;
    }
    if (asks || engine->armed_us != BATON_SLEEP_FOREVER) {
        uint32_t idle_us = baton__idle_sleep_us(&engine->idle);
        us = idle_us < us ? idle_us : us;
    }
    if (stepper->groups != NULL) {
        uint32_t watch = watch_us(engine);
        us = watch < us ? watch : us;
    }
    return us;
}

/* ---- how a driver leaves ----------------------------------------------- */

/* Parked threads sleep on a futex: a handler of a signal may wake them, too. */
static long futex(baton_engine_t *engine, int how, uint32_t value,
                  const struct timespec *until)
{
    return syscall(SYS_futex, &engine->calls, how | FUTEX_PRIVATE_FLAG, value,
                   until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void wake_followers(baton_engine_t *engine)
{
    /* Pairs with the increment in park(): either that thread sees what was
       published before this, or it is counted here. */
    if (atomic_load_explicit(&engine->followers, memory_order_seq_cst) > 0) {
        atomic_fetch_add_explicit(&engine->calls, 1, memory_order_seq_cst);
        (void)futex(engine, FUTEX_WAKE, INT_MAX, NULL);
    }
}

/* One of those that are parked can lead now. */
static void end_reign(baton_engine_t *engine)
{
    atomic_fetch_add_explicit(&engine->reigns, 1, memory_order_seq_cst);
    wake_followers(engine);
}

/* Makes the armed descriptor of the program's event loop readable. */
static void tell_event_loop(baton_engine_t *engine)
{
    /* Pairs with the store in baton_engine_arm(): either the tests after that
       see what was published before this, or this sees that it is armed. */
    if (atomic_load_explicit(&engine->tells, memory_order_seq_cst) &&
        atomic_exchange_explicit(&engine->tells, false, memory_order_seq_cst)) {
        const uint64_t one = 1;
        (void)!write(engine->ended_fd, &one, sizeof one);
    }
}

/* Wakes parked threads and a leader that sleeps: what they wait for may be
   true. Any thread, and handlers of signals. */
static void wake_waiters(baton_engine_t *engine)
{
    wake_followers(engine);
    /* Pairs with the store in fall_asleep(). */
    if (atomic_load_explicit(&engine->asleep, memory_order_seq_cst)) {
        baton__event_loop_kick(engine->event_loop);
    }
    tell_event_loop(engine);
}

static void on_end(baton_schedule_t *schedule)
{
    wake_waiters(schedule->group->engine);
}

static void on_recovered(baton_group_t *group)
{
    wake_waiters(group->engine);
}

/* A step of a driver that is about to leave, which computes and copies so many
   bytes at most. Calls that may take long are left to the progress thread.
   Returns how many bytes are left; 0 if it should do no more: what is left is
   a call, or takes more bytes. */
static size_t step_leaving(baton_engine_t *engine, size_t bytes)
{
    baton__stepper_t *stepper = &engine->stepper;
    stepper->leaves_calls = engine->threaded;
    bool moved = baton__step(stepper, bytes);
    stepper->leaves_calls = false;
    return moved && !stepper->left_calls ? stepper->bytes_left : 0;
}

/* True if each poll copies a part of a long message. */
static bool is_copying(const baton_engine_t *engine)
{
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        if (g->transport->is_copying != NULL &&
            g->transport->is_copying(g->endpoint)) {
            return true;
        }
    }
    return false;
}

/* Prepares to leave. False: who sleeps must be kicked. */
static bool hand_over(baton_engine_t *engine, bool soon)
{
    const baton__stepper_t *stepper = &engine->stepper;
    uint64_t until_ns = 0;
    size_t bytes = START_BYTES;
    if (baton__stepper_has_notices(stepper)) { /* the thread need not wake */
        (void)baton__notice_send(&engine->stepper, false);
    }
    for (int steps = 0; baton__step_is_due(stepper) || !arm(engine, false);
         steps++) {
        uint64_t now = baton__clock_ns();
        until_ns = steps == 0 ? now + LEAVE_NS : until_ns;
        if (steps == LEAVE_STEPS || now > until_ns || bytes == 0 ||
            is_copying(engine)) {
            return false;
        }
        bytes = step_leaving(engine, bytes);
    }
    /* What armed descriptors don't tell of. */
    if (baton__stepper_has_notices(stepper) || stepper->polled > 0 ||
        stepper->recovering > 0 || uses_device(engine)) {
        return false; /* the thread arms the device before it sleeps */
    }
    if (engine->armed_us != BATON_SLEEP_FOREVER) {
        if (atomic_load_explicit(&engine->asleep, memory_order_relaxed)) {
            return false;
        }
        if (soon && engine->armed_us < LEFT_US) {
            baton__event_loop_set_timer(engine->event_loop, LEFT_US);
        } else {
            baton__event_loop_wait_sooner(engine->event_loop, engine->armed_us);
        }
    } else if (stepper->running > 0) {
        baton__event_loop_wait_sooner(engine->event_loop,
                                      soon ? watch_us(engine) : UNWAITED_US);
    }
    return true;
}

/* Stops driving. soon: the caller will probably be back at once. */
static void stop_driving(baton_engine_t *engine, bool soon)
{
    bool kick = false;
    for (int steps = 0;; steps++) {
        /* A thread sleeps at the descriptors, or may. */
        if (engine->threaded ||
            atomic_load_explicit(&engine->asleep, memory_order_relaxed)) {
            kick = !hand_over(engine, soon);
        } else {
            /* Many may be due to a peer that does not come. */
            (void)baton__notice_send(&engine->stepper, false);
            baton__stepper_flush(&engine->stepper);
        }
        if (kick && soon && engine->threaded &&
            !atomic_load_explicit(&engine->asleep, memory_order_relaxed)) {
            baton__event_loop_set_timer(engine->event_loop, LEFT_US);
            kick = false;
        }
        if (kick && engine->stepper.awaited_bytes >= LONG_BYTES) {
            baton__stepper_flush(&engine->stepper); /* the thread may compute */
        }
        unlock(engine);
        /* Mail may have come after the last step, from a thread that could not
           drive, or someone was woken and could not. The store in unlock() and
           these loads pair with the push and the try in start(), and with those
           of who was woken: one of the two sees the other. */
        if (!baton__step_has_mail(&engine->stepper) &&
            !atomic_load_explicit(&engine->woken, memory_order_seq_cst)) {
            break;
        }
        if (steps >= LEAVE_STEPS) {
            kick = true;
            break;
        }
        if (!try_drive(engine)) {
            kick = false; /* who drives now finds it */
            break;
        }
        (void)step_leaving(engine, START_BYTES);
    }
    if (kick) {
        baton__event_loop_kick(engine->event_loop);
    }
    if (!engine->threaded) {
        end_reign(engine); /* one of the followers drives now */
    }
}

/* Leaves for a thread that polls again and again: nothing is armed, so that no
   peer rings and the progress thread sleeps on; it takes over if the next step
   does not come in time. False, and still the driver: there is nothing to poll
   for, or a thread sleeps at the descriptors, or mail has come. */
static bool leave_polling(baton_engine_t *engine)
{
    if (!engine->threaded || engine->stepper.running == 0 ||
        atomic_load_explicit(&engine->leading, memory_order_relaxed)) {
        return false;
    }
    baton__stepper_flush(&engine->stepper);
    baton__event_loop_set_timer(engine->event_loop, INSIST_US);
    unlock(engine);
    /* As in stop_driving(). */
    return (!baton__step_has_mail(&engine->stepper) &&
            !atomic_load_explicit(&engine->woken, memory_order_seq_cst)) ||
           !try_drive(engine);
}

/* ---- an application thread waits --------------------------------------- */

typedef struct waiter {
    baton_engine_t *engine;
    const baton__wait_t *wait;
    uint64_t heeded;       /* interrupts */
    uint64_t deadline_ns;  /* or UINT64_MAX */
    uint64_t slept_at;     /* its count of progress when patience ended */
    baton_status_t turned; /* what its function has returned */
} waiter_t;

/* True if the wait is over: also where it is interrupted. */
static bool is_true(const waiter_t *waiter)
{
    return waiter->turned != BATON_OK ||
           waiter->wait->condition(waiter->wait->arg) ||
           baton__engine_interrupts(waiter->engine, waiter->heeded);
}

static void call_turn(waiter_t *waiter)
{
    const baton__wait_t *wait = waiter->wait;
    if (wait->turn != NULL && !is_true(waiter)) {
        waiter->turned = wait->turn(wait->turn_arg);
    }
}

/* A thread that has such a function sleeps for a moment only. */
static uint64_t wake_up_by(const waiter_t *waiter, uint64_t until_ns)
{
    uint64_t soon_ns =
        waiter->wait->turn != NULL ? baton__clock_ns() + TURN_NS : UINT64_MAX;
    return soon_ns < until_ns ? soon_ns : until_ns;
}

static bool is_late(const waiter_t *waiter)
{
    return waiter->deadline_ns != UINT64_MAX &&
           baton__clock_ns() >= waiter->deadline_ns;
}

/* True if another thread waits for the lock, which a driver that waits, or that
   polls with a timeout of 0, would otherwise take again and again. */
static bool is_wanted(const baton_engine_t *engine)
{
    return atomic_load_explicit(&engine->wanted, memory_order_relaxed) > 0;
}

/* The bytes of the messages that are waited for, if they take long; 0 as well
   if nothing of the schedule has moved since the patience with it ended. */
static uint64_t awaited_bytes(const waiter_t *waiter)
{
    const baton_schedule_t *schedule = waiter->wait->schedule;
    return schedule != NULL && schedule->plan.awaited_bytes >= LONG_BYTES &&
                   schedule->run.progress_count != waiter->slept_at
               ? schedule->plan.awaited_bytes
               : 0;
}

/* True if something moved that shortens the wait. Beside a long one others
   may, which its patience with its own peers has nothing to do with. */
static bool has_progressed(const waiter_t *waiter, uint64_t bytes,
                           uint64_t *progress)
{
    uint64_t before = *progress;
    *progress = bytes > 0 ? waiter->wait->schedule->run.progress_count : 0;
    return bytes == 0 || *progress != before;
}

/* A thread with a deadline does not run calls that may take long, if there is a
   progress thread that can. */
static bool leaves_calls(const waiter_t *waiter)
{
    return waiter->deadline_ns != UINT64_MAX && waiter->engine->threaded;
}

/* Steps until the condition is true, or it is better to sleep. */
static void drive_until_true(waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    baton__stepper_t *stepper = &engine->stepper;
    bool timed = waiter->deadline_ns != UINT64_MAX;
    uint64_t bytes = awaited_bytes(waiter);
    uint64_t progress =
        bytes > 0 ? waiter->wait->schedule->run.progress_count : 0;
    stepper->leaves_calls = leaves_calls(waiter);
    while (!is_true(waiter)) {
        bool moved = baton__step(stepper, BATON__STEP_BYTES);
        if (moved && has_progressed(waiter, bytes, &progress)) {
            baton__idle_reset(&engine->idle);
        }
        call_turn(waiter);
        bool due = moved || baton__step_is_due(stepper);
        if (stepper->left_calls || is_wanted(engine) ||
            (timed && due && is_late(waiter))) {
            break;
        }
        if (due) {
            continue;
        }
        baton__pause_t pause =
            baton__idle_next(&engine->idle, BATON__HURRY_WAIT, bytes);
        if (pause == BATON__PAUSE_SLEEP) {
            waiter->slept_at = bytes > 0 ? progress : waiter->slept_at;
            break;
        }
        if (pause == BATON__PAUSE_YIELD) {
            if (engine->idle.crowded) {
                baton__stepper_flush(stepper);
            }
            baton__idle_yield(&engine->idle);
            if (is_late(waiter)) {
                break;
            }
        }
    }
    stepper->leaves_calls = false;
}

/* Arms, releases the lock and sleeps at the descriptors, until it is woken:
   true. False, and still the driver: there is something to do. */
static bool fall_asleep(const waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    baton__watchdog_look(&engine->watchdog, &engine->stepper);
    engine->stepper.leaves_calls = leaves_calls(waiter);
    bool armed = !baton__step_is_due(&engine->stepper) && arm_device(engine) &&
                 arm(engine, true);
    engine->stepper.leaves_calls = false;
    if (!armed) {
        return false;
    }
    uint32_t us = sleep_us(engine);
    uint64_t until_ns = wake_up_by(waiter, waiter->deadline_ns);
    if (until_ns != UINT64_MAX) {
        uint64_t now = baton__clock_ns();
        uint64_t left = until_ns > now ? (until_ns - now) / 1000 + 1 : 0;
        us = left < us ? (uint32_t)left : us;
    }
    if (engine->threaded && !engine->gate_closed) {
        engine->gate_closed = true;
        baton__event_loop_gate(engine->event_loop, false);
    }
    atomic_store_explicit(&engine->asleep, true, memory_order_seq_cst);
    unlock(engine);
    baton__wakeup_t wakeup = BATON__WAKEUP_KICK;
    /* As in stop_driving(). And what need not drive to make the condition true
       looks after that who is asleep. */
    if (!baton__step_has_mail(&engine->stepper) &&
        !atomic_load_explicit(&engine->woken, memory_order_seq_cst) &&
        !is_true(waiter)) {
        wakeup = baton__event_loop_sleep(engine->event_loop, us);
    }
    atomic_store_explicit(&engine->asleep, false, memory_order_relaxed);
    if (wakeup != BATON__WAKEUP_TIMER) {
        atomic_store_explicit(&engine->woken, true, memory_order_seq_cst);
    }
    return true;
}

/* Blocks until the condition is true, until `until_ns`, or until more than
   `reigns` leaders are gone. */
static void park(const waiter_t *waiter, uint64_t until_ns, uint32_t reigns)
{
    baton_engine_t *engine = waiter->engine;
    struct timespec until = {(time_t)(until_ns / 1000000000u),
                             (long)(until_ns % 1000000000u)};
    /* Pairs with the loads in wake_followers(). */
    atomic_fetch_add_explicit(&engine->followers, 1, memory_order_seq_cst);
    bool late = false;
    while (!late) {
        uint32_t calls =
            atomic_load_explicit(&engine->calls, memory_order_seq_cst);
        if (is_true(waiter) ||
            atomic_load_explicit(&engine->reigns, memory_order_seq_cst) !=
                reigns) {
            break;
        }
        late = futex(engine, FUTEX_WAIT_BITSET, calls, &until) != 0 &&
               errno == ETIMEDOUT;
    }
    atomic_fetch_sub_explicit(&engine->followers, 1, memory_order_seq_cst);
}

/* Gets the driver lock from another thread, which may be polling, or in a long
   call. */
static bool take_over(const waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    if (try_drive(engine)) {
        return true;
    }
    bool taken = false;
    atomic_fetch_add_explicit(&engine->wanted, 1, memory_order_seq_cst);
    for (int i = 0; i < TAKE_OVER_YIELDS && !taken && !is_true(waiter) &&
                    !(i > 0 && is_late(waiter));
         i++) {
        (void)sched_yield();
        taken = try_drive(engine);
    }
    atomic_fetch_sub_explicit(&engine->wanted, 1, memory_order_seq_cst);
    return taken;
}

/* From now on the progress thread is woken, and another waiter leads. */
static void stop_leading(baton_engine_t *engine)
{
    if (engine->gate_closed) {
        engine->gate_closed = false;
        baton__event_loop_gate(engine->event_loop, true);
    }
    atomic_store_explicit(&engine->leading, false, memory_order_seq_cst);
}

/* Drives, and sleeps at the descriptors, until the condition is true, the
   deadline is past, or another thread keeps the lock. */
static void lead(waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    bool first = true;
    bool drives = take_over(waiter);
    while (drives) {
        if (first) {
            baton__idle_reset(&engine->idle);
            first = false;
        }
        drive_until_true(waiter);
        bool calls = engine->stepper.left_calls;
        bool wanted = is_wanted(engine);
        if (is_true(waiter) || is_late(waiter) || calls) {
            stop_leading(engine);
            stop_driving(engine, false);
            if (wanted) {
                (void)sched_yield();
            }
            break;
        }
        if (wanted || !fall_asleep(waiter)) {
            stop_driving(engine, true);
            (void)sched_yield();
        }
        drives = take_over(waiter);
    }
    if (!drives) {
        stop_leading(engine);
    }
    end_reign(engine);
}

static bool may_lead(baton_engine_t *engine)
{
    return !atomic_load_explicit(&engine->leading, memory_order_seq_cst) &&
           !atomic_exchange_explicit(&engine->leading, true,
                                     memory_order_seq_cst);
}

/* The caller, the driver, will lead at once, so that nobody need be woken; but
   where another thread leads that may be asleep. It arms all the same: a bell
   for what is urgent alone would ring on while this thread polls. */
static void leave_to_lead(const waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    if (is_true(waiter) ||
        atomic_load_explicit(&engine->leading, memory_order_seq_cst)) {
        stop_driving(engine, true);
    } else {
        (void)arm(engine, false);
        unlock(engine);
    }
}

/* How many ms before its end a wait asks; 0: it does not. */
static int inquire_ms(const baton_schedule_t *schedule, int timeout_ms)
{
    return schedule == NULL || timeout_ms < ASKS_MS ? 0
           : timeout_ms < 2 * INQUIRE_MS            ? timeout_ms / 2
                                                    : INQUIRE_MS;
}

static baton_status_t wait_until(baton_engine_t *engine,
                                 const baton__wait_t *wait)
{
    const baton_schedule_t *schedule = wait->schedule;
    int timeout_ms = wait->timeout_ms;
    waiter_t waiter = {.engine = engine,
                       .wait = wait,
                       .heeded = baton__engine_heeded(wait),
                       .deadline_ns = baton__deadline(timeout_ms),
                       .slept_at = UINT64_MAX};
    const uint64_t deadline_ns = waiter.deadline_ns;
    waiter.deadline_ns -= (uint64_t)inquire_ms(schedule, timeout_ms) * 1000000u;
    if (is_inside(engine)) {
        leave_to_lead(&waiter);
    }
    while (!is_true(&waiter)) {
        uint32_t reigns =
            atomic_load_explicit(&engine->reigns, memory_order_seq_cst);
        if (may_lead(engine)) {
            lead(&waiter);
            reigns++; /* its own */
        }
        if (!is_true(&waiter)) {
            if (is_late(&waiter)) {
                if (waiter.deadline_ns == deadline_ns) {
                    return BATON_ERR_TIMEOUT;
                }
                waiter.deadline_ns = deadline_ns;
                if (take_over(&waiter)) {
                    baton__notice_inquire(schedule->group, schedule->identity);
                    stop_driving(engine, false);
                }
            }
            uint64_t look_ns =
                baton__engine_rechecks ? baton__clock_ns() + PARK_NS : NEVER_NS;
            look_ns =
                look_ns < waiter.deadline_ns ? look_ns : waiter.deadline_ns;
            park(&waiter, wake_up_by(&waiter, look_ns), reigns);
            call_turn(&waiter);
        }
    }
    return waiter.turned == BATON_OK &&
                   baton__engine_interrupts(engine, waiter.heeded) &&
                   !wait->condition(wait->arg)
               ? baton__engine_heed(engine)
               : waiter.turned;
}

/* ---- interrupts --------------------------------------------------------- */

uint64_t baton__engine_heeded(const baton__wait_t *wait)
{
    return wait->interruptible && baton__thread_patience == 0 ? last_heeded
                                                              : UINT64_MAX;
}

baton_status_t baton__engine_heed(const baton_engine_t *engine)
{
    last_heeded =
        atomic_load_explicit(&engine->interrupted, memory_order_seq_cst);
    return baton__error_forward(
        BATON_ERR_INTERRUPTED,
        "the wait was interrupted (baton_engine_interrupt); what it waits for "
        "goes on: wait again, or cancel it");
}

void baton_engine_interrupt(baton_engine_t *engine)
{
    if (engine == NULL) {
        return;
    }
    const int before = errno;
    uint64_t mine =
        atomic_fetch_add_explicit(&interrupts, 1, memory_order_seq_cst) + 1;
    uint64_t last =
        atomic_load_explicit(&engine->interrupted, memory_order_relaxed);
    while (last < mine && !atomic_compare_exchange_weak_explicit(
                              &engine->interrupted, &last, mine,
                              memory_order_seq_cst, memory_order_relaxed)) {
    }
    wake_waiters(engine);
    errno = before;
}

/* ---- the progress thread ----------------------------------------------- */

/* Releases the lock while it yields; false if another thread has it then. */
static bool yield_lock(baton_engine_t *engine)
{
    baton__stepper_flush(&engine->stepper);
    unlock(engine);
    (void)sched_yield();
    if (!lock(engine)) {
        return false;
    }
    baton__idle_yielded(&engine->idle);
    disarm(engine);
    return true;
}

/* Arms, sets the timer and releases the lock, to sleep: true. False, and still
   the driver: there is something to do. */
static bool leave_to_sleep(baton_engine_t *engine, bool wanted)
{
    baton__watchdog_look(&engine->watchdog, &engine->stepper);
    if (baton__step_is_due(&engine->stepper) || !arm_device(engine) ||
        !arm(engine, !wanted)) {
        return false;
    }
    baton__event_loop_set_timer(engine->event_loop, sleep_us(engine));
    unlock(engine);
    /* As in stop_driving(). */
    if ((!baton__step_has_mail(&engine->stepper) &&
         !atomic_load_explicit(&engine->woken, memory_order_seq_cst)) ||
        !lock(engine)) {
        return true;
    }
    disarm(engine);
    return false;
}

/* Drives until there is nothing to do but wait, or another thread does. */
static void drive_in_thread(baton_engine_t *engine, bool woken)
{
    baton__stepper_t *stepper = &engine->stepper;
    if (woken) {
        baton__idle_reset(&engine->idle);
    }
    for (;;) {
        baton__pause_t pause = BATON__PAUSE_NONE;
        if (baton__step(stepper, BATON__STEP_BYTES)) {
            baton__idle_reset(&engine->idle);
        } else if (!baton__step_is_due(stepper)) {
            /* Armed receives alone are not polled for: they wake it. */
            pause = baton__idle_next(&engine->idle,
                                     stepper->waited > 0 ? BATON__HURRY_EPOCH
                                                         : BATON__HURRY_NONE,
                                     0);
        }
        bool wanted = is_wanted(engine);
        if (pause == BATON__PAUSE_SLEEP || wanted) {
            if (leave_to_sleep(engine, wanted)) {
                return;
            }
            baton__idle_reset(&engine->idle);
        }
        if ((pause == BATON__PAUSE_YIELD || wanted) && !yield_lock(engine)) {
            return;
        }
    }
}

static void *thread_main(void *arg)
{
    baton_engine_t *engine = arg;
    baton__wakeup_t wakeup = BATON__WAKEUP_KICK;
    /* The default lets the kernel end a sleep 50 us late. */
    (void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    while (!atomic_load_explicit(&engine->stopping, memory_order_acquire)) {
        /* If another thread drives now it looks for what has come, or what the
           timer was set for. */
        atomic_store_explicit(&engine->woken, true, memory_order_seq_cst);
        if (try_drive(engine)) {
            drive_in_thread(engine, wakeup == BATON__WAKEUP_MESSAGE);
        }
        wakeup = baton__event_loop_wait(engine->event_loop);
        /* A leader has fallen asleep meanwhile: it may be its kick that this
           thread has drained. */
        if (wakeup != BATON__WAKEUP_TIMER &&
            atomic_load_explicit(&engine->asleep, memory_order_seq_cst)) {
            baton__event_loop_kick(engine->event_loop);
        }
        if (atomic_load_explicit(&engine->asks_awake, memory_order_relaxed)) {
            atomic_store_explicit(&engine->awake_ns, baton__clock_ns(),
                                  memory_order_release);
        }
    }
    return NULL;
}

/* How long the thread takes to wake up, the median of a few times. */
static uint64_t measure_wake(baton_engine_t *engine)
{
    uint64_t took[MEASURED] = {0};
    atomic_store_explicit(&engine->asks_awake, true, memory_order_relaxed);
    for (int i = 0; i < MEASURED; i++) {
        /* Until it sleeps again. */
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        uint64_t began = baton__clock_ns();
        uint64_t awake;
        baton__event_loop_kick(engine->event_loop);
        do {
            (void)sched_yield();
            awake =
                atomic_load_explicit(&engine->awake_ns, memory_order_acquire);
        } while (awake < began && baton__clock_ns() - began < WAKE_NS);
        uint64_t ns = awake < began ? WAKE_NS : awake - began;
        int at = i;
        for (; at > 0 && took[at - 1] > ns; at--) {
            took[at] = took[at - 1];
        }
        took[at] = ns;
    }
    atomic_store_explicit(&engine->asks_awake, false, memory_order_relaxed);
    return took[MEASURED / 2];
}

static void stop_thread(baton_engine_t *engine)
{
    atomic_store_explicit(&engine->stopping, true, memory_order_release);
    baton__event_loop_kick(engine->event_loop);
    (void)pthread_join(engine->thread, NULL);
}

/* Starts the thread, bound as `placement` says. */
static baton_status_t start_thread(baton_engine_t *engine,
                                   const char *placement)
{
    int error =
        baton__thread_start(&engine->thread, "baton", thread_main, engine);
    if (error != 0) {
        return baton__error(BATON_ERR_SYSTEM, "no progress thread: %s",
                            baton__errno_text(error));
    }
    baton_status_t status = baton__place_thread(engine->thread, placement);
    if (status != BATON_OK) {
        stop_thread(engine);
    }
    return status;
}

/* ---- the driver's table ------------------------------------------------ */

static void enter(baton_engine_t *engine)
{
    if (is_inside(engine)) {
        engine->nested++;
        return;
    }
    atomic_fetch_add_explicit(&engine->wanted, 1, memory_order_seq_cst);
    while (!try_drive(engine)) {
        (void)sched_yield();
    }
    atomic_fetch_sub_explicit(&engine->wanted, 1, memory_order_seq_cst);
}

static void leave(baton_engine_t *engine)
{
    if (engine->nested > 0) {
        engine->nested--;
        return;
    }
    /* Who recovers, or parts, waits for that next. */
    stop_driving(engine, engine->stepper.recovering > 0);
}

/* Whether a start that is not waited for lets other threads run. */
static bool yields_in(const baton_engine_t *engine,
                      const baton_schedule_t *schedule)
{
    return engine->idle.scarce && schedule->plan.awaited_bytes <= YIELD_BYTES &&
           schedule->group->transport->hosts <= 1;
}

/* Nothing moves: lets other threads run, and returns for how long they did; 0
   if a wait would sleep instead, no message is awaited, or the lock is wanted.
 */
static uint64_t yield_in_start(baton_engine_t *engine)
{
    baton__idle_t *idle = &engine->idle;
    if (is_wanted(engine) || engine->stepper.waited == 0 ||
        baton__idle_next(idle, BATON__HURRY_EPOCH, 0) != BATON__PAUSE_YIELD) {
        return 0;
    }
    const uint64_t before_ns = idle->now_ns;
    baton__stepper_flush(&engine->stepper);
    baton__idle_yield(idle);
    return idle->now_ns - before_ns + 1;
}

/* Polls for what the wait that follows would poll for, so that this thread need
   not leave, and have itself rung for, in between. Before other work it polls
   for as long as a thread takes to wake up: ranks that start together need not
   ring, and end a short epoch sooner than they would wake each other's threads.
   A long epoch it leaves to the thread as soon as there is something to compute
   or copy. Where polls are in vain fewer starts do it, on all ranks those of
   the same epochs, so that they meet.

   Where ranks of one host share processors it yields between polls, since the
   others need these to start: threads that wake each other one after another
   take far longer. On 2 processors 4 ranks took 55 us for 8 bytes that nobody
   waited for, and 8 ranks 120, where one thread that wakes 3 and 7 others takes
   35 and 95; with yields 10 and 25. A yield beside a thread that computes takes
   a time slice: then wake-ups are quicker, and for a while few starts yield. */
static void poll_soon(baton_engine_t *engine, baton_schedule_t *schedule,
                      baton__next_t next)
{
    const bool waits_soon = next == BATON__NEXT_WAIT;
    const bool yields = yields_in(engine, schedule);
    const baton__stepper_t *stepper = &engine->stepper;
    const uint64_t wake_ns = engine->idle.wake_ns;
    const bool is_long = schedule->plan.awaited_bytes >= LONG_BYTES;
    const uint64_t skips = (UINT64_C(1) << schedule->turn.vain) - 1;
    if ((engine->idle.scarce ? !yields || next != BATON__NEXT_WORK
                             : engine->idle.spins == 0) ||
        stepper->running != 1 || baton__step_is_due(stepper) ||
        (waits_soon ? is_long
                    : wake_ns == 0 || (schedule->run.epoch & skips) != 0)) {
        return;
    }
    if (yields) {
        baton__idle_reset(&engine->idle);
    }
    const uint64_t epoch = schedule->run.epoch; /* the next may begin at once */
    const uint64_t began_ns = waits_soon ? 0 : baton__clock_ns();
    uint64_t progress = schedule->run.progress_count;
    uint64_t until_ns = began_ns + wake_ns;
    uint32_t polls = 0;
    bool left = is_long && is_copying(engine); /* something for the thread */
    bool slow = false;
    while (
        stepper->running == 1 && schedule->run.epoch == epoch && !left &&
        !stepper->left_calls && stepper->bytes_left > 0 &&
        (waits_soon ? polls++ < START_POLLS : baton__clock_ns() < until_ns)) {
        if (step_leaving(engine, is_long ? START_BYTES : LONG_BYTES) == 0 &&
            yields && stepper->running == 1 && !baton__step_is_due(stepper)) {
            const uint64_t took_ns = yield_in_start(engine);
            slow = took_ns > engine->idle.share_ns;
            if (slow || took_ns == 0) {
                break;
            }
            until_ns += took_ns > ALONE_NS ? took_ns : 0;
        }
        left = ((waits_soon || is_long) && baton__step_is_due(stepper)) ||
               (is_long && is_copying(engine));
        if (!waits_soon && schedule->run.progress_count != progress) {
            uint64_t now_ns = baton__clock_ns();
            progress = schedule->run.progress_count;
            until_ns = yields || now_ns - began_ns < POLL_WAKES * wake_ns
                           ? now_ns + wake_ns
                           : 0;
        }
    }
    if (slow) {
        schedule->turn.vain = MOST_VAIN;
    } else if (stepper->running == 0 || schedule->run.epoch != epoch ||
               (is_long && left)) {
        schedule->turn.vain -=
            yields ? schedule->turn.vain > 0 : schedule->turn.vain;
    } else if (!waits_soon && schedule->turn.vain < MOST_VAIN) {
        schedule->turn.vain++;
    }
}

/* This thread steps, or mail reaches the one that drives; from a call node that
   is this thread's own step. */
static bool start(baton_schedule_t *schedule, baton__next_t next)
{
    baton_engine_t *engine = schedule->group->engine;
    bool yields = false;
    begin_to_heed();
    bool drives = try_drive(engine);
    if (!drives) {
        baton__step_mail(schedule);
        drives = try_drive(engine); /* the other one may have left before */
    }
    if (drives) {
        engine->stepper.leaves_calls = engine->threaded;
        baton__step_start(schedule, START_NODES, START_BYTES);
        engine->stepper.leaves_calls = false;
        poll_soon(engine, schedule, next);
        yields = yields_in(engine, schedule);
        stop_driving(engine, next == BATON__NEXT_WAIT);
    }
    return yields;
}

static baton_status_t test(baton_engine_t *engine)
{
    if (!is_inside(engine) && try_drive(engine)) {
        engine->stepper.leaves_calls = engine->threaded;
        for (int i = 0;
             i < TEST_STEPS && baton__step(&engine->stepper, BATON__STEP_BYTES);
             i++) {
        }
        engine->stepper.leaves_calls = false;
        stop_driving(engine, false);
    }
    return BATON_OK;
}

const baton__driver_t baton__real_driver = {
    .is_inside = is_inside,
    .enter = enter,
    .try_enter = try_drive,
    .leave = leave,
    .start = start,
    .test = test,
    .wait = wait_until,
};

bool baton_engine_step(baton_engine_t *engine)
{
    if (!baton__is_given(engine, true, __func__, "engine") ||
        !baton__process_is_own(__func__) || is_inside(engine) ||
        !try_drive(engine)) {
        return false;
    }
    bool moved = baton__step(&engine->stepper, BATON__STEP_BYTES);
    moved |= baton__step_is_due(&engine->stepper);
    if (!leave_polling(engine)) {
        stop_driving(engine, false);
    }
    return moved;
}

baton_status_t baton_engine_wait(baton_engine_t *engine,
                                 baton_condition_fn condition, const void *arg,
                                 int timeout_ms)
{
    if (!baton__is_given(engine, true, __func__, "engine") ||
        !baton__is_given((const void *)(uintptr_t)condition, true, __func__,
                         "condition") ||
        !baton__process_is_own(__func__)) {
        return baton__error_status();
    }
    if (baton__engine_is_inside(engine)) {
        return condition(arg)
                   ? BATON_OK
                   : baton__error(BATON_ERR_STATE, "%s: a call node can't wait",
                                  __func__);
    }
    const baton__wait_t wait = {.condition = condition,
                                .arg = arg,
                                .timeout_ms = timeout_ms,
                                .interruptible = true};
    baton_status_t status = engine->driver->wait(engine, &wait);
    return status != BATON_ERR_TIMEOUT
               ? status
               : baton_error_set(status, "%s: not true within %d ms", __func__,
                                 timeout_ms);
}

void baton_engine_notify(baton_engine_t *engine)
{
    if (engine != NULL) {
        const int before = errno;
        wake_waiters(engine);
        errno = before;
    }
}

baton_status_t baton_engine_arm(baton_engine_t *engine, int *fd_out)
{
    if (!baton__is_given(engine, true, __func__, "engine") ||
        !baton__is_given(fd_out, true, __func__, "fd_out") ||
        !baton__process_is_own(__func__)) {
        return baton__error_status();
    }
    if (!engine->threaded) {
        return baton__error(BATON_ERR_UNSUPPORTED,
                            "%s: the engine has no progress thread, so nothing "
                            "ends while the program sleeps",
                            __func__);
    }
    uint64_t count;
    if (engine->ended_fd == 0) {
        int fd = baton__descriptor_move(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (fd < 0) {
            return baton__error(BATON_ERR_SYSTEM, "%s: eventfd failed: %s",
                                __func__, baton__errno_text(errno));
        }
        engine->ended_fd = fd;
    }
    (void)!read(engine->ended_fd, &count, sizeof count);
    atomic_store_explicit(&engine->tells, true, memory_order_seq_cst);
    *fd_out = engine->ended_fd;
    return BATON_OK;
}

/* ---- opening and closing ----------------------------------------------- */

static baton_status_t choose_mode(const baton_engine_options_t *options,
                                  bool *threaded)
{
    bool by_default = options->progress == BATON_PROGRESS_DEFAULT;
    *threaded = by_default ? baton__config_number(BATON__CONFIG_PROGRESS) == 0
                           : options->progress == BATON_PROGRESS_THREAD;
    if (by_default || *threaded || options->progress == BATON_PROGRESS_MANUAL) {
        return BATON_OK;
    }
    return baton__error(BATON_ERR_INVALID,
                        "engine options: progress is %d, must be "
                        "BATON_PROGRESS_THREAD or another of engine.h",
                        (int)options->progress);
}

static bool has_one_processor(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

static void dispose(baton_engine_t *engine)
{
    baton__event_loop_close(engine->event_loop);
    if (engine->ended_fd > 0) {
        (void)close(engine->ended_fd);
    }
    baton__free(engine);
}

static void init_stepper(baton__stepper_t *stepper)
{
    stepper->on_end = on_end;
    stepper->on_recovered = on_recovered;
    stepper->clock_ns = baton__clock_ns;
    stepper->slice_bytes = BATON__SLICE_BYTES;
}

static baton_status_t read_options(const baton_engine_options_t *given,
                                   baton_engine_options_t *out)
{
    static const baton_engine_options_t defaults = BATON_ENGINE_OPTIONS;
    baton_status_t status =
        baton__options_read(out, sizeof *out, given != NULL ? given : &defaults,
                            "engine options", "BATON_ENGINE_OPTIONS");
    return status == BATON_OK ? baton__config_check() : status;
}

baton_status_t baton__engine_open(const baton_engine_options_t *given,
                                  const baton__verification_t *verification,
                                  baton_engine_t **out)
{
    if (!baton__is_given(out, true, "baton_engine_open", "out") ||
        !baton__process_is_own("baton_engine_open")) {
        return baton__error_status();
    }
    baton_engine_options_t options;
    bool threaded = false;
    baton_status_t status = read_options(given, &options);
    if (status == BATON_OK) {
        status = choose_mode(&options, &threaded);
    }
    if (status != BATON_OK) {
        return status;
    }
    baton_engine_t *engine = baton__alloc(1, sizeof *engine);
    if (engine == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for an engine");
    }
    engine->driver = &baton__real_driver;
    engine->verification = verification;
    engine->threaded = threaded;
    engine->watchdog.stall_ms =
        options.stall_ms != 0
            ? options.stall_ms
            : (uint32_t)baton__config_number(BATON__CONFIG_STALL_MS);
    init_stepper(&engine->stepper);
    baton__idle_init(&engine->idle, has_one_processor());
    status = baton__event_loop_open(&engine->event_loop);
    if (status == BATON_OK && threaded) {
        const char *placement =
            options.placement != NULL
                ? options.placement
                : baton__config_text(BATON__CONFIG_PLACEMENT);
        status = start_thread(engine, placement);
        if (status == BATON_OK) {
            uint64_t wake_ns = measure_wake(engine);
            enter(engine);
            baton__idle_measured(&engine->idle, wake_ns);
            leave(engine);
        }
    }
    if (status != BATON_OK) {
        dispose(engine);
        return status;
    }
    baton__process_count(1);
    begin_to_heed();
    *out = engine;
    return BATON_OK;
}

baton_status_t baton_engine_close(baton_engine_t *engine)
{
    if (engine == NULL) {
        return BATON_OK;
    }
    if (!baton__process_is_own(__func__)) {
        return BATON_ERR_STATE;
    }
    if (baton__engine_is_inside(engine)) {
        return baton__error(BATON_ERR_STATE,
                            "the engine can't be closed from a call node");
    }
    if (engine->stepper.groups != NULL) {
        return baton__error(BATON_ERR_BUSY,
                            "the engine still has a group (%s, %s): "
                            "destroy its groups first",
                            baton__group_place(engine->stepper.groups),
                            engine->stepper.groups->transport->name);
    }
    if (engine->threaded) {
        stop_thread(engine);
    }
    baton__engine_close_device(engine);
    dispose(engine);
    baton__process_count(-1);
    return BATON_OK;
}

baton_progress_t baton_engine_progress(const baton_engine_t *engine)
{
    return !baton__is_given(engine, true, __func__, "engine")
               ? BATON_PROGRESS_DEFAULT
           : engine->threaded ? BATON_PROGRESS_THREAD
                              : BATON_PROGRESS_MANUAL;
}
