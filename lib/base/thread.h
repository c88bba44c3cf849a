/* Threads of the library. */
#pragma once

#include <pthread.h>

/* Waits of this thread are not interrupted (baton_engine_interrupt) while this
   is above 0: those of the library's threads, and of calls that can't be
   continued.
 */
extern _Thread_local int baton__thread_patience;

/* Starts a thread, with a name of at most 15 characters that debuggers show,
   and returns 0 or an error number. It blocks all signals, so that the
   application's handlers run on the application's threads alone; but not those
   that an instruction of the thread itself raises (SIGSEGV, SIGBUS, SIGFPE,
   SIGILL, SIGTRAP, and SIGSYS of a filter for system calls): where these are
   blocked the kernel ends the process without calling the application's
   handler. */
int baton__thread_start(pthread_t *thread, const char *name,
                        void *(*run)(void *arg), void *arg);
