/* What the ranks of an MPI group agree on while it is made: one outcome, and
   who shares a host with whom. */
#include "transport/mpi_internal.h"

#include "base/config.h"
#include "base/error.h"
#include "transport/share.h"

#include <limits.h>
#include <stdlib.h>

baton_status_t baton__mpi_error(const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
        length = 0;
    }
    return baton__error(BATON_ERR_TRANSPORT, "mpi: %s: %.*s", call, length,
                        text);
}

baton_status_t baton__mpi_agree(MPI_Comm comm, baton_status_t local)
{
    int mine = local;
    int worst = local;
    int code = MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, comm);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Allreduce", code);
    }
    if (local == BATON_OK && worst != BATON_OK) {
        return baton__error((baton_status_t)worst,
                            "mpi: the group could not be made on another rank "
                            "(%s), whose message says more",
                            baton_status_text((baton_status_t)worst));
    }
    return local;
}

/* bells[rank] := its number on this host, or -1. Not collective. */
static void number_bells(baton__mpi_t *mpi, MPI_Comm host, int host_size)
{
    MPI_Group all;
    MPI_Group here;
    MPI_Comm_group(mpi->comm, &all);
    MPI_Comm_group(host, &here);
    for (int i = 0; i < mpi->size; i++) {
        mpi->bells[i] = -1;
    }
    for (int i = 0; i < host_size; i++) {
        int rank = MPI_UNDEFINED;
        MPI_Group_translate_ranks(here, 1, &i, all, &rank);
        if (rank != MPI_UNDEFINED) {
            mpi->bells[rank] = i;
        }
    }
    MPI_Group_free(&all);
    MPI_Group_free(&here);
}

/* The steps of share.h: all ranks open their bell, or none does. */
static baton_status_t open_bells(baton__mpi_t *mpi, MPI_Comm host, int size,
                                 int index)
{
    char name[BATON__SHARE_NAME_BYTES] = {0};
    baton_status_t status = BATON_OK;
    if (index == 0) {
        baton__share_name(name);
        status = baton__doorbell_open(name, size, index, true, &mpi->bell);
    }
    int code = MPI_Bcast(name, sizeof name, MPI_CHAR, 0, host);
    if (code != MPI_SUCCESS && !status) {
        status = baton__mpi_error("MPI_Bcast", code);
    }
    status = baton__mpi_agree(host, status);
    if (!status) {
        if (index != 0) {
            status = baton__doorbell_open(name, size, index, false, &mpi->bell);
        }
        status = baton__mpi_agree(host, status);
    }
    if (index == 0) {
        baton__share_unlink(name);
    }
    return status;
}

/* Likewise the slots, but where there are none it works without. */
static void open_slots(baton__mpi_t *mpi, MPI_Comm host, int size, int index)
{
    struct {
        char name[BATON__SHARE_NAME_BYTES];
        int each;
    } plan = {{0}, 0};
    if (index == 0) {
        baton__share_name(plan.name);
        plan.each = baton__slots_afford(size);
        if (plan.each > 0 && baton__slots_open(plan.name, size, index,
                                               plan.each, true, &mpi->slots)) {
            plan.each = 0;
        }
    }
    int mine = 0;
    int all = 0;
    if (MPI_Bcast(&plan, sizeof plan, MPI_BYTE, 0, host) == MPI_SUCCESS &&
        plan.each > 0) {
        if (index != 0) {
            (void)baton__slots_open(plan.name, size, index, plan.each, false,
                                    &mpi->slots);
        }
        mine = mpi->slots != NULL;
        MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, host);
    }
    if (index == 0) {
        baton__share_unlink(plan.name); /* also what could only be begun */
    }
    if (!all) {
        baton__slots_close(mpi->slots);
        mpi->slots = NULL;
    }
}

/* Open MPI tells how many ranks of the whole job are here. */
static int count_neighbours(int size)
{
    const char *text = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    long job = text ? strtol(text, NULL, 10) : 0;
    return job > size && job < INT_MAX ? (int)job : size;
}

static baton_status_t find_host(baton__mpi_t *mpi, MPI_Comm host)
{
    int size = 1;
    int index = 0;
    MPI_Comm_size(host, &size);
    MPI_Comm_rank(host, &index);
    mpi->transport.host_ranks = count_neighbours(size);
    if (size == 1) {
        mpi->all_reached = mpi->size == 1;
        return BATON_OK;
    }
    number_bells(mpi, host, size);
    baton_status_t status = open_bells(mpi, host, size, index);
    if (status) {
        return status;
    }
    open_slots(mpi, host, size, index);
    mpi->all_reached = true;
    for (int i = 0; i < mpi->size; i++) {
        if (mpi->bells[i] >= 0 &&
            !baton__doorbell_reaches(mpi->bell, mpi->bells[i])) {
            mpi->bells[i] = -1;
        }
        mpi->all_reached = mpi->all_reached && mpi->bells[i] >= 0;
    }
    return BATON_OK;
}

baton_status_t baton__mpi_open_bells(baton__mpi_t *mpi)
{
    MPI_Comm host;
    int code = MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, mpi->rank,
                                   MPI_INFO_NULL, &host);
    if (code != MPI_SUCCESS) {
        return baton__mpi_error("MPI_Comm_split_type", code);
    }
    baton_status_t status = find_host(mpi, host);
    MPI_Comm_free(&host);
    return status;
}

/* ---- rest ------------------------------------------------------------- */

int baton__mpi_descriptor(void *endpoint)
{
    const baton__mpi_t *mpi = endpoint;
    return mpi->bell ? baton__doorbell_descriptor(mpi->bell) : -1;
}

void baton__mpi_hush(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    if (mpi->bell) {
        baton__doorbell_hush(mpi->bell);
    }
}

uint32_t baton__mpi_rest(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    mpi->resting = true;
    if (mpi->bell && baton__doorbell_rest(mpi->bell)) {
        mpi->noted = true;
        mpi->swept = false;
    }
    mpi->bounded = !mpi->all_reached || mpi->unrung > 0;
    return mpi->bounded
               ? (uint32_t)baton__config_number(BATON__CONFIG_REMOTE_US)
               : BATON_SLEEP_FOREVER;
}

bool baton__mpi_sleep(void *endpoint)
{
    const baton__mpi_t *mpi = endpoint;
    /* A body may have begun to come in the poll after rest(). */
    return (mpi->bounded || mpi->unrung == 0) &&
           (!mpi->bell || baton__doorbell_sleep(mpi->bell));
}

void baton__mpi_awake(void *endpoint)
{
    baton__mpi_t *mpi = endpoint;
    mpi->resting = false;
    mpi->swept = false;
    if (mpi->bell) {
        baton__doorbell_awake(mpi->bell);
    }
}
