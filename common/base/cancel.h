#ifndef COMMON_BASE_CANCEL_H
#define COMMON_BASE_CANCEL_H

/* A request to stop. Whoever starts long work gives it a token and keeps it for as long as the work lasts; another thread or a
 * signal handler asks; the work looks between its steps and while it waits, and returns ERR_INTR. One token may be given to any
 * number of works. Zeroed: nobody has asked. A request is not taken back. Thread-safe, async-signal-safe. */
#include <stdatomic.h>
#include <stddef.h>

struct cancel {
    atomic_int asked;
};

/* 1 where somebody had asked before. */
static inline int cancel_ask(struct cancel *c)
{
    return atomic_exchange(&c->asked, 1);
}

/* NULL: nobody ever asks. */
static inline int cancel_asked(const struct cancel *c)
{
    return c != NULL && atomic_load_explicit(&c->asked, memory_order_relaxed);
}

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "signal handlers ask");

#endif
