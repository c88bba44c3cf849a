/* Sampling a plan; see plan.h. Values that are likely to be special are sampled
   more often than others: no element, one element, costs of zero. */
#include "fuzz/plan.h"

#include <inttypes.h>

enum {
    STREAM_MODEL = 1,
    STREAM_FAULTS = 2,
    STREAM_TASKS = 3,
    STREAM_INJECTIONS = 5,
    STREAM_BOUNDS = 6
};

const fuzz_algorithm_t fuzz_algorithms[FUZZ_ALGORITHMS] = {
    [FUZZ_BINOMIAL] = {"binomial", baton_allreduce_binomial},
    {"recursive doubling", baton_allreduce_recursive_doubling},
    {"ring", baton_allreduce_ring},
};

const char *fuzz_kind_name(fuzz_kind_t kind)
{
    static const char *const names[] = {
#define KIND_NAME(NAME, name) [FUZZ_##NAME] = (name),
        FUZZ_KIND_LIST(KIND_NAME)
#undef KIND_NAME
    };
    return names[kind];
}

/* ---- the machine ------------------------------------------------------ */

static double zero_or(fuzz_random_t *random, uint64_t n, double limit)
{
    return fuzz_once_in(random, n) ? 0 : fuzz_real(random, limit);
}

static void sample_model(fuzz_plan_t *plan)
{
    fuzz_random_t random = fuzz_stream(plan->seed, STREAM_MODEL);
    baton_sim_options_t *model = &plan->model;
    *model = (baton_sim_options_t)BATON_SIM_OPTIONS;
    model->ranks = fuzz_once_in(&random, 32) ? FUZZ_RANKS
                                             : 1 + (int)fuzz_below(&random, 17);
    model->seed = fuzz_next(&random);
    model->link.alpha_us = zero_or(&random, 6, 10);
    model->link.beta_ns = zero_or(&random, 4, 10);
    model->gamma_ns = zero_or(&random, 3, 5);
    model->overhead_us = zero_or(&random, 3, 2);
    model->multi_ported = fuzz_once_in(&random, 3);
    if (fuzz_once_in(&random, 3)) {
        model->sync_bytes = (size_t)1 << fuzz_below(&random, 14);
    }
    if (fuzz_once_in(&random, 3)) {
        size_t most = model->sync_bytes > 0 ? model->sync_bytes : SIZE_MAX;
        model->eager_bytes = (size_t)1 << fuzz_below(&random, 14);
        model->eager_bytes =
            model->eager_bytes < most ? model->eager_bytes : most;
    }
    if (fuzz_once_in(&random, 3)) {
        model->host_ranks = 1 + (int)fuzz_below(&random, 5);
        model->host_link.alpha_us = zero_or(&random, 4, 2);
        model->host_link.beta_ns = zero_or(&random, 4, 1);
    }
    if (fuzz_once_in(&random, 4)) {
        model->speed =
            (baton_distribution_t){BATON_DISTRIBUTION_LOGNORMAL, 1, 0.5};
    }
}

/* ---- the collectives -------------------------------------------------- */

static size_t sample_count(fuzz_random_t *random)
{
    switch (fuzz_below(random, 8)) {
    case 0:
        return fuzz_below(random, 2);
    case 1:
    case 2:
        return 2 + fuzz_below(random, 200);
    case 3:
        /* Beyond 64 KiB builders reuse fewer slots of scratch. */
        return fuzz_once_in(random, 16) ? 8192 + fuzz_below(random, 2000) : 64;
    default:
        return 1 + fuzz_below(random, 20);
    }
}

static baton_dtype_t sample_dtype(fuzz_random_t *random)
{
    /* Types in which sums are exact. */
    static const baton_dtype_t dtypes[] = {
        BATON_U64, BATON_I64, BATON_U32, BATON_I32, BATON_U16,
        BATON_I16, BATON_U8,  BATON_I8,  BATON_F32, BATON_F64};
    return fuzz_once_in(random, 2) ? BATON_U64 : dtypes[fuzz_below(random, 10)];
}

static bool is_float(baton_dtype_t dtype)
{
    return dtype == BATON_F32 || dtype == BATON_F64;
}

/* From a stream of its own, so that clusters are what they were before there
   were bounds. */
static void sample_bounds(fuzz_random_t *random, int ranks,
                          fuzz_task_plan_t *task)
{
    if (fuzz_once_in(random, 2)) {
        task->mode =
            (baton_partial_mode_t)(BATON_QUORUM + (int)fuzz_below(random, 3));
        task->mode_ranks = 1 + (uint32_t)fuzz_below(random, (uint64_t)ranks);
    }
    if (fuzz_once_in(random, 4)) {
        task->sync_every = 1 + (uint32_t)fuzz_below(random, 4);
    }
    if (fuzz_once_in(random, 4)) {
        uint32_t most = task->keep == BATON_KEEP_ALL && task->history != 0
                            ? task->history
                            : 4;
        task->max_staleness = 1 + (uint32_t)fuzz_below(random, most);
    }
}

static fuzz_task_plan_t sample_task(fuzz_random_t *random, int ranks)
{
    fuzz_task_plan_t task = {
        .kind = fuzz_once_in(random, 2)
                    ? FUZZ_PARTIAL
                    : (fuzz_kind_t)fuzz_below(random, FUZZ_KIND_COUNT),
        .steps = 1 + (uint32_t)fuzz_below(random, 8),
        .count = sample_count(random),
        .dtype = sample_dtype(random),
        .algorithm = (uint32_t)fuzz_below(random, FUZZ_ALGORITHMS),
        .in_place = fuzz_once_in(random, 2),
        .root = (int)fuzz_below(random, (uint64_t)ranks),
        .need = fuzz_once_in(random, 4)
                    ? 1
                    : 1 + (uint32_t)fuzz_below(random, (uint64_t)ranks),
        .mode = (baton_partial_mode_t)fuzz_below(random, 3),
        .keep = (baton_keep_t)fuzz_below(random, 2),
        .history = (uint32_t)fuzz_below(random, 4),
    };
    task.own_op = !is_float(task.dtype) && fuzz_once_in(random, 4);
    /* Long vectors in small chunks would take millions of messages. */
    if (fuzz_once_in(random, 2) && task.count < 1000) {
        task.chunk_bytes = (size_t)8 << fuzz_below(random, 8);
    }
    return task;
}

static void sample_tasks(fuzz_plan_t *plan)
{
    fuzz_random_t random = fuzz_stream(plan->seed, STREAM_TASKS);
    fuzz_random_t bounds = fuzz_stream(plan->seed, STREAM_BOUNDS);
    plan->task_count =
        fuzz_once_in(&random, 2) ? 1 : 1 + (int)fuzz_below(&random, FUZZ_TASKS);
    for (int i = 0; i < plan->task_count; i++) {
        plan->tasks[i] = sample_task(&random, plan->model.ranks);
        sample_bounds(&bounds, plan->model.ranks, &plan->tasks[i]);
    }
    const fuzz_task_plan_t *first = &plan->tasks[0];
    plan->one_first = plan->task_count == 1 && first->kind == FUZZ_PARTIAL &&
                      first->mode == BATON_SOLO && first->sync_every == 0 &&
                      first->max_staleness == 0 && !first->own_op &&
                      first->algorithm == FUZZ_BINOMIAL;
}

/* ---- faults ----------------------------------------------------------- */

baton_distribution_t fuzz_plan_lag(fuzz_random_t *random, double scale_us)
{
    double mean = fuzz_real(random, scale_us);
    switch (fuzz_below(random, 3)) {
    case 0:
        return (baton_distribution_t){BATON_DISTRIBUTION_UNIFORM, 0, 2 * mean};
    case 1:
        return (baton_distribution_t){BATON_DISTRIBUTION_EXPONENTIAL, mean, 0};
    default:
        return (baton_distribution_t){BATON_DISTRIBUTION_PARETO,
                                      mean / 4 + 0.001, 1.2};
    }
}

static void sample_faults(fuzz_plan_t *plan)
{
    fuzz_random_t random = fuzz_stream(plan->seed, STREAM_FAULTS);
    plan->transients =
        (uint32_t)fuzz_below(&random, 1u << FUZZ_TRANSIENT_COUNT);
    plan->pause_us = fuzz_real(&random, fuzz_once_in(&random, 2) ? 10 : 200);
    plan->heal_us = fuzz_real(&random, 16 * plan->pause_us);
    if (fuzz_has(plan, FUZZ_TRANSIENT_LAG)) {
        plan->model.lag = fuzz_plan_lag(&random, 100);
    }
    if (fuzz_once_in(&random, 8)) {
        plan->permanent = fuzz_once_in(&random, 2) ? FUZZ_PERMANENT_KILL
                                                   : FUZZ_PERMANENT_FAIL_SEND;
        plan->victim = (int)fuzz_below(&random, (uint64_t)plan->model.ranks);
        plan->permanent_us = fuzz_real(&random, plan->heal_us);
        plan->failing_send = 1 + fuzz_below(&random, 30);
        plan->one_first = false;
    }
}

/* Only schedules with messages stay failed, so there are several ranks and no
   empty vectors. */
static void sample_injections(fuzz_plan_t *plan)
{
    fuzz_random_t random = fuzz_stream(plan->seed, STREAM_INJECTIONS);
    if (fuzz_once_in(&random, 4) && plan->model.ranks > 1 &&
        plan->permanent == FUZZ_PERMANENT_NONE) {
        plan->injections =
            1 + (uint32_t)fuzz_below(&random, FUZZ_INCARNATIONS - 1);
        plan->at_once = fuzz_once_in(&random, 2);
        plan->injection_us = fuzz_real(&random, plan->heal_us);
        plan->one_first = false;
    }
    if (fuzz_once_in(&random, 4)) {
        plan->model.introductions = true;
        plan->commit_us = fuzz_real(&random, plan->heal_us);
        plan->one_first = false;
    }
    for (int i = 0; i < plan->task_count; i++) {
        fuzz_task_plan_t *task = &plan->tasks[i];
        task->watches = fuzz_once_in(&random, 2);
        if (plan->injections > 0 && task->count == 0) {
            task->count = 1;
        }
    }
}

fuzz_plan_t fuzz_plan_sample(uint64_t seed)
{
    fuzz_plan_t plan = {.seed = seed};
    sample_model(&plan);
    sample_tasks(&plan);
    sample_faults(&plan);
    sample_injections(&plan);
    return plan;
}

/* ---- printing --------------------------------------------------------- */

static void print_model(const baton_sim_options_t *model, FILE *to)
{
    (void)fprintf(to,
                  "  %d ranks, alpha %.3f us, beta %.3f ns, gamma %.3f ns, "
                  "overhead %.3f us%s\n",
                  model->ranks, model->link.alpha_us, model->link.beta_ns,
                  model->gamma_ns, model->overhead_us,
                  model->multi_ported ? ", multi-ported" : "");
    if (model->host_ranks > 0) {
        (void)fprintf(to, "  hosts of %d ranks: alpha %.3f us, beta %.3f ns\n",
                      model->host_ranks, model->host_link.alpha_us,
                      model->host_link.beta_ns);
    }
    if (model->eager_bytes > 0) {
        (void)fprintf(to, "  sends below %zu bytes are eager\n",
                      model->eager_bytes);
    }
    if (model->introductions) {
        (void)fprintf(to, "  ranks introduce their schedules\n");
    }
    if (model->sync_bytes > 0) {
        (void)fprintf(to, "  sends of %zu bytes wait for their receive\n",
                      model->sync_bytes);
    }
}

static void print_task(const fuzz_task_plan_t *task, int index, FILE *to)
{
    static const char *const modes[FUZZ_MODES] = {
        "solo",   "majority",       "full",
        "quorum", "candidates any", "candidates all"};
    (void)fprintf(to, "  task %d: %s, %" PRIu32 " steps", index,
                  fuzz_kind_name(task->kind), task->steps);
    if (task->kind == FUZZ_PARTIAL) {
        (void)fprintf(to,
                      ", %s (%" PRIu32 " ranks), keep %s, history %" PRIu32
                      ", sync every %" PRIu32 ", staleness up to %" PRIu32,
                      modes[task->mode], task->mode_ranks,
                      task->keep == BATON_KEEP_ALL ? "all" : "latest",
                      task->history, task->sync_every, task->max_staleness);
    }
    if (task->kind == FUZZ_PARTIAL || task->kind == FUZZ_ALLREDUCE) {
        (void)fprintf(to, ", %s, chunks of %zu bytes%s",
                      fuzz_algorithms[task->algorithm].name, task->chunk_bytes,
                      task->own_op ? ", an op of its own" : "");
    }
    if (task->kind == FUZZ_ALLREDUCE && task->in_place) {
        (void)fprintf(to, ", in place");
    }
    if (task->kind == FUZZ_BROADCAST || task->kind == FUZZ_QUORUM) {
        (void)fprintf(to, ", root %d", task->root);
    }
    if (task->kind == FUZZ_QUORUM) {
        (void)fprintf(to, ", needs %" PRIu32, task->need);
    }
    if (task->kind == FUZZ_ALARM) {
        (void)fprintf(to, ", %s",
                      task->need == 1 ? "one initiator" : "several initiators");
    }
    if (task->kind == FUZZ_ALARM && task->keep == BATON_KEEP_ALL) {
        (void)fprintf(to, ", limit %" PRIu32, 1 + task->history);
    }
    (void)fprintf(to, ", %zu x %s\n", task->count,
                  baton_dtype_name(task->dtype));
}

void fuzz_plan_print(const fuzz_plan_t *plan, FILE *to)
{
    static const char *const faults[] = {
#define FAULT_NAME(NAME, name) [FUZZ_TRANSIENT_##NAME] = (name),
        FUZZ_TRANSIENT_LIST(FAULT_NAME)
#undef FAULT_NAME
    };
    print_model(&plan->model, to);
    for (int i = 0; i < plan->task_count; i++) {
        print_task(&plan->tasks[i], i, to);
    }
    for (int i = 0; i < FUZZ_TRANSIENT_COUNT; i++) {
        if (fuzz_has(plan, (fuzz_transient_t)i)) {
            (void)fprintf(to, "  %s\n", faults[i]);
        }
    }
    (void)fprintf(to, "  pauses of %.3f us, heals at %.3f us%s\n",
                  plan->pause_us, plan->heal_us,
                  plan->one_first ? ", one rank goes first" : "");
    if (plan->injections > 0) {
        (void)fprintf(to,
                      "  %" PRIu32 " times recovered, %s, %.3f us after "
                      "beginning\n",
                      plan->injections, plan->at_once ? "at once" : "when idle",
                      plan->injection_us);
    }
    if (plan->permanent == FUZZ_PERMANENT_KILL) {
        (void)fprintf(to, "  rank %d dies at %.3f us\n", plan->victim,
                      plan->permanent_us);
    } else if (plan->permanent == FUZZ_PERMANENT_FAIL_SEND) {
        (void)fprintf(to, "  send %" PRIu64 " of rank %d fails, from %.3f us\n",
                      plan->failing_send, plan->victim, plan->permanent_us);
    }
}
