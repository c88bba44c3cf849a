/* BATON_VERIFY=1: a commit succeeds on all ranks or fails on all ranks, with
   the same message.

   Each rank sends its graph to rank 0, the root, which simulates an epoch of
   all graphs and sends the result to all ranks:

       report    status of local checks, size of the graph ---->  root
       answer    <------- an error, or how many blocks follow     root
       blocks    the graph, block by block -------------------->  root
       answer    <-------------- the result of the simulation     root

   Two schedules that are created with the group carry these messages: an epoch
   allocates nothing, so a rank without memory can still report that, and no
   rank waits for it in vain. Some ranks may still wait, or get another status
   than others, if a rank never commits, or dies and the transport can't tell;
   if BATON_VERIFY is set on some ranks only; or if, after the result, a
   transport fails to post an armed receive on one rank. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"
#include "progress/calls/calls.h"
#include "sim/sim.h"
#include "sim/simulate_graphs.h"

#include <stdio.h>
#include <string.h>

/* The most bytes of a graph that are sent in one round. */
enum { BLOCK_BYTES = 16384 };

/* The first block that a rank sends. */
typedef struct report {
    int32_t status;
    char name[BATON__SIM_GRAPH_NAME];
    char sentence[BATON__MESSAGE_BYTES];
    uint64_t bytes; /* the size of the rank's graph */
} report_t;
static_assert(sizeof(report_t) <= BLOCK_BYTES, "a report is one block");

typedef struct answer {
    int32_t status;
    uint32_t rounds; /* how many blocks each rank sends next */
    char sentence[BATON__MESSAGE_BYTES];
} answer_t;

struct baton__verifier {
    const baton_group_t *group;
    baton_schedule_t *gather; /* sends a block of each rank to rank 0 */
    baton_schedule_t *spread; /* sends the answer to all ranks */
    /* Memory for the messages of `gather`: this rank's block; on rank 0 a block
       of each rank. */
    char *blocks;
    answer_t answer;
};

/* ---- the two schedules -------------------------------------------------- */

/* Creates and commits a schedule with one message of `bytes` between rank 0 and
   each other rank. On rank 0 the messages lie in `memory` in the order of
   ranks, `stride` bytes apart; the first place is rank 0's own. */
static baton_status_t connect(baton_group_t *group, const char *name,
                              bool to_zero, void *memory, size_t bytes,
                              size_t stride, baton_schedule_t **out)
{
    baton_status_t status = baton_schedule_create(group, name, out);
    if (status != BATON_OK) {
        return status;
    }
    bool zero = group->rank == 0;
    int first = zero ? 1 : 0;
    int last = zero ? group->size - 1 : 0;
    baton_buffer_t buffer =
        baton_buffer_bind(*out, memory, (size_t)last * stride + bytes);
    for (int peer = first; peer <= last; peer++) {
        baton_view_t view = baton_view(buffer, (size_t)peer * stride, bytes);
        if (zero == to_zero) {
            (void)baton_add_recv(*out, peer, view);
        } else {
            (void)baton_add_send(*out, peer, view);
        }
    }
    return baton__commit_unverified(*out);
}

static void verify_destroy(baton__verifier_t *verifier)
{
    baton_status_t gather = baton_schedule_destroy(verifier->gather);
    baton_status_t spread = baton_schedule_destroy(verifier->spread);
    /* If a schedule is still busy, one of its sends may read the blocks. */
    if (gather == BATON_OK && spread == BATON_OK) {
        baton__free(verifier->blocks);
        baton__free(verifier);
    }
}

static baton_status_t verify_create(baton_group_t *group,
                                    baton__verifier_t **out)
{
    size_t blocks = group->rank == 0 ? (size_t)group->size : 1;
    baton__verifier_t *verifier = baton__alloc(1, sizeof *verifier);
    char *memory = baton__alloc(blocks, BLOCK_BYTES);
    if (verifier == NULL || memory == NULL) {
        baton__free(verifier);
        baton__free(memory);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "group: no memory for BATON_VERIFY=1");
    }
    verifier->group = group;
    verifier->blocks = memory;
    baton_status_t status =
        connect(group, "verify/gather", true, memory, BLOCK_BYTES, BLOCK_BYTES,
                &verifier->gather);
    if (status == BATON_OK) {
        status = connect(group, "verify/spread", false, &verifier->answer,
                         sizeof verifier->answer, 0, &verifier->spread);
    }
    if (status != BATON_OK) {
        verify_destroy(verifier);
        return status;
    }
    *out = verifier;
    return BATON_OK;
}

static baton_status_t verify_run(baton_schedule_t *schedule)
{
    baton_status_t status = baton_schedule_start(schedule);
    baton__thread_patience++;
    status = status == BATON_OK ? baton_schedule_wait(schedule, -1) : status;
    baton__thread_patience--;
    return status;
}

/* ---- reports and answers ------------------------------------------------ */

/* Returns this thread's error message without "commit of NAME failed", with
   which it may begin. */
static const char *reason(const char *name)
{
    static const char commit[] = "commit of ";
    static const char failed[] = " failed";
    const char *message = baton_error_message();
    const char *at = message;
    size_t length = strlen(name);
    at += strncmp(at, commit, strlen(commit)) == 0 ? strlen(commit) : 0;
    if (*at != '"' || strncmp(at + 1, name, length) != 0 ||
        at[1 + length] != '"') {
        return message;
    }
    at += length + 2;
    at += strncmp(at, failed, strlen(failed)) == 0 ? strlen(failed) : 0;
    at += *at == ':';
    return *at == ' ' ? at + 1 : at;
}

static const report_t *report_of(const baton__verifier_t *verifier, int rank)
{
    return (const void *)&verifier->blocks[(size_t)rank * BLOCK_BYTES];
}

static void verify_report(baton__verifier_t *verifier, const char *name,
                          baton_status_t status, size_t bytes)
{
    report_t own = {.status = status, .bytes = bytes};
    (void)snprintf(own.name, sizeof own.name, "%s", name);
    (void)snprintf(own.sentence, sizeof own.sentence, "%s",
                   status != BATON_OK ? reason(name) : "");
    memcpy(verifier->blocks, &own, sizeof own);
}

static void verify_answer(baton__verifier_t *verifier, const char *name,
                          baton_status_t status, uint32_t rounds)
{
    answer_t *answer = &verifier->answer;
    *answer = (answer_t){.status = status, .rounds = rounds};
    (void)snprintf(answer->sentence, sizeof answer->sentence, "%s",
                   status != BATON_OK ? reason(name) : "");
}

/* Returns the number of bytes of a graph that are sent in a round. */
static size_t verify_part_bytes(size_t bytes, uint32_t round)
{
    size_t at = (size_t)round * BLOCK_BYTES;
    size_t left = at < bytes ? bytes - at : 0;
    return left < BLOCK_BYTES ? left : BLOCK_BYTES;
}

/* ---- the other ranks -------------------------------------------------- */

static baton_status_t verify_as_other(baton__verifier_t *verifier,
                                      const char *graph, size_t bytes)
{
    baton_status_t status = verify_run(verifier->gather);
    if (status == BATON_OK) {
        status = verify_run(verifier->spread);
    }
    if (status != BATON_OK || verifier->answer.status != BATON_OK) {
        return status;
    }
    uint32_t rounds = verifier->answer.rounds;
    for (uint32_t i = 0; i < rounds && status == BATON_OK; i++) {
        size_t part = verify_part_bytes(bytes, i);
        if (part > 0) {
            memcpy(verifier->blocks, graph + (size_t)i * BLOCK_BYTES, part);
        }
        status = verify_run(verifier->gather);
    }
    return status == BATON_OK ? verify_run(verifier->spread) : status;
}

/* ---- rank 0 ----------------------------------------------------------- */

/* Frees the graphs of all ranks but rank 0. The first graph is rank 0's own,
   and its caller frees that. */
static void free_graphs(baton__sim_packed_graph_t *graphs, int ranks)
{
    for (int rank = 1; graphs != NULL && rank < ranks; rank++) {
        baton__free(graphs[rank].data);
    }
    baton__free(graphs);
}

/* Allocates memory for the graphs, whose sizes the ranks have reported. Fails
   unless there is also enough memory to simulate the graphs. */
static baton_status_t alloc_graphs(const baton__verifier_t *verifier, char *own,
                                   baton__sim_packed_graph_t **out)
{
    /* A packed node takes 24 bytes, and the simulator takes ten times as many
       for it. */
    enum { TIMES = 11 };
    char consumer[64];
    int ranks = verifier->group->size;
    double bytes = 0.0;
    for (int rank = 0; rank < ranks; rank++) {
        bytes += (double)report_of(verifier, rank)->bytes;
    }
    (void)snprintf(consumer, sizeof consumer, "the graphs of %d ranks", ranks);
    baton_status_t status = baton__sim_check_memory(
        TIMES * bytes, consumer, "commit without BATON_VERIFY");
    if (status != BATON_OK) {
        return status;
    }
    baton__sim_packed_graph_t *graphs =
        baton__alloc((size_t)ranks, sizeof *graphs);
    bool enough = graphs != NULL;
    for (int rank = 0; rank < ranks && enough; rank++) {
        const report_t *from = report_of(verifier, rank);
        memcpy(graphs[rank].name, from->name, sizeof from->name);
        graphs[rank].bytes = (size_t)from->bytes;
        graphs[rank].data =
            rank == 0 ? own : baton__alloc(graphs[rank].bytes, 1);
        enough = graphs[rank].data != NULL;
    }
    if (!enough) {
        free_graphs(graphs, ranks);
        return baton__error(BATON_ERR_NO_MEMORY,
                            "no memory on rank 0 for the graphs of %d ranks",
                            ranks);
    }
    *out = graphs;
    return BATON_OK;
}

/* Returns the error of the lowest rank that reports one or commits a different
   schedule than rank 0. If there is none, sets *rounds to the number of rounds
   in which the largest graph is sent. */
static baton_status_t read_reports(const baton__verifier_t *verifier,
                                   uint32_t *rounds)
{
    uint64_t most = 0;
    for (int rank = 0; rank < verifier->group->size; rank++) {
        const report_t *from = report_of(verifier, rank);
        if (from->status != BATON_OK) {
            char text[BATON__MESSAGE_BYTES + 32];
            (void)snprintf(text, sizeof text, "rank %d: %s", rank,
                           from->sentence);
            return baton__error_forward(baton__failure_of(from->status), text);
        }
        if (strcmp(from->name, report_of(verifier, 0)->name) != 0) {
            return baton__error(
                BATON_ERR_MISMATCH,
                "rank 0 commits \"%s\" while rank %d commits \"%s\": with "
                "BATON_VERIFY=1 all ranks must commit in the same order",
                report_of(verifier, 0)->name, rank, from->name);
        }
        most = from->bytes > most ? from->bytes : most;
    }
    *rounds = (uint32_t)((most + BLOCK_BYTES - 1) / BLOCK_BYTES);
    return BATON_OK;
}

static baton_status_t verify_collect(baton__verifier_t *verifier,
                                     baton__sim_packed_graph_t *graphs,
                                     uint32_t rounds)
{
    baton_status_t status = BATON_OK;
    for (uint32_t i = 0; i < rounds && status == BATON_OK; i++) {
        status = verify_run(verifier->gather);
        for (int rank = 1; rank < verifier->group->size && status == BATON_OK;
             rank++) {
            memcpy(graphs[rank].data + (size_t)i * BLOCK_BYTES,
                   &verifier->blocks[(size_t)rank * BLOCK_BYTES],
                   verify_part_bytes(graphs[rank].bytes, i));
        }
    }
    return status;
}

static baton_status_t verify_as_root(baton__verifier_t *verifier,
                                     const char *name, char *graph)
{
    baton_status_t status = verify_run(verifier->gather);
    if (status != BATON_OK) {
        return status;
    }
    baton__sim_packed_graph_t *graphs = NULL;
    uint32_t rounds = 0;
    baton_status_t result = read_reports(verifier, &rounds);
    if (result == BATON_OK) {
        result = alloc_graphs(verifier, graph, &graphs);
    }
    verify_answer(verifier, name, result, rounds);
    status = verify_run(verifier->spread);
    if (status == BATON_OK && graphs != NULL) {
        status = verify_collect(verifier, graphs, rounds);
        if (status == BATON_OK) {
            result = baton__sim_simulate_graphs(graphs, verifier->group->size);
            verify_answer(verifier, name, result, 0);
            status = verify_run(verifier->spread);
        }
    }
    free_graphs(graphs, verifier->group->size);
    return status;
}

/* ---- every rank --------------------------------------------------------- */

static baton_status_t verify(baton__verifier_t *verifier,
                             const baton_schedule_t *schedule,
                             baton_status_t local)
{
    const char *name = schedule->name;
    size_t bytes = 0;
    char *graph = NULL;
    if (local == BATON_OK) {
        bytes = baton__pack_bytes(schedule);
        graph = baton__alloc(bytes, 1);
        if (graph != NULL) {
            baton__pack(schedule, graph);
        } else {
            bytes = 0;
            local =
                baton__error(BATON_ERR_NO_MEMORY,
                             "no memory to send its %u nodes", schedule->count);
        }
    }
    verify_report(verifier, name, local, bytes);
    baton_status_t status = verifier->group->rank == 0
                                ? verify_as_root(verifier, name, graph)
                                : verify_as_other(verifier, graph, bytes);
    baton__free(graph);
    if (status != BATON_OK) {
        return baton__error(status,
                            "commit of \"%s\" failed: the ranks can't agree "
                            "on it: %s",
                            name, baton_error_message());
    }
    status = (baton_status_t)verifier->answer.status;
    return status == BATON_OK
               ? BATON_OK
               : baton__error(status,
                              "commit of \"%s\" failed on all ranks: %s", name,
                              verifier->answer.sentence);
}

static const baton__verification_t verification = {
    .create = verify_create,
    .destroy = verify_destroy,
    .verify = verify,
};

/* The function that users call. It is defined here, and not in progress,
   because it lets the engine's groups verify by simulation, and progress must
   not call the simulator. */
baton_status_t baton_engine_open(const baton_engine_options_t *options,
                                 baton_engine_t **out)
{
    return baton__engine_open(options, &verification, out);
}
