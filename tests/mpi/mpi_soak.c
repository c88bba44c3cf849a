/* One random world of scripts/soak.sh. Ranks run epochs and check their
   results. One rank is killed, or stopped for a while. The ranks that learn of
   the loss by an error shrink the group, and sum in the new one; in a third of
   the worlds one more rank is killed meanwhile. A sparse all-reduce continues
   in the new group. Then all ranks leave. Each rank writes to a log what it
   does and gets, and soak.sh checks the rest there.

     mpi_soak LOG MOMENT VICTIM EPOCH DELAY_US CHILD WORK COUNT MODE ALGORITHM

   MOMENT is what rank VICTIM does in EPOCH, DELAY_US before it is killed:
   awake, asleep, call, reduce, copy, create, commit or leave. everyone: all
   ranks are killed, also while they make a group. stop: the victim is stopped
   for COUNT ms, and no rank fails. orders: no rank is killed, and there are
   EPOCH rounds of try_orders.
   CHILD is 1 if the victim leaves a child that has its descriptors, and 2 if
   the other ranks try a recovery.
   WORK is dense for all-reduces of COUNT elements by ALGORITHM ("" for any),
   small for many messages, or a row of support/collective.h with its ALGORITHM
   or MODE. If MODE is 4 or more, the mode is MODE - 4, and a partial sparse
   all-reduce goes on by itself when ranks are lost (on_loss); then no rank but
   the victim may fail.
   BATON_SEED determines the pace of each rank. */
#include "progress/driving/engine.h"
#include "support/conserve.h"
#include "support/mpi.h"

#include <baton/coll.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum {
    /* number of messages from each rank to each other rank in an epoch */
    MESSAGES = 48,
    MORE = 20, /* number of epochs, if no rank is killed */
    SUMS = 3,  /* number of epochs in a group that was shrunk */
    LATE_US = 2000
};

static struct {
    const char *moment, *work, *algorithm;
    int victim, child;
    uint64_t epoch, delay_us, count;
    uint32_t mode;
} plan;

static int log_file;
static support_random_t pace;

static bool is_at(const char *moment)
{
    return strcmp(plan.moment, moment) == 0;
}

static bool works(const char *work)
{
    return strcmp(plan.work, work) == 0;
}

static bool is_struck(const char *moment)
{
    return is_at(moment) && world.rank == plan.victim;
}

/* Returns for how many microseconds this rank's main thread was ready to run
   while other threads had the processors. */
static unsigned long long find_delay(void)
{
    unsigned long long ns = 0;
    FILE *file = fopen("/proc/self/schedstat", "r");
    if (file != NULL) {
        ns = fscanf(file, "%*u %llu", &ns) == 1 ? ns : 0;
        fclose(file);
    }
    return ns / 1000;
}

/* Writes a line "WORD RANK MICROSECONDS ..." to the log that all ranks share.
   scripts/soak.sh subtracts the delay that a second line reports from the time
   of a wait. */
static void say(const char *word, const char *format, ...)
{
    char line[1024];
    struct timespec now;
    va_list args;
    clock_gettime(CLOCK_REALTIME, &now);
    int begin = snprintf(line, sizeof line, "%s %d %lld%06ld ", word,
                         world.rank, (long long)now.tv_sec, now.tv_nsec / 1000);
    va_start(args, format);
    vsnprintf(line + begin, sizeof line - 90 - (size_t)begin, format, args);
    va_end(args);
    size_t bytes = strlen(line);
    line[bytes] = '\n';
    if (strstr("process begin end leave left error shrunk", word) != NULL) {
        bytes += (size_t)snprintf(
            &line[bytes + 1], 80, "delayed %d %lld%06ld %llu\n", world.rank,
            (long long)now.tv_sec, now.tv_nsec / 1000, find_delay());
    }
    if (write(log_file, line, bytes + 1) < 0) {
        _exit(1);
    }
}

/* Sleeps in half of its calls. */
static void dawdle(uint64_t most_us)
{
    if (support_once_in(&pace, 2)) {
        usleep((useconds_t)support_random_below(&pace, most_us));
    }
}

/* ---- signals ------------------------------------------------------------ */

/* Lets the kernel send the signal later, whatever the process is doing then. */
static void send_later(int number, uint64_t us)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL,
                             .sigev_signo = number};
    const struct itimerspec in = {
        .it_value = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000 + 1}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &in, NULL) != 0) {
        say("FAULT", "no timer");
    }
}

static void strike(uint64_t delay_us)
{
    /* The child has all of the victim's descriptors. */
    if (plan.child == 1 && fork() == 0) {
        for (int i = 0; i < 3; i++) {
            close(i); /* mpirun waits until these descriptors are closed */
        }
        say("child", "%d", getpid()); /* soak.sh kills the child at the end */
        for (;;) {
            (void)pause();
        }
    }
    if (is_at("stop")) {
        send_later(SIGCONT, delay_us + plan.count * 1000);
        send_later(SIGSTOP, delay_us);
        return;
    }
    say("died", "%" PRIu64, delay_us);
    if (delay_us == 0) {
        kill(getpid(), SIGKILL);
    }
    send_later(SIGKILL, delay_us);
    while (is_at("asleep")) {
        (void)pause();
    }
}

/* ---- the ranks' work ---------------------------------------------------- */

static baton_schedule_t *schedule, *pairs[2];
/* `input` is the memory of dense vectors, and `data` that of small messages. */
static uint64_t *input, *data;
static support_collective_t collective;
static conserve_account_t account;
static bool dies_in_reduce;

static baton_status_t on_call(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    if (epoch == plan.epoch && is_struck("copy")) {
        strike(plan.delay_us);
    }
    dies_in_reduce = is_struck("reduce") && epoch >= plan.epoch;
    if ((epoch == plan.epoch && is_struck("call")) ||
        /* This rank reduces nothing in these epochs. */
        (dies_in_reduce && epoch > plan.epoch + 9)) {
        strike(0);
    }
    return BATON_OK;
}

static bool goes_on(void)
{
    return works("partial sparse") && plan.mode >= 4;
}

static void add(void *arg, void *target, const void *left, const void *right,
                size_t count, baton_dtype_t dtype)
{
    uint64_t *to = target;
    const uint64_t *a = left, *b = right;
    for (size_t i = 0; i < count; i++) {
        if (i == count / 2 && dies_in_reduce) {
            strike(0);
        }
        to[i] = a[i] + b[i];
    }
}

static const baton_op_t adding = {
    .name = "add", .reduce = add, .commutative = true};

static void add_dense(baton_schedule_t *s, baton_buffer_t in,
                      baton_buffer_t out, size_t bytes)
{
    baton_view_t target = baton_view(out, 0, bytes);
    baton_node_t call = baton_add_call(s, on_call, NULL);
    baton_node_t copy = baton_add_copy(s, target, baton_view(in, 0, bytes));
    baton_node_t end = baton_add_nop(s);
    baton_before(s, call, copy);
    baton_enclosure_t begun = baton_enclose_begin(s);
    const baton_allreduce_args_t args = {
        .size = sizeof args,
        .source = target,
        .target = target,
        .dtype = BATON_U64,
        .op = &adding,
        .algorithm = plan.algorithm[0] != '\0' ? plan.algorithm : NULL};
    baton_add_allreduce(s, &args);
    baton_enclose_end(s, begun, copy, end);
}

static size_t count_elements(void)
{
    return works("dense") ? (size_t)plan.count
                          : (size_t)baton_group_size(world.group) * MESSAGES;
}

static baton_status_t open_schedule(void)
{
    const size_t count = count_elements(), bytes = 8 * count;
    input = calloc(count, 8);
    data = calloc(count, 8);
    support_mpi_ok(baton_schedule_create(world.group, plan.work, &schedule));
    baton_schedule_t *s = schedule;
    baton_buffer_t in = baton_buffer_bind_input(s, input, bytes);
    baton_buffer_t out = baton_buffer_bind(s, data, bytes);
    if (works("dense")) {
        add_dense(s, in, out, bytes);
    }
    for (size_t i = 0; works("small") && i < count; i++) {
        int peer = (int)(i / MESSAGES);
        (void)baton_add_send(s, peer, baton_view(in, 8 * i, 8));
        (void)baton_add_recv(s, peer, baton_view(out, 8 * i, 8));
    }
    return baton_schedule_commit(s);
}

static baton_status_t open_collective(void)
{
    int row = 0;
    while (row < SUPPORT_ROWS && !works(support_row_names[row])) {
        row++;
    }
    const int size = baton_group_size(world.group);
    baton_sparse_options_t options =
        support_collective_options((support_row_t)row);
    if (row == SUPPORT_SPARSE) {
        options.algorithm = (baton_sparse_algorithm_t)(1 + plan.mode % 4);
    } else {
        options.mode = (baton_partial_mode_t)(plan.mode % 4);
    }
    if (row == SUPPORT_PARTIAL_SPARSE) {
        /* An odd seed asks for a set of tensors. */
        options.seed = world.seed % 2;
        options.on_loss =
            goes_on() ? BATON_ON_LOSS_CONTINUE : BATON_ON_LOSS_FAIL;
    }
    options.mode_ranks =
        options.mode == BATON_QUORUM ? 1 + (uint32_t)size / 2 : 0;
    options.count =
        row == SUPPORT_PARTIAL ? CONSERVE_COUNT(size) : CONSERVE_MOST;
    account = (conserve_account_t){.seed = world.seed,
                                   .rank = baton_group_rank(world.group),
                                   .size = size,
                                   .sees_all = true};
    baton_status_t status = support_collective_prepare(
        &collective, (support_row_t)row, world.group, &options);
    for (int round = 0; round < 2 && status == BATON_OK; round++) {
        status = support_collective_connect(&collective, round);
    }
    return status;
}

/* Writes a hash of the result, so that soak.sh can compare the results of
   ranks. */
static void say_result(uint64_t epoch, const double *result)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < collective.count; i++) {
        uint64_t bits;
        memcpy(&bits, &result[i], sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
    }
    say("result", "%" PRIu64 " %016" PRIx64, epoch, hash);
}

static baton_status_t step_collective(uint64_t epoch)
{
    static double gradient[CONSERVE_MOST], result[CONSERVE_MOST];
    const bool partial = collective.row == SUPPORT_PARTIAL;
    bool given;
    baton_status_t status;
    if (partial && account.given == CONSERVE_GIVEN) {
        status = baton_partial_start(collective.partial);
    } else {
        memset(gradient, 0, sizeof gradient);
        gradient[epoch * 7 % collective.count] = 1 + world.rank;
        if (partial) {
            conserve_give(&account, epoch, gradient);
        }
        status = support_collective_start(&collective, gradient, &given);
    }
    if (status == BATON_OK) {
        status = support_collective_wait(&collective, result, NULL);
    }
    const char *what =
        partial && status == BATON_OK
            ? conserve_check(&account, epoch, &collective, result)
            : NULL;
    if (what != NULL) {
        say("FAULT", "epoch %" PRIu64 ": %s", epoch, what);
    }
    /* An epoch that only dead ranks have ended is run again. */
    const bool dies = world.rank == plan.victim || is_at("everyone");
    if (status == BATON_OK && !(goes_on() && dies)) {
        say_result(epoch, result);
    }
    return status;
}

/* Returns an element of a vector or, with small messages, of a message from one
   rank to another. */
static uint64_t element(int from, int to, uint64_t epoch, size_t i)
{
    return works("dense")
               ? (uint64_t)from + epoch + i
               : ((uint64_t)(from * 16 + to) << 48) + epoch + i % MESSAGES;
}

static baton_status_t step_schedule(uint64_t epoch)
{
    const int rank = baton_group_rank(world.group);
    const uint64_t ranks = (uint64_t)baton_group_size(world.group);
    const size_t count = count_elements();
    for (size_t i = 0; i < count; i++) {
        input[i] = element(rank, (int)(i / MESSAGES), epoch, i);
    }
    baton_status_t status = baton_schedule_run(schedule, -1);
    for (size_t i = 0; i < count && status == BATON_OK; i++) {
        if (data[i] != (works("dense")
                            ? ranks * (ranks - 1) / 2 + ranks * (epoch + i)
                            : element((int)(i / MESSAGES), rank, epoch, i))) {
            say("FAULT", "epoch %" PRIu64 ": element %zu is wrong", epoch, i);
            break;
        }
    }
    return status;
}

/* ---- survivors ----------------------------------------------------------- */

static baton_group_t *older[2]; /* the groups that were shrunk */
static int older_count;

/* Returns the rank that is killed while all ranks shrink the group, or -1. */
static int second_victim(void)
{
    return world.seed % 3 != 0 || world.size < 3 || is_at("everyone")
               ? -1
               : (plan.victim + 1 +
                  (int)(world.seed / 3 % (uint64_t)(world.size - 1))) %
                     world.size;
}

static baton_status_t sum_in(baton_group_t *group)
{
    uint64_t sum, ranks = (uint64_t)baton_group_size(group);
    baton_schedule_t *s =
        support_mpi_sum(group, &sum, sizeof sum, BATON_U64, NULL);
    baton_status_t status = BATON_OK;
    for (uint64_t i = 0; i < SUMS && status == BATON_OK; i++) {
        sum = (uint64_t)baton_group_rank(group) + i;
        status = baton_schedule_run(s, -1);
        if (status == BATON_OK && sum != ranks * (ranks - 1) / 2 + ranks * i) {
            say("FAULT", "a wrong sum of %" PRIu64 " ranks", ranks);
        }
    }
    support_mpi_ok(baton_schedule_destroy(s));
    return status;
}

/* Moves the sparse all-reduce to the new group. Returns false if another
   failure has occurred. */
static bool move_sparse(baton_group_t *group)
{
    static double gradient[CONSERVE_MOST], result[CONSERVE_MOST];
    bool given, partial = strncmp(plan.work, "partial", 7) == 0;
    if (collective.sparse == NULL) {
        return true;
    }
    baton_status_t status = baton_sparse_shrink(collective.sparse, group, -1);
    if (status == BATON_ERR_STATE) {
        return true; /* the sparse all-reduce was never connected */
    }
    /* Get the results that this rank has missed. */
    while (status == BATON_OK && partial) {
        status = support_collective_wait(&collective, result, NULL);
    }
    for (uint64_t i = 0;
         i < SUMS && (i > 0 ? status == BATON_OK
                            : status == BATON_OK || status == BATON_ERR_STATE);
         i++) {
        gradient[i] = 1 + world.rank;
        status = support_collective_start(&collective, gradient, &given);
        if (status == BATON_OK) {
            status = support_collective_wait(&collective, result, NULL);
        }
        if (status == BATON_OK) {
            say_result(1000000 + i, result);
        }
    }
    if (status != BATON_OK && status != BATON_ERR_TRANSPORT) {
        say("FAULT", "sparse, shrunk: %s", baton_error_message());
    }
    return status == BATON_OK;
}

/* Shrinks the group until the remaining ranks have a group that works. */
static void go_on(void)
{
    const int second = second_victim();
    baton_group_t *group = world.group, *next = NULL;
    if (world.rank == second) {
        say("died_later", "");
        send_later(SIGKILL, support_random_below(&pace, LATE_US));
    }
    do {
        baton_status_t status = baton_group_shrink(group, -1, &next);
        if (status != BATON_OK || older_count == 2) {
            say("FAULT", "shrink: %s", baton_error_message());
            return;
        }
        older[older_count++] = group;
        group = next;
        while (world.rank == second) {
            (void)pause();
        }
    } while (sum_in(group) != BATON_OK || !move_sparse(group));
    say("shrunk", "%d", baton_group_size(group));
    world.group = group;
}

/* ---- a world ------------------------------------------------------------ */

/* Runs epochs until one fails or, if no rank is to fail, a number of epochs. */
static void run_epochs(void)
{
    const bool ends = is_at("stop") || is_at("leave") || goes_on();
    const bool plain = works("dense") || works("small");
    if (is_struck("commit")) {
        strike(0);
    }
    baton_status_t status = plain ? open_schedule() : open_collective();
    for (uint64_t epoch = 1;
         status == BATON_OK && (!ends || epoch <= plan.epoch + MORE); epoch++) {
        if (epoch == plan.epoch &&
            (is_struck("awake") || is_struck("asleep") || is_struck("stop"))) {
            strike(plan.delay_us);
        }
        dawdle(LATE_US / 8);
        status = plain ? step_schedule(epoch) : step_collective(epoch);
    }
    if (status != BATON_OK) {
        say(goes_on() ? "FAULT" : "error", "%s: %s", baton_status_name(status),
            baton_error_message());
    }
    if (status != BATON_OK && plan.child == 2) {
        status = baton_group_recover(world.group, -1);
        say("error", "recovery: %s: %s", baton_status_name(status),
            baton_error_message());
    }
    if (status != BATON_OK && !ends) {
        go_on();
    }
}

/* Number of this rank's exchanges while the group is made. */
static int exchanges = -1;

/* This definition replaces MPI's. MPI's function has a second name,
   MPI_Iallreduce, through which it can still be called. */
int PMPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    if (exchanges >= 0 && ++exchanges == 2 && is_struck("create")) {
        strike(plan.delay_us / 10); /* all ranks have come by then */
    }
    return MPI_Iallreduce(from, to, count, type, op, comm, request);
}

/* Returns false if a rank has ended meanwhile. */
static bool make_group(void)
{
    exchanges = 0;
    support_mpi_ok(baton_engine_open(NULL, &world.engine));
    baton_status_t status =
        support_mpi_group(world.engine, MPI_COMM_WORLD, &world.group);
    if (status == BATON_OK) {
        return true;
    }
    say("error", "create: %s: %s", baton_status_name(status),
        baton_error_message());
    support_mpi_ok(baton_engine_close(world.engine));
    return false;
}

static void leave(void)
{
    if (is_struck("leave")) {
        strike(plan.delay_us);
    }
    say("leave", "");
    baton_status_t status = schedule != NULL
                                ? baton_schedule_destroy(schedule)
                                : support_collective_destroy(&collective);
    say("destroyed", "%s", baton_status_name(status));
    const bool newest_first = support_once_in(&pace, 2);
    for (int i = 0; i <= older_count; i++) {
        int of = newest_first ? older_count - i : i;
        status =
            baton_group_destroy(of < older_count ? older[of] : world.group);
    }
    say("left", "%s", baton_status_name(status));
    support_mpi_ok(baton_engine_close(world.engine));
    free(input);
    free(data);
}

/* The address sanitizer has this function; NULL without it. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* Writes how many descriptors this process has, or how many of Baton's
   mappings. */
static void say_rest(const char *word, const char *path)
{
    char command[4200];
    snprintf(command, sizeof command,
             "echo %s %d 0 $(ls /proc/%d/fd | wc -l) $(grep -c "
             "'memfd:baton\\|shm/baton' /proc/%d/maps) >>%s",
             word, world.rank, getpid(), getpid(), path);
    if (system(command) != 0) {
        say("FAULT", "no shell");
    }
}

/* ---- orders of destroying ------------------------------------------------ */

static void destroy_one(int which)
{
    dawdle(LATE_US);
    say("begin", "%d", which);
    support_mpi_ok(which == 2 ? support_collective_destroy(&collective)
                              : baton_schedule_destroy(pairs[which]));
    say("end", "%d", which);
}

/* All ranks destroy a schedule that has run, a schedule that rank `late` has
   not committed yet, a partial all-reduce, and the group. Each rank does so in
   an order and at a pace of its own. The late rank learns that no rank waits
   for it. */
static void try_orders(int late)
{
    static uint64_t sums[2];
    const int first = (int)support_random_below(&pace, 3);
    const bool is_late = world.rank == late;
    support_mpi_ok(open_collective());
    for (int i = 0; i < 2; i++) {
        sums[i] = 1;
        pairs[i] = is_late && i == 1
                       ? NULL
                       : support_mpi_sum(world.group, &sums[i], 8, BATON_U64,
                                         "recursive_doubling");
    }
    support_mpi_run(pairs[0]);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        usleep(is_late ? LATE_US : 0);
        support_mpi_ok(step_collective(epoch));
    }
    for (int i = 0; i < 3; i++) {
        int which = (first + i) % 3;
        if (is_late && which == 1) {
            say("begin", "start");
            pairs[1] = support_mpi_sum(world.group, &sums[1], 8, BATON_U64,
                                       "recursive_doubling");
            baton_status_t status = baton_schedule_run(pairs[1], -1);
            say("end", "%s", baton_error_message());
            support_mpi_check(status != BATON_OK, "nobody took part");
        }
        destroy_one(which);
    }
}

int main(int argc, char **argv)
{
    if (argc != 11) {
        return 2;
    }
    log_file = open(argv[1], O_RDWR | O_APPEND | O_CREAT, 0666);
    plan.moment = argv[2];
    plan.victim = atoi(argv[3]);
    plan.epoch = strtoull(argv[4], NULL, 10);
    plan.delay_us = strtoull(argv[5], NULL, 10);
    plan.child = atoi(argv[6]);
    plan.work = argv[7];
    plan.count = strtoull(argv[8], NULL, 10);
    plan.mode = (uint32_t)atoi(argv[9]);
    plan.algorithm = argv[10];
    support_mpi_begin(argc, argv);
    /* This makes a rank that waits ask the others whether they live. */
    baton__engine_rechecks = true;
    pace = support_random(world.seed, (uint64_t)world.rank);
    say("process", "%d", getpid());
    if (is_at("everyone")) {
        strike(support_random_below(&pace, 1 + 10 * plan.delay_us));
    }
    support_mpi_open(); /* descriptors that MPI opens here stay open */
    support_mpi_healthy(world.group);
    support_mpi_ok(baton_group_destroy(world.group));
    support_mpi_ok(baton_engine_close(world.engine));
    say_rest("before", argv[1]);
    for (uint64_t i = 0; is_at("orders") && i < plan.epoch; i++) {
        support_mpi_open();
        try_orders((int)(i % (uint64_t)world.size));
        say("leave", "%" PRIu64, i);
        support_mpi_ok(baton_group_destroy(world.group));
        say("left", "%" PRIu64, i);
        support_mpi_ok(baton_engine_close(world.engine));
    }
    if (!is_at("orders") && make_group()) {
        run_epochs();
        leave();
    }
    say_rest("after", argv[1]);
    if (__lsan_do_recoverable_leak_check != NULL &&
        __lsan_do_recoverable_leak_check() != 0) {
        say("FAULT", "memory is lost");
    }
    say(is_struck("leave") ? "dies" : "done", "");
    /* If this process ended, mpirun would end the others, too; soak.sh kills
       it. */
    for (;;) {
        (void)pause();
    }
}
