#include "runtime/fair_lock.h"

#include <errno.h>

void fair_lock_init(struct fair_lock *t)
{
    pthread_mutexattr_t checked;
    pthread_mutexattr_init(&checked);
    pthread_mutexattr_settype(&checked, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&t->lock, &checked);
    pthread_mutexattr_destroy(&checked);
    pthread_cond_init(&t->given, NULL);
    atomic_init(&t->n_claims, 0);
}

void fair_lock_done(struct fair_lock *t)
{
    pthread_cond_destroy(&t->given);
    pthread_mutex_destroy(&t->lock);
}

void fair_lock_take(struct fair_lock *t)
{
    pthread_mutex_lock(&t->lock);
    while (atomic_load(&t->n_claims))
        pthread_cond_wait(&t->given, &t->lock);
}

void fair_lock_give(struct fair_lock *t)
{
    pthread_cond_broadcast(&t->given);
    pthread_mutex_unlock(&t->lock);
}

int fair_lock_claim(struct fair_lock *t)
{
    atomic_fetch_add(&t->n_claims, 1);
    int own = pthread_mutex_lock(&t->lock) == EDEADLK;
    atomic_fetch_sub(&t->n_claims, 1); /* whoever waits for it to be given goes on when it is */
    return own ? -1 : 0;
}
