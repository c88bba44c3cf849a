/* Chooses an algorithm and its segment size. Of the algorithms that can do what
   a case asks for, it is the one whose formula gives the lowest cost.

   On one host data that are passed on wait for a processor at each hop. So
   algorithms that pass nothing on (one_host) are chosen there for long vectors,
   and nowhere else: in a network their messages would all queue at one port.

   Measured choices (tune.h) come before the model: first those of the group,
   then those of the calibration file.

   Ranks may see only two inputs of a choice differently: variables and the
   calibration file. If these differ, the ranks' schedules differ, and their
   HELLO notices report that (progress/membership/notice.h). */
#include "coll/dense/algorithms.h"
#include "coll/tune/tune.h"

#include "base/config.h"
#include "base/error.h"
#include "base/options.h"

#include <baton/engine.h>
#include <math.h>

#define LEAST_SEGMENT ((size_t)1024)
#define MOST_SEGMENT  ((size_t)16 * 1024 * 1024)
/* The largest segment on one host. It is still in a cache when it is reduced or
   passed on. */
#define MOST_HOST_SEGMENT ((size_t)512 * 1024)

/* Costs that are equal may differ after rounding. So a cost counts as lower
   only if it is below LESS times the other. */
#define LESS (1 - 1e-9)

/* Returns the variable that names an algorithm of the collective; 0 if the
   collective has only one algorithm. */
static baton__config_id_t variable_of(baton_collective_t collective)
{
    static const baton__config_id_t variables[BATON_COLLECTIVE_COUNT] = {
        [BATON_COLLECTIVE_BROADCAST] = BATON__CONFIG_BROADCAST,
        [BATON_COLLECTIVE_REDUCE] = BATON__CONFIG_REDUCE,
        [BATON_COLLECTIVE_ALLREDUCE] = BATON__CONFIG_ALLREDUCE,
        [BATON_COLLECTIVE_REDUCE_SCATTER] = BATON__CONFIG_REDUCE_SCATTER,
        [BATON_COLLECTIVE_ALLGATHER] = BATON__CONFIG_ALLGATHER,
        [BATON_COLLECTIVE_ALLTOALL] = BATON__CONFIG_ALLTOALL,
    };
    return variables[collective]; /* 0 for collectives that are not listed */
}

const char *baton__choice_variable(baton_collective_t collective)
{
    baton_variable_t variable;
    return baton_variable_get(variable_of(collective), &variable)
               ? variable.name
               : "";
}

/* Returns true if an algorithm can do everything that a case asks for. */
static bool can_do(const baton_algorithm_t *algorithm,
                   const baton_choice_case_t *of)
{
    bool keeps_order =
        algorithm->ordered || (algorithm->ordered_at_ends && of->root_at_end);
    return algorithm->collective == of->collective &&
           (keeps_order || !of->ordered) &&
           (!algorithm->equal_blocks || !of->uneven);
}

static void choose_weigh(const baton_algorithm_t *algorithm,
                         baton_cost_case_t cost, bool one_host,
                         baton_choice_t *best)
{
    size_t bytes = (size_t)cost.bytes;
    size_t segment = (size_t)cost.segment_bytes;
    size_t most = 0;
    if (segment == 0) {
        segment = LEAST_SEGMENT;
        most = one_host ? MOST_HOST_SEGMENT : MOST_SEGMENT;
    }
    if (!algorithm->segmented) {
        segment = 0;
    }
    do {
        cost.segment_bytes = (double)segment;
        double us = one_host ? baton_algorithm_host_us(algorithm, &cost)
                             : baton__between_us(algorithm, &cost);
        if (best->algorithm.name == NULL || us < best->cost_us * LESS) {
            *best = (baton_choice_t){*algorithm, segment, us};
        }
        segment *= 2;
    } while (segment > 0 && segment / 2 < bytes && segment <= most);
}

static baton_status_t cost_case(const baton_choice_case_t *of,
                                baton_cost_case_t *out)
{
    baton_costs_t costs = BATON_COSTS;
    baton_status_t status = baton_costs_get(&costs);
    if (status == BATON_OK) {
        const baton_link_cost_t *link =
            of->hosts > 1 ? &costs.between : &costs.inside;
        *out =
            (baton_cost_case_t){.ranks = of->ranks,
                                .bytes = (double)of->bytes,
                                .alpha_us = link->alpha_us,
                                .beta_us = link->beta_ns / 1e3,
                                .gamma_us = costs.gamma_ns / 1e3,
                                .segment_bytes = (double)of->segment_bytes,
                                .processors = of->processors,
                                .turn_us = costs.turn_us,
                                .hosts = of->hosts > 0 ? of->hosts : 1,
                                .scattered = of->scattered,
                                .inside_alpha_us = costs.inside.alpha_us,
                                .inside_beta_us = costs.inside.beta_ns / 1e3};
    }
    return status;
}

/* Returns the name of a feature that a case asks for and that some algorithms
   lack. */
static const char *demand_of(const baton_choice_case_t *of)
{
    if (!of->ordered) {
        return "blocks of different sizes";
    }
    return of->collective == BATON_COLLECTIVE_REDUCE && !of->root_at_end
               ? "a reduction that is not commutative to a root that is not "
                 "rank 0 or P - 1"
               : "a reduction that is not commutative";
}

static baton_status_t refuse_all(const baton_choice_case_t *of)
{
    return baton__error(BATON_ERR_UNSUPPORTED, "no algorithm of %s can do %s",
                        baton_collective_name(of->collective), demand_of(of));
}

static baton_status_t choose_refuse(const baton_choice_case_t *of,
                                    const baton_algorithm_t *algorithm)
{
    baton__text_t text = BATON__TEXT(BATON__MESSAGE_BYTES);
    baton__text_add(&text, "%s by %s can't do %s; these can:",
                    baton_collective_name(of->collective), algorithm->name,
                    demand_of(of));
    size_t others = 0;
    baton_algorithm_t other;
    for (size_t i = 0; baton_algorithm_get(i, &other); i++) {
        if (can_do(&other, of)) {
            baton__text_add(&text, " %s", other.name);
            others++;
        }
    }
    return others > 0 ? baton__error(BATON_ERR_UNSUPPORTED, "%s", text.data)
                      : refuse_all(of);
}

static baton_status_t choose_check(const baton_choice_case_t *of)
{
    baton_status_t status = baton__check_collective("choice", of->collective);
    if (status != BATON_OK) {
        return status;
    }
    if (of->ranks < 1) {
        return baton__error(BATON_ERR_INVALID,
                            "choice: ranks is %d; allowed: 1 or more",
                            of->ranks);
    }
    if (of->hosts < 0 || of->hosts > of->ranks) {
        return baton__error(BATON_ERR_INVALID,
                            "choice: hosts is %d; allowed: 0, which means 1, "
                            "to %d, the ranks",
                            of->hosts, of->ranks);
    }
    if (of->processors < 0) {
        return baton__error(BATON_ERR_INVALID,
                            "choice: processors is %d; allowed: 0, which means "
                            "one for each rank, or more",
                            of->processors);
    }
    if (of->ordered && !baton__facts[of->collective].reduces) {
        return baton__error(
            BATON_ERR_INVALID,
            "choice: ordered is true; must be false, as %s does not reduce",
            baton_collective_name(of->collective));
    }
    return BATON_OK;
}

/* Inserts a choice into `all`, after those that cost no more. If `all` already
   has `most` choices, drops the most expensive one. Returns the new number of
   choices. */
static size_t choose_insert(const baton_choice_t *choice, baton_choice_t *all,
                            size_t count, size_t most)
{
    size_t at = count < most ? count++ : most;
    for (; at > 0 && choice->cost_us < all[at - 1].cost_us * LESS; at--) {
        if (at < most) {
            all[at] = all[at - 1];
        }
    }
    if (at < most) {
        all[at] = *choice;
    }
    return count;
}

baton_status_t baton__choice_rank(const baton_choice_case_t *of, size_t most,
                                  baton_choice_t *out, size_t *count_out)
{
    baton_cost_case_t cost;
    baton_algorithm_t algorithm;
    baton_status_t status = cost_case(of, &cost);
    *count_out = 0;
    for (size_t i = 0; status == BATON_OK && baton_algorithm_get(i, &algorithm);
         i++) {
        if (can_do(&algorithm, of) && baton__has_cost(&algorithm) &&
            (of->hosts <= 1 || !algorithm.one_host)) {
            baton_choice_t choice = {.cost_us = 0};
            choose_weigh(&algorithm, cost, of->hosts <= 1, &choice);
            *count_out = choose_insert(&choice, out, *count_out, most);
        }
    }
    return status;
}

const char *baton__choice_name(const baton_choice_case_t *of)
{
    baton__config_id_t variable = variable_of(of->collective);
    if (of->algorithm != NULL) {
        return of->algorithm;
    }
    return variable != 0 ? baton__config_text(variable) : "";
}

static baton_status_t choose_named(const baton_choice_case_t *of,
                                   const char *name, baton_choice_t *out)
{
    baton_cost_case_t cost;
    baton_algorithm_t algorithm;
    baton_status_t status =
        baton_algorithm_find(of->collective, name, &algorithm);
    if (status == BATON_OK && !can_do(&algorithm, of)) {
        status = choose_refuse(of, &algorithm);
    }
    if (status != BATON_OK) {
        return status;
    }
    const bool weighed = baton__has_cost(&algorithm);
    status = weighed ? cost_case(of, &cost) : BATON_OK;
    if (weighed && status == BATON_OK) {
        choose_weigh(&algorithm, cost, of->hosts <= 1, out);
    } else if (!weighed || !algorithm.segmented || of->segment_bytes > 0) {
        size_t segment = algorithm.segmented ? of->segment_bytes : 0;
        *out = (baton_choice_t){algorithm, segment, NAN};
        /* Only one algorithm can be chosen, so the costs do not matter. */
        status = BATON_OK;
    }
    return status;
}

baton_status_t baton__choice_take(const baton__measured_t *measured,
                                  const baton_choice_case_t *of,
                                  baton_choice_t *out)
{
    baton_choice_t choice = {.cost_us = 0};
    /* The segment size is the measured one, so costs decide nothing in
       choose_named. */
    baton_choice_case_t with = *of;
    with.segment_bytes = measured->segment_bytes;
    baton_status_t status = choose_named(&with, measured->algorithm, &choice);
    if (status == BATON_OK) {
        choice.segment_bytes = measured->segment_bytes;
        *out = choice;
    }
    return status == BATON_ERR_UNSUPPORTED ? BATON_OK : status;
}

/* Returns true if only one algorithm can do what a case asks for, and if it has
   no segments. Then costs decide nothing. */
static bool find_only(const baton_choice_case_t *of, baton_choice_t *out)
{
    baton_choice_t choice = {.cost_us = NAN};
    size_t count = 0;
    for (size_t i = 0; baton_algorithm_get(i, &choice.algorithm); i++) {
        if (can_do(&choice.algorithm, of) &&
            baton__has_cost(&choice.algorithm)) {
            *out = choice;
            count++;
        }
    }
    return count == 1 && !out->algorithm.segmented;
}

baton_status_t baton_choose(const baton_choice_case_t *passed,
                            baton_choice_t *out)
{
    baton_choice_case_t whole;
    const baton_choice_case_t *of = &whole;
    baton__measured_t measured;
    bool found = false;
    size_t count = 0;
    baton_choice_t best = {.cost_us = 0};
    if (out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: out is NULL", __func__);
    }
    baton_status_t status = baton__options_read(
        &whole, sizeof whole, passed, "choice: case", "BATON_CHOICE_CASE");
    if (status == BATON_OK) {
        status = choose_check(of);
    }
    if (status != BATON_OK) {
        return status;
    }
    const char *name = baton__choice_name(of);
    if (name[0] != '\0') {
        status = choose_named(of, name, &best);
        if (status != BATON_OK && of->algorithm == NULL) {
            status = baton__error(status, "%s: %s",
                                  baton__choice_variable(of->collective),
                                  baton_error_message());
        }
    } else {
        status = baton__choice_rank(of, 1, &best, &count);
        if (status == BATON_OK && count == 0) {
            status = refuse_all(of);
        }
        const baton__measured_t key = baton__measured_key(of);
        if (status == BATON_OK) {
            status = baton__measured_in_file(&key, &measured, &found);
        }
        if (status != BATON_OK && find_only(of, &best)) {
            status = BATON_OK;
        }
    }
    if (status == BATON_OK && found) {
        status = baton__choice_take(&measured, of, &best);
    }
    if (status == BATON_OK) {
        *out = best;
    }
    return status;
}
