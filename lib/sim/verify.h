/* BATON_VERIFY=1: a commit succeeds on all ranks or fails on all ranks, with
   the same message.

   Each rank sends its graph to rank 0, the root, which simulates an epoch of
   all graphs and sends the result to all ranks:

       report    status of local checks, size of the graph ---->  root
       answer    <------- an error, or how many blocks follow     root
       blocks    the graph, block by block -------------------->  root
       answer    <-------------- the result of the simulation     root

   Two schedules that are created with the group carry these messages: an epoch
   allocates nothing, so a rank without memory can still report that, and no
   rank waits for it in vain. These cases remain: a rank never commits, or dies
   and the transport can't tell; BATON_VERIFY is set on some ranks only; after
   the result a transport fails to post an armed receive on one rank. */
#ifndef BATON_SIM_VERIFY_H
#define BATON_SIM_VERIFY_H

#include "progress/engine.h"

extern const baton__verification_t baton__verification;

#endif
