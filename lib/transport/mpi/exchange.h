/* The exchanges by which the ranks of a group open their endpoints. All ranks
   call each of these functions. It is an error if the bootstrap fails, ranks do
   not come in time, the ranks run different versions of Baton, a rank's process
   has ended, or a rank that took part before does not answer for
   BATON_PEER_TIMEOUT_MS. The first error is kept. After an error the functions
   do nothing, and `data` is NULL. */
#pragma once

#include "transport/mpi/bootstrap.h"
#include "transport/shm/host.h"

struct baton__exchange {
    baton__bootstrap_t *bootstrap;
    int rank, size;
    baton_status_t status;
    unsigned char *memory; /* holds `data` and `records` */
    unsigned char *data;   /* result of the last exchange */
    /* By rank: the rank's record of the first exchange. Valid after that
       exchange has ended. */
    struct baton__first_record *records;
    uint64_t secret;
    /* The socket on which peers report a rank that has ended; or -1. */
    int listener;
    /* The endpoint that this rank has cached from an earlier group, which
       watches the processes of this host; or NULL. */
    const struct baton__mpi *cached;
    /* In the last exchange of a group without MPI: the shared memory in which
       the ranks agree whether the group is made (baton__host_decide). Otherwise
       NULL. */
    const baton__host_t *host;
    /* At least one exchange has ended, so all ranks are making the group. */
    bool past_first;
    bool reported; /* a warning about the long wait was logged */
};

/* The most bytes that a rank contributes to an exchange, unless it contributes
   one byte for each rank. */
enum { BATON__EXCHANGE_BYTES = 256 };

/* If this fails, which it does with BATON_ERR_NO_MEMORY, baton__exchange_end
   must not be called. */
baton_status_t baton__exchange_begin(baton__exchange_t *self,
                                     baton__bootstrap_t *bootstrap);
void baton__exchange_end(baton__exchange_t *self);

/* The place where this process runs. */
typedef struct baton__location {
    /* Hash of the host's name and of its kernel's boot id, as names may be
       equal. */
    uint64_t host;
    /* the numbers of the process's PID and network namespaces; 0: unknown */
    uint64_t pids, network;
} baton__location_t;

const baton__location_t *baton__location_own(void);

/* Makes the first exchange, after which the ranks know each other's processes.
   `cached` is the endpoint that this rank has cached from an earlier group, or
   NULL. Returns true if all ranks have cached the endpoint of the same group.
 */
bool baton__exchange_first(baton__exchange_t *self,
                           const struct baton__mpi *cached);

/* Gathers the `bytes` bytes at `own` of all ranks, in the order of ranks. The
   result is valid until the next exchange; it is NULL after an error. */
void *baton__exchange_gather(baton__exchange_t *self, const void *own,
                             size_t bytes);

/* Exchanges the statuses of all ranks. Returns `local`, this rank's, if that is
   an error, and otherwise the worst status of any rank. */
baton_status_t baton__exchange_agree(baton__exchange_t *self,
                                     baton_status_t local);

/* Agrees like baton__exchange_agree, as the last exchange. If a rank ends
   during it, some ranks may notice and others not. On each host all ranks still
   have the same outcome: either an error, or a group that later reports the
   loss. */
baton_status_t baton__exchange_conclude(baton__exchange_t *self,
                                        baton__host_t *host,
                                        baton_status_t local);

/* Waits until the exchange that the bootstrap has begun has ended. `status` is
   the status with which it was begun. If the exchange fails, sets
   self->status. */
void baton__exchange_complete(baton__exchange_t *self, baton_status_t status);
