#include "eager_sgd_report.h"

#include <stdio.h>
#include <string.h>

const char *const names[SYSTEMS] = {"MPI_Allreduce", "full", "solo", "majority",
                                    "quorum"};

void print_runs(const run_t *runs)
{
    printf("%-14s %9s %9s %9s %12s %11s\n", "system", "seconds", "steps/s",
           "speed-up", "final loss", "divergence");
    for (int s = 0; s < SYSTEMS; s++) {
        printf("%-14s %9.2f %9.1f %9.2f %12.5f %11.3g\n", names[s],
               runs[s].seconds, STEPS / runs[s].seconds,
               runs[MPI].seconds / runs[s].seconds, runs[s].loss[EPOCHS - 1],
               runs[s].divergence);
    }
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

bool write_csv(const char *name, const run_t *runs)
{
    FILE *file = name != NULL ? fopen(name, "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror(name), false);
    }
    fprintf(file, "system,epoch,seconds,loss\n");
    for (int s = 0; s < SYSTEMS; s++) {
        for (int e = 0; e < EPOCHS; e++) {
            fprintf(file, "%s,%d,%.6f,%.9g\n", names[s], e + 1, runs[s].at[e],
                    runs[s].loss[e]);
        }
    }
    return finish(file, name, fclose);
}

static void write_numbers(FILE *file, const char *key, const double *numbers)
{
    fprintf(file, ", \"%s\": [", key);
    for (int e = 0; e < EPOCHS; e++) {
        fprintf(file, "%s%.9g", e > 0 ? ", " : "", numbers[e]);
    }
    fprintf(file, "]");
}

bool write_json(const char *name, const run_t *runs, int ranks, double scale)
{
    FILE *file = name != NULL ? fopen(name, "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror(name), false);
    }
    fprintf(file, "{\"ranks\": %d, \"scale\": %g, \"systems\": [", ranks,
            scale);
    for (int s = 0; s < SYSTEMS; s++) {
        fprintf(file,
                "%s\n{\"system\": \"%s\", \"seconds\": %.6f, \"speed_up\": "
                "%.4f, \"divergence\": %.9g",
                s > 0 ? "," : "", names[s], runs[s].seconds,
                runs[MPI].seconds / runs[s].seconds, runs[s].divergence);
        write_numbers(file, "at_s", runs[s].at);
        write_numbers(file, "loss", runs[s].loss);
        fprintf(file, "}");
    }
    fprintf(file, "]}\n");
    return finish(file, name, fclose);
}

bool write_plot(const char *name, const run_t *runs)
{
    FILE *file = name != NULL ? popen("gnuplot", "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror("gnuplot"), false);
    }
    const char *ending = strrchr(name, '.');
    bool png = ending != NULL && strcmp(ending, ".png") == 0;
    fprintf(file,
            "set terminal %s size 800,500\nset output '%s'\n"
            "set xlabel 'seconds'\nset ylabel 'validation loss'\n"
            "set logscale y\nset grid\nplot ",
            png ? "pngcairo" : "svg", name);
    for (int s = 0; s < SYSTEMS; s++) {
        fprintf(file, "%s'-' with linespoints title '%s'", s > 0 ? ", " : "",
                s == MPI ? "MPI\\_Allreduce" : names[s]);
    }
    fprintf(file, "\n");
    for (int s = 0; s < SYSTEMS; s++) {
        for (int e = 0; e < EPOCHS; e++) {
            fprintf(file, "%g %g\n", runs[s].at[e], runs[s].loss[e]);
        }
        fprintf(file, "e\n");
    }
    return finish(file, name, pclose);
}
