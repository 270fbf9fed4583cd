#include "common/base/log.h"
#include "common/base/progress.h"
#include "tests/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define HOUR_NS 3600000000000ll

static int master = -1;
static char seen[4096];

/* What the terminal has received so far. */
static const char *received(void)
{
    ssize_t n = read(master, seen, sizeof seen - 1);
    seen[n > 0 ? n : 0] = '\0';
    return seen;
}

static int open_terminal(void)
{
    master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
        return -1;
    return open(ptsname(master), O_RDWR | O_NOCTTY);
}

int main(void)
{
    struct progress p;
    int saved = dup(STDERR_FILENO), tty = open_terminal(), null = open("/dev/null", O_WRONLY);
    if (tty < 0) {
        printf("1..0 # SKIP no pseudo-terminal\n");
        return 77;
    }
    dup2(tty, STDERR_FILENO);

    /* Hours, where the limits are seconds: this process may stand still for a while. */
    progress_init(&p, "tracing", "tokens", 200);
    CHECK(progress_now_ns() - p.start_ns < HOUR_NS);
    p.start_ns += HOUR_NS;
    progress_set(&p, 50);
    CHECK(*received() == '\0'); /* under two seconds */
    p.start_ns -= 11 * HOUR_NS;
    progress_add(&p, 50);
    const char *line = received(), *eta = strstr(line, "ETA ");
    int hours = 0, minutes = 0;
    CHECK(p.done == 100 && strstr(line, "tracing") && strstr(line, "50%") && strstr(line, "100 of 200 tokens"));
    CHECK(eta && sscanf(eta, "ETA %d:%d:", &hours, &minutes) == 2 && hours == 10 && minutes < 30 && !strchr(line, '\n'));
    p.last_ns += HOUR_NS;
    progress_set(&p, 101);
    CHECK(*received() == '\0'); /* at most five a second */
    p.last_ns -= 2 * HOUR_NS;
    progress_set(&p, 102);
    CHECK(strstr(received(), "51%"));
    progress_done(&p);
    CHECK(strcmp(received(), "\r\033[K") == 0);

    progress_init(&p, "hashing", "B", 0);
    p.start_ns -= 4 * HOUR_NS;
    progress_set(&p, (uint64_t)8 * 3600 << 20);
    line = received();
    CHECK(strstr(line, "28.1 GiB") && strstr(line, "2.0 MiB/s") && !strstr(line, "ETA") && !strstr(line, "%"));

    p.last_ns = 0;
    log_set_level(LOG_ERROR);
    progress_set(&p, 9 << 20);
    CHECK(*received() == '\0');
    log_set_level(LOG_INFO);
    dup2(null, STDERR_FILENO);
    progress_init(&p, "quiet", "B", 0);
    p.start_ns -= 4 * HOUR_NS;
    progress_set(&p, 1);
    CHECK(p.shown == 0);
    dup2(saved, STDERR_FILENO);
    close(null);
    close(tty);
    close(master);
    return test_done();
}
