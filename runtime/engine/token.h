#ifndef RUNTIME_ENGINE_TOKEN_H
#define RUNTIME_ENGINE_TOKEN_H

#include <stdint.h>

/* One token of a forward pass. Tokens of a sequence come in ascending, consecutive positions, from the number of
 * positions that it holds. */
struct engine_token {
    int32_t id;
    int seq, pos;
};

#endif
