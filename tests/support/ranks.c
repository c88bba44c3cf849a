#include "support/ranks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PATIENCE_MS  60000
#define QUIET_ROUNDS 64

void support_expect_at(baton_status_t status, baton_status_t expected,
                       const char *file, int line)
{
    if (status != expected) {
        print_error("%s is not %s: %s\n", baton_status_name(status),
                    baton_status_name(expected), baton_error_message());
        _fail(file, line);
    }
}

support_ranks_t *support_ranks_open(int size)
{
    support_ranks_t *ranks = calloc(1, sizeof(*ranks));
    assert_non_null(ranks);
    ranks->size = size;
    ranks->groups = calloc((size_t)size, sizeof(baton_group_t *));
    assert_non_null(ranks->groups);

    baton_engine_options_t options = BATON_ENGINE_OPTIONS;
    options.progress = BATON_PROGRESS_MANUAL;
    support_ok(baton_engine_open(&options, &ranks->engine));
    support_ok(baton_inproc_create(size, &ranks->loop));
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_group_create_inproc(ranks->engine, ranks->loop, rank,
                                             &ranks->groups[rank]));
    }
    return ranks;
}

void support_ranks_close(support_ranks_t *ranks)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_group_destroy(ranks->groups[rank]));
    }
    support_ok(baton_inproc_destroy(ranks->loop));
    support_ok(baton_engine_close(ranks->engine));
    free(ranks->groups);
    free(ranks);
}

const int support_sizes[SUPPORT_SIZES] = {1,  2,  3,  4,  5,  6,  7,  8,  9,
                                          10, 11, 12, 13, 14, 15, 16, 17, 32};
static support_ranks_t *groups[SUPPORT_LARGEST + 1];

int support_groups_open(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        groups[support_sizes[i]] = support_ranks_open(support_sizes[i]);
    }
    return 0;
}

int support_groups_close(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        support_ranks_close(groups[support_sizes[i]]);
    }
    return 0;
}

support_ranks_t *support_group(int size)
{
    assert_in_range(size, 1, SUPPORT_LARGEST);
    assert_non_null(groups[size]);
    return groups[size];
}

baton_schedule_t **support_schedules_create(support_ranks_t *ranks,
                                            const char *name)
{
    baton_schedule_t **schedules =
        calloc((size_t)ranks->size, sizeof(baton_schedule_t *));
    assert_non_null(schedules);
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(
            baton_schedule_create(ranks->groups[rank], name, &schedules[rank]));
    }
    return schedules;
}

void support_schedules_commit(support_ranks_t *ranks,
                              baton_schedule_t **schedules)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_schedule_commit(schedules[rank]));
    }
}

void support_schedules_run(support_ranks_t *ranks, baton_schedule_t **schedules)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_schedule_start(schedules[rank]));
    }
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_schedule_wait(schedules[rank], PATIENCE_MS));
    }
}

void support_schedules_destroy(support_ranks_t *ranks,
                               baton_schedule_t **schedules)
{
    for (int rank = 0; rank < ranks->size; rank++) {
        support_ok(baton_schedule_destroy(schedules[rank]));
    }
    free(schedules);
}

void support_settle(support_ranks_t *ranks)
{
    for (int quiet = 0; quiet < QUIET_ROUNDS; quiet++) {
        if (baton_engine_step(ranks->engine)) {
            quiet = 0;
        }
    }
}
