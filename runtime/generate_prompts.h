#ifndef RUNTIME_GENERATE_PROMPTS_H
#define RUNTIME_GENERATE_PROMPTS_H

#include "common/base/cancel.h"

#include "runtime/generate.h"

/* generate --prompts. more: options of the library, ended by NULL. */
int generate_prompts(const struct generate_args *a, const char *const *more, struct cancel *asked, struct err *e);

#endif
