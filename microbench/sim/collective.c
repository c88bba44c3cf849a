/* Each epoch begins on all ranks at once, delayed by their skew. */
#include "sim/collective.h"
#include "common/measure.h"
#include "common/output.h"
#include "sim/data.h"
#include <baton/dump.h>
#include <math.h>
#include <stdlib.h>

/* What the pipelines take by default; coll.h says so. */
#define SEGMENT_BYTES 65536.0

typedef struct run run_t;

/* A kind of collective. */
typedef struct kind {
    void (*build)(const run_t *run, baton_schedule_t *schedule,
                  baton_view_t data);
    double (*formula_us)(const run_t *run, const sim_formula_t *f);
    bool from_root; /* the result is the root's contribution, not the sum */
} kind_t;

struct run {
    const sim_case_t *of;
    const kind_t *kind;
    sim_watch_t *watch;
    baton_sim_t *sim;
    sim_data_t data;
    char *memory; /* [ranks][bytes]; NULL if cost only */
};

/* ---- builders --------------------------------------------------------- */

const sim_allreduce_t sim_allreduces[] = {
    [SIM_RECURSIVE_DOUBLING] = {baton_allreduce_recursive_doubling,
                                sim_formula_allreduce_recursive_doubling},
    [SIM_BINOMIAL] = {baton_allreduce_binomial, sim_formula_allreduce_binomial},
    [SIM_RING] = {baton_allreduce_ring, sim_formula_allreduce_ring},
    [SIM_RABENSEIFNER] = {baton_allreduce_rabenseifner,
                          sim_formula_allreduce_rabenseifner},
    [SIM_CIRCULANT] = {baton_allreduce_circulant,
                       sim_formula_allreduce_circulant},
    [SIM_PAIRWISE] = {baton_allreduce_pairwise, sim_formula_allreduce_pairwise},
    [SIM_LINEAR_PIPELINE] = {baton_allreduce_linear_pipeline,
                             sim_formula_allreduce_linear_pipeline},
    [SIM_DOUBLE_TREE] = {baton_allreduce_double_tree,
                         sim_formula_allreduce_double_tree},
    [SIM_HIERARCHICAL] = {baton_allreduce_hierarchical,
                          sim_formula_allreduce_hierarchical},
};

static void build_allreduce(const run_t *run, baton_schedule_t *schedule,
                            baton_view_t data)
{
    baton_allreduce_t args = {
        .size = sizeof(args),
        .source = data,
        .target = data,
        .dtype = run->data.dtype,
        .op = run->data.op,
        .chunk_bytes = (size_t)run->of->options->chunk_bytes,
    };
    sim_allreduces[run->of->variant].build(schedule, &args);
}

static double allreduce_us(const run_t *run, const sim_formula_t *f)
{
    return sim_allreduces[run->of->variant].formula_us(f);
}

static void build_broadcast(const run_t *run, baton_schedule_t *schedule,
                            baton_view_t data)
{
    baton_broadcast_binomial(schedule, (int)run->of->options->root, data);
}

static double broadcast_us(const run_t *run, const sim_formula_t *f)
{
    (void)run;
    return sim_formula_broadcast_binomial(f);
}

static void build_barrier(const run_t *run, baton_schedule_t *schedule,
                          baton_view_t data)
{
    (void)run;
    (void)data;
    baton_barrier_dissemination(schedule);
}

static double barrier_us(const run_t *run, const sim_formula_t *f)
{
    (void)run;
    return sim_formula_barrier_dissemination(f);
}

sim_formula_t sim_formula_of(const sim_options_t *options, int ranks,
                             double bytes)
{
    const baton_sim_options_t *model = &options->model;
    return (sim_formula_t){
        .ranks = ranks,
        .bytes = bytes,
        .alpha_us = model->link.alpha_us,
        .beta_us = model->link.beta_ns / 1e3,
        .gamma_us = model->gamma_ns / 1e3,
        .segment_bytes = options->chunk_bytes > 0 ? (double)options->chunk_bytes
                                                  : SEGMENT_BYTES,
        .host_ranks = model->host_ranks > 1 ? model->host_ranks : 1,
        .inside_alpha_us = model->host_link.alpha_us,
        .inside_beta_us = model->host_link.beta_ns / 1e3,
    };
}

/* ---- data ------------------------------------------------------------- */

static char *memory_of(const run_t *run, int rank)
{
    return run->memory == NULL
               ? NULL
               : run->memory + (size_t)rank * (size_t)run->of->bytes;
}

static void build(void *arg, baton_schedule_t *schedule)
{
    const run_t *run = arg;
    int rank = baton_schedule_rank(schedule);
    size_t bytes = (size_t)run->of->bytes;
    sim_watch_build(run->watch, rank);
    baton_buffer_t buffer =
        baton_buffer_bind(schedule, memory_of(run, rank), bytes);
    run->kind->build(run, schedule, baton_view(buffer, 0, bytes));
}

/* Fills in each rank's contribution. In a broadcast only the root has one. */
static bool fill(run_t *run, uint64_t epoch)
{
    sim_data_t *data = &run->data;
    if (run->memory == NULL) {
        return true;
    }
    sim_data_expect_none(data);
    for (int rank = 0; rank < run->of->ranks; rank++) {
        char *memory = memory_of(run, rank);
        if (run->kind->from_root && rank != (int)run->of->options->root) {
            data->op->identity(data->op->arg, memory, data->count, data->dtype);
            continue;
        }
        if (!sim_data_fill(data, rank, epoch, memory)) {
            return false;
        }
        sim_data_expect(data, rank, epoch);
    }
    return true;
}

static bool check(const run_t *run, uint64_t epoch)
{
    for (int rank = 0; run->memory != NULL && rank < run->of->ranks; rank++) {
        if (!sim_data_check(&run->data, rank, epoch, memory_of(run, rank))) {
            return false;
        }
    }
    return true;
}

/* ---- files of schedules ----------------------------------------------- */

static void write_text(void *arg, const char *text)
{
    (void)fputs(text, arg);
}

static bool write_dot(const run_t *run)
{
    const sim_options_t *options = run->of->options;
    FILE *file = NULL;
    if (options->dot == NULL) {
        return true;
    }
    if (!output_open(options->dot, &file)) {
        return false;
    }
    bool passed = sim_case_ok(
        run->of,
        baton_schedule_dot(baton_sim_schedule(run->sim, (int)options->dot_rank),
                           write_text, file));
    return output_close(file, options->dot) && passed;
}

static bool write_goal(const run_t *run)
{
    const sim_options_t *options = run->of->options;
    FILE *file = NULL;
    if (options->goal == NULL) {
        return true;
    }
    if (!output_open(options->goal, &file)) {
        return false;
    }
    (void)fprintf(file, "num_ranks %d\n", run->of->ranks);
    bool passed = true;
    for (int rank = 0; passed && rank < run->of->ranks; rank++) {
        passed = sim_case_ok(
            run->of,
            baton_schedule_goal(baton_sim_schedule(run->sim, rank),
                                options->model.gamma_ns, write_text, file));
    }
    return output_close(file, options->goal) && passed;
}

/* ---- the run ---------------------------------------------------------- */

static bool run_epoch(run_t *run, uint64_t epoch, double *us_out)
{
    return fill(run, epoch) &&
           sim_case_ok(run->of, baton_sim_epoch(run->sim, us_out)) &&
           check(run, epoch);
}

static bool run_epochs(run_t *run, sim_result_t *out)
{
    uint64_t epochs = run->of->options->epochs;
    double began_us = clock_now_us();
    double sum_us = 0;
    out->low_us = INFINITY;
    for (uint64_t epoch = 1; epoch <= epochs; epoch++) {
        double us = 0;
        if (!run_epoch(run, epoch, &us)) {
            return false;
        }
        sim_watch_epoch(run->watch);
        sum_us += us;
        out->low_us = fmin(out->low_us, us);
        out->high_us = fmax(out->high_us, us);
    }
    out->mean_us = sum_us / (double)epochs;
    out->messages = baton_sim_totals(run->sim).messages;
    out->run_s = (clock_now_us() - began_us) / 1e6;
    return true;
}

static bool run_sim(run_t *run, sim_result_t *out)
{
    const sim_case_t *c = run->of;
    double began_us = clock_now_us();
    if (!sim_case_ok(c, baton_sim_build(run->sim, c->name, build, run))) {
        return false;
    }
    out->build_s = (clock_now_us() - began_us) / 1e6;
    sim_watch_attach(run->watch, run->sim);

    const sim_formula_t formula =
        sim_formula_of(c->options, c->ranks, (double)c->bytes);
    out->formula_us = run->kind->formula_us(run, &formula);
    return write_dot(run) && write_goal(run) && run_epochs(run, out);
}

static bool run_with_memory(run_t *run, sim_result_t *out)
{
    const sim_case_t *c = run->of;
    baton_sim_options_t model = sim_case_model(c);
    if (!model.cost_only) {
        run->memory = sim_case_alloc(c, (size_t)c->ranks, (size_t)c->bytes);
        if (run->memory == NULL) {
            return false;
        }
    }
    bool passed = sim_case_ok(c, baton_sim_create(&model, &run->sim));
    if (passed) {
        passed = run_sim(run, out);
        sim_watch_detach(run->sim);
        passed &= sim_case_ok(c, baton_sim_destroy(run->sim));
    }
    free(run->memory);
    return passed;
}

static bool simulate(const kind_t *kind, const sim_case_t *c,
                     sim_watch_t *watch, sim_result_t *out)
{
    run_t run = {.of = c, .kind = kind, .watch = watch};
    if (!sim_data_open(c, 1, &run.data)) {
        return false;
    }
    bool passed = run_with_memory(&run, out);
    sim_data_close(&run.data);
    return passed;
}

bool sim_run_allreduce(const sim_case_t *c, sim_watch_t *watch,
                       sim_result_t *out)
{
    static const kind_t kind = {build_allreduce, allreduce_us, false};
    return simulate(&kind, c, watch, out);
}

bool sim_run_broadcast(const sim_case_t *c, sim_watch_t *watch,
                       sim_result_t *out)
{
    static const kind_t kind = {build_broadcast, broadcast_us, true};
    return simulate(&kind, c, watch, out);
}

bool sim_run_barrier(const sim_case_t *c, sim_watch_t *watch, sim_result_t *out)
{
    static const kind_t kind = {build_barrier, barrier_us, false};
    return simulate(&kind, c, watch, out);
}
