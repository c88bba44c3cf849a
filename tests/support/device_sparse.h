/* Sparse all-reduces of gradients in device memory, on ranks with emulated
   devices, beside the same ones of as many ranks on the host: both are given
   the same gradients, and what they leave has to have the same bits. Failures
   are cmocka's. */
#ifndef TESTS_SUPPORT_DEVICE_SPARSE_H
#define TESTS_SUPPORT_DEVICE_SPARSE_H

#include "support/device_cluster.h"

#include <baton/sparse.h>

enum {
    DEVICE_SPARSE_RANKS = 8,
    DEVICE_SPARSE_MOST = 9000, /* elements */
    DEVICE_SPARSE_STEPS = 6,
    DEVICE_SPARSE_WIDEST = 8, /* bytes of an element */
    DEVICE_SPARSE_BYTES = DEVICE_SPARSE_MOST * DEVICE_SPARSE_WIDEST
};

/* What gradients consist of. */
typedef enum device_sparse_data {
    DEVICE_SPARSE_ANY,        /* any bits of a magnitude below 2 */
    DEVICE_SPARSE_TIES,       /* of few magnitudes */
    DEVICE_SPARSE_NOT_FINITE, /* some NaNs and infinities among them */
    DEVICE_SPARSE_ZEROS,      /* mostly */
    DEVICE_SPARSE_KINDS
} device_sparse_data_t;

/* What a step has given to a rank. */
typedef struct device_sparse_outcome {
    uint64_t count;
    uint32_t indices[DEVICE_SPARSE_MOST];
    bool entries; /* it has indices */
    _Alignas(double) char dense[DEVICE_SPARSE_BYTES];
    char values[DEVICE_SPARSE_BYTES];
} device_sparse_outcome_t;

/* Memory of a rank, on its device and as much on its host. */
typedef struct device_sparse_rank {
    char *gradient, *dense, *values;
    uint32_t *indices;
    uint64_t *count;
    baton_sparse_t *device, *host;
    _Alignas(double) char gradients[DEVICE_SPARSE_STEPS][DEVICE_SPARSE_BYTES];
    device_sparse_outcome_t found[DEVICE_SPARSE_STEPS];
} device_sparse_rank_t;

typedef struct device_sparse {
    device_cluster_t *ranks;
    support_cluster_t *hosts; /* as many ranks without devices */
    int size;
    size_t count, bytes; /* of elements; of all of them together */
    size_t element_bytes;
    baton_sparse_options_t options; /* of the ones on devices */
    device_sparse_outcome_t expected[DEVICE_SPARSE_STEPS];
    device_sparse_rank_t rank[]; /* of size */
} device_sparse_t;

/* variant: as device_cluster_open. */
device_sparse_t *device_sparse_open(int size, int variant);
void device_sparse_close(device_sparse_t *self);

/* On all ranks of a cluster. */
void device_sparse_create_on(support_cluster_t *cluster,
                             const baton_sparse_options_t *options,
                             baton_sparse_t **out);

/* Both, and the gradients of all steps. */
void device_sparse_create(device_sparse_t *self,
                          const baton_sparse_options_t *options,
                          device_sparse_data_t data);
void device_sparse_destroy(device_sparse_t *self);

/* Runs a step on the host; all of them. */
void device_sparse_run_on_host(device_sparse_t *self, int step);
void device_sparse_run_on_hosts(device_sparse_t *self);

/* Puts a step into the rank's stream: the gradient in, the result out. */
void device_sparse_put_step(device_sparse_t *self, int rank, int step);

/* Runs a step of all ranks by the host's calls. */
void device_sparse_run_step(device_sparse_t *self, int step);

/* What was found out, or the residuals, against the host's. */
void device_sparse_check(const device_sparse_t *self, int rank, int step);
void device_sparse_check_residuals(device_sparse_t *self);

/* All of it, without create and destroy; in_flight: nobody waits for a step
   before all are in the streams. */
void device_sparse_compare(device_sparse_t *self, bool in_flight);

#endif
