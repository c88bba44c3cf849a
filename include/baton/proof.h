/* Proof by contributor sets: checks which ranks contributed to each element of
   a result, not only the element's value.

   An element is a BATON_U32 that stands for a set of contributions. The
   reduction of baton_proof_op unites two sets, and records an error if a rank
   was in both, or the sets were of different elements. Run any reducing
   schedule with this type and reduction, then check its result: this is
   symbolic execution on the ordinary engine.

   Threads: one at a time. All ranks that share a proof are in one process,
   stepped by one thread (the simulator, a manual engine). */
#ifndef BATON_PROOF_H
#define BATON_PROOF_H

#include <baton/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_proof baton_proof_t;

/* baton_proof_create creates a proof for `ranks` ranks. BATON_ERR_INVALID:
   ranks is below 1. BATON_ERR_NO_MEMORY. baton_proof_destroy destroys a proof;
   NULL is allowed. */
BATON_CHECKED baton_status_t baton_proof_create(int ranks, baton_proof_t **out);
BATON_CHECKED baton_status_t baton_proof_destroy(baton_proof_t *proof);

/* The reduction, for BATON_U32; owned by the proof. Its identity is the empty
   set (all bits 0), so it serves partial collectives too. */
const baton_op_t *baton_proof_op(baton_proof_t *proof);

/* Writes `count` elements: elements[i] = the set of `rank` alone, for element
   first + i. On BATON_ERR_NO_MEMORY and BATON_ERR_INVALID (no such rank)
   nothing is written. */
BATON_CHECKED baton_status_t baton_proof_fill(baton_proof_t *proof, int rank,
                                              size_t first, size_t count,
                                              uint32_t *elements);

/* Checks that elements[i] is element first + i with the data of exactly the
   expected ranks, each once. Rank r is expected if contributors[r] is set; NULL
   means all ranks. BATON_ERR_MISMATCH describes the first wrong element: a rank
   that is missing, present twice or unexpected; elements that were mixed or
   exchanged; or memory that was never written. BATON_ERR_NO_MEMORY: an earlier
   reduction had no memory for a union of sets. BATON_ERR_INVALID: the reduction
   was used for another type. */
BATON_CHECKED baton_status_t baton_proof_check(const baton_proof_t *proof,
                                               const bool *contributors,
                                               size_t first, size_t count,
                                               const uint32_t *elements);

#ifdef __cplusplus
}
#endif
#endif
