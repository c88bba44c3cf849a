/* The linker redirects the library's calls of pthread_mutex_unlock to this
   wrapper, in every test program. It aborts if the mutex is not locked, which
   finds code that forgets to lock. */
#include <pthread.h>
#include <stdlib.h>

/* (This is weak, since the linker redirects no calls in some programs.) */
__attribute__((weak)) int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
#ifdef __GLIBC__
    if (lock->__data.__owner == 0) {
        abort();
    }
#endif
    return __real_pthread_mutex_unlock(lock);
}
