/* What other ranks read is copied through the cache, or past it.

   They have read what was there before, so their caches must give up each line
   that is written. Between cores that share a cache this costs little; between
   others a write waits for each line, and cores of a virtual machine are now
   one and now the other. On 2 cores of an AMD EPYC a copy of 512 KiB takes 28
   us, and a sum that then reads it on the other core 20; in the other state 220
   to 275, and 31. Past the cache they take 20 and 35, and 13 and 33.

   So copies go through the cache and are timed. After two slow ones in a row
   (one may have been preempted) the next ones go past it. */
#include "ops/copy.h"

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    LINE = 64,
    SLOW_NS = 300, /* a KiB; it is 40 to 70, or 430 to 540 */
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
    _mm_sfence(); /* a release does not order such stores */
#endif
    memcpy(to + done, from + done, bytes - done);
}

void baton__copy_shared(void *to, const void *from, size_t bytes)
{
    static _Thread_local unsigned slow;      /* copies, in a row */
    static _Thread_local unsigned past_left; /* that go past the cache */
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
