#include "top/top.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

void *top_resize(void *array, size_t count, size_t size)
{
    void *resized = reallocarray(array, count > 0 ? count : 1, size);
    if (resized == NULL) {
        (void)fputs("baton-top: no memory\n", stderr);
        exit(EXIT_FAILURE);
    }
    return resized;
}

baton_status_t top_job_open(int process, top_job_t *out)
{
    baton_status_t status;
    baton_board_t *board = NULL;
    *out = (top_job_t){.process = process};
    while ((status = baton_board_open(process, out->count, &board)) ==
           BATON_OK) {
        out->boards = top_resize(out->boards, (size_t)out->count + 1,
                                 sizeof *out->boards);
        out->boards[out->count++] = board;
    }
    return out->count > 0 ? BATON_OK : status;
}

void top_job_close(top_job_t *job)
{
    for (int i = 0; i < job->count; i++) {
        baton_board_close(job->boards[i]);
    }
    free(job->boards);
    job->boards = NULL;
}

static bool shares_board(const top_job_t *a, const top_job_t *b)
{
    for (int i = 0; i < a->count; i++) {
        for (int k = 0; k < b->count; k++) {
            if (baton_board_id(a->boards[i]) == baton_board_id(b->boards[k])) {
                return true;
            }
        }
    }
    return false;
}

bool top_job_follow(top_job_t *job)
{
    if (kill(job->process, 0) == 0 || errno != ESRCH) {
        return true;
    }
    top_job_t *jobs;
    bool found = false;
    for (int i = top_job_list(&jobs) - 1; i >= 0; i--) {
        top_job_t old = jobs[i];
        if (!found && shares_board(job, &jobs[i])) {
            found = true;
            old = *job;
            *job = jobs[i];
        }
        top_job_close(&old);
    }
    free(jobs);
    return found;
}

int top_job_list(top_job_t **out)
{
    top_job_t *jobs = NULL;
    int count = 0;
    DIR *processes = opendir("/proc");
    const struct dirent *each;
    while (processes != NULL && (each = readdir(processes)) != NULL) {
        char *end = NULL;
        long process = strtol(each->d_name, &end, 10);
        top_job_t job;
        if (*end != '\0' || top_job_open((int)process, &job) != BATON_OK) {
            continue;
        }
        bool known = false;
        for (int i = 0; i < count && !known; i++) {
            known = shares_board(&jobs[i], &job);
        }
        if (known) {
            top_job_close(&job);
        } else {
            jobs = top_resize(jobs, (size_t)count + 1, sizeof *jobs);
            jobs[count++] = job;
        }
    }
    if (processes != NULL) {
        (void)closedir(processes);
    }
    *out = jobs;
    return count;
}

/* Replaces bytes of a name that are not printable UTF-8 by '?'. An application
   may give a schedule any name, and a long name is cut off, perhaps inside a
   character. */
static void make_printable(char *name)
{
    while (*name != '\0') {
        wchar_t character;
        size_t bytes = mbrtowc(&character, name, MB_LEN_MAX, &(mbstate_t){0});
        if (bytes > MB_LEN_MAX || !iswprint((wint_t)character)) {
            *name = '?';
            bytes = 1;
        }
        name += bytes;
    }
}

bool top_same_process(const baton_board_entry_t *a,
                      const baton_board_entry_t *b)
{
    return a->process == b->process && a->container == b->container;
}

void top_add_entry(top_reading_t *to, const top_entry_t *entry)
{
    to->entries = top_resize(to->entries, to->count + 1, sizeof *to->entries);
    to->entries[to->count++] = *entry;
}

void top_read(const top_job_t *job, top_reading_t *to)
{
    const size_t first = to->count;
    int least = INT_MAX;
    for (int i = 0; i < job->count; i++) {
        size_t at = 0;
        top_entry_t entry = {.host = 0};
        while (baton_board_next(job->boards[i], &at, &entry.of)) {
            make_printable(entry.of.name);
            least = entry.of.process < least ? entry.of.process : least;
            top_add_entry(to, &entry);
        }
    }
    for (size_t i = first; i < to->count; i++) {
        const baton_board_entry_t *largest = &to->entries[i].of;
        for (size_t k = to->count; k-- > first;) {
            const baton_board_entry_t *other = &to->entries[k].of;
            if (other->size >= largest->size &&
                top_same_process(other, &to->entries[i].of)) {
                largest = other;
            }
        }
        to->entries[i].of.rank = largest->rank;
        to->entries[i].job = least;
    }
}

bool top_is_first(const top_reading_t *reading, size_t index)
{
    size_t i = 0;
    while (reading->entries[i].of.key != reading->entries[index].of.key) {
        i++;
    }
    return i == index;
}

const baton_board_entry_t *top_find(const top_reading_t *reading,
                                    const baton_board_entry_t *like)
{
    for (size_t i = 0; i < reading->count; i++) {
        const baton_board_entry_t *entry = &reading->entries[i].of;
        if (entry->key == like->key && top_same_process(entry, like)) {
            return entry;
        }
    }
    return NULL;
}

void top_add(baton_lateness_t *to, const baton_lateness_t *more, uint64_t times)
{
    uint64_t *sums = (void *)to;
    const uint64_t *counts = (const void *)more;
    for (size_t i = 0; i < sizeof *to / sizeof *sums; i++) {
        sums[i] += times * counts[i];
    }
}

top_reading_t top_since(const top_reading_t *now, const top_reading_t *earlier)
{
    top_reading_t since = {.error_ns = now->error_ns};
    for (size_t i = 0; i < now->count; i++) {
        top_add_entry(&since, &now->entries[i]);
        const baton_board_entry_t *entry = &now->entries[i].of;
        const baton_board_entry_t *old = top_find(earlier, entry);
        baton_lateness_t *counts = &since.entries[i].of.lateness;
        if (old != NULL && old->lateness.epochs <= entry->lateness.epochs) {
            top_add(counts, &old->lateness, UINT64_MAX);
            counts->started = entry->lateness.started;
            counts->ended = entry->lateness.ended;
        }
    }
    return since;
}
