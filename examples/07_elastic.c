/* Elastic training without mpirun: a rank dies, the others go on, and a new
   process takes its place.

       ./07_elastic            starts 4 processes, and later one more

       step      1 ...            20             21 ...           40
       rank 0    gradient --+     gradient --+   gradient --+     +--weight
       rank 1    gradient --+     gradient --+   gradient --+     |
       rank 2    gradient --+     kill -9    x                    +->new process
       rank 3    gradient --+     gradient --+   gradient --+
                            v                v              v
                       mean of 4        mean of 3      mean of 3

   The ranks look for one number, each by a slope of its own. The three ranks
   that are left train on, by baton_group_shrink. After step 40 they make a
   group of four with the new process, which gets a free rank, and the weight
   and the step from a rank that has them. */
#include <baton/store.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, STEPS = 80, LAST_STEP = 20, JOIN_STEP = 40 };

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "%s\n", baton_error_message());
        exit(1);
    }
}

static void change(baton_group_t **group, baton_group_t *next)
{
    must(baton_group_destroy(*group));
    *group = next;
}

/* Sends the state, which is the weight and the step, to the ranks that have
   joined. */
static void share(baton_group_t *group, double state[2])
{
    int root = 0;
    while (baton_group_origin(group, root) < 0) {
        root++;
    }
    must(baton_broadcast_now(group, state, 2, BATON_F64, root));
}

/* Processes below RANKS make the first group; any other one joins. */
static void train(const char *folder, int process)
{
    double state[2] = {0}, mean[2]; /* of the gradients and the losses */
    baton_engine_t *engine;
    baton_store_t store;
    baton_group_t *group, *next;
    must(baton_engine_open(NULL, &engine));
    must(baton_store_open_folder(folder, &store));
    if (process < RANKS) {
        must(baton_group_create_store(engine, &store, process, RANKS, "first",
                                      60000, &group));
    } else {
        must(baton_group_join(engine, &store, "next", 60000, &group));
        share(group, state);
    }
    while (state[1] < STEPS) {
        if (process == 2 && state[1] == LAST_STEP) {
            raise(SIGKILL);
        }
        mean[0] = (state[0] - 10) * (process + 1) / 4;
        mean[1] = mean[0] * mean[0];
        baton_status_t status =
            baton_allreduce_now(group, NULL, mean, 2, BATON_F64, BATON_AVG);
        if (status == BATON_ERR_TRANSPORT) {
            must(baton_group_shrink(group, 60000, &next));
            change(&group, next);
            continue; /* repeats the step */
        }
        must(status);
        state[0] -= 0.1 * mean[0];
        state[1] += 1;
        if (baton_group_rank(group) == 0 && (int)state[1] % 10 == 0) {
            printf("step %2.0f: %d ranks, loss %.6f\n", state[1],
                   baton_group_size(group), mean[1]);
        }
        if (state[1] == JOIN_STEP) {
            must(baton_group_reconfigure(group, &store, RANKS, "next", 60000,
                                         &next));
            change(&group, next);
            share(group, state);
        }
    }
    must(baton_group_destroy(group));
    baton_store_close_folder(&store);
    must(baton_engine_close(engine));
    exit(0);
}

int main(void)
{
    char folder[] = "/tmp/07_elastic.XXXXXX";
    int failed = mkdtemp(folder) == NULL;
    for (int process = 0; process <= RANKS; process++) {
        if (fork() == 0) {
            train(folder, process); /* does not return */
        }
    }
    for (int status; wait(&status) > 0;) {
        failed += WIFEXITED(status) ? WEXITSTATUS(status) != 0 : 0;
    }
    execlp("rm", "rm", "-r", failed > 0 ? "" : folder, (char *)NULL);
    return 1;
}
