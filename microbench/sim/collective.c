/* All-reduce, broadcast and barrier: each rank runs the schedule of one
   builder. Each epoch begins on all ranks at once, delayed by the ranks'
   skew. */
#include "common/measure.h"
#include "sim/sim.h"
#include <baton/tuning.h>
#include <math.h>
#include <stdlib.h>

/* The default size of a pipeline's segment; see baton/coll.h. */
#define SEGMENT_BYTES 65536.0

typedef struct run {
    const sim_case_t *of;
    baton_algorithm_t algorithm;
    sim_data_t data;
    /* An array of [ranks][bytes]; NULL: only costs are simulated. */
    char *memory;
} run_t;

/* ---- algorithms --------------------------------------------------------- */

baton_algorithm_t sim_algorithm(baton_collective_t collective, const char *name)
{
    baton_algorithm_t algorithm = {0};
    (void)!baton_algorithm_find(collective, name, &algorithm);
    return algorithm;
}

double sim_formula_us(const sim_options_t *options,
                      const baton_algorithm_t *algorithm, int ranks,
                      double bytes)
{
    const baton_sim_options_t *model = &options->model;
    int host_ranks = model->host_ranks > 1 ? model->host_ranks : 1;
    const baton_cost_case_t of = {
        .ranks = ranks,
        .bytes = bytes,
        .alpha_us = model->link.alpha_us,
        .beta_us = model->link.beta_ns / 1e3,
        .gamma_us = model->gamma_ns / 1e3,
        .segment_bytes = options->chunk_bytes > 0 ? (double)options->chunk_bytes
                                                  : SEGMENT_BYTES,
        .hosts = (ranks - 1) / host_ranks + 1,
        .scattered = ranks % host_ranks != 0,
        .inside_alpha_us = model->host_link.alpha_us,
        .inside_beta_us = model->host_link.beta_ns / 1e3,
    };
    return baton_algorithm_is_exact(algorithm, &of)
               ? baton_algorithm_cost_us(algorithm, &of)
               : NAN;
}

static void build_algorithm(const run_t *run, baton_schedule_t *schedule,
                            baton_view_t data)
{
    if (run->algorithm.collective == BATON_COLLECTIVE_ALLREDUCE) {
        baton_allreduce_args_t args = BATON_ALLREDUCE_ARGS;
        args.source = args.target = data;
        args.dtype = run->data.dtype;
        args.op = run->data.op;
        args.chunk_bytes = (size_t)run->of->options->chunk_bytes;
        run->algorithm.build.allreduce(schedule, &args);
    } else if (run->algorithm.collective == BATON_COLLECTIVE_BROADCAST) {
        baton_broadcast_args_t args = BATON_BROADCAST_ARGS;
        args.root = (int)run->of->options->root;
        args.data = data;
        run->algorithm.build.broadcast(schedule, &args);
    } else {
        run->algorithm.build.barrier(schedule);
    }
}

/* ---- data ------------------------------------------------------------- */

static char *sim_collective_memory_of(const run_t *run, int rank)
{
    return run->memory == NULL
               ? NULL
               : run->memory + (size_t)rank * (size_t)run->of->bytes;
}

static void sim_collective_build(void *arg, baton_schedule_t *schedule)
{
    const run_t *run = arg;
    int rank = baton_schedule_rank(schedule);
    size_t bytes = (size_t)run->of->bytes;
    baton_buffer_t buffer =
        baton_buffer_bind(schedule, sim_collective_memory_of(run, rank), bytes);
    build_algorithm(run, schedule, baton_view(buffer, 0, bytes));
    if (!sim_case_build()) {
        baton_schedule_fail(schedule, BATON_ERR_CANCELLED, "interrupted");
    }
}

/* Stores each rank's contribution; in a broadcast only the root has data. */
static bool sim_collective_fill(run_t *run, uint64_t epoch)
{
    sim_data_t *data = &run->data;
    bool broadcast = run->algorithm.collective == BATON_COLLECTIVE_BROADCAST;
    for (int rank = 0; run->memory != NULL && rank < run->of->ranks; rank++) {
        char *memory = sim_collective_memory_of(run, rank);
        if (broadcast && rank != (int)run->of->options->root) {
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

static bool sim_collective_check(const run_t *run, uint64_t epoch)
{
    for (int rank = 0; run->memory != NULL && rank < run->of->ranks; rank++) {
        if (!sim_data_check(&run->data, rank, epoch,
                            sim_collective_memory_of(run, rank))) {
            return false;
        }
    }
    return true;
}

/* ---- the run ---------------------------------------------------------- */

static bool sim_collective_run_epoch(void *arg, uint64_t epoch, double *us_out)
{
    run_t *run = arg;
    return sim_collective_fill(run, epoch) &&
           sim_ok(baton_sim_epoch(run->of->sim, us_out)) &&
           sim_collective_check(run, epoch);
}

bool sim_run_collective(const sim_case_t *c, sim_result_t *out)
{
    const sim_options_t *options = c->options;
    run_t run = {.of = c,
                 .algorithm =
                     sim_algorithm(options->command->collective, c->name)};
    bool passed = sim_data_open(c, 1, &run.data);
    if (passed && !options->model.cost_only) {
        run.memory = sim_alloc((size_t)c->ranks, (size_t)c->bytes);
        passed = run.memory != NULL;
    }
    double began_us = clock_now_us();
    passed = passed && sim_ok(baton_sim_build(c->sim, c->name,
                                              sim_collective_build, &run));
    out->build_s = (clock_now_us() - began_us) / 1e6;
    out->formula_us =
        sim_formula_us(options, &run.algorithm, c->ranks, (double)c->bytes);
    passed = passed && sim_case_epochs(c, sim_collective_run_epoch, &run, out);
    sim_data_close(&run.data);
    free(run.memory);
    return passed;
}
