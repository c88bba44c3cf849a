/* Data-parallel training, and what becomes of it by each way to sum the
   gradients. The patterns to copy are in exchange.c.

       mpirun -np 8 --oversubscribe ./train --csv loss.csv
       mpirun -np 4 --oversubscribe ./train --mode full
       mpirun -np 4 --oversubscribe ./train --mode sparse --csv sparse.csv

       for each step:                                             --mode
           for each layer, from the last:
               its gradient, of this rank's part of the batch
               if that completes a bucket: start its all-reduce   full
           contribute --> start --> wait                          partial
           start --> wait, for a few selected entries             sparse
           weights -= rate * sum of the gradients

   full: all-reduces of layers are in flight while earlier layers compute
   (Wang et al. 2017, see baton/coll.h; algorithms 1 to 3), against the same
   ones behind the backward pass. Communication is the time that a step spends
   in the calls that start all-reduces and wait for them; hidden is the share of
   it that an overlapped step does not spend there.

   partial: in each step one rank is delayed, at random, in turn or always the
   last one (--late); with --late all all of them are, by 50 to 400 ms, shifted
   by one rank each step (Li et al. 2020, section 7.2.3). With --keep all every
   rank applies the sum of every epoch, in order, so the weights are the same on
   all ranks, bit for bit. With --keep latest a rank that comes late applies the
   latest sum alone, once: it never holds others up, but its weights drift, so
   the ranks average theirs at the end of each epoch.

   sparse: bytes are counted, and the network's time is that of the closed form
   (baton_sparse_cost), so both are the same on any machine. A run that was
   saved goes on with the same bits: weights are the program's to save, and
   baton_sparse_save writes residuals and what the algorithm has learned.

   All systems train the same network from the same weights with the same
   batches, one system after another. */
#include "exchange.h"
#include "net.h"
#include "task.h"
#include "train.h"

#include <baton/mpi.h>
#include <baton/sparse.h>
#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 512 };

int rank, size;

/* A system's training. */
typedef struct trainer {
    const task_t *task;
    net_t net;
    exchange_t exchange;
    uint64_t first_step;     /* of this run; others were loaded */
    double *communication_s; /* [steps] */
    float *kept; /* rank 0's weights at the end of each epoch, to be checked
                    when no time is taken any more */
    run_t *run;
} trainer_t;

/* ---- a step ----------------------------------------------------------- */

static void delay(uint64_t step)
{
    uint64_t ranks = (uint64_t)size;
    double turn = (double)(((uint64_t)rank + step) % ranks);
    const struct {
        const char *late;
        double ms;
    } delays[] = {
        {"random",
         (int)(uniform(DELAYS, step) * size) == rank ? settings.delay_ms : 0},
        {"rotate", step % ranks == (uint64_t)rank ? settings.delay_ms : 0},
        {"last", rank == size - 1 ? settings.delay_ms : 0},
        {"all", 50 + (size > 1 ? 350 * turn / (size - 1) : 0)},
    };
    for (size_t i = 0; i < sizeof delays / sizeof delays[0]; i++) {
        if (strcmp(delays[i].late, settings.late) == 0) {
            usleep((useconds_t)(1e3 * delays[i].ms * settings.scale));
        }
    }
}

/* Besides computing the ranks sleep, as long as an accelerator would work: two
   thirds of it in the backward pass. */
static void take_step(trainer_t *trainer, uint64_t step)
{
    net_t *net = &trainer->net;
    double layer_ms = settings.device_ms / (double)net->layer_count;
    trainer->exchange.seconds = 0;
    if (strcmp(settings.behind, "skip") == 0 &&
        exchange_is_behind(&trainer->exchange)) {
        exchange_finish(&trainer->exchange);
        return;
    }
    delay(step);
    net->rows = task_batch(trainer->task, step, net->values[0], net->targets);
    for (size_t l = 0; l < net->layer_count; l++) {
        net_forward(net, l);
        usleep((useconds_t)(1e3 * layer_ms / 3));
    }
    net_loss(net, net->rows * (size_t)size);
    for (size_t l = net->layer_count; l-- > 0;) {
        net_backward(net, l);
        usleep((useconds_t)(1e3 * layer_ms * 2 / 3));
        exchange_layer(&trainer->exchange, l);
    }
    exchange_finish(&trainer->exchange);
    trainer->communication_s[step] = trainer->exchange.seconds;
}

/* ---- files ------------------------------------------------------------ */

/* Opens a file of weights; `state` is that of what the sparse all-reduce keeps
   beside them. */
static FILE *open_file(const trainer_t *trainer, const char *prefix,
                       const char *mode, char state[PATH_BYTES])
{
    char path[PATH_BYTES + 16];
    snprintf(state, PATH_BYTES, "%s-%s-rank%d", prefix,
             trainer->run->system.name, rank);
    snprintf(path, sizeof path, "%s-weights", state);
    FILE *file = fopen(path, mode);
    if (file == NULL) {
        perror(path);
        die("weights can't be saved or loaded");
    }
    return file;
}

static void save(const trainer_t *trainer, uint64_t step)
{
    char state[PATH_BYTES];
    const net_t *net = &trainer->net;
    size_t count = net->parameter_count;
    FILE *file = open_file(trainer, settings.save, "wb", state);
    if (fwrite(&step, sizeof step, 1, file) != 1 ||
        fwrite(net->weights, sizeof(float), count, file) != count ||
        fwrite(net->velocity, sizeof(float), count, file) != count ||
        fclose(file) != 0) {
        die("weights can't be written");
    }
    if (trainer->exchange.sparse != NULL) {
        must(baton_sparse_save(trainer->exchange.sparse, state));
    }
}

static void load(trainer_t *trainer)
{
    char state[PATH_BYTES];
    net_t *net = &trainer->net;
    size_t count = net->parameter_count;
    FILE *file = open_file(trainer, settings.load, "rb", state);
    if (fread(&trainer->first_step, sizeof(uint64_t), 1, file) != 1 ||
        fread(net->weights, sizeof(float), count, file) != count ||
        fread(net->velocity, sizeof(float), count, file) != count) {
        die("the file is not of these weights");
    }
    fclose(file);
    if (trainer->exchange.sparse != NULL) {
        must(baton_sparse_load(trainer->exchange.sparse, state));
    }
}

/* ---- training --------------------------------------------------------- */

static void average(net_t *net)
{
    MPI_Allreduce(MPI_IN_PLACE, net->weights, (int)net->parameter_count,
                  MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (size_t i = 0; i < net->parameter_count; i++) {
        net->weights[i] /= (float)size;
    }
}

static void end_epoch(trainer_t *trainer, double began_s)
{
    net_t *net = &trainer->net;
    run_t *run = trainer->run;
    if (trainer->exchange.partial != NULL &&
        strcmp(settings.keep, "latest") == 0) {
        average(net);
    }
    if (rank == 0) {
        memcpy(&trainer->kept[run->point_count * net->parameter_count],
               net->weights, net->parameter_count * sizeof *net->weights);
    }
    run->points[run->point_count++] =
        (point_t){.seconds = MPI_Wtime() - began_s,
                  .mb_sent = trainer->exchange.bytes / 1e6,
                  .network_s = trainer->exchange.network_s};
}

static void train(trainer_t *trainer)
{
    uint64_t steps = trainer->task->steps;
    uint64_t last = settings.epochs * steps;
    MPI_Barrier(MPI_COMM_WORLD);
    double began_s = MPI_Wtime();
    for (uint64_t step = trainer->first_step; step < last; step++) {
        take_step(trainer, step);
        if (step % steps == steps - 1) {
            end_epoch(trainer, began_s);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    trainer->run->figures[SECONDS] = MPI_Wtime() - began_s;
}

/* ---- what a run leaves behind ----------------------------------------- */

/* FNV-1a of the bits of this rank's weights. */
static uint64_t digest_of(const net_t *net)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    const unsigned char *bytes = (const void *)net->weights;
    for (size_t i = 0; i < net->parameter_count * sizeof(float); i++) {
        digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}

/* Medians are without the first epoch, which warms up, unless it is alone. */
static void summarise(trainer_t *trainer)
{
    run_t *run = trainer->run;
    exchange_t *exchange = &trainer->exchange;
    uint64_t steps = trainer->task->steps, first = trainer->first_step;
    uint64_t last = settings.epochs * steps;
    first += last - first > steps ? steps : 0;
    if (first < last) {
        run->figures[COMMUNICATION_MS] =
            1e3 * median(&trainer->communication_s[first], last - first);
    }
    run->figures[NETWORK_S] = exchange->network_s;
    run->figures[MB_SENT] = exchange->bytes / 1e6;
    run->digest = digest_of(&trainer->net);
    uint64_t digests[2] = {run->digest, ~run->digest};
    MPI_Allreduce(MPI_IN_PLACE, &run->figures[MB_SENT], 1, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, digests, 2, MPI_UINT64_T, MPI_MIN,
                  MPI_COMM_WORLD);
    run->identical = digests[0] == ~digests[1];
}

static void check(trainer_t *trainer)
{
    const task_t *task = trainer->task;
    net_t *net = &trainer->net;
    run_t *run = trainer->run;
    for (size_t epoch = 0; rank == 0 && epoch < run->point_count; epoch++) {
        memcpy(net->weights, &trainer->kept[epoch * net->parameter_count],
               net->parameter_count * sizeof *net->weights);
        score_t score =
            net_check(net, task->check_x, task->check_y, task->checks);
        run->points[epoch].loss = score.loss;
        run->points[epoch].accuracy = 100 * score.accuracy;
        run->figures[LOSS] = score.loss;
        run->figures[ACCURACY] = 100 * score.accuracy;
    }
}

static void open_trainer(trainer_t *trainer, baton_group_t *group,
                         const task_t *task, run_t *run)
{
    size_t widths[NET_MOST_LAYERS + 1], layers = settings.layers + 1;
    size_t steps = settings.epochs * task->steps;
    for (size_t l = 0; l <= layers; l++) {
        widths[l] = l == 0       ? task->inputs
                    : l < layers ? settings.width
                                 : task->outputs;
    }
    *trainer = (trainer_t){.task = task, .run = run};
    net_open(&trainer->net, widths, layers, task->most_rows, settings.seed);
    exchange_open(&trainer->exchange, group, &run->system, &trainer->net);
    trainer->communication_s = zeroed(steps, sizeof(double));
    trainer->kept =
        zeroed(rank == 0 ? settings.epochs * trainer->net.parameter_count : 1,
               sizeof(float));
    run->points = zeroed(settings.epochs, sizeof *run->points);
    for (int i = 0; i < FIGURES; i++) {
        run->figures[i] = NAN;
    }
}

static void run_system(baton_group_t *group, const task_t *task, run_t *run)
{
    trainer_t trainer;
    open_trainer(&trainer, group, task, run);
    if (settings.load != NULL) {
        load(&trainer);
    }
    train(&trainer);
    if (settings.save != NULL) {
        save(&trainer, settings.epochs * task->steps);
    }
    summarise(&trainer);
    check(&trainer);
    exchange_close(&trainer.exchange);
    net_close(&trainer.net);
    free(trainer.communication_s);
    free(trainer.kept);
}

/* ---- the command ------------------------------------------------------ */

/* Baton's sums have the same bits on all ranks, so the weights have too, but
   with --keep latest. */
static bool is_as_promised(const run_t *run)
{
    bool may_differ =
        run->system.kind == MPI || strcmp(settings.keep, "latest") == 0;
    bool learned = settings.required == 0 ||
                   run->figures[ACCURACY] >= 100 * settings.required;
    if (!learned || !(run->identical || may_differ)) {
        fprintf(stderr, "train: %s: %s\n", run->system.name,
                learned ? "ranks have different weights"
                        : "the required accuracy was not reached");
        return false;
    }
    return true;
}

static bool run_all(run_t *runs, size_t count)
{
    task_t task;
    baton_engine_t *engine;
    baton_group_t *group;
    openblas_set_num_threads(1); /* the ranks are the threads */
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    task_open(&task);
    if (rank == 0) {
        printf("%s (%s): %d ranks, %zu steps of %zu examples an epoch, %" PRIu64
               " epochs, scale %g\n",
               settings.task, task.source, size, task.steps,
               task.batch * (size_t)size, settings.epochs, settings.scale);
    }
    for (size_t i = 0; i < count; i++) {
        run_system(group, &task, &runs[i]);
    }
    bool passed = rank != 0 || report(runs, count);
    for (size_t i = 0; rank == 0 && i < count; i++) {
        passed &= is_as_promised(&runs[i]);
    }
    task_close(&task);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    return passed;
}

int main(int argc, char **argv)
{
    static run_t runs[MOST_SYSTEMS];
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    size_t count = read_options(argc, argv) ? read_systems(runs) : 0;
    bool passed = count > 0 && run_all(runs, count);
    for (size_t i = 0; i < count; i++) {
        free(runs[i].points);
    }
    MPI_Finalize();
    return count == 0 ? 2 : passed ? 0 : 1;
}
