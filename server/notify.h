#ifndef SERVER_NOTIFY_H
#define SERVER_NOTIFY_H

/* What a service manager (systemd) says and is told: sockets that listen already, and how the service is. Their protocols are a
 * variable of the environment each, and need no library. */
#include "common/base/err.h"

/* The socket that was handed over (LISTEN_FDS), or -1: none. ERR_USAGE: several, or one that does not listen. */
int notify_socket(int *fd, struct err *e);

/* 1: connections to it come from this machine alone. */
int notify_local(int fd);

/* "READY=1", "STOPPING=1": to NOTIFY_SOCKET, where there is one. */
void notify_say(const char *state);

#endif
