/* Random programs (support/program.h). Their memory is compared with the
   reference's memory when a step ends, and again before the next step. */
#include "fuzz/cluster.h"
#include "support/program.h"

#include <stdlib.h>
#include <string.h>

/* An async node of a step, and the handle with which it last began. */
typedef struct begun {
    program_site_t *site;
    fuzz_participant_t *participant;
    baton_async_t async;
    baton_status_t status; /* the status with which the node completes */
    bool open;
    double at_us;
} begun_t;

struct fuzz_part {
    /* the first field, since functions of nodes get its address */
    program_part_t program;
    fuzz_participant_t *participant;
    unsigned char *memory; /* the memory of all slots */
    begun_t begun[PROGRAM_STEPS];
};

struct fuzz_reference {
    program_t program;
    /* By step of this incarnation: the contents of all ranks' memory. NULL:
       they were not needed yet. */
    uint32_t incarnation;
    unsigned char *after[FUZZ_STEPS + 1];
};

/* ---- the reference ------------------------------------------------------ */

/* Fills a rank's memory with the contents that it has before a step. */
static void fill_memory(const fuzz_task_t *task, int rank, uint64_t number,
                        unsigned char *memory)
{
    size_t bytes = PROGRAM_SLOTS * task->reference->program.slot_bytes;
    support_random_t random = {fuzz_key(task, rank, number)};
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = support_random_next(&random);
        size_t left = bytes - at;
        memcpy(memory + at, &word, left < sizeof word ? left : sizeof word);
    }
}

static void forget_results(fuzz_reference_t *reference)
{
    for (int step = 0; step <= FUZZ_STEPS; step++) {
        free(reference->after[step]);
        reference->after[step] = NULL;
    }
}

/* Returns the contents that the participant's memory must have after its
   step. */
static unsigned char *result_of(const fuzz_participant_t *participant)
{
    const fuzz_task_t *task = participant->task;
    fuzz_reference_t *reference = task->reference;
    const program_t *program = &reference->program;
    uint32_t incarnation = fuzz_incarnation(participant);
    if (reference->incarnation != incarnation) {
        forget_results(reference);
        reference->incarnation = incarnation;
    }
    unsigned char **after = &reference->after[participant->step];
    if (*after == NULL) {
        *after = fuzz_alloc(program_bytes(program) + 1, 1);
        for (int rank = 0; rank < fuzz_ranks(task); rank++) {
            fill_memory(task, rank, fuzz_number(incarnation, participant->step),
                        program_slot(program, *after, rank, 0));
        }
        program_run(program, participant->step, *after);
    }
    return program_slot(program, *after, participant->rank, 0);
}

static void check(fuzz_participant_t *participant)
{
    const fuzz_part_t *part = participant->part;
    const program_t *program = part->program.program;
    const unsigned char *right = result_of(participant);
    for (int slot = 0; slot < PROGRAM_SLOTS; slot++) {
        size_t at = (size_t)slot * program->slot_bytes;
        if (part->program.memory[slot] != NULL &&
            memcmp(part->memory + at, right + at, program->slot_bytes) != 0) {
            fuzz_fail(participant, "safety: slot %d is wrong", slot);
        }
    }
}

static void fill(fuzz_participant_t *participant)
{
    if (participant->step > 0 && !participant->cancelled) {
        /* Checks again, since no memory may be written after the end of the
           step. */
        check(participant);
    }
    fill_memory(
        participant->task, participant->rank,
        fuzz_number(fuzz_incarnation(participant), participant->step + 1),
        participant->part->memory);
}

/* ---- nodes -------------------------------------------------------------- */

static begun_t *begun_of(void *arg)
{
    program_site_t *site = arg;
    return &((fuzz_part_t *)site->part)
                ->begun[site->step - site->part->program->steps];
}

static void end(begun_t *begun)
{
    begun->open = false;
    begun->participant->open--;
    if (begun->status == BATON_OK) {
        program_change(begun->site, begun->site->address);
    }
}

/* Completes a node. Sometimes completes it a second time, which must be
   refused. */
static void complete(begun_t *begun)
{
    fuzz_participant_t *participant = begun->participant;
    end(begun);
    if (baton_async_complete(begun->async, begun->status) != BATON_OK) {
        fuzz_fail(participant, "complete: %s", baton_error_message());
    }
    if (support_once_in(&participant->random, 4) &&
        baton_async_complete(begun->async, BATON_ERR_LIMIT) !=
            BATON_ERR_STATE) {
        fuzz_fail(participant, "safety: an async node has completed twice");
    }
}

static void complete_later(void *arg)
{
    begun_t *begun = arg;
    fuzz_participant_t *participant = begun->participant;
    if (begun->open && !fuzz_failed(participant->task->cluster) &&
        !fuzz_is_dead(participant)) {
        complete(begun);
    }
}

/* Completes the node at once, in another call before `start` returns, later, or
   when the node is polled. */
static baton_status_t start(void *arg, baton_call_t *call, baton_async_t async)
{
    begun_t *begun = begun_of(arg);
    fuzz_participant_t *participant =
        ((fuzz_part_t *)((program_site_t *)arg)->part)->participant;
    fuzz_cluster_t *cluster = participant->task->cluster;
    bool fails = fuzz_injection_due(participant, baton_call_epoch(call));
    program_begin(arg, call);
    *begun =
        (begun_t){.site = arg,
                  .participant = participant,
                  .async = async,
                  .status = fails ? FUZZ_INJECTED_STATUS : BATON_OK,
                  .open = true,
                  .at_us = baton_sim_now_us(cluster->sim) +
                           support_random_real(&participant->random,
                                               2 * cluster->plan.pause_us)};
    participant->open++;
    if (!fails && support_once_in(&participant->random, 4)) {
        end(begun);
        return BATON_DONE;
    }
    if (support_once_in(&participant->random, 4)) {
        complete(begun);
        return BATON_OK;
    }
    return participant->task->plan->polls
               ? BATON_OK
               : baton_sim_at(cluster->sim, begun->at_us, complete_later,
                              begun);
}

static baton_status_t poll(void *arg)
{
    begun_t *begun = begun_of(arg);
    if (!begun->open) {
        fuzz_fail(begun->participant,
                  "safety: a node is polled that has completed");
        return BATON_OK;
    }
    if (baton_sim_now_us(begun->participant->task->cluster->sim) <
        begun->at_us) {
        return BATON_AGAIN;
    }
    end(begun);
    return begun->status;
}

/* Some operations complete when they are cancelled, others at their own time.
 */
static void cancel(void *arg)
{
    begun_t *begun = begun_of(arg);
    if (begun->open && support_once_in(&begun->participant->random, 2)) {
        complete(begun);
    }
}

static const baton_async_ops_t told = {.start = start, .cancel = cancel};
static const baton_async_ops_t polled = {
    .start = start, .poll = poll, .cancel = cancel};

static baton_status_t fault(program_part_t *part, uint64_t epoch)
{
    return fuzz_injection_due(((fuzz_part_t *)part)->participant, epoch)
               ? FUZZ_INJECTED_STATUS
               : BATON_OK;
}

/* ---- schedules ---------------------------------------------------------- */

/* An injected failure must reach all ranks, so each rank sends and receives
   messages. */
static void open_program(fuzz_task_t *task)
{
    const program_options_t options = {.ranks = fuzz_ranks(task),
                                       .part_bytes = task->plan->part_bytes,
                                       .async = true,
                                       .local = task->plan->kind == FUZZ_LOCAL,
                                       .connected =
                                           task->plan->kind == FUZZ_PROGRAM};
    support_random_t random = {fuzz_key(task, 0, 0)};
    task->reference = fuzz_alloc(1, sizeof *task->reference);
    program_sample(&task->reference->program, &options, &random);
}

static void build(fuzz_participant_t *participant)
{
    const program_t *program = &participant->task->reference->program;
    fuzz_part_t *part = fuzz_alloc(1, sizeof *part);
    participant->part = part;
    part->participant = participant;
    part->memory = fuzz_alloc(PROGRAM_SLOTS * program->slot_bytes + 1, 1);
    part->program = (program_part_t){
        .program = program,
        .rank = participant->rank,
        .async = participant->task->plan->polls ? &polled : &told,
        .fault = fault};
    for (int slot = 0; slot < PROGRAM_SLOTS; slot++) {
        if (!program->slots[participant->rank][slot].scratch) {
            part->program.memory[slot] =
                part->memory + (size_t)slot * program->slot_bytes;
        }
    }
    program_build(&part->program, participant->schedule);
}

static void close_part(fuzz_part_t *part)
{
    for (int i = 0; i < PROGRAM_STEPS; i++) {
        if (part->begun[i].open) {
            (void)!baton_async_complete(part->begun[i].async,
                                        BATON_ERR_CANCELLED);
        }
    }
}

static void close_program(fuzz_task_t *task)
{
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        fuzz_participant_t *participant = &task->participants[rank];
        if (participant->part != NULL) {
            close_part(participant->part);
            (void)!baton_schedule_destroy(participant->schedule);
            participant->schedule = NULL;
            free(participant->part->memory);
            free(participant->part);
        }
    }
    forget_results(task->reference);
    free(task->reference);
}

const fuzz_rules_t fuzz_program = {.open = open_program,
                                   .build = build,
                                   .fill = fill,
                                   .check = check,
                                   .close = close_program};
