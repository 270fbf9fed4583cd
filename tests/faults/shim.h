#ifndef TESTS_FAULTS_SHIM_H
#define TESTS_FAULTS_SHIM_H

/* What the harness and the preloaded library share, in a file that both map: its path is in FAULT_SHARED. */
#include <stdatomic.h>
#include <stdint.h>

enum { SHIM_FRAMES = 24, SHIM_CALLS = 1 << 20 };

struct shim_frame {
    uint64_t offset;   /* in its module */
    char module[48];   /* file name of it; empty: unknown */
};

struct shim_shared {
    /* set before the program starts */
    int64_t at;        /* this call fails, counted from 0 since main; -1: none, and `stacks` is filled */
    int32_t on;        /* all later ones fail too */
    /* filled by the program */
    int32_t n_frames;  /* of the call that failed first; 0: none did */
    atomic_llong calls;
    struct shim_frame frames[SHIM_FRAMES];
    uint32_t stacks[SHIM_CALLS]; /* hash of the innermost frames of each call */
};

#endif
