/* The exchange between SparDL's teams: the ranks of one position sum their
   selections from their block. L is the quota of the block (spardl.c), and
   top-L the L largest entries.

   R-SAG, d a power of two: recursive doubling, top-L after each addition.

       own --> pack --> send (team g XOR 1)
                 |
       recv -----+--> merge --> pack --> send (team g XOR 2)
                                  |
       recv ----------------------+--> merge --> sum

   After step t, 2^(t+1) teams have the same sum, and have dropped the same
   entries. Each of these teams keeps its share of them, 2^-(t+1), in the
   residual.

   B-SAG, any d: each team gathers the top-h of all teams (gather.c), and sums
   them in the order of teams. If the sum has more than L entries, the team
   keeps the top-L. The entries that it drops are in no rank's result, so they
   come back with the residual as a whole. h is adjusted by the number of
   entries of the sum (algorithm 2 of the paper).

   With one team there is no exchange, and `own` takes the place of `sum`. */
#include "coll/sparse/algorithms/spardl.h"

#include <string.h>

baton__block_t baton__spardl_block(const spardl_t *spardl, int block)
{
    return baton__block_of(spardl->sparse->count, (size_t)spardl->members,
                           (size_t)block);
}

size_t baton__spardl_quota_of(const spardl_t *spardl, size_t k, int block)
{
    size_t members = (size_t)spardl->members;
    size_t quota = k / members + ((size_t)block < k % members ? 1 : 0);
    size_t count = baton__spardl_block(spardl, block).count;
    quota = quota > 0 ? quota : 1;
    return quota < count ? quota : count;
}

static size_t quota(const spardl_t *spardl)
{
    return baton__spardl_quota(spardl, spardl->position);
}

static bool gathers(const spardl_t *spardl)
{
    return spardl->teams > 1 &&
           spardl->sparse->options.exchange == BATON_EXCHANGE_BSAG;
}

/* ---- h ----------------------------------------------------------------- */

static int64_t lowest_h(const spardl_t *spardl, int64_t whole)
{
    int64_t share = whole / spardl->teams;
    return share == 0 && whole > 0 ? 1 : share;
}

static void begin_teams(spardl_t *spardl)
{
    baton_sparse_t *sparse = spardl->sparse;
    baton__learned_t *next = &sparse->next;
    if (!gathers(spardl) || next->k == sparse->k) {
        return;
    }
    int64_t whole = (int64_t)quota(spardl);
    next->k = sparse->k;
    next->h = lowest_h(spardl, whole);
    next->h_step = (whole - next->h) / 100;
    next->h_step = next->h_step > 0 ? next->h_step : 1;
    next->h_step = whole == next->h ? 0 : next->h_step;
    next->h_flag = 0;
}

baton_status_t baton__spardl_begin(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton__sparse_begin(spardl->sparse);
    begin_teams(spardl);
    return BATON_OK;
}

static int64_t limited(int64_t value, int64_t low, int64_t high)
{
    if (value < low) {
        return low;
    }
    return value > high ? high : value;
}

static void adjust_h(spardl_t *spardl, size_t union_count)
{
    baton__learned_t *next = &spardl->sparse->next;
    int64_t whole = (int64_t)quota(spardl);
    int64_t low = lowest_h(spardl, whole);
    bool too_many = (int64_t)union_count > whole;
    if (next->h_step == 0) {
        return;
    }
    if (too_many != (next->h_step > 0)) {
        next->h_step *= next->h_flag != 0 ? 2 : 1;
        next->h_flag = next->h_flag == 0;
    } else {
        int64_t half = -next->h_step / 2, least = next->h_step > 0 ? -1 : 1;
        next->h_step = half != 0 ? half : least;
        next->h_flag = 0;
    }
    next->h_step = limited(next->h_step, low - whole, whole - low);
    next->h = limited(next->h + next->h_step, low, whole);
}

size_t baton__spardl_share(const spardl_t *spardl)
{
    return gathers(spardl) ? (size_t)spardl->sparse->next.h : quota(spardl);
}

/* ---- R-SAG ------------------------------------------------------------- */

static baton_status_t spardl_teams_pack(void *arg, baton_call_t *call)
{
    spardl_exchange_t *exchange = arg;
    spardl_t *spardl = exchange->spardl;
    const spardl_list_t *list =
        exchange->step == 0 ? &spardl->own : &spardl->sum;
    return baton__message_put(&exchange->send, call,
                              (baton_entries_t){list->data, list->count});
}

static baton_entries_t entries_of(const baton__message_t *message)
{
    return (baton_entries_t){message->data, baton__message_entries(message)};
}

/* Adds the sent and the received list. The top-L of this sum becomes the new
   `sum`, and the other entries go to `dropped`. Both ranks add the entries of
   the lower team first, because the sum of two NaNs has the bits of the first
   one. */
static baton_status_t spardl_teams_merge(void *arg, baton_call_t *call)
{
    spardl_exchange_t *exchange = arg;
    spardl_t *spardl = exchange->spardl;
    baton_sparse_t *sparse = spardl->sparse;
    baton__message_take(&exchange->recv, call);
    sparse->completion.team_sums++;
    if (!sparse->payload) {
        spardl->sum.count = quota(spardl);
        return BATON_OK;
    }
    int own = (spardl->team >> exchange->step) & 1;
    baton_entries_t lists[2];
    lists[own] = entries_of(&exchange->send);
    lists[1 - own] = entries_of(&exchange->recv);
    spardl_list_t both = spardl->other;
    both.count = baton_entries_sum(sparse->dtype, lists, 2, both.data);
    both.count = baton_entries_topk(sparse->dtype, both.data, both.count,
                                    quota(spardl), exchange->dropped.data,
                                    &exchange->dropped.count, spardl->scratch);
    spardl->other = spardl->sum;
    spardl->sum = both;
    return BATON_OK;
}

static baton_node_t add_exchange(spardl_t *spardl, int step, baton_node_t ready)
{
    baton_sparse_t *sparse = spardl->sparse;
    spardl_exchange_t *exchange = &spardl->exchanges[step];
    int partner =
        (spardl->team ^ (1 << step)) * spardl->members + spardl->position;
    size_t entries = baton__spardl_most(spardl, spardl->position);
    *exchange = (spardl_exchange_t){.spardl = spardl, .step = step};
    exchange->dropped_capacity = 2 * entries;
    exchange->dropped.data = baton__sparse_alloc_pinned(
        sparse, exchange->dropped_capacity, sparse->entry_bytes);
    baton__message_send(&exchange->send, sparse, partner,
                        entries * sparse->entry_bytes);
    baton__message_recv(&exchange->recv, sparse, partner,
                        entries * sparse->entry_bytes);
    baton_node_t packed =
        baton__sparse_call_after(sparse, ready, spardl_teams_pack, exchange);
    baton_node_t merged =
        baton__sparse_call_after(sparse, packed, spardl_teams_merge, exchange);
    baton_before(sparse->schedule, packed, exchange->send.node);
    baton_before(sparse->schedule, exchange->recv.node, merged);
    return merged;
}

double baton__spardl_residual_share(const spardl_exchange_t *exchange)
{
    return 1.0 / (double)(UINT64_C(2) << exchange->step);
}

size_t baton__spardl_within(const spardl_t *spardl, int block,
                            const uint32_t *indices, size_t count)
{
    baton__block_t of = baton__spardl_block(spardl, block);
    return baton__count_below(indices, count, of.first + of.count);
}

/* Adds to `work` a share of those dropped entries that are at `indices`, the
   result's indices in this rank's block. */
static void spardl_teams_add_dropped(spardl_t *spardl,
                                     const spardl_exchange_t *exchange,
                                     const uint32_t *indices, size_t count,
                                     double share)
{
    baton_sparse_t *sparse = spardl->sparse;
    const spardl_list_t *dropped = &exchange->dropped;
    size_t common =
        baton_entries_common(sparse->dtype, dropped->data, dropped->count,
                             indices, count, false, spardl->common);
    baton_entries_add(sparse->dtype, spardl->common, common, share,
                      sparse->work);
}

void baton__spardl_keep_dropped(spardl_t *spardl, const uint32_t *indices,
                                size_t count)
{
    for (int i = 0; i < spardl->sparse->completion.team_sums; i++) {
        const spardl_exchange_t *exchange = &spardl->exchanges[i];
        spardl_teams_add_dropped(spardl, exchange, indices, count,
                                 baton__spardl_residual_share(exchange));
    }
}

/* The function add_missing_shares of R-SAG (core.h): adds to `work` the shares
   of ranks whose step failed before they dropped the entries. Of the ranks that
   have dropped these entries, the first one adds all these shares. The share of
   a lost rank is lost with its residual. */
static void add_missing_shares(void *state, size_t count)
{
    spardl_t *spardl = state;
    const baton_sparse_t *sparse = spardl->sparse;
    const uint32_t *indices = sparse->results.next->indices;
    for (int i = 0; i < spardl->position; i++) {
        size_t before = baton__spardl_within(spardl, i, indices, count);
        indices += before;
        count -= before;
    }
    count = baton__spardl_within(spardl, spardl->position, indices, count);
    for (int i = 0; i < spardl->exchange_count; i++) {
        int teams = 2 << i, begin = spardl->team & -teams, first = -1;
        int missing = 0;
        for (int team = begin; team < begin + teams; team++) {
            int rank = team * spardl->members + spardl->position;
            bool lacks = baton__sparse_lacks_addition(sparse, rank, i);
            bool made = !lacks && !baton__sparse_is_lost(sparse, rank);
            first = made && first < 0 ? team : first;
            missing += lacks;
        }
        if (missing > 0 && first == spardl->team) {
            const spardl_exchange_t *exchange = &spardl->exchanges[i];
            spardl_teams_add_dropped(
                spardl, exchange, indices, count,
                missing * baton__spardl_residual_share(exchange));
        }
    }
}

static baton_node_t add_rsag(spardl_t *spardl, baton_node_t ready)
{
    int count = baton__log2_ceil(spardl->teams);
    spardl->exchanges = baton__sparse_alloc(spardl->sparse, (size_t)count,
                                            sizeof *spardl->exchanges);
    spardl->exchange_count = spardl->exchanges != NULL ? count : 0;
    for (int step = 0; step < spardl->exchange_count; step++) {
        ready = add_exchange(spardl, step, ready);
    }
    spardl->sparse->rounds += (uint32_t)spardl->exchange_count;
    spardl->sparse->completion.add_missing_shares = add_missing_shares;
    return ready;
}

/* ---- B-SAG ------------------------------------------------------------- */

/* Returns the bytes of a team's set. All teams have the same h for a block, so
   all sets have one length, and messages need not state it. */
static size_t set_bytes(void *arg, int team)
{
    const spardl_t *spardl = arg;
    return (size_t)spardl->sparse->next.h * spardl->sparse->entry_bytes;
}

static baton_status_t begin_sets(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_sparse_t *sparse = spardl->sparse;
    size_t all = set_bytes(spardl, spardl->team);
    char *to = baton__gather_begin(spardl->sets, call);
    if (to != NULL && all > 0) {
        memcpy(to, spardl->own.data, spardl->own.count * sparse->entry_bytes);
        baton__entries_pad(sparse, to, spardl->own.count,
                           (size_t)sparse->next.h);
    }
    return baton__gather_end(spardl->sets, call, all);
}

static baton_status_t sum_sets(void *arg, baton_call_t *call)
{
    spardl_t *spardl = arg;
    baton_sparse_t *sparse = spardl->sparse;
    size_t dropped;
    if (!sparse->payload) {
        spardl->sum.count = quota(spardl);
        return BATON_OK;
    }
    for (int team = 0; team < spardl->teams; team++) {
        size_t bytes;
        const char *set = baton__gather_part(spardl->sets, team, &bytes);
        spardl->lists[team] =
            baton__entries_unpadded(sparse, set, (size_t)sparse->next.h);
    }
    spardl_list_t *sum = &spardl->sum;
    sum->count = baton_entries_sum(sparse->dtype, spardl->lists,
                                   (size_t)spardl->teams, sum->data);
    adjust_h(spardl, sum->count);
    if (sum->count > quota(spardl)) {
        sum->count =
            baton_entries_topk(sparse->dtype, sum->data, sum->count,
                               quota(spardl), NULL, &dropped, spardl->scratch);
    }
    return BATON_OK;
}

static baton_node_t add_bsag(spardl_t *spardl, baton_node_t ready)
{
    baton_sparse_t *sparse = spardl->sparse;
    const baton__gather_plan_t plan = {
        .sparse = sparse,
        .arg = spardl,
        .size = spardl->teams,
        .index = spardl->team,
        .base = spardl->position,
        .stride = spardl->members,
        .most_bytes =
            baton__spardl_most(spardl, spardl->position) * sparse->entry_bytes,
        .nominal = set_bytes,
    };
    spardl->lists = baton__sparse_alloc(sparse, (size_t)spardl->teams,
                                        sizeof *spardl->lists);
    return baton__gather_build(
        &plan, baton__sparse_call_after(sparse, ready, begin_sets, spardl),
        sum_sets, &spardl->sets);
}

/* ---- both -------------------------------------------------------------- */

/* Returns the most entries that a sum of teams' lists can have: of two lists
   with R-SAG, and of the lists of all teams with B-SAG. */
static size_t union_capacity(const spardl_t *spardl)
{
    size_t lists = gathers(spardl) ? (size_t)spardl->teams : 2;
    return lists * baton__spardl_most(spardl, spardl->position);
}

size_t baton__spardl_teams_scratch(const spardl_t *spardl)
{
    size_t entries = union_capacity(spardl);
    return spardl->teams > 1 ? baton_entries_scratch_bytes(entries, entries)
                             : 0;
}

baton_node_t baton__spardl_add_teams(spardl_t *spardl, baton_node_t ready)
{
    baton_sparse_t *sparse = spardl->sparse;
    size_t entries = union_capacity(spardl);
    if (spardl->teams == 1) {
        return ready;
    }
    spardl->sum.data =
        baton__sparse_alloc_data(sparse, entries, sparse->entry_bytes);
    if (gathers(spardl)) {
        return add_bsag(spardl, ready);
    }
    spardl->other.data =
        baton__sparse_alloc_data(sparse, entries, sparse->entry_bytes);
    return add_rsag(spardl, ready);
}
