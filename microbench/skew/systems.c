#include "skew/systems.h"
#include <mpi.h>
#include <stdlib.h>

static bool is_mpi(skew_kind_t kind)
{
    return kind == SKEW_MPI || kind == SKEW_MPI_NB;
}

static baton_partial_mode_t mode_of(skew_kind_t kind)
{
    switch (kind) {
    case SKEW_SOLO:
        return BATON_SOLO;
    case SKEW_MAJORITY:
        return BATON_MAJORITY;
    case SKEW_QUORUM:
        return BATON_QUORUM;
    case SKEW_ANY:
        return BATON_CANDIDATES_ANY;
    case SKEW_ALL:
        return BATON_CANDIDATES_ALL;
    case SKEW_MPI:
    case SKEW_MPI_NB:
    case SKEW_FULL:
    case SKEW_KIND_COUNT:
        break;
    }
    return BATON_FULL;
}

void skew_system_open(const harness_t *harness, skew_choice_t choice,
                      size_t count, uint64_t seed, skew_system_t *out)
{
    *out = (skew_system_t){.choice = choice, .count = count};
    if (is_mpi(choice.kind)) {
        out->target = harness_alloc(count, sizeof(uint64_t));
        return;
    }
    out->pending = harness_alloc(count, sizeof(uint64_t));
    char name[SKEW_NAME_BYTES];
    baton_partial_options_t options = {
        .size = sizeof(options),
        .name = skew_name(choice, name),
        .mode = mode_of(choice.kind),
        .mode_ranks = choice.ranks,
        .keep = BATON_KEEP_LATEST,
        .seed = seed,
        .count = count,
        .dtype = BATON_U64,
    };
    harness_require(
        baton_partial_create(harness->group, &options, &out->partial),
        "create a partial all-reduce");
}

void skew_system_close(skew_system_t *system)
{
    (void)!baton_partial_destroy(system->partial);
    free(system->pending);
    free(system->target);
}

static void call_mpi(skew_system_t *system, const uint64_t *source)
{
    int count = (int)system->count;
    if (system->choice.kind == SKEW_MPI) {
        MPI_Allreduce(source, system->target, count, MPI_UINT64_T, MPI_SUM,
                      MPI_COMM_WORLD);
        return;
    }
    MPI_Request request;
    MPI_Iallreduce(source, system->target, count, MPI_UINT64_T, MPI_SUM,
                   MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void call_baton(skew_system_t *system, const uint64_t *source,
                       baton_partial_result_t *out)
{
    baton_partial_t *partial = system->partial;
    harness_require(baton_partial_contribute(partial, source), "contribute");
    harness_require(baton_partial_start(partial), "start");
    harness_require(baton_partial_wait(partial, -1, out), "wait");
}

void skew_system_call(skew_system_t *system, const uint64_t *source,
                      uint64_t iteration, int ranks, skew_outcome_t *out)
{
    if (is_mpi(system->choice.kind)) {
        call_mpi(system, source);
        *out = (skew_outcome_t){
            .epoch = iteration,
            .data = system->target,
            .included = true,
            .active = (uint32_t)ranks,
        };
        return;
    }
    baton_partial_result_t result;
    call_baton(system, source, &result);
    *out = (skew_outcome_t){
        .epoch = result.epoch,
        .data = result.data,
        .included = result.included,
        .active = result.active,
        .staleness = result.staleness,
    };
}

const uint64_t *skew_system_pending(skew_system_t *system)
{
    if (system->partial == NULL) {
        return NULL;
    }
    bool any = false;
    harness_require(
        baton_partial_pending(system->partial, system->pending, &any),
        "read what is pending");
    return any ? system->pending : NULL;
}
