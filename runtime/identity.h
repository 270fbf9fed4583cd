#ifndef RUNTIME_IDENTITY_H
#define RUNTIME_IDENTITY_H

/* What a text depends on beside its request: where both hashes are the same, the same request has the same text. */
#include "common/base/hash.h"

#include "runtime/setup.h"

/* *pack: of the packed model, all of it; *how: of how this build runs it. ERR_*: of reading. */
int identity_of(const struct setup *s, struct hash128 *pack, struct hash128 *how, struct err *e);

#endif
