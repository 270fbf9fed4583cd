#ifndef RUNTIME_TURN_H
#define RUNTIME_TURN_H

/* One at a time has what a turn is for: who takes it again and again, and who claims it now and then, and would otherwise wait for ever. */
#include <pthread.h>
#include <stdatomic.h>

struct fair_lock {
    pthread_mutex_t lock;
    pthread_cond_t given;
    atomic_int n_claims;
};

void fair_lock_init(struct fair_lock *t);
void fair_lock_done(struct fair_lock *t);
void fair_lock_take(struct fair_lock *t);  /* after those who claim it; goes by fair_lock_give */
void fair_lock_give(struct fair_lock *t);
int fair_lock_claim(struct fair_lock *t);  /* -1: the caller has it already; else it goes by fair_lock_give */

#endif
