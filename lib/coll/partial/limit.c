/* The number of steps of a partial collective, and the limit up to which peers
   may begin epochs ahead of this rank. */
#include "base/error.h"
#include "base/thread.h"
#include "coll/partial/parts.h"

#include <assert.h>

bool baton__partial_is_alive(const baton_partial_t *partial,
                             const char *function)
{
    return baton__is_alive(partial, partial != NULL && partial->name == NULL,
                           function, "partial") &&
           baton__process_is_own(function);
}

uint64_t baton__partial_steps(const baton_partial_t *partial)
{
    return atomic_load_explicit(&partial->steps, memory_order_relaxed);
}

void baton__partial_count_step(baton_partial_t *partial, baton_status_t status)
{
    if (status == BATON_OK) {
        atomic_fetch_add_explicit(&partial->steps, 1, memory_order_relaxed);
    }
}

/* Sets the last epoch that peers may begin on this rank. With KEEP_ALL this is
   the last epoch for which the history has room: it holds W results that the
   application has not seen. With a bound S of staleness it is also at most
   arrived + S: this rank's next contribution, of step arrived + 1, may just
   miss that epoch, and go into the next one, S epochs late. */
static void set_limit(baton_partial_t *partial)
{
    assert(baton__thread_has_locked(&partial->limit_lock));
    const baton_partial_options_t *options = &partial->options;
    uint64_t limit = UINT64_MAX;
    if (!partial->is_limited) {
        return;
    }
    if (options->keep == BATON_KEEP_ALL) {
        limit = partial->seen + options->history;
    }
    if (options->max_staleness != 0 &&
        partial->arrived + options->max_staleness < limit) {
        limit = partial->arrived + options->max_staleness;
    }
    baton_schedule_limit(
        partial->schedule,
        limit == UINT64_MAX ? limit : limit - partial->begin.modes.base);
}

void baton__partial_limit(baton_partial_t *partial, uint64_t *count,
                          uint64_t step)
{
    (void)pthread_mutex_lock(&partial->limit_lock);
    *count = step == 0 || step > *count ? step : *count;
    set_limit(partial);
    (void)pthread_mutex_unlock(&partial->limit_lock);
}

void baton__partial_begin_limit(baton_partial_t *partial, bool begin)
{
    (void)pthread_mutex_lock(&partial->limit_lock);
    partial->is_limited = begin;
    set_limit(partial);
    (void)pthread_mutex_unlock(&partial->limit_lock);
}

baton_status_t baton__partial_check_step(const baton_partial_t *partial)
{
    uint64_t step = baton__partial_steps(partial);
    if (step != 0 &&
        (partial->options.keep != BATON_KEEP_ALL || partial->claimed != step)) {
        return BATON_OK;
    }
    baton_failure_t failure;
    if (step == 0 && partial->survival == NULL &&
        baton_schedule_failure(partial->schedule, &failure) == BATON_OK) {
        return baton__error(failure.status, "wait for \"%s\": %s",
                            partial->name, failure.message);
    }
    return baton__error(BATON_ERR_STATE, "wait for \"%s\": %s", partial->name,
                        step == 0 ? "no step was started: call "
                                    "baton_partial_start first"
                                  : "the step's result was returned already");
}
