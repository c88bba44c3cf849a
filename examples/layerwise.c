/* Layer-wise training: all-reduces while back-propagation goes on. The pattern
   to copy (papers: linear-pipeline, algorithms 1 to 3):

       mpirun -np 4 --bind-to none ./layerwise --plot step.svg

       for layer = last ... 0:
           gradient of the layer
           if that completes a bucket: start its all-reduce    <-- in flight
       for each bucket:                                         while earlier
           wait, update its layers                              layers compute

   A multilayer perceptron learns handwritten digits on all ranks, each with its
   part of the batch. Small layers are fused into buckets, as PyTorch's DDP
   does: an all-reduce of its own would cost them mostly latency. The gradients
   lie in the order in which they become ready, so a bucket is a range of them
   and nothing is copied. The schedules are committed once, before the first
   step.

   Four systems train the same network from the same weights, and take turns in
   each step, so that all see the same machine: MPI_Allreduce after the backward
   pass; the same with Baton (fork and join); reduce, update on one rank and
   broadcast (the other fork and join); and overlapped, as above. With
   --device-ms the computation also sleeps, as it would while an accelerator
   works: then all processors are free for the all-reduces.

   Communication is the time that a step spends in the calls that start
   all-reduces and wait for them. Hidden is the share of fork and join's that an
   overlapped step does not spend there; what the all-reduces take from the
   computation meanwhile shows in the speed-up. */
#include "digits.h"
#include "layerwise_net.h"
#include "layerwise_options.h"
#include "layerwise_report.h"

#include <baton/baton.h>
#include <baton/mpi.h>
#include <baton/tuning.h>
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static options_t asked; /* by the command line */

static int rank, size;

/* Consecutive layers, from `last` down to `first`, that are reduced at once. */
typedef struct bucket {
    size_t first_layer;
    size_t first, count;       /* of the parameters */
    baton_schedule_t *sum;     /* of the gradients; NULL: MPI does it */
    baton_schedule_t *weights; /* their broadcast, where one rank updates */
    double started_s, ended_s;
} bucket_t;

/* A network, and how its gradients are summed. */
typedef struct trainer {
    system_t system;
    net_t net;
    bucket_t buckets[NET_MOST_LAYERS];
    size_t bucket_count;
    double *step_s,
        *communication_s; /* [steps], on rank 0 they are looked at */
    double begun_s;       /* the current step */
    outcome_t *outcome;
} trainer_t;

static void die(const char *what)
{
    fprintf(stderr, "layerwise: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        die(baton_error_message());
    }
}

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    if (memory == NULL) {
        die("no memory");
    }
    return memory;
}

static double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---- buckets ---------------------------------------------------------- */

/* A node of the schedules, behind the collective. */
static baton_status_t record_end(void *arg, baton_call_t *call)
{
    bucket_t *bucket = arg;
    (void)call;
    bucket->ended_s = now_s();
    return BATON_OK;
}

/*  entry --> collective --> record_end  */
typedef struct enclosed {
    baton_enclosure_t inner;
    baton_node_t entry, exit;
} enclosed_t;

static enclosed_t begin(baton_schedule_t *schedule, bucket_t *bucket)
{
    enclosed_t enclosed = {.entry = baton_add_nop(schedule),
                           .exit =
                               baton_add_call(schedule, record_end, bucket)};
    enclosed.inner = baton_enclose_begin(schedule);
    return enclosed;
}

static void commit(baton_schedule_t *schedule, enclosed_t enclosed)
{
    baton_enclose_end(schedule, enclosed.inner, enclosed.entry, enclosed.exit);
    must(baton_schedule_commit(schedule));
}

/* A range of parameters or gradients of a bucket, in a schedule of its own. */
static baton_view_t bind(baton_schedule_t *schedule, float *all,
                         const bucket_t *bucket)
{
    size_t bytes = bucket->count * sizeof(float);
    baton_buffer_t buffer =
        baton_buffer_bind(schedule, &all[bucket->first], bytes);
    return baton_view(buffer, 0, bytes);
}

/* The sum of the gradients, in place, on all ranks. */
static void make_allreduce(baton_group_t *group, net_t *net, bucket_t *bucket)
{
    must(baton_schedule_create(group, "gradients", &bucket->sum));
    enclosed_t enclosed = begin(bucket->sum, bucket);
    baton_allreduce_t args = BATON_ALLREDUCE;
    args.source = bind(bucket->sum, net->gradient, bucket);
    args.target = args.source;
    args.dtype = BATON_F32;
    args.op = BATON_SUM;
    baton_allreduce(bucket->sum, &args);
    commit(bucket->sum, enclosed);
}

/* The sum on rank 0, and its weights to all ranks. */
static void make_reduce_broadcast(baton_group_t *group, net_t *net,
                                  bucket_t *bucket)
{
    must(baton_schedule_create(group, "gradients", &bucket->sum));
    enclosed_t enclosed = begin(bucket->sum, bucket);
    baton_reduce_t reduce = BATON_REDUCE;
    reduce.source = bind(bucket->sum, net->gradient, bucket);
    reduce.target = reduce.source;
    reduce.dtype = BATON_F32;
    reduce.op = BATON_SUM;
    baton_reduce(bucket->sum, &reduce);
    commit(bucket->sum, enclosed);

    must(baton_schedule_create(group, "weights", &bucket->weights));
    enclosed = begin(bucket->weights, bucket);
    baton_broadcast_t broadcast = BATON_BROADCAST;
    broadcast.data = bind(bucket->weights, net->weights, bucket);
    baton_broadcast(bucket->weights, &broadcast);
    commit(bucket->weights, enclosed);
}

/* Layers join the bucket until it has bucket_bytes. */
static void make_buckets(baton_group_t *group, trainer_t *trainer)
{
    net_t *net = &trainer->net;
    bucket_t *bucket = NULL;
    for (size_t l = net->layer_count; l-- > 0;) {
        if (bucket == NULL) {
            bucket = &trainer->buckets[trainer->bucket_count++];
            bucket->first = net->layers[l].first;
        }
        bucket->count += net->layers[l].count;
        bucket->first_layer = l;
        if (bucket->count * sizeof(float) >= asked.bucket_bytes) {
            bucket = NULL;
        }
    }
    for (size_t b = 0; b < trainer->bucket_count; b++) {
        bucket = &trainer->buckets[b];
        if (trainer->system == REDUCE_BROADCAST) {
            make_reduce_broadcast(group, net, bucket);
        } else if (trainer->system != BLOCKING) {
            make_allreduce(group, net, bucket);
        }
    }
}

static void start(bucket_t *bucket)
{
    bucket->started_s = now_s();
    must(baton_schedule_start(bucket->sum));
}

static void call_mpi(net_t *net, bucket_t *bucket)
{
    bucket->started_s = now_s();
    MPI_Allreduce(MPI_IN_PLACE, &net->gradient[bucket->first],
                  (int)bucket->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    bucket->ended_s = now_s();
}

/* ---- a step ----------------------------------------------------------- */

static void add_span(trainer_t *trainer, bool communication, double from_s,
                     double to_s, const char *what, size_t number)
{
    outcome_t *outcome = trainer->outcome;
    if (outcome->span_count == MOST_SPANS) {
        return;
    }
    outcome->spans[outcome->span_count++] =
        (span_t){.communication = communication,
                 .what = what,
                 .number = number,
                 .from_s = from_s - trainer->begun_s,
                 .to_s = to_s - trainer->begun_s};
}

/* The part of the device's time that is this layer's: the backward pass takes
   two thirds. */
static void sleep_as_device(const net_t *net, double share)
{
    double seconds = share * asked.device_ms / 1e3 / (double)net->layer_count;
    struct timespec time = {.tv_sec = (time_t)seconds,
                            .tv_nsec = (long)(fmod(seconds, 1) * 1e9)};
    if (seconds > 0) {
        nanosleep(&time, NULL);
    }
}

static double forward(trainer_t *trainer, const uint8_t *labels)
{
    net_t *net = &trainer->net;
    for (size_t l = 0; l < net->layer_count; l++) {
        double from_s = now_s();
        net_forward(net, l);
        sleep_as_device(net, 1.0 / 3);
        add_span(trainer, false, from_s, now_s(), "F", l);
    }
    return net_loss(net, labels, net->batch * (size_t)size);
}

/* Starts each bucket when the gradient of its first layer is there, if this
   system overlaps. Returns the seconds that starting took. */
static double backward(trainer_t *trainer)
{
    net_t *net = &trainer->net;
    bucket_t *next = trainer->buckets;
    double seconds = 0;
    for (size_t l = net->layer_count; l-- > 0;) {
        double from_s = now_s();
        net_backward(net, l);
        sleep_as_device(net, 2.0 / 3);
        add_span(trainer, false, from_s, now_s(), "B", l);
        if (trainer->system == OVERLAPPED && next->first_layer == l) {
            start(next);
            seconds += now_s() - next->started_s;
            next++;
        }
    }
    return seconds;
}

/* Waits for the sum, and updates the bucket's layers. Returns the seconds
   before the update. */
static double finish(trainer_t *trainer, bucket_t *bucket, double from_s)
{
    if (bucket->sum == NULL) {
        call_mpi(&trainer->net, bucket);
    } else {
        must(baton_schedule_wait(bucket->sum, -1));
    }
    double seconds = now_s() - from_s;
    if (bucket->weights == NULL || rank == 0) {
        net_update(&trainer->net, bucket->first, bucket->count);
    }
    return seconds;
}

/* Waits for all buckets. Returns the seconds that were not spent in updates. */
static double join(trainer_t *trainer)
{
    bucket_t *end = trainer->buckets + trainer->bucket_count;
    double seconds = 0;
    double from_s = now_s();
    bool forks =
        trainer->system == FORK_JOIN || trainer->system == REDUCE_BROADCAST;
    for (bucket_t *bucket = trainer->buckets; forks && bucket < end; bucket++) {
        start(bucket);
    }
    for (bucket_t *bucket = trainer->buckets; bucket < end; bucket++) {
        seconds += finish(trainer, bucket, from_s);
        from_s = now_s();
        if (bucket->weights != NULL) {
            must(baton_schedule_start(bucket->weights));
        }
    }
    for (bucket_t *bucket = trainer->buckets; bucket < end; bucket++) {
        if (bucket->weights != NULL) {
            must(baton_schedule_wait(bucket->weights, -1));
        }
        add_span(trainer, true, bucket->started_s, bucket->ended_s, "",
                 (size_t)(bucket - trainer->buckets));
    }
    return seconds + now_s() - from_s;
}

/* This rank's images of a step, which all ranks go through in the same order.
 */
static void load_batch(const digits_t *digits, net_t *net, size_t step,
                       uint8_t *labels)
{
    size_t first = (step * (size_t)size + (size_t)rank) * net->batch;
    for (size_t i = 0; i < net->batch; i++) {
        size_t image = (first + i) % TRAINED;
        memcpy(&net->values[0][i * DIGITS_PIXELS],
               &digits->pixels[image * DIGITS_PIXELS],
               DIGITS_PIXELS * sizeof(float));
        labels[i] = digits->label[image];
    }
}

/* Returns the sum of this rank's losses. The timeline is of the last step. The
   barrier is for the measurement alone: it keeps one system's late ranks out of
   the next system's step. */
static double take_step(trainer_t *trainer, const digits_t *digits, size_t step,
                        uint8_t *labels)
{
    load_batch(digits, &trainer->net, step, labels);
    MPI_Barrier(MPI_COMM_WORLD);
    trainer->outcome->span_count = 0;
    trainer->begun_s = now_s();
    double loss = forward(trainer, labels);
    double starting_s = backward(trainer);
    trainer->communication_s[step] = starting_s + join(trainer);
    trainer->step_s[step] = now_s() - trainer->begun_s;
    return loss;
}

/* ---- training --------------------------------------------------------- */

/* Of the test set, by this rank's weights, in parts that fit the network. */
static double measure_accuracy(net_t *net, const digits_t *digits)
{
    size_t correct = 0, seen = 0;
    for (size_t first = TRAINED; first + net->batch <= digits->count;
         first += net->batch) {
        memcpy(net->values[0], &digits->pixels[first * DIGITS_PIXELS],
               net->batch * DIGITS_PIXELS * sizeof(float));
        for (size_t l = 0; l < net->layer_count; l++) {
            net_forward(net, l);
        }
        correct += net_correct(net, &digits->label[first]);
        seen += net->batch;
    }
    return (double)correct / (double)seen;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Sorts a copy. */
static double median(const double *values, size_t count)
{
    double *sorted = zeroed(count, sizeof *sorted);
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    double middle = sorted[count / 2];
    free(sorted);
    return middle;
}

/* With --device-ms auto the device takes, from the second epoch on, as long as
   MPI_Allreduce took in the first. */
static void set_device(const trainer_t *blocking, size_t steps)
{
    if (asked.device_auto) {
        asked.device_ms = median(blocking->communication_s, steps) * 1e3;
        MPI_Bcast(&asked.device_ms, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
}

static void end_epoch(trainer_t *trainer, const digits_t *digits, int epoch,
                      double loss, size_t images)
{
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    trainer->outcome->loss[epoch] = loss / (double)images;
    trainer->outcome->accuracy[epoch] = measure_accuracy(&trainer->net, digits);
}

static void show(int epoch)
{
    if (rank == 0 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\repoch %d of %d \x1b[K", epoch + 1, asked.epochs);
    }
}

/* An epoch of all systems, which take turns in each step. */
static void train_epoch(trainer_t *trainers, const digits_t *digits, int epoch,
                        size_t steps)
{
    double loss[SYSTEMS] = {0};
    size_t batch = trainers[0].net.batch;
    uint8_t *labels = zeroed(batch, 1);
    for (size_t k = 0; k < steps; k++) {
        size_t step = (size_t)epoch * steps + k;
        for (size_t i = 0; i < SYSTEMS; i++) {
            size_t s = (step + i) % SYSTEMS;
            loss[s] += take_step(&trainers[s], digits, step, labels);
        }
    }
    for (int s = 0; s < SYSTEMS; s++) {
        end_epoch(&trainers[s], digits, epoch, loss[s],
                  steps * batch * (size_t)size);
    }
    free(labels);
    show(epoch);
}

static double divergence_of(const net_t *net)
{
    size_t count = net->parameter_count;
    float *least = zeroed(count, sizeof *least);
    float *most = zeroed(count, sizeof *most);
    MPI_Reduce(net->weights, least, (int)count, MPI_FLOAT, MPI_MIN, 0,
               MPI_COMM_WORLD);
    MPI_Reduce(net->weights, most, (int)count, MPI_FLOAT, MPI_MAX, 0,
               MPI_COMM_WORLD);
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, (double)(most[i] - least[i]));
    }
    free(least);
    free(most);
    return largest;
}

/* Medians without the first epoch, which warms up; of it if it is the only
   one. */
static void summarise(trainer_t *trainers, size_t steps)
{
    size_t skipped = asked.epochs > 1 ? steps : 0;
    size_t count = (size_t)asked.epochs * steps - skipped;
    for (int s = 0; s < SYSTEMS; s++) {
        outcome_t *outcome = trainers[s].outcome;
        outcome->step_s = median(&trainers[s].step_s[skipped], count);
        outcome->communication_s =
            median(&trainers[s].communication_s[skipped], count);
        outcome->divergence = divergence_of(&trainers[s].net);
    }
    double exposed = trainers[OVERLAPPED].outcome->communication_s /
                     trainers[FORK_JOIN].outcome->communication_s;
    trainers[OVERLAPPED].outcome->hidden = fmax(0, 1 - exposed);
}

static void open_trainer(baton_group_t *group, system_t system, size_t steps,
                         outcome_t *outcome, trainer_t *out)
{
    size_t widths[NET_MOST_LAYERS + 1];
    size_t layers = asked.hidden_layers + 1;
    size_t batch = asked.batch_of_all / (size_t)size;
    for (size_t l = 0; l <= layers; l++) {
        widths[l] = l == 0       ? DIGITS_PIXELS
                    : l < layers ? asked.width
                                 : DIGITS_CLASSES;
    }
    *out = (trainer_t){.system = system, .outcome = outcome};
    if (!net_open(&out->net, widths, layers, batch > 0 ? batch : 1)) {
        die("no memory");
    }
    out->step_s = zeroed((size_t)asked.epochs * steps, sizeof(double));
    out->communication_s = zeroed((size_t)asked.epochs * steps, sizeof(double));
    make_buckets(group, out);
}

static void close_trainer(trainer_t *trainer)
{
    for (size_t b = 0; b < trainer->bucket_count; b++) {
        must(baton_schedule_destroy(trainer->buckets[b].sum));
        must(baton_schedule_destroy(trainer->buckets[b].weights));
    }
    net_close(&trainer->net);
    free(trainer->step_s);
    free(trainer->communication_s);
}

static void train(baton_group_t *group, const digits_t *digits,
                  outcome_t *outcomes, setting_t *setting)
{
    static trainer_t trainers[SYSTEMS];
    size_t batch = asked.batch_of_all / (size_t)size;
    batch = (batch > 0 ? batch : 1) * (size_t)size;
    size_t steps = (TRAINED + batch - 1) / batch;
    for (int s = 0; s < SYSTEMS; s++) {
        open_trainer(group, (system_t)s, steps, &outcomes[s], &trainers[s]);
    }
    for (int epoch = 0; epoch < asked.epochs; epoch++) {
        train_epoch(trainers, digits, epoch, steps);
        if (epoch == 0 && asked.epochs > 1) {
            set_device(&trainers[BLOCKING], steps);
        }
    }
    summarise(trainers, steps);
    *setting = (setting_t){.ranks = size,
                           .layers = trainers[0].net.layer_count,
                           .parameters = trainers[0].net.parameter_count,
                           .buckets = trainers[0].bucket_count,
                           .batch = batch,
                           .epochs = asked.epochs,
                           .device_ms = asked.device_ms,
                           .generated = digits->generated,
                           .source = digits->source};
    for (int s = 0; s < SYSTEMS; s++) {
        close_trainer(&trainers[s]);
    }
}

/* ---- the command ------------------------------------------------------ */

/* On rank 0: prints and writes everything; false when something is not as it
   must be. Baton's sums have the same bits on all ranks, so the weights have
   too. */
static bool report(const setting_t *setting, const outcome_t *outcomes)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\x1b[K");
    }
    print_setting(setting);
    print_outcomes(setting, outcomes);
    bool passed = write_csv(asked.csv_name, setting, outcomes);
    passed &= write_json(asked.json_name, setting, outcomes);
    passed &= write_plot(asked.plot_name, setting, outcomes);
    for (int s = 0; s < SYSTEMS; s++) {
        double accuracy = outcomes[s].accuracy[setting->epochs - 1];
        if (!(accuracy >= asked.required)) {
            fprintf(stderr, "layerwise: %s reached %g, not %g\n", names[s],
                    accuracy, asked.required);
            passed = false;
        }
        if (s != BLOCKING && outcomes[s].divergence > 0) {
            fprintf(stderr, "layerwise: %s: ranks have different weights\n",
                    names[s]);
            passed = false;
        }
    }
    return passed;
}

static bool run(void)
{
    static outcome_t outcomes[SYSTEMS];
    setting_t setting;
    digits_t digits;
    baton_engine_t *engine;
    baton_group_t *group;
    if (!digits_load(asked.digits_name, &digits)) {
        die(digits.source);
    }
    openblas_set_num_threads(1); /* the ranks are the threads */
    must(baton_engine_open(NULL, &engine));
    must(baton_group_create_mpi(engine, MPI_COMM_WORLD, &group));
    train(group, &digits, outcomes, &setting);
    must(baton_group_destroy(group));
    must(baton_engine_close(engine));
    bool passed = rank != 0 || report(&setting, outcomes);
    digits_free(&digits);
    return passed;
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!options_read(argc, argv, rank == 0, &asked)) {
        MPI_Finalize();
        return 2;
    }
    bool passed = run();
    MPI_Finalize();
    return passed ? 0 : 1;
}
