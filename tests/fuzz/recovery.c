/* Injected failures and recoveries; see recovery.h. */
#include "fuzz/recovery.h"
#include "fuzz/participant.h"

#include <inttypes.h>

static int ranks_of(const fuzz_cluster_t *cluster)
{
    return cluster->plan.model.ranks;
}

static void at(fuzz_cluster_t *cluster, double us, baton_sim_fn fn, void *arg)
{
    baton_status_t status = baton_sim_at(
        cluster->sim, baton_sim_now_us(cluster->sim) + us, fn, arg);
    if (status != BATON_OK) {
        fuzz_fail(&cluster->tasks[0].participants[0], "baton_sim_at: %s",
                  baton_error_message());
    }
}

/* ---- recoveries ------------------------------------------------------- */

/* The last epoch that the rank has completed. A local schedule counts failed
   epochs, too, but its last one must not be a failed one. */
static uint64_t completed(const fuzz_participant_t *participant)
{
    const baton_schedule_t *schedule = participant->schedule;
    uint64_t epoch = baton_schedule_epoch(schedule);
    baton_failure_t failure;
    bool failed = participant->task->plan->kind == FUZZ_LOCAL &&
                  baton_schedule_failure(schedule, &failure) == BATON_OK &&
                  failure.epoch == epoch;
    return failed ? epoch - 1 : epoch;
}

/* After a rank has called recover, nothing of this incarnation may run
   there. */
static void leave_incarnation(fuzz_rank_state_t *rank_state)
{
    fuzz_cluster_t *cluster = rank_state->cluster;
    for (int i = 0; i < cluster->plan.task_count; i++) {
        fuzz_task_t *task = &cluster->tasks[i];
        fuzz_participant_t *participant = &task->participants[rank_state->rank];
        task->retired[rank_state->incarnation][rank_state->rank] =
            completed(participant);
        participant->phase = FUZZ_RECOVERS;
        participant->step = 0;
        participant->waited = 0;
    }
    rank_state->incarnation++;
    rank_state->recovers = true;
    rank_state->polls = 0;
}

static void enter_incarnation(fuzz_rank_state_t *rank_state)
{
    fuzz_cluster_t *cluster = rank_state->cluster;
    rank_state->recovers = false;
    for (int i = 0; i < cluster->plan.task_count; i++) {
        fuzz_participant_t *participant =
            &cluster->tasks[i].participants[rank_state->rank];
        /* Fails if another rank has not left the last incarnation. */
        (void)fuzz_last_epoch(participant, rank_state->incarnation - 1);
        fuzz_participant_recovered(participant);
        fuzz_participant_begin(participant);
    }
    cluster->recovered[rank_state->incarnation - 1]++;
    if (cluster->recovered[rank_state->incarnation - 1] ==
        (uint32_t)ranks_of(cluster)) {
        baton_status_t status = fuzz_schedule_injection(cluster);
        if (status != BATON_OK) {
            fuzz_fail(&cluster->tasks[0].participants[0], "baton_sim_at: %s",
                      baton_error_message());
        }
    }
}

static void recover(void *arg)
{
    fuzz_rank_state_t *rank_state = arg;
    fuzz_cluster_t *cluster = rank_state->cluster;
    if (fuzz_failed(cluster)) {
        return;
    }
    bool first = !rank_state->recovers;
    cluster->called[rank_state->incarnation] += first;
    baton_status_t status =
        baton_group_recover(baton_sim_group(cluster->sim, rank_state->rank), 0);
    if (first) {
        leave_incarnation(rank_state);
    }
    if (status == BATON_OK) {
        enter_incarnation(rank_state);
    } else if (status == BATON_ERR_TIMEOUT &&
               rank_state->polls < FUZZ_MAX_POLLS) {
        at(cluster, fuzz_poll_delay_us(rank_state->polls), recover, rank_state);
        rank_state->polls++;
    } else {
        fuzz_fail(&cluster->tasks[0].participants[rank_state->rank],
                  "recovery: %s: %s", baton_status_name(status),
                  baton_error_message());
    }
}

static void recover_all(fuzz_cluster_t *cluster)
{
    for (int rank = 0; rank < ranks_of(cluster); rank++) {
        at(cluster,
           support_random_real(&cluster->fault_random,
                               4 * cluster->plan.pause_us),
           recover, &cluster->rank_states[rank]);
    }
}

/* ---- injected failures ------------------------------------------------ */

static bool all_committed(const fuzz_cluster_t *cluster)
{
    for (int i = 0; i < cluster->plan.task_count; i++) {
        for (int rank = 0; rank < ranks_of(cluster); rank++) {
            if (cluster->tasks[i].participants[rank].phase == FUZZ_ABSENT) {
                return false;
            }
        }
    }
    return true;
}

/* No failure is injected into a local task, but all ranks recover
   nevertheless. */
static void choose(fuzz_cluster_t *cluster, fuzz_injection_t *injection)
{
    injection->planned = true;
    injection->task = (int)support_random_below(
        &cluster->fault_random, (uint64_t)cluster->plan.task_count);
    injection->rank = (int)support_random_below(&cluster->fault_random,
                                                (uint64_t)ranks_of(cluster));
    fuzz_task_t *task = &cluster->tasks[injection->task];
    fuzz_participant_t *participant = &task->participants[injection->rank];
    bool local = task->plan->kind == FUZZ_LOCAL;
    injection->cancels = local || support_once_in(&cluster->fault_random, 2);
    if (local || !injection->cancels) {
        return;
    }
    baton_status_t status = baton_schedule_cancel(participant->schedule);
    injection->happened = status == BATON_OK;
    injection->epoch = participant->step;
    if (status != BATON_OK && status != BATON_ERR_STATE) {
        fuzz_fail(participant, "cancel: %s", baton_error_message());
    }
}

static void injection(void *arg)
{
    fuzz_cluster_t *cluster = arg;
    if (fuzz_failed(cluster)) {
        return;
    }
    if (!all_committed(cluster)) {
        at(cluster, 1 + cluster->plan.commit_us / 4, injection, cluster);
        return;
    }
    choose(cluster, &cluster->injections[cluster->rank_states[0].incarnation]);
    if (cluster->plan.at_once) {
        recover_all(cluster);
    }
}

baton_status_t fuzz_schedule_injection(fuzz_cluster_t *cluster)
{
    return cluster->rank_states[0].incarnation < cluster->plan.injections
               ? baton_sim_at(cluster->sim,
                              baton_sim_now_us(cluster->sim) +
                                  cluster->plan.injection_us,
                              injection, cluster)
               : BATON_OK;
}

bool fuzz_wants_recovery(const fuzz_cluster_t *cluster)
{
    uint32_t incarnation = cluster->rank_states[0].incarnation;
    return !fuzz_failed(cluster) && !cluster->plan.at_once &&
           incarnation < cluster->plan.injections &&
           cluster->injections[incarnation].planned;
}

/* ---- when idle -------------------------------------------------------- */

/* Returns whether the participant's schedule has failed, and checks the
   failure. */
static bool has_failed(fuzz_participant_t *participant,
                       const fuzz_injection_t *injection)
{
    baton_failure_t failure;
    if (baton_schedule_failure(participant->schedule, &failure) != BATON_OK) {
        return false;
    }
    if (failure.status != fuzz_injected_status(injection) ||
        failure.rank != injection->rank || failure.epoch != injection->epoch) {
        fuzz_fail(participant,
                  "failure: %s of rank %d in epoch %" PRIu64
                  ", was of rank %d in epoch %" PRIu64 ": %s",
                  baton_status_name(failure.status), failure.rank,
                  failure.epoch, injection->rank, injection->epoch,
                  failure.message);
    }
    return true;
}

/* Checks that the task with the injected failure has failed on all ranks or, if
   the cancel came too late, on none, and that all other tasks are done. */
static void check_task(fuzz_task_t *task, const fuzz_injection_t *injection)
{
    bool injections = injection->happened && injection->task == task->index;
    int failed = 0;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        fuzz_participant_t *participant = &task->participants[rank];
        if (injections && has_failed(participant, injection)) {
            failed++;
        } else if (participant->phase != FUZZ_DONE) {
            fuzz_fail(participant,
                      "liveness: it has not failed, and never ends");
        }
    }
    bool none = failed == 0 && injection->cancels;
    if (injections && failed != fuzz_ranks(task) && !none) {
        fuzz_fail(&task->participants[injection->rank],
                  "failure: %d ranks of %d have failed", failed,
                  fuzz_ranks(task));
    }
}

void fuzz_recover_when_idle(fuzz_cluster_t *cluster)
{
    const fuzz_injection_t *injection =
        &cluster->injections[cluster->rank_states[0].incarnation];
    for (int i = 0; i < cluster->plan.task_count; i++) {
        check_task(&cluster->tasks[i], injection);
    }
    if (!fuzz_failed(cluster)) {
        recover_all(cluster);
    }
}
