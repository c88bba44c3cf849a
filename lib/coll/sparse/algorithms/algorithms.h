/* The algorithms of sparse all-reduces. Each has a file of its own, except
   SparDL, which has several (spardl.h). regions.c is for algorithms that split
   the vector into a region for each rank. cost.c has the closed forms of the
   algorithms' costs, and the choice by them. */
#pragma once

#include "coll/sparse/core/core.h"

void baton__spardl_build(baton_sparse_t *sparse);
void baton__spardl_build_on_device(baton_sparse_t *sparse);
void baton__topka_build(baton_sparse_t *sparse);
void baton__topka_build_on_device(baton_sparse_t *sparse);
void baton__topkdsa_build(baton_sparse_t *sparse);
void baton__gtopk_build(baton_sparse_t *sparse);
void baton__oktopk_build(baton_sparse_t *sparse);

typedef struct baton__sparse_place {
    /* `processors` is the number of processors of each host; 0 means that each
       rank has a processor of its own. */
    int ranks, hosts, processors;
    /* The caller has given no costs of links, so the costs are those of this
       machine. */
    bool measured;
} baton__sparse_place_t;
/* Replaces each AUTO in the options by the choice that costs least. */
void baton__sparse_take_choice(baton_sparse_options_t *o,
                               const baton__sparse_place_t *place);
