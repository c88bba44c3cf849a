/* How the ranks of an MPI group meet: who shares a host with whom, what they
   share there, and how ranks on other hosts can be woken. Every step is
   collective, and every rank goes through all of them. */
#include "transport/mpi/endpoint.h"

#include "base/alloc.h"
#include "base/config.h"
#include "base/error.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A host's ranks, while they meet. */
typedef struct host {
    MPI_Comm comm;
    int size;
    int index; /* of this rank */
} host_t;

/* Whether a thing is so on all ranks. */
static bool all_of(MPI_Comm comm, bool mine)
{
    int here = mine;
    int all = 0;
    return MPI_Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, comm) ==
               MPI_SUCCESS &&
           all != 0;
}

/* ---- shared memory ---------------------------------------------------- */

/* The steps of share.h: all ranks of the host open it, or none does. */
static bool open_host(baton__mpi_t *mpi, const host_t *host)
{
    struct {
        char name[BATON__SHARE_NAME_BYTES];
        int buffers;
        int made;
    } plan = {{0}, 0, 0};
    if (host->index == 0) {
        int wanted = (int)baton__config_number(BATON__CONFIG_SHM_BUFFERS);
        baton__share_name(plan.name);
        plan.buffers = baton__host_afford(host->size, wanted);
        plan.made = baton__host_open(&mpi->host, plan.name, host->size, 0,
                                     plan.buffers, true) == BATON_OK;
    }
    bool open = plan.made != 0;
    if (MPI_Bcast(&plan, sizeof plan, MPI_BYTE, 0, host->comm) != MPI_SUCCESS) {
        plan.made = 0;
    }
    if (host->index != 0 && plan.made != 0) {
        open = baton__host_open(&mpi->host, plan.name, host->size, host->index,
                                plan.buffers, false) == BATON_OK;
    }
    bool all = all_of(host->comm, open);
    if (host->index == 0) {
        baton__share_unlink(plan.name); /* also what could only be begun */
    }
    return all;
}

static bool reach_all(const baton__mpi_t *mpi)
{
    for (int i = 0; i < mpi->host.count; i++) {
        if (!baton__bell_reaches(&mpi->host.bell, i)) {
            return false;
        }
    }
    return true;
}

/* The numbers of the host's ranks on it. */
static void number(baton__mpi_t *mpi, const host_t *host)
{
    MPI_Group all;
    MPI_Group here;
    MPI_Comm_group(mpi->comm, &all);
    MPI_Comm_group(host->comm, &here);
    for (int i = 0; i < host->size; i++) {
        int rank = MPI_UNDEFINED;
        MPI_Group_translate_ranks(here, 1, &i, all, &rank);
        mpi->peers[rank].near = i;
    }
    MPI_Group_free(&all);
    MPI_Group_free(&here);
}

/* False: the ranks of the host have nothing in common but MPI. */
static bool share(baton__mpi_t *mpi, const host_t *host)
{
    bool wanted = baton__config_number(BATON__CONFIG_SHM) != 0;
    bool reads = baton__config_number(BATON__CONFIG_CMA) != 0;
    if (host->size == 1 || !all_of(host->comm, wanted)) {
        return false;
    }
    if (!open_host(mpi, host) || !all_of(host->comm, reach_all(mpi))) {
        baton__host_close(&mpi->host);
        return false;
    }
    mpi->reads = all_of(host->comm, reads && baton__host_probe(&mpi->host));
    number(mpi, host);
    if (mpi->host.buffers > 0) {
        mpi->transport.copy_bytes = BATON__HOST_BUFFER_BYTES;
    }
    return true;
}

static baton_status_t meet_host(baton__mpi_t *mpi, const host_t *host)
{
    if (share(mpi, host)) {
        return BATON_OK;
    }
    mpi->peers[mpi->rank].near = 0;
    mpi->reads = true;
    return baton__host_open(&mpi->host, NULL, 1, 0, 0, false);
}

/* ---- processors ------------------------------------------------------- */

/* What the control group of this process gives it, in whole processors; 0: no
   bound is known. */
static int quota(void)
{
    char limit[32];
    double period = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (file == NULL) {
        return 0;
    }
    bool read = fscanf(file, "%31s %lf", limit, &period) == 2;
    (void)fclose(file);
    double share = read && period > 0 ? atof(limit) / period : 0; /* "max": 0 */
    return share > 0 && share < INT_MAX - 1 ? (int)(share + 0.999) : 0;
}

/* The processors on which any of the host's ranks may run. */
static void count_processors(baton__mpi_t *mpi, const host_t *host)
{
    cpu_set_t mine;
    cpu_set_t all;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 ||
        MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR,
                      host->comm) != MPI_SUCCESS) {
        return;
    }
    int count = CPU_COUNT(&all);
    int most = quota();
    mpi->transport.host_processors = most > 0 && most < count ? most : count;
}

/* Of the whole job, which Open MPI tells. */
static int count_ranks(const host_t *host)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    long job = text != NULL ? strtol(text, NULL, 10) : 0;
    return job > host->size && job < INT_MAX ? (int)job : host->size;
}

/* ---- other hosts ------------------------------------------------------ */

static void count_far(baton__mpi_t *mpi)
{
    mpi->far.peers = 0;
    for (int i = 0; i < mpi->size; i++) {
        mpi->far.peers += mpi->peers[i].near < 0;
    }
}

/* Tells all ranks where this one is. */
static baton_status_t exchange_places(baton__mpi_t *mpi, const host_t *host)
{
    baton__links_t *links = &mpi->far.links;
    baton__link_place_t place = {0};
    uint64_t nonce = mpi->rank == 0 ? baton__share_random() : 0;
    baton__link_place_t *places =
        baton__alloc((size_t)mpi->size, sizeof *places);
    if (mpi->far.peers > 0) {
        baton__links_open(links, mpi->rank, mpi->size, host->size == mpi->size,
                          &place);
    }
    baton_status_t status = baton__mpi_agree(
        mpi->comm, places != NULL
                       ? BATON_OK
                       : baton__error(BATON_ERR_NO_MEMORY,
                                      "mpi: no memory for the places "
                                      "of %d ranks",
                                      mpi->size));
    if (status != BATON_OK) {
        baton__free(places);
        return status;
    }
    int code = MPI_Bcast(&nonce, 1, MPI_UINT64_T, 0, mpi->comm);
    if (code == MPI_SUCCESS) {
        code = MPI_Allgather(&place, sizeof place, MPI_BYTE, places,
                             sizeof place, MPI_BYTE, mpi->comm);
    }
    if (code != MPI_SUCCESS || links->epoll < 0) {
        baton__free(places);
    } else {
        links->nonce = nonce;
        links->places = places;
    }
    return code == MPI_SUCCESS ? BATON_OK
                               : baton__mpi_error("MPI_Allgather", code);
}

/* ---- all of it -------------------------------------------------------- */

/* Settings that all ranks must have alike: BATON_VERIFY on any is on all. */
static void agree_on_settings(baton__mpi_t *mpi)
{
    int mine = baton__config_number(BATON__CONFIG_VERIFY) != 0;
    int any = mine;
    (void)MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, mpi->comm);
    mpi->transport.verify = any != 0;
}

static void count_hosts(baton__mpi_t *mpi, const host_t *host)
{
    int leads = host->index == 0;
    int hosts = leads;
    (void)MPI_Allreduce(&leads, &hosts, 1, MPI_INT, MPI_SUM, mpi->comm);
    mpi->transport.hosts = hosts;
}

baton_status_t baton__mpi_meet(baton__mpi_t *mpi)
{
    host_t host;
    int code = MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, mpi->rank,
                                   MPI_INFO_NULL, &host.comm);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Comm_split_type", code);
    }
    MPI_Comm_size(host.comm, &host.size);
    MPI_Comm_rank(host.comm, &host.index);
    mpi->transport.host_ranks = count_ranks(&host);
    count_processors(mpi, &host);
    baton_status_t status = meet_host(mpi, &host);
    status = baton__mpi_agree(mpi->comm, status);
    if (status == BATON_OK) {
        count_far(mpi);
        agree_on_settings(mpi);
        count_hosts(mpi, &host);
        status = exchange_places(mpi, &host);
    }
    (void)MPI_Comm_free(&host.comm);
    return status;
}
