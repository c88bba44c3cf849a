/* GOAL of every builder: all ranks' blocks make a file, which is read back and
   executed. */
#include "support/cluster.h"
#include "support/cmocka.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 5, MOST_OPERATIONS = 400, MOST_EDGES = 2000 };

/* ---- the file ---------------------------------------------------------- */

static char text[1 << 16];
static size_t used;

static void collect(void *arg, const char *piece)
{
    size_t length = strlen(piece);
    assert_true(used + length < sizeof(text));
    memcpy(text + used, piece, length + 1);
    used += length;
}

typedef struct operation {
    char kind[5];
    size_t bytes; /* of a calc: ns */
    int peer;
    unsigned tag;
    bool done;
    bool matched;
} operation_t;

static struct {
    operation_t operations[RANKS][MOST_OPERATIONS];
    unsigned counts[RANKS];
    unsigned edges[MOST_EDGES][3]; /* rank, label, required label */
    unsigned edge_count;
} file;

static void read_line(unsigned rank, const char *line)
{
    unsigned label, before;
    operation_t op = {.peer = -1};
    char verb[9], direction[5];
    if (sscanf(line, "l%u requires l%u", &label, &before) == 2) {
        assert_true(label < file.counts[rank] && before < file.counts[rank]);
        assert_true(file.edge_count < MOST_EDGES);
        unsigned *edge = file.edges[file.edge_count++];
        edge[0] = rank;
        edge[1] = label;
        edge[2] = before;
        return;
    }
    assert_true(file.counts[rank] < MOST_OPERATIONS);
    assert_true(sscanf(line, "l%u: %8s", &label, verb) == 2);
    assert_int_equal(label, file.counts[rank]);
    if (strcmp(verb, "calc") == 0) {
        assert_true(sscanf(line, "l%*u: calc %zu", &op.bytes) == 1);
    } else {
        assert_true(sscanf(line, "l%*u: %*s %zub %4s %d tag %u", &op.bytes,
                           direction, &op.peer, &op.tag) == 4);
        assert_string_equal(direction,
                            strcmp(verb, "send") == 0 ? "to" : "from");
        assert_true(op.bytes > 0);
    }
    memcpy(op.kind, verb, sizeof(op.kind));
    file.operations[rank][file.counts[rank]++] = op;
}

static void read_file(void)
{
    unsigned size, rank = 0;
    bool inside = false;
    memset(&file, 0, sizeof(file));
    char *line = strtok(text, "\n");
    assert_true(sscanf(line, "num_ranks %u", &size) == 1);
    assert_int_equal(size, RANKS);
    while ((line = strtok(NULL, "\n")) != NULL) {
        unsigned named;
        if (!inside && sscanf(line, "rank %u {", &named) == 1) {
            assert_int_equal(named, rank);
            inside = true;
        } else if (strcmp(line, "}") == 0) {
            assert_true(inside);
            inside = false;
            rank++;
        } else {
            assert_true(inside);
            read_line(rank, line);
        }
    }
    assert_int_equal(rank, RANKS);
}

/* ---- what it means ----------------------------------------------------- */

/* Each send has one receive of the same size, and each receive has a send. */
static void match_messages(void)
{
    for (int rank = 0; rank < RANKS; rank++) {
        for (unsigned i = 0; i < file.counts[rank]; i++) {
            const operation_t *send = &file.operations[rank][i];
            unsigned found = 0;
            if (strcmp(send->kind, "send") != 0) {
                continue;
            }
            for (unsigned j = 0; j < file.counts[send->peer]; j++) {
                operation_t *recv = &file.operations[send->peer][j];
                if (strcmp(recv->kind, "recv") == 0 && recv->peer == rank &&
                    recv->tag == send->tag) {
                    assert_int_equal(recv->bytes, send->bytes);
                    assert_false(recv->matched);
                    recv->matched = true;
                    found++;
                }
            }
            assert_int_equal(found, 1);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        for (unsigned i = 0; i < file.counts[rank]; i++) {
            const operation_t *op = &file.operations[rank][i];
            assert_true(strcmp(op->kind, "recv") != 0 || op->matched);
        }
    }
}

static bool may_run(unsigned rank, unsigned label)
{
    for (unsigned i = 0; i < file.edge_count; i++) {
        const unsigned *edge = file.edges[i];
        if (edge[0] == rank && edge[1] == label &&
            !file.operations[rank][edge[2]].done) {
            return false;
        }
    }
    const operation_t *op = &file.operations[rank][label];
    bool sent = strcmp(op->kind, "recv") != 0;
    for (unsigned i = 0; !sent && i < file.counts[op->peer]; i++) {
        const operation_t *send = &file.operations[op->peer][i];
        sent = send->done && strcmp(send->kind, "send") == 0 &&
               send->peer == (int)rank && send->tag == op->tag;
    }
    return sent;
}

/* Every operation is executed. */
static void run_file(void)
{
    unsigned left = 0;
    for (unsigned rank = 0; rank < RANKS; rank++) {
        left += file.counts[rank];
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (unsigned rank = 0; rank < RANKS; rank++) {
            for (unsigned i = 0; i < file.counts[rank]; i++) {
                operation_t *op = &file.operations[rank][i];
                if (!op->done && may_run(rank, i)) {
                    op->done = true;
                    moved = true;
                    left--;
                }
            }
        }
    }
    assert_int_equal(left, 0);
}

/* ---- the builders ------------------------------------------------------ */

static void build(baton_schedule_t *schedule, int builder, size_t count)
{
    static const baton_allreduce_fn builders[] = {
        baton_allreduce_recursive_doubling, baton_allreduce_binomial,
        baton_allreduce_ring};
    baton_view_t view = support_scratch(schedule, count * 4);
    baton_allreduce_t args = {.size = sizeof(args),
                              .source = view,
                              .target = view,
                              .dtype = BATON_F32,
                              .op = BATON_SUM,
                              .chunk_bytes = 8};
    if (builder == 0) {
        baton_barrier_dissemination(schedule);
    } else if (builder == 1) {
        baton_broadcast_binomial(schedule, 2, view);
    } else {
        builders[builder - 2](schedule, &args);
    }
}

static void test_goal_of_builders_runs(void **state)
{
    static const size_t counts[] = {0, 1, 4, 23};
    support_cluster_t *ranks = support_cluster_of(RANKS);
    for (int builder = 0; builder < 5; builder++) {
        for (size_t i = 0; i < 4; i++) {
            baton_schedule_t **schedules =
                support_schedules_create(ranks, "file");
            used =
                (size_t)snprintf(text, sizeof(text), "num_ranks %d\n", RANKS);
            for (int rank = 0; rank < RANKS; rank++) {
                build(schedules[rank], builder, counts[i]);
            }
            support_schedules_commit(ranks, schedules);
            for (int rank = 0; rank < RANKS; rank++) {
                support_ok(
                    baton_schedule_goal(schedules[rank], 0.25, collect, NULL));
            }
            read_file();
            match_messages();
            run_file();
            support_schedules_destroy(ranks, schedules);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goal_of_builders_runs),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
