/* Sampling a plan; see plan.h. Costs of zero, which are special, are sampled
   more often than others. */
#include "fuzz/plan.h"

#include <inttypes.h>

enum {
    STREAM_MODEL = 1,
    STREAM_FAULTS = 2,
    STREAM_TASKS = 3,
    STREAM_INJECTIONS = 5
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

static double zero_or(support_random_t *random, uint64_t n, double limit)
{
    return support_once_in(random, n) ? 0 : support_random_real(random, limit);
}

static void sample_model(fuzz_plan_t *plan)
{
    support_random_t random = support_random(plan->seed, STREAM_MODEL);
    baton_sim_options_t *model = &plan->model;
    *model = (baton_sim_options_t)BATON_SIM_OPTIONS;
    model->ranks = support_once_in(&random, 32)
                       ? FUZZ_RANKS
                       : 1 + (int)support_random_below(&random, 17);
    model->seed = support_random_next(&random);
    model->link.alpha_us = zero_or(&random, 6, 10);
    model->link.beta_ns = zero_or(&random, 4, 10);
    model->gamma_ns = zero_or(&random, 3, 5);
    model->overhead_us = zero_or(&random, 3, 2);
    model->multi_ported = support_once_in(&random, 3);
    if (support_once_in(&random, 3)) {
        model->sync_bytes = (size_t)1 << support_random_below(&random, 14);
    }
    if (support_once_in(&random, 3)) {
        size_t most = model->sync_bytes > 0 ? model->sync_bytes : SIZE_MAX;
        model->eager_bytes = (size_t)1 << support_random_below(&random, 14);
        model->eager_bytes =
            model->eager_bytes < most ? model->eager_bytes : most;
    }
    if (support_once_in(&random, 3)) {
        model->host_ranks = 1 + (int)support_random_below(&random, 5);
        model->host_link.alpha_us = zero_or(&random, 4, 2);
        model->host_link.beta_ns = zero_or(&random, 4, 1);
    }
    if (support_once_in(&random, 4)) {
        model->speed =
            (baton_distribution_t){BATON_DISTRIBUTION_LOGNORMAL, 1, 0.5};
    }
}

/* ---- the tasks -------------------------------------------------------- */

static fuzz_task_plan_t sample_task(support_random_t *random, int ranks)
{
    return (fuzz_task_plan_t){
        .kind = support_once_in(random, 2) ? FUZZ_PROGRAM
                                           : (fuzz_kind_t)support_random_below(
                                                 random, FUZZ_KIND_COUNT),
        .steps = 1 + (uint32_t)support_random_below(random, FUZZ_STEPS),
        .part_bytes = support_once_in(random, 16) ? 20000 : 400,
        .polls = support_once_in(random, 2),
        .root = (int)support_random_below(random, (uint64_t)ranks),
        .need = support_once_in(random, 4) ? 1
                                           : 1 + (uint32_t)support_random_below(
                                                     random, (uint64_t)ranks),
        .limit = 1 + (uint32_t)support_random_below(random, FUZZ_STEPS),
        .watches = support_once_in(random, 2),
    };
}

static void sample_tasks(fuzz_plan_t *plan)
{
    support_random_t random = support_random(plan->seed, STREAM_TASKS);
    plan->task_count = support_once_in(&random, 2)
                           ? 1
                           : 1 + (int)support_random_below(&random, FUZZ_TASKS);
    for (int i = 0; i < plan->task_count; i++) {
        plan->tasks[i] = sample_task(&random, plan->model.ranks);
    }
}

/* ---- faults ----------------------------------------------------------- */

baton_distribution_t fuzz_plan_lag(support_random_t *random, double scale_us)
{
    double mean = support_random_real(random, scale_us);
    switch (support_random_below(random, 3)) {
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
    support_random_t random = support_random(plan->seed, STREAM_FAULTS);
    plan->transients =
        (uint32_t)support_random_below(&random, 1u << FUZZ_TRANSIENT_COUNT);
    plan->pause_us =
        support_random_real(&random, support_once_in(&random, 2) ? 10 : 200);
    plan->heal_us = support_random_real(&random, 16 * plan->pause_us);
    if (fuzz_has(plan, FUZZ_TRANSIENT_LAG)) {
        plan->model.lag = fuzz_plan_lag(&random, 100);
    }
    if (support_once_in(&random, 8)) {
        plan->permanent = support_once_in(&random, 2)
                              ? FUZZ_PERMANENT_KILL
                              : FUZZ_PERMANENT_FAIL_SEND;
        plan->victim =
            (int)support_random_below(&random, (uint64_t)plan->model.ranks);
        plan->permanent_us = support_random_real(&random, plan->heal_us);
        plan->failing_send = 1 + support_random_below(&random, 30);
    }
}

/* Only schedules with messages stay failed, so there are several ranks. */
static void sample_injections(fuzz_plan_t *plan)
{
    support_random_t random = support_random(plan->seed, STREAM_INJECTIONS);
    if (support_once_in(&random, 4) && plan->model.ranks > 1 &&
        plan->permanent == FUZZ_PERMANENT_NONE) {
        plan->injections =
            1 + (uint32_t)support_random_below(&random, FUZZ_INCARNATIONS - 1);
        plan->at_once = support_once_in(&random, 2);
        plan->injection_us = support_random_real(&random, plan->heal_us);
    }
    if (support_once_in(&random, 4)) {
        plan->model.introductions = true;
        plan->commit_us = support_random_real(&random, plan->heal_us);
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

/* Prints the model. Bytes and numbers of ranks that do not apply are 0. */
static void print_model(const baton_sim_options_t *model, FILE *to)
{
    (void)fprintf(
        to,
        "  %d ranks, alpha %.3f us, beta %.3f ns, gamma %.3f ns, overhead %.3f "
        "us%s\n"
        "  hosts of %d ranks: alpha %.3f us, beta %.3f ns\n"
        "  sends below %zu bytes are eager, those of %zu bytes wait for their "
        "receive%s\n",
        model->ranks, model->link.alpha_us, model->link.beta_ns,
        model->gamma_ns, model->overhead_us,
        model->multi_ported ? ", multi-ported" : "", model->host_ranks,
        model->host_link.alpha_us, model->host_link.beta_ns, model->eager_bytes,
        model->sync_bytes,
        model->introductions ? "; ranks introduce their schedules" : "");
}

static void print_task(const fuzz_task_plan_t *task, int index, FILE *to)
{
    (void)fprintf(to, "  task %d: %s, %" PRIu32 " steps", index,
                  fuzz_kind_name(task->kind), task->steps);
    if (task->kind <= FUZZ_LOCAL) {
        (void)fprintf(to, ", parts of up to %d bytes%s", task->part_bytes,
                      task->polls ? ", polls" : "");
    } else {
        (void)fprintf(to, ", root %d, need %" PRIu32 ", limit %" PRIu32,
                      task->root, task->need, task->limit);
    }
    (void)fprintf(to, "%s\n", task->watches ? ", watches recoveries" : "");
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
    (void)fprintf(to, "  pauses of %.3f us, heals at %.3f us\n", plan->pause_us,
                  plan->heal_us);
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
