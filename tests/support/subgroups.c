#include "support/subgroups.h"
#include "support/cluster.h"

#include <baton/partial.h>
#include <baton/sparse.h>
#include <baton/tuning.h>

enum { RANKS = 8, GROUPS = 12, MOST = 5000, ENTRIES = 16 };

typedef struct some {
    bool exists;
    int size;
    int members[RANKS];   /* an array of [members]: ranks in the first group */
    baton_group_t *group; /* NULL: this rank is not a member */
} some_t;

typedef struct run {
    some_t groups[GROUPS]; /* the first one has all ranks */
    int rank;              /* this rank's rank in the first group */
    /* A random generator that gives the same numbers on all ranks. */
    support_random_t dice;
    char message[400];
} run_t;

static _Thread_local run_t run;

static int below(int n)
{
    return (int)support_random_below(&run.dice, (uint64_t)n);
}

static bool check(bool right, const char *what)
{
    if (!right && run.message[0] == '\0') {
        (void)snprintf(run.message, sizeof run.message, "rank %d: %s: %s",
                       run.rank, what, baton_error_message());
    }
    return right;
}

static bool ok(baton_status_t status, const char *what)
{
    return check(status == BATON_OK, what);
}

static some_t *random_group(bool exists)
{
    int first = below(GROUPS);
    for (int i = 0; i < GROUPS; i++) {
        some_t *some = &run.groups[(first + i) % GROUPS];
        if (some->exists == exists) {
            return some;
        }
    }
    return NULL;
}

/* Makes a group of some ranks of another group. They are in random order in the
   new group. */
static void make(void)
{
    some_t *some = random_group(false);
    const some_t *of = random_group(true);
    const char *name = below(2) == 0 ? "some" : "others";
    int ranks[RANKS] = {0};
    if (some == NULL) {
        return;
    }
    *some = (some_t){.exists = true, .size = 1 + below(of->size)};
    for (int i = 0; i < of->size; i++) {
        int at = below(i + 1);
        ranks[i] = ranks[at];
        ranks[at] = i;
    }
    bool mine = false;
    for (int i = 0; i < some->size; i++) {
        some->members[i] = of->members[ranks[i]];
        mine |= some->members[i] == run.rank;
    }
    if (mine && ok(baton_group_create_sub(of->group, ranks, some->size, name,
                                          &some->group),
                   "create")) {
        for (int i = 0; i < some->size; i++) {
            (void)check(baton_group_origin(some->group, i) == ranks[i],
                        "origin");
        }
        int rank = baton_group_rank(some->group);
        (void)check(some->members[rank] == run.rank, "its own rank");
    }
}

static void destroy(some_t *some)
{
    (void)ok(baton_group_destroy(some->group), "destroy");
    *some = (some_t){.exists = false};
}

/* ---- use of a group ------------------------------------------------------ */

static uint64_t sum_of(const some_t *some)
{
    uint64_t sum = 0;
    for (int i = 0; i < some->size; i++) {
        sum += (uint64_t)(1 << some->members[i]);
    }
    return sum;
}

/* Runs an all-reduce and checks its sum. If `fails`, begins with an epoch that
   the first member cancels, and with a recovery of the group. */
static void reduce(const some_t *some, size_t count, bool fails)
{
    static _Thread_local uint64_t vector[MOST];
    baton_schedule_t *s;
    if (!ok(baton_schedule_create(some->group, "sum", &s), "sum")) {
        return;
    }
    baton_view_t view = support_view(s, vector, count * sizeof *vector);
    baton_add_allreduce(
        s, &(baton_allreduce_args_t){.size = sizeof(baton_allreduce_args_t),
                                     .source = view,
                                     .target = view,
                                     .dtype = BATON_U64,
                                     .op = BATON_SUM});
    (void)ok(baton_schedule_commit(s), "commit");
    if (fails) {
        if (baton_schedule_start(s) == BATON_OK &&
            run.rank == some->members[0]) {
            (void)!baton_schedule_cancel(s);
        }
        (void)ok(baton_group_recover(some->group, SUPPORT_WAIT_MS), "recover");
    }
    for (size_t i = 0; i < count; i++) {
        vector[i] = (uint64_t)(1 << run.rank) * (i + 1);
    }
    if (ok(baton_schedule_start(s), "start") &&
        ok(baton_schedule_wait(s, SUPPORT_WAIT_MS), "wait")) {
        (void)check(vector[0] == sum_of(some), "the first element's sum");
        (void)check(vector[count - 1] == sum_of(some) * count,
                    "the last element's sum");
    }
    (void)ok(baton_schedule_destroy(s), "destroy of sum");
}

static void run_partial(const some_t *some)
{
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    baton_partial_result_t result;
    baton_partial_t *partial;
    uint64_t value = UINT64_C(1) << run.rank;
    options.mode = BATON_FULL;
    options.count = 1;
    options.dtype = BATON_U64;
    if (ok(baton_partial_create(some->group, &options, &partial), "partial")) {
        (void)ok(baton_partial_contribute(partial, &value), "contribute");
        (void)ok(baton_partial_start(partial), "start");
        if (ok(baton_partial_wait(partial, SUPPORT_WAIT_MS, &result), "step")) {
            (void)check(*(const uint64_t *)result.data == sum_of(some),
                        "the partial's sum");
        }
        (void)ok(baton_partial_destroy(partial), "destroy of partial");
    }
}

static void run_sparse(const some_t *some)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    baton_sparse_result_t result;
    baton_sparse_t *sparse;
    float gradient[ENTRIES] = {[3] = (float)(1 << run.rank)};
    options.dtype = BATON_F32;
    options.count = options.k = ENTRIES;
    if (ok(baton_sparse_create(some->group, &options, SUPPORT_WAIT_MS, &sparse),
           "sparse")) {
        (void)ok(baton_sparse_start(sparse, gradient), "start");
        if (ok(baton_sparse_wait(sparse, SUPPORT_WAIT_MS, &result), "step") &&
            ok(baton_sparse_dense(sparse, gradient), "dense")) {
            (void)check(gradient[3] == (float)sum_of(some), "the sparse sum");
        }
        (void)ok(baton_sparse_destroy(sparse), "destroy of sparse");
    }
}

static void use(const some_t *some)
{
    int how = below(8);
    size_t count = 1 + (size_t)below(below(2) == 0 ? 8 : MOST);
    if (some->group == NULL) {
        return;
    }
    if (how == 0) {
        run_partial(some);
    } else if (how == 1) {
        run_sparse(some);
    } else {
        reduce(some, count, how == 2);
    }
}

const char *subgroups_run(baton_group_t *group, uint64_t seed, int rounds)
{
    run = (run_t){.rank = baton_group_rank(group),
                  .dice = support_random(seed, 91)};
    some_t *all = &run.groups[0];
    *all = (some_t){true, baton_group_size(group), {0}, group};
    for (int i = 0; i < all->size; i++) {
        all->members[i] = i;
    }
    for (int i = 0; i < rounds && run.message[0] == '\0'; i++) {
        int what = below(6);
        some_t *some = random_group(true);
        if (what < 2) {
            make();
        } else if (what == 2 && some != all) {
            destroy(some);
        } else {
            use(some);
        }
    }
    for (some_t *some; (some = random_group(true)) != NULL;) {
        destroy(some);
    }
    return run.message[0] != '\0' ? run.message : NULL;
}
