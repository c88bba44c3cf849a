/* P loop ranks on one manual engine: a whole group in one thread, so that tests
   need no sleeps and no locks. Whoever waits for one rank drives them all.
   Failures are cmocka's: for the main thread. */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <baton/baton.h>

typedef struct support_ranks {
    int size;
    baton_engine_t *engine;
    baton_inproc_t *loop;
    baton_group_t **groups; /* by rank */
} support_ranks_t;

support_ranks_t *support_ranks_open(int size);
void support_ranks_close(support_ranks_t *ranks);

/* One such group of each of these sizes, for all tests of a program: 1 to 17
   and 32 ranks, i.e. every kind of fold and up to five rounds. Group fixtures.
 */
#define SUPPORT_SIZES   18
#define SUPPORT_LARGEST 32
extern const int support_sizes[SUPPORT_SIZES];
int support_groups_open(void **state);
int support_groups_close(void **state);
support_ranks_t *support_group(int size);

/* Fails the test with the library's sentence unless `status` is `expected`. */
#define support_expect(status, expected)                                       \
    support_expect_at((status), (expected), __FILE__, __LINE__)
#define support_ok(status) support_expect((status), BATON_OK)
void support_expect_at(baton_status_t status, baton_status_t expected,
                       const char *file, int line);

/* One empty schedule for each rank, in an array by rank. */
baton_schedule_t **support_schedules_create(support_ranks_t *ranks,
                                            const char *name);
void support_schedules_commit(support_ranks_t *ranks,
                              baton_schedule_t **schedules);

/* One epoch: starts all, in rank order, and waits for all. */
void support_schedules_run(support_ranks_t *ranks,
                           baton_schedule_t **schedules);

/* The array, too. */
void support_schedules_destroy(support_ranks_t *ranks,
                               baton_schedule_t **schedules);

/* Steps until nothing has happened for a while. */
void support_settle(support_ranks_t *ranks);

#endif
