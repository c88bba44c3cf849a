/* Failures, the digest, and the errors that faults may cause; see cluster.h. */
#include "fuzz/cluster.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void *fuzz_alloc(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) {
        (void)fprintf(stderr, "fuzz: no memory for %zu x %zu bytes\n", count,
                      size);
        exit(EXIT_FAILURE);
    }
    return memory;
}

uint64_t fuzz_key(const fuzz_task_t *task, int rank, uint64_t number)
{
    support_random_t random =
        support_random(task->cluster->plan.seed,
                       (number * FUZZ_RANKS + (uint64_t)rank) * FUZZ_TASKS +
                           (uint64_t)task->index);
    return support_random_next(&random);
}

/* Adds a word to the digest by FNV-1a, which takes words here instead of
   bytes. */
void fuzz_note(fuzz_cluster_t *cluster, uint64_t what)
{
    cluster->digest = (cluster->digest ^ what) * UINT64_C(1099511628211);
}

void fuzz_note_real(fuzz_cluster_t *cluster, double what)
{
    uint64_t bits;
    memcpy(&bits, &what, sizeof bits);
    fuzz_note(cluster, bits);
}

/* ---- failures --------------------------------------------------------- */

void fuzz_fail(fuzz_participant_t *participant, const char *format, ...)
{
    fuzz_cluster_t *cluster = participant->task->cluster;
    char what[FUZZ_FAILURE_BYTES / 2];
    va_list args;
    va_start(args, format);
    /* clang-tidy 14 loses sight of va_start here. */
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!fuzz_failed(cluster)) {
        (void)snprintf(cluster->failure, sizeof cluster->failure,
                       "task %d (%s), rank %d, incarnation %u, step %u: %s",
                       participant->task->index,
                       fuzz_kind_name(participant->task->plan->kind),
                       participant->rank, fuzz_incarnation(participant),
                       participant->step, what);
    }
}

/* ---- errors that faults cause ------------------------------------------ */

bool fuzz_is_consequence(const fuzz_participant_t *participant,
                         baton_status_t status)
{
    const fuzz_cluster_t *cluster = participant->task->cluster;
    fuzz_kind_t kind = participant->task->plan->kind;
    bool killed = cluster->plan.permanent == FUZZ_PERMANENT_KILL;
    /* In a quorum the root gets too few answers. In a program a branch waits
       for the dead rank. */
    bool unreachable = status == BATON_ERR_UNREACHABLE && killed &&
                       (kind == FUZZ_QUORUM || kind == FUZZ_PROGRAM);
    /* The dead rank would have activated the epoch, and no rank waits for a
       message from it. */
    bool in_vain = status == BATON_ERR_DEADLOCK && killed && kind == FUZZ_ALARM;
    return cluster->broken &&
           (status == BATON_ERR_TRANSPORT || status == BATON_ERR_FAILED ||
            unreachable || in_vain);
}

baton_status_t fuzz_injected_status(const fuzz_injection_t *injection)
{
    return injection->cancels ? BATON_ERR_CANCELLED : FUZZ_INJECTED_STATUS;
}

/* The failed epoch and later ones fail with the first cause. Once a recovery
   has begun every epoch may be cancelled. */
bool fuzz_is_injected(const fuzz_participant_t *participant,
                      baton_status_t status)
{
    const fuzz_cluster_t *cluster = participant->task->cluster;
    uint32_t incarnation = fuzz_incarnation(participant);
    const fuzz_injection_t *injection = &cluster->injections[incarnation];
    if (cluster->called[incarnation] > 0 &&
        (status == BATON_ERR_CANCELLED || status == BATON_ERR_FAILED)) {
        return true;
    }
    return injection->happened && injection->task == participant->task->index &&
           participant->step >= injection->epoch &&
           (status == fuzz_injected_status(injection) ||
            status == BATON_ERR_FAILED);
}

bool fuzz_injection_due(fuzz_participant_t *participant, uint64_t epoch)
{
    fuzz_injection_t *injection =
        &participant->task->cluster->injections[fuzz_incarnation(participant)];
    if (!injection->planned || injection->cancels || injection->happened ||
        injection->task != participant->task->index ||
        injection->rank != participant->rank) {
        return false;
    }
    injection->happened = true;
    injection->epoch = epoch;
    return true;
}

/* ---- incarnations ------------------------------------------------------ */

uint64_t fuzz_last_epoch(fuzz_participant_t *participant, uint32_t incarnation)
{
    const fuzz_task_t *task = participant->task;
    uint64_t last = 0;
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        if (task->cluster->rank_states[rank].incarnation <= incarnation) {
            fuzz_fail(participant, "recovery: rank %d has not come", rank);
        }
        uint64_t retired = task->retired[incarnation][rank];
        last = retired > last ? retired : last;
    }
    return last;
}
