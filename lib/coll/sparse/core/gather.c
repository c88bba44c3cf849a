/* Bruck all-gather of parts whose lengths are known only in the step. After
   round t member i has the parts of i to i + 2^(t+1) - 1 (mod size). Five
   members, at member 0:

       ready --> send 0    to 4: part 0
             +-> append 0 <-- recv from 1: part 1
                    +--> send 1    to 3: parts 0, 1
                    +--> append 1 <-- recv from 2: parts 2, 3
                            +--> send 2    to 1: part 0
                            +--> append 2 <-- recv from 4: part 4
                                    +--> done

   Parts lie one after the other in one buffer. Sends read from its beginning,
   so nothing is packed. Receives have buffers of their own, since the place of
   a part depends on the lengths of the parts before it. */
#include "coll/sparse/core/core.h"

#include "coll/kit/pattern.h"

#include <string.h>

typedef struct gather_round {
    baton__gather_t *gather;
    /* The number of parts that this rank sends in the round. It receives as
       many. */
    int parts;
    int have; /* number of parts that are present before the round */
    baton_length_t sent;
    baton__message_t received;
} gather_round_t;

struct baton__gather {
    baton__gather_plan_t plan;
    baton_view_t view;
    char *data;
    /* offsets[i] is where part i begins in `data`; the last offset is the end
       of the last part. */
    size_t *offsets;
    int round_count;
    gather_round_t *rounds;
};

static int member(const baton__gather_t *gather, int distance)
{
    return baton__rank_shift(gather->plan.index, distance, gather->plan.size);
}

static int gather_rank_at(const baton__gather_t *gather, int distance)
{
    return gather->plan.base + gather->plan.stride * member(gather, distance);
}

/* Returns an upper bound for the bytes of `count` parts. The first of them is
   the part of the member that comes `from` places after this one, around the
   ring. */
static size_t parts_capacity(const baton__gather_t *gather, int from, int count)
{
    const baton__gather_plan_t *plan = &gather->plan;
    size_t bytes = 0;
    for (int j = from; j < from + count; j++) {
        bytes += plan->most != NULL ? plan->most(plan->arg, member(gather, j))
                                    : plan->most_bytes;
    }
    return bytes;
}

/* ---- in a step --------------------------------------------------------- */

static baton_status_t set_sent(baton__gather_t *gather, baton_call_t *call,
                               int index)
{
    if (index >= gather->round_count) {
        return BATON_OK;
    }
    const gather_round_t *round = &gather->rounds[index];
    size_t bytes = gather->offsets[round->parts];
    baton__message_count(gather->plan.sparse, 1, bytes);
    return baton_call_set_length(call, round->sent, bytes);
}

/* Finds where each of the parts in `data` ends. Returns false if the parts do
   not have `bytes` bytes in all. */
static bool find_parts(gather_round_t *round, const char *data, size_t bytes)
{
    baton__gather_t *gather = round->gather;
    const baton__gather_plan_t *plan = &gather->plan;
    size_t begin = gather->offsets[round->have];
    size_t at = 0;
    for (int j = round->have; j < round->have + round->parts; j++) {
        int owner = member(gather, j);
        size_t extent =
            data == NULL || plan->extent == NULL
                ? plan->nominal(plan->arg, owner)
                : plan->extent(plan->arg, owner, data + at, bytes - at);
        if (data != NULL && extent > bytes - at) {
            return false;
        }
        at += extent;
        gather->offsets[j + 1] = begin + at;
    }
    return data == NULL || at == bytes;
}

static baton_status_t gather_append(void *arg, baton_call_t *call)
{
    gather_round_t *round = arg;
    baton__gather_t *gather = round->gather;
    baton__message_take(&round->received, call);
    const char *data = round->received.data;
    if (!find_parts(round, data, round->received.bytes)) {
        return baton_call_fail(
            call, BATON_ERR_MISMATCH,
            "a message of %zu bytes from rank %d does not have the parts of %d "
            "ranks that this step gathers: have ranks started another number "
            "of steps, or set another k?",
            round->received.bytes, gather_rank_at(gather, round->have),
            round->parts);
    }
    if (data != NULL) {
        memcpy(gather->data + gather->offsets[round->have], data,
               round->received.bytes);
    }
    return set_sent(gather, call, (int)(round - gather->rounds) + 1);
}

char *baton__gather_begin(baton__gather_t *gather, baton_call_t *call)
{
    gather->data = baton_call_address(call, gather->view);
    return gather->data;
}

baton_status_t baton__gather_end(baton__gather_t *gather, baton_call_t *call,
                                 size_t bytes)
{
    gather->offsets[0] = 0;
    gather->offsets[1] = bytes;
    return set_sent(gather, call, 0);
}

baton_status_t baton__gather_put(baton__gather_t *gather, baton_call_t *call,
                                 const void *part, size_t bytes)
{
    char *to = baton__gather_begin(gather, call);
    if (to != NULL && bytes > 0) {
        memcpy(to, part, bytes);
    }
    return baton__gather_end(gather, call, bytes);
}

const char *baton__gather_part(const baton__gather_t *gather, int member,
                               size_t *bytes_out)
{
    int j = baton__rank_shift(member, -gather->plan.index, gather->plan.size);
    *bytes_out = gather->offsets[j + 1] - gather->offsets[j];
    return gather->data != NULL ? gather->data + gather->offsets[j] : NULL;
}

size_t baton__gather_put_result(const baton__gather_t *gather)
{
    baton_sparse_t *sparse = gather->plan.sparse;
    size_t count = 0, bytes;
    for (int i = 0; i < gather->plan.size; i++) {
        const char *part = baton__gather_part(gather, i, &bytes);
        size_t entries = bytes / sparse->entry_bytes;
        if (part != NULL) {
            baton__sparse_result_put(sparse, count, part, entries);
        }
        count += entries;
    }
    return count;
}

/* ---- building ---------------------------------------------------------- */

static baton_node_t add_round(baton__gather_t *gather, int index,
                              baton_node_t before)
{
    baton_sparse_t *sparse = gather->plan.sparse;
    baton_schedule_t *s = sparse->schedule;
    gather_round_t *round = &gather->rounds[index];
    int reach = 1 << index;
    int left = gather->plan.size - reach;
    *round = (gather_round_t){
        .gather = gather, .have = reach, .parts = left < reach ? left : reach};
    baton_view_t prefix = gather->view;
    prefix.bytes = parts_capacity(gather, 0, round->parts);
    baton_node_t send =
        baton_add_send(s, gather_rank_at(gather, -reach), prefix);
    round->sent = baton_add_length(s);
    baton_set_length(s, send, round->sent);
    baton__message_recv(&round->received, sparse, gather_rank_at(gather, reach),
                        parts_capacity(gather, reach, round->parts));
    baton_node_t call =
        baton__sparse_call_after(sparse, before, gather_append, round);
    baton_before(s, before, send);
    baton_before(s, round->received.node, call);
    return call;
}

baton_node_t baton__gather_build(const baton__gather_plan_t *plan,
                                 baton_node_t ready, baton_call_fn then,
                                 baton__gather_t **out)
{
    baton_sparse_t *sparse = plan->sparse;
    baton__gather_t *gather = baton__sparse_alloc(sparse, 1, sizeof *gather);
    *out = gather;
    if (gather == NULL) {
        return ready;
    }
    gather->plan = *plan;
    if (plan->size == 0) {
        gather->plan.size = sparse->size;
        gather->plan.index = sparse->rank;
        gather->plan.stride = 1;
    }
    const int size = gather->plan.size;
    gather->offsets =
        baton__sparse_alloc(sparse, (size_t)size + 1, sizeof *gather->offsets);
    gather->rounds = baton__sparse_alloc(sparse, (size_t)baton__log2_ceil(size),
                                         sizeof *gather->rounds);
    if (sparse->out_of_memory) {
        return ready;
    }
    gather->round_count = baton__log2_ceil(size);
    size_t bytes = parts_capacity(gather, 0, size);
    gather->view =
        baton_view(baton_buffer_scratch(sparse->schedule, bytes), 0, bytes);
    for (int i = 0; i < gather->round_count; i++) {
        ready = add_round(gather, i, ready);
    }
    sparse->rounds += (uint32_t)gather->round_count;
    return baton__sparse_call_after(sparse, ready, then, plan->arg);
}
