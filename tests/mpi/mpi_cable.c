/* All ranks run an all-reduce in a loop, and check its sums, until the file
   DIR/stop exists. Once the loop is under way, each rank writes its process
   number to DIR/process.RANK. A rank whose epoch fails writes the error message
   to DIR/error.RANK, and waits to be killed. Meanwhile cable.sh interrupts the
   network between hosts, or kills ranks.

     mpi_cable      200 epochs
     mpi_cable DIR  as described above

   mpi_cable DIR ALGORITHM: a rank whose epoch fails shrinks the group, and goes
   on with the loop in the new one. A rank that ends writes DIR/end.RANK: the
   number of epochs and the ranks of its last group, or why it has none. cut.sh
   calls this. */
#include "progress/driving/engine.h"
#include "support/mpi.h"
#include "support/random.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 4096, FEW = 200, MOST = 32, PAUSE_US = 2000 };

static const char *dir;
static const char *algorithm = "recursive_doubling";
static baton_group_t *group;
/* For each rank of the group, its rank in the world. */
static int members[MOST];
static uint64_t data[COUNT];
static uint64_t epoch;

/* Writes a file under another name, and renames it, so that a reader finds the
   whole text or no file. */
static void touch(const char *name, int number, const char *text)
{
    char path[4096], temporary[4200];
    snprintf(path, sizeof(path), "%s/%s.%d", dir, name, number);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    FILE *file = fopen(temporary, "w");
    if (file == NULL || fprintf(file, "%s\n", text) < 0 || fclose(file) != 0 ||
        rename(temporary, path) != 0) {
        perror(path);
        _exit(1);
    }
}

static void await_the_end(void)
{
    for (;;) { /* if this process ended, mpirun would end the others, too */
        (void)pause();
    }
}

static bool is_told_to_stop(void)
{
    char path[4096];
    if (dir == NULL) {
        return epoch == FEW;
    }
    snprintf(path, sizeof(path), "%s/stop", dir);
    return access(path, F_OK) == 0;
}

static void check(void)
{
    uint64_t all = 0;
    int size = baton_group_size(group);
    for (int i = 0; i < size; i++) {
        all += (uint64_t)members[i];
    }
    for (uint64_t i = 1; i < COUNT; i++) {
        support_mpi_check(data[i] == all + (uint64_t)size * (epoch + i),
                          "a wrong sum");
    }
}

/* Runs epochs until all ranks stop, or one epoch fails. */
static baton_status_t loop(baton_schedule_t *schedule)
{
    support_random_t pace = support_random(world.seed, (uint64_t)world.rank);
    for (epoch = 1; data[0] == 0; epoch++) {
        data[0] = baton_group_rank(group) == 0 && is_told_to_stop();
        for (uint64_t i = 1; i < COUNT; i++) {
            data[i] = (uint64_t)world.rank + epoch + i;
        }
        if (dir != NULL && epoch > FEW) {
            (void)usleep((useconds_t)support_random_below(&pace, PAUSE_US));
        }
        baton_status_t status = baton_schedule_run(schedule, -1);
        if (status != BATON_OK) {
            /* A later group numbers its ranks anew. */
            if (group == world.group) {
                touch("error", world.rank, baton_error_message());
            }
            return status;
        }
        check();
        if (epoch == FEW && dir != NULL) {
            char process[32];
            snprintf(process, sizeof(process), "%ld", (long)getpid());
            touch("process", world.rank, process);
        }
    }
    return BATON_OK;
}

/* Shrinks the group. Returns true if this rank goes on. Old groups are not
   destroyed. */
static bool shrink(void)
{
    baton_group_t *next = NULL;
    if (baton_group_shrink(group, -1, &next) != BATON_OK) {
        return false;
    }
    for (int i = 0; i < baton_group_size(next); i++) {
        members[i] = members[baton_group_origin(next, i)];
    }
    group = next;
    return true;
}

static void end(bool goes_on)
{
    char text[1024] = "";
    snprintf(text, sizeof text, "%llu", (unsigned long long)epoch);
    for (int i = 0; goes_on && i < baton_group_size(group); i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d",
                 members[i]);
    }
    touch("end", world.rank, goes_on ? text : baton_error_message());
    await_the_end();
}

int main(int argc, char **argv)
{
    dir = argc > 1 ? argv[1] : NULL;
    algorithm = argc > 2 ? argv[2] : algorithm;
    support_mpi_begin(argc, argv);
    /* This makes a rank that waits ask the others whether they live. */
    baton__engine_rechecks = true;
    support_mpi_open();
    group = world.group;
    for (int i = 0; i < world.size && i < MOST; i++) {
        members[i] = i;
    }
    baton_schedule_t *schedule;
    baton_status_t status = BATON_OK;
    do {
        data[0] = 0;
        schedule =
            support_mpi_sum(group, data, sizeof(data), BATON_U64, algorithm);
        status = loop(schedule);
        if (status != BATON_OK && argc <= 2) {
            await_the_end();
        }
    } while (status != BATON_OK && shrink());
    if (argc > 2) {
        end(status == BATON_OK);
    }
    support_mpi_ok(baton_schedule_destroy(schedule));
    support_mpi_end();
    return 0;
}
