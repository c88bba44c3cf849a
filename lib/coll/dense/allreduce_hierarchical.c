#include "base/alloc.h"
#include "coll/dense/allreduce.h"
#include "coll/kit/check.h"

/* Three phases, each among some of the ranks. The vector is cut into B blocks,
   where B is the number of ranks of the smallest host. 2 hosts of 3 and 2
   ranks, B = 2:

       inside hosts      between hosts        inside hosts
       reduce-scatter    all-reduce           all-gather

       0 --+             0: block 0 --+       0 --+
       1 --+--> blocks   1: block 1 --|--+    1 --+
       2 --+             2: -         |  |    2 --+
                                      |  |
       3 --+             3: block 0 --+  |    3 --+
       4 --+--> blocks   4: block 1 -----+    4 --+

   The k-th rank of a host has block k. The ranks after the B-th have an empty
   block, and take part only inside the host. So each block moves between hosts
   once, and B ranks of each host send at the same time. */
typedef struct place {
    int host;       /* index of this rank's host */
    int hosts;      /* number of hosts */
    int index;      /* this rank's index among the ranks of its host */
    int *mates;     /* the ranks of this host */
    int mate_count; /* number of `mates` */
    /* For each host, the rank whose index on that host is the index of this
       rank on its own host. */
    int *peers;
    int blocks; /* B, the number of blocks */
} place_t;

/* Returns the first rank that has the same number in `numbers` as `rank`.
   `most` is the largest number of the ranks before `rank`: a number above it is
   new, and needs no search. */
static int first_of(const int *numbers, int rank, int most)
{
    int first = rank;
    if (rank > 0 && numbers[rank] <= most) {
        first = 0;
        while (numbers[first] != numbers[rank]) {
            first++;
        }
    }
    return first;
}

/* Sets the fields of `place`. `numbers` has each rank's host. Gives the hosts
   new numbers in the order of their first ranks, and stores the new number of
   each rank's host in `hosts`. Uses `counts`, which has a zero for each rank,
   to count the ranks of each host. */
static void find_neighbours(const int *numbers, int rank, int size, int *hosts,
                            int *counts, place_t *place)
{
    int most = numbers[0];
    for (int other = 0; other < size; other++) {
        if (other > 0 && numbers[other] == numbers[other - 1]) {
            hosts[other] = hosts[other - 1];
        } else {
            int first = first_of(numbers, other, most);
            hosts[other] = first == other ? place->hosts++ : hosts[first];
            most = numbers[other] > most ? numbers[other] : most;
        }
        if (other == rank) {
            place->host = hosts[rank];
            place->index = counts[place->host];
        }
        counts[hosts[other]]++;
    }
    place->blocks = size;
    for (int host = 0; host < place->hosts; host++) {
        place->blocks =
            counts[host] < place->blocks ? counts[host] : place->blocks;
    }
    place->mate_count = counts[place->host];
    for (int other = size - 1; other >= 0; other--) {
        int index = --counts[hosts[other]];
        if (index == place->index) {
            place->peers[hosts[other]] = other;
        }
        if (hosts[other] == place->host) {
            place->mates[index] = other;
        }
    }
}

/* Divides the vector into B blocks, one for each of the first B ranks of this
   host, and returns the blocks' offsets in bytes, mate_count + 1 of them. The
   ranks after the B-th have empty blocks at the end. */
static size_t *cut_for(baton__flow_t *flow, size_t bytes, const place_t *place)
{
    size_t count = bytes / flow->element;
    size_t *at = baton__cut_evenly(flow, bytes, place->mate_count);
    for (int i = 0; at != NULL && i < place->mate_count; i++) {
        int last = i < place->blocks ? i : place->blocks - 1;
        baton__block_t block =
            baton__block_of(count, (size_t)place->blocks, (size_t)last);
        at[i + 1] = (block.first + block.count) * flow->element;
    }
    return at;
}

/* Adds an in-place all-reduce of this rank's block with the ranks that have the
   same block on other hosts. */
static void reduce_between(baton__flow_t *flow, const place_t *place,
                           baton_view_t block)
{
    baton__blocks_t parts = baton__blocks_cut(flow, block, place->hosts);
    if (parts.at == NULL) {
        return;
    }
    baton__flow_team(flow, place->peers, place->host, place->hosts);
    baton__circulant_reduce_scatter(flow, &parts, &parts, (baton_view_t){0});
    baton__circulant_allgather(flow, &parts, BATON__SKIPS_HALVED);
}

static void
allreduce_hierarchical_add_phases(baton__flow_t *flow, const place_t *place,
                                  const baton_allreduce_args_t *args,
                                  bool in_place)
{
    size_t *at = cut_for(flow, args->target.bytes, place);
    if (at == NULL) {
        return;
    }
    baton__blocks_t sums = {
        .memory = args->target, .at = at, .parts = place->mate_count};
    baton__blocks_t own = sums;
    own.memory = args->source;
    baton__flow_team(flow, place->mates, place->index, place->mate_count);
    if (place->mate_count == 1 && !in_place) {
        baton__flow_copy(flow, args->target, args->source);
    }
    flow->is_inner = place->hosts > 1;
    baton__circulant_reduce_scatter(flow, &sums, in_place ? &sums : &own,
                                    (baton_view_t){0});
    flow->is_inner = false;
    baton_view_t block = baton__blocks_view(&sums, place->index, 1);
    if (place->index < place->blocks && place->hosts > 1 && block.bytes > 0) {
        reduce_between(flow, place, block);
    }
    baton__flow_team(flow, place->mates, place->index, place->mate_count);
    baton__circulant_allgather(flow, &sums, BATON__SKIPS_HALVED);
}

static bool check_hosts(baton_schedule_t *schedule, const char *builder,
                        const baton_hosts_t *hosts)
{
    if (hosts == NULL) {
        return true;
    }
    if (hosts->size != sizeof *hosts) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: args.arg must point to a baton_hosts_t whose "
                            "size is %zu, or be NULL",
                            builder, sizeof *hosts);
        return false;
    }
    if (hosts->host == NULL && hosts->host_ranks < 1) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: host is NULL and host_ranks is %d, must be at "
                            "least 1",
                            builder, hosts->host_ranks);
        return false;
    }
    return true;
}

/* Returns the number of a rank's host: that of the caller's `hosts` or, if that
   is NULL, that of the schedule's group. */
static int host_number_of(const baton_schedule_t *schedule,
                          const baton_hosts_t *hosts, int rank)
{
    if (hosts == NULL) {
        return baton_schedule_host_of(schedule, rank);
    }
    return hosts->host != NULL ? hosts->host[rank] : rank / hosts->host_ranks;
}

/* Sets the fields of `place`. Returns the memory to which they point, which the
   caller frees. Returns NULL if the schedule has an error. */
static int *find_place(baton_schedule_t *schedule, const char *builder,
                       const baton_hosts_t *hosts, place_t *place)
{
    int size = baton_schedule_size(schedule);
    size_t ranks = (size_t)size;
    int *memory = baton__alloc(ranks, 5 * sizeof(int));
    if (memory == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "%s: no memory for the hosts of %d ranks", builder,
                            size);
        return NULL;
    }
    int *numbers = memory + 4 * ranks;
    for (int rank = 0; rank < size; rank++) {
        numbers[rank] = host_number_of(schedule, hosts, rank);
    }
    place->mates = memory;
    place->peers = memory + ranks;
    find_neighbours(numbers, baton_schedule_rank(schedule), size,
                    memory + 2 * ranks, memory + 3 * ranks, place);
    for (int rank = 0; hosts != NULL && rank < size; rank++) {
        baton_schedule_agree(schedule, "host[%d] %d", rank,
                             memory[2 * size + rank]);
    }
    return memory;
}

void baton_add_allreduce_hierarchical(baton_schedule_t *schedule,
                                      const baton_allreduce_args_t *args)
{
    static const char name[] = "hierarchical all-reduce";
    if (!baton__allreduce_begin(schedule, name, &args) ||
        !check_hosts(schedule, name, args->arg) ||
        !baton__check_commutative(schedule, name, args->op,
                                  BATON__ORDERED_ALLREDUCES)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    place_t place = {.index = 0};
    int *memory = find_place(schedule, name, args->arg, &place);
    if (memory != NULL) {
        allreduce_hierarchical_add_phases(
            &flow, &place, args, baton__allreduce_in_place(schedule, args));
    }
    baton__flow_close(&flow);
    baton__free(memory);
}

/* `blocks` is the number of blocks that a rank of the largest host sends in all
   rounds of the reduce-scatter. In each round at most B of the blocks that the
   rank sends are not empty, and only these count. */
static double allreduce_hierarchical_cost(const baton__terms_t *t)
{
    int hosts = t->of.hosts > 0 ? t->of.hosts : t->of.ranks;
    int most = (t->of.ranks - 1) / hosts + 1;
    int rest = t->of.ranks - (hosts - 1) * most;
    int least = rest > 1 ? rest : 1;
    if (t->of.scattered) {
        least = t->of.ranks / hosts;
    }
    int blocks = 0;
    for (int have = most; have > 1;) {
        int keep = baton__circulant_less(have, false);
        blocks += have - keep < least ? have - keep : least;
        have = keep;
    }
    double inside = t->n / least * blocks;
    baton__terms_t between =
        baton__terms_of(&(baton_cost_case_t){.ranks = hosts,
                                             .bytes = t->n / least,
                                             .alpha_us = t->alpha,
                                             .beta_us = t->beta,
                                             .gamma_us = t->gamma});
    return 2 * baton__log2_ceil(most) * t->of.inside_alpha_us +
           2 * inside * t->of.inside_beta_us + baton__reduction(t, inside) +
           baton__cost_of(&baton__allreduce_circulant_algorithm, &between);
}

/* The formula is exact if all links are alike, or if all hosts have equally
   many ranks. */
static bool allreduce_hierarchical_is_exact(const baton__terms_t *t)
{
    return baton__exact_flat(t) ||
           (!t->of.scattered && t->of.ranks % t->of.hosts == 0);
}

const baton_algorithm_t baton__allreduce_hierarchical_algorithm = {
    .collective = BATON_COLLECTIVE_ALLREDUCE,
    .name = "hierarchical",
    .build.allreduce = baton_add_allreduce_hierarchical,
    .phases = {&baton__reduce_scatter_circulant_algorithm,
               &baton__allgather_bruck_algorithm},
    .cost = allreduce_hierarchical_cost,
    .exact = allreduce_hierarchical_is_exact,
};
