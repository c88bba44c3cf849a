/* Threads of the library. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* While this thread's counter is above 0, baton_engine_interrupt does not
   interrupt its waits. It is above 0 in threads of the library, and during
   calls that could not be continued after an interrupt. */
extern _Thread_local int baton__thread_patience;

/* Starts a thread, with a name of at most 15 characters for debuggers, and
   returns 0 or an error number. The thread blocks all signals, so that the
   application's handlers run only on the application's threads. It does not
   block signals that its own instructions raise (SIGSEGV, SIGBUS, SIGFPE,
   SIGILL, SIGTRAP, and SIGSYS of a filter for system calls): if these are
   blocked, the kernel ends the process without calling the application's
   handler. */
int baton__thread_start(pthread_t *thread, const char *name,
                        void *(*run)(void *arg), void *arg);

/* Returns true if some thread holds the lock. Call this only in assertions of
   functions whose callers must hold the lock: if this function gets the lock
   itself, the program ends. */
static inline bool baton__thread_has_locked(const pthread_mutex_t *lock)
{
    return pthread_mutex_trylock((pthread_mutex_t *)(uintptr_t)lock) != 0;
}
