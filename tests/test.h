#ifndef TESTS_TEST_H
#define TESTS_TEST_H

/* TAP from a C program: CHECK(condition) per point, `return test_done();` at the end of main. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* TEST_TSAN: built with the thread sanitizer, by gcc or clang; TEST_SANITIZER: with any. */
#ifdef __SANITIZE_THREAD__
#define TEST_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#elif __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define TEST_SANITIZER 1
#endif
#endif
#ifndef TEST_TSAN
#define TEST_TSAN 0
#endif
#ifndef TEST_SANITIZER
#define TEST_SANITIZER TEST_TSAN
#endif

/* True in a short run: under a sanitizer, which looks for other faults and takes several times as long, and in make check (TEST_SHORT is
 * set), which reaches the same code as make check-all by fewer cases. */
static inline int test_short(void)
{
    const char *s = getenv("TEST_SHORT");
    return TEST_SANITIZER || (s && *s);
}

/* Random cases to try of n: a quarter in a short run. */
#define TEST_CASES(n) (test_short() ? (n) / 4 : (n))

/* The same where a case takes long: TEST_TIMES=K (of the environment) tries K times as many. */
static inline int test_cases(int n)
{
    const char *times = getenv("TEST_TIMES");
    int k = times ? atoi(times) : 1;
    return TEST_CASES(n) * (k > 1 ? k : 1);
}

static int test_n, test_bad;
#define CHECK(x) test_check((x) != 0, #x, __FILE__, __LINE__)
#define CHECK_MSG(x, ...)                                                       \
    do {                                                                        \
        if (!test_check((x) != 0, #x, __FILE__, __LINE__))                      \
            printf("# " __VA_ARGS__), printf("\n");                             \
    } while (0)

/* Not inline: thousands of copies take a compiler long. */
__attribute__((noinline, unused)) static int test_check(int ok, const char *what, const char *file, int line)
{
    printf("%sok %d - %s\n", ok ? "" : "not ", ++test_n, what);
    if (!ok) {
        printf("# %s:%d\n", file, line);
        test_bad++;
    }
    return ok;
}

/* What may be written to: a name, printf-like, in the folder TMPDIR or /tmp; with a process's number in it, or for mkstemp
 * and mkdtemp. Ends the test where it does not fit. */
__attribute__((format(printf, 3, 4))) static inline void test_path(char *out, size_t size, const char *name, ...)
{
    const char *dir = getenv("TMPDIR");
    int n = snprintf(out, size, "%s/", dir && *dir ? dir : "/tmp"), m = -1;
    va_list args;
    va_start(args, name);
    if (n > 0 && (size_t)n < size)
        m = vsnprintf(out + n, size - (size_t)n, name, args);
    va_end(args);
    if (m < 0 || (size_t)m >= size - (size_t)n) {
        printf("Bail out! '%s' is too long for TMPDIR\n", dir);
        exit(1);
    }
}

static inline int test_done(void)
{
    printf("1..%d\n", test_n);
    return test_bad != 0;
}

#endif
