/* The builders, proven by contributor sets, and the errors that the proof finds
   in wrong schedules. On the inproc transport, in one thread. */
#include "support/cluster.h"
#include "support/cmocka.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 3 * SUPPORT_LARGEST + 1, EPOCHS = 2 };

static const int sizes[] = {1, 2, 3, 5, 6, 7, 8, 12, 16, 32};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static baton_proof_t *proof;
static uint32_t sources[SUPPORT_LARGEST][MOST];
static uint32_t targets[SUPPORT_LARGEST][MOST];

/* ---- all-reduces ------------------------------------------------------- */

static void prove_allreduce(baton_allreduce_fn build, int size, size_t count,
                            bool in_place)
{
    support_cluster_t *ranks = support_cluster_of(size);
    size_t bytes = count * sizeof(uint32_t);
    baton_schedule_t **schedules = support_schedules_create(ranks, "proven");
    support_ok(baton_proof_create(size, &proof));
    for (int rank = 0; rank < size; rank++) {
        baton_schedule_t *s = schedules[rank];
        baton_buffer_t target = baton_buffer_bind(s, targets[rank], bytes);
        baton_buffer_t source =
            baton_buffer_bind_input(s, sources[rank], bytes);
        baton_allreduce_t args = {
            .size = sizeof(args),
            .source = baton_view(in_place ? target : source, 0, bytes),
            .target = baton_view(target, 0, bytes),
            .dtype = BATON_U32,
            .op = baton_proof_op(proof),
            .chunk_bytes = 8};
        build(s, &args);
    }
    support_schedules_commit(ranks, schedules);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (int rank = 0; rank < size; rank++) {
            memset(targets[rank], 0xa5, bytes);
            support_ok(
                baton_proof_fill(proof, rank, 0, count,
                                 in_place ? targets[rank] : sources[rank]));
        }
        support_schedules_run(ranks, schedules);
        for (int rank = 0; rank < size; rank++) {
            support_ok(baton_proof_check(proof, NULL, 0, count, targets[rank]));
        }
    }
    support_schedules_destroy(ranks, schedules);
    assert_int_equal(baton_proof_destroy(proof), BATON_OK);
}

static void prove_any_size(baton_allreduce_fn build)
{
    for (size_t i = 0; i < SIZES; i++) {
        size_t size = (size_t)sizes[i];
        const size_t counts[] = {0, 1, size - 1, size, 3 * size + 1};
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            prove_allreduce(build, sizes[i], counts[c], false);
            prove_allreduce(build, sizes[i], counts[c], true);
        }
    }
}

static void test_recursive_doubling_has_each_rank_once(void **state)
{
    prove_any_size(baton_allreduce_recursive_doubling);
}

static void test_binomial_has_each_rank_once(void **state)
{
    prove_any_size(baton_allreduce_binomial);
}

static void test_ring_has_each_rank_once(void **state)
{
    prove_any_size(baton_allreduce_ring);
}

/* ---- broadcast --------------------------------------------------------- */

static void prove_broadcast(int size, int root, size_t count)
{
    support_cluster_t *ranks = support_cluster_of(size);
    size_t bytes = count * sizeof(uint32_t);
    baton_schedule_t **schedules = support_schedules_create(ranks, "bcast");
    bool contributors[SUPPORT_LARGEST] = {false};
    contributors[root] = true;
    support_ok(baton_proof_create(size, &proof));
    for (int rank = 0; rank < size; rank++) {
        support_ok(baton_proof_fill(proof, rank, 0, count, targets[rank]));
        baton_buffer_t data =
            baton_buffer_bind(schedules[rank], targets[rank], bytes);
        baton_broadcast_binomial(schedules[rank], root,
                                 baton_view(data, 0, bytes));
    }
    support_schedules_commit(ranks, schedules);
    support_schedules_run(ranks, schedules);
    for (int rank = 0; rank < size; rank++) {
        support_ok(
            baton_proof_check(proof, contributors, 0, count, targets[rank]));
    }
    support_schedules_destroy(ranks, schedules);
    assert_int_equal(baton_proof_destroy(proof), BATON_OK);
}

static void test_broadcast_has_the_root_alone(void **state)
{
    for (size_t i = 0; i < SIZES; i++) {
        for (int root = 0; root < sizes[i]; root++) {
            prove_broadcast(sizes[i], root, 0);
            prove_broadcast(sizes[i], root, 7);
        }
    }
}

/* ---- wrong schedules --------------------------------------------------- */

/* An all-reduce of 4 elements on 4 ranks, through rank 0:

       rank 0:   copy --> reduce 1 --> reduce 2 --> reduce 3 --> send to each
                             ^            ^            ^
                          recv 1       recv 2       recv 3

       others:   send --> recv --> copy                                       */
enum { WRONG_RANKS = 4, ELEMENT = sizeof(uint32_t) };

typedef enum fault {
    NO_FAULT,
    REDUCED_TWICE, /* rank 0 adds rank 2 twice */
    LEFT_OUT,      /* rank 0 forgets rank 3 */
    MISALIGNED,    /* rank 0 adds rank 1 with its elements one place off */
    SHIFTED,       /* rank 2 puts the result's blocks one place off */
    SOURCE_KEPT,   /* rank 1 takes its own source for the result */
    UNWRITTEN      /* rank 0 adds, for rank 3, memory that nobody wrote */
} fault_t;

/* Rotates the elements by one place. */
static void copy_shifted(baton_schedule_t *s, baton_node_t after,
                         baton_view_t target, baton_view_t source)
{
    size_t body = source.bytes - ELEMENT;
    baton_before(s, after,
                 baton_add_copy(s, baton_view(target.buffer, ELEMENT, body),
                                baton_view(source.buffer, 0, body)));
    baton_before(s, after,
                 baton_add_copy(s, baton_view(target.buffer, 0, ELEMENT),
                                baton_view(source.buffer, body, ELEMENT)));
}

static void build_rank_0(baton_schedule_t *s, fault_t fault,
                         baton_view_t source, baton_view_t target)
{
    static uint32_t garbage[WRONG_RANKS];
    memset(garbage, 0xa5, sizeof(garbage));
    baton_node_t last = baton_add_copy(s, target, source);
    for (int rank = 1; rank < WRONG_RANKS; rank++) {
        baton_view_t theirs = target;
        baton_view_t sum = target;
        theirs.buffer = baton_buffer_scratch(s, target.bytes);
        baton_node_t arrived = baton_add_recv(s, rank, theirs);
        int times = 1;
        if (fault == REDUCED_TWICE && rank == 2) {
            times = 2;
        } else if (fault == LEFT_OUT && rank == 3) {
            times = 0;
        } else if (fault == MISALIGNED && rank == 1) {
            theirs.offset = ELEMENT;
            theirs.bytes = sum.bytes = target.bytes - ELEMENT;
        } else if (fault == UNWRITTEN && rank == 3) {
            theirs.buffer =
                baton_buffer_bind_input(s, garbage, sizeof(garbage));
        }
        while (times-- > 0) {
            baton_node_t add = baton_add_reduce(
                s, BATON_U32, baton_proof_op(proof), sum, sum, theirs);
            baton_before(s, arrived, add);
            baton_before(s, last, add);
            last = add;
        }
    }
    for (int rank = 1; rank < WRONG_RANKS; rank++) {
        baton_before(s, last, baton_add_send(s, rank, target));
    }
}

static void build_wrong(baton_schedule_t *s, fault_t fault, int rank)
{
    size_t bytes = sizeof(uint32_t) * WRONG_RANKS;
    baton_view_t source =
        baton_view(baton_buffer_bind_input(s, sources[rank], bytes), 0, bytes);
    baton_view_t target = support_view(s, targets[rank], bytes);
    if (rank == 0) {
        build_rank_0(s, fault, source, target);
        return;
    }
    baton_view_t result = support_scratch(s, bytes);
    baton_node_t recv = baton_add_recv(s, 0, result);
    baton_before(s, baton_add_send(s, 0, source), recv);
    if (fault == SHIFTED && rank == 2) {
        copy_shifted(s, recv, target, result);
    } else {
        bool kept = fault == SOURCE_KEPT && rank == 1;
        baton_before(s, recv,
                     baton_add_copy(s, target, kept ? source : result));
    }
}

/* The proof's message about a rank's result, valid until the next call. */
static const char *verdict(fault_t fault, int checked)
{
    static char says[200];
    support_cluster_t *ranks = support_cluster_of(WRONG_RANKS);
    baton_schedule_t **schedules = support_schedules_create(ranks, "wrong");
    support_ok(baton_proof_create(WRONG_RANKS, &proof));
    for (int rank = 0; rank < WRONG_RANKS; rank++) {
        support_ok(
            baton_proof_fill(proof, rank, 0, WRONG_RANKS, sources[rank]));
        build_wrong(schedules[rank], fault, rank);
    }
    support_schedules_commit(ranks, schedules);
    support_schedules_run(ranks, schedules);
    baton_status_t status =
        baton_proof_check(proof, NULL, 0, WRONG_RANKS, targets[checked]);
    assert_true(status == BATON_OK || status == BATON_ERR_MISMATCH);
    (void)snprintf(says, sizeof(says), "%s",
                   status == BATON_OK ? "right" : baton_error_message());
    support_schedules_destroy(ranks, schedules);
    assert_int_equal(baton_proof_destroy(proof), BATON_OK);
    return says;
}

static void test_wrong_schedules_are_caught(void **state)
{
    assert_string_equal(verdict(NO_FAULT, 0), "right");
    assert_string_equal(verdict(NO_FAULT, 3), "right");
    assert_string_equal(verdict(REDUCED_TWICE, 3),
                        "proof: element 0 has rank 2 twice");
    assert_string_equal(verdict(LEFT_OUT, 1), "proof: element 0 lacks rank 3");
    assert_string_equal(verdict(MISALIGNED, 0),
                        "proof: element 0 has elements 0 and 1 mixed");
    assert_string_equal(verdict(SHIFTED, 2),
                        "proof: element 0 has element 3 in its place");
    assert_string_equal(verdict(SHIFTED, 1), "right");
    assert_string_equal(verdict(SOURCE_KEPT, 1),
                        "proof: element 0 lacks rank 0");
    assert_string_equal(verdict(UNWRITTEN, 2),
                        "proof: element 0: 0xa5a5a5a5, which stands for no "
                        "set, was taken for data");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recursive_doubling_has_each_rank_once),
        cmocka_unit_test(test_binomial_has_each_rank_once),
        cmocka_unit_test(test_ring_has_each_rank_once),
        cmocka_unit_test(test_broadcast_has_the_root_alone),
        cmocka_unit_test(test_wrong_schedules_are_caught),
    };
    return cmocka_run_group_tests(tests, support_clusters_open,
                                  support_clusters_close);
}
