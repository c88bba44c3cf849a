#include "progress/state/task.h"

#include "base/alloc.h"

bool baton__task_make_due(baton__task_t *task)
{
    if (task->failures != NULL) {
        return true;
    }
    const uint32_t count = task->schedule.plan.peer_count;
    size_t failure_bytes = task->failure_count * sizeof *task->failures;
    char *memory = baton__alloc(1, failure_bytes + count * sizeof *task->due);
    if (memory == NULL) {
        return false;
    }
    task->failures = (void *)memory;
    task->due = (void *)(memory + failure_bytes);
    for (uint32_t i = 0; i < count; i++) {
        task->due[i].acquaintance = BATON__MET;
    }
    return true;
}

void baton__task_free(baton__task_t *task)
{
    const uint64_t requested = baton__task_requested(task);
    uint64_t *epoch = &task->schedule.run.epoch;
    /* baton__schedule_fini gives the schedule's flag back to the device for
       another schedule, and notes the number of the last epoch in it. (The flag
       is the word of memory by which users' streams wait for epochs.) These
       streams may wait for any epoch that was started, so all of them count as
       if they had run. */
    *epoch = requested > *epoch ? requested : *epoch;
    if (task->schedule.group->sharing != NULL) {
        baton__free(task->failures);
        baton__free(task->schedule.sentence);
        task->schedule.sentence = NULL;
        if (task->after_recovery != NULL) {
            baton__free(task->after_recovery->sentence);
            baton__free(task->after_recovery);
        }
    }
    baton__schedule_fini(&task->schedule);
    baton__free(task->inquiry);
    int orphan = BATON__ORPHAN_MOVES;
    /* Pairs with the exchange in destroy_orphan, commit.c, which frees the
       struct. */
    if (!atomic_compare_exchange_strong_explicit(
            &task->orphan, &orphan, BATON__ORPHAN_ENDED, memory_order_release,
            memory_order_relaxed)) {
        baton__free_later(task);
    }
}
