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

/* What the application saw in a step. */
typedef struct sight {
    uint64_t epoch, staleness;
    uint32_t active;
    bool included;
} sight_t;

typedef struct play {
    const conserve_law_t *law;
    baton_partial_t *partial;
    int rank, size;
    uint64_t copied[WIDTH + 1]; /* the last element: the count that rides */
    record_t *records;          /* by epoch, from 1 */
    uint64_t recorded;
    sight_t *sights; /* by step, from 1 */
    record_t pending;
    bool any;
} play_t;

/* The builder has no argument of its own: the recording one finds its play by
   rank, and the inner builder here. */
static play_t *plays[CONSERVE_RANKS];
static _Thread_local char sentence[300];

static const char *wrong(const play_t *play, uint64_t epoch, const char *what)
{
    snprintf(sentence, sizeof(sentence), "rank %d of %d, epoch %d: %s",
             play->rank, play->size, (int)epoch, what);
    return sentence;
}

/* ---- what is contributed ---------------------------------------------- */

static uint64_t value_of(const conserve_law_t *law, int rank, uint64_t step)
{
    support_random_t random =
        support_random(law->seed, step * CONSERVE_RANKS + (uint64_t)rank);
    return support_random_next(&random);
}

/* Of eight steps one is without a contribution. */
static bool contributes(const conserve_law_t *law, int rank, uint64_t step)
{
    return value_of(law, rank, step) % 8 != 0;
}

/* ---- recording -------------------------------------------------------- */

static baton_status_t record(void *arg, baton_call_t *call)
{
    uint64_t epoch = baton_call_epoch(call);
    play_t *play = arg;
    if (epoch != play->recorded + 1 || epoch > play->law->steps) {
        return BATON_ERR_STATE; /* an epoch was skipped, or made up */
    }
    play->recorded = epoch;
    memcpy(play->records[epoch].values, play->copied, sizeof(record_t));
    return BATON_OK;
}

/* entry --> inner all-reduce --> copy --> record */
static void record_inner(baton_schedule_t *s, const baton_allreduce_t *args)
{
    play_t *play = plays[baton_schedule_rank(s)];
    baton_buffer_t copied =
        baton_buffer_bind(s, play->copied, sizeof(play->copied));
    baton_node_t entry = baton_add_nop(s);
    baton_node_t copy = baton_add_copy(
        s, baton_view(copied, 0, args->target.bytes), args->target);
    baton_before(s, copy, baton_add_call(s, record, play));
    baton_enclosure_t inside = baton_enclose_begin(s);
    play->law->inner(s, args);
    baton_enclose_end(s, inside, entry, copy);
}

/* ---- playing ---------------------------------------------------------- */

static void rest(support_random_t *random, uint64_t longest_us)
{
    if (support_random_below(random, 4) == 0) {
        const struct timespec span = {
            0, (long)support_random_below(random, longest_us + 1) * 1000};
        nanosleep(&span, NULL);
    }
}

static baton_status_t step(play_t *play, uint64_t number,
                           support_random_t *random)
{
    uint64_t data[WIDTH] = {0};
    baton_status_t status = BATON_OK;
    rest(random, play->law->sleep_us);
    if (contributes(play->law, play->rank, number)) {
        data[0] = value_of(play->law, play->rank, number);
        data[1 + play->rank] = 1;
        status = baton_partial_contribute(play->partial, data);
    }
    if (status == BATON_OK && support_random_below(random, 8) == 0) {
        rest(random, play->law->sleep_us);
    }
    if (status == BATON_OK) {
        status = baton_partial_start(play->partial);
    }
    baton_partial_result_t result;
    if (status == BATON_OK) {
        status = baton_partial_wait(play->partial, WAIT_MS, &result);
    }
    if (status == BATON_OK) {
        play->sights[number] = (sight_t){result.epoch, result.staleness,
                                         result.active, result.included};
        /* The record of this epoch was written before the epoch retired. */
        if (memcmp(result.data, play->records[result.epoch].values,
                   sizeof(uint64_t) * (size_t)(play->size + 1)) != 0) {
            snprintf(sentence, sizeof(sentence),
                     "rank %d: the result of epoch %d is not what was reduced",
                     play->rank, (int)result.epoch);
            return BATON_ERR_FAILED;
        }
    }
    return status;
}

/* ---- checking --------------------------------------------------------- */

/* Contributions are taken in order: a rank's that are in the epochs up to one
   are its first. Walks them, epoch by epoch. */
typedef struct cursor {
    uint64_t taken; /* contributions */
    uint64_t step;  /* of the last one */
} cursor_t;

/* Moves on by `count` contributions; adds their values. */
static uint64_t take(const conserve_law_t *law, int rank, cursor_t *cursor,
                     uint64_t count, uint64_t *first_step)
{
    uint64_t sum = 0;
    *first_step = 0;
    cursor->taken += count;
    while (count > 0 && cursor->step < law->steps) {
        cursor->step++;
        if (contributes(law, rank, cursor->step)) {
            sum += value_of(law, rank, cursor->step);
            *first_step = *first_step == 0 ? cursor->step : *first_step;
            count--;
        }
    }
    return sum;
}

/* What the application was told in the steps that saw this epoch. */
static const char *check_sights(const play_t *play, uint64_t epoch,
                                uint64_t first_step, uint64_t last_step,
                                uint32_t active)
{
    for (uint64_t s = 1; s <= epoch; s++) {
        const sight_t *sight = &play->sights[s];
        if (sight->epoch != epoch) {
            continue;
        }
        /* By steps: one without a contribution, between two that were taken,
           counts as in it. */
        bool included = first_step != 0 && first_step <= s && s <= last_step;
        if (sight->included != included &&
            contributes(play->law, play->rank, s)) {
            return wrong(play, epoch, "included is wrong");
        }
        if (sight->active != active) {
            return wrong(play, epoch, "active is wrong");
        }
        if (first_step != 0 &&
            sight->staleness != (first_step < epoch ? epoch - first_step : 0)) {
            return wrong(play, epoch, "staleness is wrong");
        }
        if (play->law->keep == BATON_KEEP_ALL && s != epoch) {
            return wrong(play, epoch, "was seen in another step");
        }
    }
    return NULL;
}

static const char *check_epochs(const play_t *play)
{
    cursor_t cursors[CONSERVE_RANKS] = {{0, 0}};
    for (uint64_t epoch = 1; epoch <= play->law->steps; epoch++) {
        const uint64_t *values = play->records[epoch].values;
        uint64_t sum = 0, first = 0;
        uint32_t active = 0;
        for (int r = 0; r < play->size; r++) {
            uint64_t first_step;
            sum += take(play->law, r, &cursors[r], values[1 + r], &first_step);
            active += values[1 + r] != 0;
            first = r == play->rank ? first_step : first;
            if (cursors[r].step > epoch) {
                return wrong(play, epoch, "a contribution from the future");
            }
        }
        if (sum != values[0]) {
            return wrong(play, epoch, "not the values of those who are in it");
        }
        const char *what =
            check_sights(play, epoch, first, cursors[play->rank].step, active);
        if (what != NULL) {
            return what;
        }
    }
    uint64_t first_step;
    uint64_t left = play->pending.values[1 + play->rank];
    uint64_t sum =
        take(play->law, play->rank, &cursors[play->rank], left, &first_step);
    if (play->any != (left > 0) || sum != play->pending.values[0]) {
        return wrong(play, play->law->steps, "what is pending is wrong");
    }
    return NULL;
}

static void add_up(const play_t *play, conserve_totals_t *out)
{
    *out = (conserve_totals_t){.pending = play->pending.values[0],
                               .hash = 14695981039346656037u};
    for (uint64_t s = 1; s <= play->law->steps; s++) {
        if (contributes(play->law, play->rank, s)) {
            out->contributed += value_of(play->law, play->rank, s);
        }
        out->results += play->records[s].values[0];
        for (int i = 0; i <= play->size; i++) {
            out->hash =
                (out->hash ^ play->records[s].values[i]) * 1099511628211u;
        }
    }
}

static const char *play_steps(play_t *play, baton_group_t *group,
                              support_random_t *random)
{
    baton_partial_options_t options = {.size = sizeof(options),
                                       .name = "conserve",
                                       .mode = play->law->mode,
                                       .keep = play->law->keep,
                                       .seed = play->law->seed,
                                       .count = (size_t)play->size + 1,
                                       .dtype = BATON_U64,
                                       .inner = record_inner};
    sentence[0] = '\0';
    baton_status_t status =
        baton_partial_create(group, &options, &play->partial);
    for (uint64_t s = 1; s <= play->law->steps && status == BATON_OK; s++) {
        status = step(play, s, random);
    }
    if (status == BATON_OK) {
        status = baton_partial_pending(play->partial, play->pending.values,
                                       &play->any);
    }
    if (status != BATON_OK && sentence[0] == '\0') {
        snprintf(sentence, sizeof(sentence), "rank %d: %s: %s", play->rank,
                 baton_status_name(status), baton_error_message());
    }
    if (play->partial != NULL) {
        (void)!baton_partial_destroy(play->partial);
    }
    return status == BATON_OK ? NULL : sentence;
}

const char *conserve_play(baton_group_t *group, const conserve_law_t *law,
                          conserve_totals_t *out)
{
    play_t play = {
        .law = law,
        .rank = baton_group_rank(group),
        .size = baton_group_size(group),
        .records = calloc(law->steps + 1, sizeof(record_t)),
        .sights = calloc(law->steps + 1, sizeof(sight_t)),
    };
    if (play.records == NULL || play.sights == NULL) {
        free(play.records);
        free(play.sights);
        return "no memory";
    }
    plays[play.rank] = &play;
    support_random_t random =
        support_random(law->seed, (uint64_t)-1 - (uint64_t)play.rank);
    const char *what = play_steps(&play, group, &random);
    if (what == NULL) {
        what = play.recorded == law->steps
                   ? check_epochs(&play)
                   : wrong(&play, play.recorded, "was the last one");
    }
    if (what == NULL) {
        add_up(&play, out);
    }
    plays[play.rank] = NULL;
    free(play.records);
    free(play.sights);
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
