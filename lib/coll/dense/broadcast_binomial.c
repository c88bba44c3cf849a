#include "coll/dense/allreduce.h"
#include "coll/dense/begin.h"

/* Binomial tree. Ranks are counted from the root: id = rank - root (mod P). The
   parent of an id is the id without its lowest bit; its children are the id
   plus each smaller power of two. A rank that has the data sends it to the
   child with the largest subtree first.

       8 ranks:   0 -+--------+----+     recv from the parent
                     |        |    |        |
                     4 -+--+  2-+  1        +--> send to id + 2^k
                        |  |    |           +--> send to id + 2^(k-1)
                        6  5    3           :
                        |                   +--> send to id + 1
                        7
*/
void baton__broadcast_binomial(baton_schedule_t *schedule, int root,
                               baton__maybe_vector_t data)
{
    int rank = baton_schedule_rank(schedule);
    int size = baton_schedule_size(schedule);

    int id = baton__rank_shift(rank, -(int64_t)root, size);
    baton_node_t recv = {0};
    if (id != 0) {
        int parent = baton__rank_shift(baton__binomial_parent(id), root, size);
        recv = baton__add_maybe_recv(schedule, parent, data);
    }
    for (int k = baton__binomial_children(id, size) - 1; k >= 0; k--) {
        int child = baton__rank_shift(rank, (int64_t)1 << k, size);
        baton_node_t send = baton__add_maybe_send(schedule, child, data);
        if (id != 0) {
            baton_before(schedule, recv, send);
        }
    }
}

void baton_add_broadcast_binomial(baton_schedule_t *schedule,
                                  const baton_broadcast_args_t *args)
{
    if (baton__broadcast_begin(schedule, "binomial broadcast", &args)) {
        const baton__maybe_vector_t whole = {args->data, BATON__WHOLE};
        baton__broadcast_binomial(schedule, args->root, whole);
    }
}

static double broadcast_binomial_cost(const baton__terms_t *t)
{
    return baton__messages_over(t, t->p, t->n, false);
}

static baton__works_t broadcast_binomial_work(const baton__terms_t *t)
{
    return (baton__works_t){.most = {1, t->n, 0},
                            .all = {t->p - 1, t->others, 0}};
}

const baton_algorithm_t baton__broadcast_binomial_algorithm = {
    .collective = BATON_COLLECTIVE_BROADCAST,
    .name = "binomial",
    .build.broadcast = baton_add_broadcast_binomial,
    .cost = broadcast_binomial_cost,
    .exact = baton__exact_paired,
    .work = &(const baton__work_model_t){broadcast_binomial_work},
};
