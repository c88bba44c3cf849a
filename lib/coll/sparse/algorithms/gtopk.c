/* gTopk (Shi et al. 2019): a binomial tree to rank 0 that keeps the k largest
   at every node, then a broadcast along the same tree. Any number of ranks:
   partners that do not exist are left out. Six ranks:

       round 0   1 -> 0   3 -> 2   5 -> 4
       round 1   2 -> 0
       round 2   4 -> 0
       and back  0 -> 4;  0 -> 2;  0 -> 1  2 -> 3  4 -> 5

       select --> merge <-- recv    (a node with children in two rounds)
                    |
                    +--> merge <-- recv
                           |
                           +--> send to the parent
                                          recv of the result --> sends -->
   finish

   A rank that merges adds the entries that it drops to its `work`, and so keeps
   them. At the indices of the result the new residual has the values that
   `work` has then. Elsewhere it is gradient plus old residual, as in spardl.c.
   The published code loses the dropped entries. */
#include "coll/kit/pattern.h"
#include "coll/sparse/algorithms/algorithms.h"

#include <string.h>

enum { ROUNDS = 32 };

typedef struct gtopk gtopk_t;

typedef struct gtopk_merge {
    gtopk_t *gtopk;
    baton__message_t recv;
    char *dropped;
    size_t dropped_count;
} gtopk_merge_t;

struct gtopk {
    baton_sparse_t *sparse;
    uint32_t *indices;
    void *scratch;
    char *own; /* the entries that this rank has selected */
    size_t own_count;
    /* Memory for the sum of all lists so far, and for the next sum. Each merge
       swaps the two. */
    char *sum, *other;
    size_t sum_count;
    /* Memory for values of `work` at the result's indices; see gtopk_keep. */
    char *saved;
    gtopk_merge_t merges[ROUNDS];
    int merge_count;
    /* The sum that this rank sends to its parent. At rank 0 this sum is the
       result. */
    baton__message_t up;
    baton__message_t result; /* the message from the parent, with the result */
};

/* ---- in a step --------------------------------------------------------- */

static size_t gtopk_bytes_of(const gtopk_t *gtopk, size_t count)
{
    return count * gtopk->sparse->entry_bytes;
}

static baton_status_t gtopk_select_own(void *arg, baton_call_t *call)
{
    gtopk_t *gtopk = arg;
    baton_sparse_t *sparse = gtopk->sparse;
    baton__sparse_begin(sparse);
    sparse->counting.block_selections++;
    gtopk->own_count = baton__sparse_accumulate_topk(
        sparse, BATON_SIDE_BOTH, gtopk->indices, gtopk->scratch, NULL);
    gtopk->sum_count = gtopk->own_count;
    if (sparse->payload) {
        baton_entries_take(sparse->dtype, gtopk->own, gtopk->indices,
                           gtopk->own_count, sparse->work);
        memcpy(gtopk->sum, gtopk->own, gtopk_bytes_of(gtopk, gtopk->own_count));
    }
    return BATON_OK;
}

static baton_status_t merge(void *arg, baton_call_t *call)
{
    gtopk_merge_t *self = arg;
    gtopk_t *gtopk = self->gtopk;
    baton_sparse_t *sparse = gtopk->sparse;
    baton__message_take(&self->recv, call);
    if (!sparse->payload) {
        return BATON_OK;
    }
    baton_entries_t lists[2] = {
        {gtopk->sum, gtopk->sum_count},
        {self->recv.data, baton__message_entries(&self->recv)}};
    char *both = gtopk->other;
    size_t count = baton_entries_sum(sparse->dtype, lists, 2, both);
    gtopk->sum_count =
        baton_entries_topk(sparse->dtype, both, count, sparse->k, self->dropped,
                           &self->dropped_count, gtopk->scratch);
    baton_entries_add(sparse->dtype, self->dropped, self->dropped_count, 1,
                      sparse->work);
    gtopk->other = gtopk->sum;
    gtopk->sum = both;
    return BATON_OK;
}

static baton_status_t gtopk_pack(void *arg, baton_call_t *call)
{
    gtopk_t *gtopk = arg;
    return baton__message_put(&gtopk->up, call,
                              (baton_entries_t){gtopk->sum, gtopk->sum_count});
}

/* Turns `work` into the new residual: keeps the values of `work` at the
   result's indices, and undoes all changes of this step elsewhere, the latest
   first. */
static void gtopk_keep(void *state, size_t count)
{
    gtopk_t *gtopk = state;
    const baton_sparse_t *sparse = gtopk->sparse;
    baton_entries_gather(sparse->dtype, gtopk->saved,
                         sparse->results.next->indices, count, sparse->work);
    for (int i = gtopk->merge_count - 1; i >= 0; i--) {
        baton_entries_put(sparse->dtype, gtopk->merges[i].dropped,
                          gtopk->merges[i].dropped_count, sparse->work);
    }
    baton_entries_put(sparse->dtype, gtopk->own, gtopk->own_count,
                      sparse->work);
    baton_entries_put(sparse->dtype, gtopk->saved, count, sparse->work);
}

static baton_status_t gtopk_finish(void *arg, baton_call_t *call)
{
    gtopk_t *gtopk = arg;
    baton_sparse_t *sparse = gtopk->sparse;
    const baton__message_t *from = &gtopk->up;
    if (sparse->rank > 0) {
        baton__message_take(&gtopk->result, call);
        from = &gtopk->result;
        baton__message_count(sparse, from->sends, from->bytes);
    }
    size_t count = baton__message_entries(from);
    if (sparse->payload) {
        baton__sparse_result_put(sparse, 0, from->data, count);
    }
    baton__sparse_publish(sparse, count);
    return BATON_OK;
}

/* ---- building ---------------------------------------------------------- */

static baton_node_t add_reduce(gtopk_t *gtopk)
{
    baton_sparse_t *sparse = gtopk->sparse;
    baton_schedule_t *s = sparse->schedule;
    size_t entries = sparse->options.max_k;
    baton_node_t last =
        baton__sparse_add_call(sparse, s, gtopk_select_own, gtopk);
    int children = baton__binomial_children(sparse->rank, sparse->size);
    for (int t = 0; t < children; t++) {
        gtopk_merge_t *self = &gtopk->merges[gtopk->merge_count++];
        self->gtopk = gtopk;
        self->dropped =
            baton__sparse_alloc_data(sparse, 2 * entries, sparse->entry_bytes);
        baton__message_recv(&self->recv, sparse, sparse->rank + (1 << t),
                            gtopk_bytes_of(gtopk, entries));
        last = baton__sparse_call_after(sparse, last, merge, self);
        baton_before(s, self->recv.node, last);
    }
    return last;
}

/* Adds the sends of the result to the children. The child with the largest
   subtree comes first. The result is in the memory of the message `from`. */
static void add_sends(baton__message_t *from, baton_node_t ready)
{
    const baton_sparse_t *sparse = from->sparse;
    from->sends = baton__binomial_children(sparse->rank, sparse->size);
    for (int t = from->sends - 1; t >= 0; t--) {
        baton_node_t send = baton_add_send(sparse->schedule,
                                           sparse->rank + (1 << t), from->view);
        baton_set_length(sparse->schedule, send, from->length);
        baton_before(sparse->schedule, ready, send);
    }
}

static void add_broadcast(gtopk_t *gtopk, baton_node_t merged)
{
    baton_sparse_t *sparse = gtopk->sparse;
    baton_schedule_t *s = sparse->schedule;
    size_t bytes = gtopk_bytes_of(gtopk, sparse->options.max_k);
    baton_node_t packed =
        baton__sparse_call_after(sparse, merged, gtopk_pack, gtopk);
    baton_node_t end =
        baton__sparse_call_after(sparse, packed, gtopk_finish, gtopk);
    if (sparse->rank == 0) {
        baton__message_init(&gtopk->up, sparse, bytes);
        add_sends(&gtopk->up, packed);
        return;
    }
    int parent = baton__binomial_parent(sparse->rank);
    baton__message_send(&gtopk->up, sparse, parent, bytes);
    baton_before(s, packed, gtopk->up.node);
    baton__message_recv(&gtopk->result, sparse, parent, bytes);
    add_sends(&gtopk->result, gtopk->result.node);
    baton_before(s, gtopk->result.node, end);
}

static void gtopk_allocate(gtopk_t *gtopk)
{
    baton_sparse_t *sparse = gtopk->sparse;
    size_t k = sparse->options.max_k, entry = sparse->entry_bytes;
    size_t dense = baton_select_scratch_bytes(sparse->count, k);
    size_t list = baton_entries_scratch_bytes(2 * k, k);
    gtopk->indices =
        baton__sparse_alloc_data(sparse, k, sizeof *gtopk->indices);
    gtopk->scratch =
        baton__sparse_alloc_data(sparse, 1, dense > list ? dense : list);
    gtopk->own = baton__sparse_alloc_data(sparse, k, entry);
    gtopk->saved = baton__sparse_alloc_data(sparse, k, entry);
    gtopk->sum = baton__sparse_alloc_data(sparse, 2 * k, entry);
    gtopk->other = baton__sparse_alloc_data(sparse, 2 * k, entry);
    baton__sparse_alloc_results(sparse, k);
}

void baton__gtopk_build(baton_sparse_t *sparse)
{
    gtopk_t *gtopk = baton__sparse_alloc(sparse, 1, sizeof *gtopk);
    if (gtopk == NULL) {
        return;
    }
    gtopk->sparse = sparse;
    sparse->completion.make_residual = gtopk_keep;
    sparse->completion.algorithm = gtopk;
    gtopk_allocate(gtopk);
    add_broadcast(gtopk, add_reduce(gtopk));
    sparse->rounds += 2 * (uint32_t)baton__log2_ceil(sparse->size);
}
