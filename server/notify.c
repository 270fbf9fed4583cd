#include "server/notify.h"

#include "common/base/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_FD 3

int notify_socket(int *fd, struct err *e)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    int listens = 0;
    socklen_t size = sizeof listens;
    *fd = -1;
    if (!pid || !n || strtol(pid, NULL, 10) != (long)getpid())
        return 0;
    if (strcmp(n, "1") != 0)
        return err_set(e, ERR_USAGE, "LISTEN_FDS is %s: one socket is taken", n);
    if (getsockopt(FIRST_FD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || !listens)
        return err_set(e, ERR_USAGE, "descriptor %d of LISTEN_FDS is no socket that listens", FIRST_FD);
    fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC);
    *fd = FIRST_FD;
    return 0;
}

int notify_local(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)(void *)&a, &n) < 0)
        return 0;
    if (a.ss_family == AF_INET)
        return ntohl(((struct sockaddr_in *)(void *)&a)->sin_addr.s_addr) >> 24 == 127;
    if (a.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)(void *)&a)->sin6_addr);
    return a.ss_family == AF_UNIX;
}

void notify_say(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (*path != '/' && *path != '@'))
        return;
    memcpy(to.sun_path, path, n);
    if (*path == '@')
        to.sun_path[0] = 0; /* a name without a file */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (fd < 0 || sendto(fd, state, strlen(state), 0, (struct sockaddr *)(void *)&to, size) < 0)
        log_warn("'%s' does not reach the service manager: %s", state, strerror(errno));
    if (fd >= 0)
        close(fd);
}
