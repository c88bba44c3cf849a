/* Runs a cluster: creates it, runs it with faults, ends the faults, checks the
   results, and destroys it. */
#include "fuzz/participant.h"
#include "fuzz/recovery.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_name[] = "baton-fuzz";
const char fuzz_doc[] =
    "Samples a cluster and its faults from each seed, and runs it in virtual "
    "time. Checks that every collective keeps its promises, and that every "
    "epoch ends after the faults have ended. Stops at the first failure."
    "\vThe same seed gives the same run. A failure is printed with the command "
    "that repeats it. BATON_SEED=N runs that seed alone.";

enum {
    STREAM_TRANSIENTS = 4,
    STREAM_PARTICIPANTS = 16,
    CHANGES = 4,    /* number of times at which transient faults change */
    TIMEOUT_MS = 50 /* the timeout of a wait, in virtual time */
};

static void trace(void *arg, const baton_sim_event_t *event)
{
    fuzz_cluster_t *cluster = arg;
    fuzz_note(cluster, (uint64_t)event->what << 32 | (uint32_t)event->rank);
    fuzz_note(cluster, (uint64_t)event->node << 32 | (uint32_t)event->peer);
    fuzz_note(cluster, event->bytes);
    fuzz_note(cluster, event->epoch);
    fuzz_note_real(cluster, event->begin_us);
    fuzz_note_real(cluster, event->end_us);
}

static void fail(fuzz_cluster_t *cluster, const char *doing,
                 baton_status_t status)
{
    if (!fuzz_failed(cluster)) {
        (void)snprintf(cluster->failure, sizeof cluster->failure, "%s: %s: %s",
                       doing, baton_status_name(status), baton_error_message());
    }
}

static void allowed(fuzz_cluster_t *cluster, baton_status_t status)
{
    if (status != BATON_OK) {
        fail(cluster, "a fault was refused", status);
    }
}

/* ---- faults ----------------------------------------------------------- */

static void change_transients(void *arg)
{
    fuzz_cluster_t *cluster = arg;
    const fuzz_plan_t *plan = &cluster->plan;
    if (cluster->healed) {
        return;
    }
    if (fuzz_has(plan, FUZZ_TRANSIENT_LAG)) {
        allowed(cluster, baton_sim_set_lag(cluster->sim,
                                           fuzz_plan_lag(&cluster->fault_random,
                                                         plan->pause_us)));
    }
    if (fuzz_has(plan, FUZZ_TRANSIENT_SLOW)) {
        uint64_t rank = support_random_below(&cluster->fault_random,
                                             (uint64_t)plan->model.ranks);
        allowed(cluster,
                baton_sim_set_speed(
                    cluster->sim, (int)rank,
                    0.01 + support_random_real(&cluster->fault_random, 1)));
    }
}

static void inject_permanent(void *arg)
{
    fuzz_cluster_t *cluster = arg;
    const fuzz_plan_t *plan = &cluster->plan;
    cluster->broken = true;
    if (plan->permanent == FUZZ_PERMANENT_KILL) {
        allowed(cluster, baton_sim_kill(cluster->sim, plan->victim));
    } else {
        allowed(cluster, baton_sim_fail_send(cluster->sim, plan->victim,
                                             plan->failing_send));
    }
}

static void heal(fuzz_cluster_t *cluster)
{
    cluster->healed = true;
    allowed(cluster,
            baton_sim_set_lag(cluster->sim, (baton_distribution_t){0}));
    for (int rank = 0; rank < cluster->plan.model.ranks; rank++) {
        allowed(cluster, baton_sim_set_speed(cluster->sim, rank, 1));
    }
}

/* Schedules all faults of the plan, from now on. */
static baton_status_t schedule_faults(fuzz_cluster_t *cluster)
{
    const fuzz_plan_t *plan = &cluster->plan;
    double now = baton_sim_now_us(cluster->sim);
    baton_status_t status = BATON_OK;
    cluster->heal_us = now + plan->heal_us;
    for (int i = 0; i < CHANGES && status == BATON_OK; i++) {
        status = baton_sim_at(cluster->sim, now + i * plan->heal_us / CHANGES,
                              change_transients, cluster);
    }
    if (status == BATON_OK && plan->permanent != FUZZ_PERMANENT_NONE) {
        status = baton_sim_at(cluster->sim, now + plan->permanent_us,
                              inject_permanent, cluster);
    }
    return status == BATON_OK ? fuzz_schedule_injection(cluster) : status;
}

/* ---- running ---------------------------------------------------------- */

static void for_each(fuzz_cluster_t *cluster,
                     void (*fn)(fuzz_participant_t *participant))
{
    for (int i = 0; i < cluster->plan.task_count; i++) {
        for (int rank = 0; rank < cluster->plan.model.ranks; rank++) {
            fn(&cluster->tasks[i].participants[rank]);
        }
    }
}

static void begin_committed(fuzz_participant_t *participant)
{
    if (participant->phase != FUZZ_ABSENT) {
        fuzz_participant_begin(participant);
    }
}

/* Returns whether all participants have done all their steps. */
static bool all_done(fuzz_cluster_t *cluster, fuzz_participant_t **who_not)
{
    for (int i = 0; i < cluster->plan.task_count; i++) {
        for (int rank = 0; rank < cluster->plan.model.ranks; rank++) {
            *who_not = &cluster->tasks[i].participants[rank];
            if ((*who_not)->phase != FUZZ_DONE) {
                return false;
            }
        }
    }
    return true;
}

static void check_healed(fuzz_cluster_t *cluster, baton_status_t status)
{
    fuzz_participant_t *participant;
    if (status != BATON_OK) {
        fail(cluster, "liveness: after all faults have ended", status);
    } else if (!all_done(cluster, &participant)) {
        fuzz_fail(participant, "liveness: it never ends");
    }
}

/* A participant that still waits gets an error, in bounded time. A dead rank's
   epoch may have ended before the rank died; then any status will do. */
static void check_waiter(fuzz_participant_t *participant)
{
    if (participant->phase != FUZZ_WAITS) {
        return;
    }
    fuzz_cluster_t *cluster = participant->task->cluster;
    int timeout_ms = support_once_in(&participant->random, 2) ? -1 : TIMEOUT_MS;
    baton_status_t status =
        baton_schedule_wait(participant->schedule, timeout_ms);
    fuzz_note(cluster, (uint64_t)(uint32_t)status);
    if (!fuzz_is_consequence(participant, status) &&
        !fuzz_is_dead(participant) &&
        !(status == BATON_ERR_TIMEOUT && timeout_ms >= 0)) {
        fuzz_fail(participant, "its wait returned %s: %s",
                  baton_status_name(status), baton_error_message());
    }
}

static void check_broken(fuzz_cluster_t *cluster, baton_status_t status)
{
    if (status != BATON_OK && status != BATON_ERR_DEADLOCK) {
        fail(cluster, "after the permanent fault", status);
    }
    if (status == BATON_ERR_DEADLOCK &&
        strstr(baton_error_message(), "rank") == NULL) {
        fail(cluster, "no rank is named", status);
    }
    for_each(cluster, check_waiter);
}

static void run_to_end(fuzz_cluster_t *cluster)
{
    baton_status_t status = schedule_faults(cluster);
    if (status != BATON_OK) {
        fail(cluster, "baton_sim_at", status);
        return;
    }
    for_each(cluster, begin_committed);
    status = baton_sim_run(cluster->sim, cluster->heal_us);
    if (status == BATON_OK || status == BATON_ERR_TIMEOUT) {
        heal(cluster);
        status = baton_sim_run(cluster->sim, -1);
    }
    while (status == BATON_OK && fuzz_wants_recovery(cluster)) {
        fuzz_recover_when_idle(cluster);
        status = baton_sim_run(cluster->sim, -1);
    }
    if (cluster->broken) {
        check_broken(cluster, status);
    } else {
        check_healed(cluster, status);
    }
    fuzz_participant_t *participant;
    if (!fuzz_failed(cluster) && all_done(cluster, &participant)) {
        for_each(cluster, fuzz_participant_audit);
    }
}

/* ---- create and destroy ----------------------------------------------- */

static baton_status_t commit(fuzz_participant_t *participant)
{
    baton_status_t status = fuzz_participant_commit(participant);
    participant->phase = status == BATON_OK ? FUZZ_PREPARES : FUZZ_ABSENT;
    return status;
}

/* A rank commits one of its schedules, and begins at once. */
static void commit_late(void *arg)
{
    fuzz_participant_t *participant = arg;
    if (fuzz_failed(participant->task->cluster) || fuzz_is_dead(participant)) {
        return;
    }
    baton_status_t status = commit(participant);
    if (status != BATON_OK) {
        fail(participant->task->cluster, "building", status);
    } else {
        fuzz_participant_begin(participant);
    }
}

static baton_status_t commit_task(fuzz_task_t *task)
{
    fuzz_cluster_t *cluster = task->cluster;
    baton_status_t status = BATON_OK;
    for (int rank = 0; rank < fuzz_ranks(task) && status == BATON_OK; rank++) {
        fuzz_participant_t *participant = &task->participants[rank];
        double at_us = support_random_real(&cluster->fault_random,
                                           cluster->plan.commit_us);
        status =
            cluster->plan.model.introductions
                ? baton_sim_at(cluster->sim, at_us, commit_late, participant)
                : commit(participant);
    }
    return status;
}

static baton_status_t open_tasks(fuzz_cluster_t *cluster)
{
    static const fuzz_rules_t *const rules[] = {[FUZZ_PROGRAM] = &fuzz_program,
                                                [FUZZ_LOCAL] = &fuzz_program,
                                                [FUZZ_QUORUM] = &fuzz_quorum,
                                                [FUZZ_ALARM] = &fuzz_alarm};
    baton_status_t status = BATON_OK;
    for (int rank = 0; rank < cluster->plan.model.ranks; rank++) {
        cluster->rank_states[rank] =
            (fuzz_rank_state_t){.cluster = cluster, .rank = rank};
    }
    for (int i = 0; i < cluster->plan.task_count && status == BATON_OK; i++) {
        fuzz_task_t *task = &cluster->tasks[i];
        task->cluster = cluster;
        task->index = i;
        task->plan = &cluster->plan.tasks[i];
        task->rules = rules[task->plan->kind];
        for (int rank = 0; rank < cluster->plan.model.ranks; rank++) {
            uint64_t stream =
                STREAM_PARTICIPANTS + (uint64_t)rank * FUZZ_TASKS + (uint64_t)i;
            task->participants[rank].task = task;
            task->participants[rank].rank = rank;
            task->participants[rank].random =
                support_random(cluster->plan.seed, stream);
        }
        if (task->rules->open != NULL) {
            task->rules->open(task);
        }
        status = commit_task(task);
    }
    return status;
}

static void destroy_schedule(fuzz_participant_t *participant)
{
    (void)!baton_schedule_destroy(participant->schedule);
}

static void close_cluster(fuzz_cluster_t *cluster)
{
    for (int i = 0; i < cluster->plan.task_count; i++) {
        fuzz_task_t *task = &cluster->tasks[i];
        if (task->rules != NULL && task->rules->close != NULL) {
            task->rules->close(task);
        }
    }
    for_each(cluster, destroy_schedule);
    baton_status_t status = baton_sim_destroy(cluster->sim);
    if (status != BATON_OK) {
        fail(cluster, "baton_sim_destroy", status);
    }
}

fuzz_outcome_t fuzz_run(uint64_t seed)
{
    fuzz_cluster_t *cluster = fuzz_alloc(1, sizeof *cluster);
    cluster->plan = fuzz_plan_sample(seed);
    cluster->fault_random = support_random(seed, STREAM_TRANSIENTS);
    cluster->heal_us = cluster->plan.heal_us;
    baton_status_t status =
        baton_sim_create(&cluster->plan.model, &cluster->sim);
    if (status != BATON_OK) {
        fail(cluster, "baton_sim_create", status);
    } else {
        baton_sim_trace(cluster->sim, trace, cluster);
        status = open_tasks(cluster);
        if (status != BATON_OK) {
            fail(cluster, "building", status);
        } else {
            run_to_end(cluster);
        }
    }
    fuzz_outcome_t outcome = {0};
    if (cluster->sim != NULL) {
        outcome.messages = baton_sim_totals(cluster->sim).messages;
        close_cluster(cluster);
    }
    outcome.passed = !fuzz_failed(cluster);
    outcome.digest = cluster->digest;
    memcpy(outcome.failure, cluster->failure, sizeof outcome.failure);
    free(cluster);
    return outcome;
}

void fuzz_print(uint64_t seed, FILE *to)
{
    fuzz_plan_t plan = fuzz_plan_sample(seed);
    fuzz_plan_print(&plan, to);
}
