/* Sparse all-reduces against cases that were worked out apart from them, exact
   in integers: results, indices, residuals, and all messages.
   data/sparse_cases.json: a message is [phase, step, from, to, [entries of each
   block in it]]. */
#include "support/json.h"
#include "support/sparse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *running;

static baton_sparse_algorithm_t algorithm_of(const char *name)
{
    for (int i = 0; i < BATON_SPARSE_COUNT; i++) {
        baton_sparse_algorithm_t algorithm = (baton_sparse_algorithm_t)i;
        if (strcmp(baton_sparse_algorithm_name(algorithm), name) == 0) {
            return algorithm;
        }
    }
    fail_msg("no algorithm \"%s\"", name);
    return BATON_SPARSE_COUNT;
}

static baton_sparse_options_t options_of(const support_json_t *json)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    const char *sag = support_json_text(json, "sag");
    options.algorithm = algorithm_of(support_json_text(json, "algo"));
    options.dtype = BATON_F32;
    options.count = (size_t)support_json_number(json, "n");
    options.k = (size_t)support_json_number(json, "k");
    options.teams = (int)support_json_number(json, "d");
    options.exchange = strcmp(sag, "r") == 0   ? BATON_TEAMS_RSAG
                       : strcmp(sag, "b") == 0 ? BATON_TEAMS_BSAG
                                               : BATON_TEAMS_AUTO;
    return options;
}

static void expect_vector(const char *what, int rank, const void *actual,
                          const support_json_t *expected)
{
    const float *values = actual;
    for (size_t i = 0; i < expected->count; i++) {
        if ((double)values[i] != expected->items[i].number) {
            fail_msg("%s: %s of rank %d, element %zu, is %g, not %g", running,
                     what, rank, i, (double)values[i],
                     expected->items[i].number);
        }
    }
}

/* A dense region's entries are values alone. */
static size_t bytes_of(const support_json_t *message)
{
    size_t entries = 0;
    const support_json_t *blocks = &message->items[4];
    for (size_t i = 0; i < blocks->count; i++) {
        entries += (size_t)blocks->items[i].number;
    }
    return entries * (strcmp(message->items[0].text, "ag_dense") == 0 ? 4 : 8);
}

/* Beside the cases' messages, TopkDSA gathers the lengths of its regions' sums,
   which the cases take as known: so many messages. */
static size_t length_messages(const support_sparse_t *group)
{
    size_t rounds = 0;
    while (group->options.algorithm == BATON_SPARSE_TOPKDSA &&
           1 << rounds < group->size) {
        rounds++;
    }
    return rounds;
}

static const support_transfer_t *next_of(const support_sparse_t *group,
                                         int rank, size_t *next)
{
    while (*next < group->transfer_count &&
           group->transfers[*next].from != rank) {
        (*next)++;
    }
    assert_true(*next < group->transfer_count);
    return &group->transfers[(*next)++];
}

static void expect_messages_of(const support_sparse_t *group, int rank,
                               const support_json_t *expected)
{
    size_t next = 0, lengths = length_messages(group);
    for (size_t i = 0; i < expected->count; i++) {
        const support_json_t *message = &expected->items[i];
        if ((int)message->items[2].number != rank) {
            continue;
        }
        while (lengths > 0 && strncmp(message->items[0].text, "ag", 2) == 0) {
            (void)next_of(group, rank, &next);
            lengths--;
        }
        const support_transfer_t *transfer = next_of(group, rank, &next);
        if (transfer->to != (int)message->items[3].number ||
            transfer->bytes != bytes_of(message)) {
            fail_msg("%s: %s step %d, rank %d sends %zu bytes to %d, not %zu "
                     "to %d",
                     running, message->items[0].text,
                     (int)message->items[1].number, rank, transfer->bytes,
                     transfer->to, bytes_of(message),
                     (int)message->items[3].number);
        }
    }
}

/* Each rank's messages, in the order in which it sends them. */
static void expect_messages(const support_sparse_t *group,
                            const support_json_t *expected)
{
    assert_int_equal(group->transfer_count,
                     expected->count +
                         length_messages(group) * (size_t)group->size);
    for (int rank = 0; rank < group->size; rank++) {
        expect_messages_of(group, rank, expected);
    }
}

static void expect_statistics(support_sparse_t *group,
                              const support_json_t *iteration)
{
    const support_json_t *ranks = support_json_get(iteration, "per_rank");
    const support_json_t *selections =
        support_json_find(iteration, "topk_calls_per_rank");
    double more = (double)length_messages(group);
    double more_bytes = more > 0 ? 4.0 * (group->size - 1) : 0;
    for (int rank = 0; rank < group->size; rank++) {
        const support_json_t *json = &ranks->items[rank];
        baton_sparse_stats_t stats;
        assert_int_equal(baton_sparse_stats(group->ranks[rank], &stats),
                         BATON_OK);
        assert_int_equal(stats.messages_sent,
                         support_json_number(json, "msgs_sent") + more);
        assert_int_equal(stats.messages_received,
                         support_json_number(json, "msgs_recv") + more);
        assert_int_equal(stats.bytes_sent,
                         support_json_number(json, "bytes_sent") + more_bytes);
        assert_int_equal(stats.bytes_received,
                         support_json_number(json, "bytes_recv") + more_bytes);
        if (selections != NULL && selections->kind == SUPPORT_JSON_NUMBER) {
            assert_int_equal(stats.block_selections, selections->number);
        }
        const support_json_t *h = support_json_find(iteration, "h_next");
        if (h != NULL) {
            assert_int_equal(stats.h, h->items[rank].number);
        }
    }
}

static void run_iteration(support_sparse_t *group,
                          const support_json_t *iteration)
{
    const support_json_t *gradients = support_json_get(iteration, "grads");
    for (int rank = 0; rank < group->size; rank++) {
        float *gradient = support_sparse_gradient(group, rank);
        for (size_t i = 0; i < group->options.count; i++) {
            gradient[i] = (float)gradients->items[rank].items[i].number;
        }
    }
    support_sparse_step(group);
    expect_vector("result", 0, group->dense,
                  support_json_get(iteration, "result"));
    const support_json_t *index = support_json_get(iteration, "index");
    assert_int_equal(group->results[0].count, index->count);
    for (size_t i = 0; i < index->count; i++) {
        assert_int_equal(group->results[0].indices[i], index->items[i].number);
    }
    for (int rank = 0; rank < group->size; rank++) {
        expect_vector("residual", rank, support_sparse_residual(group, rank),
                      &support_json_get(iteration, "residual")->items[rank]);
    }
    expect_messages(group, support_json_get(iteration, "messages"));
    expect_statistics(group, iteration);
}

static void run_case(const support_json_t *json)
{
    running = support_json_text(json, "id");
    print_message("case %s\n", running);
    baton_sparse_options_t options = options_of(json);
    int size = (int)support_json_number(json, "P");
    support_sparse_t *group = support_sparse_open(size, &options);
    const support_json_t *iterations = support_json_get(json, "iterations");
    for (size_t i = 0; i < iterations->count; i++) {
        run_iteration(group, &iterations->items[i]);
    }
    support_sparse_close(group);
}

static void test_all_cases(void **state)
{
    (void)state;
    support_json_t *json =
        support_json_read(BATON_TEST_DATA "/sparse_cases.json");
    const support_json_t *cases = support_json_get(json, "cases");
    assert_true(cases->count >= 14);
    for (size_t i = 0; i < cases->count; i++) {
        run_case(&cases->items[i]);
    }
    support_json_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
