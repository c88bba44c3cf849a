/* Collectives by one call: created and then started, or completed by the call;
   in place and not; with blocks of equal and of different sizes. */
#include "base/alloc.h"
#include "progress/driving/engine.h"
#include "support/cluster.h"
#include "transport/group.h"

#include <baton/coll.h>

enum { LARGEST = 8, MOST = 9 * LARGEST };

typedef struct vectors {
    int64_t source[MOST], target[MOST];
} vectors_t;

static int64_t value(int rank, size_t i)
{
    return 1000 * (int64_t)(rank + 1) + (int64_t)i;
}

static int64_t sum(int from, int to, size_t i)
{
    int64_t all = 0;
    for (int r = from; r < to; r++) {
        all += value(r, i);
    }
    return all;
}

static void fill(vectors_t *v, int rank, bool in_place)
{
    for (size_t i = 0; i < MOST; i++) {
        v->source[i] = value(rank, i);
        v->target[i] = in_place ? value(rank, i) : -1;
    }
}

/* The number of elements of rank r's block, if blocks differ, and the index of
   its first element. (Rank 2's block is longer than all before it.) */
static size_t uneven(int rank, size_t count)
{
    return (const size_t[]){count, 0, count + 2}[rank % 3];
}

static size_t begin_of(int rank, size_t count)
{
    size_t at = 0;
    for (int r = 0; r < rank; r++) {
        at += uneven(r, count);
    }
    return at;
}

static void ok(support_worker_t *w, baton_status_t status)
{
    (void)support_worker_ok(w, status);
}

/* Runs one case on one rank: by a call that completes it, and by a schedule
   that is created and started. */
static void run(support_worker_t *w, baton_create_fn *create,
                baton_operands_t on)
{
    baton_schedule_t *s = NULL;
    on.dtype = BATON_I64;
    ok(w, baton_now(w->group, create, &on));
    (void)(support_worker_ok(w, create(w->group, &on, &s)) &&
           support_worker_run(w, s) && support_worker_run(w, s));
    ok(w, baton_schedule_destroy(s));
}

static void check(support_worker_t *w, bool right, const char *what)
{
    (void)support_worker_check(w, right, "%s", what);
}

/* Checks `n` elements, from `first` on, of the sum over these ranks. */
static void check_sum(support_worker_t *w, const int64_t *data, size_t n,
                      int from, int to, size_t first, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        check(w, data[i] == sum(from, to, first + i), what);
    }
}

/* Checks `n` elements, from `first` on, of one rank's source. */
static void check_block(support_worker_t *w, const int64_t *data, size_t n,
                        int rank, size_t first, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        check(w, data[i] == value(rank, first + i), what);
    }
}

/* Checks `n` elements, from `first` on, of each rank's source. */
static void check_each(support_worker_t *w, const int64_t *data, size_t n,
                       size_t first, const char *what)
{
    for (int r = 0; r < baton_group_size(w->group); r++) {
        check_block(w, data + (size_t)r * n, n, r, first, what);
    }
}

static void check_reductions(support_worker_t *w, size_t n, int size)
{
    vectors_t v;
    int root = size / 2;
    fill(&v, w->rank, false);
    baton_operands_t on = {
        .source = v.source, .target = v.target, .count = n, .op = BATON_SUM};
    run(w, baton_allreduce_create, on);
    check_sum(w, v.target, n, 0, size, 0, "allreduce");
    run(w, baton_scan_create, on);
    check_sum(w, v.target, n, 0, w->rank + 1, 0, "scan");
    run(w, baton_exscan_create, on);
    check_sum(w, v.target, w->rank > 0 ? n : 0, 0, w->rank, 0, "exscan");
    on.root = root;
    run(w, baton_reduce_create, on);
    check_sum(w, v.target, w->rank == root ? n : 0, 0, size, 0, "reduce");
}

static void check_reduce_scatter(support_worker_t *w, size_t n, int size)
{
    vectors_t v;
    size_t counts[LARGEST];
    for (int r = 0; r < size; r++) {
        counts[r] = uneven(r, n);
    }
    for (int way = 0; way < 4; way++) {
        bool in_place = way % 2 == 1;
        bool by_counts = way >= 2;
        size_t at = by_counts ? begin_of(w->rank, n) : n * (size_t)w->rank;
        baton_schedule_t *s = NULL;
        const baton_operands_t on = {.source = in_place ? NULL : v.source,
                                     .target = v.target,
                                     .count = by_counts ? 0 : n,
                                     .dtype = BATON_I64,
                                     .op = BATON_SUM,
                                     .counts = by_counts ? counts : NULL};
        fill(&v, w->rank, in_place);
        (void)(support_worker_ok(
                   w, baton_reduce_scatter_create(w->group, &on, &s)) &&
               support_worker_run(w, s));
        check_sum(w, v.target, by_counts ? counts[w->rank] : n, 0, size, at,
                  "reduce_scatter");
        ok(w, baton_schedule_destroy(s));
    }
}

static void check_blocks(support_worker_t *w, size_t n, int size)
{
    vectors_t v;
    int root = size - 1;
    size_t counts[LARGEST];
    size_t own = uneven(w->rank, n);
    for (int r = 0; r < size; r++) {
        counts[r] = uneven(r, n);
    }
    fill(&v, w->rank, false);
    baton_operands_t on = {.source = v.source, .target = v.target, .count = n};
    run(w, baton_allgather_create, on);
    check_each(w, v.target, n, 0, "allgather");
    memmove(v.target + n * (size_t)w->rank, v.source, n * sizeof *v.source);
    on.source = NULL;
    run(w, baton_allgather_create, on);
    check_each(w, v.target, n, 0, "in place");
    on.source = v.source;
    run(w, baton_alltoall_create, on);
    check_each(w, v.target, n, n * (size_t)w->rank, "alltoall");
    on.root = root;
    run(w, baton_gather_create, on);
    check_each(w, v.target, w->rank == root ? n : 0, 0, "gather");
    run(w, baton_scatter_create, on);
    check_block(w, v.target, n, root, n * (size_t)w->rank, "scatter");
    run(w, baton_broadcast_create,
        (baton_operands_t){.target = v.source, .count = n, .root = root});
    check_block(w, v.source, n, root, 0, "broadcast");
    fill(&v, w->rank, false);
    run(w, baton_allgatherv_create,
        (baton_operands_t){
            .source = v.source, .target = v.target, .counts = counts});
    for (int r = 0; r < size; r++) {
        check_block(w, v.target + begin_of(r, n), counts[r], r, 0,
                    "allgatherv");
    }
    on.count = w->rank == root ? 0 : own;
    on.counts = w->rank == root ? counts : NULL;
    run(w, baton_gatherv_create, on);
    for (int r = 0; r < size && w->rank == root; r++) {
        check_block(w, v.target + begin_of(r, n), counts[r], r, 0, "gatherv");
    }
    if (w->rank == root) { /* the root's own block stays where it is */
        on.target = NULL;
    }
    run(w, baton_scatterv_create, on);
    check_block(w, v.target, w->rank != root ? own : 0, root,
                begin_of(w->rank, n), "scatterv");
    size_t mine[LARGEST];
    for (int r = 0; r < size; r++) {
        mine[r] = own;
    }
    fill(&v, w->rank, false);
    run(w, baton_alltoallv_create,
        (baton_operands_t){.source = v.source,
                           .target = v.target,
                           .counts = mine,
                           .target_counts = counts});
    for (int r = 0; r < size; r++) {
        check_block(w, v.target + begin_of(r, n), counts[r], r,
                    counts[r] * (size_t)w->rank, "alltoallv");
    }
}

static void check_now(support_worker_t *w, size_t n, int size)
{
    vectors_t v[2];
    /* The calls use other vectors of the same shape. */
    for (int call = 0; call < 4; call++) {
        vectors_t *at = &v[call % 2];
        bool in_place = (call >= 2) != (n == 1);
        fill(at, w->rank, in_place);
        const int64_t *source = in_place ? NULL : at->source;
        ok(w, baton_allreduce_now(w->group, source, at->target, n, BATON_I64,
                                  BATON_SUM));
        check_sum(w, at->target, n, 0, size, 0, "allreduce_now");
        fill(at, w->rank, in_place);
        ok(w, baton_reduce_now(w->group, source, at->target, n, BATON_I64,
                               BATON_SUM, size - 1));
        check_sum(w, at->target, w->rank == size - 1 ? n : 0, 0, size, 0,
                  "reduce_now");
        fill(at, w->rank, in_place);
        ok(w, baton_reduce_scatter_now(w->group, source, at->target, n,
                                       BATON_I64, BATON_SUM));
        check_sum(w, at->target, n, 0, size, n * (size_t)w->rank,
                  "reduce_scatter_now");
        fill(at, w->rank, false);
        int64_t *own = at->target + n * (size_t)w->rank;
        memcpy(own, at->source, n * sizeof *own);
        ok(w, baton_allgather_now(w->group, in_place ? NULL : at->source,
                                  at->target, n, BATON_I64));
        check_each(w, at->target, n, 0, "allgather_now");
        ok(w, baton_broadcast_now(w->group, at->source, n, BATON_I64, 0));
        check_block(w, at->source, n, 0, 0, "broadcast_now");
        ok(w, baton_barrier_now(w->group));
    }
}

/* Calls with more shapes than a group keeps schedules for. */
static void check_many(support_worker_t *w, int size)
{
    vectors_t v;
    for (size_t i = 0; i < 100; i++) {
        size_t n = 1 + i % 50;
        fill(&v, w->rank, false);
        ok(w, baton_allreduce_now(w->group, v.source, v.target, n, BATON_I64,
                                  BATON_SUM));
        check(w, v.target[n - 1] == sum(0, size, n - 1), "many shapes");
    }
}

static void work(support_worker_t *w)
{
    static const size_t counts[] = {0, 1, 7};
    int size = baton_group_size(w->group);
    baton_schedule_t *s = NULL;
    (void)(support_worker_ok(w, baton_barrier_create(w->group, NULL, &s)) &&
           support_worker_run(w, s));
    ok(w, baton_schedule_destroy(s));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_reductions(w, counts[i], size);
        check_reduce_scatter(w, counts[i], size);
        check_blocks(w, counts[i], size);
        check_now(w, counts[i], size);
    }
    check_many(w, size);
}

TEST(test_results)
{
    static const int sizes[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        support_cluster_t *cluster =
            support_cluster_open(sizes[i], SUPPORT_OWN_ENGINES);
        support_cluster_run(cluster, work, NULL);
        support_cluster_close(cluster);
    }
}

static void sum_type(support_worker_t *w)
{
    char source[3 * 16] = {0};
    char target[3 * 16];
    for (int type = 1; type < BATON_DTYPE_COUNT; type++) {
        const baton_op_t *op = type == BATON_BOOL ? BATON_LOR : BATON_SUM;
        op = type >= BATON_I16_I32 ? BATON_MAXLOC : op;
        memset(target, 1, sizeof target);
        ok(w, baton_allreduce_now(w->group, source, target, 3,
                                  (baton_dtype_t)type, op));
        check(w,
              memcmp(source, target,
                     3 * baton_dtype_size((baton_dtype_t)type)) == 0,
              "a sum of zeros");
    }
}

TEST_EACH(test_every_type, 2)
{
    if (cluster->engine_count == cluster->size) {
        support_cluster_run(cluster, sum_type, NULL);
    }
}

static void call_late(support_worker_t *w)
{
    int64_t x = 1, y = 0;
    for (int i = 0; i < 2 && w->rank < 2; i++) {
        baton_status_t status = i == 0
                                    ? baton_barrier_now(w->group)
                                    : baton_allreduce_now(w->group, &x, &y, 1,
                                                          BATON_I64, BATON_SUM);
        (void)support_worker_check(
            w,
            status == BATON_ERR_TRANSPORT &&
                strstr(baton_error_message(), "rank 2 is gone") != NULL,
            "call %d: %s: %s", i, baton_status_text(status),
            baton_error_message());
    }
}

static void meet(support_worker_t *w)
{
    ok(w, baton_barrier_now(w->group));
}

/* The ranks make these calls after they have lost another rank. They have
   learned of the loss by a schedule that failed then, and by a new one. */
TEST_WITH(test_late_calls_name_a_lost_rank, 3, SUPPORT_OWN_ENGINES)
{
    support_cluster_run(cluster, meet, NULL);
    for (int r = 0; r < 2; r++) {
        baton_group_t *group = cluster->groups[r];
        group->engine->driver->enter(group->engine);
        group->transport->lose(group->endpoint, 2, BATON_ERR_TRANSPORT,
                               "it is dead");
        group->engine->driver->leave(group->engine);
    }
    support_cluster_run(cluster, call_late, NULL);
}

/* Makes the call that two characters describe. `a`, `e` and `s` are an
   all-reduce, an exscan and a scan, and the digit is the number of elements.
   `r` is a broadcast, and the digit its root. `b` is a barrier. */
static baton_status_t call(support_worker_t *w, const char *what)
{
    int64_t x[2] = {1, 1}, y[2];
    const size_t n = (size_t)(what[1] - '0');
    const baton_operands_t on = {.source = x,
                                 .target = y,
                                 .count = n,
                                 .dtype = BATON_I64,
                                 .op = BATON_SUM};
    switch (what[0]) {
    case 'b':
        return baton_barrier_now(w->group);
    case 'r':
        return baton_broadcast_now(w->group, x, 1, BATON_I64, (int)n);
    case 'a':
        return baton_allreduce_now(w->group, x, y, n, BATON_I64, BATON_SUM);
    default:
        return baton_now(
            w->group, what[0] == 's' ? baton_scan_create : baton_exscan_create,
            &on);
    }
}

/* Each row has the calls that all ranks make first, so that they have schedules
   for them; the call that ranks 0 and 2 make then; and the different call of
   rank 1. */
static const char *const calls[][3] = {
    /* Each rank is the root of its own broadcast, so neither waits. */
    {"b0r0r1a1a2r0r1", "r1", "r0"},
    {"b0r0r1a1a2b0a1", "a1", "b0"},
    {"a1b0a1", "a1", "a2"},
    {"b0", "e1", "b0"},
    {"", "e1", "s1"},
    {"", "a1", "b0"},
    {"", "a1", "a2"}};

static void call_differently(support_worker_t *w)
{
    const char *const *all = w->arg;
    for (const char *what = all[0]; *what != '\0'; what += 2) {
        ok(w, call(w, what));
    }
    baton_status_t status = call(w, all[w->rank == 1 ? 2 : 1]);
    (void)support_worker_check(
        w,
        status == BATON_ERR_MISMATCH &&
            strstr(baton_error_message(), "rank 1 has") != NULL,
        "%s: %s", baton_status_text(status), baton_error_message());
    if (strlen(all[0]) > 2) {
        ok(w, baton_group_recover(w->group, SUPPORT_WAIT_MS));
        /* Perhaps only rank 1 has a schedule for this call. */
        ok(w, call(w, "a2"));
        meet(w);
    }
}

TEST(test_calls_that_differ)
{
    /* Ranks ask each other after an eighth of this. */
    support_set_variable("BATON_STALL_MS", "800");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        support_cluster_t *cluster =
            support_cluster_open(3 - (int)i % 2, SUPPORT_OWN_ENGINES);
        support_cluster_run(cluster, call_differently, (void *)calls[i]);
        support_cluster_close(cluster);
    }
    support_set_variable("BATON_STALL_MS", "86400000");
}

/* After a recovery ranks create new schedules for calls, whatever each rank had
   before it. */
static void recover(support_worker_t *w)
{
    int64_t x = 1;
    int64_t y[3] = {0};
    ok(w, baton_allreduce_now(w->group, &x, y, 1, BATON_I64, BATON_SUM));
    if (w->rank == 0) { /* only this rank starts the barrier, which fails */
        baton_schedule_t *s = NULL;
        ok(w, baton_barrier_create(w->group, NULL, &s));
        ok(w, baton_schedule_start(s));
        ok(w, baton_schedule_cancel(s));
        (void)!baton_schedule_wait(s, -1);
        ok(w, baton_schedule_destroy(s));
    }
    ok(w, baton_group_recover(w->group, SUPPORT_WAIT_MS));
    ok(w, baton_allreduce_now(w->group, &x, y, 1, BATON_I64, BATON_SUM));
    check(w, y[0] == 3, "a sum after a recovery");
}

TEST_WITH(test_recovery, 3, SUPPORT_OWN_ENGINES)
{
    support_cluster_run(cluster, recover, NULL);
}

static void refused(baton_status_t status, const char *text)
{
    support_fails(status, BATON_ERR_INVALID, text);
}

TEST_MANUALLY(test_wrong_arguments, 2)
{
    baton_group_t *group = cluster->groups[1];
    baton_schedule_t *s = NULL;
    int64_t x[4] = {0};
    size_t counts[2] = {1, 1};
    const baton_operands_t good = {
        .target = x, .count = 1, .dtype = BATON_I64, .op = BATON_SUM};
#define WRONG(call, text, ...)                                                 \
    do {                                                                       \
        baton_operands_t on = good;                                            \
        __VA_ARGS__;                                                           \
        refused(baton_##call##_create(group, &on, &s),                         \
                "baton_" #call "_create: " text);                              \
    } while (0)
    refused(baton_allreduce_create(NULL, &good, &s), "group is NULL");
    refused(baton_allreduce_create(group, NULL, &s), "operands is NULL");
    refused(baton_allreduce_create(group, &good, NULL), "out is NULL");
    WRONG(allreduce, "", on.op = NULL);
    support_says("op is NULL");
    WRONG(allreduce, "", on.dtype = BATON_DTYPE_NONE);
    support_says("dtype is 0");
    WRONG(allreduce, "target is NULL", on.target = NULL);
    WRONG(allreduce, "root must be 0", on.root = 1);
    WRONG(allreduce, "counts must be NULL", on.counts = counts);
    for (size_t i = 0; i < sizeof good.reserved / sizeof *good.reserved; i++) {
        WRONG(allreduce, "reserved must be NULL", on.reserved[i] = x);
    }
    WRONG(allgather, "target_counts must be NULL", on.op = NULL;
          on.target_counts = counts);
    WRONG(scatterv, "algorithm must be NULL", on.op = NULL;
          on.algorithm = "binomial");
    WRONG(broadcast, "", on.op = NULL; on.dtype = BATON_DTYPE_COUNT);
    support_says("dtype is 21");
    const size_t many[] = {1, SIZE_MAX / 8};
    WRONG(allgatherv, "count", on.op = NULL; on.count = 0; on.counts = many);
    WRONG(allreduce, "count is too large", on.count = SIZE_MAX / 2);
    WRONG(allgather, "op must be NULL", on.source = x);
    WRONG(allgatherv, "counts is NULL", on.op = NULL);
    WRONG(alltoallv, "target_counts is NULL", on.counts = counts);
    WRONG(broadcast, "source must be NULL", on.op = NULL; on.source = x);
    WRONG(allreduce, "source and target overlap", on.count = 2;
          on.source = x + 1);
    WRONG(scan, "source and target overlap", on.source = on.target);
    /* Overlaps are found even if the block is the first one. */
    for (int rank = 0; rank < 2; rank++) {
        group = cluster->groups[rank];
        WRONG(reduce_scatter, "source and target overlap", on.source = x);
        WRONG(reduce_scatter, "source and target overlap", on.source = x;
              on.target = x + rank);
        WRONG(allgather, "source and target overlap", on.op = NULL;
              on.source = on.target);
        WRONG(allgather, "source and target overlap", on.op = NULL;
              on.source = (int64_t *)on.target + rank);
        WRONG(alltoall, "source and target overlap", on.op = NULL;
              on.source = on.target);
    }
    WRONG(gather, "source is NULL: only the root may", on.op = NULL);
    WRONG(scatter, "source is NULL", on.op = NULL; on.root = 1;
          on.target = NULL);
    WRONG(gatherv, "counts must be NULL on all ranks but the root",
          on.op = NULL;
          on.counts = counts);
    for (int root = -1; root <= 2; root += 3) {
        const char *text = root < 0 ? "root is -1" : "root is 2";
        baton_operands_t on = good;
        on.root = root;
        refused(baton_reduce_create(group, &on, &s), text);
        on.op = NULL;
        refused(baton_scatterv_create(group, &on, &s), text);
    }
    baton_operands_t on = good;
    on.algorithm = "rng";
    refused(baton_reduce_create(group, &on, &s), "rng");
    refused(baton_scan_create(group, &on, &s), "rng");
    refused(baton_allreduce_now(group, x, NULL, 1, BATON_I64, BATON_SUM),
            "baton_allreduce_now: target is NULL");
    refused(baton_barrier_now(NULL), "baton_barrier_now: group is NULL");
    refused(baton_now(group, NULL, &good), "baton_now: create is NULL");
    refused(baton_now(group, baton_scan_create, NULL), "operands is NULL");
}
