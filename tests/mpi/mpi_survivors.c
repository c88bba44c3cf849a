/* Ranks are killed, and the others go on: `mpi_survivors ROUND...`, run by
   survivors.sh. In each round some ranks of MPI_COMM_WORLD die. The group's
   epochs then fail on all other ranks, which shrink the group and make a sum in
   the new one. Rounds are:

     1,3    ranks 1 and 3 are killed
     d4     rank 4 is killed while it shrinks the group; the others may find it
            in their new group, and then shrink that one
     none   no rank is killed, and the last rank comes late
     l1     rank 1 does not return from a call of MPI: the others count it as
            lost, though its process lives
     p0,2   a timer kills ranks 0 and 2 at random moments, while all ranks do
            steps of a partial all-reduce that goes on (on_loss)
     s0,2   the same with steps of a sparse all-reduce, full or partial, which
            goes on in the survivors' group (baton_sparse_shrink), or by itself
            (on_loss)
     b1     only as the first round: rank 1 is killed before any rank has had
            contact with another, and leaves a child that has its descriptors
     c1     only as the last round: rank 1 is killed while ranks of several
            hosts, or with BATON_SHM=0, tell each other that they send no more;
            that message never reaches the next rank. As in b1, no rank has a
            link to another
     m4     of the ranks that live, rank 1 is killed after the fourth exchange
            by which they make a group. m: no rank is killed. h1: as m1, and
            rank 2 is held in the first exchange. If one round is of this kind,
            all must be

   Old groups are destroyed before the new ones are used, or at the end. Ranks
   that a group has left behind say that they go on. MPI_Finalize is not called,
   since it hangs if the dead ranks were on another host. */
#include "base/clock.h"
#include "support/mpi.h"
#include "support/random.h"
#include "transport/mpi/packet.h"
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#include <baton/coll.h>
#include <baton/partial.h>
#include <baton/sparse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* UNHEARD is the tag of messages that no rank receives. */
enum { MOST = 32, COUNT = 2000, UNHEARD = 1000 };

static baton_group_t *old[MOST]; /* groups that are destroyed at the end */
static int old_count;
/* For each rank of the group, its rank in the world. */
static int members[MOST];
static uint64_t data[COUNT];
static uint64_t seed; /* the seed is the same on all ranks */

/* Returns true if this rank is a victim of the round, which is a text such as
   "1,3", "d4" or "p0". */
static bool is_victim(const char *round, int rank)
{
    const char *at = round + (strchr("bcdlps", *round) != NULL);
    bool found = false;
    while (*at >= '0' && *at <= '9') {
        char *end;
        found |= strtol(at, &end, 10) == rank;
        at = *end == ',' ? end + 1 : end;
    }
    return found;
}

static void die(void)
{
    (void)kill(getpid(), SIGKILL);
    (void)pause();
}

static bool cuts_last;

/* These definitions replace MPI's. MPI's functions have second names, without
   the P, through which they can still be called. */
int PMPI_Isend(const void *bytes, int count, MPI_Datatype type, int to, int tag,
               MPI_Comm comm, MPI_Request *request)
{
    return cuts_last && to == world.rank + 1 &&
                   ((const baton__net_packet_t *)bytes)->packet.kind ==
                       BATON__PACKET_LAST
               ? MPI_Issend(bytes, count, type, to, UNHEARD, comm, request)
               : MPI_Isend(bytes, count, type, to, tag, comm, request);
}

/* The number of exchanges, while a group is made, before this rank dies; -1: it
   lives. */
static int exchanges_left = -1;
static bool held; /* true: this rank's next exchange does not end */

static void die_if_due(void)
{
    if (exchanges_left >= 0 && exchanges_left-- == 0) {
        die();
    }
}

static bool loops; /* true: the next call does not return */

int PMPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    while (loops) {
        (void)pause();
    }
    return MPI_Test(request, done, status);
}

int PMPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    die_if_due();
    int code = MPI_Iallreduce(from, to, count, type, op, comm, request);
    if (held) {
        held = false;
        MPI_Irecv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, request);
    }
    return code;
}

int PMPI_Comm_idup(MPI_Comm comm, MPI_Comm *out, MPI_Request *request)
{
    die_if_due();
    return MPI_Comm_idup(comm, out, request);
}

/* Makes one sum over the group. All ranks learn whether it has succeeded, since
   no rank can end it without the others. */
static bool can_sum(baton_group_t *group)
{
    uint64_t size = (uint64_t)baton_group_size(group), all = 0;
    baton_schedule_t *sum = support_mpi_sum(group, data, sizeof data, BATON_U64,
                                            "recursive_doubling");
    for (uint64_t i = 0; i < size; i++) {
        all += (uint64_t)members[i];
    }
    for (int i = 0; i < COUNT; i++) {
        data[i] = (uint64_t)world.rank;
    }
    baton_status_t status = baton_schedule_run(sum, SUPPORT_MPI_WAIT_MS);
    if (status == BATON_OK) {
        support_mpi_check(data[0] == all && data[COUNT - 1] == all,
                          "a wrong sum");
    }
    support_mpi_ok(baton_schedule_destroy(sum));
    return status == BATON_OK;
}

static baton_group_t *shrink(baton_group_t *group, bool destroys)
{
    baton_group_t *next = NULL;
    support_mpi_ok(baton_group_shrink(group, SUPPORT_MPI_WAIT_MS, &next));
    printf("rank %d: %d of %d live\n", world.rank, baton_group_size(next),
           baton_group_size(group));
    for (int i = 0; i < baton_group_size(next); i++) {
        members[i] = members[baton_group_origin(next, i)];
    }
    support_mpi_check(members[baton_group_rank(next)] == world.rank,
                      "the wrong rank");
    if (destroys) {
        support_mpi_ok(baton_group_destroy(group));
    } else {
        old[old_count++] = group;
    }
    return next;
}

/* The last rank comes after the first one has noticed that it is missing. */
static void come_late(baton_group_t *group)
{
    int first = members[0], last = members[baton_group_size(group) - 1];
    baton_group_t *none = NULL;
    if (world.rank == first) {
        support_mpi_expect(baton_group_shrink(group, 1, &none),
                           BATON_ERR_TIMEOUT);
        MPI_Send(NULL, 0, MPI_BYTE, last, 0, MPI_COMM_WORLD);
    } else if (world.rank == last) {
        MPI_Recv(NULL, 0, MPI_BYTE, first, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    }
}

/* ---- a partial ----------------------------------------------------------- */

enum { STEPS = 60, LONG = 30000 };

static void die_within(uint64_t us)
{
    const struct itimerval timer = {
        .it_value = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000 + 1)}};
    support_mpi_check(setitimer(ITIMER_REAL, &timer, NULL) == 0, "no timer");
}

/* Each contribution has a bit of its own, so each result shows which
   contributions are in it. Returns a hash of all results. */
static uint64_t run_partial(baton_group_t *group, bool victim)
{
    support_random_t same = support_random(seed, 1);
    support_random_t own = support_random(seed, 2 + (uint64_t)world.rank);
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    uint64_t seen[MOST] = {0}, hash = 0, given = 0;
    int size = baton_group_size(group), rank = baton_group_rank(group);
    uint32_t living = (uint32_t)size;
    options.mode = (baton_partial_mode_t)support_random_below(&same, 6);
    options.mode_ranks =
        options.mode < BATON_QUORUM
            ? 0
            : 1 + (uint32_t)support_random_below(&same, (uint64_t)size);
    options.count = support_random_below(&same, 3) == 0 ? LONG : COUNT;
    options.dtype = BATON_U64;
    options.on_loss = BATON_ON_LOSS_CONTINUE;
    static uint64_t vector[LONG];
    baton_partial_t *partial;
    support_mpi_ok(baton_partial_create(group, &options, &partial));
    if (victim) {
        die_within(support_random_below(&own, 80000));
    }
    for (uint64_t step = 1; step <= STEPS; step++) {
        baton_partial_result_t result;
        uint64_t bit = UINT64_C(1) << step;
        (void)usleep((useconds_t)support_random_below(&own, 1500));
        memset(vector, 0, options.count * sizeof *vector);
        vector[rank] = vector[options.count - 1] = bit;
        given |= bit;
        support_mpi_ok(baton_partial_contribute(partial, vector));
        support_mpi_ok(baton_partial_start(partial));
        support_mpi_ok(
            baton_partial_wait(partial, SUPPORT_MPI_WAIT_MS, &result));
        const uint64_t *bits = result.data;
        for (int r = 0; r < size; r++) {
            support_mpi_check((seen[r] & bits[r]) == 0, "taken twice");
            seen[r] |= bits[r];
            hash = hash * 31 + bits[r];
        }
        support_mpi_check(result.living <= living, "a rank that rose");
        living = result.living;
        hash = hash * 31 + result.active + 1000 * living;
    }
    bool any = false;
    support_mpi_ok(baton_partial_pending(partial, vector, &any));
    support_mpi_check((seen[rank] ^ vector[rank]) == given, "not conserved");
    if (victim) {
        die();
    }
    support_mpi_ok(baton_partial_destroy(partial));
    return hash;
}

/* Checks that all living ranks have got the same results, by a sum of their
   hashes. */
static void check_same(baton_group_t *group, uint64_t hash)
{
    baton_schedule_t *sum = support_mpi_sum(group, data, sizeof *data,
                                            BATON_U64, "recursive_doubling");
    data[0] = hash;
    support_mpi_run(sum);
    support_mpi_check(data[0] == hash * (uint64_t)baton_group_size(group),
                      "different results");
    support_mpi_ok(baton_schedule_destroy(sum));
}

/* ---- a sparse all-reduce ------------------------------------------------ */

enum { ELEMENTS = 1200 };

/* Element i of the gradients is not zero only on rank i % world.size, and all
   values are positive integers. So the results and residuals of an element add
   up to the sum of that rank's gradients, if it lives. The sum may be less if
   other ranks, which have died, had dropped entries of it. */
static struct {
    baton_sparse_options_t options;
    baton_sparse_t *sparse;
    uint64_t results_seen;
    /* For full all-reduces: the gradient is in no result yet. */
    bool started, has_gradient;
    double gradient[ELEMENTS], given[ELEMENTS], results[ELEMENTS];
    /* The residual and the pending contribution after the last step. */
    double rest[ELEMENTS];
} own;

static bool goes_on(void)
{
    return own.options.on_loss == BATON_ON_LOSS_CONTINUE;
}

static void choose_sparse(int size)
{
    static const baton_sparse_algorithm_t algorithms[] = {
        BATON_SPARSE_TOPKA, BATON_SPARSE_SPARDL,  BATON_SPARSE_TOPKDSA,
        BATON_SPARSE_GTOPK, BATON_SPARSE_REDSYNC, BATON_SPARSE_OKTOPK,
        BATON_SPARSE_DENSE};
    support_random_t same = support_random(seed++, 3);
    baton_sparse_options_t *o = &own.options;
    *o = (baton_sparse_options_t)BATON_SPARSE_OPTIONS;
    o->partial = support_once_in(&same, 2);
    o->algorithm = algorithms[support_random_below(&same, o->partial ? 4 : 7)];
    o->dtype = BATON_F64;
    o->count = ELEMENTS;
    o->k = 1 + support_random_below(&same, ELEMENTS / 4);
    o->warmup = support_once_in(&same, 3) ? STEPS / 2 : 0;
    if (o->algorithm == BATON_SPARSE_SPARDL) {
        o->teams = size % 2 == 0 ? 2 : 1;
        o->in_place = !o->partial && support_once_in(&same, 2);
    }
    if (o->partial) {
        o->mode = (baton_partial_mode_t)support_random_below(&same, 3);
    }
    if (o->partial && support_once_in(&same, 2)) {
        o->on_loss = BATON_ON_LOSS_CONTINUE;
        o->teams = 1;
    }
}

static baton_status_t start_sparse(support_random_t *random)
{
    double *at = own.options.in_place ? baton_sparse_accumulator(own.sparse)
                                      : own.gradient;
    bool again = own.has_gradient && !own.options.partial;
    for (int i = world.rank; i < ELEMENTS && !again; i += world.size) {
        own.gradient[i] = 1 + (double)support_random_below(random, 1000);
        at[i] =
            own.options.in_place ? at[i] + own.gradient[i] : own.gradient[i];
    }
    own.has_gradient = true;
    baton_status_t status = baton_sparse_start(
        own.sparse, own.options.in_place ? NULL : own.gradient);
    bool counts = !again && (status == BATON_OK || !own.options.partial);
    for (int i = 0; i < ELEMENTS && counts; i++) {
        own.given[i] += own.gradient[i];
    }
    own.started = status == BATON_OK;
    return status;
}

static baton_status_t wait_for_sparse(void)
{
    baton_sparse_result_t result;
    baton_status_t status =
        baton_sparse_wait(own.sparse, SUPPORT_MPI_WAIT_MS, &result);
    for (size_t i = 0; status == BATON_OK && i < result.count; i++) {
        size_t at = result.indices != NULL ? result.indices[i] : i;
        own.results[at] += ((const double *)result.values)[i];
    }
    if (status == BATON_OK) {
        own.results_seen++;
        own.started = own.has_gradient = false;
    }
    return status;
}

/* Continues in a group of the living ranks, as described in
   docs/training.md. */
static baton_group_t *move_sparse(baton_group_t *group)
{
    baton_status_t status;
    do {
        group = shrink(group, false);
        status = baton_sparse_shrink(own.sparse, group, SUPPORT_MPI_WAIT_MS);
    } while (status == BATON_ERR_TRANSPORT);
    support_mpi_ok(status);
    bool partial = own.options.partial;
    if (partial || own.started) {
        do {
            status = wait_for_sparse();
        } while (partial && status == BATON_OK);
        support_mpi_check(status == BATON_ERR_STATE || status == BATON_OK,
                          "a wait in the survivors' group");
    }
    own.started = false;
    return group;
}

static void end_sparse(void)
{
    baton_status_t status = baton_sparse_residual(own.sparse, own.rest);
    /* Wait until the epochs of peers have ended. */
    while (status == BATON_ERR_BUSY) {
        bool done;
        (void)!baton_sparse_test(own.sparse, &done);
        status = baton_sparse_residual(own.sparse, own.rest);
    }
    support_mpi_ok(status);
    support_mpi_ok(baton_sparse_destroy(own.sparse));
}

/* Checks on the living ranks that all have the same results, and that every
   contribution is in exactly one of them. */
static void check_sparse(baton_group_t *group, bool died)
{
    static double all[ELEMENTS], least[ELEMENTS];
    baton_sparse_algorithm_t algorithm = own.options.algorithm;
    bool drops =
        algorithm == BATON_SPARSE_SPARDL || algorithm == BATON_SPARSE_GTOPK;
    support_mpi_ok(baton_allreduce_now(group, own.results, all, ELEMENTS,
                                       BATON_F64, BATON_MAX));
    support_mpi_ok(baton_allreduce_now(group, own.results, least, ELEMENTS,
                                       BATON_F64, BATON_MIN));
    for (int i = 0; i < ELEMENTS; i++) {
        support_mpi_check(all[i] == least[i], "different sparse results");
    }
    support_mpi_ok(baton_allreduce_now(group, own.rest, all, ELEMENTS,
                                       BATON_F64, BATON_SUM));
    for (int i = world.rank; i < ELEMENTS; i += world.size) {
        double lost = own.given[i] - own.results[i] - all[i];
        support_mpi_check(drops && died ? lost >= 0 : lost == 0,
                          "not conserved");
    }
}

/* The ranks that are to die have died when the others have done their steps. */
static baton_group_t *run_sparse(baton_group_t *group, bool victim)
{
    support_random_t random = support_random(seed, 90 + (uint64_t)world.rank);
    int before = baton_group_size(group);
    memset(&own, 0, sizeof own);
    choose_sparse(before);
    support_mpi_ok(baton_sparse_create(group, &own.options, SUPPORT_MPI_WAIT_MS,
                                       &own.sparse));
    if (victim) {
        die_within(support_random_below(&random, 80000));
    }
    for (bool over = false; !over && !goes_on();) {
        baton_status_t status;
        (void)usleep((useconds_t)support_random_below(&random, 1500));
        if (own.results_seen == STEPS && victim) {
            die();
        }
        if (own.results_seen == STEPS) {
            status = baton_barrier_now(group);
            over = status == BATON_OK;
        } else {
            status = start_sparse(&random);
            status = status == BATON_OK ? wait_for_sparse() : status;
        }
        if (status != BATON_OK) {
            group = move_sparse(group);
        }
    }
    while (goes_on() && own.results_seen < STEPS) {
        (void)usleep((useconds_t)support_random_below(&random, 1500));
        support_mpi_ok(start_sparse(&random));
        support_mpi_ok(wait_for_sparse());
    }
    if (victim) {
        die();
    }
    end_sparse();
    while (goes_on() && (baton_group_size(group) == before ||
                         baton_barrier_now(group) != BATON_OK)) {
        group = shrink(group, false);
    }
    check_sparse(group, baton_group_size(group) < before);
    return group;
}

/* ---- deaths while a group is made ---------------------------------------- */

/* Returns the number of descriptors by which this rank watches other ranks. */
static int count_watches(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++) {
        char path[32], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        count += readlink(path, target, sizeof target - 1) > 0 &&
                 strstr(target, "pidfd") != NULL;
    }
    return count;
}

#if !defined(MPIX_ERR_PROC_FAILED)
static void say_that_mpi_hangs(int number)
{
    static const char text[] = "MPI hangs\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(1);
}
#endif

/* Makes a group of the living ranks. */
static void try_to_make(const char *round)
{
    const int exchanges = round[1] == '\0' ? -1 : atoi(round + 1);
    static MPI_Comm comm = MPI_COMM_WORLD;
    static bool died;
    const int dying = 1;
    int rank;
    baton_group_t *group = NULL;
    /* The communicator shrinks before the next round, and not after the last
       one, since Open MPI hangs here between hosts. */
    if (died) {
#if defined(MPIX_ERR_PROC_FAILED)
        MPIX_Comm_shrink(comm, &comm);
#else
        MPI_Group all, living;
        MPI_Comm_group(comm, &all);
        MPI_Group_excl(all, 1, &dying, &living);
        /* Open MPI 4 may never return from this call after a death. */
        (void)signal(SIGALRM, say_that_mpi_hangs);
        (void)alarm(20);
        MPI_Comm_create_group(comm, living, 0, &comm);
        (void)alarm(0);
#endif
    }
    died = exchanges >= 0;
    MPI_Comm_rank(comm, &rank);
    exchanges_left = rank == dying ? exchanges : -1;
    held = *round == 'h' && rank == 2;
    baton_status_t status = support_mpi_group(world.engine, comm, &group);
    exchanges_left = -1;
    if (!died) {
        support_mpi_ok(status);
        support_mpi_healthy(group);
        support_mpi_ok(baton_group_destroy(group));
        return;
    }
    support_mpi_expect(status, BATON_ERR_TRANSPORT);
    support_mpi_check(count_watches() == 0, "a descriptor is left");
    support_mpi_says(" is gone: its process has ended");
}

/* ---- rounds -------------------------------------------------------------- */

static baton_group_t *play(baton_group_t *group, const char *round,
                           bool destroys)
{
    bool victim = is_victim(round, world.rank);
    bool during = strchr("dps", *round) != NULL;
    int before = baton_group_size(group);
    if (*round == 's') {
        group = run_sparse(group, victim);
    }
    uint64_t hash = *round == 'p' ? run_partial(group, victim) : 0;
    if (victim && during) {
        baton_group_t *none = NULL;
        (void)!baton_group_shrink(group, 0, &none);
    }
    if (victim && *round == 'b' && fork() == 0) {
        (void)alarm(20);
        (void)pause();
    }
    if (victim && *round == 'l') {
        loops = true;
    } else if (victim) {
        die();
    }
    if (strcmp(round, "none") == 0) {
        come_late(group);
    } else if (!during) {
        while (can_sum(group)) {
        }
    }
    if (*round != 's') {
        group = shrink(group, destroys);
    }
    while (!can_sum(group)) {
        support_mpi_check(during, "a survivors' group has a loss");
        group = shrink(group, destroys);
    }
    int killed = 0;
    for (int rank = 0; rank < world.size; rank++) {
        killed += is_victim(round, rank);
    }
    support_mpi_check(baton_group_size(group) == before - killed,
                      "the wrong number of survivors");
    if (*round == 'p') {
        check_same(group, hash);
    }
    /* After this sum all ranks have ended the sums before it. Otherwise a
       message of a rank that dies in the next round might be lost, and the sum
       fail. */
    (void)can_sum(group);
    return group;
}

static void go_on(double began)
{
    support_mpi_ok(baton_engine_close(world.engine));
    printf("rank %d goes on, destroyed all in %.1f ms\n", world.rank,
           ((double)baton__clock_ns() - began) / 1e6);
    (void)fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv)
{
    support_mpi_begin(argc, argv);
    if (argc > 1 && strchr("hm", *argv[1]) != NULL) {
        support_mpi_ok(baton_engine_open(NULL, &world.engine));
        for (int i = 1; i < argc; i++) {
            support_mpi_running = argv[i];
            try_to_make(argv[i]);
        }
        go_on((double)baton__clock_ns());
    }
    support_mpi_open();
    baton_group_t *group = world.group;
    for (int rank = 0; rank < world.size; rank++) {
        members[rank] = rank;
    }
    seed = world.rank == 0 ? support_seed() : 0;
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (argc < 2 || strchr("bc", *argv[1]) == NULL) {
        support_mpi_check(can_sum(group), "the first group can't sum");
        /* This replaces MPI's barrier. Rank 0 may leave that barrier, and be
           killed, before its message has reached the last rank. */
        (void)!baton_barrier_now(group);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 1; i < argc; i++) {
        support_mpi_running = argv[i];
        if (*argv[i] == 'c') {
            cuts_last = true;
            if (is_victim(argv[i], world.rank)) {
                die_within(100000);
            }
            /* MPI raises this signal, too, when it writes to a dead rank. */
            (void)raise(SIGPIPE);
            break;
        }
        group = play(group, argv[i], i % 2 == 0);
    }
    for (int i = 0; i < old_count; i++) {
        support_mpi_ok(baton_group_destroy(old[i]));
    }
    double began = (double)baton__clock_ns();
    support_mpi_ok(baton_group_destroy(group));
    go_on(began);
}
