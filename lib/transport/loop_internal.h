/* What tests reach of the loop transport without an engine. */
#ifndef BATON_TRANSPORT_LOOP_INTERNAL_H
#define BATON_TRANSPORT_LOOP_INTERNAL_H

#include <baton/loop.h>
#include <baton/transport.h>

/* Joins a rank to the medium. The endpoint's close() makes the rank free
   again; the medium keeps its memory until it is destroyed. */
baton_status_t baton__loop_join(baton_loop_t *loop, int rank,
                                const baton_transport_t **transport_out,
                                void **endpoint_out);

/* Tests: the k-th send from now fails with BATON_ERR_TRANSPORT, counted from 1;
   0 switches it off. Called by the endpoint's driver. */
void baton__loop_fail_send(void *endpoint, int64_t k);

#endif
