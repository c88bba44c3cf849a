#include "base/thread.h"

#include <signal.h>

_Thread_local int baton__thread_patience;

int baton__thread_start(pthread_t *thread, const char *name,
                        void *(*run)(void *arg), void *arg)
{
    static const int raised[] = {SIGSEGV, SIGBUS,  SIGFPE,
                                 SIGILL,  SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigset_t before;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof raised / sizeof *raised; i++) {
        (void)sigdelset(&blocked, raised[i]);
    }
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        (void)pthread_setname_np(*thread, name);
    }
    return error;
}
