#include "allreduce.h"
#include "base/alloc.h"
#include "coll/check.h"
#include "coll/phases.h"

#include <string.h>

/* Three phases, each among some of the ranks. The vector is cut in B blocks, B
   the ranks of the smallest host. 2 hosts of 3 and 2 ranks, B = 2:

       inside hosts      between hosts        inside hosts
       reduce-scatter    all-reduce           all-gather

       0 --+             0: block 0 --+       0 --+
       1 --+--> blocks   1: block 1 --|--+    1 --+
       2 --+             2: -         |  |    2 --+
                                      |  |
       3 --+             3: block 0 --+  |    3 --+
       4 --+--> blocks   4: block 1 -----+    4 --+

   The k-th rank of a host has block k; those beyond B have an empty one, and
   take part inside the host only. So between hosts each block moves once, from
   as many ranks at the same time as every host has. */
typedef struct place {
    int host;       /* index of this rank's host */
    int hosts;      /* how many there are */
    int index;      /* of this rank among its host's */
    int *mates;     /* ranks of this host */
    int mate_count; /* of them */
    int *peers;     /* the rank with this one's index on each host */
    int blocks;     /* B */
} place_t;

static int host_number(const baton_hosts_t *hosts, int rank)
{
    return hosts->host != NULL ? hosts->host[rank] : rank / hosts->host_ranks;
}

/* What is counted while a place is looked for, by index of a host. */
typedef struct count {
    int *numbers; /* the caller's name of the host */
    int *seen;    /* its ranks so far */
} count_t;

/* The index of a rank's host; hosts are numbered as they are first seen. */
static int host_index(const baton_hosts_t *hosts, int rank, place_t *place,
                      const count_t *count)
{
    int number = host_number(hosts, rank);
    int host = 0;
    while (host < place->hosts && count->numbers[host] != number) {
        host++;
    }
    if (host == place->hosts) {
        count->numbers[place->hosts++] = number;
    }
    return host;
}

/* The hosts, how many ranks each has, and where `rank` is among them. */
static void count_hosts(const baton_hosts_t *hosts, int rank, int size,
                        const count_t *count, place_t *place)
{
    for (int other = 0; other < size; other++) {
        int host = host_index(hosts, other, place, count);
        if (other == rank) {
            place->host = host;
            place->index = count->seen[host];
        }
        count->seen[host]++;
    }
    place->blocks = size;
    for (int host = 0; host < place->hosts; host++) {
        int ranks = count->seen[host];
        place->blocks = ranks < place->blocks ? ranks : place->blocks;
    }
}

/* The ranks of this rank's host, and those with its index on each. */
static void find_neighbours(const baton_hosts_t *hosts, int size,
                            const count_t *count, place_t *place)
{
    memset(count->seen, 0, (size_t)size * sizeof(int));
    for (int other = 0; other < size; other++) {
        int host = host_index(hosts, other, place, count);
        if (host == place->host) {
            place->mates[place->mate_count++] = other;
        }
        if (count->seen[host]++ == place->index) {
            place->peers[host] = other;
        }
    }
}

/* Offsets of B blocks, and of an empty one for each rank of the host beyond. */
static size_t *cut_for(baton_schedule_t *schedule, size_t count, size_t element,
                       const place_t *place)
{
    size_t *counts = baton__alloc((size_t)place->mate_count, sizeof(size_t));
    if (counts == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "schedule \"%s\": no memory for %d counts",
                            baton_schedule_name(schedule), place->mate_count);
        return NULL;
    }
    for (int i = 0; i < place->blocks; i++) {
        counts[i] =
            baton__block_of(count, (size_t)place->blocks, (size_t)i).count;
    }
    size_t *at = baton__cut_by_counts(schedule, "hierarchical all-reduce",
                                      counts, element, place->mate_count);
    baton__free(counts);
    return at;
}

static void add_phases(baton__flow_t *flow, const place_t *place,
                       const baton_allreduce_t *args, bool in_place)
{
    size_t element = baton_op_element_bytes(args->op, args->dtype);
    size_t *at =
        cut_for(flow->schedule, args->target.bytes / element, element, place);
    if (at == NULL) {
        return;
    }
    baton__blocks_t sums = {
        .memory = args->target, .at = at, .parts = place->mate_count};
    baton__blocks_t own = {.memory = in_place ? args->target : args->source,
                           .at = at,
                           .parts = place->mate_count};
    baton__flow_team(flow, place->mates, place->index, place->mate_count);
    if (place->mate_count == 1 && !in_place) {
        baton__flow_copy(flow, args->target, args->source);
    }
    baton__circulant_reduce_scatter(flow, &sums, in_place ? &sums : &own,
                                    (baton_view_t){0});
    baton_view_t block = baton__blocks_view(&sums, place->index, 1);
    if (place->index < place->blocks && place->hosts > 1 && block.bytes > 0) {
        baton__flow_team(flow, place->peers, place->host, place->hosts);
        baton__rabenseifner(flow, block, block, element);
    }
    baton__flow_team(flow, place->mates, place->index, place->mate_count);
    baton__circulant_allgather(flow, &sums, BATON__SKIPS_HALVED);
    baton__free(at);
}

static bool check_hosts(baton_schedule_t *schedule, const char *builder,
                        const baton_hosts_t *hosts)
{
    if (hosts == NULL || hosts->size != sizeof *hosts) {
        baton_schedule_fail(schedule, BATON_ERR_INVALID,
                            "%s: args.arg must point to a baton_hosts_t whose "
                            "size is %zu",
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

void baton_allreduce_hierarchical(baton_schedule_t *schedule,
                                  const baton_allreduce_t *args)
{
    static const char name[] = "hierarchical all-reduce";
    if (!baton__allreduce_begin(schedule, name, &args) ||
        !check_hosts(schedule, name, args->arg) ||
        !baton__check_commutative(schedule, name, args->op,
                                  BATON__ORDERED_ALLREDUCES)) {
        return;
    }
    baton__flow_t flow = baton__flow_open(schedule, args->dtype, args->op);
    size_t size = (size_t)flow.size;
    int *memory = baton__alloc(4 * size, sizeof(int));
    if (memory == NULL) {
        baton_schedule_fail(schedule, BATON_ERR_NO_MEMORY,
                            "%s: no memory for the hosts of %d ranks", name,
                            flow.size);
        return;
    }
    place_t place = {.mates = memory, .peers = memory + size};
    count_t count = {memory + 2 * size, memory + 3 * size};
    count_hosts(args->arg, flow.rank, flow.size, &count, &place);
    find_neighbours(args->arg, flow.size, &count, &place);
    add_phases(&flow, &place, args, baton__allreduce_in_place(schedule, args));
    baton__flow_close(&flow);
    baton__free(memory);
}
