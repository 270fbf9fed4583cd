#ifndef TESTS_FAULTS_CASES_H
#define TESTS_FAULTS_CASES_H

/* The commands that get faults. Each runs in a folder that holds in/ (inputs, which must stay as they are), out/ (empty but
 * for the old output) and tmp/ (TMPDIR, which must stay empty). */
#include <stdbool.h>
#include <stddef.h>

enum case_output {
    OUTPUT_NONE,  /* standard output alone */
    OUTPUT_FILE,  /* out/x: whole or as before */
    OUTPUT_TABLE, /* out/x is a database that is changed in place: what it holds is as before or as after */
};

struct fault_case {
    const char *name;
    enum case_output output;
    bool measures;   /* standard output holds times: it is not compared */
    const char *partial; /* what it may leave in out/, for --resume */
    const char *argv[24];
    const char *valid[12]; /* says of an out/x that is another than without faults that it is right too */
};

extern const struct fault_case fault_cases[];
extern const size_t n_fault_cases;

/* The steps that make in/; NULL at the end. Words are separated by spaces; the first is a program. */
extern const char *const fault_setup[];

/* Content of in/prompts.csv. */
extern const char fault_prompts[];

#endif
