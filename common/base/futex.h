#ifndef COMMON_BASE_FUTEX_H
#define COMMON_BASE_FUTEX_H

/* Sleep on a word until somebody changes it: a call for each sleep and one for each wake-up. A condition variable takes three at least,
 * for who comes back from it leaves its mutex marked as contended, and unlocking that is a call.
 *
 * A sleeper reads the word, looks whether there is a reason to go on, and if not calls futex_sleep with what it read. Who has a reason for
 * it changes that reason, then the word, then calls futex_wake. Sleepers may come back without a reason: they look again. */
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

_Static_assert(sizeof(atomic_uint) == 4, "what the kernel compares");

/* While the word has this value. */
static inline void futex_sleep(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

/* Of those that sleep on the word so many. It is no longer looked at: its memory may be gone. */
static inline void futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

#endif
