/* Tells whether the tests were compiled with a sanitizer. A sanitizer makes a
   test five to twenty times slower, so tests then repeat less often. */
#pragma once

#ifndef __has_feature
#define __has_feature(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SUPPORT_SANITIZED_ADDRESS 1
#else
#define SUPPORT_SANITIZED_ADDRESS 0
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define SUPPORT_SANITIZED_THREAD 1
#else
#define SUPPORT_SANITIZED_THREAD 0
#endif

#define SUPPORT_SANITIZED                                                      \
    (SUPPORT_SANITIZED_ADDRESS || SUPPORT_SANITIZED_THREAD)

/* Returns `times`. With a sanitizer returns a tenth of it. */
#define SUPPORT_REPEAT(times) (SUPPORT_SANITIZED ? ((times) + 9) / 10 : (times))
