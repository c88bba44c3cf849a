#include "support/conserve.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_MS 100000
#define WIDTH   (CONSERVE_RANKS + 1)

typedef struct record {
    uint64_t values[WIDTH];
} record_t;

/* The result that the application got in a step. */
typedef struct observation {
    uint64_t epoch, staleness;
    uint32_t active;
    bool included;
} observation_t;

typedef struct run {
    const conserve_options_t *options;
    baton_partial_t *partial;
    int rank, size;
    uint64_t copied[WIDTH + 1]; /* the last element counts active ranks */
    record_t *records;          /* by epoch, from 1 */
    uint64_t recorded;
    observation_t *observations; /* by step, from 1 */
    record_t pending;
    bool any;
} run_t;

/* The runs of this process, by rank: a builder of inner all-reduces has no
   argument. */
static run_t *runs[CONSERVE_RANKS];
static _Thread_local char message[300];

static const char *wrong(const run_t *run, uint64_t epoch, const char *what)
{
    snprintf(message, sizeof(message), "rank %d of %d, epoch %d: %s", run->rank,
             run->size, (int)epoch, what);
    return message;
}

/* ---- what is contributed ---------------------------------------------- */

static uint64_t value_of(const conserve_options_t *options, int rank,
                         uint64_t step)
{
    support_random_t random =
        support_random(options->seed, step * CONSERVE_RANKS + (uint64_t)rank);
    return support_random_next(&random);
}

/* One step in eight has no contribution. */
static bool contributes(const conserve_options_t *options, int rank,
                        uint64_t step)
{
    return value_of(options, rank, step) % 8 != 0;
}

/* ---- recording -------------------------------------------------------- */

static baton_status_t record(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    run_t *run = arg;
    if (epoch != run->recorded + 1 || epoch > run->options->steps) {
        return BATON_ERR_STATE; /* an epoch was skipped, or ran twice */
    }
    run->recorded = epoch;
    memcpy(run->records[epoch].values, run->copied, sizeof(record_t));
    return BATON_OK;
}

/* entry --> inner all-reduce --> copy --> record */
static void record_inner(baton_schedule_t *s, const baton_allreduce_t *args)
{
    run_t *run = runs[baton_schedule_rank(s)];
    baton_buffer_t copied =
        baton_buffer_bind(s, run->copied, sizeof(run->copied));
    baton_node_t entry = baton_add_nop(s);
    baton_node_t copy = baton_add_copy(
        s, baton_view(copied, 0, args->target.bytes), args->target);
    baton_before(s, copy, baton_add_call(s, record, run));
    baton_enclosure_t inside = baton_enclose_begin(s);
    run->options->inner(s, args);
    baton_enclose_end(s, inside, entry, copy);
}

/* ---- steps ------------------------------------------------------------ */

static void sleep_sometimes(support_random_t *random, uint64_t longest_us)
{
    if (support_random_below(random, 4) == 0) {
        const struct timespec span = {
            0, (long)support_random_below(random, longest_us + 1) * 1000};
        nanosleep(&span, NULL);
    }
}

static baton_status_t step(run_t *run, uint64_t number,
                           support_random_t *random)
{
    uint64_t data[WIDTH] = {0};
    baton_status_t status = BATON_OK;
    sleep_sometimes(random, run->options->sleep_us);
    if (contributes(run->options, run->rank, number)) {
        data[0] = value_of(run->options, run->rank, number);
        data[1 + run->rank] = 1;
        status = baton_partial_contribute(run->partial, data);
    }
    if (status == BATON_OK && support_random_below(random, 8) == 0) {
        sleep_sometimes(random, run->options->sleep_us);
    }
    if (status == BATON_OK) {
        status = baton_partial_start(run->partial);
    }
    baton_partial_result_t result;
    if (status == BATON_OK) {
        status = baton_partial_wait(run->partial, WAIT_MS, &result);
    }
    if (status == BATON_OK) {
        run->observations[number] = (observation_t){
            result.epoch, result.staleness, result.active, result.included};
        /* The record of this epoch was written before the epoch retired. */
        if (memcmp(result.data, run->records[result.epoch].values,
                   sizeof(uint64_t) * (size_t)(run->size + 1)) != 0) {
            snprintf(message, sizeof(message),
                     "rank %d: the result of epoch %d is not what was reduced",
                     run->rank, (int)result.epoch);
            return BATON_ERR_FAILED;
        }
    }
    return status;
}

/* ---- checking --------------------------------------------------------- */

/* A position in a rank's contributions, which epochs take in order. */
typedef struct cursor {
    uint64_t taken; /* contributions */
    uint64_t step;  /* of the last one */
} cursor_t;

/* Moves on by `count` contributions, and returns the sum of their values. */
static uint64_t take(const conserve_options_t *options, int rank,
                     cursor_t *cursor, uint64_t count, uint64_t *first_step)
{
    uint64_t sum = 0;
    *first_step = 0;
    cursor->taken += count;
    while (count > 0 && cursor->step < options->steps) {
        cursor->step++;
        if (contributes(options, rank, cursor->step)) {
            sum += value_of(options, rank, cursor->step);
            *first_step = *first_step == 0 ? cursor->step : *first_step;
            count--;
        }
    }
    return sum;
}

/* Checks the results of the steps that saw this epoch. */
static const char *check_observations(const run_t *run, uint64_t epoch,
                                      uint64_t first_step, uint64_t last_step,
                                      uint32_t active)
{
    for (uint64_t s = 1; s <= epoch; s++) {
        const observation_t *observation = &run->observations[s];
        if (observation->epoch != epoch) {
            continue;
        }
        /* A step without a contribution, between two that were taken, counts as
           included. */
        bool included = first_step != 0 && first_step <= s && s <= last_step;
        if (observation->included != included &&
            contributes(run->options, run->rank, s)) {
            return wrong(run, epoch, "included is wrong");
        }
        if (observation->active != active) {
            return wrong(run, epoch, "active is wrong");
        }
        if (first_step != 0 &&
            observation->staleness !=
                (first_step < epoch ? epoch - first_step : 0)) {
            return wrong(run, epoch, "staleness is wrong");
        }
        if (run->options->keep == BATON_KEEP_ALL && s != epoch) {
            return wrong(run, epoch, "was seen in another step");
        }
    }
    return NULL;
}

static const char *check_epochs(const run_t *run)
{
    cursor_t cursors[CONSERVE_RANKS] = {{0, 0}};
    for (uint64_t epoch = 1; epoch <= run->options->steps; epoch++) {
        const uint64_t *values = run->records[epoch].values;
        uint64_t sum = 0, first = 0;
        uint32_t active = 0;
        for (int r = 0; r < run->size; r++) {
            uint64_t first_step;
            sum +=
                take(run->options, r, &cursors[r], values[1 + r], &first_step);
            active += values[1 + r] != 0;
            first = r == run->rank ? first_step : first;
            if (cursors[r].step > epoch) {
                return wrong(run, epoch, "a contribution from the future");
            }
        }
        if (sum != values[0]) {
            return wrong(run, epoch, "not the values of those who are in it");
        }
        const char *what = check_observations(run, epoch, first,
                                              cursors[run->rank].step, active);
        if (what != NULL) {
            return what;
        }
    }
    uint64_t first_step;
    uint64_t left = run->pending.values[1 + run->rank];
    uint64_t sum =
        take(run->options, run->rank, &cursors[run->rank], left, &first_step);
    if (run->any != (left > 0) || sum != run->pending.values[0]) {
        return wrong(run, run->options->steps, "what is pending is wrong");
    }
    return NULL;
}

static void add_up(const run_t *run, conserve_totals_t *out)
{
    *out = (conserve_totals_t){.pending = run->pending.values[0],
                               .hash = 14695981039346656037u};
    for (uint64_t s = 1; s <= run->options->steps; s++) {
        if (contributes(run->options, run->rank, s)) {
            out->contributed += value_of(run->options, run->rank, s);
        }
        out->results += run->records[s].values[0];
        for (int i = 0; i <= run->size; i++) {
            out->hash =
                (out->hash ^ run->records[s].values[i]) * 1099511628211u;
        }
    }
}

static const char *run_steps(run_t *run, baton_group_t *group,
                             support_random_t *random)
{
    baton_partial_options_t options = {.size = sizeof(options),
                                       .name = "conserve",
                                       .mode = run->options->mode,
                                       .mode_ranks =
                                           run->options->mode == BATON_QUORUM
                                               ? (uint32_t)run->size / 2 + 1
                                               : 0,
                                       .keep = run->options->keep,
                                       .seed = run->options->seed,
                                       .count = (size_t)run->size + 1,
                                       .dtype = BATON_U64,
                                       .inner = record_inner};
    message[0] = '\0';
    baton_status_t status =
        baton_partial_create(group, &options, &run->partial);
    for (uint64_t s = 1; s <= run->options->steps && status == BATON_OK; s++) {
        status = step(run, s, random);
    }
    if (status == BATON_OK) {
        status =
            baton_partial_pending(run->partial, run->pending.values, &run->any);
    }
    if (status != BATON_OK && message[0] == '\0') {
        snprintf(message, sizeof(message), "rank %d: %s: %s", run->rank,
                 baton_status_name(status), baton_error_message());
    }
    if (run->partial != NULL) {
        (void)!baton_partial_destroy(run->partial);
    }
    return status == BATON_OK ? NULL : message;
}

const char *conserve_run(baton_group_t *group,
                         const conserve_options_t *options,
                         conserve_totals_t *out)
{
    run_t run = {
        .options = options,
        .rank = baton_group_rank(group),
        .size = baton_group_size(group),
        .records = calloc(options->steps + 1, sizeof(record_t)),
        .observations = calloc(options->steps + 1, sizeof(observation_t)),
    };
    if (run.records == NULL || run.observations == NULL) {
        free(run.records);
        free(run.observations);
        return "no memory";
    }
    runs[run.rank] = &run;
    support_random_t random =
        support_random(options->seed, (uint64_t)-1 - (uint64_t)run.rank);
    const char *what = run_steps(&run, group, &random);
    if (what == NULL) {
        what = run.recorded == options->steps
                   ? check_epochs(&run)
                   : wrong(&run, run.recorded, "was the last one");
    }
    if (what == NULL) {
        add_up(&run, out);
    }
    runs[run.rank] = NULL;
    free(run.records);
    free(run.observations);
    return what;
}

const char *conserve_compare(const conserve_totals_t *totals, int ranks)
{
    uint64_t contributed = 0, pending = 0;
    for (int r = 0; r < ranks; r++) {
        contributed += totals[r].contributed;
        pending += totals[r].pending;
        if (totals[r].hash != totals[0].hash) {
            return "the results are not the same on all ranks";
        }
    }
    return totals[0].results + pending == contributed
               ? NULL
               : "results and pending contributions are not all contributions";
}
