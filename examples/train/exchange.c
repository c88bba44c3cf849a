#include "exchange.h"

#include <baton/partial.h>
#include <baton/sparse.h>
#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* Epochs that a rank may be behind with --keep all. */
enum { HISTORY = 32 };

/* ---- buckets ---------------------------------------------------------- */

/* Small layers are fused, as PyTorch's DDP does: an all-reduce of its own would
   cost them mostly latency. */
static void cut_buckets(exchange_t *exchange)
{
    const net_t *net = exchange->net;
    bucket_t *bucket = NULL;
    for (size_t l = net->layer_count; l-- > 0;) {
        if (bucket == NULL) {
            bucket = &exchange->buckets[exchange->bucket_count++];
            bucket->first = net->layers[l].first;
        }
        bucket->count += net->layers[l].count;
        bucket->first_layer = l;
        if (bucket->count * sizeof(float) >= settings.bucket_kib << 10) {
            bucket = NULL;
        }
    }
}

/* The sum of each bucket's gradients, in place, on all ranks. Schedules are
   created once, before the first step. */
static void open_buckets(exchange_t *exchange, baton_group_t *group)
{
    for (size_t b = 0; b < exchange->bucket_count; b++) {
        bucket_t *bucket = &exchange->buckets[b];
        const baton_allreduce_t operands = {
            .target = &exchange->net->gradient[bucket->first],
            .count = bucket->count,
            .dtype = BATON_F32,
            .op = BATON_SUM,
            .name = "gradients"};
        must(baton_allreduce_create(group, &operands, &bucket->sum));
    }
}

static void start_next(exchange_t *exchange)
{
    must(baton_schedule_start(exchange->buckets[exchange->started++].sum));
}

static void update(exchange_t *exchange, const float *sum, size_t first,
                   size_t count)
{
    double began_s = MPI_Wtime();
    net_update(exchange->net, sum, first, count, settings.rate,
               exchange->sparse != NULL ? 0 : settings.momentum);
    exchange->seconds -= MPI_Wtime() - began_s; /* not communication */
}

/*  for each bucket: wait, update its layers  */
static void finish_buckets(exchange_t *exchange)
{
    net_t *net = exchange->net;
    while (exchange->system->kind != MPI &&
           exchange->started < exchange->bucket_count) {
        start_next(exchange);
    }
    for (size_t b = 0; b < exchange->bucket_count; b++) {
        const bucket_t *bucket = &exchange->buckets[b];
        float *gradient = &net->gradient[bucket->first];
        if (bucket->sum != NULL) {
            must(baton_schedule_wait(bucket->sum, -1));
        } else {
            MPI_Allreduce(MPI_IN_PLACE, gradient, (int)bucket->count, MPI_FLOAT,
                          MPI_SUM, MPI_COMM_WORLD);
        }
        update(exchange, gradient, bucket->first, bucket->count);
    }
    exchange->started = 0;
}

/* ---- partial ---------------------------------------------------------- */

/* One, of all buckets: a rank's step is in a sum with all of them. */
static void open_partial(exchange_t *exchange, baton_group_t *group)
{
    size_t counts[NET_MOST_LAYERS];
    for (size_t b = 0; b < exchange->bucket_count; b++) {
        counts[b] = exchange->buckets[b].count;
    }
    bool keeps_all = strcmp(settings.keep, "all") == 0;
    baton_partial_options_t options = BATON_PARTIAL_OPTIONS;
    options.name = exchange->system->name;
    options.mode = exchange->system->mode;
    options.mode_ranks = exchange->system->mode_ranks;
    options.keep = keeps_all ? BATON_KEEP_ALL : BATON_KEEP_LATEST;
    options.history = keeps_all ? HISTORY : 1;
    options.seed = settings.seed;
    options.tensors = exchange->bucket_count;
    options.counts = counts;
    options.dtype = BATON_F32;
    must(baton_partial_create(group, &options, &exchange->partial));
}

static void contribute_next(exchange_t *exchange)
{
    size_t b = exchange->started++;
    must(baton_partial_contribute_tensor(
        exchange->partial, b,
        &exchange->net->gradient[exchange->buckets[b].first]));
}

/* The sum of the gradients that are there, and of what late ranks have left
   from earlier steps. With KEEP_LATEST a late rank may get a sum again that it
   has applied. */
static void finish_partial(exchange_t *exchange)
{
    baton_partial_result_t result;
    exchange->started = 0;
    must(baton_partial_start(exchange->partial));
    must(baton_partial_wait(exchange->partial, -1, &result));
    if (result.epoch > exchange->applied) {
        update(exchange, result.data, 0, exchange->net->parameter_count);
    }
    exchange->applied = result.epoch;
}

bool exchange_is_behind(const exchange_t *exchange)
{
    return exchange->partial != NULL &&
           baton_schedule_epoch(baton_partial_schedule(exchange->partial)) >
               exchange->applied;
}

/* ---- sparse ----------------------------------------------------------- */

static baton_sparse_options_t sparse_options(const exchange_t *exchange)
{
    baton_sparse_options_t options = BATON_SPARSE_OPTIONS;
    options.algorithm = exchange->system->algorithm;
    options.count = exchange->net->parameter_count;
    options.density = exchange->system->density;
    options.momentum = settings.momentum;
    options.link = (baton_link_cost_t){settings.alpha_us, 8 / settings.gbit};
    return options;
}

static void open_sparse(exchange_t *exchange, baton_group_t *group)
{
    baton_sparse_options_t options = sparse_options(exchange);
    must(baton_sparse_create(group, &options, -1, &exchange->sparse));
    exchange->update = zeroed(options.count, sizeof(float));
}

/* Bytes are those that were sent; dense steps are not counted by the
   statistics, but always send the same. The network's time is that of the
   closed form. */
static void account(exchange_t *exchange)
{
    baton_sparse_stats_t stats;
    baton_sparse_cost_t cost;
    baton_sparse_options_t options = sparse_options(exchange);
    must(baton_sparse_stats(exchange->sparse, &stats));
    options.algorithm = stats.algorithm;
    must(baton_sparse_cost(&options, size, &cost));
    exchange->bytes += stats.algorithm == BATON_SPARSE_DENSE
                           ? cost.bytes
                           : (double)stats.bytes_sent;
    exchange->network_s += cost.us / 1e6;
}

/*  start --> wait, instead of an all-reduce; momentum is the library's  */
static void finish_sparse(exchange_t *exchange)
{
    baton_sparse_result_t result;
    must(baton_sparse_start(exchange->sparse, exchange->net->gradient));
    must(baton_sparse_wait(exchange->sparse, -1, &result));
    must(baton_sparse_dense(exchange->sparse, exchange->update));
    update(exchange, exchange->update, 0, exchange->net->parameter_count);
    account(exchange);
}

/* ---- any system ------------------------------------------------------- */

void exchange_open(exchange_t *exchange, baton_group_t *group,
                   const system_t *system, net_t *net)
{
    *exchange = (exchange_t){.system = system, .net = net};
    cut_buckets(exchange);
    if (system->kind == PARTIAL) {
        open_partial(exchange, group);
    } else if (system->kind == SPARSE) {
        open_sparse(exchange, group);
    } else if (system->kind != MPI) {
        open_buckets(exchange, group);
    }
    if (system->kind != SPARSE) {
        exchange->bytes = exchange->network_s = NAN;
    }
}

void exchange_close(exchange_t *exchange)
{
    for (size_t b = 0; b < exchange->bucket_count; b++) {
        must(baton_schedule_destroy(exchange->buckets[b].sum));
    }
    must(baton_partial_destroy(exchange->partial));
    must(baton_sparse_destroy(exchange->sparse));
    free(exchange->update);
}

void exchange_layer(exchange_t *exchange, size_t layer)
{
    bool partial = exchange->partial != NULL;
    if ((exchange->system->kind == OVERLAP || partial) &&
        exchange->buckets[exchange->started].first_layer == layer) {
        double began_s = MPI_Wtime();
        (partial ? contribute_next : start_next)(exchange);
        exchange->seconds += MPI_Wtime() - began_s;
    }
}

void exchange_finish(exchange_t *exchange)
{
    double began_s = MPI_Wtime();
    if (exchange->partial != NULL) {
        finish_partial(exchange);
    } else if (exchange->sparse != NULL) {
        finish_sparse(exchange);
    } else {
        finish_buckets(exchange);
    }
    exchange->seconds += MPI_Wtime() - began_s;
}
