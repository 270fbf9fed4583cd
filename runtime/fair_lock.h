#ifndef RUNTIME_FAIR_LOCK_H
#define RUNTIME_FAIR_LOCK_H

/* A lock for a thread that takes it again and again, and others that claim it now and then: a plain mutex would let them wait for ever.
 * Claims go first. */
#include <pthread.h>
#include <stdatomic.h>

struct fair_lock {
    pthread_mutex_t lock;
    pthread_cond_t given;
    atomic_int n_claims;
};

void fair_lock_init(struct fair_lock *t);
void fair_lock_done(struct fair_lock *t);
void fair_lock_take(struct fair_lock *t);  /* after those who claim it; fair_lock_give ends it */
void fair_lock_give(struct fair_lock *t);
int fair_lock_claim(struct fair_lock *t);  /* -1: the caller has it already; else fair_lock_give ends it */

#endif
