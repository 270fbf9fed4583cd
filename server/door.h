#ifndef SERVER_DOOR_H
#define SERVER_DOOR_H

/* Who may come in: keys, and whose pages may ask. Called by the thread that reads, before a body comes. */
#include "common/base/err.h"
#include "common/cli/opt.h"

#include "server/http.h"

#define DOOR_KEYS 64

struct door {
    struct opt_list hosts, origins; /* --allow-host, --allow-origin */
    char *text;                     /* of the keys: of a file, or a copy */
    const char *keys[DOOR_KEYS];
    int n_keys;
};

/* Keys: lines of file (blank ones and those that begin with # are none), or, where it is NULL, the environment's THERMO_API_KEY. ERR_INPUT,
 * ERR_FORMAT: none is in the file. */
int door_open(struct door *d, const char *file, struct err *e);
void door_close(struct door *d); /* accepts a zeroed one */

/* 0; 401, 403: it is refused. `message` says why. Headers of the answer are set: who may read it. */
int door_look(const struct door *d, struct call *c, const char **message);

/* 1: numeric, and of this machine alone. */
int door_loopback(const char *address);

#endif
