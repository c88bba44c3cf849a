#include "sparse_sgd_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void print_heading(void)
{
    printf("%-9s %8s %6s %9s %9s %11s %10s %8s %10s  %s\n", "algorithm",
           "density", "steps", "loss", "accuracy", "MB sent", "network s",
           "real s", "residual", "digest of the weights");
}

void print_run(const run_t *run)
{
    const point_t *last = &run->points[run->point_count - 1];
    printf("%-9s %8.4f %6" PRIu64 " %9.4f %8.2f%% %11.3f %10.4f %8.2f %10.4f  "
           "%016" PRIx64 "\n",
           run->algorithm, run->density, last->step, last->loss,
           100 * last->accuracy, last->bytes / 1e6, last->network_s,
           last->real_s, last->residual, run->digest);
    fflush(stdout);
}

static bool finish(FILE *file, const char *name, int (*close)(FILE *))
{
    bool written = !ferror(file);
    written &= close(file) == 0;
    if (!written) {
        fprintf(stderr, "sparse_sgd: %s could not be written\n", name);
    }
    return written;
}

bool write_csv(const char *name, const run_t *runs, size_t count)
{
    FILE *file = name != NULL ? fopen(name, "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror(name), false);
    }
    fprintf(file, "algorithm,density,step,loss,accuracy,bytes_sent,network_s,"
                  "real_s,residual_norm\n");
    for (size_t r = 0; r < count; r++) {
        for (size_t i = 0; i < runs[r].point_count; i++) {
            const point_t *p = &runs[r].points[i];
            fprintf(file, "%s,%g,%" PRIu64 ",%.9g,%.9g,%.15g,%.9g,%.6f,%.9g\n",
                    runs[r].algorithm, runs[r].density, p->step, p->loss,
                    p->accuracy, p->bytes, p->network_s, p->real_s,
                    p->residual);
        }
    }
    return finish(file, name, fclose);
}

static void write_json_run(FILE *file, const run_t *run)
{
    fprintf(file,
            "{\"algorithm\": \"%s\", \"density\": %g, \"digest\": "
            "\"%016" PRIx64 "\", \"points\": [",
            run->algorithm, run->density, run->digest);
    for (size_t i = 0; i < run->point_count; i++) {
        const point_t *p = &run->points[i];
        fprintf(file,
                "%s\n  {\"step\": %" PRIu64 ", \"loss\": %.9g, \"accuracy\": "
                "%.9g, \"bytes_sent\": %.15g, \"network_s\": %.9g, \"real_s\": "
                "%.6f, \"residual_norm\": %.9g}",
                i > 0 ? "," : "", p->step, p->loss, p->accuracy, p->bytes,
                p->network_s, p->real_s, p->residual);
    }
    fprintf(file, "]}");
}

bool write_json(const char *name, const run_t *runs, size_t count)
{
    FILE *file = name != NULL ? fopen(name, "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror(name), false);
    }
    fprintf(file, "[");
    for (size_t r = 0; r < count; r++) {
        fprintf(file, "%s\n", r > 0 ? "," : "");
        write_json_run(file, &runs[r]);
    }
    fprintf(file, "\n]\n");
    return finish(file, name, fclose);
}

/* One panel: accuracy against a column of the data. */
static void write_panel(FILE *file, const char *label, int column, bool log,
                        const run_t *runs, size_t count)
{
    fprintf(file, "set xlabel '%s'\n%s logscale x\nplot ", label,
            log ? "set" : "unset");
    for (size_t r = 0; r < count; r++) {
        fprintf(file, "%s$run%zu using %d:4 with lines lw 2 title '%s %g'",
                r > 0 ? ", " : "", r, column, runs[r].algorithm,
                runs[r].density);
    }
    fprintf(file, "\n");
}

bool write_plot(const char *name, const run_t *runs, size_t count)
{
    FILE *file = name != NULL ? popen("gnuplot", "w") : NULL;
    if (file == NULL) {
        return name == NULL || (perror("gnuplot"), false);
    }
    const char *ending = strrchr(name, '.');
    bool png = ending != NULL && strcmp(ending, ".png") == 0;
    for (size_t r = 0; r < count; r++) {
        fprintf(file, "$run%zu << end\n", r);
        for (size_t i = 0; i < runs[r].point_count; i++) {
            const point_t *p = &runs[r].points[i];
            fprintf(file, "%" PRIu64 " %.9g %.9g %.9g\n", p->step,
                    p->bytes / 1e6, p->network_s, 100 * p->accuracy);
        }
        fprintf(file, "end\n");
    }
    fprintf(file,
            "set terminal %s size 1500,500\nset output '%s'\n"
            "set multiplot layout 1,3\nset grid\nset ylabel 'accuracy, %%'\n"
            "set key bottom right noenhanced\n",
            png ? "pngcairo" : "svg", name);
    write_panel(file, "steps", 1, false, runs, count);
    write_panel(file, "MB sent by a rank", 2, true, runs, count);
    write_panel(file, "seconds on the network (simulated)", 3, true, runs,
                count);
    fprintf(file, "unset multiplot\n");
    return finish(file, name, pclose);
}
