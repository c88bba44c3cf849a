/* Participants; cluster.h has the states of their applications. */
#include "fuzz/participant.h"

#include <inttypes.h>

/* Returns whether a call succeeded. If not, either the application ends, in the
   phase that fits the error, or the run fails. */
static bool went_well(fuzz_participant_t *participant, const char *call,
                      baton_status_t status)
{
    fuzz_cluster_t *cluster = participant->task->cluster;
    if (status == BATON_OK) {
        return !fuzz_failed(cluster);
    }
    fuzz_note(cluster, (uint64_t)(uint32_t)status);
    if (fuzz_is_consequence(participant, status)) {
        participant->phase = FUZZ_OUT;
    } else if (fuzz_is_injected(participant, status)) {
        participant->phase = FUZZ_FAILED;
    } else {
        fuzz_fail(participant, "%s: %s: %s", call, baton_status_name(status),
                  baton_error_message());
    }
    return false;
}

/* ---- schedules -------------------------------------------------------- */

static baton_status_t fail_if_injected(void *arg, baton_call_t *call)
{
    return fuzz_injection_due(arg, baton_call_epoch(call))
               ? FUZZ_INJECTED_STATUS
               : BATON_OK;
}

/* A schedule with an on_recover function stays failed until it is recovered. A
   local schedule goes on, so it has none. */
static bool watches(const fuzz_task_t *task)
{
    return (task->plan->watches && task->plan->kind != FUZZ_LOCAL) ||
           task->rules->on_recover != NULL;
}

static bool on_recover(void *arg, uint64_t epoch)
{
    fuzz_participant_t *participant = arg;
    /* The rank has called recover, so it is in its next incarnation already. */
    uint64_t last =
        fuzz_last_epoch(participant, fuzz_incarnation(participant) - 1);
    participant->recoveries++;
    if (epoch != last ||
        participant->recoveries != fuzz_incarnation(participant)) {
        fuzz_fail(participant,
                  "recovery: %" PRIu32 " was called with epoch %" PRIu64
                  ", the last one was %" PRIu64,
                  participant->recoveries, epoch, last);
    }
    if (participant->task->rules->on_recover != NULL) {
        participant->task->rules->on_recover(participant);
    }
    return true;
}

/* If schedules are not introduced, all ranks create them in one order, and the
   number of the attempt distinguishes those of one name. */
baton_status_t fuzz_participant_commit(fuzz_participant_t *participant)
{
    const fuzz_task_t *task = participant->task;
    const fuzz_plan_t *plan = &task->cluster->plan;
    char name[32];
    (void)snprintf(name, sizeof name, "%s %d", fuzz_kind_name(task->plan->kind),
                   plan->model.introductions ? task->index : 0);
    baton_status_t status = baton_schedule_create(
        baton_sim_group(task->cluster->sim, participant->rank), name,
        &participant->schedule);
    if (status != BATON_OK) {
        return status;
    }
    task->rules->build(participant);
    if (plan->injections > 0) {
        (void)baton_add_call(participant->schedule, fail_if_injected,
                             participant);
    }
    if (watches(task)) {
        baton_schedule_on_recover(participant->schedule, on_recover,
                                  participant);
    }
    return baton_schedule_commit(participant->schedule);
}

/* ---- applications ----------------------------------------------------- */

/* Returns the time until the next action. The action is not after the end of
   the transient faults. */
static double sample_pause_us(fuzz_participant_t *participant)
{
    const fuzz_cluster_t *cluster = participant->task->cluster;
    double left = cluster->heal_us - baton_sim_now_us(cluster->sim);
    double pause = cluster->plan.pause_us;
    if (cluster->healed || left <= 0 ||
        support_once_in(&participant->random, 3)) {
        return 0;
    }
    if (fuzz_in_force(participant, FUZZ_TRANSIENT_ABSENT) &&
        support_once_in(&participant->random, 8)) {
        return left;
    }
    if (fuzz_in_force(participant, FUZZ_TRANSIENT_LATE) &&
        support_once_in(&participant->random, 4)) {
        pause *= 8;
    }
    pause = support_random_real(&participant->random, pause);
    return pause < left ? pause : left;
}

static void act(void *arg);

static void act_after(fuzz_participant_t *participant, double us)
{
    fuzz_cluster_t *cluster = participant->task->cluster;
    fuzz_action_t *action =
        &participant->actions[fuzz_incarnation(participant)];
    *action = (fuzz_action_t){participant, fuzz_incarnation(participant)};
    baton_status_t status = baton_sim_at(
        cluster->sim, baton_sim_now_us(cluster->sim) + us, act, action);
    if (status != BATON_OK) {
        fuzz_fail(participant, "baton_sim_at: %s", baton_error_message());
    }
}

void fuzz_participant_begin(fuzz_participant_t *participant)
{
    participant->phase = FUZZ_PREPARES;
    act_after(participant, sample_pause_us(participant));
}

/* Returns whether the step may be cancelled: a cancel makes peers fail unless
   the schedule has no messages. */
static bool cancels(fuzz_participant_t *participant)
{
    return participant->task->plan->kind == FUZZ_LOCAL &&
           !participant->cancelled &&
           fuzz_in_force(participant, FUZZ_TRANSIENT_CANCEL) &&
           support_once_in(&participant->random, 4);
}

static bool was_cancelled(const fuzz_participant_t *participant,
                          baton_status_t status)
{
    return status == BATON_ERR_CANCELLED && participant->cancelled;
}

static baton_status_t test(fuzz_participant_t *participant, bool *done_out)
{
    if (cancels(participant)) {
        /* The step may have ended by now. */
        participant->cancelled =
            baton_schedule_cancel(participant->schedule) == BATON_OK;
    }
    baton_status_t status =
        baton_schedule_test(participant->schedule, done_out);
    if ((status != BATON_OK || *done_out) && participant->open > 0) {
        fuzz_fail(participant,
                  "safety: the epoch has ended, an async node has not");
    }
    *done_out |= was_cancelled(participant, status);
    return was_cancelled(participant, status) ? BATON_OK : status;
}

/* Returns true when the step has started. */
static bool try_start(fuzz_participant_t *participant)
{
    if (participant->task->rules->fill != NULL) {
        participant->task->rules->fill(participant);
    }
    participant->cancelled = false;
    /* Set before the call, since nodes may run before start returns. */
    participant->step++;
    participant->polls = 0;
    participant->phase = FUZZ_WAITS;
    return went_well(participant, "start",
                     baton_schedule_start(participant->schedule));
}

static void end_step(fuzz_participant_t *participant)
{
    fuzz_cluster_t *cluster = participant->task->cluster;
    participant->waited++;
    baton_status_t status = baton_schedule_wait(participant->schedule, -1);
    if (!was_cancelled(participant, status)) {
        if (!went_well(participant, "wait", status)) {
            return;
        }
        participant->task->rules->check(participant);
    }
    fuzz_note_real(cluster, baton_sim_now_us(cluster->sim));
    if (participant->step == participant->task->plan->steps) {
        participant->phase = FUZZ_DONE;
    } else {
        fuzz_participant_begin(participant);
    }
}

static void act(void *arg)
{
    const fuzz_action_t *action = arg;
    fuzz_participant_t *participant = action->participant;
    if (fuzz_failed(participant->task->cluster) || fuzz_is_dead(participant) ||
        action->incarnation != fuzz_incarnation(participant)) {
        return;
    }
    if (participant->phase == FUZZ_PREPARES && !try_start(participant)) {
        return;
    }
    bool done = false;
    if (!went_well(participant, "test", test(participant, &done))) {
        return;
    }
    if (done) {
        end_step(participant);
    } else if (participant->polls < FUZZ_MAX_POLLS) {
        act_after(participant, fuzz_poll_delay_us(participant->polls));
        participant->polls++;
    }
}

/* ---- checks ----------------------------------------------------------- */

void fuzz_participant_recovered(fuzz_participant_t *participant)
{
    participant->cancelled = false;
    if (participant->open > 0) {
        fuzz_fail(participant, "recovery: an async node has not completed");
    }
    if (watches(participant->task) &&
        participant->recoveries != fuzz_incarnation(participant)) {
        fuzz_fail(participant, "recovery: on_recover was not called");
    }
}

void fuzz_participant_audit(fuzz_participant_t *participant)
{
    uint64_t epochs = baton_schedule_epoch(participant->schedule);
    if (epochs != participant->task->plan->steps) {
        fuzz_fail(participant, "liveness: %" PRIu64 " epochs have run", epochs);
    }
}
