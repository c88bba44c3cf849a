/* Mistakes that users make, on 1 to 4 ranks. Each must end in an error that
   names the cause, the argument and the remedy, and none in a hang. After each
   row of the table comes the code that makes the mistake; often only the last
   rank makes it. Other tests have the mistakes that one rank can make by
   itself: test_dense (which also tests that each builder states what ranks
   compare), test_schedule, test_sparse and test_partial those in
   arguments, test_tuning those in names, test_wrong_use calls with NULL or in
   the wrong order, and mpi_errors those with MPI. test_timeouts tests ranks
   that are missing. */
#include "support/cluster.h"

#include <baton/coll.h>
#include <baton/memory.h>
#include <baton/tensors.h>

enum { COUNT = 8, BYTES = COUNT * 4, MOST_RANKS = 4, LATE_MS = 500 };

/* A rank, which has a thread of its own: the objects that it has made, and its
   first error. */
typedef struct rank {
    support_worker_t *worker;
    baton_group_t *group;
    int rank;
    bool odd; /* this is the last rank */
    baton_schedule_t *schedule;
    baton_partial_t *partial;
    baton_sparse_t *sparse;
    baton_tensors_t *tensors;
    void *memory; /* COUNT floats, from baton_memory_alloc */
    baton_status_t status;
    char text[1024];
} rank_t;

typedef struct mistake {
    int ranks;
    baton_status_t status;
    /* The texts that the message of one of the ranks must contain. */
    const char *words[5];
    void (*make)(rank_t *me);
    rank_t of[MOST_RANKS];
} mistake_t;

static bool ok(rank_t *me, baton_status_t status)
{
    if (status != BATON_OK && me->status == BATON_OK) {
        me->status = status;
        (void)snprintf(me->text, sizeof me->text, "%s", baton_error_message());
    }
    return status == BATON_OK;
}

static void run_rank(support_worker_t *worker)
{
    mistake_t *mistake = worker->arg;
    rank_t *me = &mistake->of[worker->rank];
    *me = (rank_t){.worker = worker,
                   .group = worker->group,
                   .rank = worker->rank,
                   .odd = worker->rank == mistake->ranks - 1};
    if (ok(me, baton_memory_alloc(me->group, BYTES, &me->memory))) {
        memset(me->memory, 0, BYTES);
        mistake->make(me);
    }
}

static bool says(const rank_t *me, const mistake_t *mistake)
{
    bool all = me->status != BATON_OK;
    for (int i = 0; i < 5 && mistake->words[i] != NULL; i++) {
        all = all && strstr(me->text, mistake->words[i]) != NULL;
    }
    return all;
}

/* A rank that learns of another rank's failure before its own start gets
   BATON_ERR_FAILED, with the same text. After a mismatch it gets
   BATON_ERR_MISMATCH. */
static void check(const mistake_t *mistake)
{
    bool told = false;
    for (int rank = 0; rank < mistake->ranks; rank++) {
        const rank_t *me = &mistake->of[rank];
        if (me->status != BATON_OK && me->status != mistake->status &&
            (me->status != BATON_ERR_FAILED ||
             mistake->status == BATON_ERR_MISMATCH)) {
            fail_msg("rank %d: %s: %s", rank, baton_status_name(me->status),
                     me->text);
        }
        told = told || says(me, mistake);
    }
    if (!told) {
        fail_msg("ranks 0 and %d: \"%s\", \"%s\"", mistake->ranks - 1,
                 mistake->of[0].text, mistake->of[mistake->ranks - 1].text);
    }
}

static void run_mistake(void **state)
{
    mistake_t *mistake = *state;
    support_cluster_t *cluster =
        support_cluster_open(mistake->ranks, SUPPORT_OWN_ENGINES);
    support_cluster_run(cluster, run_rank, mistake);
    for (int rank = 0; rank < mistake->ranks; rank++) {
        rank_t *me = &mistake->of[rank];
        (void)!baton_schedule_cancel(me->schedule);
        (void)!baton_schedule_destroy(me->schedule);
        (void)!baton_partial_destroy(me->partial);
        (void)!baton_sparse_destroy(me->sparse);
        (void)!baton_tensors_destroy(me->tensors);
        support_ok(baton_memory_free(me->group, me->memory));
    }
    support_cluster_close(cluster);
    check(mistake);
}

/* ---- the table's rows --------------------------------------------------- */

#define MISTAKE(title, on, expected, ...)                                      \
    static void title(rank_t *me);                                             \
    static mistake_t of_##title = {.ranks = (on),                              \
                                   .status = BATON_ERR_##expected,             \
                                   .words = {__VA_ARGS__},                     \
                                   .make = (title)};                           \
    SUPPORT_ADD(title, run_mistake, NULL, NULL, &of_##title)                   \
    static void title(rank_t *me)

/* A mistake in arguments or options that are otherwise right. The statements
   after the words make it. */
#define WORDS(...) __VA_ARGS__
#define IN(with, type, title, on, expected, says, ...)                         \
    static void edit_##title(rank_t *me, type *in)                             \
    {                                                                          \
        __VA_ARGS__;                                                           \
    }                                                                          \
    MISTAKE(title, on, expected, WORDS says)                                   \
    {                                                                          \
        with(me, edit_##title);                                                \
    }
#define IN_SUM(...)     IN(with_sum, baton_allreduce_args_t, __VA_ARGS__)
#define IN_PARTIAL(...) IN(with_partial, baton_partial_options_t, __VA_ARGS__)
#define IN_SPARSE(...)  IN(with_sparse, baton_sparse_options_t, __VA_ARGS__)

#define IN_CREATED(title, noun, says, ...)                                     \
    MISTAKE(title, 2, MISMATCH, WORDS says)                                    \
    {                                                                          \
        const baton_operands_t on = {__VA_ARGS__};                             \
        (void)ok(me, baton_now(me->group, baton_##noun##_create, &on));        \
    }

static baton_schedule_t *create(rank_t *me, const char *name)
{
    (void)ok(me, baton_schedule_create(me->group, name, &me->schedule));
    return me->schedule;
}

static void start(rank_t *me)
{
    (void)(ok(me, baton_schedule_commit(me->schedule)) &&
           ok(me, baton_schedule_start(me->schedule)));
}

/* Waits twice, since some ranks may be missing: the machine may have been busy
   when the ranks asked each other. */
static void run(rank_t *me, int timeout_ms)
{
    start(me);
    if (me->status == BATON_OK) {
        baton_status_t status = baton_schedule_wait(me->schedule, timeout_ms);
        if (status == BATON_ERR_TIMEOUT) {
            status = baton_schedule_wait(me->schedule, timeout_ms);
        }
        (void)ok(me, status);
    }
}

static void with_sum(rank_t *me,
                     void (*edit)(rank_t *, baton_allreduce_args_t *))
{
    baton_allreduce_args_t args = BATON_ALLREDUCE_ARGS;
    (void)create(me, "grad");
    args.source = args.target = support_view(me->schedule, me->memory, BYTES);
    args.dtype = BATON_F32;
    args.op = BATON_SUM;
    edit != NULL ? edit(me, &args) : (void)0;
    baton_add_allreduce(me->schedule, &args);
    run(me, SUPPORT_WAIT_MS);
}

static void with_partial(rank_t *me,
                         void (*edit)(rank_t *, baton_partial_options_t *))
{
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    baton_partial_result_t result;
    options.count = COUNT;
    options.dtype = BATON_F32;
    edit != NULL ? edit(me, &options) : (void)0;
    (void)(ok(me, baton_partial_create(me->group, &options, &me->partial)) &&
           ok(me, baton_partial_start(me->partial)) &&
           ok(me, baton_partial_wait(me->partial, SUPPORT_WAIT_MS, &result)));
}

static void with_sparse(rank_t *me,
                        void (*edit)(rank_t *, baton_sparse_options_t *))
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.count = COUNT;
    options.density = 0.5;
    edit != NULL ? edit(me, &options) : (void)0;
    (void)(ok(me, baton_sparse_prepare(me->group, &options, &me->sparse)) &&
           ok(me, baton_sparse_connect(me->sparse, SUPPORT_WAIT_MS)));
}

static baton_view_t vector(rank_t *me, size_t bytes)
{
    return support_view(me->schedule, me->memory, bytes);
}

static void broadcast(rank_t *me, int root, size_t bytes)
{
    baton_broadcast_args_t args = BATON_BROADCAST_ARGS;
    (void)create(me, "grad");
    args.root = root;
    args.data = vector(me, BYTES);
    args.data.bytes = bytes;
    args.algorithm = "binomial";
    baton_add_broadcast(me->schedule, &args);
}

/* ---- mistakes of one rank ----------------------------------------------- */

IN_SUM(count_differs, 3, MISMATCH,
       ("rank 2 has source of 7 elements", "source of 8 elements",
        "must be the same on all ranks"),
       in->source.bytes = in->target.bytes = BYTES - 4u * me->odd)

/* The different counts may also have led to different algorithms. */
IN_CREATED(created_count_differs, allreduce,
           ("rank 1 has count 7 of f32", "rank 0 has count 8 of f32"),
           .target = me->memory, .count = COUNT - me->odd, .dtype = BATON_F32,
           .op = BATON_SUM, .algorithm = me->odd ? "ring" : "binomial")

/* The ranks move the same number of bytes, but as elements of another type. */
IN_CREATED(scattered_dtype_differs, scatter,
           ("rank 1 has count 4 of i32", "rank 0 has count 4 of f32"),
           .source = me->odd ? NULL : me->memory,
           .target = me->odd ? me->memory : NULL, .count = 4,
           .dtype = me->odd ? BATON_I32 : BATON_F32)
IN_CREATED(gathered_dtype_differs, allgatherv,
           ("rank 1 has i32", "rank 0 has f32"), .target = me->memory,
           .counts = (const size_t[]){1, 3},
           .dtype = me->odd ? BATON_I32 : BATON_F32)

IN_SUM(algorithm_differs, 2, MISMATCH,
       ("by ring", "by recursive_doubling", "BATON_CALIBRATION"),
       in->algorithm = me->odd ? "ring" : "recursive_doubling")

/* One rank chooses by name the algorithm whose function the other calls. */
MISTAKE(op_of_the_named_differs, 2, MISMATCH, "rank 1 has op max", "has op sum")
{
    baton_schedule_t *in = create(me, "grad");
    baton_allreduce_args_t args = BATON_ALLREDUCE_ARGS;
    args.source = args.target = support_view(in, me->memory, BYTES);
    args.dtype = BATON_F32;
    args.op = me->odd ? BATON_MAX : BATON_SUM;
    args.algorithm = "ring";
    (me->odd ? baton_add_allreduce_ring : baton_add_allreduce)(in, &args);
    run(me, SUPPORT_WAIT_MS);
}

MISTAKE(blocks_differ, 3, MISMATCH, "rank 2 has block_bytes[2] 12",
        "block_bytes[2] 16")
{
    baton_schedule_t *in = create(me, "grad");
    const size_t blocks[] = {8, 8, me->odd ? 12 : 16};
    baton_rooted_args_t args = BATON_ROOTED_ARGS;
    args.target = me->rank == 0 ? vector(me, BYTES) : args.target;
    args.source = support_scratch(in, blocks[me->rank]);
    args.block_bytes = blocks;
    baton_add_gather(in, &args);
    run(me, SUPPORT_WAIT_MS);
}

MISTAKE(collective_differs, 3, MISMATCH, "barrier", "binomial broadcast")
{
    if (me->odd) {
        broadcast(me, 0, BYTES);
    } else {
        baton_add_barrier(create(me, "grad"));
    }
    run(me, SUPPORT_WAIT_MS);
}

/* The message does not depend on which rank commits first. */
MISTAKE(name_differs, 2, TIMEOUT, "\"gard\"", "\"grad\"", "not created it")
{
    (void)create(me, me->odd ? "gard" : "grad");
    baton_add_barrier(me->schedule);
    run(me, LATE_MS);
}

IN_PARTIAL(mode_differs, 2, MISMATCH, ("mode SOLO", "mode MAJORITY"),
           in->mode = me->odd ? BATON_MAJORITY : BATON_SOLO)

IN_PARTIAL(seed_differs, 2, MISMATCH, ("rank 1 has seed 2", "seed 1"),
           in->seed = 1u + me->odd)

IN_PARTIAL(partial_fails_on_loss, 4, MISMATCH,
           ("rank 3 has on_loss fail", "has on_loss continue"),
           in->on_loss = me->odd ? BATON_ON_LOSS_FAIL : BATON_ON_LOSS_CONTINUE)
IN_PARTIAL(partial_op_differs, 2, MISMATCH, ("rank 1 has op max", "op sum"),
           in->op = me->odd ? BATON_MAX : BATON_SUM)

/* The difference comes after the terms that ranks exchange at first. */
IN_PARTIAL(
    late_count_differs, 2, MISMATCH,
    ("rank 1 has counts[700] 2", "rank 0 has counts[700] 1", "(both have \"...",
     "counts[699] 1\" before it)"),
    static _Thread_local size_t counts[800];
    for (int i = 0; i < 800; i++) { counts[i] = 1; } counts[700] += me->odd;
    counts[703] -= me->odd; in->count = 0; in->tensors = 800;
    in->counts = counts)

IN_PARTIAL(inner_differs, 2, MISMATCH, ("by ring", "by recursive doubling"),
           in->inner = me->odd ? baton_add_allreduce_ring
                               : baton_add_allreduce_recursive_doubling)

IN_SPARSE(density_differs, 3, MISMATCH,
          ("rank 2 has density 0.25", "density 0.5"),
          in->density = me->odd ? 0.25 : 0.5)

IN_SPARSE(sparse_fails_on_loss, 4, MISMATCH,
          ("rank 3 has on_loss fail", "has on_loss continue"),
          in->partial = true;
          in->on_loss = me->odd ? BATON_ON_LOSS_FAIL : BATON_ON_LOSS_CONTINUE)

MISTAKE(tensors_differ, 2, MISMATCH, "rank 1 has count of bias 8",
        "rank 0 has count of bias 16")
{
    const baton_tensor_t tensors[] = {
        {.name = "weight", .count = 64},
        {.name = "bias", .count = me->odd ? 8 : 16}};
    const baton_tensors_options_t options = BATON_TENSORS_OPTIONS;
    (void)ok(me, baton_tensors_create(me->group, tensors, 2, &options,
                                      SUPPORT_WAIT_MS, &me->tensors));
}

/* ---- ranks that are missing --------------------------------------------- */

MISTAKE(destroyed_on_one, 2, STATE, "\"grad\" was destroyed on rank 1")
{
    (void)create(me, "grad");
    baton_add_barrier(me->schedule);
    run(me, SUPPORT_WAIT_MS);
    if (me->odd) {
        (void)ok(me, baton_schedule_destroy(me->schedule));
        me->schedule = NULL;
    } else if (ok(me, baton_schedule_start(me->schedule))) {
        (void)ok(me, baton_schedule_wait(me->schedule, SUPPORT_WAIT_MS));
    }
}

/* Rank 3 waits for ranks that wait in a circle. */
MISTAKE(circular_waits, 4, TIMEOUT, "on rank 3",
        "ranks wait for each other: 2 for 1 for 0 for 2 ")
{
    baton_schedule_t *in = create(me, "grad");
    baton_node_t recv =
        baton_add_recv(in, (me->rank + 2) % 3, vector(me, BYTES));
    for (int to = (me->rank + 1) % 3; to < 4 && !me->odd; to += 3) {
        baton_before(in, recv,
                     baton_add_send(in, to, support_scratch(in, BYTES)));
    }
    run(me, LATE_MS);
}

/* ---- lifetimes ---------------------------------------------------------- */

MISTAKE(freed_early, 2, BUSY, "baton_memory_free", "\"grad\", whose epoch 1",
        "wait for it")
{
    broadcast(me, 0, BYTES);
    if (me->odd) {
        start(me);
        (void)ok(me, baton_memory_free(me->group, me->memory));
    }
}

MISTAKE(used_after_destroy, 1, INVALID, "baton_schedule_start",
        "schedule \"grad\" was destroyed")
{
    with_sum(me, NULL);
    baton_schedule_t *gone = me->schedule;
    me->schedule = NULL;
    if (ok(me, baton_schedule_destroy(gone))) {
        (void)ok(me, baton_schedule_start(gone));
        support_expect(baton_schedule_wait(gone, 0), BATON_ERR_INVALID);
        support_expect(baton_schedule_destroy(gone), BATON_ERR_INVALID);
        assert_int_equal(baton_add_nop(gone).index, UINT32_MAX);
        assert_null(baton_schedule_group(gone));
    }
}

MISTAKE(partial_after_destroy, 1, INVALID, "baton_partial_contribute",
        "partial was destroyed")
{
    with_partial(me, NULL);
    if (ok(me, baton_partial_destroy(me->partial))) {
        (void)ok(me, baton_partial_contribute(me->partial, me->memory));
    }
}

MISTAKE(sparse_after_destroy, 1, INVALID, "start", "sparse was destroyed")
{
    with_sparse(me, NULL);
    if (ok(me, baton_sparse_destroy(me->sparse))) {
        (void)ok(me, baton_sparse_start(me->sparse, me->memory));
    }
}

MISTAKE(group_after_destroy, 1, INVALID, "baton_schedule_create",
        "group was destroyed")
{
    baton_group_t *alone = NULL;
    (void)(ok(me,
              baton_group_create_self(baton_group_engine(me->group), &alone)) &&
           ok(me, baton_group_destroy(alone)) &&
           ok(me, baton_schedule_create(alone, "grad", &me->schedule)));
    support_expect(baton_barrier_now(alone), BATON_ERR_INVALID);
    support_expect(baton_group_create_sub(alone, &(int){0}, 1, "x", &alone),
                   BATON_ERR_INVALID);
}

MISTAKE(group_before_schedule, 2, BUSY, "\"grad\"", "destroy them first")
{
    (void)create(me, "grad");
    (void)ok(me, baton_group_destroy(me->group));
}

MISTAKE(engine_before_group, 2, BUSY, "a group", "destroy its groups first")
{
    (void)ok(me, baton_engine_close(baton_group_engine(me->group)));
}

MISTAKE(medium_before_group, 2, BUSY, "rank 0", "destroy it first")
{
    (void)ok(me, baton_inproc_destroy(me->worker->cluster->inproc));
}

/* ---- arguments ---------------------------------------------------------- */

MISTAKE(data_past_the_buffer, 2, INVALID, "data is 64 bytes at 0 of buffer 0")
{
    broadcast(me, 0, 2 * BYTES);
    run(me, SUPPORT_WAIT_MS);
}

IN_SUM(no_buffer, 2, INVALID, ("source names buffer 7", "baton_buffer_bind"),
       in->source.buffer.index = in->target.buffer.index = 7)

IN_SUM(input_as_target, 2, INVALID, ("bound as an input", "baton_buffer_bind"),
       in->source.buffer = in->target.buffer =
           baton_buffer_bind_input(me->schedule, me->memory, BYTES))

IN_SUM(no_memory_bound, 2, INVALID, ("no memory is bound to buffer 1"),
       in->source = in->target = support_view(me->schedule, NULL, BYTES))

/* ---- the order of calls ------------------------------------------------- */

MISTAKE(start_twice, 2, BUSY, "epoch 1 is still running", "wait for it",
        "a depth of 2 or more")
{
    (void)create(me, "grad");
    baton_add_barrier(me->schedule);
    if (me->odd) {
        start(me);
        (void)ok(me, baton_schedule_start(me->schedule));
    }
}

static int hurry(void **state)
{
    support_set_variable("BATON_DESTROY_MS", "500");
    return 0;
}

RUN_TESTS_BETWEEN(hurry, NULL)
