/* Data-parallel training with several ways to sum the gradients: patterns to
   copy, and a comparison of what each way achieves. The network and its data
   are in model.h.

       mpirun -np 8 --oversubscribe ./train
       mpirun -np 4 --oversubscribe ./train --mode full
       mpirun -np 4 --oversubscribe ./train --mode sparse --systems topka:0.01

       for each step:                                             --mode
         for each layer, from the last:
           its gradient, of this rank's part of the batch
           if that completes a bucket: start its all-reduce   full
         contribute --> start --> wait                          partial
         start --> wait, for a few selected entries             sparse
         weights -= rate * sum of the gradients

   full: all-reduces of layers are in flight while earlier layers compute (Wang
   et al. 2017, see baton/coll.h; algorithms 1 to 3). They are compared with the
   same all-reduces after the backward pass. "Communication" is the mean time
   that a step spends in the calls that start all-reduces and wait for them.
   "hidden" is the share of that time that an overlapped step saves.

   partial: in each step one rank is delayed: a random one, each in turn, or
   always the last one (--late). With --late all every rank is delayed, by 50 to
   400 ms, and the delays move on by one rank each step (Li et al. 2020, section
   7.2.3). With --keep all every rank applies the sum of every epoch, in order,
   so the weights are the same on all ranks, bit for bit. With --keep latest a
   late rank applies only the latest sum, once. It never delays others, but its
   weights drift, so the ranks average their weights after each pass over the
   data.

   sparse: the bytes are counted, and the network's time is computed by the
   closed form (baton_sparse_cost), so both are the same on any machine.

   All systems train the same network from the same weights with the same
   batches, one system after another. */
#include "model.h"

#include <baton/mpi.h>
#include <baton/partial.h>
#include <baton/sparse.h>
#include <unistd.h>

static baton_group_t *group;

enum { HISTORY = 32 }; /* a rank may be so many epochs late with --keep all */

static const char *mode = "partial", *systems, *task, *late = "random",
                  *behind = "compute", *keep = "all";
static double passes = 48, batch, width, rate = 0.05, seed = 1, scale = 0.02,
              delay_ms = -1, device_ms, bucket_kib = 256, required,
              momentum = 0.9; /* of the classification; the regression has
                                 none */

/* A bucket has consecutive layers, from the last layer down to `until`, whose
   gradients are summed at once. So small layers are fused, as in PyTorch's
   DDP. */
static size_t buckets, until[MOST_LAYERS], begins[MOST_LAYERS],
    counts[MOST_LAYERS];

/* The training of one system. */
static struct {
    const char *name;
    enum { MPI, FORK, OVERLAP, PARTIAL, SPARSE } kind;
    int mode;                            /* of a partial all-reduce; or the
                                            sparse algorithm */
    double number;                       /* the number of the mode's ranks, or
                                            the density */
    size_t started;                      /* buckets of this step whose
                                            all-reduce has started */
    baton_schedule_t *sums[MOST_LAYERS]; /* one for each bucket */
    baton_partial_t *partial;
    uint64_t applied; /* the last epoch whose sum was applied */
    baton_sparse_t *sparse;
    float *dense;   /* the sparse sum as a dense vector */
    double seconds; /* of this step in calls that start or wait */
    double bytes, network_s;
} run;

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "train: %s\n", baton_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static bool is(const char *option, const char *value)
{
    return strcmp(option, value) == 0;
}

/* ---- full: the sum of each bucket's gradients, in place ----------------- */

static void cut_buckets(void)
{
    for (size_t l = model.layers; l-- > 0;) {
        size_t end = l > 0 ? model.first[l - 1] : model.count;
        until[buckets] = l;
        counts[buckets] = end - begins[buckets];
        if (l == 0 || 4 * counts[buckets] >= 1024 * (size_t)bucket_kib) {
            begins[++buckets] = end;
        }
    }
}

static void open_buckets(void)
{
    for (size_t b = 0; b < buckets; b++) {
        baton_operands_t operands = {.target = &model.gradient[begins[b]],
                                     .count = counts[b],
                                     .dtype = BATON_F32,
                                     .op = BATON_SUM,
                                     .name = "gradients"};
        must(baton_allreduce_create(group, &operands, &run.sums[b]));
    }
}

static void train_update(const float *sum, size_t first, size_t count)
{
    double began_s = MPI_Wtime();
    model_update(sum, first, count, rate, run.kind == SPARSE ? 0 : momentum);
    run.seconds -= MPI_Wtime() - began_s; /* updating is not communication */
}

/* Waits for each bucket and updates the layers of that bucket. */
static void finish_buckets(void)
{
    while (run.kind != MPI && run.started < buckets) {
        must(baton_schedule_start(run.sums[run.started++]));
    }
    for (size_t b = 0; b < buckets; b++) {
        float *gradient = &model.gradient[begins[b]];
        if (run.kind == MPI) {
            MPI_Allreduce(MPI_IN_PLACE, gradient, (int)counts[b], MPI_FLOAT,
                          MPI_SUM, MPI_COMM_WORLD);
        } else {
            must(baton_schedule_wait(run.sums[b], -1));
        }
        train_update(gradient, begins[b], counts[b]);
    }
}

/* ---- partial: one of all buckets, so that a sum has all of a rank's step  */

static void train_open_partial(void)
{
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    options.name = run.name;
    options.mode = (baton_partial_mode_t)run.mode;
    options.mode_ranks = (uint32_t)run.number;
    options.keep = is(keep, "all") ? BATON_KEEP_ALL : BATON_KEEP_LATEST;
    options.history = is(keep, "all") ? HISTORY : 1;
    options.seed = (uint64_t)seed;
    options.tensors = buckets;
    options.counts = counts;
    options.dtype = BATON_F32;
    must(baton_partial_create(group, &options, &run.partial));
}

/* Applies the sum of the gradients that are ready, and of those that late ranks
   contributed for earlier steps. With KEEP_LATEST a late rank may get a sum
   again that it has already applied. */
static void finish_partial(void)
{
    baton_partial_result_t result;
    must(baton_partial_start(run.partial));
    must(baton_partial_wait(run.partial, -1, &result));
    if (result.epoch > run.applied) {
        train_update(result.data, 0, model.count);
    }
    run.applied = result.epoch;
}

/* Returns whether the other ranks have ended the next step without this one. */
static bool train_is_behind(void)
{
    return run.kind == PARTIAL &&
           baton_schedule_epoch(baton_partial_schedule(run.partial)) >
               run.applied;
}

/* ---- sparse: instead of an all-reduce; momentum is the library's -------- */

static baton_sparse_options_t sparse_options(void)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = (baton_sparse_algorithm_t)run.mode;
    options.count = model.count;
    options.density = run.number;
    options.momentum = momentum;
    options.link = (baton_link_cost_t){50, 8}; /* a link of 50 us and 1
                                                  Gbit/s */
    return options;
}

static void open_sparse(void)
{
    baton_sparse_options_t options = sparse_options();
    must(baton_sparse_create(group, &options, -1, &run.sparse));
    run.dense = floats(model.count);
}

/* Dense steps always send the same number of bytes, which the statistics do not
   contain. */
static void finish_sparse(void)
{
    baton_sparse_result_t result;
    baton_sparse_stats_t stats;
    baton_sparse_cost_t cost;
    baton_sparse_options_t options = sparse_options();
    must(baton_sparse_start(run.sparse, model.gradient));
    must(baton_sparse_wait(run.sparse, -1, &result));
    must(baton_sparse_dense(run.sparse, run.dense));
    train_update(run.dense, 0, model.count);
    must(baton_sparse_stats(run.sparse, &stats));
    options.algorithm = stats.algorithm;
    must(baton_sparse_cost(&options, (int)model.size, &cost));
    run.bytes += stats.algorithm == BATON_SPARSE_DENSE
                     ? cost.bytes
                     : (double)stats.bytes_sent;
    run.network_s += cost.us / 1e6;
}

/* ---- a step ------------------------------------------------------------- */

static double delay_of(size_t step)
{
    size_t turn = (step + model.rank) % model.size;
    size_t one = is(late, "last") ? model.size - 1
                 : is(late, "rotate")
                     ? step % model.size
                     : (size_t)(uniform(DELAYS, step) * (double)model.size);
    return is(late, "all")
               ? 50 + 350 * (double)turn / fmax((double)model.size - 1, 1)
           : model.rank == one ? delay_ms
                               : 0;
}

static void layer_is_ready(size_t layer)
{
    size_t b = run.started;
    if ((run.kind != OVERLAP && run.kind != PARTIAL) || until[b] != layer) {
        return;
    }
    double began_s = MPI_Wtime();
    if (run.kind == OVERLAP) {
        must(baton_schedule_start(run.sums[b]));
    } else {
        must(baton_partial_contribute_tensor(run.partial, b,
                                             &model.gradient[begins[b]]));
    }
    run.started++;
    run.seconds += MPI_Wtime() - began_s;
}

/* Computes the gradient. In addition the rank sleeps as long as an accelerator
   would compute: two thirds of that time in the backward pass. */
static void train_compute(size_t step)
{
    double third_us = 1e3 * device_ms / (double)model.layers / 3;
    usleep((useconds_t)(1e3 * delay_of(step) * scale));
    model_batch(step);
    for (size_t l = 0; l < model.layers; l++) {
        model_forward(l);
        usleep((useconds_t)third_us);
    }
    (void)model_loss((float)(model.batch * model.size), &(size_t){0});
    for (size_t l = model.layers; l-- > 0;) {
        model_backward(l);
        usleep((useconds_t)(2 * third_us));
        layer_is_ready(l);
    }
}

static void take_step(size_t step)
{
    run.started = 0;
    run.seconds = 0;
    if (is(behind, "compute") || !train_is_behind()) {
        train_compute(step);
    }
    double began_s = MPI_Wtime();
    if (run.kind == PARTIAL) {
        finish_partial();
    } else if (run.kind == SPARSE) {
        finish_sparse();
    } else {
        finish_buckets();
    }
    run.seconds += MPI_Wtime() - began_s;
}

/* ---- a system ----------------------------------------------------------- */

/* Trains, and returns the mean time of a step's communication in ms. The first
   pass over the data is a warm-up: it does not count, unless it is the only
   one. */
static double train_steps(double *seconds_out)
{
    size_t steps = (size_t)passes * model.steps;
    size_t first = passes > 1 ? model.steps : 0;
    double sum_s = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double began_s = MPI_Wtime();
    for (size_t step = 0; step < steps; step++) {
        take_step(step);
        sum_s += step >= first ? run.seconds : 0;
        if (is(keep, "latest") && run.kind == PARTIAL &&
            (step + 1) % model.steps == 0) {
            must(baton_allreduce_now(group, NULL, model.weights, model.count,
                                     BATON_F32, BATON_AVG));
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    *seconds_out = MPI_Wtime() - began_s;
    return 1e3 * sum_s / (double)(steps - first);
}

/* Trains one system and prints its row. Returns false if the weights differ
   between ranks, or the accuracy is too low. Baton's sums have the same bits on
   all ranks, so the weights have the same bits, too, except with --keep
   latest. */
static bool run_system(void)
{
    static double fork_ms = NAN;
    double seconds, loss, accuracy;
    model_reset((uint64_t)seed);
    if (run.kind == PARTIAL) {
        train_open_partial();
    } else if (run.kind == SPARSE) {
        open_sparse();
    } else if (run.kind != MPI) {
        open_buckets();
    }
    double ms = train_steps(&seconds);
    fork_ms = run.kind == FORK ? ms : fork_ms;
    uLong own = crc32(0, (const void *)model.weights, 4 * (uInt)model.count);
    uLong digests[2] = {own, ~own};
    MPI_Allreduce(MPI_IN_PLACE, digests, 2, MPI_UNSIGNED_LONG, MPI_MIN,
                  MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &run.bytes, 1, MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
    model_check(&loss, &accuracy);
    if (model.rank == 0) {
        printf("%-14s %9.2f %9.5f %9.2f %9.3f %9.1f %9.3f %9.4f  %08lx\n",
               run.name, seconds, loss, accuracy, ms,
               run.kind == OVERLAP ? 100 * (1 - ms / fork_ms) : 0,
               run.bytes / 1e6, run.network_s, own);
    }
    for (size_t b = 0; b < buckets; b++) {
        must(baton_schedule_destroy(run.sums[b]));
    }
    must(baton_partial_destroy(run.partial));
    must(baton_sparse_destroy(run.sparse));
    free(run.dense);
    return (digests[0] == ~digests[1] || run.kind == MPI ||
            is(keep, "latest")) &&
           (model.rank > 0 || accuracy >= required || required == 0);
}

/* ---- the command -------------------------------------------------------- */

static const struct {
    const char *name, **text, *allowed;
    double *number, least, most;
} options[] = {
    {"--mode", &mode, " full partial sparse ", NULL, 0, 0},
    {"--systems", &systems,
     " of mpi, fork, overlap; full, solo, majority, quorum:Q, any:M, all:M; "
     "ALGORITHM:DENSITY",
     NULL, 0, 0},
    {"--task", &task, " hyperplane digits ", NULL, 0, 0},
    {"--late", &late, " random rotate last all ", NULL, 0, 0},
    {"--behind", &behind, " compute skip ", NULL, 0, 0},
    {"--keep", &keep, " all latest ", NULL, 0, 0},
    {"--epochs", NULL, NULL, &passes, 1, 1e6},
    {"--batch", NULL, NULL, &batch, 1, 1e6},
    {"--width", NULL, NULL, &width, 1, 8192},
    {"--rate", NULL, NULL, &rate, 0, 100},
    {"--seed", NULL, NULL, &seed, 0, 1e6},
    {"--scale", NULL, NULL, &scale, 0.002, 1},
    {"--delay-ms", NULL, NULL, &delay_ms, 0, 60000},
    {"--device-ms", NULL, NULL, &device_ms, 0, 10000},
    {"--bucket-kib", NULL, NULL, &bucket_kib, 0, 65536},
    {"--require", NULL, NULL, &required, 0, 100},
};
enum { OPTIONS = sizeof options / sizeof options[0] };

static const struct {
    const char *systems, *task;
    size_t layers; /* number of hidden layers */
    double width, delay_ms;
} defaults[] = {
    /* Defaults of the modes full, partial and sparse. */
    {"mpi,fork,overlap", "digits", 4, 256, 0},
    {"mpi,full,solo,majority,quorum", "hyperplane", 1, 32, 300},
    {"dense,spardl,topka,topkdsa,gtopk,oktopk,redsync", "digits", 2, 128, 0},
};

/* Prints on rank 0 that an option is wrong, and all options. Then all ranks
   exit. */
static void train_refuse(const char *name, const char *value)
{
    for (int i = -1; model.rank == 0 && i < OPTIONS; i++) {
        if (i < 0) {
            fprintf(stderr, "train: %s %s is not valid. The options are:\n",
                    name, value);
        } else if (options[i].number != NULL) {
            fprintf(stderr, "  %-13s %g to %g\n", options[i].name,
                    options[i].least, options[i].most);
        } else {
            fprintf(stderr, "  %-13s%s\n", options[i].name, options[i].allowed);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* Reads an option. Counts must be whole numbers. */
static void train_read_option(const char *name, const char *value)
{
    char *end = NULL, word[32];
    int i = 0;
    while (i < OPTIONS && !is(name, options[i].name)) {
        i++;
    }
    if (i == OPTIONS || value == NULL) {
        train_refuse(name, "");
    } else if (options[i].text != NULL) {
        *options[i].text = value;
        snprintf(word, sizeof word, " %s ", value);
        if (options[i].text != &systems &&
            strstr(options[i].allowed, word) == NULL) {
            train_refuse(name, value);
        }
    } else {
        double number = *options[i].number = strtod(value, &end);
        if (*end != '\0' || !(number >= options[i].least) ||
            number > options[i].most ||
            (options[i].least == 1 && number != floor(number))) {
            train_refuse(name, value);
        }
    }
}

/* Reads "NAME" or "NAME:NUMBER". The default of NUMBER is half of the ranks, or
   1 %. */
static void train_read_system(const char *text)
{
    static const char *const names[] = {"mpi",    "fork",     "overlap",
                                        "solo",   "majority", "full",
                                        "quorum", "any",      "all"};
    char name[16] = "", rest = 0;
    double least = 1, most = (double)model.size, number = ceil(most / 2);
    int i = 0, count = sizeof names / sizeof names[0];
    int read = sscanf(text, "%15[^:]:%lf%c", name, &number, &rest);
    while (i < count && !is(name, names[i])) {
        i++;
    }
    memset(&run, 0, sizeof run);
    run.name = text;
    run.kind = i < PARTIAL ? i : i < count ? PARTIAL : SPARSE;
    run.mode = i - PARTIAL; /* in the order of baton_partial_mode_t */
    if (run.kind == SPARSE) {
        run.mode = 0;
        while (run.mode < BATON_SPARSE_COUNT &&
               !is(name, baton_sparse_algorithm_name(run.mode))) {
            run.mode++;
        }
        number = read == 1 ? 0.01 : number;
        least = 1e-9;
        most = 1;
    }
    bool counts_ranks = run.kind == PARTIAL && run.mode >= BATON_QUORUM;
    run.number = counts_ranks || run.kind == SPARSE ? number : 0;
    if (rest != 0 || number < least || number > most ||
        (read > 1 && run.number == 0) || run.mode == BATON_SPARSE_COUNT ||
        text[strlen(name)] != (read > 1 ? ':' : '\0')) {
        train_refuse("--systems", text);
    }
}

static void train_read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        train_read_option(argv[i], argv[i + 1]);
    }
    int i = is(mode, "full") ? 0 : is(mode, "partial") ? 1 : 2;
    systems = systems != NULL ? systems : defaults[i].systems;
    task = task != NULL ? task : defaults[i].task;
    width = width > 0 ? width : defaults[i].width;
    delay_ms = delay_ms >= 0 ? delay_ms : defaults[i].delay_ms;
    model.plane = is(task, "hyperplane");
    momentum = model.plane ? 0 : momentum;
    model.scale = scale;
    const char *source =
        model_open((size_t)batch, defaults[i].layers, (size_t)width);
    if (model.rank == 0) {
        printf("%s (%s): %zu ranks, %zu steps of %zu examples an epoch, %g "
               "epochs, scale %g\n%-14s %9s %9s %9s %9s %9s %9s %9s  digest\n",
               task, source, model.size, model.steps, model.batch * model.size,
               passes, scale, "system", "seconds", "loss", "accuracy",
               "comm_ms", "hidden_%", "mb_sent", "network_s");
    }
}

int main(int argc, char **argv)
{
    int level, rank, size;
    bool passed = true;
    baton_engine_t *engine;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    model.rank = (size_t)rank;
    model.size = (size_t)size;
    openblas_set_num_threads(1); /* each rank computes with one thread */
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    train_read_options(argc, argv);
    cut_buckets();
    char *list = strdup(systems), *rest = list;
    for (char *name; (name = strsep(&rest, ",")) != NULL;) {
        train_read_system(name);
        passed &= run_system();
    }
    free(list);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    MPI_Finalize();
    return passed ? 0 : 1;
}
