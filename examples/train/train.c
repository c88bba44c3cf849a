/* Data-parallel training of a multilayer perceptron by each way in which Baton
   sums gradients: patterns to copy, and a comparison. docs/training.md explains
   them. Begin with the heading "Baton", which has all calls of the library but
   those of main, at the end.

       mpirun -np 8 --oversubscribe ./train
       mpirun -np 4 --oversubscribe ./train --mode full
       mpirun -np 4 --oversubscribe ./train --mode sparse --systems topka:0.01

   The systems of a mode, or of --systems, train one after another, with the
   same batches, from the same weights: mpi and overlap (mode full); partial
   modes (solo, majority, full, quorum:Q, any:M, all:M); sparse algorithms, each
   with a density. There are two tasks:

   hyperplane  the regression of Li et al. 2020 (eager-SGD, section 7.2.1): find
               the coefficients of a hyperplane of 8,192 dimensions from 32,768
               noisy points, with a one-layer perceptron and batches of 2,048
   digits      classification of handwritten digits, in place of the images of
               section 7.2.3

   One rank is late in each step: each in turn, or always the last (--late).
   With `all`, every rank is, by 50 to 400 ms, and the delays move on by one
   rank each step (section 7.2.3). */
#include "network.h"

#include <argp.h>
#include <baton/mpi.h>
#include <baton/partial.h>
#include <baton/sparse.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

/* ---- options ------------------------------------------------------------ */

static const char *mode = "partial", *systems, *task, *late = "rotate",
                  *behind = "compute";
static double passes = 48, batch, seed = 1, scale = 0.02, delay_ms = -1;

/* The keys are the places in `texts`, and then in `numbers`, below. */
static const struct argp_option options[] = {
    {"mode", 1, "full|partial|sparse", 0, "How gradients are summed", 0},
    {"systems", 2, "LIST", 0,
     "Of mpi, overlap; full, solo, majority, quorum:Q, any:M, all:M; "
     "ALGORITHM:DENSITY",
     0},
    {"task", 3, "hyperplane|digits", 0, "What is learned", 0},
    {"late", 4, "rotate|last|all", 0, "Which ranks are delayed", 0},
    {"behind", 5, "compute|skip", 0, "What a late rank does", 0},
    {"epochs", 6, "N", 0, "Passes over the data", 0},
    {"batch", 7, "N", 0, "Examples of a batch", 0},
    {"seed", 8, "N", 0, "Seed of the initial weights", 0},
    {"scale", 9, "X", 0, "Part of the paper's sizes and delays", 0},
    {"delay-ms", 10, "MS", 0, "Delay of a late rank, before scaling", 0},
    {.key = 'h', .flags = OPTION_HIDDEN},
    {0}};

/* Sets an option, if the value is allowed: a word of those in the option's
   name of its value, or a number. Numbers of 1 or more must be whole. */
static error_t train_read_option(int key, char *value, struct argp_state *state)
{
    static const char **const texts[] = {&mode, &systems, &task, &late,
                                         &behind};
    static double *const numbers[] = {&passes, &batch, &seed, &scale,
                                      &delay_ms};
    char *end = value, word[32], words[64];
    bool valid = key == 2;
    if (key == 'h') {
        argp_state_help(state, stdout, ARGP_HELP_STD_HELP); /* exits */
    }
    if (key < 1 || key > 10) {
        return ARGP_ERR_UNKNOWN;
    }
    const struct argp_option *option = &options[key - 1];
    if (key <= 5) {
        *texts[key - 1] = value;
        snprintf(word, sizeof word, "|%s|", value);
        snprintf(words, sizeof words, "|%s|", option->arg);
        valid = valid || strstr(words, word) != NULL;
    } else {
        double number = *numbers[key - 6] = strtod(value, &end);
        valid = *end == '\0' && number >= 0 &&
                (number < 1 || number == floor(number));
    }
    if (!valid) {
        argp_error(state, "--%s: %s is not valid", option->name, value);
    }
    return 0;
}

/* ---- Baton -------------------------------------------------------------- */

static baton_group_t *group;

static struct {
    const char *name;
    enum { MPI, OVERLAP, PARTIAL, SPARSE } kind;
    int which;     /* a baton_partial_mode_t, or a baton_sparse_algorithm_t */
    double number; /* how many ranks a mode waits for, or the density */
    baton_schedule_t *sums[MOST_LAYERS]; /* of each layer */
    baton_partial_t *partial;
    baton_sparse_t *sparse;
    baton_sparse_options_t sparse_options;
    double bytes, network_s; /* in sum */
} run;

/* The momentum of SGD, for the task digits only. */
#define MOMENTUM (plane ? 0 : 0.9)

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "train: %s\n", baton_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void open_system(void)
{
    for (int l = 0; run.kind == OVERLAP && l < layers; l++) {
        baton_operands_t operands = {.target = &gradient[firsts[l]],
                                     .count = counts[layers - 1 - l],
                                     .dtype = BATON_F32,
                                     .op = BATON_SUM,
                                     .name = "gradients"};
        must(baton_allreduce_create(group, &operands, &run.sums[l]));
    }
    if (run.kind == PARTIAL) { /* one for all layers */
        baton_partial_options_t of = BATON_PARTIAL_OPTIONS;
        of.name = run.name;
        of.mode = (baton_partial_mode_t)run.which;
        of.mode_ranks = (uint32_t)run.number;
        of.history = 32; /* no rank is further behind the others */
        of.seed = (uint64_t)seed;
        of.tensors = (size_t)layers;
        of.counts = counts;
        of.dtype = BATON_F32;
        must(baton_partial_create(group, &of, &run.partial));
    }
    if (run.kind == SPARSE) {
        baton_sparse_options_t of = BATON_SPARSE_OPTIONS;
        of.algorithm = (baton_sparse_algorithm_t)run.which;
        of.count = (size_t)count;
        of.density = run.number;
        of.momentum = MOMENTUM;               /* the library applies it */
        of.link = (baton_link_cost_t){50, 8}; /* of 50 us and 1 Gbit/s */
        must(baton_sparse_create(group, &of, -1, &run.sparse));
        run.sparse_options = of;
    }
}

/* Called when the layer has its gradient. While earlier layers compute theirs,
   its all-reduce is in flight (Wang et al. 2017, see baton/coll.h). */
static void give_layer(int l)
{
    if (run.kind == OVERLAP) {
        must(baton_schedule_start(run.sums[l]));
    } else if (run.kind == PARTIAL) {
        must(baton_partial_contribute_tensor(
            run.partial, (size_t)(layers - 1 - l), &gradient[firsts[l]]));
    }
}

/* Waits for the sum of the ranks' gradients, and returns it. */
static const float *take_sum(void)
{
    if (run.kind == MPI) {
        MPI_Allreduce(MPI_IN_PLACE, gradient, count, MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
    }
    for (int l = 0; run.kind == OVERLAP && l < layers; l++) {
        must(baton_schedule_wait(run.sums[l], -1));
    }
    if (run.kind == PARTIAL) { /* a late rank's part may be of a step before */
        baton_partial_result_t result;
        must(baton_partial_start(run.partial));
        must(baton_partial_wait(run.partial, -1, &result));
        return result.data;
    }
    if (run.kind == SPARSE) {
        baton_sparse_result_t result; /* the selected entries */
        must(baton_sparse_start(run.sparse, gradient));
        must(baton_sparse_wait(run.sparse, -1, &result));
        must(baton_sparse_dense(run.sparse, gradient));
    }
    return gradient;
}

/* Adds a sparse step's bytes and network time to the totals. The time is that
   of the closed form, so both are the same on any machine. Statistics do not
   count the bytes of a dense all-reduce, so these are the closed form's, too.
 */
static void count_sparse(void)
{
    baton_sparse_stats_t stats;
    baton_sparse_cost_t cost;
    must(baton_sparse_stats(run.sparse, &stats));
    run.sparse_options.algorithm = stats.algorithm;
    must(baton_sparse_cost(&run.sparse_options, ranks, &cost));
    run.bytes += stats.algorithm == BATON_SPARSE_DENSE
                     ? cost.bytes
                     : (double)stats.bytes_sent;
    run.network_s += cost.us / 1e6;
}

/* ---- a system ----------------------------------------------------------- */

/* Computes this rank's gradient, of its part of the batch. A late rank sleeps
   before. For hyperplane each rank has points of its own, for digits all
   images. */
static void compute_gradient(int step)
{
    int one = is(late, "last") ? ranks - 1 : step % ranks; /* the late rank */
    double delay = is(late, "all") ? 50 + 350.0 * ((step + rank) % ranks) /
                                              fmax(ranks - 1, 1)
                   : rank == one ? delay_ms
                                 : 0;
    usleep((useconds_t)(1e3 * delay * scale));
    int turn = plane ? step % steps : step % steps * ranks + rank;
    forward(turn * part, part);
    for (int row = 0; row < rows; row++) {
        (void)row_loss(row, 1 / (float)(part * ranks), &(int){0});
    }
    for (int l = layers - 1; l >= 0; l--) {
        backward(l);
        give_layer(l);
    }
}

/* Takes a step of SGD. With --behind skip a rank computes no gradient for a
   step whose epoch the other ranks have run without it; epochs count from 1. */
static void take_step(int step)
{
    float rate = plane ? 0.025F : 0.05F;
    float kept = run.kind == SPARSE ? 0 : (float)MOMENTUM;
    if (is(behind, "compute") || run.kind != PARTIAL ||
        baton_schedule_epoch(baton_partial_schedule(run.partial)) <=
            (uint64_t)step) {
        compute_gradient(step);
    }
    const float *sum = take_sum();
    for (int i = 0; i < count; i++) {
        velocity[i] = kept * velocity[i] - rate * sum[i];
        weights[i] += velocity[i];
    }
    if (run.kind == SPARSE) {
        count_sparse();
    }
}

/* Trains one system and prints its row. Returns false if the weights are not
   those of rank 0: Baton's sums have the same bits on all ranks. */
static bool run_system(void)
{
    reset_weights((int64_t)seed);
    open_system();
    MPI_Barrier(MPI_COMM_WORLD);
    double loss, began_s = MPI_Wtime();
    for (int step = 0; step < (int)passes * steps; step++) {
        take_step(step);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - began_s, accuracy = check_network(&loss);
    must(baton_allreduce_now(group, NULL, &run.bytes, 1, BATON_F64, BATON_MAX));
    if (rank == 0) {
        printf("%-14s %9.2f %9.5f %9.2f %9.3f %9.4f\n", run.name, seconds, loss,
               accuracy, run.bytes / 1e6, run.network_s);
    }
    memcpy(gradient, weights, (size_t)count * sizeof(float));
    must(baton_broadcast_now(group, gradient, (size_t)count, BATON_F32, 0));
    for (int l = 0; l < layers; l++) {
        must(baton_schedule_destroy(run.sums[l]));
    }
    must(baton_partial_destroy(run.partial));
    must(baton_sparse_destroy(run.sparse));
    return run.kind == MPI ||
           memcmp(gradient, weights, (size_t)count * sizeof(float)) == 0;
}

/* Sets `run` to the system "NAME" or "NAME:NUMBER", and returns whether there
   is such a system. Without NUMBER, a mode waits for half of the ranks, and a
   sparse all-reduce has a density of 1 %. The library checks the number. */
static bool train_read_system(const char *text)
{
    /* From "solo" on they are in the order of baton_partial_mode_t. */
    static const char *const names[] = {"mpi",  "overlap", "solo", "majority",
                                        "full", "quorum",  "any",  "all"};
    enum { AUTO = sizeof names / sizeof names[0] };
    char name[16] = "", rest;
    double number;
    int i = 0, read = sscanf(text, "%15[^:]:%lf%c", name, &number, &rest);
    while (i < AUTO + BATON_SPARSE_COUNT &&
           !is(name,
               i < AUTO ? names[i] : baton_sparse_algorithm_name(i - AUTO))) {
        i++;
    }
    memset(&run, 0, sizeof run);
    run.name = text;
    run.kind = i < PARTIAL ? i : i < AUTO ? PARTIAL : SPARSE;
    run.which = i - (i < AUTO ? PARTIAL : AUTO);
    run.number = read == 2                     ? number
                 : i >= AUTO                   ? 0.01
                 : i >= PARTIAL + BATON_QUORUM ? (ranks + 1) / 2
                                               : 0;
    return i < AUTO + BATON_SPARSE_COUNT && (read == 2 || is(text, name));
}

int main(int argc, char **argv)
{
    int level;
    bool passed = true;
    baton_engine_t *engine;
    const struct argp argp = {.options = options, .parser = train_read_option};
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    bool partial = is(mode, "partial"), full = is(mode, "full");
    const char *others =
        partial ? "mpi,full,solo,majority,quorum"
        : full  ? "mpi,overlap"
                : "dense,spardl,topka,topkdsa,gtopk,oktopk,redsync";
    plane = task != NULL ? is(task, "hyperplane") : partial;
    layers = plane ? 1 : partial ? 2 : full ? 5 : 3;
    delay_ms = delay_ms >= 0 ? delay_ms : partial ? 300 : 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    const char *source = open_network(partial ? 32
                                      : full  ? 256
                                              : 128,
                                      batch, scale);
    if (rank == 0) {
        printf("%s (%s): %d ranks, %d steps of %d examples an epoch, %g "
               "epochs, scale %g\nsystem           seconds      loss  accuracy"
               "   mb_sent network_s\n",
               plane ? "hyperplane" : "digits", source, ranks, steps,
               part * ranks, passes, scale);
    }
    char *rest = strdup(systems != NULL ? systems : others), *list = rest;
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        if (!train_read_system(name)) {
            fprintf(stderr, "train: --systems: there is no %s\n", name);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        passed &= run_system();
    }
    free(list);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return passed ? 0 : 1;
}
