#include "support/pair.h"
#include "support/cluster.h"
#include "support/cmocka.h"

#include <stdlib.h>
#include <string.h>

void support_pair_open(support_pair_t *pair, support_cluster_t *cluster,
                       const char *name)
{
    pair->sent = 0;
    pair->got = 0;
    for (int rank = 0; rank < 2; rank++) {
        baton_schedule_t *s = support_schedule(cluster->groups[rank], name);
        baton_view_t view = support_view(
            s, rank == 0 ? &pair->got : &pair->sent, sizeof(uint64_t));
        if (rank == 0) {
            (void)baton_add_recv(s, 1, view);
        } else {
            (void)baton_add_send(s, 0, view);
        }
        support_ok(baton_schedule_commit(s));
        pair->schedules[rank] = s;
    }
}

void support_pair_close(support_pair_t *pair)
{
    support_ok(baton_schedule_destroy(pair->schedules[0]));
    support_ok(baton_schedule_destroy(pair->schedules[1]));
}

void support_pair_send(support_pair_t *pair, uint64_t value)
{
    pair->sent = value;
    support_run(pair->schedules[1]);
}
