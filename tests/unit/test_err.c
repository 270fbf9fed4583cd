#include "common/base/err.h"
#include "tests/test.h"

#include <errno.h>
#include <string.h>

int main(void)
{
    struct err e = { 0 };
    CHECK(err_set(&e, ERR_FORMAT, "tensor %d", 3) == ERR_FORMAT);
    CHECK(err_wrap(&e, "loading '%s'", "m.gguf") == ERR_FORMAT);
    CHECK(!strcmp(e.msg, "loading 'm.gguf': tensor 3"));
    errno = ENOENT;
    CHECK(err_sys(&e, ERR_INPUT, "open '%s'", "x") == ERR_INPUT && e.sys == ENOENT);
    CHECK(!strcmp(e.msg, "open 'x': No such file or directory"));
    CHECK(err_set(NULL, ERR_NOMEM, "x") == ERR_NOMEM);
    char longer[2000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    err_set(&e, ERR_FORMAT, "%s", longer);
    CHECK(strlen(e.msg) == sizeof e.msg - 1);
    err_wrap(&e, "context");
    CHECK(!strncmp(e.msg, "context: aaa", 12) && strlen(e.msg) == sizeof e.msg - 1);
    CHECK(err_exit_status(0) == 0 && err_exit_status(ERR_INFEASIBLE) == 4 && err_exit_status(ERR_INTR) == 130);
    return test_done();
}
