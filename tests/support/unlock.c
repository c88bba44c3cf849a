/* Every program of the tests is linked so that the library's calls of
   pthread_mutex_unlock come here: a lock is not forgotten. */
#include <pthread.h>
#include <stdlib.h>

/* (Weak, as some programs are not linked so.) */
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
