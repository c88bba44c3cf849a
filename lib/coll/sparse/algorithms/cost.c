/* The cost of a step of each sparse all-reduce, and the choice of the cheapest.

   The model is that of kit/cost.h: alpha for a message and beta for a byte.
   Blocks are full, as in a cost-only simulation: every selection has as many
   entries as it may have. Messages and bytes are those of blocks of one length.
   Three costs also depend on the data, and are those of the best case. TopkDSA
   and Ok-Topk: all ranks select the same indices, so no sum is longer than its
   addends. B-SAG: h has its initial value. tests/sim/test_sparse_costs.c
   compares all costs with the simulator.

   If the costs of links are this machine's, the choice also counts the work of
   its processors, by measured constants, for all ranks that share a processor.
   On one host these ranks also share the copies of messages, and on several
   hosts ranks share a port. Sums are then those of the worst case: no two ranks
   select the same index. */
#include "coll/sparse/algorithms/algorithms.h"

#include "base/error.h"
#include "base/options.h"
#include "coll/kit/cost.h"
#include "coll/kit/pattern.h"

#include <baton/partial.h>
#include <math.h>

/* The options and the ranks for which costs are computed, and values derived
   from these. */
typedef struct cost_case {
    const baton_sparse_options_t *options;
    double ranks, rounds; /* ranks: P, their number. rounds: ceil(log2 P). */
    double n, k;
    double element, entry; /* bytes of an element, and of an entry */
    double alpha_us, beta_us;
    const baton__sparse_place_t *place;
} cost_case_t;

static cost_case_t case_of(const baton_sparse_options_t *options,
                           const baton__sparse_place_t *place)
{
    return (cost_case_t){
        .options = options,
        .place = place,
        .ranks = place->ranks,
        .rounds = baton__log2_ceil(place->ranks),
        .n = (double)options->count,
        .k = (double)options->k,
        .element = (double)baton_dtype_size(options->dtype),
        .entry = (double)baton_entry_bytes(options->dtype),
        .alpha_us = options->link.alpha_us,
        .beta_us = options->link.beta_ns / 1e3,
    };
}

/* ---- closed forms ------------------------------------------------------ */

/* Sets the cost of rounds in which every rank sends a message and no message
   waits for a port. So the longest path consists of the messages of one
   rank. */
static void set_rounds(const cost_case_t *of, double rounds, double bytes,
                       baton_sparse_cost_t *out)
{
    out->rounds = rounds;
    out->messages = rounds;
    out->bytes = bytes;
    out->us = rounds * of->alpha_us + bytes * of->beta_us;
}

/* Sets the cost of messages of `bytes` bytes that go up a tree and down again:
   rank 0 receives in all rounds, and then sends in all rounds. */
static void set_tree(const cost_case_t *of, double bytes,
                     baton_sparse_cost_t *out)
{
    set_rounds(of, 2 * of->rounds, 2 * of->rounds * bytes, out);
    out->messages = of->rounds;
    out->bytes = of->rounds * bytes;
}

/* If k is no multiple of the number of blocks, the first blocks have one entry
   more than the others, and the longest path leads through these blocks. The
   next two functions return how many entries this path has in addition to k /
   blocks for each block. */

/* Returns the additional entries for a Bruck all-gather, or for a
   reduce-scatter by bags. On the longest path of these two, a message of
   several blocks includes all of the longer blocks, or consists of longer
   blocks only. */
static double gather_longer(double blocks, double k)
{
    double longer = fmod(k, blocks), sum = 0;
    for (int round = 0; round < baton__log2_ceil((int)blocks); round++) {
        double reach = ldexp(1, round);
        sum += fmin(fmin(reach, blocks - reach), longer);
    }
    return sum - (blocks - 1) * longer / blocks;
}

/* Returns the additional entries for direct sends to the owners of blocks, if
   all ranks send at the same times. In truth no rank waits for the others
   between its sends: a rank that is ahead may occupy a port before its turn,
   and later messages to that port have to wait. There is no closed form of
   this. */
static double direct_longest(double blocks, double k)
{
    double block = k / blocks;
    return (blocks - 1) * (ceil(block) - block);
}

/* Returns the initial h of B-SAG: the number of entries that each team sends
   from a block; see spardl_teams.c. */
static double first_share(double quota, int teams)
{
    double share = floor(floor(quota) / teams);
    return share > 1 ? share : 1;
}

static void cost_spardl(const cost_case_t *of, baton_sparse_cost_t *out)
{
    double teams = out->teams, members = of->ranks / teams;
    double rounds = baton__log2_ceil((int)members);
    double exchanges = baton__log2_ceil(out->teams);
    double quota = of->k / members > 1 ? of->k / members : 1;
    double entries = 2 * (members - 1) * quota;
    entries += out->exchange == BATON_EXCHANGE_RSAG
                   ? exchanges * quota
                   : (teams - 1) * first_share(quota, out->teams);
    set_rounds(of, 2 * rounds + exchanges, entries * of->entry, out);
    if (of->k > members) {
        double longer = 2 * gather_longer(members, of->k);
        double longest = ceil(of->k / members);
        longer += out->exchange == BATON_EXCHANGE_RSAG
                      ? exchanges * (longest - quota)
                      : (teams - 1) * (first_share(longest, out->teams) -
                                       first_share(quota, out->teams));
        out->us += longer * of->entry * of->beta_us;
    }
}

static void cost_topka(const cost_case_t *of, baton_sparse_cost_t *out)
{
    set_rounds(of, of->rounds, (of->ranks - 1) * of->k * of->entry, out);
}

static void cost_redsync(const cost_case_t *of, baton_sparse_cost_t *out)
{
    double word = sizeof(uint32_t);
    double values = of->options->quantise ? 1 : of->k;
    double bytes = word + of->k * word + values * of->element;
    set_rounds(of, of->rounds, (of->ranks - 1) * bytes, out);
}

/* Sets the cost of a step of TopkDSA: direct sends, an all-gather of the sums'
   lengths, and an all-gather of the sums, as entries or dense. */
static void cost_topkdsa(const cost_case_t *of, baton_sparse_cost_t *out)
{
    double others = of->ranks - 1;
    double sent = of->k / of->ranks * of->entry;
    bool dense = 3 * of->k >= of->n;
    double sum = dense ? of->n / of->ranks * of->element : sent;
    set_rounds(of, others + 2 * of->rounds,
               others * (sent + sum + sizeof(uint32_t)), out);
    double path = direct_longest(of->ranks, of->k);
    path += dense ? 0 : gather_longer(of->ranks, of->k);
    out->us += path * of->entry * of->beta_us;
}

/* Sets the cost of a step of Ok-Topk. Leaves out the messages with the bounds
   of regions, which only one step in 64 has. */
static void cost_oktopk(const cost_case_t *of, baton_sparse_cost_t *out)
{
    double others = of->ranks - 1;
    set_rounds(of, others + 2 * of->rounds,
               2 * others * of->k / of->ranks * of->entry, out);
    out->us +=
        (direct_longest(of->ranks, of->k) + gather_longer(of->ranks, of->k)) *
        of->entry * of->beta_us;
}

static void cost_gtopk(const cost_case_t *of, baton_sparse_cost_t *out)
{
    set_tree(of, of->k * of->entry, out);
}

static void cost_dense(const cost_case_t *of, baton_sparse_cost_t *out)
{
    double bytes = of->n * of->element, others = of->ranks - 1;
    if (bytes <= BATON_PARTIAL_TREE_BYTES) {
        set_tree(of, bytes, out);
    } else {
        set_rounds(of, 2 * of->rounds, 2 * others / of->ranks * bytes, out);
    }
}

static void cost_of(const cost_case_t *of, baton_sparse_cost_t *out)
{
    static void (*const table[BATON_SPARSE_COUNT])(const cost_case_t *,
                                                   baton_sparse_cost_t *) = {
        [BATON_SPARSE_SPARDL] = cost_spardl,
        [BATON_SPARSE_TOPKA] = cost_topka,
        [BATON_SPARSE_TOPKDSA] = cost_topkdsa,
        [BATON_SPARSE_GTOPK] = cost_gtopk,
        [BATON_SPARSE_OKTOPK] = cost_oktopk,
        [BATON_SPARSE_REDSYNC] = cost_redsync,
        [BATON_SPARSE_DENSE] = cost_dense,
    };
    table[out->algorithm](of, out);
}

/* ---- work -------------------------------------------------------------- */

/* Processor times in ns, measured for f32 in vectors that caches do not hold,
   on an Intel Xeon with AVX-512 (docs/sparse.md). `byte` is the time for a byte
   of a vector, in the pass that accumulates and selects. Each of the k entries
   takes the time `entry` once, `other` for each other rank, and `round` for
   each round of messages. `block` is the time for each block that is selected
   from. */
static const struct {
    double byte, entry, other, round, block;
} works[BATON_SPARSE_COUNT] = {
    [BATON_SPARSE_SPARDL] = {.byte = 0.19,
                             .entry = 41,
                             .other = 1.4,
                             .block = 14e3},
    [BATON_SPARSE_TOPKA] = {.byte = 0.19, .entry = 22, .other = 10},
    [BATON_SPARSE_TOPKDSA] = {.byte = 0.19, .entry = 25, .other = 7.7},
    [BATON_SPARSE_GTOPK] = {.byte = 0.19, .entry = 22, .round = 36},
    [BATON_SPARSE_OKTOPK] = {.byte = 0.32, .entry = 40, .other = 7.7},
    [BATON_SPARSE_REDSYNC] = {.byte = 0.19, .entry = 22, .other = 10},
};
/* COLD_NS is the time that an all-reduce takes, in addition to its estimate,
   for a byte that is in no cache. WARM_BYTES is the size of a processor's own
   cache. */
#define COLD_NS    0.22
#define WARM_BYTES (2 << 20)

static double work_us(const cost_case_t *of, const baton_sparse_cost_t *out)
{
    const double others = of->ranks - 1, blocks = of->ranks / out->teams;
    double entry = works[out->algorithm].entry +
                   others * works[out->algorithm].other +
                   of->rounds * works[out->algorithm].round;
    return (of->n * of->element * works[out->algorithm].byte + of->k * entry +
            blocks * works[out->algorithm].block) /
           1e3;
}

/* Returns the number of ranks of a host that share a processor. */
static double share_of(const baton__sparse_place_t *place)
{
    double each = ceil((double)place->ranks / place->hosts);
    return place->processors > 0 ? fmax(each / place->processors, 1) : 1;
}

/* Returns the factor by which messages take longer because ranks share a host.
   Between hosts that is the number of ranks whose messages share a network
   port. On one host it is the number of ranks whose messages one processor
   copies. */
static double sharers_of(const baton__sparse_place_t *place)
{
    double ranks = place->ranks, each = ceil(ranks / place->hosts);
    return place->hosts > 1 ? each * (ranks - each) / (ranks - 1)
                            : share_of(place);
}

/* Returns the time of the dense all-reduce if several ranks share a host, and
   with it the host's network port. Returns 0 if no algorithm can be chosen.
   baton_choose assumes a port for each rank, so its estimate is raised to the
   time that the port needs for the bytes of all ranks of the host. */
static double shared_dense_us(const cost_case_t *of, double sharers)
{
    const double bytes = of->n * of->element, hosts = of->place->hosts;
    const double port_us = 2 * (hosts - 1) / hosts * bytes * of->beta_us;
    const double cold_us = fmax(bytes - WARM_BYTES, 0) * COLD_NS / 1e3;
    baton_choice_case_t dense = BATON_CHOICE_CASE;
    baton_choice_t chosen;
    dense.collective = BATON_COLLECTIVE_ALLREDUCE;
    dense.ranks = of->place->ranks;
    dense.hosts = of->place->hosts;
    dense.processors = of->place->processors;
    dense.bytes = (size_t)bytes;
    return baton_choose(&dense, &chosen) == BATON_OK
               ? fmax(chosen.cost_us, port_us) + cold_us * sharers
               : 0;
}

/* Returns the value that the choice minimises. If the caller has given the
   costs of links, this value is the closed form's time alone. */
static double weight_of(const cost_case_t *of, const baton_sparse_cost_t *out)
{
    const baton__sparse_place_t *place = of->place;
    double sharers = sharers_of(place);
    double share = share_of(place);
    double more = out->bytes * (sharers - 1);
    if (!place->measured) {
        return out->us;
    }
    if (out->algorithm == BATON_SPARSE_DENSE) {
        double us =
            place->hosts < place->ranks ? shared_dense_us(of, share) : 0;
        return us > 0 ? us : out->us;
    }
    if (out->algorithm == BATON_SPARSE_TOPKDSA ||
        out->algorithm == BATON_SPARSE_OKTOPK) {
        double most = fmin(of->k * of->entry, of->n * of->element / of->ranks);
        more += ((of->ranks - 1) * most - out->bytes / 2) * sharers;
    }
    return out->us + more * of->beta_us + work_us(of, out) * share;
}

/* ---- the choice -------------------------------------------------------- */

static baton_exchange_t exchange_of(const baton_sparse_options_t *options,
                                    int teams)
{
    if (options->exchange != BATON_EXCHANGE_AUTO) {
        return options->exchange;
    }
    return baton__is_power_of_two(teams) ? BATON_EXCHANGE_RSAG
                                         : BATON_EXCHANGE_BSAG;
}

static bool can_have_teams(const baton_sparse_options_t *options,
                           baton_sparse_algorithm_t algorithm, int ranks,
                           int teams)
{
    if (options->teams != BATON_SPARSE_TEAMS_AUTO) {
        return teams == options->teams;
    }
    if (algorithm != BATON_SPARSE_SPARDL) {
        return teams == 1;
    }
    return ranks % teams == 0 && (options->exchange != BATON_EXCHANGE_RSAG ||
                                  baton__is_power_of_two(teams));
}

typedef struct best {
    baton_sparse_cost_t cost;
    double weight;
} best_t;

/* Replaces *best if this algorithm costs less. So if several algorithms have
   the same cost, the first is chosen. */
static void sparse_cost_weigh(const cost_case_t *of,
                              baton_sparse_algorithm_t algorithm, int teams,
                              best_t *best)
{
    baton_sparse_cost_t cost = {.algorithm = algorithm,
                                .teams = teams,
                                .exchange = exchange_of(of->options, teams)};
    cost_of(of, &cost);
    double weight = weight_of(of, &cost);
    if (best->cost.algorithm == BATON_SPARSE_AUTO || weight < best->weight) {
        *best = (best_t){cost, weight};
    }
}

static void sparse_cost_choose(const baton_sparse_options_t *options,
                               const baton__sparse_place_t *place,
                               baton_sparse_cost_t *out)
{
    cost_case_t of = case_of(options, place);
    best_t best = {.cost = {.algorithm = BATON_SPARSE_AUTO}};
    bool any = options->algorithm == BATON_SPARSE_AUTO;
    for (int i = BATON_SPARSE_SPARDL; i < BATON_SPARSE_COUNT; i++) {
        baton_sparse_algorithm_t algorithm = (baton_sparse_algorithm_t)i;
        bool possible = options->memory == BATON_MEMORY_HOST ||
                        baton__sparse_is_for_devices(algorithm);
        if (any ? !possible : algorithm != options->algorithm) {
            continue;
        }
        for (int teams = 1; teams <= place->ranks; teams++) {
            if (can_have_teams(options, algorithm, place->ranks, teams)) {
                sparse_cost_weigh(&of, algorithm, teams, &best);
            }
        }
    }
    *out = best.cost;
}

void baton__sparse_take_choice(baton_sparse_options_t *o,
                               const baton__sparse_place_t *place)
{
    baton_sparse_cost_t cost;
    sparse_cost_choose(o, place, &cost);
    o->algorithm = cost.algorithm;
    o->teams = cost.teams;
    o->exchange = cost.exchange;
}

baton_status_t baton_sparse_cost(const baton_sparse_options_t *passed,
                                 int ranks, baton_sparse_cost_t *out)
{
    baton_sparse_options_t options, resolved;
    if (passed == NULL || out == NULL) {
        return baton__error(BATON_ERR_INVALID, "%s: %s is NULL", __func__,
                            passed == NULL ? "options" : "out");
    }
    baton_status_t status =
        baton__options_read(&options, sizeof options, passed, "sparse options",
                            "BATON_SPARSE_OPTIONS");
    if (status != BATON_OK) {
        return status;
    }
    if (ranks < 1) {
        return baton__error(
            BATON_ERR_INVALID,
            "baton_sparse_cost: ranks is %d; allowed: 1 or more", ranks);
    }
    baton__wrong_t wrong = baton__sparse_resolve(&options, ranks, 1, &resolved);
    if (wrong.status != BATON_OK) {
        return baton__error(wrong.status, "baton_sparse_cost: %s", wrong.text);
    }
    const baton__sparse_place_t place = {.ranks = ranks,
                                         .hosts = 1,
                                         .measured =
                                             !baton__sparse_has_link(&options)};
    sparse_cost_choose(&resolved, &place, out);
    if (out->algorithm != BATON_SPARSE_SPARDL) {
        /* Only SPARDL has an exchange between teams. */
        out->exchange = BATON_EXCHANGE_AUTO;
    }
    return BATON_OK;
}
