/* baton-fuzz-device: samples worlds, and runs them; see world.h. */
#include "fuzz/run.h"
#include "fuzz/device/world.h"

#include <stdlib.h>
#include <string.h>

const char fuzz_name[] = "baton-fuzz-device";
const char fuzz_doc[] =
    "Samples programs for ranks with emulated devices from each seed, runs "
    "them as schedules, with failures, and checks that memory is what running "
    "their steps one by one gives, and that whatever failed can be recovered "
    "from. Ends at the first world that fails."
    "\vThe same seed gives the same world; what its threads do differs. "
    "BATON_SEED=N runs that seed alone.";

enum { STREAM_PLAN = 1, STREAM_PROGRAMS = 10 };

/* ---- sampling ---------------------------------------------------------- */

static int between(fuzz_random_t *random, int first, int last)
{
    return first +
           (int)fuzz_below(random, (uint64_t)last - (uint64_t)first + 1);
}

static void sample_device(fuzz_random_t *random, world_plan_t *plan)
{
    plan->block_bytes = (size_t)4096 << fuzz_below(random, 4);
    plan->buffers = between(random, 2, 6);
    plan->direct = !fuzz_once_in(random, 3);
    plan->device = (emulated_options_t){.seed = fuzz_next(random),
                                        .workers = between(random, 1, 3),
                                        .delay_us = between(random, 1, 60),
                                        .bytes = (size_t)64 << 20,
                                        .no_handles = fuzz_once_in(random, 2)};
}

static void sample_fault(fuzz_random_t *random, world_plan_t *plan)
{
    if (fuzz_once_in(random, 2)) {
        plan->fault = (world_fault_t)fuzz_below(random, WORLD_FAULTS);
    }
    plan->victim = between(random, 0, plan->ranks - 1);
    plan->fault_program = between(random, 0, plan->program_count - 1);
    plan->fault_epoch = 1 + fuzz_below(random, plan->epochs);
    plan->countdown = between(random, 1, 40);
}

static void sample(uint64_t seed, world_plan_t *plan)
{
    fuzz_random_t random = fuzz_stream(seed, STREAM_PLAN);
    *plan = (world_plan_t){.seed = seed};
    plan->ranks = between(&random, 1, WORLD_RANKS);
    plan->program_count = between(&random, 1, WORLD_PROGRAMS);
    plan->epochs = (uint64_t)between(&random, 1, WORLD_EPOCHS);
    plan->manual = fuzz_once_in(&random, 3);
    plan->together = fuzz_once_in(&random, 4);
    plan->verify = fuzz_once_in(&random, 6);
    plan->inputs = !fuzz_once_in(&random, 3);
    plan->same_stream = fuzz_once_in(&random, 2);
    /* Else another rank's commit may fail. */
    plan->few_allocations =
        fuzz_once_in(&random, 4) && !plan->together && !plan->verify;
    sample_device(&random, plan);
    for (int i = 0; i < plan->program_count; i++) {
        random = fuzz_stream(seed, STREAM_PROGRAMS + (uint64_t)i);
        world_program_sample(&random, plan->ranks, &plan->programs[i]);
        /* What a peer may begin has no time at which to write. */
        plan->inputs &= !plan->programs[i].activates;
    }
    sample_fault(&random, plan);
}

void fuzz_print(uint64_t seed, FILE *to)
{
    static const char *const faults[] = {
#define FAULT_NAME(NAME, name) [FAULT_##NAME] = (name),
        WORLD_FAULT_LIST(FAULT_NAME)
#undef FAULT_NAME
    };
    world_plan_t *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return;
    }
    sample(seed, plan);
    (void)fprintf(
        to,
        "  %d ranks, %llu epochs%s%s%s%s%s%s\n"
        "  blocks of %zu bytes, %d buffers%s, %d workers, "
        "delays of %d us%s\n",
        plan->ranks, (unsigned long long)plan->epochs,
        plan->manual ? ", manual" : "", plan->together ? ", one engine" : "",
        plan->verify ? ", verified" : "", plan->inputs ? ", inputs" : "",
        plan->same_stream ? ", one stream" : "",
        plan->few_allocations ? ", few allocations" : "", plan->block_bytes,
        plan->buffers, plan->direct ? "" : ", nothing direct",
        plan->device.workers, plan->device.delay_us,
        plan->device.no_handles ? ", no handles" : "");
    (void)fprintf(to, "  %s: rank %d, program %d, epoch %llu, after %d\n",
                  faults[plan->fault], plan->victim, plan->fault_program,
                  (unsigned long long)plan->fault_epoch, plan->countdown);
    for (int i = 0; i < plan->program_count; i++) {
        (void)fprintf(to, "  program %d:\n", i);
        world_program_print(&plan->programs[i], to);
    }
    free(plan);
}

/* ---- running ----------------------------------------------------------- */

static void *live(void *arg)
{
    world_live(arg);
    return NULL;
}

static void run_life(world_t *world, int life)
{
    world_begin_life(world, life);
    for (int rank = 0; rank < world->plan->ranks; rank++) {
        world_rank_t *at = &world->ranks[rank];
        if (pthread_create(&at->thread, NULL, live, at) != 0) {
            abort();
        }
    }
    for (int rank = 0; rank < world->plan->ranks; rank++) {
        (void)pthread_join(world->ranks[rank].thread, NULL);
    }
}

/* Devices work again. */
static void repair(world_t *world)
{
    for (int rank = 0; rank < world->plan->ranks; rank++) {
        emulated_synchronise_all(world->ranks[rank].device);
        emulated_repair(world->ranks[rank].device);
    }
}

static uint64_t digest_of(const world_t *world)
{
    uint64_t digest = 0;
    const world_plan_t *plan = world->plan;
    for (int i = 0; i < plan->program_count; i++) {
        const world_memory_t *last = &world->expected[i][plan->epochs];
        for (int rank = 0; rank < plan->ranks; rank++) {
            for (int slot = 0; slot < WORLD_ALL_SLOTS; slot++) {
                digest = (digest ^ last->slots[rank][slot][0]) *
                         UINT64_C(1099511628211);
            }
        }
    }
    return digest;
}

fuzz_outcome_t fuzz_run(uint64_t seed)
{
    world_plan_t *plan = calloc(1, sizeof *plan);
    world_t *world = calloc(1, sizeof *world);
    if (plan == NULL || world == NULL) {
        abort();
    }
    sample(seed, plan);
    world_open(world, plan);
    run_life(world, 0);
    repair(world);
    bool again = plan->fault != FAULT_NONE && plan->fault != FAULT_LEAVE;
    if (again && !world_failed(world)) {
        run_life(world, 1);
    }
    fuzz_outcome_t outcome = {.digest = digest_of(world)};
    /* What is left of a failure may still be in use. */
    if (!world_failed(world)) {
        world_close(world);
    }
    outcome.passed = world->failure[0] == '\0';
    memcpy(outcome.failure, world->failure, sizeof outcome.failure);
    if (outcome.passed) {
        free(world);
        free(plan);
    }
    return outcome;
}
