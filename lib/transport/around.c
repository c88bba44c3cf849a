#include "transport/around.h"

/* Returns the number that a rank of the outer transport has in the inner
   one. */
static int inner_rank(const baton__around_t *self, int rank)
{
    return self->inner_ranks != NULL ? self->inner_ranks[rank] : rank;
}

/* The functions of which the outer transport passes calls on to the inner one.
   A row has the return type, `return` if there is a result, the function's
   name, its parameters, and the arguments for the inner function. */
#define FUNCTIONS(X)                                                           \
    X(baton_status_t, return, reserve,                                         \
      (void *endpoint, int peer, int64_t sends, int64_t receives),             \
      (self->endpoint, inner_rank(self, peer), sends, receives))               \
    X(baton_status_t, return, notify,                                          \
      (void *endpoint, int peer, const baton_header_t *header,                 \
       const void *data, size_t bytes),                                        \
      (self->endpoint, inner_rank(self, peer), header, data, bytes))           \
    X(bool, return, withdraw_receive,                                          \
      (void *endpoint, baton_token_t token, int peer),                         \
      (self->endpoint, token, inner_rank(self, peer)))                         \
    X(bool, return, withdraw, (void *endpoint, baton_token_t token),           \
      (self->endpoint, token))                                                 \
    X(int, return, descriptor, (void *endpoint, int k), (self->endpoint, k))   \
    X(void, (void), drain, (void *endpoint), (self->endpoint))                 \
    X(void, (void), disarm, (void *endpoint), (self->endpoint))                \
    X(baton_status_t, return, read,                                            \
      (void *endpoint, const baton_message_t *message, size_t offset,          \
       size_t bytes, void *target),                                            \
      (self->endpoint, message, offset, bytes, target))                        \
    X(void *, return, allocate, (void *endpoint, size_t bytes),                \
      (self->endpoint, bytes))                                                 \
    X(void, (void), release, (void *endpoint, void *memory),                   \
      (self->endpoint, memory))                                                \
    X(bool, return, is_copying, (const void *endpoint), (self->endpoint))      \
    X(void, (void), flush, (void *endpoint), (self->endpoint))                 \
    X(int, return, host_of, (const void *endpoint, int rank),                  \
      (self->endpoint, inner_rank(self, rank)))                                \
    X(void, (void), lose,                                                      \
      (void *endpoint, int peer, baton_status_t status, const char *detail),   \
      (self->endpoint, inner_rank(self, peer), status, detail))                \
    X(void, (void), ask, (void *endpoint, int peer),                           \
      (self->endpoint, inner_rank(self, peer)))                                \
    X(bool, return, leave, (void *endpoint), (self->endpoint))                 \
    X(int, return, process,                                                    \
      (const void *endpoint, int rank, const char **host_out),                 \
      (self->endpoint, inner_rank(self, rank), host_out))                      \
    X(void *, return, board, (const void *endpoint, int rank),                 \
      (self->endpoint, inner_rank(self, rank)))

#define PASS(type, how, name, parameters, arguments)                           \
    static type pass_##name parameters                                         \
    {                                                                          \
        const baton__around_t *self = endpoint;                                \
        how self->inner->name arguments;                                       \
    }
FUNCTIONS(PASS)
#undef PASS

baton_transport_t baton__around(const baton_transport_t *inner)
{
    baton_transport_t table = *inner;
    table.size = sizeof table;
#define TAKE(type, how, name, parameters, arguments)                           \
    table.name = inner->name != NULL ? pass_##name : NULL;
    FUNCTIONS(TAKE)
#undef TAKE
    return table;
}
