/* Copies for other ranks to read, through the cache or past it.

   The other ranks have read the old bytes, so their caches must give up each
   line that is written. If the ranks' cores share a cache this costs little;
   otherwise each write to a line waits. The cores of a virtual machine change
   between these two states. On 2 cores of an AMD EPYC a copy of 512 KiB through
   the cache takes 28 us in the first state, and the sum that then reads the
   copy on the other core takes 20 us. In the second state the copy takes 220 to
   275 us, and the sum 31 us. With a copy past the cache, copy and sum take 20
   and 35 us in the first state, and 13 and 33 us in the second.

   So copies go through the cache and are timed. One slow copy may have been
   preempted. After SLOW_COPIES slow copies in a row the next PAST_COPIES copies
   go past the cache. */
#include "ops/copy.h"

#include "base/clock.h"

#include <stdbool.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    LINE = 64,
    /* The time for 1 KiB above which a copy counts as slow. Copies were
       measured to take 40 to 70 ns in the first state, and 430 to 540 ns in the
       second. */
    SLOW_NS = 300,
    SLOW_COPIES = 2,
    PAST_COPIES = 64
};

void baton__copy_past_cache(char *to, const char *from, size_t bytes)
{
    size_t done = 0;
#if defined(__SSE2__)
    done = (LINE - (uintptr_t)to % LINE) % LINE;
    done = done < bytes ? done : bytes;
    memcpy(to, from, done);
    for (; bytes - done >= LINE; done += LINE) {
        for (size_t i = done; i < done + LINE; i += sizeof(__m128i)) {
            _mm_stream_si128((void *)(to + i),
                             _mm_loadu_si128((const void *)(from + i)));
        }
    }
    /* A release store does not wait for streaming stores before it, so this
       fence is needed. */
    _mm_sfence();
#endif
    memcpy(to + done, from + done, bytes - done);
}

void baton__copy_shared(void *to, const void *from, size_t bytes)
{
    /* Number of slow copies in a row. */
    static _Thread_local unsigned slow;
    /* The number of further copies that go past the cache. */
    static _Thread_local unsigned past_left;
    if (past_left > 0) {
        past_left--;
        baton__copy_past_cache(to, from, bytes);
        return;
    }
    uint64_t began = baton__clock_ns();
    memcpy(to, from, bytes);
    bool is_slow = (baton__clock_ns() - began) * 1024 > bytes * SLOW_NS;
    slow = is_slow ? slow + 1 : 0;
    past_left = slow >= SLOW_COPIES ? PAST_COPIES : 0;
}
