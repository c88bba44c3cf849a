/* The application of a participant; cluster.h has its states. */
#include "fuzz/participant.h"

/* Whether a call succeeded. If not, the application ends in the phase that the
   error explains, or the run fails. */
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

/* ---- applications ----------------------------------------------------- */

/* Time until the next action, which is not after the end of transient faults.
 */
static double sample_pause_us(fuzz_participant_t *participant)
{
    const fuzz_cluster_t *cluster = participant->task->cluster;
    double left = cluster->heal_us - baton_sim_now_us(cluster->sim);
    double pause = cluster->plan.pause_us;
    if (cluster->healed || left <= 0 || fuzz_once_in(&participant->random, 3)) {
        return 0;
    }
    if (fuzz_in_force(participant, FUZZ_TRANSIENT_ABSENT) &&
        fuzz_once_in(&participant->random, 8)) {
        return left;
    }
    if (fuzz_in_force(participant, FUZZ_TRANSIENT_LATE) &&
        fuzz_once_in(&participant->random, 4)) {
        pause *= 8;
    }
    pause = fuzz_real(&participant->random, pause);
    return pause < left ? pause : left;
}

static uint32_t sample_todo(fuzz_participant_t *participant)
{
    if (fuzz_in_force(participant, FUZZ_TRANSIENT_EMPTY) &&
        fuzz_once_in(&participant->random, 4)) {
        return 0;
    }
    if (fuzz_in_force(participant, FUZZ_TRANSIENT_AGAIN) &&
        fuzz_once_in(&participant->random, 2)) {
        return 2 + (uint32_t)fuzz_below(&participant->random, 2);
    }
    return 1;
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
    participant->todo = sample_todo(participant);
    act_after(participant, sample_pause_us(participant));
}

/* Returns true when the step has started. */
static bool try_start(fuzz_participant_t *participant)
{
    if (participant->task->rules->prepare(participant)) {
        act_after(participant, sample_pause_us(participant));
        return false;
    }
    /* Set before the call, since nodes may run before start returns. */
    participant->step++;
    participant->polls = 0;
    participant->phase = FUZZ_WAITS;
    return went_well(participant, "start",
                     participant->task->rules->start(participant));
}

static void end_step(fuzz_participant_t *participant)
{
    fuzz_cluster_t *cluster = participant->task->cluster;
    participant->waited++;
    if (!went_well(participant, "wait",
                   participant->task->rules->finish(participant))) {
        return;
    }
    fuzz_note_real(cluster, baton_sim_now_us(cluster->sim));
    if (participant->step == participant->task->plan->steps) {
        participant->phase = FUZZ_DONE;
    } else if (!cluster->alone) {
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
    if (!went_well(participant, "test",
                   participant->task->rules->test(participant, &done))) {
        return;
    }
    if (done) {
        end_step(participant);
    } else if (participant->polls < FUZZ_MAX_POLLS) {
        act_after(participant, fuzz_poll_delay_us(participant->polls));
        participant->polls++;
    }
}
