/* cmocka.h with the headers that it and nearly all tests need, random numbers,
   and tests that register themselves with their program:

       TEST(test_engine_opens)
       {
           ...                       may use `state`, which is NULL
       }

   A program without a main runs its tests in the order in which they are
   written. With a name or pattern as argument it runs only the tests that
   match. cluster.h has macros for tests of clusters. */
#pragma once

#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST(name) TEST_BETWEEN(name, NULL, NULL)

/* Defines a test that has its own fixture, the functions `setup` and
   `teardown`. */
#define TEST_BETWEEN(name, setup, teardown)                                    \
    static void name(void **state);                                            \
    SUPPORT_ADD(name, name, setup, teardown, NULL)                             \
    static void name(void **state)

#define SUPPORT_ADD(name, function, setup, teardown, initial)                  \
    __attribute__((constructor)) static void add_##name(void)                  \
    {                                                                          \
        support_add(                                                           \
            (struct CMUnitTest){#name, function, setup, teardown, initial});   \
    }
void support_add(struct CMUnitTest test);

/* Stands at the end of a file: defines a main that runs all tests inside a
   group fixture. */
#define RUN_TESTS_BETWEEN(setup, teardown)                                     \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        return support_run_tests(argc, argv, setup, teardown);                 \
    }
int support_run_tests(int argc, char **argv, CMFixtureFunction setup,
                      CMFixtureFunction teardown);

/* Allocates zeroed memory. Fails the test if there is none. */
void *support_alloc(size_t count, size_t bytes);

/* Opens a file in this mode, "w" or "a", and writes the text. */
void support_write_file(const char *path, const char *mode, const char *text);

/* Sets an environment variable, or removes it if the value is NULL, and makes
   the library read its variables again. */
void support_set_variable(const char *name, const char *value);
