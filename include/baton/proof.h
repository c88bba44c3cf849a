/* Proof by contributor sets: whose data is in each element of a result, not
   only whether its value is right.

   An element is a BATON_U32 that stands for a set of contributions. The
   reduction of baton_proof_op unites two sets, and remembers when a rank was in
   both of them or when they were of different elements. Run any reducing
   schedule with this type and this reduction, then check its result: that is
   symbolic execution, without another engine.

   Threads: one at a time; all ranks that share a proof are in one process,
   stepped by one thread (the simulator, a manual engine). */
#ifndef BATON_PROOF_H
#define BATON_PROOF_H

#include <baton/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct baton_proof baton_proof_t;

/* Sets over so many ranks. BATON_ERR_INVALID (less than 1), _NO_MEMORY. */
BATON_CHECKED baton_status_t baton_proof_create(int ranks, baton_proof_t **out);
BATON_CHECKED baton_status_t baton_proof_destroy(baton_proof_t *proof);

/* The reduction, for BATON_U32; owned by the proof. Its identity is the empty
   set (all bits 0), so it serves partial collectives too. */
const baton_op_t *baton_proof_op(baton_proof_t *proof);

/* elements[i] = the set of what `rank` contributes to element first + i, alone.
   BATON_ERR_NO_MEMORY, BATON_ERR_INVALID (no such rank): nothing was written.
 */
BATON_CHECKED baton_status_t baton_proof_fill(baton_proof_t *proof, int rank,
                                              size_t first, size_t count,
                                              uint32_t *elements);

/* Checks that elements[i] holds element first + i of exactly these ranks, each
   once: rank r belongs to them if contributors[r] is set; NULL means all ranks.
   BATON_ERR_MISMATCH describes the first wrong element: the rank that is
   missing, is there twice or does not belong; elements that were mixed or
   exchanged; or memory that nobody wrote. BATON_ERR_NO_MEMORY when a union
   could not be made, BATON_ERR_INVALID when the reduction was used for another
   type. */
BATON_CHECKED baton_status_t baton_proof_check(const baton_proof_t *proof,
                                               const bool *contributors,
                                               size_t first, size_t count,
                                               const uint32_t *elements);

#ifdef __cplusplus
}
#endif
#endif
