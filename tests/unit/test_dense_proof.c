/* Every dense builder, proven by contributor sets in the simulator, with any
   number of ranks: whose data is in each element of each result. */
#include "support/cluster.h"
#include "support/cmocka.h"
#include "support/dense_data.h"
#include "support/sanitized.h"

#include <stdlib.h>
#include <string.h>

enum { EPOCHS = 2 };

typedef struct world {
    const dense_case_t *c;
    baton_proof_t *proof;
    uint32_t **sources, **targets; /* by rank */
    bool *contributors;            /* of the piece at hand */
    int rank;                      /* whose result it is in */
} world_t;

static void build(void *arg, baton_schedule_t *schedule)
{
    const world_t *world = arg;
    int rank = baton_schedule_rank(schedule);
    dense_build(world->c, schedule, world->sources[rank], world->targets[rank]);
}

static void check_piece(void *arg, int low, int high, size_t first,
                        size_t count, size_t at)
{
    world_t *world = arg;
    const dense_case_t *c = world->c;
    const uint32_t *result =
        dense_output(c, world->rank, world->sources[world->rank],
                     world->targets[world->rank]);
    for (int rank = 0; rank < c->size; rank++) {
        world->contributors[rank] = rank >= low && rank <= high;
    }
    baton_status_t status = baton_proof_check(world->proof, world->contributors,
                                              first, count, result + at);
    if (status != BATON_OK) {
        fail_msg("%s: rank %d, piece at %zu: %s", dense_text(c), world->rank,
                 at, baton_error_message());
    }
}

static void run_epoch(world_t *world, baton_sim_t *sim)
{
    const dense_case_t *c = world->c;
    double us;
    for (int rank = 0; rank < c->size; rank++) {
        size_t room = dense_room(c, rank) * sizeof(uint32_t);
        memset(world->sources[rank], 0xa5, room);
        memset(world->targets[rank], 0xa5, room);
        support_ok(baton_proof_fill(
            world->proof, rank, 0, dense_source_count(c, rank),
            dense_input(c, rank, world->sources[rank], world->targets[rank])));
    }
    if (baton_sim_epoch(sim, &us) != BATON_OK) {
        fail_msg("%s: %s", dense_text(c), baton_error_message());
    }
    for (world->rank = 0; world->rank < c->size; world->rank++) {
        dense_pieces(c, world->rank, check_piece, world);
    }
}

/* Each rank's two vectors are one behind the other. */
static void open_memory(world_t *world)
{
    const dense_case_t *c = world->c;
    size_t size = (size_t)c->size;
    world->sources = calloc(size, sizeof(uint32_t *));
    world->targets = calloc(size, sizeof(uint32_t *));
    world->contributors = calloc(size, sizeof(bool));
    for (int rank = 0; rank < c->size; rank++) {
        size_t room = dense_room(c, rank) + 1;
        world->sources[rank] = calloc(2 * room, sizeof(uint32_t));
        world->targets[rank] = world->sources[rank] + room;
    }
}

static void close_memory(world_t *world)
{
    for (int rank = 0; rank < world->c->size; rank++) {
        free(world->sources[rank]);
    }
    free(world->sources);
    free(world->targets);
    free(world->contributors);
}

static void prove(const dense_case_t *given)
{
    dense_case_t c = *given;
    world_t world = {.c = &c};
    support_ok(baton_proof_create(c.size, &world.proof));
    c.element = sizeof(uint32_t);
    c.dtype = BATON_U32;
    c.op = baton_proof_op(world.proof);
    open_memory(&world);

    baton_sim_options_t options = BATON_SIM_OPTIONS;
    options.ranks = c.size;
    options.link.alpha_us = 1;
    options.link.beta_ns = 100;
    options.gamma_ns = 50;
    baton_sim_t *sim = NULL;
    support_ok(baton_sim_create(&options, &sim));
    if (baton_sim_build(sim, "dense", build, &world) != BATON_OK) {
        fail_msg("%s: %s", dense_text(&c), baton_error_message());
    }
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        run_epoch(&world, sim);
    }
    support_ok(baton_sim_destroy(sim));
    close_memory(&world);
    (void)!baton_proof_destroy(world.proof);
}

/* ---- which cases ------------------------------------------------------- */

/* Counts: none, one, fewer than ranks, as many, indivisible. Of a block where
   there are blocks. */
static void prove_counts(dense_case_t c)
{
    size_t p = (size_t)c.size;
    const size_t vectors[] = {0, 1, p - 1, p, 3 * p + 1};
    const size_t blocks[] = {0, 1, 5};
    bool has_blocks = dense_counts_blocks(c.builder);
    size_t most = has_blocks ? 3 : 5;
    for (size_t i = 0; i < most; i++) {
        c.count = has_blocks ? blocks[i] : vectors[i];
        for (int in_place = 0; in_place < 2; in_place++) {
            c.in_place = in_place != 0;
            c.varied = false;
            prove(&c);
            c.varied = true;
            if (dense_can_vary(c.builder) && c.count < 10) {
                prove(&c);
            }
        }
    }
}

static void prove_builder(const dense_builder_t *builder, int size)
{
    baton_hosts_t hosts = {.size = sizeof hosts, .host_ranks = 3};
    dense_case_t c = {.builder = builder,
                      .size = size,
                      .chunk_bytes = 2 * sizeof(uint32_t),
                      .arg = &hosts};
    const int roots[] = {0, size / 2, size - 1};
    for (size_t i = 0; i < 3; i++) {
        if (i == 0 || (dense_has_roots(builder) && roots[i] > 0)) {
            c.root = roots[i];
            prove_counts(c);
        }
    }
}

#if SUPPORT_SANITIZED
static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
enum { MANY = 64 };
#else
static const int sizes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,
                            10, 11, 12, 13, 16, 17, 23, 32, 33};
enum { MANY = 1024 };
#endif

static void test_each_algorithm_has_the_right_contributors(void **state)
{
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            prove_builder(builder, sizes[k]);
        }
    }
}

/* Those with few messages a rank, on very many of them. */
static void test_many_ranks(void **state)
{
    const baton_cost_case_t of = {.ranks = MANY, .bytes = 1, .alpha_us = 1};
    int found = 0;
    const dense_builder_t *builder;
    for (size_t i = 0; (builder = dense_builder_at(i)) != NULL; i++) {
        dense_case_t c = {
            .builder = builder, .size = MANY, .root = MANY - 24, .count = 3};
        if (!builder->chooses && !dense_counts_blocks(builder) &&
            baton_algorithm_cost_us(&builder->algorithm, &of) <= 50) {
            found++;
            prove(&c);
        }
    }
    assert_in_range(found, 10, 20);
}

/* Hosts that differ, in any order of ranks. */
static void test_hierarchical_on_uneven_hosts(void **state)
{
    static const int host[] = {4, 7, 4, 4, 9, 7, 9, 4, 9, 9, 7, 4, 4};
    enum { RANKS = sizeof host / sizeof host[0] };
    baton_hosts_t hosts = {.size = sizeof hosts, .host = host};
    for (int size = 1; size <= RANKS; size++) {
        for (size_t count = 0; count < 20; count += 3) {
            dense_case_t c = {.builder =
                                  dense_builder("allreduce_hierarchical"),
                              .size = size,
                              .count = count,
                              .arg = &hosts};
            prove(&c);
            c.in_place = true;
            prove(&c);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_algorithm_has_the_right_contributors),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_hierarchical_on_uneven_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
