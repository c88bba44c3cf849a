/* The inproc transport's endpoints, as groups are made of them. */
#ifndef BATON_TRANSPORT_INPROC_ENDPOINT_H
#define BATON_TRANSPORT_INPROC_ENDPOINT_H

#include <baton/inproc.h>
#include <baton/transport.h>

/* Joins a rank to the medium. The endpoint's close() makes the rank free
   again; the medium keeps its memory until it is destroyed. */
baton_status_t baton__inproc_join(baton_inproc_t *medium, int rank,
                                  const baton_transport_t **transport_out,
                                  void **endpoint_out);

/* The number of ranks. own_medium: close() destroys the medium, too. */
int baton__inproc_size(const baton_inproc_t *medium);
void baton__inproc_own_medium(void *endpoint);

#endif
