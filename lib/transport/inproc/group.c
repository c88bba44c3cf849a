/* Groups of the ranks of one process. */
#include "transport/inproc/endpoint.h"

static baton_status_t join(baton_engine_t *engine, baton_inproc_t *medium,
                           int rank, bool owns_medium, baton_group_t **out)
{
    const baton_transport_t *transport = NULL;
    void *endpoint = NULL;
    baton_status_t status =
        baton__inproc_join(medium, rank, &transport, &endpoint);
    if (status != BATON_OK || transport == NULL) {
        return status;
    }
    status = baton_group_create(engine, transport, endpoint, rank,
                                baton__inproc_size(medium), out);
    if (status != BATON_OK) {
        transport->close(endpoint);
    } else if (owns_medium) {
        baton__inproc_own_medium(endpoint);
    }
    return status;
}

baton_status_t baton_group_create_inproc(baton_engine_t *engine,
                                         baton_inproc_t *medium, int rank,
                                         baton_group_t **out)
{
    return join(engine, medium, rank, false, out);
}

baton_status_t baton_group_create_self(baton_engine_t *engine,
                                       baton_group_t **out)
{
    baton_inproc_t *medium = NULL;
    baton_status_t status = baton_inproc_create(1, &medium);
    if (status != BATON_OK || medium == NULL) {
        return status;
    }
    status = join(engine, medium, 0, true, out);
    if (status != BATON_OK) {
        (void)!baton_inproc_destroy(medium);
    }
    return status;
}
