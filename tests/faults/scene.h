#ifndef TESTS_FAULTS_SCENE_H
#define TESTS_FAULTS_SCENE_H

/* The folder that trials run in, what they start from, and what must hold after them. */
#include "tests/faults/cases.h"
#include "tests/faults/shim.h"
#include "tests/faults/trial.h"

/* Makes the folder and the inputs, from the programs in `bin`; `shim` is preloaded where it is not NULL. Ends the process where
 * it cannot; the folder goes when the process exits. */
void scene_open(const char *bin, const char *shim);

/* out/ empty but for the old output where `old` (a database is always there); tmp/ empty. */
void scene_prepare(const struct fault_case *c, bool old);
int scene_run(const struct fault_case *c, struct trial *t);

/* Takes what the trial before left as what the command does without faults, and compares it with a second run. */
int scene_expect(const struct fault_case *c, const struct trial *t, char *why, size_t size);

/* 0 where everything holds; else -1 and the reason, -2 where a file or what is taken for success is wrong. After a kill it
 * runs the command again. */
int scene_judge(const struct fault_case *c, const struct trial *t, char *why, size_t size);

/* What a library is known to do when its allocation fails. */
bool scene_known(const struct shim_shared *s, const struct trial *t);
void scene_list_known(void);

struct shim_shared *scene_shared(void);
void scene_show_errors(void);

#endif
