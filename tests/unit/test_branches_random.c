/* Many epochs in which branches are taken at random: what was sent in an epoch
   is received in that one, whatever other ranks leave out. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/random.h"

#include <string.h>

enum { RANKS = 4, EPOCHS = 10000, WORDS = 48 };

static uint64_t seed;

/* ---- what is decided --------------------------------------------------- */

/* What happens between two ranks in an epoch; both know. */
static uint64_t draw(uint64_t epoch, int from, int to, uint64_t question)
{
    support_random_t random = support_random(
        seed, epoch * 64 + (uint64_t)(from * RANKS + to) * 4 + question);
    return support_random_next(&random);
}

/* Whether they exchange; whether one of them sends the other a word besides. */
static bool exchanges(uint64_t epoch, int one, int other)
{
    return draw(epoch, one < other ? one : other, one < other ? other : one,
                0) %
               2 ==
           0;
}

static bool adds_word(uint64_t epoch, int from, int to)
{
    return draw(epoch, from, to, 1) % 3 == 0;
}

static uint64_t value_of(uint64_t epoch, int from, int to, uint64_t question)
{
    return draw(epoch, from, to, 2) + question;
}

/* ---- the schedule ------------------------------------------------------ */

/* One rank's side of what it has with another:

       if_exchange --> send                 (optional)
            |
            +--------> recv --> copy --+    (optional)
                                       +--> any: done
       if_not ------------------------ +

       if_word --> send a word              (optional)
       recv a word --> copy                 (optional: in time, or not)

   An exchange is waited for, a word is not. */
typedef struct side {
    int rank, peer;
    uint64_t sent[WORDS], got[WORDS];
    uint64_t word, got_word;
} side_t;

static baton_status_t if_exchange(void *arg, baton_call_t *call)
{
    side_t *side = arg;
    uint64_t epoch = baton_call_epoch(call);
    if (!exchanges(epoch, side->rank, side->peer)) {
        return BATON_SKIP;
    }
    for (int i = 0; i < WORDS; i++) {
        side->sent[i] = value_of(epoch, side->rank, side->peer, (uint64_t)i);
    }
    return BATON_OK;
}

static baton_status_t if_not(void *arg, baton_call_t *call)
{
    const side_t *side = arg;
    return exchanges(baton_call_epoch(call), side->rank, side->peer)
               ? BATON_SKIP
               : BATON_OK;
}

static baton_status_t if_word(void *arg, baton_call_t *call)
{
    side_t *side = arg;
    uint64_t epoch = baton_call_epoch(call);
    side->word = value_of(epoch, side->rank, side->peer, WORDS);
    return adds_word(epoch, side->rank, side->peer) ? BATON_OK : BATON_SKIP;
}

static void build_optional(baton_schedule_t *s, baton_node_t before,
                           baton_node_t node)
{
    baton_set_optional(s, node);
    baton_before(s, before, node);
}

static void build_side(baton_schedule_t *s, side_t *side)
{
    baton_view_t in = support_scratch(s, sizeof side->got);
    baton_node_t yes = baton_add_call(s, if_exchange, side);
    baton_node_t no = baton_add_call(s, if_not, side);
    baton_node_t done = baton_add_nop(s);
    baton_node_t recv = baton_add_recv(s, side->peer, in);
    baton_node_t copy =
        baton_add_copy(s, support_view(s, side->got, sizeof side->got), in);
    build_optional(
        s, yes,
        baton_add_send(s, side->peer,
                       support_view(s, side->sent, sizeof side->sent)));
    build_optional(s, yes, recv);
    build_optional(s, recv, copy);
    baton_before(s, copy, done);
    baton_before(s, no, done);
    baton_set_need(s, done, BATON_NEED_ANY);

    in = support_scratch(s, 8);
    baton_node_t word = baton_add_recv(s, side->peer, in);
    baton_set_optional(s, word);
    build_optional(s, word,
                   baton_add_copy(s, support_view(s, &side->got_word, 8), in));
    build_optional(
        s, baton_add_call(s, if_word, side),
        baton_add_send(s, side->peer, support_view(s, &side->word, 8)));
}

/* ---- the epochs -------------------------------------------------------- */

static bool check_side(support_worker_t *worker, const side_t *side,
                       uint64_t epoch)
{
    bool right = true;
    for (int i = 0; i < WORDS; i++) {
        uint64_t wanted =
            exchanges(epoch, side->rank, side->peer)
                ? value_of(epoch, side->peer, side->rank, (uint64_t)i)
                : 0;
        right = right && side->got[i] == wanted;
    }
    uint64_t word = value_of(epoch, side->peer, side->rank, WORDS);
    return support_worker_check(worker, right,
                                "epoch %llu: wrong exchange with rank %d",
                                (unsigned long long)epoch, side->peer) &&
           support_worker_check(
               worker,
               side->got_word == 0 ||
                   (side->got_word == word &&
                    adds_word(epoch, side->peer, side->rank)),
               "epoch %llu: got a word of another epoch from rank %d",
               (unsigned long long)epoch, side->peer);
}

static void run_worker(support_worker_t *worker)
{
    const uint64_t epochs = *(const uint64_t *)worker->arg;
    side_t sides[RANKS];
    baton_schedule_t *s;
    memset(sides, 0, sizeof sides);
    (void)support_worker_ok(
        worker, baton_schedule_create(worker->group, "branches", &s));
    for (int peer = 0; peer < RANKS; peer++) {
        sides[peer].rank = worker->rank;
        sides[peer].peer = peer;
        if (peer != worker->rank) {
            build_side(s, &sides[peer]);
        }
    }
    bool going = support_worker_ok(worker, baton_schedule_commit(s));
    for (uint64_t epoch = 1; epoch <= epochs && going; epoch++) {
        for (int peer = 0; peer < RANKS; peer++) {
            memset(sides[peer].got, 0, sizeof sides[peer].got);
            sides[peer].got_word = 0;
        }
        going = support_worker_run(worker, s);
        for (int peer = 0; peer < RANKS && going; peer++) {
            going =
                peer == worker->rank || check_side(worker, &sides[peer], epoch);
        }
    }
    (void)support_worker_ok(worker, baton_schedule_destroy(s));
}

static void run(int variant, uint64_t epochs)
{
    seed = support_seed();
    support_cluster_t *cluster =
        support_cluster_open(RANKS, &support_variants[variant]);
    support_cluster_run(cluster, run_worker, &epochs);
    support_cluster_close(cluster);
}

static void test_branches_at_random_with_threads(void **state)
{
    (void)state;
    run(2, EPOCHS);
}

static void test_branches_at_random_on_one_engine(void **state)
{
    (void)state;
    run(0, EPOCHS / 5);
    run(1, EPOCHS / 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_branches_at_random_with_threads),
        cmocka_unit_test(test_branches_at_random_on_one_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
