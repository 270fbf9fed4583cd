#include "tests/faults/scene.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INPUTS = 16, WORDS = 40, ENVIRONMENT = 16, LIMIT = 4 << 20 };

static struct {
    char dir[PATH_MAX], bin[PATH_MAX];
    const char *env[ENVIRONMENT];
    char preload[PATH_MAX + 16], shared_name[PATH_MAX + 32], tmpdir[PATH_MAX + 16];
    struct shim_shared *shared;
    struct { char name[32]; struct stat st; } inputs[INPUTS];
    int n_inputs;
    char *out, *before, *after; /* standard output and the output without faults; of a table as exported */
    size_t out_len, before_len, after_len;
} scene;

static void die(const char *what)
{
    printf("Bail out! %s: %s\n", what, strerror(errno));
    exit(1);
}

static int say(char *why, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int say(char *why, size_t size, const char *fmt, ...)
{
    va_list a;
    va_start(a, fmt);
    vsnprintf(why, size, fmt, a);
    va_end(a);
    return -1;
}

static char *path_of(const char *name)
{
    static char path[2][PATH_MAX + 640];
    static int k;
    k = !k;
    snprintf(path[k], sizeof path[k], "%s/%s", scene.dir, name);
    return path[k];
}

/* The whole file; NULL where it is not there. */
static char *slurp(const char *name, size_t *len)
{
    int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);
    char *p = fd < 0 ? NULL : malloc(LIMIT + 1);
    ssize_t n = p ? pread(fd, p, LIMIT, 0) : -1;
    if (fd >= 0)
        close(fd);
    if (n < 0) {
        free(p);
        return NULL;
    }
    p[n] = '\0';
    *len = (size_t)n;
    return p;
}

static void spill(const char *name, const char *data, size_t len)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len || close(fd) < 0)
        die(name);
}

static void copy(const char *from, const char *to)
{
    size_t len = 0;
    char *p = slurp(from, &len);
    if (!p)
        die(from);
    spill(to, p, len);
    free(p);
}

/* Calls f with each name in the folder. */
static int each(const char *dir, int (*f)(const char *dir, const char *name, void *arg), void *arg)
{
    DIR *d = opendir(path_of(dir));
    struct dirent *e;
    int r = 0;
    while (d && r == 0 && (e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = f(dir, e->d_name, arg);
    if (d)
        closedir(d);
    return r;
}

static int remove_one(const char *dir, const char *name, void *arg)
{
    char path[512];
    (void)arg;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    remove(path_of(path));
    return 0;
}

/* ---- running ---- */

static int run(const char *const *words, struct trial *t, const char *out, const char *err)
{
    const char *argv[WORDS];
    char program[PATH_MAX + 64];
    size_t n = 0;
    for (; words[n] && n + 1 < WORDS; n++)
        argv[n] = words[n];
    argv[n] = NULL;
    snprintf(program, sizeof program, "%s/%s", scene.bin, words[0]);
    argv[0] = program;
    t->argv = argv;
    t->env = scene.env;
    t->dir = scene.dir;
    t->out = open(path_of(out), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    t->err = open(path_of(err), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (t->out < 0 || t->err < 0)
        die(scene.dir);
    bool shim = t->kind == TRIAL_ALLOC;
    scene.env[0] = shim ? scene.preload : "A=";
    if (shim) { /* what came of it stays for those who judge */
        scene.shared->at = t->at;
        scene.shared->on = t->on;
        scene.shared->n_frames = 0;
        scene.shared->calls = 0;
    }
    int r = trial_run(t);
    close(t->out);
    close(t->err);
    return r;
}

int scene_run(const struct fault_case *c, struct trial *t)
{
    return run(c->argv, t, "stdout", "stderr");
}

/* A command line of one string, without faults; a first word of =FILE takes what it prints. */
static void step(const char *line)
{
    char text[1024];
    const char *words[WORDS], *out = "stdout";
    int n = 0;
    struct trial t = { .kind = TRIAL_NONE };
    snprintf(text, sizeof text, "%s", line);
    for (char *w = strtok(text, " "); w && n + 1 < WORDS; w = strtok(NULL, " "))
        if (n == 0 && *w == '=')
            out = w + 1;
        else
            words[n++] = w;
    words[n] = NULL;
    if (run(words, &t, out, "stderr") < 0 || t.status != 0) {
        printf("Bail out! status %x: %s\n", t.status, line);
        scene_show_errors();
        exit(1);
    }
}

static int keep_input(const char *dir, const char *name, void *arg)
{
    char path[512];
    (void)arg;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (scene.n_inputs == INPUTS || strlen(name) >= sizeof scene.inputs[0].name)
        die("too many inputs");
    strcpy(scene.inputs[scene.n_inputs].name, name);
    return stat(path_of(path), &scene.inputs[scene.n_inputs++].st);
}

static void make_environment(const char *shim)
{
    static char asan[512];
    const char *old = getenv("ASAN_OPTIONS");
    int n = 0;
    snprintf(scene.preload, sizeof scene.preload, "LD_PRELOAD=%s", shim ? shim : "");
    snprintf(scene.shared_name, sizeof scene.shared_name, "FAULT_SHARED=%s/shared", scene.dir);
    snprintf(scene.tmpdir, sizeof scene.tmpdir, "TMPDIR=%s/tmp", scene.dir);
    snprintf(asan, sizeof asan, "ASAN_OPTIONS=%s%sdetect_leaks=0:allocator_may_return_null=1", old ? old : "", old ? ":" : "");
    scene.env[n++] = "A=";
    scene.env[n++] = scene.shared_name;
    scene.env[n++] = scene.tmpdir;
    scene.env[n++] = asan;
    scene.env[n++] = "LC_ALL=C";
    scene.env[n++] = "PATH=/usr/bin:/bin";
    scene.env[n++] = "OPENBLAS_NUM_THREADS=1";
    scene.env[n] = NULL;
}

/* A copy of a file of the repository. */
static void take(const char *from, const char *to)
{
    FILE *f = fopen(from, "rb");
    char *p = malloc(LIMIT);
    if (!f || !p)
        die(from);
    spill(to, p, fread(p, 1, LIMIT, f));
    fclose(f);
    free(p);
}

static void scene_close(void)
{
    static const char *const dirs[] = { "in", "out", "tmp", "" };
    for (int i = 0; i < 4; i++) {
        each(dirs[i], remove_one, NULL);
        rmdir(path_of(dirs[i]));
    }
}

void scene_open(const char *bin, const char *shim)
{
    char full[PATH_MAX];
    const char *tmp = getenv("TMPDIR");
    snprintf(scene.dir, sizeof scene.dir, "%s/thermo-faults-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!realpath(bin, scene.bin) || (shim && !realpath(shim, full)) || !mkdtemp(scene.dir))
        die(bin);
    atexit(scene_close);
    make_environment(shim ? full : NULL);
    if (mkdir(path_of("in"), 0777) < 0 || mkdir(path_of("out"), 0777) < 0 || mkdir(path_of("tmp"), 0777) < 0)
        die(scene.dir);
    int fd = open(path_of("shared"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof *scene.shared) < 0)
        die("shared");
    scene.shared = mmap(NULL, sizeof *scene.shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (scene.shared == MAP_FAILED)
        die("shared");
    close(fd);
    spill("in/prompts.csv", fault_prompts, strlen(fault_prompts));
    take("datasets/devices/oneplus-12.csv", "in/device.csv");
    take("datasets/devices/oneplus-ace-2.csv", "in/other.csv");
    for (const char *const *s = fault_setup; *s; s++)
        step(*s);
    each("in", keep_input, NULL);
}

static const char old_output[] = "the output of an earlier run\n";

void scene_prepare(const struct fault_case *c, bool old)
{
    each("out", remove_one, NULL);
    each("tmp", remove_one, NULL);
    if (c->output == OUTPUT_TABLE)
        copy("in/hw.sqlite", "out/x");
    else if (c->output == OUTPUT_FILE && old)
        spill("out/x", old_output, strlen(old_output));
}

/* ---- what must hold ---- */

/* What the output holds: of a table what export makes of it. NULL: it is not there, or cannot be exported. */
/* A database whose writer was killed is read again once a writer, here SQLite's own program, has taken back what that had begun. */
static void take_back(void)
{
    char line[PATH_MAX + 64], journal[PATH_MAX];
    snprintf(journal, sizeof journal, "%s-journal", path_of("out/x"));
    snprintf(line, sizeof line, "sqlite3 '%s' 'SELECT count(*) FROM device' > /dev/null 2>&1", path_of("out/x"));
    if (access(journal, F_OK) == 0 && system(line) != 0)
        fprintf(stderr, "%s failed\n", line);
}

static char *output(const struct fault_case *c, size_t *len)
{
    static const char *const words[] = { "thermo-profile", "export", "--db", "out/x", NULL };
    struct trial t = { .kind = TRIAL_NONE };
    if (c->output != OUTPUT_TABLE)
        return slurp("out/x", len);
    take_back();
    if (run(words, &t, "exported", "export-said") < 0 || t.status != 0)
        return NULL;
    return slurp("exported", len);
}

static bool same(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return a && b && a_len == b_len && memcmp(a, b, a_len) == 0;
}

int scene_expect(const struct fault_case *c, const struct trial *t, char *why, size_t size)
{
    struct trial again = { .kind = TRIAL_NONE };
    char *out, *x;
    size_t out_len = 0, x_len = 0;
    if (t->status != 0)
        return say(why, size, "status %x", t->status);
    free(scene.out);
    free(scene.after);
    free(scene.before);
    scene.out = slurp("stdout", &scene.out_len);
    scene.after = output(c, &scene.after_len);
    scene_prepare(c, true);
    scene.before = output(c, &scene.before_len);
    if (scene_run(c, &again) < 0 || again.status != 0)
        return say(why, size, "a second run ends with status %x", again.status);
    out = slurp("stdout", &out_len);
    x = output(c, &x_len);
    bool ok = (c->measures || same(out, out_len, scene.out, scene.out_len)) &&
              (c->output == OUTPUT_NONE || same(x, x_len, scene.after, scene.after_len));
    free(out);
    free(x);
    return ok ? 0 : say(why, size, "a second run gives something else");
}

static int input_stays(const char *dir, const char *name, void *arg)
{
    char path[512], **why = arg;
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (int i = 0; i < scene.n_inputs; i++) {
        const struct stat *was = &scene.inputs[i].st;
        if (strcmp(name, scene.inputs[i].name) != 0)
            continue;
        if (stat(path_of(path), &st) == 0 && st.st_ino == was->st_ino && st.st_size == was->st_size &&
            memcmp(&st.st_mtim, &was->st_mtim, sizeof st.st_mtim) == 0 &&
            memcmp(&st.st_ctim, &was->st_ctim, sizeof st.st_ctim) == 0)
            return 0;
        return say(*why, 256, "input %s changed", name);
    }
    return say(*why, 256, "%s appeared among the inputs", name);
}

/* A change time that is the same says that nothing was written. */
static int inputs_stay(char *why)
{
    int n = 0;
    DIR *d = opendir(path_of("in"));
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    if (n != scene.n_inputs + 2)
        return say(why, 256, "inputs came or went");
    return each("in", input_stays, &why);
}

struct litter {
    const struct fault_case *c;
    bool failed;
    char *why;
};

static int no_litter(const char *dir, const char *name, void *arg)
{
    struct litter *l = arg;
    if (strcmp(dir, "out") == 0 && (strcmp(name, "x") == 0 || (l->c->partial && strcmp(name, l->c->partial) == 0)))
        return 0;
    if (l->failed && l->c->output == OUTPUT_TABLE && strcmp(name, "x-journal") == 0)
        return 0; /* SQLite's: it could not take back what it had begun, and whoever opens the database next does */
    return say(l->why, 256, "it left %s/%s", dir, name);
}

static int output_holds(const struct fault_case *c, bool done, char *why, size_t size)
{
    size_t len = 0, out_len = 0;
    char *x = output(c, &len), *out = slurp("stdout", &out_len);
    int r = 0;
    bool after = same(x, len, scene.after, scene.after_len);
    bool before = c->output == OUTPUT_TABLE ? same(x, len, scene.before, scene.before_len)
                                            : !x || same(x, len, old_output, strlen(old_output));
    if (done && !c->measures && !same(out, out_len, scene.out, scene.out_len))
        r = say(why, size, "status 0, and standard output is not what it is without faults");
    else if (c->output == OUTPUT_NONE)
        r = 0;
    else if (done && !after)
        r = say(why, size, "status 0, and the output is not what it is without faults (%zu bytes, %zu)", len, scene.after_len);
    else if (!after && !before)
        r = say(why, size, "the output is neither as before nor complete (%zu bytes, %zu)", len, scene.after_len);
    free(x);
    free(out);
    return r;
}

static bool documented(int status)
{
    return (status >= 0 && status <= 6) || status == 130;
}

/* The command once more; with --resume where it left what that goes on with. */
static int run_again(const struct fault_case *c, struct trial *t)
{
    const char *words[WORDS];
    int n = 0;
    struct stat st;
    char partial[64];
    snprintf(partial, sizeof partial, "out/%s", c->partial ? c->partial : "");
    for (; c->argv[n] && n + 2 < WORDS; n++)
        words[n] = c->argv[n];
    if (c->partial && stat(path_of(partial), &st) == 0)
        words[n++] = "--resume";
    words[n] = NULL;
    return run(words, t, "stdout", "stderr");
}

/* Killed: the output, then a run without faults beside what was left. */
static int killed_holds(const struct fault_case *c, char *why, size_t size)
{
    struct trial again = { .kind = TRIAL_NONE };
    if (inputs_stay(why) < 0 || output_holds(c, false, why, size) < 0)
        return -1;
    if (run_again(c, &again) < 0 || again.late || again.status != 0)
        return say(why, size, "the next run ends with status %x", again.status);
    if (output_holds(c, true, why, size) < 0)
        return say(why, size, "the next run gives something else");
    return 0;
}

static bool explained(const struct trial *t)
{
    struct stat st;
    if (t->nr >= 0 && trial_is_write(t->nr) && t->fd == 2)
        return true; /* what should have been said could not be */
    return stat(path_of("stderr"), &st) == 0 && st.st_size > 0;
}

static bool is_valid(const struct fault_case *c)
{
    struct trial t = { .kind = TRIAL_NONE };
    return run(c->valid, &t, "exported", "export-said") == 0 && t.status == 0;
}

int scene_judge(const struct fault_case *c, const struct trial *t, char *why, size_t size)
{
    struct litter l = { c, t->status != 0, why };
    if (t->late)
        return say(why, size, "not done after %d s", TRIAL_SECONDS);
    if (t->kind == TRIAL_KILL || t->kind == TRIAL_POWER)
        return killed_holds(c, why, size);
    if (inputs_stay(why) < 0)
        return -2;
    if (output_holds(c, t->status == 0, why, size) < 0)
        return t->status == 0 && t->kind == TRIAL_ALLOC && c->valid[0] && is_valid(c) ? -1 : -2;
    if (WIFSIGNALED(t->status))
        return say(why, size, "ended by signal %d (%s)", WTERMSIG(t->status), strsignal(WTERMSIG(t->status)));
    int status = WEXITSTATUS(t->status);
    if (!documented(status))
        return say(why, size, "undocumented exit status %d", status);
    if (status != 0 && !explained(t))
        return say(why, size, "exit status %d and nothing on standard error", status);
    if (t->kind == TRIAL_ALLOC && status != 0 && status != 1)
        return say(why, size, "exit status %d for want of memory", status);
    bool unlinks = t->kind == TRIAL_CALL && t->nr >= 0 && strncmp(trial_call_name(t->nr), "unlink", 6) == 0;
    return unlinks ? 0 : each("out", no_litter, &l) < 0 || each("tmp", no_litter, &l) < 0 ? -1 : 0;
}

struct shim_shared *scene_shared(void)
{
    return scene.shared;
}

void scene_show_errors(void)
{
    size_t len = 0;
    char *p = slurp("stderr", &len), *line = p;
    if (len > 1500)
        line = p + len - 1500;
    for (char *next; line && *line; line = next) {
        next = strchr(line, '\n');
        next = next ? (*next = '\0', next + 1) : line + strlen(line);
        printf("#   | %s\n", line);
    }
    free(p);
}
