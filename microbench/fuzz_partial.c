/* Partial all-reduces: what applications do with them. fuzz_watch.h says what
   is checked meanwhile; when all is done, conservation: the results and what is
   pending add up to all that was contributed. */
#include "fuzz_watch.h"

#include <inttypes.h>
#include <stdlib.h>

enum { GIFTS_A_STEP = 4 };

/* ---- life ------------------------------------------------------------- */

static fuzz_part_t *part_create(const fuzz_task_plan_t *plan)
{
    uint64_t steps = (uint64_t)plan->steps + 1;
    size_t room = fuzz_bytes(plan) + baton_dtype_size(plan->dtype);
    fuzz_part_t *part = fuzz_alloc(1, sizeof *part);
    part->pending = fuzz_alloc(plan->count + 1, sizeof *part->pending);
    part->values = fuzz_alloc(plan->count + 1, sizeof *part->values);
    part->elements = fuzz_alloc(room, 1);
    part->entering = fuzz_alloc(room, 1);
    part->leaving = fuzz_alloc(room, 1);
    part->took = fuzz_alloc(plan->count + 1, sizeof *part->took);
    part->gifts =
        fuzz_alloc(FUZZ_LIVES * steps * GIFTS_A_STEP, sizeof *part->gifts);
    return part;
}

static void part_destroy(fuzz_part_t *part)
{
    (void)!baton_partial_destroy(part->partial);
    free(part->pending);
    free(part->values);
    free(part->elements);
    free(part->entering);
    free(part->leaving);
    free(part->took);
    free(part->gifts);
    free(part);
}

static void open_task(fuzz_task_t *task)
{
    const fuzz_task_plan_t *plan = task->plan;
    fuzz_book_t *book = fuzz_alloc(1, sizeof *book);
    task->book = book;
    book->rounds = fuzz_alloc(FUZZ_LIVES * ((size_t)plan->steps + 1),
                              sizeof *book->rounds);
    book->given = fuzz_alloc(plan->count + 1, sizeof *book->given);
    for (uint32_t life = 0; life <= task->world->plan.upsets; life++) {
        for (uint32_t epoch = 1; epoch <= plan->steps; epoch++) {
            fuzz_round(task, life, epoch)->expected =
                fuzz_alloc(plan->count + 1, sizeof(uint64_t));
        }
    }
}

/* Attempts tell those of one name apart, where all make them in one order. */
static baton_status_t commit_seat(fuzz_seat_t *seat)
{
    fuzz_task_t *task = seat->task;
    const fuzz_task_plan_t *plan = task->plan;
    char name[32];
    (void)snprintf(name, sizeof name, "partial %d", task->index);
    fuzz_watch_building = task;
    baton_partial_options_t options = {.size = sizeof options,
                                       .mode = plan->mode,
                                       .mode_ranks = plan->mode_ranks,
                                       .sync_every = plan->sync_every,
                                       .max_staleness = plan->max_staleness,
                                       .keep = plan->keep,
                                       .history = plan->history,
                                       .seed = task->world->plan.seed,
                                       .count = plan->count,
                                       .dtype = plan->dtype,
                                       .op = fuzz_op(plan),
                                       .inner = fuzz_watch_inner};
    if (task->world->plan.model.introductions) {
        options.name = name;
    }
    seat->part = part_create(plan);
    return baton_partial_create(baton_sim_group(task->world->sim, seat->rank),
                                &options, &seat->part->partial);
}

static const baton_schedule_t *schedule_of(const fuzz_seat_t *seat)
{
    return baton_partial_schedule(seat->part->partial);
}

static void close_task(fuzz_task_t *task)
{
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        if (task->seats[rank].part != NULL) {
            part_destroy(task->seats[rank].part);
        }
    }
    for (uint32_t life = 0; life < FUZZ_LIVES; life++) {
        for (uint32_t epoch = 1; epoch <= task->plan->steps; epoch++) {
            free(fuzz_round(task, life, epoch)->expected);
            free(fuzz_round(task, life, epoch)->result);
        }
    }
    free(task->book->rounds);
    free(task->book->given);
    free(task->book);
}

/* ---- steps ------------------------------------------------------------ */

static void contribute(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    const fuzz_task_t *task = seat->task;
    fuzz_fill(task->plan, fuzz_key(task, seat->rank, part->made++),
              part->values);
    fuzz_store(task->plan, part->values, part->elements);
    baton_status_t status =
        baton_partial_contribute(part->partial, part->elements);
    if (status != BATON_OK) {
        fuzz_fail(seat, "contribute: %s", baton_error_message());
        return;
    }
    part->gifts[part->given++] = (fuzz_gift_t){.step = seat->step + 1};
    fuzz_combine(task->plan, part->pending, part->values);
    fuzz_combine(task->plan, task->book->given, part->values);
}

static bool prepare(fuzz_seat_t *seat)
{
    if (seat->todo > 0) {
        contribute(seat);
        seat->todo--;
        return seat->todo > 0 || fuzz_once_in(&seat->random, 2);
    }
    return false;
}

static baton_status_t start(fuzz_seat_t *seat)
{
    return baton_partial_start(seat->part->partial);
}

static baton_status_t test(fuzz_seat_t *seat, bool *done_out)
{
    /* Once a step, so that there is room for the gifts. */
    if (seat->polls == 1 && fuzz_suffers(seat, FUZZ_FAULT_EARLY) &&
        fuzz_once_in(&seat->random, 2)) {
        contribute(seat);
    }
    return baton_partial_test(seat->part->partial, done_out);
}

static baton_status_t wait_for(fuzz_seat_t *seat, int timeout_ms)
{
    baton_partial_result_t seen;
    return baton_partial_wait(seat->part->partial, timeout_ms, &seen);
}

static baton_status_t finish(fuzz_seat_t *seat)
{
    baton_partial_result_t seen;
    fuzz_watch_held(seat);
    baton_status_t status = baton_partial_wait(seat->part->partial, -1, &seen);
    if (status == BATON_OK) {
        fuzz_watch_result(seat, &seen);
    }
    return status;
}

static void recovered(fuzz_seat_t *seat)
{
    fuzz_watch_life(seat);
}

/* ---- at the end ------------------------------------------------------- */

/* Leaves what is pending in the part's elements. */
static void audit_seat(fuzz_seat_t *seat)
{
    fuzz_part_t *part = seat->part;
    const fuzz_task_plan_t *plan = seat->task->plan;
    bool any = false;
    if (part->left != plan->steps) {
        fuzz_fail(seat, "liveness: %" PRIu32 " epochs have run", part->left);
    }
    if (baton_partial_pending(part->partial, part->elements, &any) !=
            BATON_OK ||
        any != (part->taken < part->given) ||
        fuzz_difference(plan, part->pending, part->elements) < plan->count) {
        fuzz_fail(seat, "conservation: what is pending is wrong");
    }
}

static void audit(fuzz_task_t *task)
{
    const fuzz_task_plan_t *plan = task->plan;
    uint64_t *sum = fuzz_alloc(plan->count + 1, sizeof *sum);
    for (int rank = 0; rank < fuzz_ranks(task); rank++) {
        audit_seat(&task->seats[rank]);
        fuzz_combine_elements(plan, sum, task->seats[rank].part->elements);
    }
    uint32_t lives = task->world->places[0].life;
    for (uint32_t life = 0; life <= lives; life++) {
        uint64_t last =
            life < lives ? fuzz_last_epoch(&task->seats[0], life) : plan->steps;
        for (uint64_t epoch = 1; epoch <= last; epoch++) {
            const fuzz_round_t *round = fuzz_round(task, life, epoch);
            if (round->result != NULL) {
                fuzz_combine_elements(plan, sum, round->result);
            }
        }
    }
    char *elements = fuzz_alloc(fuzz_bytes(plan) + 1, 1);
    fuzz_store(plan, sum, elements);
    size_t at = fuzz_difference(plan, task->book->given, elements);
    if (at < plan->count) {
        fuzz_fail(&task->seats[0],
                  "conservation: results and what is pending do not add up to "
                  "the contributions, at element %zu",
                  at);
    }
    free(elements);
    free(sum);
}

const fuzz_rules_t fuzz_partial_rules = {
    .open = open_task,
    .commit = commit_seat,
    .schedule = schedule_of,
    .prepare = prepare,
    .start = start,
    .test = test,
    .finish = finish,
    .wait = wait_for,
    .recovered = recovered,
    .audit = audit,
    .close = close_task,
};
