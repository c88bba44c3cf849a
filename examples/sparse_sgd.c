/* Data-parallel SGD with sparse all-reduces: a multilayer perceptron learns
   handwritten digits, by each algorithm and at each density.

       ./sparse_sgd --plot sgd.svg
       ./sparse_sgd --parameters 16M --steps 5 --algorithms dense,spardl

       for each step:
           gradient of this rank's batch
           start --> wait                     instead of an all-reduce
           weights -= rate * mean of the selected entries

   All ranks are simulated in this process, so that beside the real time there
   is that which the exchanges would take on a network of given alpha and
   bandwidth. Gradients, selections and sums are real. Results are the same on
   all ranks, so there is one vector of weights for all.

   A run is saved between two steps and goes on with the same bits: weights are
   the program's to save, residuals and what the algorithm has learned are
   saved by baton_sparse_save, each rank's for itself. */
#include "digits.h"
#include "perceptron.h"
#include "sparse_sgd_report.h"

#include <baton/baton.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHECKED = 597, MOST_DENSITIES = 4, PATH_BYTES = 512 };

/* What the command line says. */
static int ranks = 4;
static uint64_t steps = 1000, seed = 1, save_at, warmup;
static size_t batch = 16, parameters = 26122;
static double alpha_us = 50, gbit = 1, rate = 0.05, momentum = 0.9, clip;
static int teams = 1;
static double densities[MOST_DENSITIES] = {0.01, 0.001};
static size_t density_count = 2;
static bool wanted[BATON_SPARSE_COUNT];
static const char *save_name, *load_name, *csv_name, *json_name, *plot_name;
static const char *digits_name;

/* A training in progress. */
typedef struct trainer {
    const digits_t *digits;
    perceptron_t net;
    baton_sparse_options_t options;
    baton_sparse_cost_t cost;
    baton_sim_t *sim;
    baton_sparse_t **sparse; /* by rank */
    float *weights, *update;
    float *gradients; /* by rank */
    float *rows;      /* of one batch */
    uint8_t *labels;
    uint64_t step;
    double bytes, network_s;
} trainer_t;

static void must(baton_status_t status)
{
    if (status != BATON_OK) {
        fprintf(stderr, "sparse_sgd: %s\n", baton_error_message());
        exit(1);
    }
}

static void *memory(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "sparse_sgd: no memory for %zu x %zu bytes\n", count,
                size);
        exit(1);
    }
    return memory;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- data ------------------------------------------------------------- */

static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A rank's batch of a step: random images of its part. The same for all
   algorithms, and wherever a run goes on. */
static samples_t batch_of(trainer_t *trainer, int rank)
{
    size_t part = (trainer->digits->count - CHECKED) / (size_t)ranks;
    uint64_t key = mix(mix(seed) + trainer->step);
    for (size_t i = 0; i < batch; i++) {
        uint64_t number = mix(key + (uint64_t)rank * batch + i) % part;
        size_t image = (size_t)rank * part + (size_t)number;
        memcpy(trainer->rows + i * DIGITS_PIXELS,
               trainer->digits->pixels + image * DIGITS_PIXELS,
               DIGITS_PIXELS * sizeof(float));
        trainer->labels[i] = trainer->digits->label[image];
    }
    return (samples_t){trainer->rows, trainer->labels, batch};
}

/* ---- open and close --------------------------------------------------- */

static void open_network(trainer_t *trainer)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.link = (baton_sim_link_t){alpha_us, 8 / gbit};
    must(baton_sim_create(&options, &trainer->sim));
    trainer->sparse = memory((size_t)ranks, sizeof(baton_sparse_t *));
    for (int rank = 0; rank < ranks; rank++) {
        must(baton_sparse_prepare(baton_sim_group(trainer->sim, rank),
                                  &trainer->options, &trainer->sparse[rank]));
    }
    for (int rank = 0; rank < ranks; rank++) {
        must(baton_sparse_connect(trainer->sparse[rank], -1));
    }
    must(baton_sim_run(trainer->sim, -1));
}

static void open_trainer(trainer_t *trainer, const digits_t *digits,
                         baton_sparse_algorithm_t algorithm, double density)
{
    *trainer = (trainer_t){.digits = digits};
    size_t width = perceptron_width(DIGITS_PIXELS, DIGITS_CLASSES, parameters);
    if (!perceptron_init(&trainer->net, DIGITS_PIXELS, width, DIGITS_CLASSES,
                         batch)) {
        fprintf(stderr, "sparse_sgd: no memory\n");
        exit(1);
    }
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = algorithm;
    options.count = trainer->net.count;
    options.density = density;
    options.teams = teams == 0 ? BATON_SPARSE_TEAMS_AUTO : teams;
    options.average = true;
    options.momentum = momentum;
    options.clip = clip;
    options.warmup = warmup;
    options.link = (baton_link_cost_t){alpha_us, 8 / gbit};
    trainer->options = options;
    baton_sparse_options_t dense = options;
    dense.algorithm = BATON_SPARSE_DENSE;
    must(baton_sparse_cost(&dense, ranks, &trainer->cost));
    trainer->weights = memory(options.count, sizeof(float));
    trainer->update = memory(options.count, sizeof(float));
    trainer->gradients = memory(options.count * (size_t)ranks, sizeof(float));
    trainer->rows = memory(batch * DIGITS_PIXELS, sizeof(float));
    trainer->labels = memory(batch, 1);
    perceptron_fill(&trainer->net, seed, trainer->weights);
    open_network(trainer);
}

static void close_trainer(trainer_t *trainer)
{
    for (int rank = 0; rank < ranks; rank++) {
        must(baton_sparse_destroy(trainer->sparse[rank]));
    }
    must(baton_sim_destroy(trainer->sim));
    perceptron_fini(&trainer->net);
    free(trainer->sparse);
    free(trainer->weights);
    free(trainer->update);
    free(trainer->gradients);
    free(trainer->rows);
    free(trainer->labels);
}

/* ---- files ------------------------------------------------------------ */

static void path_of(const char *prefix, const trainer_t *trainer, int rank,
                    char path[PATH_BYTES])
{
    const char *algorithm =
        baton_sparse_algorithm_name(trainer->options.algorithm);
    int length = snprintf(path, PATH_BYTES, "%s-%s-%g", prefix, algorithm,
                          trainer->options.density);
    if (rank >= 0 && length < PATH_BYTES) {
        snprintf(path + length, PATH_BYTES - (size_t)length, "-rank%d", rank);
    }
}

/* What the program itself has to keep of a run, besides the weights. */
typedef struct saved {
    uint64_t step, count;
    double bytes, network_s;
} saved_t;

static void stop(const char *path)
{
    fprintf(stderr, "sparse_sgd: ");
    perror(path);
    exit(1);
}

static void save(const trainer_t *trainer)
{
    char path[PATH_BYTES];
    size_t count = trainer->net.count;
    saved_t head = {trainer->step, count, trainer->bytes, trainer->network_s};
    path_of(save_name, trainer, -1, path);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(&head, sizeof head, 1, file) != 1 ||
        fwrite(trainer->weights, sizeof(float), count, file) != count ||
        fclose(file) != 0) {
        stop(path);
    }
    for (int rank = 0; rank < ranks; rank++) {
        path_of(save_name, trainer, rank, path);
        must(baton_sparse_save(trainer->sparse[rank], path));
    }
}

static void load(trainer_t *trainer)
{
    char path[PATH_BYTES];
    size_t count = trainer->net.count;
    saved_t head;
    path_of(load_name, trainer, -1, path);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(&head, sizeof head, 1, file) != 1 ||
        head.count != count ||
        fread(trainer->weights, sizeof(float), count, file) != count) {
        stop(path);
    }
    fclose(file);
    for (int rank = 0; rank < ranks; rank++) {
        path_of(load_name, trainer, rank, path);
        must(baton_sparse_load(trainer->sparse[rank], path));
    }
    trainer->step = head.step;
    trainer->bytes = head.bytes;
    trainer->network_s = head.network_s;
}

/* ---- training --------------------------------------------------------- */

/* What the rank sends that sends most. Dense steps are not counted by the
   statistics, but they always send the same. */
static double bytes_of_step(const trainer_t *trainer)
{
    double most = 0;
    for (int rank = 0; rank < ranks; rank++) {
        baton_sparse_stats_t stats;
        must(baton_sparse_stats(trainer->sparse[rank], &stats));
        most = stats.algorithm == BATON_SPARSE_DENSE
                   ? trainer->cost.bytes
                   : fmax(most, (double)stats.bytes_sent);
    }
    return most;
}

static void take_step(trainer_t *trainer)
{
    size_t count = trainer->net.count;
    for (int rank = 0; rank < ranks; rank++) {
        samples_t samples = batch_of(trainer, rank);
        (void)perceptron_gradient(&trainer->net, trainer->weights, &samples,
                                  trainer->gradients + (size_t)rank * count);
    }
    double begin_us = baton_sim_now_us(trainer->sim);
    for (int rank = 0; rank < ranks; rank++) {
        must(baton_sparse_start(trainer->sparse[rank],
                                trainer->gradients + (size_t)rank * count));
    }
    must(baton_sim_run(trainer->sim, -1));
    trainer->network_s += (baton_sim_now_us(trainer->sim) - begin_us) * 1e-6;
    for (int rank = 0; rank < ranks; rank++) {
        baton_sparse_result_t result;
        must(baton_sparse_wait(trainer->sparse[rank], -1, &result));
    }
    trainer->bytes += bytes_of_step(trainer);
    must(baton_sparse_dense(trainer->sparse[0], trainer->update));
    for (size_t i = 0; i < count; i++) {
        trainer->weights[i] -= (float)rate * trainer->update[i];
    }
    trainer->step++;
}

static double residual_of(const trainer_t *trainer)
{
    double sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        baton_sparse_stats_t stats;
        must(baton_sparse_stats(trainer->sparse[rank], &stats));
        sum += stats.residual_norm * stats.residual_norm;
    }
    return sqrt(sum);
}

static void look(trainer_t *trainer, double began_s, run_t *run)
{
    const digits_t *digits = trainer->digits;
    size_t first = digits->count - CHECKED;
    samples_t checked = {digits->pixels + first * DIGITS_PIXELS,
                         digits->label + first, CHECKED};
    point_t *point = &run->points[run->point_count++];
    *point = (point_t){.step = trainer->step,
                       .bytes = trainer->bytes,
                       .network_s = trainer->network_s,
                       .real_s = now_s() - began_s,
                       .residual = residual_of(trainer)};
    point->loss = perceptron_loss(&trainer->net, trainer->weights, &checked,
                                  &point->accuracy);
}

/* FNV-1a of the weights' bytes. */
static uint64_t digest_of(const trainer_t *trainer)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    const unsigned char *bytes = (const void *)trainer->weights;
    for (size_t i = 0; i < trainer->net.count * sizeof(float); i++) {
        digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}

static void train(const digits_t *digits, baton_sparse_algorithm_t algorithm,
                  double density, run_t *run)
{
    trainer_t trainer;
    double began_s = now_s();
    uint64_t last = save_name != NULL ? save_at : steps;
    uint64_t between = steps / (MOST_POINTS - 2) + 1;
    *run = (run_t){.algorithm = baton_sparse_algorithm_name(algorithm),
                   .density = density};
    open_trainer(&trainer, digits, algorithm, density);
    if (load_name != NULL) {
        load(&trainer);
    }
    while (trainer.step < last) {
        take_step(&trainer);
        if (trainer.step % between == 0 || trainer.step == last) {
            look(&trainer, began_s, run);
        }
    }
    if (run->point_count == 0) {
        look(&trainer, began_s, run);
    }
    if (save_name != NULL) {
        save(&trainer);
    }
    run->digest = digest_of(&trainer);
    close_trainer(&trainer);
}

static size_t train_all(const digits_t *digits, run_t *runs)
{
    size_t count = 0;
    for (int i = BATON_SPARSE_COUNT - 1; i >= 0; i--) {
        baton_sparse_algorithm_t algorithm = (baton_sparse_algorithm_t)i;
        bool dense = algorithm == BATON_SPARSE_DENSE;
        for (size_t d = 0; wanted[i] && d < (dense ? 1 : density_count); d++) {
            train(digits, algorithm, dense ? 1 : densities[d], &runs[count]);
            print_run(&runs[count++]);
        }
    }
    return count;
}

/* ---- the command ------------------------------------------------------ */

static const char usage[] =
    "Usage: sparse_sgd [OPTION...]\n"
    "  --algorithms LIST  of dense, spardl, topka, topkdsa, gtopk, oktopk,\n"
    "                     redsync, auto (default: all but auto)\n"
    "  --density LIST     up to 4 (default 0.01,0.001)\n"
    "  --teams D          of spardl, a divisor of the ranks; 0: the cheapest\n"
    "  --ranks P          1 to 64 (default 4)\n"
    "  --steps N          (default 1000)\n"
    "  --batch N          images of a rank in a step (default 16)\n"
    "  --parameters N     of the model, about, also 64K or 16M (default "
    "26122)\n"
    "  --rate R, --momentum M, --clip C   (defaults 0.05, 0.9, 0: never)\n"
    "  --warmup N         dense steps at first (default 0)\n"
    "  --seed N           of weights and batches (default 1)\n"
    "  --alpha-us US, --gbit G   of the simulated network (defaults 50, 1)\n"
    "  --save PREFIX --at N      save after N steps, and end there\n"
    "  --load PREFIX             go on from there\n"
    "  --digits FILE      where the images are\n"
    "  --csv FILE, --json FILE, --plot FILE (.svg, .png; needs gnuplot)\n";

static bool read_real(const char *text, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (*end == 'K' || *end == 'M') {
        *out *= *end++ == 'K' ? 1024 : 1024 * 1024;
    }
    bool valid = end != text && *end == '\0' && *out >= least && *out <= most;
    if (!valid) {
        fprintf(stderr, "sparse_sgd: \"%s\" is not a number from %g to %g\n",
                text, least, most);
    }
    return valid;
}

static bool read_densities(char *list)
{
    density_count = 0;
    for (char *item = strtok(list, ","); item != NULL;
         item = strtok(NULL, ",")) {
        if (density_count == MOST_DENSITIES ||
            !read_real(item, 1e-9, 1, &densities[density_count++])) {
            return false;
        }
    }
    return density_count > 0;
}

static bool read_algorithms(char *list)
{
    for (char *item = strtok(list, ","); item != NULL;
         item = strtok(NULL, ",")) {
        int i = 0;
        while (i < BATON_SPARSE_COUNT &&
               strcmp(item, baton_sparse_algorithm_name(
                                (baton_sparse_algorithm_t)i)) != 0) {
            i++;
        }
        if (i == BATON_SPARSE_COUNT) {
            fprintf(stderr, "sparse_sgd: there is no algorithm \"%s\"\n", item);
            return false;
        }
        wanted[i] = true;
    }
    return true;
}

static bool read_number(int option, const char *text)
{
    double number = 0;
    bool whole = strchr("Pnbpvwt", option) != NULL;
    double least = strchr("Pnbp", option) != NULL ? 1 : 0;
    double most = option == 'P'   ? 64
                  : option == 'b' ? 512
                  : option == 'm' ? 0.999
                  : option == 'p' ? 1e8
                                  : 1e9;
    if (!read_real(text, option == 'g' ? 1e-6 : least, most, &number)) {
        return false;
    }
    if (whole && number != floor(number)) {
        fprintf(stderr, "sparse_sgd: \"%s\" is not a whole number\n", text);
        return false;
    }
    switch (option) {
    case 'P':
        ranks = (int)number;
        break;
    case 'n':
        steps = (uint64_t)number;
        break;
    case 'b':
        batch = (size_t)number;
        break;
    case 'p':
        parameters = (size_t)number;
        break;
    case 'r':
        rate = number;
        break;
    case 'm':
        momentum = number;
        break;
    case 'c':
        clip = number;
        break;
    case 'w':
        warmup = (uint64_t)number;
        break;
    case 's':
        seed = (uint64_t)number;
        break;
    case 'u':
        alpha_us = number;
        break;
    case 'g':
        gbit = number;
        break;
    case 't':
        teams = (int)number;
        break;
    default: /* 'v' */
        save_at = (uint64_t)number;
        break;
    }
    return true;
}

static bool read_option(int option, char *text)
{
    switch (option) {
    case 'a':
        return read_algorithms(text);
    case 'd':
        return read_densities(text);
    case 'S':
        save_name = text;
        return true;
    case 'L':
        load_name = text;
        return true;
    case 'D':
        digits_name = text;
        return true;
    case 'C':
        csv_name = text;
        return true;
    case 'J':
        json_name = text;
        return true;
    case 'O':
        plot_name = text;
        return true;
    case '?':
        return false;
    default:
        return read_number(option, text);
    }
}

static bool read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"algorithms", required_argument, NULL, 'a'},
        {"density", required_argument, NULL, 'd'},
        {"teams", required_argument, NULL, 't'},
        {"ranks", required_argument, NULL, 'P'},
        {"steps", required_argument, NULL, 'n'},
        {"batch", required_argument, NULL, 'b'},
        {"parameters", required_argument, NULL, 'p'},
        {"rate", required_argument, NULL, 'r'},
        {"momentum", required_argument, NULL, 'm'},
        {"clip", required_argument, NULL, 'c'},
        {"warmup", required_argument, NULL, 'w'},
        {"seed", required_argument, NULL, 's'},
        {"alpha-us", required_argument, NULL, 'u'},
        {"gbit", required_argument, NULL, 'g'},
        {"save", required_argument, NULL, 'S'},
        {"at", required_argument, NULL, 'v'},
        {"load", required_argument, NULL, 'L'},
        {"digits", required_argument, NULL, 'D'},
        {"csv", required_argument, NULL, 'C'},
        {"json", required_argument, NULL, 'J'},
        {"plot", required_argument, NULL, 'O'},
        {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (!read_option(option, optarg)) {
            return false;
        }
    }
    bool any = false;
    for (int i = 0; i < BATON_SPARSE_COUNT; i++) {
        any |= wanted[i];
    }
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_COUNT && !any; i++) {
        wanted[i] = true;
    }
    if (save_name != NULL && (save_at == 0 || save_at > steps)) {
        fprintf(stderr, "sparse_sgd: --save needs --at, 1 to --steps\n");
        return false;
    }
    return optind == argc;
}

int main(int argc, char **argv)
{
    static run_t runs[MOST_RUNS];
    digits_t digits;
    if (!read_options(argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!digits_load(digits_name, &digits)) {
        fprintf(stderr, "sparse_sgd: %s\n", digits.source);
        return 1;
    }
    printf("%d ranks, %" PRIu64 " steps of %zu images a rank, rate %g, "
           "momentum %g, seed %" PRIu64 "; network of %g us, %g Gbit/s\n"
           "digits: %s%s; %d of them are not trained with\n",
           ranks, steps, batch, rate, momentum, seed, alpha_us, gbit,
           digits.source, digits.generated ? " (made up)" : "", CHECKED);
    print_heading();
    size_t count = train_all(&digits, runs);
    digits_free(&digits);
    bool passed = write_csv(csv_name, runs, count);
    passed &= write_json(json_name, runs, count);
    passed &= write_plot(plot_name, runs, count);
    return passed ? 0 : 1;
}
