#include "support/given_up.h"

#include "base/alloc.h"
#include "support/cluster.h"

enum {
    /* Number of rounds after which a round must not allocate any more. */
    WARMUP = 10,
    SHORT = 200,
    LONG = 1 << 16, /* number of elements of the long vector */
    WAIT_MS = 100000
};

typedef struct summed {
    baton_schedule_t *schedule;
    uint64_t *data; /* the vector, which the all-reduce sums in place */
    size_t count;
} summed_t;

/* Fills the vector. The first element is `first`, and each further one is
   larger by `step`. */
static void fill(const summed_t *sum, uint64_t first, uint64_t step)
{
    for (size_t i = 0; i < sum->count; i++) {
        sum->data[i] = first + step * i;
    }
}

static bool holds(const summed_t *sum, uint64_t first, uint64_t step)
{
    bool right = true;
    for (size_t i = 0; i < sum->count; i++) {
        right &= sum->data[i] == first + step * i;
    }
    return right;
}

/* Runs an epoch. If `fails`, tests it a random number of times, and then
   cancels it, unless it has ended. */
static baton_status_t try(const summed_t *sum, bool fails,
                          support_random_t *own)
{
    bool done = false;
    uint64_t looks = fails ? support_random_below(own, 60) : 0;
    baton_status_t status = baton_schedule_start(sum->schedule);
    if (status == BATON_ERR_FAILED &&
        strstr(baton_error_message(), "was cancelled") != NULL) {
        /* Another rank has cancelled the epoch before this rank started it. */
        return BATON_ERR_CANCELLED;
    }
    for (uint64_t i = 0; i < looks && status == BATON_OK && !done; i++) {
        status = baton_schedule_test(sum->schedule, &done);
    }
    if (fails && status == BATON_OK) {
        status = baton_schedule_cancel(sum->schedule);
        /* BATON_ERR_STATE means that the epoch had already ended. */
        status = status == BATON_ERR_STATE ? BATON_OK : status;
    }
    return status == BATON_OK ? baton_schedule_wait(sum->schedule, WAIT_MS)
                              : status;
}

/* Runs an epoch that may fail, then a recovery, then an epoch that must
   succeed. */
static const char *run_round(baton_group_t *group, const summed_t *sum,
                             bool fails, support_random_t *own)
{
    const uint64_t rank = (uint64_t)baton_group_rank(group);
    const uint64_t ranks = (uint64_t)baton_group_size(group);
    const uint64_t all = ranks * (ranks - 1) / 2;
    const uint64_t other = UINT64_C(0xeeeeeeeeeeeeeeee);
    fill(sum, rank, 1);
    baton_status_t status = try(sum, fails, own);
    if (status == BATON_OK
            ? !holds(sum, all, ranks)
            : status != BATON_ERR_CANCELLED && status != BATON_ERR_FAILED) {
        return "an epoch that is given up";
    }
    fill(sum, other, 0); /* this rank may use the memory again */
    if (baton_group_recover(group, WAIT_MS) != BATON_OK ||
        !holds(sum, other, 0)) {
        return "recovered, and nothing written behind its wait";
    }
    fill(sum, rank, 1);
    return try(sum, false, own) == BATON_OK && holds(sum, all, ranks)
               ? NULL
               : "a sum behind a recovery";
}

const char *given_up_run(baton_group_t *group, uint64_t seed, int rounds,
                         int64_t *allocated_out)
{
    static _Thread_local char message[700];
    const uint64_t rank = (uint64_t)baton_group_rank(group);
    const uint64_t ranks = (uint64_t)baton_group_size(group);
    support_random_t common = support_random(seed, 0);
    support_random_t own = support_random(seed, 1 + rank);
    summed_t sums[2] = {{.count = SHORT}, {.count = LONG}};
    int64_t before = 0;
    const char *wrong = NULL;
    for (int i = 0; i < 2 && wrong == NULL; i++) {
        sums[i].data = malloc(sums[i].count * 8);
        const baton_operands_t sum = {.target = sums[i].data,
                                      .count = sums[i].count,
                                      .dtype = BATON_U64,
                                      .op = BATON_SUM,
                                      .algorithm = i == 0 ? "recursive_doubling"
                                                          : "ring"};
        wrong = baton_allreduce_create(group, &sum, &sums[i].schedule)
                    ? "a create"
                    : NULL;
    }
    for (int round = 0; round < rounds && wrong == NULL; round++) {
        bool fails = support_random_below(&common, ranks) == rank;
        wrong = run_round(group, &sums[round % 4 == 3], fails, &own);
        before = round == WARMUP ? baton__alloc_count() : before;
    }
    *allocated_out = baton__alloc_count() - before;
    (void)snprintf(message, sizeof message, "rank %d, %s: %s", (int)rank,
                   wrong != NULL ? wrong : "", baton_error_message());
    for (int i = 0; i < 2; i++) {
        (void)!baton_schedule_destroy(sums[i].schedule);
        free(sums[i].data);
    }
    return wrong != NULL ? message : NULL;
}
