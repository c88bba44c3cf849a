/* The choice of algorithms, its table, and calibration files. */
#include "coll/kit/cost.h"
#include "support/dense.h"
#include "support/sim.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static baton_choice_case_t case_of(baton_collective_t collective, int ranks,
                                   size_t bytes)
{
    return (baton_choice_case_t){.size = sizeof(baton_choice_case_t),
                                 .collective = collective,
                                 .ranks = ranks,
                                 .bytes = bytes};
}

/* ---- the table --------------------------------------------------------- */

TEST(test_every_collective_has_an_algorithm)
{
    int counts[BATON_COLLECTIVE_COUNT] = {0};
    baton_algorithm_t algorithm;
    for (size_t i = 0; baton_algorithm_get(i, &algorithm); i++) {
        baton_algorithm_t found;
        counts[algorithm.collective]++;
        support_ok(
            baton_algorithm_find(algorithm.collective, algorithm.name, &found));
        assert_ptr_equal(found.cost, algorithm.cost);
    }
    for (int i = 0; i < (int)BATON_COLLECTIVE_COUNT; i++) {
        assert_true(counts[i] > 0);
        assert_string_not_equal(baton_collective_name((baton_collective_t)i),
                                "?");
    }
    assert_string_equal(baton_collective_name(BATON_COLLECTIVE_COUNT), "?");
    assert_null(baton_collective_facts(BATON_COLLECTIVE_COUNT));
}

TEST(test_an_unknown_name_lists_those_that_there_are)
{
    baton_algorithm_t algorithm;
    support_fails(
        baton_algorithm_find(BATON_COLLECTIVE_ALLREDUCE, "rin", &algorithm),
        BATON_ERR_INVALID,
        "no algorithm of allreduce is called \"rin\"; there are: "
        "recursive_doubling binomial ring rabenseifner circulant");
    support_says("the nearest is ring");
    support_fails(
        baton_algorithm_find((baton_collective_t)-1, "ring", &algorithm),
        BATON_ERR_INVALID, "collective is -1; allowed: 0 to 10");
}

/* ---- the choice -------------------------------------------------------- */

/* Returns the time of the fastest algorithm that can do the case, with its best
   segment. Segments are powers of two from 1 KiB until one covers the vector,
   at most 512 KiB on one host and 16 MiB between hosts. */
static double least_us(const baton_choice_case_t *of,
                       const baton_costs_t *costs)
{
    bool near = of->hosts <= 1;
    const baton_link_cost_t *link = near ? &costs->inside : &costs->between;
    double least = INFINITY;
    baton_algorithm_t each;
    for (size_t i = 0; baton_algorithm_get(i, &each); i++) {
        bool named = of->algorithm != NULL;
        if (each.collective != of->collective ||
            (named ? strcmp(each.name, of->algorithm) != 0
                   : each.one_host && !near) ||
            (each.equal_blocks && of->uneven) ||
            (of->ordered && !each.ordered &&
             !(each.ordered_at_ends && of->root_at_end))) {
            continue;
        }
        size_t most = near ? (size_t)1 << 19 : (size_t)1 << 24;
        for (size_t segment = 1024; segment <= most; segment *= 2) {
            baton_cost_case_t cost = {
                .ranks = of->ranks,
                .bytes = (double)of->bytes,
                .alpha_us = link->alpha_us,
                .beta_us = link->beta_ns / 1e3,
                .gamma_us = costs->gamma_ns / 1e3,
                .segment_bytes = each.segmented ? (double)segment : 0,
                .processors = of->processors,
                .turn_us = costs->turn_us,
                .hosts = of->hosts,
                .scattered = of->scattered,
                .inside_alpha_us = costs->inside.alpha_us,
                .inside_beta_us = costs->inside.beta_ns / 1e3};
            double us = near ? baton_algorithm_host_us(&each, &cost)
                             : baton__between_us(&each, &cost);
            least = us < least ? us : least;
        }
    }
    return least;
}

static void expect_cheapest(baton_choice_case_t of)
{
    baton_costs_t costs = BATON_COSTS;
    baton_choice_t choice;
    support_ok(baton_costs_get(&costs));
    double least = least_us(&of, &costs);
    if (least == INFINITY) {
        support_expect(baton_choose(&of, &choice), BATON_ERR_UNSUPPORTED);
        return;
    }
    support_ok(baton_choose(&of, &choice));
    if (fabs(choice.cost_us - least) > 1e-8 * least) {
        fail_msg("%s of %zu bytes, %d ranks on %d hosts, %d processors: %s in "
                 "segments of %zu takes %g us; the least is %g",
                 baton_collective_name(of.collective), of.bytes, of.ranks,
                 of.hosts, of.processors, choice.algorithm.name,
                 choice.segment_bytes, choice.cost_us, least);
    }
    assert_int_equal(choice.algorithm.segmented, choice.segment_bytes > 0);
}

/* With one algorithm, only its segment is chosen. */
TEST(test_a_named_algorithm_has_its_best_segment)
{
    baton_algorithm_t each;
    for (size_t i = 0; baton_algorithm_get(i, &each); i++) {
        for (size_t bytes = 1; bytes < (size_t)1 << 30; bytes *= 3) {
            baton_choice_case_t of = case_of(each.collective, 6, bytes);
            of.algorithm = each.name;
            expect_cheapest(of);
            of.hosts = 6;
            expect_cheapest(of);
        }
    }
}

TEST(test_the_choice_is_the_cheapest)
{
    for (int i = 0; i < (int)BATON_COLLECTIVE_COUNT; i++) {
        for (int ranks = 1; ranks <= 48; ranks += ranks < 9 ? 1 : 13) {
            for (size_t bytes = 0; bytes < (size_t)1 << 30;
                 bytes = 7 * bytes + 8) {
                baton_choice_case_t of =
                    case_of((baton_collective_t)i, ranks, bytes);
                expect_cheapest(of);
                of.processors = ranks / 3;
                expect_cheapest(of);
                of.uneven = true;
                expect_cheapest(of);
                for (of.hosts = 1; of.hosts <= ranks;
                     of.hosts += of.hosts < 3 ? 1 : 4) {
                    expect_cheapest(of);
                    of.scattered = of.hosts > 1;
                    expect_cheapest(of);
                    of.scattered = false;
                }
                if (i == BATON_COLLECTIVE_REDUCE ||
                    i == BATON_COLLECTIVE_ALLREDUCE) {
                    of.hosts = ranks;
                    of.ordered = true;
                    expect_cheapest(of);
                    of.root_at_end = true;
                    expect_cheapest(of);
                }
            }
        }
    }
}

/* A case, and the algorithm that must be chosen for it, or the text of the
   error. */
typedef struct known {
    baton_choice_case_t of;
    const char *name; /* the name of the algorithm; NULL: there is an error */
    /* If `name` is NULL: the text that the error must contain. */
    const char *says;
} known_t;

static void expect_known(const known_t *all, size_t count,
                         baton_status_t status)
{
    for (size_t i = 0; i < count; i++) {
        baton_choice_t choice;
        baton_choice_case_t of = all[i].of;
        of.size = sizeof of;
        support_expect(baton_choose(&of, &choice), status);
        if (all[i].name != NULL) {
            assert_string_equal(choice.algorithm.name, all[i].name);
        } else {
            support_says(all[i].says);
        }
    }
}
#define EXPECT_KNOWN(all, status)                                              \
    expect_known(all, sizeof(all) / sizeof(all)[0], status)
#define OF(id, ...) .of = {.collective = BATON_COLLECTIVE_##id, __VA_ARGS__}
#define LONG        ((size_t)1 << 24)

TEST(test_choices_by_length_and_place)
{
    static const known_t all[] = {
        {OF(ALLREDUCE, .ranks = 16, .bytes = 8), "recursive_doubling"},
        /* If ranks take turns on a processor, rounds count more than
           messages. */
        {OF(ALLREDUCE, .ranks = 8, .bytes = 1 << 16), "rabenseifner"},
        {OF(ALLREDUCE, .ranks = 8, .bytes = 1 << 16, .processors = 2),
         "binomial"},
        {OF(ALLREDUCE, .ranks = 32, .bytes = 1 << 14, .processors = 2), "flat"},
        {OF(ALLREDUCE, .ranks = 8, .bytes = 8, .processors = 2), "flat"},
        {OF(ALLREDUCE, .ranks = 4, .bytes = 8, .processors = 2),
         "recursive_doubling"},
        /* If hosts have several ranks, long vectors are sent between hosts only
           once: by pairs if the numbers are powers of two; otherwise, and if
           the ranks of a host do not follow one another, by the hierarchical
           algorithm. */
        {OF(ALLREDUCE, .ranks = 48, .hosts = 6, .bytes = LONG), "hierarchical"},
        {OF(ALLREDUCE, .ranks = 64, .hosts = 8, .bytes = LONG), "rabenseifner"},
        {OF(ALLREDUCE, .ranks = 64, .hosts = 8, .bytes = LONG,
            .scattered = true),
         "hierarchical"},
        {OF(ALLTOALL, .ranks = 8, .bytes = 8, .uneven = true), "pairwise"},
        /* Two ranks of a host read copies of each other's whole vectors. */
        {OF(ALLREDUCE, .ranks = 2, .bytes = 1 << 18), "pairwise"},
        {OF(ALLREDUCE, .ranks = 2, .bytes = 1 << 20), "recursive_doubling"},
        /* Whole vectors exceed a cache into which halves fit. */
        {OF(ALLREDUCE, .ranks = 2, .hosts = 2, .bytes = 3 << 17),
         "recursive_doubling"},
        {OF(ALLREDUCE, .ranks = 2, .hosts = 2, .bytes = 1 << 19), "ring"},
        {OF(REDUCE, .ranks = 2, .hosts = 2, .bytes = 1 << 22),
         "linear_pipeline"},
        /* The linear pipeline keeps the order of ranks only if the root is at
           an end of the chain, as its header says. */
        {OF(REDUCE, .ranks = 8, .bytes = 64, .ordered = true,
            .root_at_end = true, .algorithm = "linear_pipeline"),
         "linear_pipeline"},
    };
    EXPECT_KNOWN(all, BATON_OK);
}

TEST(test_what_can_not_be_done_names_what_can)
{
    static const known_t all[] = {
        {OF(ALLREDUCE, .ranks = 8, .bytes = 1 << 20, .ordered = true,
            .algorithm = "ring"),
         .says = "allreduce by ring can't do a reduction that is not "
                 "commutative; these can: recursive_doubling binomial "
                 "rabenseifner flat linear_pipeline double_tree"},
        {OF(ALLTOALL, .ranks = 8, .bytes = 8, .uneven = true,
            .algorithm = "bruck"),
         .says = "alltoall by bruck can't do blocks of different sizes; these "
                 "can: pairwise"},
        {OF(REDUCE_SCATTER, .ranks = 8, .bytes = 64, .ordered = true),
         .says = "no algorithm of reduce_scatter can do a reduction that is "
                 "not commutative"},
        {OF(REDUCE_SCATTER, .ranks = 8, .bytes = 64, .ordered = true,
            .algorithm = "ring"),
         .says = "no algorithm of reduce_scatter can do a reduction that is "
                 "not commutative"},
        {OF(REDUCE, .ranks = 8, .bytes = 64, .ordered = true,
            .algorithm = "linear_pipeline"),
         .says = "reduce by linear_pipeline can't do a reduction that is not "
                 "commutative to a root that is not rank 0 or P - 1; these "
                 "can: binomial"},
        {OF(REDUCE, .ranks = 8, .bytes = 64, .ordered = true,
            .root_at_end = true, .algorithm = "scatter_gather"),
         .says = "these can: binomial linear_pipeline"},
    };
    EXPECT_KNOWN(all, BATON_ERR_UNSUPPORTED);
}

TEST(test_wrong_cases_are_refused)
{
    static const known_t all[] = {
        {OF(SCAN, .ranks = 0, .bytes = 8),
         .says = "ranks is 0; allowed: 1 or more"},
        {OF(COUNT, .ranks = 2, .bytes = 8),
         .says = "collective is 11; allowed: 0 to 10"},
        {OF(SCAN, .ranks = 4, .bytes = 8, .hosts = -1),
         .says = "hosts is -1; allowed: 0, which means 1, to 4, the ranks"},
        {OF(SCAN, .ranks = 4, .bytes = 8, .hosts = 5),
         .says = "hosts is 5; allowed: 0, which means 1, to 4, the ranks"},
        {OF(SCAN, .ranks = 4, .bytes = 8, .processors = -1),
         .says = "choice: processors is -1"},
        {OF(BARRIER, .ranks = 4, .ordered = true),
         .says = "ordered is true; must be false, as barrier does not reduce"},
    };
    baton_choice_t choice;
    EXPECT_KNOWN(all, BATON_ERR_INVALID);
    support_expect(baton_choose(NULL, &choice), BATON_ERR_INVALID);
    const dense_builder_t *b;
    for (size_t i = 0; (b = dense_builder_at(i))->chooses; i++) {
        baton_choice_case_t of = case_of(b->algorithm.collective, 4, 8);
        of.ordered = true;
        assert_int_equal(baton_choose(&of, &choice) == BATON_ERR_INVALID,
                         !dense_reduces(b));
    }
}

TEST(test_a_name_overrides_the_variable_and_that_the_costs)
{
    baton_choice_t choice;
    baton_choice_case_t of = case_of(BATON_COLLECTIVE_ALLREDUCE, 8, 8);
    support_set_variable("BATON_ALLREDUCE", "ring");
    support_ok(baton_choose(&of, &choice));
    assert_string_equal(choice.algorithm.name, "ring");
    of.algorithm = "linear_pipeline";
    support_ok(baton_choose(&of, &choice));
    assert_string_equal(choice.algorithm.name, "linear_pipeline");
    assert_true(choice.segment_bytes > 0);
    of.algorithm = NULL;
    support_set_variable("BATON_ALLREDUCE", "recursive_dubling");
    support_fails(baton_choose(&of, &choice), BATON_ERR_INVALID,
                  "the nearest is recursive_doubling");
    support_set_variable("BATON_ALLREDUCE", NULL);
}

TEST(test_a_wrong_variable_is_the_schedules_error)
{
    baton_schedule_t *schedule =
        support_schedule(support_cluster_of(3)->groups[1], "choice");
    baton_broadcast_args_t args = {.size = sizeof args,
                                   .data = support_scratch(schedule, 64)};
    support_set_variable("BATON_BROADCAST", "tree");
    baton_add_broadcast(schedule, &args);
    support_set_variable("BATON_BROADCAST", NULL);
    support_fails(baton_schedule_commit(schedule), BATON_ERR_INVALID,
                  "BATON_BROADCAST: no algorithm of broadcast is called "
                  "\"tree\"");
    support_ok(baton_schedule_destroy(schedule));
}

/* The builder gets the segments of the choice. Segments that the caller gives
   take precedence. */
TEST(test_the_builder_gets_the_segments_of_the_choice)
{
    enum { BYTES = 1 << 20, GIVEN = 4096 };
    baton_choice_t choice;
    baton_choice_case_t of = case_of(BATON_COLLECTIVE_BROADCAST, 3, BYTES);
    of.algorithm = "linear_pipeline";
    support_ok(baton_choose(&of, &choice));
    const size_t segments[] = {choice.segment_bytes, GIVEN};
    assert_int_not_equal(segments[0], 65536); /* the default of the builder */
    support_cluster_t *ranks = support_cluster_of(3);
    for (int i = 0; i < 2; i++) {
        baton_schedule_t **all = support_schedules_create(ranks, "segments");
        for (int rank = 0; rank < 3; rank++) {
            baton_broadcast_args_t args = {
                .size = sizeof args,
                .data = support_scratch(all[rank], BYTES),
                .chunk_bytes = i == 0 ? 0 : GIVEN,
                .algorithm = of.algorithm};
            baton_add_broadcast(all[rank], &args);
        }
        support_schedules_commit(ranks, all);
        support_schedules_run(ranks, all);
        assert_int_equal(baton_schedule_sent(all[0]).messages,
                         BYTES / segments[i]);
        support_schedules_destroy(ranks, all);
    }
}

/* ---- calibration files ------------------------------------------------- */

static char path[64];

static const baton_costs_t measured = {.size = sizeof(baton_costs_t),
                                       .inside = {3.5, 0.125},
                                       .between = {40, 1.25},
                                       .gamma_ns = 0.0625,
                                       .device = {12, 0.0625},
                                       .turn_us = 1.5};

static int open_path(void **state)
{
    (void)snprintf(path, sizeof path, "/tmp/baton_tuning_%ld", (long)getpid());
    return support_clusters_open(state);
}

static int close_path(void **state)
{
    (void)remove(path);
    return support_clusters_close(state);
}

TEST(test_costs_are_read_as_they_were_written)
{
    baton_costs_t costs = BATON_COSTS;
    assert_non_null(strstr(baton_machine_name(), " processors"));
    support_ok(baton_costs_write(path, &measured));
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0600, 0600);
    support_ok(baton_costs_read(path, &costs));
    assert_true(costs.inside.alpha_us == 3.5 && costs.inside.beta_ns == 0.125);
    assert_true(costs.between.alpha_us == 40 && costs.between.beta_ns == 1.25);
    assert_true(costs.gamma_ns == 0.0625);
    assert_true(costs.device.alpha_us == 12 && costs.device.beta_ns == 0.0625);
    assert_true(costs.turn_us == 1.5);
}

TEST(test_the_variable_names_the_file_in_force)
{
    baton_costs_t costs = BATON_COSTS;
    baton_costs_t estimates = BATON_COSTS;
    support_ok(baton_costs_get(&estimates));
    support_ok(baton_costs_write(path, &measured));
    support_set_variable("BATON_CALIBRATION", path);
    support_ok(baton_costs_get(&costs));
    assert_true(costs.inside.alpha_us == 3.5);
    support_set_variable("BATON_CALIBRATION", "/nonexistent/file");
    support_fails(baton_costs_get(&costs), BATON_ERR_SYSTEM,
                  "BATON_CALIBRATION: calibration: can't open \"/nonexistent/");
    baton_choice_t choice;
    baton_choice_case_t of = case_of(BATON_COLLECTIVE_ALLTOALL, 2, 8);
    support_expect(baton_choose(&of, &choice), BATON_ERR_SYSTEM);
    of.uneven = true; /* only one algorithm can do this */
    support_ok(baton_choose(&of, &choice));
    assert_string_equal(choice.algorithm.name, "pairwise");
    /* If the algorithm is named, only the size of segments is chosen. */
    of = case_of(BATON_COLLECTIVE_ALLREDUCE, 4, 1 << 20);
    of.algorithm = "ring";
    support_ok(baton_choose(&of, &choice));
    assert_string_equal(choice.algorithm.name, "ring");
    assert_true(isnan(choice.cost_us));
    of.algorithm = "linear_pipeline";
    support_expect(baton_choose(&of, &choice), BATON_ERR_SYSTEM);
    support_says("BATON_CALIBRATION");
    of.segment_bytes = 12345;
    support_ok(baton_choose(&of, &choice));
    assert_int_equal(choice.segment_bytes, 12345);
    support_set_variable("BATON_CALIBRATION", NULL);
    support_ok(baton_costs_get(&costs));
    assert_true(costs.inside.alpha_us == estimates.inside.alpha_us);
}

/* If a file is wrong after its first costs, nothing of it is used, and the
   earlier file is read again. */
TEST(test_the_variable_names_a_file_again)
{
    baton_costs_t costs = measured;
    char file[80];
    (void)snprintf(file, sizeof file, "%s_short", path);
    costs.inside.alpha_us = 9;
    support_ok(baton_costs_write(file, &costs));
    FILE *shortened = fopen(file, "r+");
    assert_non_null(shortened);
    char text[400];
    size_t bytes = fread(text, 1, sizeof text - 1, shortened);
    text[bytes] = '\0';
    const char *behind = strstr(text, "between");
    assert_non_null(behind);
    assert_int_equal(ftruncate(fileno(shortened), behind - text), 0);
    assert_int_equal(fclose(shortened), 0);
    support_ok(baton_costs_write(path, &measured));
    for (int round = 0; round < 2; round++) {
        support_set_variable("BATON_CALIBRATION", path);
        support_ok(baton_costs_get(&costs));
        assert_true(costs.inside.alpha_us == measured.inside.alpha_us);
        support_set_variable("BATON_CALIBRATION", file);
        support_expect(baton_costs_get(&costs), BATON_ERR_INVALID);
        support_set_variable("BATON_CALIBRATION", "/");
        support_expect(baton_costs_get(&costs), BATON_ERR_INVALID);
    }
    support_set_variable("BATON_CALIBRATION", NULL);
    (void)remove(file);
}

/* Four ranks, one of which has a different calibration. */
static void differ(const char *file, const char *algorithm, size_t chunk_bytes,
                   baton_status_t expected, const char *says)
{
    static float data[4][100000];
    const baton_sim_options_t options = support_sim_options(4);
    baton_sim_t *sim = support_sim_open(&options);
    baton_schedule_t *schedules[4];
    for (int rank = 0; rank < 4; rank++) {
        support_set_variable("BATON_CALIBRATION", rank == 1 ? file : NULL);
        schedules[rank] = support_sim_schedule(sim, rank, "sum");
        baton_allreduce_args_t args = BATON_ALLREDUCE_ARGS;
        args.source = args.target =
            support_view(schedules[rank], data[rank], sizeof data[rank]);
        args.dtype = BATON_F32;
        args.op = BATON_SUM;
        args.algorithm = algorithm;
        args.chunk_bytes = chunk_bytes;
        baton_algorithm_t own = {.build.allreduce = baton_add_allreduce};
        /* The term of its builder is the same. */
        if (rank == 3 && expected == BATON_OK) {
            support_ok(baton_algorithm_find(BATON_COLLECTIVE_ALLREDUCE,
                                            algorithm, &own));
        }
        own.build.allreduce(schedules[rank], &args);
        support_ok(baton_schedule_commit(schedules[rank]));
    }
    support_set_variable("BATON_CALIBRATION", NULL);
    support_expect(baton_sim_run(sim, -1), expected);
    if (says != NULL) {
        support_says(says);
        support_says("BATON_ALLREDUCE or BATON_CALIBRATION");
    }
    for (int rank = 0; rank < 4; rank++) {
        support_ok(baton_schedule_destroy(schedules[rank]));
    }
    support_ok(baton_sim_destroy(sim));
}

TEST(test_ranks_with_other_calibrations_are_told_so)
{
    baton_costs_t costs = measured;
    costs.inside.alpha_us = costs.between.alpha_us = 1e6;
    char file[80]; /* a new name, since a file is read only once */
    (void)snprintf(file, sizeof file, "%s_other", path);
    support_ok(baton_costs_write(file, &costs));
    differ(file, NULL, 0, BATON_ERR_MISMATCH,
           "all-reduce by recursive_doubling: chosen by arguments");
    differ(file, "linear_pipeline", 0, BATON_ERR_MISMATCH, " in segments of ");
    differ(file, "linear_pipeline", 4096, BATON_OK, NULL);
    differ(file, "ring", 0, BATON_OK, NULL);
    (void)remove(file);
}

/* The caller was compiled with a header that has fewer fields. */
TEST(test_costs_fill_what_an_older_struct_has)
{
    baton_costs_t costs[2] = {measured, measured};
    support_ok(baton_costs_write(path, &measured));
    for (int i = 0; i < 2; i++) {
        costs[i].size = offsetof(baton_costs_t, between);
        costs[i].inside.alpha_us = costs[i].gamma_ns = -1;
        support_ok(i == 0 ? baton_costs_get(&costs[i])
                          : baton_costs_read(path, &costs[i]));
        assert_true(costs[i].inside.alpha_us >= 0 && costs[i].gamma_ns < 0);
    }
}

TEST(test_wrong_costs_are_not_written)
{
    static const double wrong[] = {-1, NAN, INFINITY, -INFINITY};
#define COST(member)                                                           \
    {                                                                          \
#member " is ", offsetof(baton_costs_t, member)                        \
    }
    static const struct {
        const char *says;
        size_t offset;
    } members[] = {COST(inside.alpha_us),  COST(inside.beta_ns),
                   COST(between.alpha_us), COST(between.beta_ns),
                   COST(gamma_ns),         COST(device.alpha_us),
                   COST(device.beta_ns),   COST(turn_us)};
    (void)remove(path);
    for (size_t i = 0; i < 4 * sizeof members / sizeof members[0]; i++) {
        baton_costs_t costs = measured;
        memcpy((char *)&costs + members[i / 4].offset, &wrong[i % 4],
               sizeof(double));
        support_fails(baton_costs_write(path, &costs), BATON_ERR_INVALID,
                      members[i / 4].says);
        support_says("must be a finite number that is 0 or more");
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void refuses(const char *text, baton_status_t status, const char *why)
{
    baton_costs_t costs = measured;
    support_write_file(path, "w", text);
    support_fails(baton_costs_read(path, &costs), status, why);
    assert_memory_equal(&costs, &measured, sizeof costs);
}

TEST(test_files_of_others_are_refused)
{
    static const struct {
        const char *lines, *says;
    } wrong[] = {
        {"inside 1 -2\n", "line 3 of"},
        {"inside 1 2\nbetween 1\n", "line 4 of"},
        {"inside 1 2\nbetween 1 2\ngamma nan\n", "line 5 of"},
        {"inside 1 2\nbetween 1 2\ngamma nan\n",
         "is \"gamma nan\", must be \"gamma NS\", finite numbers that are 0"},
        {"inside 1 2\nbetween 3 4\ngamma 5\ndevice 1\n", "line 6"},
        {"inside 1 2\nbetween 3 4\ngamma 5\ndevice 1 2\nturn -1\n", "line 7"},
        {"inside 1 2\nbetween 3 4\ngamma 5\n", "line 6"},
        {"inside 1 2 \n", "line 3"},
        {"inside 1  2\n", "line 3"},
    };
    refuses("", BATON_ERR_INVALID, "line 1 of");
    refuses("baton-calibration 2\n", BATON_ERR_UNSUPPORTED,
            "has version 2, and this Baton reads version 1");
    refuses("baton-calibration 1\nengine VAX\n", BATON_ERR_INVALID,
            "\" is \"engine VAX\", must be \"machine NAME\"");
    refuses("baton-calibration 1\n", BATON_ERR_INVALID, "line 2 of");
    refuses("baton-calibration 1\nmachine PDP-11\n", BATON_ERR_UNSUPPORTED,
            "was made on another machine, \"PDP-11\"; this one is \"");
    char more[600]; /* the file names other machines before this one */
    baton_costs_t costs = measured;
    (void)snprintf(more, sizeof more,
                   "baton-calibration 1\nmachine PDP-11\ninside 1 2\n"
                   "between 3 4\ngamma 5\ndevice 1 2\nturn 9\nmachine VAX\n"
                   "machine %s\n",
                   baton_machine_name());
    support_write_file(path, "w", more);
    support_ok(baton_costs_read(path, &costs));
    assert_true(costs.inside.alpha_us == 1 && costs.turn_us == 9);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[600];
        (void)snprintf(text, sizeof text, "baton-calibration 1\nmachine %s\n%s",
                       baton_machine_name(), wrong[i].lines);
        refuses(text, BATON_ERR_INVALID, wrong[i].says);
    }
}

RUN_TESTS_BETWEEN(open_path, close_path)

/* ---- algorithms of the program ------------------------------------------- */

static void build_on_ring(baton_schedule_t *schedule,
                          const baton_allreduce_args_t *args)
{
    baton_add_allreduce_ring(schedule, args);
}

/* An algorithm of the program can be found, listed and used by its name. It is
   never chosen otherwise. This is the last test, since the table keeps what it
   adds. */
TEST(test_an_algorithm_of_the_program_is_used_by_its_name)
{
    char name[49] = "own";
    baton_algorithm_t own = {.collective = BATON_COLLECTIVE_ALLREDUCE,
                             .name = name,
                             .build.allreduce = build_on_ring,
                             .segmented = true};
    baton_choice_case_t of = case_of(BATON_COLLECTIVE_ALLREDUCE, 4, 4096);
    baton_choice_t before;
    baton_choice_t choice;
    size_t count = 0;
    support_ok(baton_choose(&of, &before));
    support_ok(baton_algorithm_add(&own));
    name[0] = 'x'; /* the library has copied the name */
    support_ok(baton_choose(&of, &choice));
    assert_string_equal(choice.algorithm.name, before.algorithm.name);
    of.algorithm = "own";
    of.segment_bytes = 512;
    support_ok(baton_choose(&of, &choice));
    assert_ptr_equal(choice.algorithm.build.allreduce, build_on_ring);
    assert_int_equal(choice.segment_bytes, 512);
    assert_true(isnan(choice.cost_us));
    of.ordered = true;
    support_fails(baton_choose(&of, &choice), BATON_ERR_UNSUPPORTED,
                  "allreduce by own can't do");
    of = case_of(BATON_COLLECTIVE_ALLREDUCE, 4, 4096);
    support_set_variable("BATON_ALLREDUCE", "own");
    support_ok(baton_choose(&of, &choice));
    assert_string_equal(choice.algorithm.name, "own");
    assert_int_equal(choice.segment_bytes, 0);
    support_set_variable("BATON_ALLREDUCE", NULL);
    for (baton_algorithm_t each; baton_algorithm_get(count, &each); count++) {
    }
    own.name = "own";
    support_fails(baton_algorithm_add(&own), BATON_ERR_INVALID,
                  "allreduce already has an algorithm of the name own");
    own.name = "a name";
    support_fails(baton_algorithm_add(&own), BATON_ERR_INVALID,
                  "name must be of 1 to 47 letters, digits, - and _");
    own.name = memset(name, 'x', 48);
    support_fails(baton_algorithm_add(&own), BATON_ERR_INVALID, "name must");
    own.name = "second";
    own.cost = before.algorithm.cost;
    support_fails(baton_algorithm_add(&own), BATON_ERR_INVALID,
                  "second: build must be set, and phases, cost and work must");
    own.cost = NULL;
    own.build.allreduce = NULL;
    support_fails(baton_algorithm_add(&own), BATON_ERR_INVALID, "build must");
    own.build.allreduce = build_on_ring;
    own.collective = BATON_COLLECTIVE_COUNT;
    support_fails(baton_algorithm_add(&own), BATON_ERR_INVALID,
                  "collective is");
    support_fails(baton_algorithm_add(NULL), BATON_ERR_INVALID, "algorithm");
    own.collective = BATON_COLLECTIVE_ALLREDUCE;
    for (int i = 1; i < 32; i++) {
        (void)snprintf(name, sizeof name, "own%d", i);
        own.name = name;
        support_ok(baton_algorithm_add(&own));
    }
    own.name = "one_more";
    support_fails(baton_algorithm_add(&own), BATON_ERR_LIMIT,
                  "there are 32 algorithms already");
    assert_false(baton_algorithm_get(count + 31, &own));
}
