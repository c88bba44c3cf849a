/* Every create, add and commit while the n-th of its allocations fails, for
   each n. The call returns an error, leaks nothing, and works when it is made
   again. */
#include "sched/schedule.h"
#include "support/stuck.h"
#include "support/trial.h"
#include <baton/coll.h>
#include <baton/partial.h>
#include <baton/proof.h>
#include <baton/sparse.h>

enum { RANKS = 3, TEAMS = 4, COUNT = 100 };

/* ---- engines and groups ------------------------------------------------ */

static baton_progress_t progress;

static void open_engine(void)
{
    baton_engine_t *engine;
    baton_engine_options_t options = {sizeof options, progress, NULL, 0};
    TRY(baton_engine_open(&options, &engine));
    support_ok(baton_engine_close(engine));
}

TEST(test_memory_of_an_engine)
{
    progress = BATON_PROGRESS_MANUAL;
    try_each(open_engine);
    progress = BATON_PROGRESS_THREAD;
    try_each(open_engine);
}

static void create_inproc(void)
{
    baton_inproc_t *inproc;
    TRY(baton_inproc_create(RANKS, &inproc));
    support_ok(baton_inproc_destroy(inproc));
}

static void create_group(void)
{
    support_cluster_t *ranks = support_cluster_manual(RANKS);
    support_ok(baton_group_destroy(ranks->groups[1]));
    TRY(baton_group_create_inproc(ranks->engines[0], ranks->inproc, 1,
                                  &ranks->groups[1]));
    support_cluster_close(ranks);
}

static void create_group_of_one(void)
{
    baton_group_t *group;
    support_cluster_t *ranks = support_cluster_manual(1);
    TRY(baton_group_create_self(ranks->engines[0], &group));
    support_ok(baton_group_destroy(group));
    support_cluster_close(ranks);
}

TEST(test_memory_of_groups)
{
    try_each(create_inproc);
    try_each(create_group);
    try_each(create_group_of_one);
}

/* ---- schedules --------------------------------------------------------- */

static float vectors[RANKS][COUNT];

/* Adds a node with every adder, and many nodes and edges; also a k-of-n before
   an enclosed all-reduce. */
static void build(baton_schedule_t *schedule, int rank)
{
    baton_view_t all =
        support_view(schedule, vectors[rank], sizeof vectors[rank]);
    const baton_allreduce_args_t args = {.size = sizeof args,
                                         .source = all,
                                         .target = all,
                                         .dtype = BATON_F32,
                                         .op = BATON_SUM,
                                         .chunk_bytes = 64};
    baton_node_t begin =
        baton_add_activation(schedule, baton_add_on_start(schedule));
    baton_node_t end = baton_add_nop(schedule);
    baton_node_t last = baton_add_nop(schedule);
    for (int i = 0; i < 100; i++) {
        baton_node_t call = baton_add_call(schedule, support_succeed, NULL);
        baton_buffer_t scratch = baton_buffer_scratch(schedule, 64);
        baton_node_t copy = baton_add_copy(schedule, baton_view(scratch, 0, 32),
                                           baton_view(scratch, 32, 32));
        baton_before(schedule, begin, call);
        baton_before(schedule, call, copy);
        baton_before(schedule, copy, end);
    }
    baton_set_need(schedule, end, 50);
    baton_enclosure_t mark = baton_enclose_begin(schedule);
    baton_add_allreduce_ring(schedule, &args);
    baton_enclose_end(schedule, mark, end, last);
}

/* The name of the schedules on all ranks. It changes when rank 0 has destroyed
   its schedule. */
static const char *name;

static baton_schedule_t *make(baton_group_t *group, int rank)
{
    baton_schedule_t *s = support_schedule(group, name);
    build(s, rank);
    support_ok(baton_schedule_commit(s));
    return s;
}

/* Builds rank 0's schedule while an allocation fails. After a failure the
   schedule is committed again or, if the graph is incomplete, built again. */
static baton_schedule_t *make_first(baton_group_t *group)
{
    baton_schedule_t *s = NULL;
    name = "memory";
    trial_begin();
    baton_status_t status = baton_schedule_create(group, name, &s);
    if (status == BATON_OK) {
        build(s, 0);
        status = baton_schedule_commit(s);
    }
    trial_end(status);
    if (status != BATON_OK && s != NULL && s->sticky == BATON_OK) {
        support_ok(baton_schedule_commit(s));
    } else if (status != BATON_OK) {
        support_ok(baton_schedule_destroy(s));
        name = "once more";
        s = make(group, 0);
    }
    return s;
}

/* Two epochs: the elements, which are 1, become RANKS, and then RANKS
   squared. */
static void make_schedules(void)
{
    support_cluster_t *ranks = support_cluster_manual(RANKS);
    baton_schedule_t *schedules[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < COUNT; i++) {
            vectors[rank][i] = 1;
        }
        schedules[rank] = rank == 0 ? make_first(ranks->groups[0])
                                    : make(ranks->groups[rank], rank);
    }
    support_schedules_run(ranks, schedules);
    support_schedules_run(ranks, schedules);
    for (int rank = 0; rank < RANKS; rank++) {
        for (int i = 0; i < COUNT; i++) {
            assert_float_equal(vectors[rank][i], RANKS * RANKS, 0);
        }
        support_ok(baton_schedule_destroy(schedules[rank]));
    }
    support_cluster_close(ranks);
}

/* A single rank verifies its schedule alone. */
static void make_verified(void)
{
    support_cluster_t *ranks = support_cluster_manual(1);
    baton_schedule_t *s = make_first(ranks->groups[0]);
    support_schedules_run(ranks, &s);
    support_ok(baton_schedule_destroy(s));
    support_cluster_close(ranks);
}

TEST(test_memory_of_schedules)
{
    try_each(make_schedules);
}

TEST_BETWEEN(test_memory_of_a_verified_commit, stuck_verify_on,
             stuck_verify_off)
{
    try_each(make_verified);
}

/* ---- proofs --------------------------------------------------------- */

/* More sets and more values than there is memory for at first. */
enum { PROOF_RANKS = 20, MANY = 50 };

static void create_and_fill(void)
{
    baton_proof_t *poor = NULL;
    uint32_t elements[MANY] = {0};
    static const bool contributors[PROOF_RANKS] = {false, true};
    trial_begin();
    baton_status_t status = baton_proof_create(PROOF_RANKS, &poor);
    if (status == BATON_OK) {
        status = baton_proof_fill(poor, 1, 0, MANY, elements);
    }
    trial_end(status);
    if (poor == NULL) {
        return;
    }
    if (status != BATON_OK) {
        assert_int_equal(elements[0], 0);
        support_ok(baton_proof_fill(poor, 1, 0, MANY, elements));
    }
    support_ok(baton_proof_check(poor, contributors, 0, MANY, elements));
    assert_int_equal(baton_proof_destroy(poor), BATON_OK);
}

TEST(test_memory_of_a_proof)
{
    try_each(create_and_fill);
}

/* ---- sparse all-reduces ------------------------------------------------ */

static baton_sparse_options_t sparse_options;

/* If one rank has no memory, it tells the others, and no rank connects. */
static void create_sparse(void)
{
    support_cluster_t *ranks = support_cluster_manual(TEAMS);
    baton_sparse_t *sparse[TEAMS] = {NULL};
    trial_begin();
    baton_status_t status =
        baton_sparse_prepare(ranks->groups[0], &sparse_options, &sparse[0]);
    trial_stop();
    for (int rank = 1; rank < TEAMS && sparse[0] != NULL; rank++) {
        support_ok(baton_sparse_prepare(ranks->groups[rank], &sparse_options,
                                        &sparse[rank]));
    }
    for (int rank = TEAMS; rank-- > 0 && sparse[0] != NULL;) {
        status = baton_sparse_connect(sparse[rank], SUPPORT_WAIT_MS);
    }
    trial_expect(status);
    for (int rank = 0; rank < TEAMS; rank++) {
        support_ok(baton_sparse_destroy(sparse[rank]));
    }
    support_cluster_close(ranks);
}

TEST(test_memory_of_a_sparse)
{
    static const struct {
        baton_sparse_algorithm_t algorithm;
        int teams;
        bool partial, in_place;
    } each[] = {{BATON_SPARSE_SPARDL, 1, false, false},
                {BATON_SPARSE_SPARDL, 2, true, false},
                {BATON_SPARSE_SPARDL, TEAMS, false, true},
                {BATON_SPARSE_TOPKA, 1, false, false},
                {BATON_SPARSE_TOPKDSA, 1, false, false},
                {BATON_SPARSE_GTOPK, 1, true, false},
                {BATON_SPARSE_OKTOPK, 1, false, false},
                {BATON_SPARSE_REDSYNC, 1, false, false},
                {BATON_SPARSE_DENSE, 1, false, true}};
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        sparse_options = (baton_sparse_options_t){
            .size = sizeof sparse_options,
            .dtype = BATON_F32,
            .count = COUNT,
            .k = 10,
            .algorithm = each[i].algorithm,
            .teams = each[i].teams,
            .partial = each[i].partial,
            .in_place = each[i].in_place,
            .momentum = each[i].in_place ? 0 : 0.5,
        };
        try_each(create_sparse);
    }
}

/* The gradient of a step in parts. A contribution that fails may be repeated.
 */
static void step_sparse(void)
{
    support_cluster_t *one = support_cluster_manual(1);
    baton_sparse_result_t result;
    baton_sparse_t *s = NULL;
    support_ok(baton_sparse_create(one->groups[0], &sparse_options, -1, &s));
    TRY(baton_sparse_contribute(s, 0, COUNT, vectors[0]));
    support_ok(baton_sparse_start(s, NULL));
    support_ok(baton_sparse_wait(s, SUPPORT_WAIT_MS, &result));
    support_ok(baton_sparse_destroy(s));
    support_cluster_close(one);
}

TEST(test_memory_of_a_sparse_step)
{
    for (int i = 0; i < 3; i++) {
        sparse_options = (baton_sparse_options_t)BATON_SPARSE_OPTIONS;
        sparse_options.count = COUNT;
        sparse_options.k = 10;
        sparse_options.algorithm =
            i == 1 ? BATON_SPARSE_DENSE : BATON_SPARSE_TOPKA;
        sparse_options.partial = i == 2;
        try_each(step_sparse);
    }
}

/* ---- partial all-reduces, and calls that do all -------------------------- */

static baton_partial_options_t partial_options;

/* The other ranks never create theirs. */
static void create_partial(void)
{
    bool alone = partial_options.on_loss == BATON_ON_LOSS_CONTINUE;
    support_cluster_t *ranks = support_cluster_manual(alone ? 1 : TEAMS);
    baton_partial_t *partial = NULL;
    TRY(baton_partial_create(ranks->groups[0], &partial_options, &partial));
    support_ok(baton_partial_destroy(partial));
    support_cluster_close(ranks);
}

TEST(test_memory_of_a_partial)
{
    static const size_t counts[] = {COUNT / 2, COUNT / 2};
    partial_options = (baton_partial_options_t)BATON_PARTIAL_OPTIONS;
    partial_options.dtype = BATON_F32;
    partial_options.count = COUNT;
    partial_options.mode = BATON_QUORUM;
    partial_options.mode_ranks = 2;
    partial_options.tensors = 2;
    partial_options.counts = counts;
    try_each(create_partial);
    partial_options.mode_ranks = 1;
    partial_options.on_loss = BATON_ON_LOSS_CONTINUE;
    try_each(create_partial);
}

static bool keeps; /* the call keeps its schedule */

static void call_now(void)
{
    int32_t x = 1, y = 0;
    const size_t one = 1;
    const baton_operands_t on = {.source = &x,
                                 .target = &y,
                                 .counts = &one,
                                 .target_counts = &one,
                                 .dtype = BATON_I32};
    support_cluster_t *ranks = support_cluster_manual(1);
    baton_group_t *group = ranks->groups[0];
    TRY(keeps ? baton_allreduce_now(group, NULL, &x, 1, BATON_I32, BATON_SUM)
              : baton_now(group, baton_alltoallv_create, &on));
    assert_int_equal(keeps ? x : y, 1);
    support_cluster_close(ranks);
}

TEST(test_memory_of_a_call)
{
    for (int i = 0; i < 2; i++) {
        keeps = i == 0;
        try_each(call_now);
    }
}
