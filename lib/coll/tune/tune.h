/* Choices that were measured: lists of them, their lines in a calibration file,
   and the tables of groups.

       choice allreduce 16384 4 1 out pairwise 0

   A line has the collective; the size class, which is 4^k bytes; the numbers of
   ranks and hosts; whether an all-reduce is in or out of place; the algorithm;
   and the bytes of its segments (0 if it has none). All fields but the last two
   are the key. The memory of the vectors is not part of the key: only a rank
   itself knows whether its memory is shared, and a choice must be the same on
   all ranks. */
#pragma once

#include <baton/tuning.h>

typedef struct baton__measured {
    baton_collective_t collective;
    size_t class_bytes; /* the power of 4 nearest to the vector's bytes */
    int ranks;
    int hosts;
    bool in_place;
    const char *algorithm; /* the algorithm's name, in static memory */
    size_t segment_bytes;
    struct baton__measured *next;
} baton__measured_t;

/* Returns the size class of a vector, which is a power of 4. The class c has
   the vectors of at least c / 2 and less than 2 c bytes. */
size_t baton__measured_class(size_t bytes);

/* Returns the key of a case, in a struct without an algorithm. */
baton__measured_t baton__measured_key(const baton_choice_case_t *of);

/* Returns the first choice of a list that has this key. It is the one that was
   added last, since choices are added to the front. Returns NULL if there is
   none. An empty list is NULL. */
const baton__measured_t *baton__measured_find(const baton__measured_t *list,
                                              const baton__measured_t *key);

/* Adds a copy of a choice to the front of a list. Returns BATON_ERR_NO_MEMORY
   if it fails. */
baton_status_t baton__measured_add(baton__measured_t **list,
                                   const baton__measured_t *one);

/* Frees all choices of a list, which is then empty. */
void baton__measured_free(baton__measured_t **list);

/* Adds the choices of a list to the end of a calibration file. Returns
   BATON_ERR_SYSTEM if it fails. */
baton_status_t baton__measured_append(const char *path,
                                      const baton__measured_t *list);

/* Finds the choice for this key in the calibration file in force, if there is
   one. Returns BATON_ERR_SYSTEM or BATON_ERR_NO_MEMORY if the file can't be
   read. Returns BATON_ERR_INVALID if a line is wrong, with a message that names
   the line. */
baton_status_t baton__measured_in_file(const baton__measured_t *key,
                                       baton__measured_t *out, bool *found_out);

/* ---- choices ------------------------------------------------------------ */

/* Returns the name of the algorithm that the case or an environment variable
   asks for, or "". */
const char *baton__choice_name(const baton_choice_case_t *of);

/* Returns the name of the environment variable that names an algorithm of this
   collective. Returns "" if the collective has only one algorithm. */
const char *baton__choice_variable(baton_collective_t collective);

/* Stores the model's cheapest choices for a valid case, the best first. Stores
   `most` of them at most. */
baton_status_t baton__choice_rank(const baton_choice_case_t *of, size_t most,
                                  baton_choice_t *out, size_t *count_out);

/* Sets *out to the measured choice if its algorithm can do what a valid case
   asks for. Otherwise returns BATON_OK and leaves *out as it is. */
baton_status_t baton__choice_take(const baton__measured_t *measured,
                                  const baton_choice_case_t *of,
                                  baton_choice_t *out);

/* Does what baton_choose does, except that choices that this group has measured
   come first. If BATON_TUNE is `measure` and the group has no choice for the
   case, measures it now. */
baton_status_t baton__choose_for(baton_group_t *group,
                                 const baton_choice_case_t *of,
                                 baton_choice_t *out);

/* For tests: a function that returns the time, in microseconds, to use instead
   of `us`, the measured time of an epoch of the algorithm on the rank. NULL:
   times are used as measured. */
extern double (*baton__tune_us)(int rank, const char *algorithm, double us);
