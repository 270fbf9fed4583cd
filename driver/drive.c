#include "driver/drive.h"

#include "common/base/js.h"
#include "common/base/log.h"
#include "common/base/print.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int drive_path(char out[DRIVE_PATH], struct err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, DRIVE_PATH, fmt, ap);
    va_end(ap);
    return n >= 0 && n < DRIVE_PATH ? 0 : err_set(e, ERR_USAGE, "'%.100s...': a path of more than %d bytes", out, DRIVE_PATH - 1);
}

void drive_say(struct drive *d, const char *fmt, ...)
{
    char line[8192];
    va_list ap;
    if (log_get_level() < LOG_INFO)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    bar_clear(&d->bar);
    print_to(stderr, "%s\n", line);
}

const char *drive_purpose(const struct drive *d)
{
    return d->serve ? "serve" : d->has_template ? "chat" : "";
}

void drive_program(const struct drive *d, struct words *w, const char *program)
{
    char path[DRIVE_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", d->programs, program);
    words_add(w, path);
}

/* All lines but the one of the program's version. */
static void id_of(char *text, char id[HASH_TEXT])
{
    char *tool = strstr(text, "\n  \"tool\":"), *end = tool ? strchr(tool + 1, '\n') : NULL;
    if (end)
        memmove(tool, end, strlen(end) + 1);
    hash_text(hash_128(text, strlen(text)), id);
}

int drive_asks(const struct drive *d, const char *program, const char *command, const char *file, struct js **out, char id[HASH_TEXT],
               struct err *e)
{
    struct words w = { 0 };
    char *text = NULL, says[400];
    size_t len;
    int status = 0;
    drive_program(d, &w, program);
    words_add(&w, command);
    words_add(&w, "--json");
    words_add(&w, "-q");
    words_add(&w, "--");
    words_add(&w, file);
    int r = child_read(&w, &text, &len, says, sizeof says, &status, e);
    if (r == 0 && status)
        r = err_set(e, status == 130 ? ERR_INTR : ERR_INPUT, "%s", *says ? says : "it cannot be read");
    if (r == 0 && out && !(*out = js_parse(text, len, file, e)))
        r = e->code;
    if (r == 0 && id)
        id_of(text, id);
    free(text);
    words_done(&w);
    return r;
}

int drive_folder_of_self(char out[DRIVE_PATH], struct err *e)
{
    ssize_t n = readlink("/proc/self/exe", out, DRIVE_PATH - 1);
    if (n <= 0)
        return err_sys(e, ERR_SYS, "cannot read /proc/self/exe");
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    *(slash ? slash : out) = '\0';
    return 0;
}

static int has(const char *dir, const char *file, int how)
{
    char path[DRIVE_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return access(path, how) == 0;
}

int drive_in_path(const char *file, int how, char dir[DRIVE_PATH])
{
    struct err ignored;
    for (const char *path = getenv("PATH"); path && *path;) {
        size_t n = strcspn(path, ":");
        if (n && drive_path(dir, &ignored, "%.*s", (int)n, path) == 0 && has(dir, file, how))
            return 1;
        path += n + (path[n] == ':');
    }
    return 0;
}

int drive_find_programs(struct drive *d, struct err *e)
{
    static const char needed[] = "thermo-profile";
    const char *bin = getenv("BIN");
    char own[DRIVE_PATH];
    int r = drive_folder_of_self(own, e);
    if (r < 0)
        return r;
    if (bin && *bin) {
        r = drive_path(d->programs, e, "%s", bin);
        return r == 0 && !has(bin, needed, X_OK) ? err_set(e, ERR_SYS, "no programs in '%s' (BIN)", bin) : r;
    }
    if (has(own, needed, X_OK))
        return drive_path(d->programs, e, "%s", own);
    return drive_in_path(needed, X_OK, d->programs) ? 0 :
           err_set(e, ERR_SYS, "%s is neither in '%s' nor in PATH: run make first, or install the package thermocline", needed, own);
}
