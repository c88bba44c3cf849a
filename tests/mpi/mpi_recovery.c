/* Failures over MPI, and optional messages: `mpi_recovery [ROUNDS]`. In each of
   1,000 rounds an epoch fails on random ranks at random places and is
   recovered, and no contribution is lost or counted twice. Ten times as many
   epochs skip sends and overtake optional receives at random, and no message
   meets an epoch that is not its own. BATON_SEED repeats a run; the exit code
   is the result. */
#include "base/alloc.h"
#include "support/mpi.h"
#include "support/random.h"
#include "support/sanitized.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARMUP = 50, /* rounds, after which nothing is allocated any more */
    STEPS = 4,   /* of a round, at most */
    COUNT = 257,
    LONG_BYTES = 1 << 20
};

static int rounds = SUPPORT_REPEAT(1000);

/* ---- epochs that fail ------------------------------------------------- */

/* The plan of a round, which is the same on all ranks. */
typedef struct plan {
    int failing_rank; /* -1: none fails */
    uint64_t epoch;
    bool late; /* behind the inner all-reduce, not before it */
    int steps;
    int partial;
} plan_t;

static plan_t plan;

/* A peer may begin the next round's epochs before this rank has sampled the
 * plan. */
static pthread_mutex_t plan_lock = PTHREAD_MUTEX_INITIALIZER;

static baton_status_t fail(uint64_t epoch, bool late)
{
    pthread_mutex_lock(&plan_lock);
    bool due = world.rank == plan.failing_rank && epoch == plan.epoch &&
               late == plan.late;
    pthread_mutex_unlock(&plan_lock);
    return due ? BATON_ERR_FAILED : BATON_OK;
}

static baton_status_t fail_before(void *arg, baton_call_t *call)
{
    return arg == &plan ? fail(baton_call_epoch(call), false)
                        : BATON_ERR_INVALID;
}

static baton_status_t fail_behind(void *arg, baton_call_t *call)
{
    return arg == &plan ? fail(baton_call_epoch(call), true)
                        : BATON_ERR_INVALID;
}

/* An all-reduce between two calls that may fail. */
static void build(baton_schedule_t *schedule, const baton_allreduce_t *args)
{
    baton_node_t before = baton_add_call(schedule, fail_before, args->arg);
    baton_node_t behind = baton_add_call(schedule, fail_behind, args->arg);
    baton_enclosure_t mark = baton_enclose_begin(schedule);
    baton_allreduce_recursive_doubling(schedule, args);
    baton_enclose_end(schedule, mark, before, behind);
}

typedef struct account {
    baton_partial_t *partial;
    uint64_t contributed[COUNT]; /* by this rank */
    uint64_t results[COUNT]; /* of all epochs, on the rank that saw the most */
} account_t;

static void open_account(account_t *account, baton_partial_mode_t mode)
{
    static const char *const names[] = {"solo", "majority", "full"};
    const baton_partial_options_t options = {.size = sizeof(options),
                                             .name = names[mode],
                                             .mode = mode,
                                             .keep = BATON_KEEP_ALL,
                                             .history = STEPS,
                                             .count = COUNT,
                                             .dtype = BATON_U64,
                                             .inner = build,
                                             .inner_arg = &plan};
    memset(account, 0, sizeof(*account));
    support_mpi_ok(
        baton_partial_create(world.group, &options, &account->partial));
}

static void contribute(account_t *account, support_random_t *random)
{
    uint64_t data[COUNT];
    for (int i = 0; i < COUNT; i++) {
        data[i] = support_random_below(random, 1000000);
        account->contributed[i] += data[i];
    }
    support_mpi_ok(baton_partial_contribute(account->partial, data));
}

/* Steps until one fails. Adds the results to `sum` and returns their number. */
static uint64_t run_steps(account_t *account, support_random_t *random,
                          uint64_t *sum)
{
    for (int step = 0; step < plan.steps; step++) {
        baton_partial_result_t result;
        contribute(account, random);
        baton_status_t status = baton_partial_start(account->partial);
        if (status == BATON_OK) {
            status = baton_partial_wait(account->partial, SUPPORT_MPI_WAIT_MS,
                                        &result);
        }
        if (status == BATON_ERR_CANCELLED) { /* it was committed that late */
            support_mpi_says("recovers their group after a failure");
            return (uint64_t)step;
        }
        if (status != BATON_OK) {
            support_mpi_expect(status, BATON_ERR_FAILED);
            return (uint64_t)step;
        }
        if (result.epoch != (uint64_t)step + 1) {
            support_mpi_die("a result of another epoch");
        }
        for (int i = 0; i < COUNT; i++) {
            sum[i] += ((const uint64_t *)result.data)[i];
        }
    }
    return (uint64_t)plan.steps;
}

/* Results are the same on all ranks; one may have seen more of them. */
static void add_results(account_t *account, uint64_t seen, uint64_t *sum)
{
    struct {
        int seen, rank;
    } mine = {(int)seen, world.rank}, most;
    MPI_Allreduce(&mine, &most, 1, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD);
    MPI_Bcast(sum, COUNT, MPI_UINT64_T, most.rank, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        account->results[i] += sum[i];
    }
}

/* All that was contributed is in a result, or pending. */
static void check_account(account_t *account)
{
    uint64_t mine[COUNT];
    uint64_t all[COUNT];
    bool any;
    support_mpi_ok(baton_partial_pending(account->partial, mine, &any));
    for (int i = 0; i < COUNT; i++) {
        mine[i] = account->contributed[i] - mine[i];
    }
    MPI_Allreduce(mine, all, COUNT, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (memcmp(all, account->results, sizeof(all)) != 0) {
        support_mpi_die("a contribution was lost, or counted twice");
    }
}

static void draw_plan(support_random_t *common)
{
    pthread_mutex_lock(&plan_lock);
    plan.failing_rank =
        (int)support_random_below(common, (uint64_t)world.size * 5 / 4 + 1);
    plan.failing_rank = plan.failing_rank < world.size ? plan.failing_rank : -1;
    plan.steps = 1 + (int)support_random_below(common, STEPS);
    plan.epoch = 1 + support_random_below(common, (uint64_t)plan.steps);
    plan.late = support_random_below(common, 2) != 0;
    plan.partial = (int)support_random_below(common, 3);
    pthread_mutex_unlock(&plan_lock);
}

/* A long all-reduce, which a rank cancels while it runs. */
static void cancel_one(baton_schedule_t *schedule, uint64_t *memory,
                       support_random_t *common)
{
    bool cancelled =
        world.rank == (int)support_random_below(common, (uint64_t)world.size);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < LONG_BYTES / 8; i++) {
            memory[i] = (uint64_t)world.rank + i;
        }
        baton_status_t status = baton_schedule_start(schedule);
        if (turn == 0 && cancelled && status == BATON_OK) {
            status = baton_schedule_cancel(schedule);
            if (status != BATON_OK) {
                support_mpi_expect(status, BATON_ERR_STATE); /* it has ended */
            }
        }
        if (turn == 0 && status == BATON_ERR_FAILED) {
            support_mpi_says("was cancelled"); /* before this rank's start */
        } else {
            status = baton_schedule_wait(schedule, SUPPORT_MPI_WAIT_MS);
        }
        if (turn == 0) {
            if (status != BATON_OK && status != BATON_ERR_FAILED) {
                support_mpi_expect(status, BATON_ERR_CANCELLED);
            }
            memset(memory, 0xee, LONG_BYTES); /* it is ours again */
            support_mpi_ok(
                baton_group_recover(world.group, SUPPORT_MPI_WAIT_MS));
            continue;
        }
        support_mpi_ok(status);
        uint64_t ranks = (uint64_t)world.size;
        for (size_t i = 0; i < LONG_BYTES / 8; i++) {
            if (memory[i] != ranks * (ranks - 1) / 2 + ranks * i) {
                support_mpi_die("a wrong sum after a recovery");
            }
        }
    }
}

static void test_failures(uint64_t seed)
{
    static account_t accounts[3];
    support_random_t common = support_random(seed, 0);
    support_random_t own = support_random(seed, 1 + (uint64_t)world.rank);
    uint64_t *memory = malloc(LONG_BYTES);
    baton_schedule_t *schedule =
        support_mpi_sum(world.group, memory, LONG_BYTES, BATON_U64, "ring");
    int64_t allocations = 0;
    for (int mode = BATON_SOLO; mode <= BATON_FULL; mode++) {
        open_account(&accounts[mode], (baton_partial_mode_t)mode);
    }
    for (int round = 0; round < rounds; round++) {
        uint64_t sum[COUNT] = {0};
        draw_plan(&common);
        account_t *account = &accounts[plan.partial];
        uint64_t seen = run_steps(account, &own, sum);
        support_mpi_ok(baton_group_recover(world.group, SUPPORT_MPI_WAIT_MS));
        add_results(account, seen, sum);
        check_account(account);
        if (round % 20 == 0) {
            cancel_one(schedule, memory, &common);
        }
        if (round == WARMUP) {
            allocations = baton__alloc_count();
        }
    }
    if (baton__alloc_count() != allocations) {
        support_mpi_die("recovering allocates");
    }
    for (int mode = BATON_SOLO; mode <= BATON_FULL; mode++) {
        support_mpi_ok(baton_partial_destroy(accounts[mode].partial));
    }
    support_mpi_ok(baton_schedule_destroy(schedule));
    free(memory);
}

/* ---- messages that may be missed -------------------------------------- */

typedef struct letter {
    uint64_t epoch;
    int from, to;
    uint64_t padding[30];
} letter_t;

/* One way of a pair of ranks. */
typedef struct way {
    struct letters *letters;
    letter_t letter;
    int peer;
} way_t;

typedef struct letters {
    way_t *out, *in;
    support_random_t random;
    uint64_t taken, skipped;
} letters_t;

static baton_status_t write_letter(void *arg, baton_call_t *call)
{
    way_t *way = arg;
    if (support_random_below(&way->letters->random, 3) == 0) {
        way->letters->skipped++;
        return BATON_SKIP;
    }
    way->letter.epoch = baton_call_epoch(call);
    way->letter.from = world.rank;
    way->letter.to = way->peer;
    return BATON_OK;
}

static baton_status_t read_letter(void *arg, baton_call_t *call)
{
    way_t *way = arg;
    if (way->letter.epoch != baton_call_epoch(call) ||
        way->letter.from != way->peer || way->letter.to != world.rank) {
        return BATON_ERR_MISMATCH;
    }
    way->letter.epoch = 0; /* read once */
    way->letters->taken++;
    return BATON_OK;
}

/* Every rank may send a message to each other one. With `together` a barrier
   behind the sends keeps the epochs of all ranks together; otherwise they drift
   apart. */
static baton_schedule_t *create_letters(letters_t *letters, bool together)
{
    baton_schedule_t *schedule = NULL;
    support_mpi_ok(baton_schedule_create(
        world.group, together ? "together" : "apart", &schedule));
    for (int peer = 0; peer < world.size; peer++) {
        way_t *out = &letters->out[peer];
        way_t *in = &letters->in[peer];
        *out = (way_t){.letters = letters, .peer = peer};
        *in = (way_t){.letters = letters, .peer = peer};
        baton_view_t source = baton_view(
            baton_buffer_bind(schedule, &out->letter, sizeof(letter_t)), 0,
            sizeof(letter_t));
        baton_view_t target = baton_view(
            baton_buffer_bind(schedule, &in->letter, sizeof(letter_t)), 0,
            sizeof(letter_t));
        baton_node_t write = baton_add_call(schedule, write_letter, out);
        baton_node_t send = baton_add_send(schedule, peer, source);
        baton_node_t recv = baton_add_recv(schedule, peer, target);
        baton_node_t read = baton_add_call(schedule, read_letter, in);
        baton_before(schedule, write, send);
        baton_before(schedule, recv, read);
        baton_set_optional(schedule, send);
        baton_set_optional(schedule, recv);
        baton_set_optional(schedule, read);
    }
    if (together) {
        baton_barrier_dissemination(schedule);
    }
    support_mpi_ok(baton_schedule_commit(schedule));
    return schedule;
}

static void test_letters(uint64_t seed, bool together)
{
    letters_t letters = {.out = calloc((size_t)world.size, sizeof(way_t)),
                         .in = calloc((size_t)world.size, sizeof(way_t)),
                         .random =
                             support_random(seed, 100 + (uint64_t)world.rank)};
    baton_schedule_t *schedule = create_letters(&letters, together);
    for (int epoch = 0; epoch < 10 * rounds; epoch++) {
        support_mpi_ok(baton_schedule_start(schedule));
        support_mpi_ok(baton_schedule_wait(schedule, SUPPORT_MPI_WAIT_MS));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t counts[2] = {letters.taken, letters.skipped};
    MPI_Allreduce(MPI_IN_PLACE, counts, 2, MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
    /* A rank alone has ended its epoch before its letter to itself comes. */
    if ((world.size > 1 && counts[0] == 0) || counts[1] == 0) {
        support_mpi_die("letters were read, and some were not written");
    }
    support_mpi_ok(baton_schedule_destroy(schedule));
    free(letters.out);
    free(letters.in);
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    if (argc > 1) {
        rounds = atoi(argv[1]);
    }
    support_mpi_open();
    support_mpi_running = "failures";
    test_failures(world.seed);
    support_mpi_running = "letters, together";
    test_letters(world.seed, true);
    support_mpi_running = "letters, apart";
    test_letters(world.seed + 1, false);
    support_mpi_end();
    return 0;
}
