#include "eager_sgd_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* How much worse than the first system's a score may be and still count as
   equal. */
#define POINT  0.01
#define LOSS   1.05
#define RECENT 4

static bool classifies(const run_t *run)
{
    return !isnan(run->score[EPOCHS - 1].accuracy);
}

/* The mean of as many epochs up to this one: single ones go up and down. */
static score_t recent(const run_t *run, int epoch)
{
    score_t mean = {0, 0};
    for (int e = epoch - RECENT + 1; e <= epoch; e++) {
        mean.loss += run->score[e].loss / RECENT;
        mean.accuracy += run->score[e].accuracy / RECENT;
    }
    return mean;
}

/* Seconds until a run is as good as the first system's is at its end; INFINITY
   if it never is. */
static double time_to_target(const run_t *run, const run_t *first)
{
    const score_t target = recent(first, EPOCHS - 1);
    for (int e = RECENT - 1; e < EPOCHS; e++) {
        const score_t reached = recent(run, e);
        if (classifies(first) ? reached.accuracy >= target.accuracy - POINT
                              : reached.loss <= target.loss * LOSS) {
            return run->at[e];
        }
    }
    return INFINITY;
}

void print_task(const task_t *task)
{
    static const char *const names[] = {"hyperplane", "digits", "sequences"};
    printf("%s: %d ranks, %zu weights, %zu examples, %d steps, scale %g\n",
           names[task->kind], task->size, task->weights, task_examples(task),
           (int)STEPS, task->scale);
    if (task->kind != HYPERPLANE) {
        printf("digits: %s\n", task->digits.source);
    }
    fflush(stdout);
}

static void print_run(const run_t *run, const run_t *first)
{
    const score_t *last = &run->score[EPOCHS - 1];
    double target_s = time_to_target(run, first);
    printf("%-14s %9.2f %9.1f %9.2f %12.5f", run->system.name, run->seconds,
           STEPS / run->seconds, first->seconds / run->seconds, last->loss);
    if (classifies(run)) {
        printf(" %10.2f", 100 * last->accuracy);
    }
    if (isinf(target_s)) {
        printf(" %10s", "never");
    } else {
        printf(" %10.2f", target_s);
    }
    printf(" %11.3g\n", run->divergence);
}

static void print_best_quorum(const run_t *runs, int count)
{
    const run_t *best = NULL;
    int quorums = 0;
    for (int i = 0; i < count; i++) {
        bool is_quorum = !runs[i].system.is_mpi &&
                         runs[i].system.choice.mode == BATON_QUORUM;
        quorums += is_quorum;
        if (is_quorum && (best == NULL || time_to_target(&runs[i], runs) <
                                              time_to_target(best, runs))) {
            best = &runs[i];
        }
    }
    if (quorums > 1 && !isinf(time_to_target(best, runs))) {
        printf("The first quorum at the target is %s.\n", best->system.name);
    } else if (quorums > 1) {
        printf("No quorum reaches the target.\n");
    }
}

void print_runs(const run_t *runs, int count)
{
    bool accuracy = classifies(runs);
    printf("%-14s %9s %9s %9s %12s%s %10s %11s\n", "system", "seconds",
           "steps/s", "speed-up", "final loss", accuracy ? "   accuracy" : "",
           "target s", "divergence");
    for (int i = 0; i < count; i++) {
        print_run(&runs[i], runs);
    }
    printf(
        "Speed-ups are over the first system. Target: %s of its final %s, as "
        "means of %d epochs.\n",
        accuracy ? "within 1 point" : "within 5 %",
        accuracy ? "accuracy" : "loss", RECENT);
    print_best_quorum(runs, count);
}

static bool finish(FILE *file, const char *name, int (*close)(FILE *))
{
    bool written = !ferror(file);
    written &= close(file) == 0;
    if (!written) {
        fprintf(stderr, "eager_sgd: %s could not be written\n", name);
    }
    return written;
}

bool write_csv(const char *name, const run_t *runs, int count)
{
    FILE *file = name != NULL ? fopen(name, "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror(name), false);
    }
    fprintf(file, "system,epoch,seconds,loss,accuracy\n");
    for (int i = 0; i < count; i++) {
        for (int e = 0; e < EPOCHS; e++) {
            const score_t *score = &runs[i].score[e];
            fprintf(file, "%s,%d,%.6f,%.9g,", runs[i].system.name, e + 1,
                    runs[i].at[e], score->loss);
            if (classifies(&runs[i])) {
                fprintf(file, "%.9g", score->accuracy);
            }
            fprintf(file, "\n");
        }
    }
    return finish(file, name, fclose);
}

/* JSON has no number for what is none or infinite. */
static void write_number(FILE *file, double number)
{
    if (isfinite(number)) {
        fprintf(file, "%.9g", number);
    } else {
        fprintf(file, "null");
    }
}

static void write_member(FILE *file, const char *key, double number)
{
    fprintf(file, ", \"%s\": ", key);
    write_number(file, number);
}

enum member { AT, LOSS_OF, ACCURACY };

static void write_numbers(FILE *file, const char *key, const run_t *run,
                          enum member member)
{
    fprintf(file, ", \"%s\": ", key);
    for (int e = 0; e < EPOCHS; e++) {
        fprintf(file, "%s", e > 0 ? ", " : "[");
        write_number(file, member == AT        ? run->at[e]
                           : member == LOSS_OF ? run->score[e].loss
                                               : run->score[e].accuracy);
    }
    fprintf(file, "]");
}

bool write_json(const char *name, const run_t *runs, int count,
                const task_t *task)
{
    FILE *file = name != NULL ? fopen(name, "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror(name), false);
    }
    fprintf(file, "{\"ranks\": %d, \"scale\": %g, \"systems\": [", task->size,
            task->scale);
    for (int i = 0; i < count; i++) {
        const run_t *run = &runs[i];
        fprintf(file, "%s\n{\"system\": \"%s\"", i > 0 ? "," : "",
                run->system.name);
        write_member(file, "seconds", run->seconds);
        write_member(file, "speed_up", runs[0].seconds / run->seconds);
        write_member(file, "target_s", time_to_target(run, runs));
        write_member(file, "divergence", run->divergence);
        write_numbers(file, "at_s", run, AT);
        write_numbers(file, "loss", run, LOSS_OF);
        write_numbers(file, "accuracy", run, ACCURACY);
        fprintf(file, "}");
    }
    fprintf(file, "]}\n");
    return finish(file, name, fclose);
}

bool write_plot(const char *name, const run_t *runs, int count)
{
    FILE *file = name != NULL ? popen("gnuplot", "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror("gnuplot"), false);
    }
    const char *ending = strrchr(name, '.');
    bool png = ending != NULL && strcmp(ending, ".png") == 0;
    bool accuracy = classifies(runs);
    fprintf(file,
            "set terminal %s size 800,500\nset output '%s'\n"
            "set xlabel 'seconds'\nset ylabel '%s'\n%sset grid\n"
            "set key %s\nplot ",
            png ? "pngcairo" : "svg", name,
            accuracy ? "accuracy, %" : "validation loss",
            accuracy ? "" : "set logscale y\n",
            accuracy ? "bottom right" : "top right");
    for (int i = 0; i < count; i++) {
        fprintf(file, "%s'-' with linespoints title '%s'", i > 0 ? ", " : "",
                runs[i].system.name);
    }
    fprintf(file, "\n");
    for (int i = 0; i < count; i++) {
        for (int e = 0; e < EPOCHS; e++) {
            const score_t *score = &runs[i].score[e];
            fprintf(file, "%g %g\n", runs[i].at[e],
                    accuracy ? 100 * score->accuracy : score->loss);
        }
        fprintf(file, "e\n");
    }
    return finish(file, name, pclose);
}
