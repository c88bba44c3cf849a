/* Which thread drives an engine, and how the others sleep; see engine.h. Of the
   threads that wait in calls of the application, one leads: it drives, and
   sleeps at the descriptors; the others are parked, which means that they sleep
   until that leader wakes them or has gone. From top to bottom: the driver
   lock, how a driver leaves, how an application thread waits, the progress
   thread, the functions of the driver's table, opening and closing. */
#include "progress/driving/engine.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/options.h"
#include "base/thread.h"
#include "progress/membership/notice.h"
#include "progress/membership/recovery.h"
#include "progress/state/traced.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* docs/waiting.md lists these constants, with what they decide, and says where
   the values are from. */
enum {
    /* The most steps that a driver makes, while it leaves, for events that come
       meanwhile. After LEAVE_NS it begins no other step. */
    LEAVE_STEPS = 64,
    LEAVE_NS = 10000,
    /* An epoch whose messages have at least this many bytes counts as long: a
       wait for it yields for longer before it sleeps. */
    LONG_BYTES = 1 << 18,
    /* A start yields only if the messages for which the epoch waits have at
       most this many bytes. */
    YIELD_BYTES = 1 << 15,
    START_NODES = 64, /* the most nodes that a start issues */
    /* The most bytes that a start, or a leaving driver, computes and copies. */
    START_BYTES = 68 << 10,
    /* The most polls that a start makes if a wait will follow it. */
    START_POLLS = 32,
    /* After each progress of its epoch, a start that polls goes on for the time
       of one wake-up, until it has polled for the time of POLL_WAKES
       wake-ups. */
    POLL_WAKES = 4,
    /* The largest exponent of the backoff in poll_soon(): one of 16 starts
       polls. A poll that finds nothing costs 0.6 to 2.5 us. */
    MOST_VAIN = 4,
    /* How long work left by a caller that will soon return waits before the
       progress thread takes it. A timer's interrupt takes some 30 us of a
       virtual machine's processor, in the middle of a copy, and setting a timer
       takes 2 us: with a delay of 400 us, all-reduces of 256 KiB to 4 MiB took
       5 to 20 % longer. With 2 ms the caller usually comes back, and puts the
       timer off, before it fires. The timer is then set at most once in half a
       millisecond; see baton__event_loop_set_timer. */
    LEFT_US = 2000,
    TEST_STEPS = 16,
    /* The longest sleep with armed transports if no message of a peer is
       awaited. The only event known to need such a limit is a message that MPI
       holds back while another thread is in MPI. */
    CHECK_US = 1000000,
    /* The longest sleep with armed transports if messages of peers are awaited:
       after each sleep the watchdog looks whether these peers are alive. */
    ASK_US = 1000 * BATON__WATCHDOG_LOOK_MS,
    /* The longest sleep while no descriptor reports an awaited event. */
    POLL_US = 1000,
    MEASURED = 5, /* number of wake-ups that are measured at the opening */
    /* a wake-up that takes longer counts as one of this time */
    WAKE_NS = 200000,
    /* A wait with a timeout of at least ASKS_MS asks its peers which ranks they
       wait for, to find the rank at the end of the chain: INQUIRE_MS before the
       timeout, but not before half of the time has passed. */
    ASKS_MS = 100,
    INQUIRE_MS = 1000,
    /* After this long without progress this rank wakes even peers that are
       armed for notices alone. */
    INSIST_US = 1000,
    /* The progress thread's timer for a running epoch that its caller does not
       wait for. This is the longest kernel tick: a timer that ends sooner takes
       6 to 11 us to set, and a longer one, up to 1 s, takes 1.4 us. */
    UNWAITED_US = 10000,
    /* Interval at which a parked thread checks its condition. */
    PARK_NS = 10000000,
    TURN_NS = 50000, /* interval at which a wait calls its baton_turn_fn */
    /* Number of tries to get the driver lock before a thread parks. */
    TAKE_OVER_YIELDS = 64
};

#define NEVER_NS ((uint64_t)INT64_MAX)

bool baton__engine_rechecks = true;

/* The engine that this thread drives. If it drives several, nested in each
   other's call nodes, the innermost one. */
static _Thread_local const baton_engine_t *driven;

static bool progress_engine_is_inside(const baton_engine_t *engine)
{
    const baton_engine_t *each = driven;
    while (each != NULL && each != engine) {
        each = each->outer;
    }
    return each != NULL;
}

static bool progress_engine_is_driven(const baton__stepper_t *stepper)
{
    static_assert(offsetof(baton_engine_t, stepper) == 0, "the same address");
    return progress_engine_is_inside((const baton_engine_t *)stepper);
}

/* Interrupts (calls of baton_engine_interrupt) are numbered across all engines
   of the process. A thread that has returned from a wait because of an
   interrupt looks for the reason then, so no earlier interrupt of any engine
   needs to end another of its waits. Interrupts before a thread's first start
   do not concern it. */
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

/* Takes the driver lock if it is free. Does not disarm the transports. */
static bool progress_engine_lock(baton_engine_t *engine)
{
    /* Pairs with the store in progress_engine_unlock: this driver sees all
       writes of the last one. The load is sequentially consistent, too: a load
       of an old value could miss an unlock whose driver missed this thread's
       mail (see stop_driving). */
    if (atomic_load_explicit(&engine->driving, memory_order_seq_cst) ||
        atomic_exchange_explicit(&engine->driving, true,
                                 memory_order_seq_cst)) {
        return false;
    }
    engine->outer = driven;
    driven = engine;
    baton__traced_forget_time(&engine->stepper);
    if (atomic_load_explicit(&engine->woken, memory_order_relaxed)) {
        atomic_store_explicit(&engine->woken, false, memory_order_relaxed);
    }
    return true;
}

static void progress_engine_unlock(baton_engine_t *engine)
{
    assert(baton__stepper_driven_here(&engine->stepper));
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
        g->transport->disarm(g->endpoint);
    }
}

/* True if a message may be awaited. */
static bool awaits(const baton__stepper_t *stepper)
{
    return stepper->running > 0 || stepper->activatable > 0 ||
           stepper->draining > 0 || stepper->recovering > 0;
}

/* Returns how long there has been no progress, as of the idle policy's last
   look at the clock; 0 if unknown. */
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

/* Arms all transports. Returns false, with none armed, if an event is already
   there to poll. `sleeps` says that the caller will sleep at the descriptors
   itself. */
static bool progress_engine_arm(baton_engine_t *engine, bool sleeps)
{
    assert(baton__stepper_driven_here(&engine->stepper));
    baton_arm_t how = arm_for(engine, sleeps);
    engine->armed = true;
    engine->armed_us = BATON_SLEEP_FOREVER;
    for (baton_group_t *g = engine->stepper.groups; g != NULL; g = g->next) {
        uint32_t us = BATON_SLEEP_FOREVER;
        if (!g->transport->arm(g->endpoint, how, &us)) {
            disarm(engine);
            return false;
        }
        engine->armed_us = us < engine->armed_us ? us : engine->armed_us;
    }
    return true;
}

/* True if the device's streams may hold nodes, or copies that a transport has
   put there. */
static bool uses_device(const baton_engine_t *engine)
{
    return engine->device != NULL &&
           (engine->stepper.offloads != NULL || engine->stepper.waited > 0);
}

/* Arms the device: its descriptor becomes readable when the work now in its
   streams is done. Work that was done before is not reported, so this steps
   once after arming. Returns false if that step did something. */
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

/* Takes the driver lock if it is free, and disarms the transports. */
static bool try_drive(baton_engine_t *engine)
{
    if (!progress_engine_lock(engine)) {
        return false;
    }
    disarm(engine);
    return true;
}

/* Returns the longest sleep that lets the watchdog look in time, even at an
   epoch that begins during the sleep. */
static uint32_t watch_us(const baton_engine_t *engine)
{
    uint64_t us = (uint64_t)engine->stepper.stall_ms * 1000 / 2 + 1;
    return us < BATON_SLEEP_FOREVER ? (uint32_t)us : BATON_SLEEP_FOREVER;
}

/* Returns how long a thread may sleep after arming. */
static uint32_t sleep_us(const baton_engine_t *engine)
{
    const baton__stepper_t *stepper = &engine->stepper;
    bool recovers = stepper->recovering > 0;
    bool awaits_peers = stepper->running + stepper->draining > 0 || recovers;
    uint32_t most = awaits_peers ? ASK_US : CHECK_US;
    if (!baton__engine_rechecks) {
        most = BATON_SLEEP_FOREVER;
    }
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
    /* CHECK_US, ASK_US and INSIST_US limit sleeps although the awaited messages
       wake the driver. The idle policy limits a sleep further only if something
       is awaited that can't wake the driver: then POLL_US, or a limit of a
       transport below ASK_US, is in force. */
    if (asks || engine->armed_us < ASK_US) {
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

/* Parked threads sleep on a futex, because signal handlers may have to wake
   them. */
static long futex(baton_engine_t *engine, int how, uint32_t value,
                  const struct timespec *until)
{
    return syscall(SYS_futex, &engine->calls, how | FUTEX_PRIVATE_FLAG, value,
                   until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void wake_followers(baton_engine_t *engine)
{
    /* Pairs with the increment in park(): either the parking thread sees what
       was published before this, or this load counts that thread. */
    if (atomic_load_explicit(&engine->followers, memory_order_seq_cst) > 0) {
        atomic_fetch_add_explicit(&engine->calls, 1, memory_order_seq_cst);
        (void)futex(engine, FUTEX_WAKE, INT_MAX, NULL);
    }
}

/* Lets one of the parked threads lead. */
static void end_reign(baton_engine_t *engine)
{
    atomic_fetch_add_explicit(&engine->reigns, 1, memory_order_seq_cst);
    wake_followers(engine);
}

/* Makes the descriptor of baton_engine_arm() readable, if it is armed. */
static void tell_event_loop(baton_engine_t *engine)
{
    /* Pairs with the store in baton_engine_arm(): either the program's tests
       after that store see what was published before this load, or this load
       sees the descriptor armed. */
    if (atomic_load_explicit(&engine->ended_armed, memory_order_seq_cst) &&
        atomic_exchange_explicit(&engine->ended_armed, false,
                                 memory_order_seq_cst)) {
        const uint64_t one = 1;
        (void)!write(engine->ended_fd, &one, sizeof one);
    }
}

/* Wakes parked threads, a sleeping leader and the program's event loop: their
   conditions may hold now. Called by any thread, and by signal handlers. */
static void wake_waiters(baton_engine_t *engine)
{
    wake_followers(engine);
    /* Pairs with the store in fall_asleep(). */
    if (atomic_load_explicit(&engine->asleep, memory_order_seq_cst)) {
        baton__event_loop_kick(engine->event_loop);
    }
    tell_event_loop(engine);
}

static void progress_engine_on_epoch_end(baton_schedule_t *schedule)
{
    wake_waiters(schedule->group->engine);
}

static void on_recovered(baton_group_t *group)
{
    wake_waiters(group->engine);
}

/* Makes one step, which computes and copies at most `bytes` bytes. If there is
   a progress thread, calls that may take long are left to it. Returns how many
   of the bytes the step has not used. Returns 0 if the caller should make no
   further step: the bytes are used up, a call was left to the progress thread,
   or nothing moved. */
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

/* Arms the transports, or sets the progress thread's timer, so that the driver
   can leave. Returns false if that is not enough, and the sleeping thread must
   be kicked after the lock is released. `soon` says that the caller will
   probably be back at once. */
static bool progress_engine_hand_over(baton_engine_t *engine, bool soon)
{
    const baton__stepper_t *stepper = &engine->stepper;
    uint64_t until_ns = 0;
    size_t bytes = START_BYTES;
    /* Sends notices now, so that no thread need wake for them. */
    if (baton__stepper_has_notices(stepper)) {
        (void)baton__notice_send(&engine->stepper, false);
    }
    for (int steps = 0;
         baton__step_is_due(stepper) || !progress_engine_arm(engine, false);
         steps++) {
        uint64_t now = baton__clock_ns();
        until_ns = steps == 0 ? now + LEAVE_NS : until_ns;
        if (steps == LEAVE_STEPS || now > until_ns || bytes == 0 ||
            is_copying(engine)) {
            return false;
        }
        bytes = step_leaving(engine, bytes);
    }
    /* No armed descriptor reports when notices, async nodes that are polled,
       recoveries or the device's work can be advanced. */
    if (baton__stepper_has_notices(stepper) || stepper->polled > 0 ||
        stepper->recovering > 0 || uses_device(engine)) {
        return false; /* the progress thread arms the device */
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

/* Releases the driver lock, and makes sure that another thread drives if there
   is something to do. `soon` says that the caller will probably be back at
   once. */
static void stop_driving(baton_engine_t *engine, bool soon)
{
    bool kick = false;
    for (int steps = 0;; steps++) {
        /* The progress thread, or the thread that leads (engine.h), may be
           asleep in the event loop. If so, that thread takes over the
           driving. */
        if (engine->threaded ||
            atomic_load_explicit(&engine->asleep, memory_order_relaxed)) {
            kick = !progress_engine_hand_over(engine, soon);
        } else {
            /* Notices are sent only to peers that had space: many may be due to
               a peer that takes none. */
            (void)baton__notice_send(&engine->stepper, false);
            baton__stepper_flush(&engine->stepper);
        }
        if (kick && soon && engine->threaded &&
            !atomic_load_explicit(&engine->asleep, memory_order_relaxed)) {
            baton__event_loop_set_timer(engine->event_loop, LEFT_US);
            kick = false;
        }
        if (kick && engine->stepper.awaited_bytes >= LONG_BYTES) {
            /* The progress thread may compute for long before it polls, so
               peers get their delayed wake-ups now. */
            baton__stepper_flush(&engine->stepper);
        }
        progress_engine_unlock(engine);
        /* After the last step another thread may have mailed a schedule, or
           have been woken, and failed to get the lock. The store in
           progress_engine_unlock and these loads pair with the push and the
           attempt to lock in progress_engine_start, and with the store to
           `woken` and the attempt to lock after a wake-up: one of the two
           threads sees the other's store. */
        if (!baton__step_has_mail(&engine->stepper) &&
            !atomic_load_explicit(&engine->woken, memory_order_seq_cst)) {
            break;
        }
        if (steps >= LEAVE_STEPS) {
            kick = true;
            break;
        }
        if (!try_drive(engine)) {
            /* The new driver finds the mail, so no thread need be woken. */
            kick = false;
            break;
        }
        (void)step_leaving(engine, START_BYTES);
    }
    if (kick) {
        baton__event_loop_kick(engine->event_loop);
    }
    if (!engine->threaded) {
        end_reign(engine); /* one of the parked threads drives now */
    }
}

/* Releases the driver lock for a thread that calls baton_engine_step again and
   again. Nothing is armed, so that no peer sends a wake-up and the progress
   thread goes on sleeping; the timer has it take over if the next call does not
   come in time. Returns false, and goes on holding the lock, if no epoch runs,
   a thread leads, the engine has no progress thread, or mail or a wake-up has
   come. */
static bool leave_polling(baton_engine_t *engine)
{
    assert(baton__stepper_driven_here(&engine->stepper));
    if (!engine->threaded || engine->stepper.running == 0 ||
        atomic_load_explicit(&engine->leading, memory_order_relaxed)) {
        return false;
    }
    baton__stepper_flush(&engine->stepper);
    baton__event_loop_set_timer(engine->event_loop, INSIST_US);
    progress_engine_unlock(engine);
    /* Mail and wake-ups are looked for after the unlock, as in
       stop_driving(). */
    return (!baton__step_has_mail(&engine->stepper) &&
            !atomic_load_explicit(&engine->woken, memory_order_seq_cst)) ||
           !try_drive(engine);
}

/* ---- an application thread waits --------------------------------------- */

typedef struct waiter {
    baton_engine_t *engine;
    const baton__wait_t *wait;
    /* The number of the last interrupt that does not end this wait. */
    uint64_t heeded;
    uint64_t deadline_ns; /* UINT64_MAX: there is no deadline */
    /* The schedule's progress_count when this wait for a long epoch last had to
       sleep. */
    uint64_t slept_at;
    baton_status_t turn_status; /* the status that the turn function returned */
} waiter_t;

/* True if the wait is over: its condition is true, its turn function has
   failed, or an interrupt ends it. */
static bool is_true(const waiter_t *waiter)
{
    return waiter->turn_status != BATON_OK ||
           waiter->wait->condition(waiter->wait->arg) ||
           baton__engine_interrupts(waiter->engine, waiter->heeded);
}

static void call_turn(waiter_t *waiter)
{
    const baton__wait_t *wait = waiter->wait;
    if (wait->turn != NULL && !is_true(waiter)) {
        waiter->turn_status = wait->turn(wait->turn_arg);
    }
}

/* Returns the time up to which the thread may sleep: `until_ns`, or sooner,
   because a thread with a turn function sleeps for TURN_NS at most. */
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

/* True if another thread wants the lock, which a driver that waits, or that
   polls with a timeout of 0, would otherwise take again and again. */
static bool is_wanted(const baton_engine_t *engine)
{
    return atomic_load_explicit(&engine->wanted, memory_order_relaxed) > 0;
}

/* Returns the bytes that the epoch awaits, if it is long; 0 if it is not, or if
   its schedule has made no progress since this wait last had to sleep. */
static uint64_t awaited_bytes(const waiter_t *waiter)
{
    const baton_schedule_t *schedule = waiter->wait->schedule;
    return schedule != NULL && schedule->plan.awaited_bytes >= LONG_BYTES &&
                   schedule->run.progress_count != waiter->slept_at
               ? schedule->plan.awaited_bytes
               : 0;
}

/* True if the progress that a step has made shortens this wait. In a wait for a
   long epoch only the progress of its own schedule counts: that of other
   schedules says nothing about its peers. */
static bool has_progressed(const waiter_t *waiter, uint64_t bytes,
                           uint64_t *progress)
{
    uint64_t before = *progress;
    *progress = bytes > 0 ? waiter->wait->schedule->run.progress_count : 0;
    return bytes == 0 || *progress != before;
}

/* True if the waiting thread leaves calls that may take long to the progress
   thread: it has a deadline, and there is such a thread. */
static bool leaves_calls(const waiter_t *waiter)
{
    return waiter->deadline_ns != UINT64_MAX && waiter->engine->threaded;
}

/* Steps until the wait is over, or until the thread should sleep or leave: the
   idle policy says so, the lock is wanted, the deadline has passed, or a long
   call was left. */
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

/* Arms the device and the transports, releases the driver lock, and sleeps at
   the descriptors. Returns true after the sleep, or if there was something
   to do once the lock was released. Returns false, and goes on holding the
   lock, if there is something to do before. */
static bool fall_asleep(const waiter_t *waiter)
{
    baton_engine_t *engine = waiter->engine;
    baton__watchdog_look(&engine->stepper);
    engine->stepper.leaves_calls = leaves_calls(waiter);
    bool armed = !baton__step_is_due(&engine->stepper) && arm_device(engine) &&
                 progress_engine_arm(engine, true);
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
    progress_engine_unlock(engine);
    baton__wakeup_t wakeup = BATON__WAKEUP_KICK;
    /* Mail and wake-ups are looked for after the unlock, as in stop_driving().
       A thread that does not drive may make the condition true, and looks at
       `asleep` after that. So the condition is checked once more, too. */
    if (!baton__step_has_mail(&engine->stepper) &&
        !atomic_load_explicit(&engine->woken, memory_order_seq_cst) &&
        !is_true(waiter)) {
        const uint64_t began_ns = baton__traced_begin();
        wakeup = baton__event_loop_sleep(engine->event_loop, us);
        baton__traced_sleep(began_ns);
    }
    atomic_store_explicit(&engine->asleep, false, memory_order_relaxed);
    if (wakeup != BATON__WAKEUP_TIMER) {
        atomic_store_explicit(&engine->woken, true, memory_order_seq_cst);
    }
    return true;
}

/* Blocks until the wait is over, until `until_ns`, or until the count of
   leaders that have gone differs from `reigns`. */
static void park(const waiter_t *waiter, uint64_t until_ns, uint32_t reigns)
{
    baton_engine_t *engine = waiter->engine;
    struct timespec until = {(time_t)(until_ns / 1000000000u),
                             (long)(until_ns % 1000000000u)};
    /* Pairs with the loads in wake_followers(). */
    atomic_fetch_add_explicit(&engine->followers, 1, memory_order_seq_cst);
    const uint64_t began_ns = baton__traced_begin();
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
    baton__traced_sleep(began_ns);
}

/* Tries for a while to get the driver lock from another thread, which may be
   polling, or in a long call. Returns true if this thread has got it. */
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

/* Lets kicks and descriptors wake the progress thread again, and another
   waiting thread lead. */
static void stop_leading(baton_engine_t *engine)
{
    assert(atomic_load_explicit(&engine->leading, memory_order_relaxed));
    if (engine->gate_closed) {
        engine->gate_closed = false;
        baton__event_loop_gate(engine->event_loop, true);
    }
    atomic_store_explicit(&engine->leading, false, memory_order_seq_cst);
}

/* Drives, and sleeps at the descriptors, until the wait is over, the deadline
   has passed, another thread keeps the lock, or a long call is left to the
   progress thread. */
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

/* Returns how many ms before its timeout a wait asks its peers what they wait
   for; 0: it does not ask. */
static int inquire_ms(const baton_schedule_t *schedule, int timeout_ms)
{
    if (schedule == NULL || timeout_ms < ASKS_MS) {
        return 0;
    }
    return timeout_ms < 2 * INQUIRE_MS ? timeout_ms / 2 : INQUIRE_MS;
}

static baton_status_t progress_engine_wait_until(baton_engine_t *engine,
                                                 const baton__wait_t *wait)
{
    baton_schedule_t *schedule = wait->schedule;
    int timeout_ms = wait->timeout_ms;
    waiter_t waiter = {.engine = engine,
                       .wait = wait,
                       .heeded = baton__engine_heeded(wait),
                       .deadline_ns = baton__deadline(timeout_ms),
                       .slept_at = UINT64_MAX};
    const uint64_t deadline_ns = waiter.deadline_ns;
    assert(!progress_engine_is_inside(engine));
    waiter.deadline_ns -= (uint64_t)inquire_ms(schedule, timeout_ms) * 1000000u;
    while (!is_true(&waiter)) {
        uint32_t reigns =
            atomic_load_explicit(&engine->reigns, memory_order_seq_cst);
        if (may_lead(engine)) {
            lead(&waiter);
            reigns++; /* lead() has counted this thread's own reign */
        }
        if (!is_true(&waiter)) {
            if (is_late(&waiter)) {
                if (waiter.deadline_ns == deadline_ns) {
                    return BATON_ERR_TIMEOUT;
                }
                waiter.deadline_ns = deadline_ns;
                if (take_over(&waiter)) {
                    baton__notice_inquire(baton__task_of(schedule));
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
    return waiter.turn_status == BATON_OK &&
                   baton__engine_interrupts(engine, waiter.heeded) &&
                   !wait->condition(wait->arg)
               ? baton__engine_heed(engine)
               : waiter.turn_status;
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
        "the wait was interrupted (baton_engine_interrupt); the operation goes "
        "on: wait again, or cancel it");
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

/* Releases the lock during a yield. Returns false if another thread has taken
   it. */
static bool yield_lock(baton_engine_t *engine)
{
    baton__stepper_flush(&engine->stepper);
    progress_engine_unlock(engine);
    (void)sched_yield();
    if (!progress_engine_lock(engine)) {
        return false;
    }
    baton__idle_yielded(&engine->idle);
    disarm(engine);
    return true;
}

/* Arms the device and the transports, sets the timer, and releases the driver
   lock. Returns true if the thread may sleep. Returns false, and goes on
   holding the lock, if there is something to do. */
static bool leave_to_sleep(baton_engine_t *engine, bool wanted)
{
    baton__watchdog_look(&engine->stepper);
    if (baton__step_is_due(&engine->stepper) || !arm_device(engine) ||
        !progress_engine_arm(engine, !wanted)) {
        return false;
    }
    baton__event_loop_set_timer(engine->event_loop, sleep_us(engine));
    progress_engine_unlock(engine);
    /* Mail and wake-ups are looked for after the unlock, as in
       stop_driving(). */
    if ((!baton__step_has_mail(&engine->stepper) &&
         !atomic_load_explicit(&engine->woken, memory_order_seq_cst)) ||
        !progress_engine_lock(engine)) {
        return true;
    }
    disarm(engine);
    return false;
}

/* Drives until the thread should sleep, or another thread has the lock. `woken`
   says that a message has woken the thread, so that more messages may come
   soon. */
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
            /* The thread does not poll if nothing but armed receives waits,
               because their messages wake it. */
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
    /* By default the kernel may end a sleep 50 us late; this call sets 1 us. */
    (void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    while (!atomic_load_explicit(&engine->stopping, memory_order_acquire)) {
        /* If another thread drives now, this store makes that thread look once
           more before it leaves: for the event that woke this thread, or for
           the work for which this thread's timer was set. */
        atomic_store_explicit(&engine->woken, true, memory_order_seq_cst);
        if (try_drive(engine)) {
            drive_in_thread(engine, wakeup == BATON__WAKEUP_MESSAGE);
        }
        const uint64_t began_ns = baton__traced_begin();
        wakeup = baton__event_loop_wait(engine->event_loop);
        baton__traced_sleep(began_ns);
        /* If a leader has fallen asleep meanwhile, this thread may have drained
           a kick that was meant for the leader. So the leader is kicked
           again. */
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

/* Returns how long the progress thread takes to wake up: the median of MEASURED
   times. */
static uint64_t measure_wake(baton_engine_t *engine)
{
    uint64_t took[MEASURED] = {0};
    atomic_store_explicit(&engine->asks_awake, true, memory_order_relaxed);
    for (int i = 0; i < MEASURED; i++) {
        /* Gives the thread time to go to sleep. */
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

static void progress_engine_enter(baton_engine_t *engine)
{
    if (progress_engine_is_inside(engine)) {
        engine->nested++;
        return;
    }
    atomic_fetch_add_explicit(&engine->wanted, 1, memory_order_seq_cst);
    while (!try_drive(engine)) {
        (void)sched_yield();
    }
    atomic_fetch_sub_explicit(&engine->wanted, 1, memory_order_seq_cst);
}

static void progress_engine_leave(baton_engine_t *engine)
{
    if (engine->nested > 0) {
        engine->nested--;
        return;
    }
    /* A caller that recovers or destroys the group will wait next. */
    stop_driving(engine, engine->stepper.recovering > 0);
}

/* True if a start that is not followed by a wait yields between its polls, so
   that other threads run. */
static bool yields_in(const baton_engine_t *engine,
                      const baton_schedule_t *schedule)
{
    return engine->idle.scarce && schedule->plan.awaited_bytes <= YIELD_BYTES &&
           schedule->group->transport->hosts <= 1;
}

/* Returns what to expect of a caller that will wait after a few microseconds of
   work. If all ranks are on one host, and each has a processor, the start polls
   until a short epoch has ended. Then the work does not delay the epoch, and no
   rank sends a wake-up, which takes longer than the epoch. With 4 us of work, 2
   ranks and 16 or 32 KiB, the epoch then took 4 to 7 us instead of 11 to 27 us.
   Elsewhere the start leaves the epoch to the wait. */
static baton__next_t expect_soon_wait(const baton_engine_t *engine,
                                      const baton_schedule_t *schedule)
{
    return !engine->idle.scarce && schedule->group->transport->hosts <= 1 &&
                   schedule->plan.awaited_bytes < LONG_BYTES
               ? BATON__NEXT_WORK
               : BATON__NEXT_WAIT;
}

/* Called when nothing moves: yields, and returns how long that took in ns, plus
   1. Returns 0, without yielding, if a wait would sleep instead, no message is
   awaited, or the lock is wanted. */
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

/* Polls after a start. If a wait probably follows, the start polls for the same
   messages as that wait, so that this thread need not arm in between and cause
   peers to wake it. Otherwise the start polls for as long as a thread takes to
   wake up: ranks that start together then send no wake-ups, and end a short
   epoch sooner than if they woke each other's threads. A start leaves a long
   epoch to the progress thread as soon as there is something to compute or
   copy. After polls that found nothing, starts poll only in every 2^n-th epoch,
   where n is task->vain. All ranks skip the same epochs, so that their polls
   coincide.

   If ranks of one host share processors, a start yields between polls, since
   the other ranks need processors for their starts. If threads woke each other
   one after another, the epoch would take far longer. On 2 processors an epoch
   of 8 bytes that no thread waited for took 55 us with 4 ranks and 120 us with
   8; one thread that wakes 3 or 7 others takes 35 or 95 us. With yields such an
   epoch took 10 us with 4 ranks and 25 us with 8. But a caller that will wait,
   after it has slept or computed, is better served by a start that returns at
   once: beside a sleep of 100 us, 16 KiB on 8 ranks took 50 us with yields and
   15 without. A yield beside a thread that computes takes a time slice, and
   wake-ups are quicker. So after a slow yield few starts poll for a while. */
static void poll_soon(baton_engine_t *engine, baton_schedule_t *schedule,
                      baton__next_t next)
{
    baton__task_t *task = baton__task_of(schedule);
    const bool waits_soon = next == BATON__NEXT_WAIT;
    const bool yields = yields_in(engine, schedule);
    const baton__stepper_t *stepper = &engine->stepper;
    const uint64_t wake_ns = engine->idle.wake_ns;
    const bool is_long = schedule->plan.awaited_bytes >= LONG_BYTES;
    const uint64_t skips = (UINT64_C(1) << task->vain) - 1;
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
    const uint64_t epoch = schedule->run.epoch;
    const uint64_t began_ns = waits_soon ? 0 : baton__clock_ns();
    uint64_t progress = schedule->run.progress_count;
    uint64_t until_ns = began_ns + wake_ns;
    uint32_t polls = 0;
    /* True if there is work that this start leaves to the progress thread. */
    bool left = is_long && is_copying(engine);
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
            until_ns += took_ns > BATON__ALONE_NS ? took_ns : 0;
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
        task->vain = MOST_VAIN;
    } else if (stepper->running == 0 || schedule->run.epoch != epoch ||
               (is_long && left)) {
        task->vain -= yields ? task->vain > 0 : task->vain;
    } else if (!waits_soon && task->vain < MOST_VAIN) {
        task->vain++;
    }
}

/* Steps, if this thread gets the lock; else mails the schedule to the thread
   that drives. If a call node starts the schedule, the thread that drives is
   this one. */
static bool progress_engine_start(baton_schedule_t *schedule,
                                  baton__next_t next)
{
    baton_engine_t *engine = schedule->group->engine;
    bool yields = false;
    begin_to_heed();
    bool drives = try_drive(engine);
    if (!drives) {
        baton__step_mail(schedule);
        /* The driver may have left before the schedule was mailed. */
        drives = try_drive(engine);
    }
    if (drives) {
        engine->stepper.leaves_calls = engine->threaded;
        baton__step_start(schedule, START_NODES, START_BYTES);
        engine->stepper.leaves_calls = false;
        next = next == BATON__NEXT_WAIT_SOON
                   ? expect_soon_wait(engine, schedule)
                   : next;
        poll_soon(engine, schedule, next);
        yields = yields_in(engine, schedule);
        stop_driving(engine, next == BATON__NEXT_WAIT);
    }
    return yields;
}

static baton_status_t progress_engine_test(baton_engine_t *engine)
{
    if (!progress_engine_is_inside(engine) && try_drive(engine)) {
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

const baton__driver_t baton__real_driver = {.task_bytes = sizeof(baton__task_t),
                                            .is_inside =
                                                progress_engine_is_inside,
                                            .enter = progress_engine_enter,
                                            .try_enter = try_drive,
                                            .leave = progress_engine_leave,
                                            .start = progress_engine_start,
                                            .test = progress_engine_test,
                                            .wait = progress_engine_wait_until};

bool baton_engine_step(baton_engine_t *engine)
{
    if (!baton__is_given(engine, true, __func__, "engine") ||
        !baton__process_is_own(__func__) || progress_engine_is_inside(engine) ||
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
               : baton_error_set(
                     status,
                     "%s: the condition has not become true within %d ms",
                     __func__, timeout_ms);
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
    atomic_store_explicit(&engine->ended_armed, true, memory_order_seq_cst);
    *fd_out = engine->ended_fd;
    return BATON_OK;
}

/* ---- opening and closing ----------------------------------------------- */

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
    static const baton__hooks_t hooks = {
        .on_epoch_end = progress_engine_on_epoch_end,
        .on_recovered = on_recovered,
        .clock_ns = baton__clock_ns,
        .is_driven = progress_engine_is_driven};
    stepper->hooks = &hooks;
    stepper->slice_bytes = BATON__SLICE_BYTES;
}

/* Reads all settings of an engine: its options, and the variables, of which
   some are defaults of options. */
static baton_status_t read_settings(baton_engine_t *engine,
                                    const baton_engine_options_t *options,
                                    const char **placement_out)
{
    static const baton_engine_options_t defaults = BATON_ENGINE_OPTIONS;
    baton_engine_options_t of;
    baton_status_t status = baton__options_read(
        &of, sizeof of, options != NULL ? options : &defaults, "engine options",
        "BATON_ENGINE_OPTIONS");
    status = status == BATON_OK ? baton__config_check() : status;
    if (status != BATON_OK) {
        return status;
    }
    if (of.progress == BATON_PROGRESS_DEFAULT) {
        of.progress = baton__config_number(BATON__CONFIG_PROGRESS) == 0
                          ? BATON_PROGRESS_THREAD
                          : BATON_PROGRESS_MANUAL;
    }
    engine->threaded = of.progress == BATON_PROGRESS_THREAD;
    *placement_out = of.placement != NULL
                         ? of.placement
                         : baton__config_text(BATON__CONFIG_PLACEMENT);
    engine->stepper.stall_ms =
        of.stall_ms != 0
            ? of.stall_ms
            : (uint32_t)baton__config_number(BATON__CONFIG_STALL_MS);
    baton__idle_init(&engine->idle,
                     has_one_processor()
                         ? 0
                         : (uint32_t)baton__config_number(BATON__CONFIG_SPIN),
                     (uint64_t)baton__config_number(BATON__CONFIG_YIELD_US) *
                         1000);
    if (engine->threaded || of.progress == BATON_PROGRESS_MANUAL) {
        return BATON_OK;
    }
    return baton__error(BATON_ERR_INVALID,
                        "engine options: progress is %d, must be "
                        "BATON_PROGRESS_THREAD or another of engine.h",
                        (int)of.progress);
}

baton_status_t baton__engine_open(const baton_engine_options_t *options,
                                  const baton__verification_t *verification,
                                  baton_engine_t **out)
{
    if (!baton__is_given(out, true, "baton_engine_open", "out") ||
        !baton__process_is_own("baton_engine_open")) {
        return baton__error_status();
    }
    baton_engine_t *engine = baton__alloc(1, sizeof *engine);
    if (engine == NULL) {
        return baton__error(BATON_ERR_NO_MEMORY, "no memory for an engine");
    }
    engine->driver = &baton__real_driver;
    engine->verification = verification;
    init_stepper(&engine->stepper);
    const char *placement;
    baton_status_t status = read_settings(engine, options, &placement);
    if (status == BATON_OK) {
        status = baton__event_loop_open(&engine->event_loop);
    }
    if (status == BATON_OK && engine->threaded) {
        status = start_thread(engine, placement);
        if (status == BATON_OK) {
            uint64_t wake_ns = measure_wake(engine);
            progress_engine_enter(engine);
            baton__idle_measured(&engine->idle, wake_ns);
            progress_engine_leave(engine);
        }
    }
    if (status != BATON_OK) {
        dispose(engine);
        return status;
    }
    baton__process_count(1);
    baton__trace_begin_if_asked();
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
    if (!baton__is_given(engine, true, __func__, "engine")) {
        return BATON_PROGRESS_DEFAULT;
    }
    return engine->threaded ? BATON_PROGRESS_THREAD : BATON_PROGRESS_MANUAL;
}
