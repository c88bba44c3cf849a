/* The group of all processes that one launcher has started. Launchers tell each
   process its rank by variables; a folder is the store. */
#include <baton/inproc.h>
#include <baton/store.h>

#include "base/config.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The names of a launcher's variables. */
typedef struct launcher {
    const char *rank, *size;
    const char *local_size; /* number of ranks on this host */
    /* Variables whose values together distinguish the jobs of a user. */
    const char *job[3];
} launcher_t;

/* The order matters: if torchrun runs under srun, the variables of both exist,
   and those of torchrun count. */
static const launcher_t launchers[] = {
    {.rank = "RANK", /* torchrun, or a shell */
     .size = "WORLD_SIZE",
     .local_size = "LOCAL_WORLD_SIZE",
     .job = {"TORCHELASTIC_RUN_ID", "MASTER_PORT",
             "TORCHELASTIC_RESTART_COUNT"}},
    {.rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = {"PMIX_NAMESPACE"}},
    {.rank = "PMI_RANK", /* MPICH's mpiexec */
     .size = "PMI_SIZE",
     .local_size = "MPI_LOCALNRANKS"},
    {.rank = "SLURM_PROCID",
     .size = "SLURM_STEP_NUM_TASKS",
     .local_size = "SLURM_STEP_TASKS_PER_NODE",
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

typedef struct world {
    const char *function;
    int rank, size;
    char job[80];    /* names the job in file names; "" if it has no name */
    bool is_own;     /* Baton has chosen the folder, not the user */
    char path[160];  /* the path of the folder */
    char group[100]; /* the group's name in the store */
} world_t;

/* Reads a variable whose value is a number that is not negative. Slurm lists
   the ranks of its hosts as "4(x2)" or "4,3", of which this function takes the
   first number. Returns -1 if there is none. */
static int world_number(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long value = text == NULL ? -1 : strtol(text, &end, 10);
    return end == text || (*end != '\0' && *end != '(' && *end != ',') ||
                   value < 0 || value > INT_MAX
               ? -1
               : (int)value;
}

static const launcher_t *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (getenv(launchers[i].rank) != NULL &&
            getenv(launchers[i].size) != NULL) {
            return &launchers[i];
        }
    }
    return NULL;
}

static void name_job(const launcher_t *launcher, world_t *out)
{
    baton__text_t text = {.data = out->job, .size = sizeof out->job};
    for (int i = 0; i < 3 && launcher->job[i] != NULL; i++) {
        const char *value = getenv(launcher->job[i]);
        baton__text_add(&text, "%s%s", value != NULL && i > 0 ? "." : "",
                        value != NULL ? value : "");
    }
    for (char *at = out->job; *at != '\0'; at++) {
        *at = isalnum((unsigned char)*at) ? *at : '_';
    }
}

/* Finds the rank, the size, and the names of the folder and the group. */
static baton_status_t world_read(const launcher_t *launcher, world_t *out)
{
    /* Number of calls so far. All ranks make their groups in the same order, so
       the k-th call is about the same group on all ranks. */
    static _Atomic unsigned calls;
    const unsigned call = atomic_fetch_add(&calls, 1);
    const char *given = baton__config_text(BATON__CONFIG_STORE);
    const int local = world_number(launcher->local_size);
    out->rank = world_number(launcher->rank);
    out->size = world_number(launcher->size);
    if (out->rank < 0 || out->rank >= out->size) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: %s is \"%s\", and %s \"%s\": ranks count from "
                            "0 to one less than the size",
                            out->function, launcher->rank,
                            getenv(launcher->rank), launcher->size,
                            getenv(launcher->size));
    }
    name_job(launcher, out);
    (void)snprintf(out->group, sizeof out->group, "world.%s.%u", out->job,
                   call);
    out->is_own = given[0] == '\0';
    if (!out->is_own) {
        return snprintf(out->path, sizeof out->path, "%s", given) <
                       (int)sizeof out->path
                   ? BATON_OK
                   : baton__error(BATON_ERR_INVALID,
                                  "%s: the path in BATON_STORE is too long",
                                  out->function);
    }
    if (local >= 0 && local != out->size) {
        return baton__error(BATON_ERR_INVALID,
                            "%s: %d of the %d ranks are on this host (%s): set "
                            "BATON_STORE to a folder that all hosts see",
                            out->function, local, out->size,
                            launcher->local_size);
    }
    /* All ranks that a shell, or the launcher of one host, has started have the
       same parent. So the parent's process number distinguishes jobs that have
       no name. */
    (void)snprintf(out->path, sizeof out->path, "/tmp/baton-%u-%s.%d.%u",
                   (unsigned)geteuid(), out->job,
                   out->job[0] == '\0' ? (int)getppid() : 0, call);
    return BATON_OK;
}

/* Makes the folder, or finds the one that another rank has made, and stores a
   descriptor of it. No other user may write to it. */
static baton_status_t make_folder(const world_t *world, int *fd_out)
{
    struct stat found;
    if (mkdir(world->path, 0700) != 0 && errno != EEXIST) {
        return baton__error(BATON_ERR_SYSTEM, "%s: mkdir %s: %s",
                            world->function, world->path,
                            baton__errno_text(errno));
    }
    if (lstat(world->path, &found) != 0 || !S_ISDIR(found.st_mode) ||
        found.st_uid != geteuid() || (found.st_mode & 077) != 0) {
        return baton__error(BATON_ERR_SYSTEM,
                            "%s: %s must be a folder of this user alone",
                            world->function, world->path);
    }
    *fd_out = baton__descriptor_move(
        open(world->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    (void)flock(*fd_out, LOCK_SH);
    return BATON_OK;
}

/* Leaves the folder. If the group was made, rank 0 removes the folder. Else the
   last rank does that, so that the others can still say who has come: each rank
   locks the folder as long as it is in it. */
static void leave_folder(const world_t *world, int *fd, bool made)
{
    const bool removes =
        made ? world->rank == 0 : flock(*fd, LOCK_EX | LOCK_NB) == 0;
    DIR *folder = removes ? opendir(world->path) : NULL;
    const struct dirent *each;
    while (folder != NULL && (each = readdir(folder)) != NULL) {
        (void)unlinkat(dirfd(folder), each->d_name, 0);
    }
    if (folder != NULL) {
        (void)closedir(folder);
        (void)rmdir(world->path);
    }
    baton__descriptor_close(fd);
}

baton_status_t baton_group_create_world(baton_engine_t *engine, int timeout_ms,
                                        baton_group_t **out)
{
    const launcher_t *launcher = find_launcher();
    world_t world = {.function = __func__};
    baton_store_t store;
    int fd = -1;
    if (launcher == NULL) {
        return baton_group_create_self(engine, out);
    }
    baton_status_t status = world_read(launcher, &world);
    if (status == BATON_OK && world.is_own) {
        status = make_folder(&world, &fd);
    }
    if (status == BATON_OK) {
        status = baton_store_open_folder(world.path, &store);
    }
    if (status == BATON_OK) {
        status =
            baton_group_create_store(engine, &store, world.rank, world.size,
                                     world.group, timeout_ms, out);
        baton_store_close_folder(&store);
    }
    if (fd >= 0) {
        leave_folder(&world, &fd, status == BATON_OK);
    }
    if (status == BATON_ERR_TIMEOUT && world.is_own && world.job[0] == '\0') {
        status = baton__error(status,
                              "%s. Ranks that a shell starts must be its "
                              "children, without another program such as "
                              "timeout between them; if they can't, set "
                              "BATON_STORE to an empty folder",
                              baton_error_message());
    }
    return status;
}
