/* Failures and optional messages over MPI: `mpi_recovery [ROUNDS]`. In each
   round a random rank fails or cancels an epoch, and all ranks recover. Ten
   times as many epochs skip sends and overtake optional receives at random. No
   message may be received in another epoch than its own. sim/test_properties.c
   tests that partial collectives lose nothing. BATON_SEED repeats a run. The
   exit code is the result. */
#include "progress/driving/engine.h"
#include "sched/schedule.h"
#include "support/cmocka.h"
#include "support/given_up.h"
#include "support/mpi.h"
#include "support/sanitized.h"
#include "transport/mpi/endpoint.h"
#include <baton/coll.h>

static int rounds = SUPPORT_REPEAT(500);

static void test_failures(uint64_t seed)
{
    int64_t allocated;
    const char *wrong = given_up_run(world.group, seed, rounds, &allocated);
    support_mpi_check(wrong == NULL, wrong);
    support_mpi_check(allocated == 0, "recovering allocates");
}

/* ---- messages that may be missed -------------------------------------- */

typedef struct letter {
    uint64_t epoch;
    int from, to;
    uint64_t padding[30];
} letter_t;

/* One direction between two ranks. */
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
    way->letter.epoch = 0; /* a letter is read once */
    way->letters->taken++;
    return BATON_OK;
}

/* Every rank may send a message to each other rank. If `together` is true, a
   barrier after the sends keeps the epochs of all ranks together. Otherwise
   they drift apart. */
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
        baton_add_barrier(schedule);
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
        support_mpi_run(schedule);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t counts[2] = {letters.taken, letters.skipped};
    MPI_Allreduce(MPI_IN_PLACE, counts, 2, MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
    /* Without other ranks, a rank has ended its epoch before the message to
       itself arrives. */
    if ((world.size > 1 && counts[0] == 0) || counts[1] == 0) {
        support_mpi_die("letters were read, and some were not written");
    }
    support_mpi_ok(baton_schedule_destroy(schedule));
    free(letters.out);
    free(letters.in);
}

/* One rank commits each of many schedules, and the others destroy it. All ranks
   are told, even those that wait in baton_group_destroy. */
static void test_farewells(void)
{
    enum { LEFT = 100 }; /* more schedules than there is room for notices */
    baton_group_t *of = NULL;
    baton_schedule_t *all[LEFT];
    support_mpi_ok(support_mpi_group(world.engine, MPI_COMM_WORLD, &of));
    for (int i = 0; i < LEFT; i++) {
        support_mpi_ok(baton_schedule_create(of, "left", &all[i]));
        if (i % world.size != world.rank) {
            support_mpi_ok(baton_schedule_destroy(all[i]));
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = world.rank; i < LEFT; i += world.size) {
        (void)baton_add_send(all[i], (world.rank + 1) % world.size,
                             baton_view(baton_buffer_scratch(all[i], 1), 0, 1));
        support_mpi_ok(baton_schedule_commit(all[i]));
    }
    for (int i = world.rank; i < LEFT; i += world.size) {
        if (baton_schedule_start(all[i]) == BATON_OK) {
            (void)!baton_schedule_wait(all[i], SUPPORT_MPI_WAIT_MS);
        }
        support_mpi_says("was destroyed on rank");
        support_mpi_says(" (host ");
        support_mpi_ok(baton_schedule_destroy(all[i]));
    }
    support_mpi_ok(baton_group_destroy(of));
}

static baton_group_t *make_group(void)
{
    baton_group_t *group = NULL;
    support_mpi_ok(support_mpi_group(world.engine, MPI_COMM_WORLD, &group));
    support_mpi_healthy(group);
    return group;
}

/* Each rank expects a message from the next one, which sends nothing. The
   message of the wait that timed out, and that of the mismatch, say on which
   host the other rank is. */
static void test_places(void)
{
    char from[160];
    const int next = (world.rank + 1) % world.size;
    baton_group_t *group = make_group();
    baton_schedule_t *s = NULL;
    (void)snprintf(from, sizeof from, "recv#0 from %s, 1 bytes",
                   baton__group_rank_text(group, next));
    support_mpi_ok(baton_schedule_create(group, "places", &s));
    (void)baton_add_recv(s, next, baton_view(baton_buffer_scratch(s, 1), 0, 1));
    if (world.rank == 0) {
        support_mpi_ok(baton_schedule_commit(s));
        support_mpi_ok(baton_schedule_start(s));
        do { /* until the error can name the awaited message */
            support_mpi_expect(baton_schedule_wait(s, 1), BATON_ERR_TIMEOUT);
        } while (strstr(baton_error_message(), "not begun") != NULL ||
                 strstr(baton_error_message(), "the engine is busy") != NULL);
        support_mpi_says(from);
        support_mpi_says(" (host ");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world.rank > 0) {
        support_mpi_ok(baton_schedule_commit(s));
    }
    if (world.rank == 0 || baton_schedule_start(s) == BATON_OK) {
        support_mpi_expect(baton_schedule_wait(s, SUPPORT_MPI_WAIT_MS),
                           BATON_ERR_MISMATCH);
    }
    support_mpi_says(") differ: ");
    MPI_Barrier(MPI_COMM_WORLD);
    support_mpi_ok(baton_schedule_destroy(s));
    support_mpi_ok(baton_group_destroy(group));
}

/* Groups of the same ranks, one after another. A new group takes over the
   memory that the ranks of one host share, unless the old group was on other
   hosts. No group is made if even one of the ranks has noticed that a rank has
   ended. */
static void test_again(void)
{
    baton__mpi_t *last = NULL;
    for (int i = 0; i < 10; i++) {
        baton_group_t *each = make_group();
        support_mpi_check(last == NULL || each->endpoint == last,
                          "it is taken");
        last = each->endpoint;
        support_mpi_ok(baton_group_destroy(each));
    }
    CPU_ZERO(&last->processors);
    baton_group_t *group = make_group(), *none;
    last = group->endpoint;
    support_mpi_check(CPU_COUNT(&last->processors) > 0, "it is opened anew");
    support_mpi_ok(baton_group_destroy(group));
    last->first_lost = world.rank == 1;
    support_mpi_expect(support_mpi_group(world.engine, MPI_COMM_WORLD, &none),
                       BATON_ERR_TRANSPORT);
    support_mpi_says(world.rank == 1 ? "a rank of this host has ended"
                                     : "on another rank");
}

/* The last rank destroys its group only after the others have given up waiting,
   after BATON_DESTROY_MS. It learns that they have given up, although their
   processes still run. */
static void test_late(void)
{
    baton_group_t *group = make_group();
    support_set_variable("BATON_DESTROY_MS", "100");
    uint64_t one = 1;
    if (world.rank == world.size - 1) {
        MPI_Barrier(MPI_COMM_WORLD);
        baton_schedule_t *late =
            support_mpi_sum(group, &one, 8, BATON_U64, "recursive_doubling");
        if (baton_schedule_start(late) == BATON_OK) {
            support_mpi_expect(baton_schedule_wait(late, 20000),
                               BATON_ERR_TRANSPORT);
        }
        support_mpi_ok(baton_schedule_destroy(late));
    }
    support_mpi_ok(baton_group_destroy(group));
    if (world.rank < world.size - 1) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    support_set_variable("BATON_DESTROY_MS", NULL);
    support_mpi_ok(baton_group_destroy(make_group()));
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    /* This makes a rank that waits ask the others whether they live. */
    baton__engine_rechecks = true;
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
    test_farewells();
    test_places();
    const baton__mpi_t *mpi = world.group->endpoint;
    if (mpi->host.count == world.size) {
        /* Only the destroy of an engine's last group waits for the others. */
        baton_engine_t *engine = world.engine;
        support_mpi_ok(baton_engine_open(NULL, &world.engine));
        test_again();
        test_late();
        support_mpi_ok(baton_engine_close(world.engine));
        world.engine = engine;
    }
    support_mpi_end();
    return 0;
}
