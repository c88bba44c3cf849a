/* Several hosts. On each other host this program starts a baton-top, which
   sends the entries that it reads there. The times at which the ranks of all
   hosts came to epochs are then compared, although each host has its own clock.

   A request is a byte. To CLOCK the other host replies with the time by its
   clock, and to READ with the entries of all its jobs. Each reply ends with a
   new line, because srun passes on only what ends with one. All hosts must be
   read nearly at once, because a rank keeps only its last few times. The offset
   between two clocks is wrong by at most half of the time from a request CLOCK
   to its reply. */
#include "common/measure.h"
#include "top/top.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CLOCK = 'c',
    READ = 'r',
    TRIES = 8, /* number of requests CLOCK when a host is connected */
    /* The longest wait for a reply. The first reply may come late because the
       user has to type a password. */
    LONGEST_S = 10,
    LEAST_SAMPLES = 4, /* the fewest samples by which ranks are compared */
    MOST_SAMPLES = 2 * BATON_LATENESS_CAME /* the samples of two readings */
};

/* The most by which two clocks may diverge, in ns a second. */
#define DRIFT UINT64_C(50000)

#define TIME_MASK ((UINT64_C(1) << BATON_LATENESS_TIME_BITS) - 1)

/* The head of a reply to READ, before the entries. If the other host has
   another version of baton-top, entry_bytes differs. */
typedef struct reply {
    uint64_t entry_bytes, count;
} reply_t;

struct top_host {
    const char *name;
    /* The process that connects to the host; 0: the host does not reply. */
    pid_t process;
    int fd;
    /* ahead_ns: the host's clock minus this host's clock, as measured at the
       time found_ns. error_ns: the most by which that was wrong. */
    uint64_t ahead_ns, error_ns, found_ns;
};

static uint64_t clock_ns(void)
{
    return (uint64_t)(clock_now_us() * 1e3);
}

/* ---- the other host ------------------------------------------------------ */

static void end_reply(void)
{
    (void)putchar('\n');
    (void)fflush(stdout);
}

int top_serve(void)
{
    int request = READ;
    while (request == READ && ferror(stdout) == 0) {
        /* Listing jobs takes tens of milliseconds, so it comes before the
           request. */
        top_job_t *jobs;
        const int count = top_job_list(&jobs);
        while ((request = getchar()) == CLOCK) {
            const uint64_t now_ns = clock_ns();
            (void)fwrite(&now_ns, sizeof now_ns, 1, stdout);
            end_reply();
        }
        top_reading_t all = {0};
        for (int i = 0; i < count; i++) {
            top_read(&jobs[i], &all);
            top_job_close(&jobs[i]);
        }
        free(jobs);
        const reply_t reply = {sizeof *all.entries, all.count};
        if (request == READ) {
            (void)fwrite(&reply, sizeof reply, 1, stdout);
            (void)fwrite(all.entries, sizeof *all.entries, all.count, stdout);
            end_reply();
        }
        free(all.entries);
    }
    return EXIT_SUCCESS;
}

/* ---- requests ------------------------------------------------------------ */

/* Sends a request. If it can't be sent, the wait for the reply fails. */
static void ask(const top_host_t *host, char request)
{
    (void)!send(host->fd, &request, 1, MSG_NOSIGNAL);
}

static bool receive(const top_host_t *host, void *reply, size_t bytes)
{
    size_t got = 0;
    ssize_t more = 1;
    while (got < bytes && more != 0) {
        more = read(host->fd, (char *)reply + got, bytes - got);
        /* A read with a time-out also ends when this process is stopped and
           continued. */
        more = more < 0 && errno != EINTR ? 0 : more;
        got += (size_t)(more > 0 ? more : 0);
    }
    return got == bytes;
}

static bool receive_end(const top_host_t *host)
{
    char end;
    return receive(host, &end, 1) && end == '\n';
}

/* Measures how far the host's clock is ahead. Keeps the stored result if it is
   more precise, although its error has grown by the clocks' drift since. */
static bool ask_clock(top_host_t *host)
{
    uint64_t his_ns;
    const uint64_t before_ns = clock_ns();
    ask(host, CLOCK);
    if (!receive(host, &his_ns, sizeof his_ns) || !receive_end(host)) {
        return false;
    }
    const uint64_t now_ns = clock_ns();
    const uint64_t error_ns = (now_ns - before_ns + 1) / 2;
    const uint64_t drift_ns =
        (now_ns - host->found_ns) / 1000000 * DRIFT / 1000;
    if (host->found_ns == 0 || error_ns <= host->error_ns + drift_ns) {
        host->ahead_ns = his_ns - before_ns - error_ns;
        host->error_ns = error_ns;
        host->found_ns = now_ns;
    }
    return true;
}

static void give_up(top_host_t *host)
{
    (void)fprintf(stderr,
                  "baton-top: host %s: no reply, or another version of "
                  "baton-top\n",
                  host->name);
    (void)close(host->fd);
    /* A process that ignores the signal is not waited for. */
    if (host->process > 0 && waitpid(host->process, NULL, WNOHANG) == 0) {
        (void)kill(host->process, SIGTERM);
    }
    host->process = 0;
}

/* Starts `via HOST baton-top --serve`. */
static bool connect_host(top_host_t *host, const char *via)
{
    int ends[2];
    char path[4096];
    char command[4200];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    path[length] = '\0';
    (void)snprintf(command, sizeof command, "exec %s \"$@\"", via);
    const struct timeval longest = {.tv_sec = LONGEST_S};
    (void)setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &longest,
                     sizeof longest);
    host->fd = ends[0];
    host->process = fork();
    if (host->process == 0) {
        (void)dup2(ends[1], STDIN_FILENO);
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)execl("/bin/sh", "sh", "-c", command, "sh", host->name, path,
                    "--serve", (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    bool replies = host->process > 0;
    for (int i = 0; i < TRIES && replies; i++) {
        replies = ask_clock(host);
    }
    return replies;
}

top_host_t *top_hosts_open(char *names, const char *via, int *count_out)
{
    int count = 1;
    for (const char *at = names; *at != '\0'; at++) {
        count += *at == ',';
    }
    top_host_t *hosts = top_resize(NULL, (size_t)count, sizeof *hosts);
    *count_out = 0;
    for (char *rest, *name = strtok_r(names, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        top_host_t *host = &hosts[(*count_out)++];
        *host = (top_host_t){.name = name, .fd = -1};
        if (!connect_host(host, via)) {
            give_up(host);
        }
    }
    return hosts;
}

/* True if the entry's process belongs to the job: it has a schedule in common
   with the first `own` entries of `to`. `from` has all entries of its host. */
static bool is_of_job(const top_reading_t *to, size_t own,
                      const top_reading_t *from,
                      const baton_board_entry_t *entry)
{
    for (size_t i = 0; i < from->count; i++) {
        const baton_board_entry_t *other = &from->entries[i].of;
        for (size_t k = 0; k < own && top_same_process(other, entry); k++) {
            if (to->entries[k].of.key == other->key) {
                return true;
            }
        }
    }
    return false;
}

/* Adds the entries of the job's ranks that a host has sent. Leaves out entries
   that `to` has already: processes of several emulated hosts see each other's
   boards. */
static void take_entries(top_reading_t *to, size_t own, const top_host_t *host,
                         int number, const top_reading_t *from)
{
    for (size_t i = 0; i < from->count; i++) {
        top_entry_t entry = {.of = from->entries[i].of, .host = number};
        bool taken = !is_of_job(to, own, from, &entry.of);
        for (size_t k = 0; k < to->count && !taken; k++) {
            taken = to->entries[k].of.key == entry.of.key &&
                    to->entries[k].of.rank == entry.of.rank;
        }
        for (int k = 0; k < BATON_LATENESS_CAME; k++) {
            const uint64_t word = entry.of.came[k];
            if (word != 0) {
                entry.of.came[k] =
                    (word & ~TIME_MASK) | ((word - host->ahead_ns) & TIME_MASK);
            }
        }
        if (!taken) {
            /* Processes of two hosts may have the same number. */
            entry.of.container ^= (unsigned)number * 0x9e3779b1U;
            top_add_entry(to, &entry);
        }
    }
}

void top_hosts_ask(top_host_t *hosts, int count)
{
    for (int i = 0; i < count; i++) {
        if (hosts[i].process != 0 && !ask_clock(&hosts[i])) {
            give_up(&hosts[i]);
        }
    }
    for (int i = 0; i < count; i++) {
        if (hosts[i].process != 0) {
            ask(&hosts[i], READ);
        }
    }
}

void top_hosts_read(top_host_t *hosts, int count, top_reading_t *to)
{
    const size_t own = to->count;
    top_reading_t from = {0};
    to->error_ns = 0;
    for (int i = 0; i < count; i++) {
        reply_t reply;
        top_entry_t entry;
        if (hosts[i].process == 0) {
            continue;
        }
        bool replies = receive(&hosts[i], &reply, sizeof reply) &&
                       reply.entry_bytes == sizeof entry;
        from.count = 0;
        for (uint64_t k = 0; replies && k < reply.count; k++) {
            replies = receive(&hosts[i], &entry, sizeof entry);
            if (replies) {
                top_add_entry(&from, &entry);
            }
        }
        if (!replies || !receive_end(&hosts[i])) {
            give_up(&hosts[i]);
            continue;
        }
        take_entries(to, own, &hosts[i], i + 1, &from);
        to->error_ns =
            hosts[i].error_ns > to->error_ns ? hosts[i].error_ns : to->error_ns;
    }
    free(from.entries);
}

const char *top_hosts_name(const top_host_t *hosts, int number)
{
    static char own[256];
    (void)gethostname(own, sizeof own - 1);
    return number == 0 ? own : hosts[number - 1].name;
}

/* ---- comparing the hosts' ranks ------------------------------------------ */

/* The ranks of a schedule, and when they came to epochs. */
typedef struct comparison {
    top_entry_t **entries;
    int ranks, samples;
    /* For each sample and rank: when the rank came to the sample's epoch, in ns
       after the first of `entries` came. */
    int64_t *arrival_ns;
} comparison_t;

static int64_t *arrival_at(const comparison_t *self, int sample, int rank)
{
    return &self->arrival_ns[sample * self->ranks + rank];
}

/* Returns the word in entry->came that has this mark; 0 if there is none. */
static uint64_t find_word(const baton_board_entry_t *entry, uint64_t mark)
{
    for (int i = 0; entry != NULL && i < BATON_LATENESS_CAME; i++) {
        if ((entry->came[i] & ~TIME_MASK) == mark && entry->came[i] != 0) {
            return entry->came[i];
        }
    }
    return 0;
}

/* Adds a sample for each epoch in first->came to which all ranks have come, by
   this reading or the one before. */
static void take_samples(comparison_t *self, const top_reading_t *before,
                         const baton_board_entry_t *first)
{
    for (int i = 0; first != NULL && i < BATON_LATENESS_CAME; i++) {
        const uint64_t mark = first->came[i] & ~TIME_MASK;
        const baton_board_entry_t *newest = &self->entries[0]->of;
        bool complete = first->came[i] != 0 &&
                        (first == newest || find_word(newest, mark) == 0);
        for (int rank = 0; rank < self->ranks && complete; rank++) {
            const baton_board_entry_t *entry = &self->entries[rank]->of;
            uint64_t word = find_word(entry, mark);
            if (word == 0) {
                word = find_word(top_find(before, entry), mark);
            }
            const int shift = 64 - BATON_LATENESS_TIME_BITS;
            complete = word != 0;
            *arrival_at(self, self->samples, rank) =
                (int64_t)((word - first->came[i]) << shift) /
                (INT64_C(1) << shift);
        }
        self->samples += complete;
    }
}

/* Stores the times at which the first and the last rank of a host came; if
   `host` is -1, those of all hosts. */
static void find_ends(const comparison_t *self, int sample, int host,
                      int64_t *first_out, int64_t *last_out)
{
    *first_out = INT64_MAX;
    *last_out = INT64_MIN;
    for (int rank = 0; rank < self->ranks; rank++) {
        const int64_t arrival_ns = *arrival_at(self, sample, rank);
        if (host < 0 || self->entries[rank]->host == host) {
            *first_out = arrival_ns < *first_out ? arrival_ns : *first_out;
            *last_out = arrival_ns > *last_out ? arrival_ns : *last_out;
        }
    }
}

static int by_time(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Sorts the values, and returns the middle one. */
static int64_t middle(int64_t *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_time);
    return values[count / 2];
}

/* Shifts the times of a host towards those of another host, by at most the
   error between their clocks. So a difference that the error could explain does
   not count as lateness. */
static void shift_host(comparison_t *self, int host, int to, int64_t error_ns)
{
    int64_t apart[MOST_SAMPLES];
    int64_t first, his, last;
    for (int i = 0; i < self->samples; i++) {
        find_ends(self, i, to, &first, &last);
        find_ends(self, i, host, &his, &last);
        /* The host may have no rank of this schedule. */
        apart[i] = his < INT64_MAX ? his - first : 0;
    }
    int64_t shift = middle(apart, self->samples);
    shift = shift > error_ns ? error_ns : shift;
    shift = shift < -error_ns ? -error_ns : shift;
    for (int rank = 0; rank < self->ranks; rank++) {
        for (int i = 0; i < self->samples && self->entries[rank]->host == host;
             i++) {
            *arrival_at(self, i, rank) -= shift;
        }
    }
}

/* Replaces a rank's counts by counts from the samples, as if each of its timed
   epochs had taken the median of the samples: the mean of a few epochs would
   say little about the mean of many. */
static void count_samples(const comparison_t *self, int rank)
{
    baton_lateness_t *of = &self->entries[rank]->of.lateness;
    const uint64_t samples = (uint64_t)self->samples;
    int64_t late_ns[MOST_SAMPLES], waited_ns[MOST_SAMPLES];
    int64_t after_ns[MOST_SAMPLES];
    uint64_t last = 0;
    memset(of->late_bins, 0, sizeof of->late_bins);
    for (int i = 0; i < self->samples; i++) {
        const int64_t arrival_ns = *arrival_at(self, i, rank);
        int64_t first_ns, last_ns, before_ns = INT64_MIN;
        find_ends(self, i, -1, &first_ns, &last_ns);
        for (int k = 0; k < self->ranks; k++) {
            const int64_t other_ns = *arrival_at(self, i, k);
            before_ns =
                k != rank && other_ns > before_ns ? other_ns : before_ns;
        }
        last += before_ns < arrival_ns;
        after_ns[i] = before_ns < arrival_ns ? arrival_ns - before_ns : 0;
        late_ns[i] = arrival_ns - first_ns;
        waited_ns[i] = last_ns - arrival_ns;
        size_t bin = 0;
        for (int64_t us = late_ns[i] / 1000;
             us > 0 && bin < BATON_LATENESS_BINS - 1; us /= 2) {
            bin++;
        }
        /* The bins together then have the sum `timed`. */
        of->late_bins[bin] += of->timed * (uint64_t)(i + 1) / samples -
                              of->timed * (uint64_t)i / samples;
    }
    of->late_ns = of->timed * (uint64_t)middle(late_ns, self->samples);
    of->behind_ns = of->timed * (uint64_t)middle(after_ns, self->samples);
    of->waited_ns = of->timed * (uint64_t)middle(waited_ns, self->samples);
    of->waited_ns = of->waited_ns < of->took_ns ? of->waited_ns : of->took_ns;
    of->last = of->timed * last / samples;
}

/* Gives all ranks the histogram of the collective's own time from the host
   whose ranks come last: on the other hosts that time includes the wait for it.
 */
static void share_own_time(const comparison_t *self)
{
    int latest = 0;
    double most = -1e300;
    uint64_t bins[BATON_LATENESS_BINS] = {0};
    for (int rank = 0; rank < self->ranks; rank++) {
        double sum = 0;
        for (int i = 0; i < self->samples; i++) {
            int64_t first_ns, last_ns;
            find_ends(self, i, self->entries[rank]->host, &first_ns, &last_ns);
            sum += (double)last_ns;
        }
        latest = sum > most ? self->entries[rank]->host : latest;
        most = sum > most ? sum : most;
    }
    for (int rank = 0; rank < self->ranks; rank++) {
        for (int bin = 0;
             bin < BATON_LATENESS_BINS && self->entries[rank]->host == latest;
             bin++) {
            bins[bin] += self->entries[rank]->of.lateness.own_bins[bin];
        }
    }
    for (int rank = 0; rank < self->ranks; rank++) {
        memcpy(self->entries[rank]->of.lateness.own_bins, bins, sizeof bins);
    }
}

static void compare(comparison_t *self, const top_reading_t *before,
                    uint64_t error_ns)
{
    bool counted = true;
    int least = self->entries[0]->host, most = least;
    for (int rank = 0; rank < self->ranks; rank++) {
        const top_entry_t *entry = self->entries[rank];
        counted &= entry->of.lateness.timed > 0;
        least = entry->host < least ? entry->host : least;
        most = entry->host > most ? entry->host : most;
    }
    take_samples(self, before, &self->entries[0]->of);
    take_samples(self, before, top_find(before, &self->entries[0]->of));
    if (most == least || !counted || self->samples < LEAST_SAMPLES) {
        return;
    }
    /* Each clock was compared with this host's clock. So the errors of two
       other hosts' clocks add up. */
    error_ns = least == 0 ? error_ns : 2 * error_ns;
    for (int host = least + 1; host <= most; host++) {
        shift_host(self, host, least, (int64_t)error_ns);
    }
    share_own_time(self);
    for (int rank = 0; rank < self->ranks; rank++) {
        count_samples(self, rank);
    }
}

void top_hosts_compare(top_reading_t *shown, const top_reading_t *before)
{
    comparison_t all = {
        .entries = top_resize(NULL, shown->count, sizeof *all.entries),
        .arrival_ns = top_resize(NULL, (shown->count + 1) * MOST_SAMPLES,
                                 sizeof *all.arrival_ns)};
    for (size_t first = 0; first < shown->count; first++) {
        if (!top_is_first(shown, first)) {
            continue;
        }
        all.ranks = all.samples = 0;
        for (size_t i = first; i < shown->count; i++) {
            if (shown->entries[i].of.key == shown->entries[first].of.key) {
                all.entries[all.ranks++] = &shown->entries[i];
            }
        }
        compare(&all, before, shown->error_ns);
    }
    free(all.entries);
    free(all.arrival_ns);
}
