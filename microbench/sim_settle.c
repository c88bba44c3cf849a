/* The sweep, and what must fit together on a whole command line. */
#include "sim_collective.h"
#include "sim_options.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ITEM_BYTES = 64 };

#define DEFAULT_RANKS 32
#define DEFAULT_BYTES (UINT64_C(64) << 10)

/* ---- the sweep -------------------------------------------------------- */

static error_t parse_value(struct argp_state *state, const char *text,
                           sim_axis_t axis, uint64_t *out)
{
    return axis == SIM_AXIS_RANKS
               ? cli_count_option(state, "--sweep", text, 1, SIM_MAX_RANKS, out)
               : cli_size_option(state, "--sweep", text, 8, 8, SIM_MAX_BYTES,
                                 out);
}

/* "low..high": each value is twice the one before. */
static error_t parse_range(struct argp_state *state, const char *text,
                           const char *dots, sim_options_t *opts)
{
    char low_text[ITEM_BYTES];
    uint64_t low = 0;
    uint64_t high = 0;
    (void)snprintf(low_text, sizeof(low_text), "%.*s", (int)(dots - text),
                   text);
    error_t error = parse_value(state, low_text, opts->axis, &low);
    if (error == 0) {
        error = parse_value(state, dots + 2, opts->axis, &high);
    }
    if (error == 0 && low > high) {
        error = cli_bad(state, "--sweep", text, "ends before it begins");
    }
    for (uint64_t value = low; error == 0 && value <= high; value *= 2) {
        opts->values[opts->value_count++] = value;
    }
    return error;
}

static error_t parse_list(struct argp_state *state, const char *list,
                          sim_options_t *opts)
{
    char item[ITEM_BYTES];
    error_t error = 0;
    while (error == 0 && cli_next_item(&list, item, sizeof(item))) {
        if (opts->value_count == SIM_MAX_VALUES) {
            return cli_bad(state, "--sweep", item,
                           "is one too many: at most 64 values");
        }
        error = parse_value(state, item, opts->axis,
                            &opts->values[opts->value_count++]);
    }
    return error;
}

error_t sim_options_sweep(struct argp_state *state, const char *text)
{
    sim_options_t *opts = state->input;
    const char *values = strchr(text, '=');
    opts->value_count = 0;
    if (strncmp(text, "ranks=", 6) == 0) {
        opts->axis = SIM_AXIS_RANKS;
    } else if (sim_options_has_bytes(opts) && strncmp(text, "bytes=", 6) == 0) {
        opts->axis = SIM_AXIS_BYTES;
    } else {
        return cli_bad(state, "--sweep", text,
                       sim_options_has_bytes(opts)
                           ? "is not ranks=VALUES or bytes=VALUES"
                           : "is not ranks=VALUES");
    }
    values++;
    const char *dots = strstr(values, "..");
    return dots != NULL ? parse_range(state, values, dots, opts)
                        : parse_list(state, values, opts);
}

/* ---- the whole line --------------------------------------------------- */

/* What an option that depends on another one lacks. */
static error_t needs(struct argp_state *state, const char *option,
                     const char *what)
{
    argp_error(state, "%s: needs %s", option, what);
    return EINVAL;
}

static error_t is_rank(struct argp_state *state, const char *option,
                       uint64_t rank, uint64_t ranks)
{
    if (rank < ranks) {
        return 0;
    }
    argp_error(state, "%s: '%" PRIu64 "' is not from 0 to %" PRIu64, option,
               rank, ranks - 1);
    return EINVAL;
}

static error_t settle_hosts(struct argp_state *state, sim_options_t *opts)
{
    baton_sim_link_t *link = &opts->model.host_link;
    bool hosts = opts->model.host_ranks > 1;
    if (!hosts && link->alpha_us >= 0) {
        return needs(state, "--host-alpha-us", "--host-ranks");
    }
    if (!hosts && opts->host_gbit > 0) {
        return needs(state, "--host-gbit", "--host-ranks");
    }
    link->alpha_us = link->alpha_us >= 0 ? link->alpha_us : 0.3;
    opts->host_gbit = opts->host_gbit > 0 ? opts->host_gbit : 400;
    link->beta_ns = 8 / opts->host_gbit;
    opts->model.link.beta_ns = 8 / opts->gbit;
    return 0;
}

/* One value along an axis that was not asked for. */
static error_t settle_axes(struct argp_state *state, sim_options_t *opts)
{
    if (opts->axis == SIM_AXIS_RANKS && opts->ranks != SIM_NONE) {
        argp_error(state, "--ranks: there is --sweep=ranks already");
        return EINVAL;
    }
    if (opts->axis == SIM_AXIS_BYTES && opts->bytes != SIM_NONE) {
        argp_error(state, "--bytes: there is --sweep=bytes already");
        return EINVAL;
    }
    if (opts->ranks == SIM_NONE) {
        opts->ranks = DEFAULT_RANKS;
    }
    if (opts->bytes == SIM_NONE) {
        opts->bytes = sim_options_has_bytes(opts) ? DEFAULT_BYTES : 0;
    }
    if (opts->axis == SIM_AXIS_NONE) {
        opts->values[0] = opts->ranks;
        opts->value_count = 1;
    }
    if (opts->variant_count == 0) {
        while (opts->variant_names[opts->variant_count] != NULL) {
            opts->variants[opts->variant_count] = opts->variant_count;
            opts->variant_count++;
        }
    }
    return 0;
}

static error_t settle_files(struct argp_state *state, const sim_options_t *opts)
{
    const char *const names[] = {opts->trace, opts->dot, opts->goal};
    static const char *const options[] = {"--trace", "--dot", "--goal"};
    for (size_t i = 0; i < 3; i++) {
        if (names[i] != NULL &&
            (opts->axis != SIM_AXIS_NONE || opts->variant_count != 1)) {
            return needs(state, options[i],
                         "one simulation: no --sweep, and one of what is "
                         "compared");
        }
    }
    if (opts->plot != NULL && opts->axis == SIM_AXIS_NONE) {
        return needs(state, "--plot", "--sweep");
    }
    if (opts->dot_rank != SIM_NONE && opts->dot == NULL) {
        return needs(state, "--dot-rank", "--dot");
    }
    return opts->dot == NULL || opts->dot_rank == SIM_NONE
               ? 0
               : is_rank(state, "--dot-rank", opts->dot_rank, opts->ranks);
}

static bool has_variant(const sim_options_t *opts, size_t variant)
{
    for (size_t i = 0; i < opts->variant_count; i++) {
        if (opts->variants[i] == variant) {
            return true;
        }
    }
    return false;
}

static error_t settle_algorithm(struct argp_state *state,
                                const sim_options_t *opts)
{
    if (opts->chunk_bytes != 0 && !has_variant(opts, SIM_RING) &&
        !has_variant(opts, SIM_LINEAR_PIPELINE) &&
        !has_variant(opts, SIM_DOUBLE_TREE)) {
        return needs(state, "--chunk-bytes",
                     "ring, linear_pipeline or double_tree in --algorithm");
    }
    uint64_t least = opts->ranks;
    if (opts->axis == SIM_AXIS_RANKS) {
        least = opts->values[0];
        for (size_t i = 1; i < opts->value_count; i++) {
            least = opts->values[i] < least ? opts->values[i] : least;
        }
    }
    return is_rank(state, "--root", opts->root, least);
}

error_t sim_options_settle(struct argp_state *state)
{
    sim_options_t *opts = state->input;
    error_t error = settle_hosts(state, opts);
    if (error == 0) {
        error = settle_axes(state, opts);
    }
    if (error == 0) {
        error = settle_files(state, opts);
    }
    return error != 0 ? error : settle_algorithm(state, opts);
}

/* ---- printing --------------------------------------------------------- */

static void print_drawn(const char *name, const char *text)
{
    if (text != NULL) {
        (void)printf(", %s %s", name, text);
    }
}

void sim_options_print(const sim_options_t *options, const char *command)
{
    const baton_sim_options_t *model = &options->model;
    (void)printf("baton-sim %s: alpha %g us, %g Gbit/s, gamma %g ns", command,
                 model->link.alpha_us, options->gbit, model->gamma_ns);
    if (model->overhead_us > 0) {
        (void)printf(", overhead %g us", model->overhead_us);
    }
    if (model->host_ranks > 1) {
        (void)printf(", in hosts of %d: alpha %g us, %g Gbit/s",
                     model->host_ranks, model->host_link.alpha_us,
                     options->host_gbit);
    }
    if (model->multi_ported) {
        (void)fputs(", multi-ported", stdout);
    }
    if (model->eager_bytes > 0) {
        (void)printf(", eager below %zu bytes", model->eager_bytes);
    }
    if (model->sync_bytes > 0) {
        (void)printf(", synchronous from %zu bytes", model->sync_bytes);
    }
    print_drawn("skew", options->skew);
    print_drawn("lag", options->lag);
    print_drawn("speed", options->speed);
    if (options->spacing_ms > 0) {
        (void)printf(", %g ms apart", options->spacing_ms);
    }
    (void)printf("; %" PRIu64 " epoch%s, seed %" PRIu64 ", %s\n",
                 options->epochs, options->epochs == 1 ? "" : "s", model->seed,
                 options->prove     ? "every result proven"
                 : model->cost_only ? "cost only"
                                    : "every result checked");
}
