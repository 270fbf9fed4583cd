#include "common/base/log.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[8192];

/* What fn writes to stderr. */
static const char *written(void (*fn)(void))
{
    FILE *f = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    fn();
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void all(void)
{
    log_error("e%d", 1);
    log_warn("w");
    log_info("i");
    log_debug("d");
}

static void long_line(void)
{
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    log_error("%s", big);
}

int main(void)
{
    log_init("prog", LOG_DEBUG);
    CHECK(strcmp(written(all), "prog: error: e1\nprog: warning: w\nprog: i\nprog: debug: d\n") == 0);
    log_set_level(LOG_WARN);
    CHECK(log_get_level() == LOG_WARN);
    CHECK(strcmp(written(all), "prog: error: e1\nprog: warning: w\n") == 0);
    log_set_level(LOG_ERROR);
    CHECK(strcmp(written(all), "prog: error: e1\n") == 0);
    const char *line = written(long_line);
    CHECK(strlen(line) > 1000 && strlen(line) < 2100 && line[strlen(line) - 1] == '\n');
    return test_done();
}
