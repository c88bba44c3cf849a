/* What each option does; the whole line is in sim_settle.c. */
#include "sim_collective.h"
#include "sim_option_table.h"
#include <errno.h>

#define MAX_COST 1e9 /* of an option in microseconds or nanoseconds */
#define MIN_GBIT 1e-6
#define MAX_GBIT 1e6

/* ---- values ----------------------------------------------------------- */

static error_t parse_distribution(struct argp_state *state, const char *option,
                                  const char *text, baton_distribution_t *out,
                                  const char **text_out)
{
    if (baton_distribution_parse(text, out) == BATON_OK) {
        *text_out = text;
        return 0;
    }
    argp_error(state, "%s: %s", option, baton_error_message());
    return EINVAL;
}

static error_t parse_host_ranks(struct argp_state *state, const char *text,
                                int *out)
{
    uint64_t ranks = 0;
    error_t error =
        cli_count_option(state, "--host-ranks", text, 1, SIM_MAX_RANKS, &ranks);
    *out = (int)ranks;
    return error;
}

static error_t parse_bound(struct argp_state *state, const char *option,
                           const char *text, size_t *out)
{
    uint64_t bytes = 0;
    error_t error =
        cli_size_option(state, option, text, 1, 1, SIM_MAX_BYTES, &bytes);
    *out = (size_t)bytes;
    return error;
}

/* ---- options ---------------------------------------------------------- */

static error_t parse_model(int key, char *arg, struct argp_state *state)
{
    sim_options_t *opts = state->input;
    baton_sim_options_t *model = &opts->model;
    switch (key) {
    case KEY_ALPHA:
        return cli_real_option(state, "--alpha-us", arg, 0, MAX_COST,
                               &model->link.alpha_us);
    case KEY_GBIT:
        return cli_real_option(state, "--gbit", arg, MIN_GBIT, MAX_GBIT,
                               &opts->gbit);
    case KEY_GAMMA:
        return cli_real_option(state, "--gamma-ns", arg, 0, MAX_COST,
                               &model->gamma_ns);
    case KEY_OVERHEAD:
        return cli_real_option(state, "--overhead-us", arg, 0, MAX_COST,
                               &model->overhead_us);
    case KEY_HOST_RANKS:
        return parse_host_ranks(state, arg, &model->host_ranks);
    case KEY_HOST_ALPHA:
        return cli_real_option(state, "--host-alpha-us", arg, 0, MAX_COST,
                               &model->host_link.alpha_us);
    case KEY_HOST_GBIT:
        return cli_real_option(state, "--host-gbit", arg, MIN_GBIT, MAX_GBIT,
                               &opts->host_gbit);
    case KEY_SKEW:
        return parse_distribution(state, "--skew", arg, &model->skew,
                                  &opts->skew);
    case KEY_LAG:
        return parse_distribution(state, "--lag", arg, &model->lag, &opts->lag);
    case KEY_SPEED:
        return parse_distribution(state, "--speed", arg, &model->speed,
                                  &opts->speed);
    case KEY_MULTI_PORTED:
        model->multi_ported = true;
        return 0;
    case KEY_SYNC_BYTES:
        return parse_bound(state, "--sync-bytes", arg, &model->sync_bytes);
    case KEY_EAGER_BYTES:
        return parse_bound(state, "--eager-bytes", arg, &model->eager_bytes);
    case KEY_SEED:
        return cli_count_option(state, "--seed", arg, 0, UINT64_MAX,
                                &model->seed);
    default:
        return cli_default(key, arg, state);
    }
}

static error_t parse_files(int key, char *arg, struct argp_state *state)
{
    sim_options_t *opts = state->input;
    switch (key) {
    case KEY_CSV:
        opts->csv = arg;
        return 0;
    case KEY_JSON:
        opts->json = arg;
        return 0;
    case KEY_PLOT:
        return cli_plot_option(state, arg, &opts->plot);
    case KEY_TRACE:
        opts->trace = arg;
        return 0;
    case KEY_DOT:
        opts->dot = arg;
        return 0;
    case KEY_DOT_RANK:
        return cli_count_option(state, "--dot-rank", arg, 0, SIM_MAX_RANKS - 1,
                                &opts->dot_rank);
    case KEY_GOAL:
        opts->goal = arg;
        return 0;
    default:
        return parse_model(key, arg, state);
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    sim_options_t *opts = state->input;
    switch (key) {
    case KEY_ALGORITHM:
        return cli_word_list(state, "--algorithm", arg, opts->variant_names,
                             opts->variants, &opts->variant_count);
    case KEY_MODE:
        return cli_word_list(state, "--mode", arg, opts->variant_names,
                             opts->variants, &opts->variant_count);
    case KEY_MODE_RANKS:
        return cli_count_option(state, "--mode-ranks", arg, 1, SIM_MAX_RANKS,
                                &opts->mode_ranks);
    case KEY_INNER:
        return cli_word_option(state, "--inner", arg, sim_allreduce_names,
                               &opts->inner);
    case KEY_RANKS:
        return cli_count_option(state, "--ranks", arg, 1, SIM_MAX_RANKS,
                                &opts->ranks);
    case KEY_BYTES:
        return cli_size_option(state, "--bytes", arg, 8, 0, SIM_MAX_BYTES,
                               &opts->bytes);
    case KEY_CHUNK_BYTES:
        return cli_size_option(state, "--chunk-bytes", arg, 8, 8, SIM_MAX_BYTES,
                               &opts->chunk_bytes);
    case KEY_ROOT:
        return cli_count_option(state, "--root", arg, 0, SIM_MAX_RANKS - 1,
                                &opts->root);
    case KEY_EPOCHS:
        return cli_count_option(state, "--epochs", arg, 1, SIM_MAX_EPOCHS,
                                &opts->epochs);
    case KEY_ITERATIONS:
        return cli_count_option(state, "--iterations", arg, 1, SIM_MAX_EPOCHS,
                                &opts->epochs);
    case KEY_SKEW_MS:
        return cli_real_option(state, "--skew-ms", arg, 0.001, 10000,
                               &opts->spacing_ms);
    case KEY_PROVE:
        opts->prove = true;
        opts->model.cost_only = false;
        return 0;
    case KEY_PAYLOAD:
        opts->model.cost_only = false;
        return 0;
    case KEY_SWEEP:
        return sim_options_sweep(state, arg);
    case ARGP_KEY_END:
        return sim_options_settle(state);
    default:
        return parse_files(key, arg, state);
    }
}

/* ---- the command line ------------------------------------------------- */

static sim_options_t defaults(unsigned command,
                              const char *const *variant_names)
{
    return (sim_options_t){
        .command = command,
        .variant_names = variant_names,
        .model = {.size = sizeof(baton_sim_options_t),
                  .cost_only = true,
                  .seed = cli_default_seed(),
                  .link.alpha_us = 1.5,
                  .host_link.alpha_us = -1}, /* not given */
        .gbit = 100,
        .ranks = SIM_NONE,
        .bytes = SIM_NONE,
        .epochs = command == SIM_SKEW ? 64 : 1,
        .inner = SIM_NONE,
        .spacing_ms = command == SIM_SKEW ? 1 : 0,
        .dot_rank = SIM_NONE,
    };
}

cli_verdict_t sim_options_parse(unsigned command,
                                const char *const *variant_names,
                                const char *doc, int argc, char **argv,
                                sim_options_t *out)
{
    struct argp_option options[SIM_MAX_OPTIONS];
    sim_option_table(command, options);
    const struct argp parser = {
        .options = options, .parser = parse_option, .doc = doc};
    *out = defaults(command, variant_names);
    return cli_parse(&parser, argc, argv, true, out);
}
