/* The barrier, several builders in one schedule, and what an all-reduce
   refuses. On the inproc transport, in one thread. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include <stdio.h>
#include <string.h>

#define EPOCHS 3

/* ---- barrier ----------------------------------------------------------- */

/* In every epoch the last rank to begin holds up all others. */
static void test_barrier_waits_for_the_last_rank(void **state)
{
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        support_cluster_t *ranks = support_cluster_of(support_sizes[i]);
        int size = ranks->size;
        baton_schedule_t **schedules =
            support_schedules_create(ranks, "barrier");
        for (int rank = 0; rank < size; rank++) {
            baton_barrier_dissemination(schedules[rank]);
        }
        support_schedules_commit(ranks, schedules);
        for (int last = 0; last < size; last++) {
            for (int rank = 0; rank < size; rank++) {
                if (rank != last) {
                    support_ok(baton_schedule_start(schedules[rank]));
                }
            }
            support_drain(ranks);
            for (int rank = 0; rank < size; rank++) {
                bool done = true;
                support_ok(baton_schedule_test(schedules[rank], &done));
                assert_int_equal(done, rank == last);
            }
            support_ok(baton_schedule_start(schedules[last]));
            for (int rank = 0; rank < size; rank++) {
                support_ok(baton_schedule_wait(schedules[rank], 10000));
            }
        }
        support_schedules_destroy(ranks, schedules);
    }
}

/* ---- several builders in one schedule ---------------------------------- */

/* all-reduce, then barrier, then broadcast of what rank 0 got, which is reduced
   again: each one enclosed between nops.

       begin --> [all-reduce] --> a --> [barrier] --> b --> [broadcast] --> c
             c --> [all-reduce] --> end                                     */
static void build_chain(baton_schedule_t *schedule, int64_t *data, size_t count)
{
    size_t bytes = count * sizeof(int64_t);
    baton_view_t view = support_view(schedule, data, bytes);
    baton_allreduce_t args = {.size = sizeof(args),
                              .source = view,
                              .target = view,
                              .dtype = BATON_I64,
                              .op = BATON_SUM,
                              .chunk_bytes = 24};
    baton_node_t gates[5];
    for (size_t i = 0; i < 5; i++) {
        gates[i] = baton_add_nop(schedule);
    }
    for (size_t i = 0; i < 4; i++) {
        baton_enclosure_t mark = baton_enclose_begin(schedule);
        if (i == 0) {
            baton_allreduce_ring(schedule, &args);
        } else if (i == 1) {
            baton_barrier_dissemination(schedule);
        } else if (i == 2) {
            baton_broadcast_binomial(schedule, 0, view);
        } else {
            baton_allreduce_recursive_doubling(schedule, &args);
        }
        baton_enclose_end(schedule, mark, gates[i], gates[i + 1]);
    }
}

static void test_builders_share_a_schedule(void **state)
{
    static const size_t counts[] = {0, 1, 50};
    for (size_t i = 0; i < SUPPORT_SIZES; i++) {
        for (size_t c = 0; c < 3; c++) {
            support_cluster_t *ranks = support_cluster_of(support_sizes[i]);
            int64_t size = ranks->size;
            int64_t data[SUPPORT_LARGEST][50];
            baton_schedule_t **schedules =
                support_schedules_create(ranks, "chain");
            for (int rank = 0; rank < ranks->size; rank++) {
                build_chain(schedules[rank], data[rank], counts[c]);
            }
            support_schedules_commit(ranks, schedules);
            for (int epoch = 1; epoch <= EPOCHS; epoch++) {
                for (int rank = 0; rank < ranks->size; rank++) {
                    for (size_t j = 0; j < 50; j++) {
                        data[rank][j] = rank + epoch;
                    }
                }
                support_schedules_run(ranks, schedules);
                int64_t sum = size * (size - 1) / 2 + size * epoch;
                for (int rank = 0; rank < ranks->size; rank++) {
                    for (size_t j = 0; j < counts[c]; j++) {
                        assert_int_equal(data[rank][j], sum * size);
                    }
                }
            }
            support_schedules_destroy(ranks, schedules);
        }
    }
}

/* ---- wrong use --------------------------------------------------------- */

typedef struct wrong_use {
    const char *actual; /* two texts that the message must contain */
    const char *allowed;
    size_t struct_size;
    baton_dtype_t dtype;
    const baton_op_t *op;
    size_t source_offset;
    size_t source_bytes;
    size_t target_offset;
    size_t target_bytes;
} wrong_use_t;

static void check_wrong_use(baton_allreduce_fn build, const wrong_use_t *wrong)
{
    char memory[256];
    baton_schedule_t *schedule =
        support_schedule(support_cluster_of(4)->groups[1], "wrong");
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, 256);
    baton_allreduce_t args = {
        .size = wrong->struct_size,
        .source = baton_view(buffer, wrong->source_offset, wrong->source_bytes),
        .target = baton_view(buffer, wrong->target_offset, wrong->target_bytes),
        .dtype = wrong->dtype,
        .op = wrong->op,
    };
    baton_enclosure_t before = baton_enclose_begin(schedule);
    build(schedule, &args);
    baton_enclosure_t after = baton_enclose_begin(schedule);
    assert_int_equal(before.node, after.node);
    assert_int_equal(before.edge, after.edge);
    support_expect(baton_schedule_commit(schedule), BATON_ERR_INVALID);
    const char *message = baton_error_message();
    if (strstr(message, wrong->actual) == NULL ||
        strstr(message, wrong->allowed) == NULL ||
        strstr(message, "all-reduce by") == NULL ||
        strstr(message, "\"wrong\"") == NULL) {
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", message, wrong->actual,
                 wrong->allowed);
    }
    support_ok(baton_schedule_destroy(schedule));
}

static void test_allreduce_wrong_arguments_fail_commit(void **state)
{
    static const baton_op_t hollow = {.name = "hollow"};
    size_t right = sizeof(baton_allreduce_t);
    const wrong_use_t wrongs[] = {
        {"size is 1", "sizeof(baton_allreduce_t)", 1, BATON_I32, BATON_SUM, 0,
         64, 64, 64},
        {"dtype is 12", "0 to 11", right, BATON_DTYPE_COUNT, BATON_SUM, 0, 64,
         64, 64},
        {"op is NULL", "BATON_SUM", right, BATON_I32, NULL, 0, 64, 64, 64},
        {"op->reduce is NULL", "BATON_SUM", right, BATON_I32, &hollow, 0, 64,
         64, 64},
        {"target has 32 bytes", "must have 64", right, BATON_I32, BATON_SUM, 0,
         64, 64, 32},
        {"63 bytes", "multiple of 4", right, BATON_I32, BATON_SUM, 0, 63, 64,
         63},
        {"byte 0 of buffer 0 and target at byte 60", "or apart", right,
         BATON_I32, BATON_SUM, 0, 64, 60, 64},
        {"byte 100 of buffer 0 and target at byte 60", "or apart", right,
         BATON_I32, BATON_SUM, 100, 64, 60, 64},
    };
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        check_wrong_use(baton_allreduce_recursive_doubling, &wrongs[i]);
        check_wrong_use(baton_allreduce_ring, &wrongs[i]);
    }
}

/* Views that end where the other begins do not overlap. */
static void test_allreduce_adjacent_views_are_apart(void **state)
{
    char memory[64];
    baton_schedule_t *schedule =
        support_schedule(support_cluster_of(1)->groups[0], "beside");
    baton_buffer_t buffer = baton_buffer_bind(schedule, memory, 64);
    baton_allreduce_t args = {.size = sizeof(args),
                              .source = baton_view(buffer, 32, 32),
                              .target = baton_view(buffer, 0, 32),
                              .dtype = BATON_U8,
                              .op = BATON_MAX};
    baton_allreduce_ring(schedule, &args);
    support_ok(baton_schedule_commit(schedule));
    support_ok(baton_schedule_destroy(schedule));
}

static void test_broadcast_wrong_root_fails_commit(void **state)
{
    static const int roots[] = {-1, 4, INT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        char memory[8], text[32];
        baton_schedule_t *schedule =
            support_schedule(support_cluster_of(4)->groups[2], "wrong");
        baton_buffer_t buffer = baton_buffer_bind(schedule, memory, 8);
        baton_broadcast_binomial(schedule, roots[i], baton_view(buffer, 0, 8));
        support_expect(baton_schedule_commit(schedule), BATON_ERR_INVALID);
        snprintf(text, sizeof(text), "root is %d", roots[i]);
        assert_non_null(strstr(baton_error_message(), text));
        assert_non_null(strstr(baton_error_message(), "0 to 3"));
        support_ok(baton_schedule_destroy(schedule));
    }
}

/* Arguments of an older header end before the fields that were added since. */
static void test_allreduce_takes_older_arguments(void **state)
{
    (void)state;
    int32_t values[4] = {1, 2, 3, 4};
    baton_group_t *group = support_cluster_of(1)->groups[0];
    baton_schedule_t *schedule = support_schedule(group, "older");
    baton_view_t view = support_view(schedule, values, sizeof values);
    baton_allreduce_t args = BATON_ALLREDUCE;
    args.size = offsetof(baton_allreduce_t, algorithm);
    args.source = args.target = view;
    args.dtype = BATON_I32;
    args.op = BATON_SUM;
    args.algorithm = "no such algorithm";
    baton_allreduce(schedule, &args);
    support_ok(baton_schedule_commit(schedule));
    support_run(schedule);
    assert_int_equal(values[3], 4);
    support_ok(baton_schedule_destroy(schedule));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barrier_waits_for_the_last_rank),
        cmocka_unit_test(test_builders_share_a_schedule),
        cmocka_unit_test(test_allreduce_takes_older_arguments),
        cmocka_unit_test(test_allreduce_wrong_arguments_fail_commit),
        cmocka_unit_test(test_allreduce_adjacent_views_are_apart),
        cmocka_unit_test(test_broadcast_wrong_root_fails_commit),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
