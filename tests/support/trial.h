/* Runs a call once for each n, and lets the call's n-th allocation fail. Only
   one file of a program may include this. */
#pragma once

#include "base/alloc.h"
#include "support/cluster.h"
#include "support/malloc.h"

/* The number of the allocation that fails, from 1; 0: none fails. */
static int64_t nth;
static int64_t counted; /* number of allocations under trial in this attempt */

/* trial_begin is called before the calls under trial, and trial_stop after
   them. */
static void trial_begin(void)
{
    counted = -baton__alloc_count();
    baton__alloc_fail_nth(nth);
}

static void trial_stop(void)
{
    baton__alloc_fail_nth(0);
    counted += baton__alloc_count();
}

/* Called after trial_stop, with the status that the calls under trial have
   returned. */
static void trial_expect(baton_status_t status)
{
    bool failed = nth > 0 && counted >= nth;
    support_expect(status, failed ? BATON_ERR_NO_MEMORY : BATON_OK);
    if (failed && strstr(baton_error_message(), "no memory") == NULL &&
        strstr(baton_error_message(), "no room") == NULL) {
        fail_msg("allocation %d: \"%s\"", (int)nth, baton_error_message());
    }
}

static void trial_end(baton_status_t status)
{
    trial_stop();
    trial_expect(status);
}

/* Tries one call, and repeats it if it has failed. */
#define TRY(call)                                                              \
    do {                                                                       \
        trial_begin();                                                         \
        baton_status_t status_ = (call);                                       \
        trial_end(status_);                                                    \
        if (status_ != BATON_OK) {                                             \
            support_ok(call);                                                  \
        }                                                                      \
    } while (0)

/* Runs `attempt` again and again, with a further allocation that fails each
   time. `attempt` uses TRY, or calls trial_begin, the functions under trial,
   and trial_end. Then it shows that everything works, and frees everything. */
static void try_each(void (*attempt)(void))
{
    nth = 0;
    for (int i = 0; i < BATON__UNFREED_OBJECTS; i++) {
        baton__free_later(baton__alloc(1, 1));
    }
    attempt(); /* no allocation fails here; this call fills caches */
    assert_true(counted > 0);
    do {
        int64_t live = malloc_live;
        nth++;
        attempt();
        if (MALLOC_SEES_ALL) {
            assert_int_equal(malloc_live, live);
        }
    } while (counted >= nth);
    print_message("%lld allocations\n", (long long)nth - 1);
}
