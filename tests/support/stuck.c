#include "support/stuck.h"
#include "support/sim.h"

#include <baton/coll.h>

baton_sim_t *stuck_open(int ranks, size_t sync)
{
    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = ranks;
    options.link.alpha_us = 1.0;
    options.sync_bytes = sync;
    return support_sim_open(&options);
}

void stuck_says(baton_status_t actual, baton_status_t expected,
                const char *text)
{
    support_expect(actual, expected);
    assert_string_equal(baton_error_message(), text);
}

static baton_view_t place(baton_schedule_t *schedule)
{
    return support_scratch(schedule, STUCK_BYTES);
}

baton_node_t stuck_send(baton_schedule_t *schedule, int peer)
{
    return baton_add_send(schedule, peer, place(schedule));
}

baton_node_t stuck_recv(baton_schedule_t *schedule, int peer)
{
    return baton_add_recv(schedule, peer, place(schedule));
}

void stuck_head_to_head(void *arg, baton_schedule_t *schedule)
{
    int peer = 1 - baton_schedule_rank(schedule);
    baton_node_t send = stuck_send(schedule, peer);
    baton_before(schedule, send, stuck_recv(schedule, peer));
}

/* ---- deadlocks --------------------------------------------------------- */

void stuck_ring(void *arg, baton_schedule_t *s)
{
    int rank = baton_schedule_rank(s);
    int size = baton_schedule_size(s);
    baton_node_t recv = stuck_recv(s, (rank + size - 1) % size);
    baton_before(s, recv, stuck_send(s, (rank + 1) % size));
    for (int i = 0; arg != NULL && i < *(int *)arg; i++) {
        baton_node_t nop = baton_add_nop(s);
        baton_before(s, (baton_node_t){nop.index - 1}, nop);
    }
}

static baton_status_t complete_at_once(void *arg, baton_call_t *call,
                                       baton_async_t async)
{
    return baton_async_complete(async, BATON_OK);
}

const baton_async_ops_t stuck_completes_at_once = {.start = complete_at_once};

/* A builder for two ranks. Both receive first, and send only after nodes that
   the verification does not execute. Error messages must nevertheless name
   these nodes correctly. */
static void build_behind_nodes(void *arg, baton_schedule_t *s)
{
    int peer = 1 - baton_schedule_rank(s);
    baton_view_t view = support_scratch(s, 8);
    baton_view_t other = support_scratch(s, 8);
    baton_node_t nodes[] = {
        stuck_recv(s, peer),
        baton_add_reduce_local(s, BATON_F32, BATON_SUM, view, view, view),
        baton_add_copy(s, other, view),
        baton_add_call(s, support_skip, NULL),
        baton_add_async(s, &stuck_completes_at_once, NULL),
        stuck_send(s, peer),
    };
    for (size_t i = 1; i < sizeof nodes / sizeof *nodes; i++) {
        baton_before(s, nodes[i - 1], nodes[i]);
    }
}

/* ---- mismatches -------------------------------------------------------- */

void stuck_build_sends(void *arg, baton_schedule_t *s)
{
    if (baton_schedule_rank(s) == 1) {
        (void)stuck_recv(s, 0);
    }
    for (int i = 0; baton_schedule_rank(s) == 0 && i < *(int *)arg; i++) {
        (void)stuck_send(s, 1);
    }
}

static void build_terms(void *arg, baton_schedule_t *s)
{
    baton_add_barrier(s);
    baton_schedule_agree(s, "sum of %s, root %d", (const char *)arg,
                         baton_schedule_rank(s) / 2);
}

static void build_loop(void *arg, baton_schedule_t *s)
{
    baton_node_t nop = baton_add_nop(s);
    if (baton_schedule_rank(s) >= *(int *)arg) {
        baton_before(s, nop, nop);
    }
}

/* ---- refused schedules -------------------------------------------------- */

#define CYCLE                                                                  \
    "epoch 1 can't end on rank 0: ranks wait in a cycle\n"                     \
    "    rank "
#define RECVS(rank, peer, send)                                                \
#rank ": recv#0 waits for send#" #send " of rank " #peer                   \
          ", which comes after recv#0"
#define AND "\n    rank "

/* With this number of nops the graph has more nodes than the ranks exchange in
   one round of the verification. */
static int nops = 3000;
static int sends = 3;
static int failing_rank = 1;

const stuck_refusal_t stuck_refusals[] = {
    {1, "x", stuck_ring, NULL, BATON_ERR_DEADLOCK, CYCLE RECVS(0, 0, 1)},
    {3, "xxx", stuck_ring, NULL, BATON_ERR_DEADLOCK,
     CYCLE RECVS(0, 2, 1) AND RECVS(2, 1, 1) AND RECVS(1, 0, 1)},
    {2, "xx", stuck_ring, &nops, BATON_ERR_DEADLOCK,
     CYCLE RECVS(0, 1, 1) AND RECVS(1, 0, 1)},
    {2, "xx", build_behind_nodes, NULL, BATON_ERR_DEADLOCK,
     CYCLE RECVS(0, 1, 5) AND RECVS(1, 0, 5)},
    {2, "xx", stuck_head_to_head, NULL, BATON_ERR_DEADLOCK,
     CYCLE
     "0: send#0 waits for recv#1 of rank 1, which comes after send#0" AND
     "1: send#0 waits for recv#1 of rank 0, which comes after send#0\n"
     "    (it would end if all sends were buffered, but long messages are "
     "not)"},
    {3, "xxx", stuck_build_sends, &sends, BATON_ERR_MISMATCH,
     "send#1 of rank 0 has no receive on rank 1, which has 1 from there"},
    {3, "xxx", build_terms, "f32", BATON_ERR_MISMATCH,
     "rank 0 has root 0 where rank 2 has root 1 (both have \"barrier, sum of "
     "f32\" before it); must be the same on all ranks"},
    {3, "xxx", build_loop, &failing_rank, BATON_ERR_CYCLE,
     "rank 1: dependency cycle\n    nop#0 -> nop#0"},
    {2, "ab", stuck_ring, NULL, BATON_ERR_MISMATCH,
     "rank 0 commits \"a\" while rank 1 commits \"b\": with BATON_VERIFY=1 "
     "all ranks must commit in the same order"},
};
const size_t stuck_refusal_count =
    sizeof stuck_refusals / sizeof *stuck_refusals;

/* A second commit of the same graph must fail like the first one. So must the
   commit of a second schedule. */
bool stuck_refuse(baton_group_t *group, const stuck_refusal_t *refusal)
{
    char name[] = {refusal->names[baton_group_rank(group)], '\0'};
    char text[600];
    (void)snprintf(text, sizeof text,
                   "commit of \"%s\" failed on all ranks: %s", name,
                   refusal->text);
    bool refused = true;
    for (int times = 0; times < 2 && refused; times++) {
        baton_schedule_t *s;
        if (baton_schedule_create(group, name, &s) != BATON_OK) {
            return false;
        }
        refusal->build(refusal->arg, s);
        for (int commits = 0; commits < 2 && refused; commits++) {
            refused = baton_schedule_commit(s) == refusal->status &&
                      strcmp(baton_error_message(), text) == 0;
        }
        refused &= baton_schedule_destroy(s) == BATON_OK;
    }
    return refused;
}

/* ---- fixtures ------------------------------------------------------------ */

int stuck_verify_on(void **state)
{
    support_set_variable("BATON_VERIFY", "1");
    return 0;
}

int stuck_verify_off(void **state)
{
    support_set_variable("BATON_VERIFY", NULL);
    return 0;
}
