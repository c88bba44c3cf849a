/* Threads of the library. */
#pragma once

#include <pthread.h>

/* Starts a thread, with a name of at most 15 characters that debuggers show,
   and returns 0 or an error number. It blocks all signals, so that the
   application's handlers run on the application's threads alone; but not those
   that an instruction of the thread itself raises (SIGSEGV, SIGBUS, SIGFPE,
   SIGILL, SIGTRAP, and SIGSYS of a filter for system calls): where these are
   blocked the kernel ends the process without calling the application's
   handler. */
int baton__thread_start(pthread_t *thread, const char *name,
                        void *(*run)(void *arg), void *arg);
