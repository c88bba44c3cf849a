#include "progress/state/task.h"

#include "base/alloc.h"

void baton__task_free(baton__task_t *task)
{
    const uint64_t requested = baton__task_requested(task);
    uint64_t *epoch = &task->schedule.run.epoch;
    /* The flag of a device is given back as if each epoch that was started had
       run. */
    *epoch = requested > *epoch ? requested : *epoch;
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
