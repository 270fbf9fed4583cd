#ifndef SERVER_PATHS_H
#define SERVER_PATHS_H

/* What each path answers. */
#include "server/server.h"

void paths_handle(void *ctx, struct call *c); /* for http_config: ctx is the server */

#endif
