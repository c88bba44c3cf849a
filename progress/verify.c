/* BATON_VERIFY=1: commit compares every send with its receive across ranks.

   Three all-to-all exchanges, each a schedule of its own over the group: how
   many messages each rank has for each other; their sizes and nodes; what each
   rank found. So either all ranks commit or none does, with the same sentence.
 */
#include "progress/engine.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

typedef struct entry {
    uint64_t bytes;
    uint32_t node;
    uint32_t kind; /* baton__kind_t */
} entry_t;

enum { SEVERITY_NONE, SEVERITY_MISMATCH, SEVERITY_LOCAL };

typedef struct verdict {
    int32_t severity;
    int32_t status;
    char sentence[BATON__SENTENCE_BYTES];
} verdict_t;

typedef struct lists {
    uint32_t *first; /* of each rank's entries; size + 1 of them */
    entry_t *entries;
} lists_t;

static bool is_outgoing(uint8_t kind)
{
    return kind == BATON__SEND || kind == BATON__ACTIVATE;
}

/* Activations follow a pair's plain messages, as tags do. */
static bool is_activation(uint32_t kind)
{
    return kind == BATON__ACTIVATE || kind == BATON__ARMED_RECV;
}

/* Sends `bytes_out[p]` bytes at out + at_out[p] to each rank p, and receives
   likewise. Blocks until done. */
static baton_status_t exchange(baton_group_t *group, const char *what,
                               const void *out, const size_t *at_out, void *in,
                               const size_t *at_in)
{
    baton_schedule_t *schedule;
    int size = group->size;
    baton_status_t status = baton_schedule_create(group, what, &schedule);
    if (status != BATON_OK) {
        return status;
    }
    baton_buffer_t source =
        baton_buffer_bind_input(schedule, out, at_out[size], BATON_MEMORY_HOST);
    baton_buffer_t target =
        baton_buffer_bind(schedule, in, at_in[size], BATON_MEMORY_HOST);
    for (int peer = 0; peer < size; peer++) {
        size_t outgoing = at_out[peer + 1] - at_out[peer];
        size_t incoming = at_in[peer + 1] - at_in[peer];
        if (outgoing > 0) {
            (void)baton_add_send(schedule, peer,
                                 baton_view(source, at_out[peer], outgoing));
        }
        if (incoming > 0) {
            (void)baton_add_recv(schedule, peer,
                                 baton_view(target, at_in[peer], incoming));
        }
    }
    status = baton__commit_unverified(schedule);
    if (status == BATON_OK) {
        status = baton_schedule_start(schedule);
    }
    if (status == BATON_OK) {
        status = baton_schedule_wait(schedule, -1);
    }
    baton_schedule_destroy(schedule);
    return status;
}

/* Offsets of `size` parts of `bytes` each; with first[]: of its differences. */
static void place(size_t *at, int size, const uint32_t *first, size_t bytes)
{
    for (int p = 0; p <= size; p++) {
        at[p] = bytes * (first != NULL ? first[p] : (uint32_t)p);
    }
}

/* Counts, then lists, a graph's messages by peer, plain ones first. */
static baton_status_t list_messages(const baton_schedule_t *schedule,
                                    bool outgoing, lists_t *lists)
{
    int size = schedule->group->size;
    uint32_t *next = baton__alloc((size_t)size + 1, sizeof *next);
    lists->first = baton__alloc((size_t)size + 1, sizeof *lists->first);
    lists->entries = baton__alloc(schedule->count, sizeof *lists->entries);
    if (next == NULL || lists->first == NULL || lists->entries == NULL) {
        baton__free(next);
        return BATON_ERR_NO_MEMORY;
    }
    for (int pass = 0; pass < 3; pass++) {
        for (uint32_t i = 0; i < schedule->count; i++) {
            const baton__op_t *op = &schedule->ops[i];
            if (!baton__kinds[op->kind].message ||
                is_outgoing(op->kind) != outgoing) {
                continue;
            }
            if (pass == 0) {
                lists->first[op->peer + 1]++;
            } else if (is_activation(op->kind) == (pass == 2)) {
                lists->entries[next[op->peer]++] =
                    (entry_t){op->bytes, i, op->kind};
            }
        }
        for (int p = 0; pass == 0 && p < size; p++) {
            lists->first[p + 1] += lists->first[p];
            next[p] = lists->first[p];
        }
        if (pass == 0) {
            next[size] = lists->first[size];
        }
    }
    baton__free(next);
    return BATON_OK;
}

static void judge_pair(const baton_schedule_t *schedule, int peer,
                       const lists_t *mine, const lists_t *theirs,
                       verdict_t *verdict)
{
    const entry_t *receive = &mine->entries[mine->first[peer]];
    const entry_t *send = &theirs->entries[theirs->first[peer]];
    uint32_t receives = mine->first[peer + 1] - mine->first[peer];
    uint32_t sends = theirs->first[peer + 1] - theirs->first[peer];
    uint32_t common = receives < sends ? receives : sends;
    int rank = schedule->group->rank;
    verdict->severity = SEVERITY_MISMATCH;
    verdict->status = BATON_ERR_MISMATCH;
    for (uint32_t k = 0; k < common; k++) {
        if (receive[k].bytes != send[k].bytes ||
            is_activation(receive[k].kind) != is_activation(send[k].kind)) {
            (void)snprintf(
                verdict->sentence, sizeof verdict->sentence,
                "%s#%u of rank %d has %llu bytes and its receiver, %s#%u of "
                "rank %d, %llu",
                baton__kinds[send[k].kind].name, send[k].node, peer,
                (unsigned long long)send[k].bytes,
                baton__kinds[receive[k].kind].name, receive[k].node, rank,
                (unsigned long long)receive[k].bytes);
            return;
        }
    }
    if (sends > receives) {
        (void)snprintf(verdict->sentence, sizeof verdict->sentence,
                       "%s#%u of rank %d has no receive on rank %d, which has "
                       "%u from there",
                       baton__kinds[send[common].kind].name, send[common].node,
                       peer, rank, receives);
    } else if (receives > sends) {
        (void)snprintf(verdict->sentence, sizeof verdict->sentence,
                       "%s#%u of rank %d has no send on rank %d, which has %u "
                       "to there",
                       baton__kinds[receive[common].kind].name,
                       receive[common].node, rank, peer, sends);
    } else {
        verdict->severity = SEVERITY_NONE;
        verdict->status = BATON_OK;
    }
}

/* Gets every peer's list of sends to this rank. at: room for 2 * (size + 1). */
static baton_status_t fetch_lists(const baton_schedule_t *schedule,
                                  const lists_t *sends, lists_t *theirs,
                                  size_t *at)
{
    baton_group_t *group = schedule->group;
    int size = group->size;
    size_t *at_in = at + size + 1;
    uint32_t *counts = baton__alloc((size_t)size, sizeof *counts);
    theirs->first = baton__alloc((size_t)size + 1, sizeof *theirs->first);
    if (counts == NULL || theirs->first == NULL) {
        baton__free(counts);
        return BATON_ERR_NO_MEMORY;
    }
    for (int p = 0; p < size; p++) {
        counts[p] = sends->first[p + 1] - sends->first[p];
    }
    place(at, size, NULL, sizeof *counts);
    baton_status_t status =
        exchange(group, "verify/counts", counts, at, theirs->first + 1, at);
    baton__free(counts);
    if (status != BATON_OK) {
        return status;
    }
    for (int p = 0; p < size; p++) {
        theirs->first[p + 1] += theirs->first[p];
    }
    theirs->entries = baton__alloc(theirs->first[size], sizeof(entry_t));
    if (theirs->entries == NULL) {
        return BATON_ERR_NO_MEMORY;
    }
    place(at, size, sends->first, sizeof(entry_t));
    place(at_in, size, theirs->first, sizeof(entry_t));
    return exchange(group, "verify/lists", sends->entries, at, theirs->entries,
                    at_in);
}

/* Everybody hears everybody's verdict; the worst one of the lowest rank is the
   result, the same on all ranks. */
static baton_status_t agree(const baton_schedule_t *schedule,
                            const verdict_t *mine, verdict_t *outgoing,
                            verdict_t *incoming, size_t *at)
{
    int size = schedule->group->size;
    for (int p = 0; p < size; p++) {
        outgoing[p] = *mine;
    }
    place(at, size, NULL, sizeof *mine);
    baton_status_t status = exchange(schedule->group, "verify/verdicts",
                                     outgoing, at, incoming, at);
    if (status != BATON_OK) {
        return status;
    }
    const verdict_t *worst = &incoming[0];
    for (int p = 1; p < size; p++) {
        worst = incoming[p].severity > worst->severity ? &incoming[p] : worst;
    }
    if (worst->severity == SEVERITY_NONE) {
        return BATON_OK;
    }
    return baton__error((baton_status_t)worst->status,
                        "commit of \"%s\" failed on all ranks: rank %d: %s",
                        schedule->name, (int)(worst - incoming),
                        worst->sentence);
}

/* A rank whose own checks failed takes part with a graph without messages. */
static baton_status_t list_both(const baton_schedule_t *schedule,
                                baton_status_t local, lists_t *sends,
                                lists_t *receives)
{
    baton_schedule_t nothing = {.group = schedule->group};
    const baton_schedule_t *graph = local == BATON_OK ? schedule : &nothing;
    baton_status_t status = list_messages(graph, true, sends);
    return status == BATON_OK ? list_messages(graph, false, receives) : status;
}

baton_status_t baton__verify(const baton_schedule_t *schedule,
                             baton_status_t local)
{
    size_t size = (size_t)schedule->group->size;
    lists_t sends = {0};
    lists_t receives = {0};
    lists_t theirs = {0};
    verdict_t mine = {.severity = SEVERITY_NONE};
    if (local != BATON_OK) {
        mine.severity = SEVERITY_LOCAL;
        mine.status = local;
        (void)snprintf(mine.sentence, sizeof mine.sentence, "%s",
                       baton_error_message());
    }
    size_t *at = baton__alloc(2 * (size + 1), sizeof *at);
    verdict_t *verdicts = baton__alloc(2 * size, sizeof *verdicts);
    baton_status_t status = BATON_ERR_NO_MEMORY;
    if (at != NULL && verdicts != NULL) {
        status = list_both(schedule, local, &sends, &receives);
    }
    if (status == BATON_OK) {
        status = fetch_lists(schedule, &sends, &theirs, at);
    }
    for (size_t p = 0;
         p < size && status == BATON_OK && mine.severity == SEVERITY_NONE;
         p++) {
        judge_pair(schedule, (int)p, &receives, &theirs, &mine);
    }
    if (status == BATON_OK) {
        status = agree(schedule, &mine, verdicts, verdicts + size, at);
    } else if (status == BATON_ERR_NO_MEMORY) {
        status = baton__error(status,
                              "commit of \"%s\" failed: no memory to verify it",
                              schedule->name);
    }
    baton__free(verdicts);
    baton__free(at);
    baton__free(theirs.first);
    baton__free(theirs.entries);
    baton__free(receives.first);
    baton__free(receives.entries);
    baton__free(sends.first);
    baton__free(sends.entries);
    return status;
}
