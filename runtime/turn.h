#ifndef RUNTIME_TURN_H
#define RUNTIME_TURN_H

/* One at a time has what a turn is for: who takes it again and again, and who claims it now and then, and would otherwise wait for ever. */
#include <pthread.h>
#include <stdatomic.h>

struct turn {
    pthread_mutex_t lock;
    pthread_cond_t given;
    atomic_int n_claims;
};

void turn_init(struct turn *t);
void turn_done(struct turn *t);
void turn_take(struct turn *t);  /* after those who claim it; goes by turn_give */
void turn_give(struct turn *t);
int turn_claim(struct turn *t);  /* -1: the caller has it already; else it goes by turn_give */

#endif
