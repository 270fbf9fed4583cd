/* The terminal gives bytes as they come (no line of the kernel's, which ends at 4,095 bytes) and says where a pasted text begins and ends.
 * What was pasted is put aside; the line gets it back when it is whole. Where no editor draws the line it is drawn here, as it is typed. */
#include "runtime/typed.h"

#include "common/base/print.h"
#include "common/base/size.h"
#include "common/base/utf8.h"

#include "runtime/typed_history.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#define ENTRIES  100  /* of the history, of at most */
#define REMEMBER 1024 /* bytes each */
#define AS_TYPED 200  /* a pasted text of one line and at most so many bytes is as if typed */
#define MARK     64
#define TYPED    32768 /* characters of a line that are typed and not pasted: the editor takes 20 bytes for each */
#define LOOK_MS  500   /* a signal that came just before a wait is seen then */
#define QUIET_MS 300   /* what comes of a paste that a signal broke off, its end perhaps not, has come */
#define ESCAPE_MS 40  /* what the Escape key sends is one byte, and nothing comes at once */

struct paste {
    char mark[MARK];
    struct kept text;
};

struct typed {
    const char *prompt;          /* of a line without an editor, */
    const struct kept *line;     /* and that line; NULL: none is typed */
    FILE *screen, *own;          /* own: the terminal, where standard error is none */
    struct edit *edit;
    struct typed_history history;
    const struct cancel *asked;
    size_t cap;
    unsigned char in[4096];      /* what was read of the terminal: [at, end) */
    size_t at, end;
    struct kept next;            /* comes before it: */
    size_t next_at;
    struct paste *pastes;        /* of the line; */
    int n_pastes, number;        /* number: of all, for their marks */
    size_t pasted, typed;        /* bytes; characters */
    int cut;                     /* a signal came while a text was pasted */
    int over, nul, long_line;    /* what was pasted is too long, holds a NUL byte; more was typed than TYPED */
    struct err why;              /* no memory for it */
};

/* ---- signals; what handlers use is constant while they are there ---- */

static volatile sig_atomic_t resized, resumed, stopped;
static struct termios was, now;  /* the terminal before, and meanwhile; */
static struct termios edited;    /* when it stopped, as the editor had it */
static const struct cancel *ending;
static void (*asks)(int signal); /* what SIGTERM and SIGHUP did before */
static const char *on, *off;     /* what says that pasted texts are marked, and that they are not; "": nothing does */

static void on_resize(int signal)
{
    (void)signal;
    resized = 1;
}

static void tell_terminal(const char *sequence)
{
    if (*sequence && write(STDIN_FILENO, sequence, strlen(sequence)) < 0)
        return;
}

/* A terminal that Ctrl-S holds goes on, for what is to be written still. The second signal kills: the terminal is as it was. */
static void on_end(int signal)
{
    int saved = errno;
    tcflow(STDIN_FILENO, TCOOFF);
    tcflow(STDIN_FILENO, TCOON);
    if (cancel_asked(ending)) {
        tell_terminal(off);
        tcsetattr(STDIN_FILENO, TCSANOW, &was);
    }
    asks(signal);
    errno = saved;
}

/* Ctrl-Z: the shell has the terminal as it was, and after fg it is ours. */
static void on_stop(int sig)
{
    int saved = errno;
    sigset_t stop;
    struct sigaction own, usual = { .sa_handler = SIG_DFL };
    sigemptyset(&usual.sa_mask);
    sigemptyset(&stop);
    sigaddset(&stop, sig);
    stopped = tcgetattr(STDIN_FILENO, &edited) == 0;
    tell_terminal(off);
    tcsetattr(STDIN_FILENO, TCSANOW, &was);
    sigaction(sig, &usual, &own);
    raise(sig);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL); /* here it stops */
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    sigaction(sig, &own, NULL);
    errno = saved;
}

static void on_resume(int signal)
{
    int saved = errno;
    (void)signal;
    tcsetattr(STDIN_FILENO, TCSANOW, stopped ? &edited : &now);
    stopped = 0;
    tell_terminal(on);
    resumed = 1;
    errno = saved;
}

static void handle(int signal, void (*handler)(int signal), int flags)
{
    struct sigaction s = { .sa_handler = handler, .sa_flags = flags };
    sigemptyset(&s.sa_mask);
    if (handler == on_end)
        sigaddset(&s.sa_mask, SIGTTOU);
    sigaction(signal, &s, NULL);
}

static const int endings[] = { SIGTERM, SIGHUP };

/* What others ignore (nohup) is ignored. */
static void begin_signals(void)
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        struct sigaction old;
        if (sigaction(endings[i], NULL, &old) < 0 || old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN)
            continue;
        asks = old.sa_handler;
        handle(endings[i], on_end, SA_RESTART);
    }
    handle(SIGWINCH, on_resize, 0);
    handle(SIGTSTP, on_stop, SA_RESTART);
    handle(SIGCONT, on_resume, 0);
}

static void end_signals(void)
{
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        struct sigaction old;
        if (sigaction(endings[i], NULL, &old) == 0 && old.sa_handler == on_end)
            handle(endings[i], asks, SA_RESTART);
    }
    handle(SIGWINCH, SIG_DFL, 0);
    handle(SIGTSTP, SIG_DFL, 0);
    handle(SIGCONT, SIG_DFL, 0);
}

/* ---- bytes ---- */

/* The next byte; -1: a signal came; -2: the end; -3: nothing came for so long (wait_ms >= 0); -4: the terminal has another size, or is ours
 * again. */
static int byte(struct typed *t, int wait_ms)
{
    if (t->next_at < t->next.len)
        return (unsigned char)t->next.s[t->next_at++];
    t->next.len = t->next_at = 0;
    while (t->at == t->end) {
        struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
        int ready = poll(&p, 1, wait_ms < 0 ? LOOK_MS : wait_ms);
        if (cancel_asked(t->asked) || (ready < 0 && errno == EINTR && !resized && !resumed))
            return -1;
        if (ready < 0 && errno == EINTR)
            return -4;
        if (ready == 0 && resumed)
            return -4;
        if (ready == 0 && wait_ms < 0)
            continue;
        if (ready == 0)
            return -3;
        ssize_t n = read(STDIN_FILENO, t->in, sizeof t->in);
        if (n == 0 || (n < 0 && errno != EINTR))
            return -2;
        if (n < 0)
            continue;
        t->at = 0;
        t->end = (size_t)n;
    }
    return t->in[t->at++];
}

static int put(struct typed *t, struct kept *to, const char *text, size_t n)
{
    return t->why.code ? -1 : kept_add(to, text, n, &t->why);
}

/* ---- pasted texts ---- */

/* But one that would be a command at the line's beginning is none. */
static int is_short(const struct typed *t, const struct kept *k, size_t len)
{
    return len && len <= AS_TYPED && utf8_is_printable(k->s, len) && (k->s[0] != '/' || t->typed);
}

/* To its end, however long it is. Line ends are newlines. After a signal the terminal may have dropped its end: nothing is taken. */
static void take_paste(struct typed *t)
{
    static const char ends[] = "\x1b[201~";
    struct paste p = { .mark = "" };
    size_t found = 0, lines = 1;
    int c, before = 0;
    while (found < sizeof ends - 1 && (c = byte(t, t->cut ? QUIET_MS : -1)) != -2 && c != -3 && !cancel_asked(t->asked)) {
        t->cut |= c == -1;
        if (c < 0)
            continue;
        if (c == ends[found]) {
            found++;
            continue;
        }
        if (found) { /* it was none */
            if (t->pasted + p.text.len + found < t->cap)
                put(t, &p.text, ends, found);
            else
                t->over = 1;
            found = c == ends[0];
            if (found)
                continue;
        }
        int end = c == '\r' || (c == '\n' && before != '\r');
        char one = c == '\r' ? '\n' : (char)c;
        before = c;
        if (c == '\n' && !end)
            continue;
        if (!c)
            t->nul = 1;
        else if (t->pasted + p.text.len + 1 >= t->cap)
            t->over = 1;
        else
            put(t, &p.text, &one, 1);
        lines += (size_t)end;
    }
    t->next.len = t->next_at = 0;
    if (t->cut) {
        kept_free(&p.text);
        return;
    }
    int ended = p.text.len && p.text.s[p.text.len - 1] == '\n';
    lines -= (size_t)ended;
    if (p.text.len == 0 || is_short(t, &p.text, p.text.len - (size_t)ended)) {
        put(t, &t->next, p.text.len ? p.text.s : "", p.text.len - (size_t)ended);
        kept_free(&p.text);
        return;
    }
    char size[24];
    struct paste *grown = realloc(t->pastes, ((size_t)t->n_pastes + 1) * sizeof *grown);
    if (!grown) {
        err_set(&t->why, ERR_NOMEM, "out of memory for a pasted text");
        kept_free(&p.text);
        return;
    }
    snprintf(p.mark, sizeof p.mark, "[paste %d: %zu line%s, %s]", ++t->number, lines, lines == 1 ? "" : "s",
             size_format(p.text.len, size, sizeof size));
    t->pasted += p.text.len;
    t->pastes = grown;
    t->pastes[t->n_pastes++] = p;
    put(t, &t->next, p.mark, strlen(p.mark));
}

static void forget_line(struct typed *t)
{
    for (int i = 0; i < t->n_pastes; i++)
        kept_free(&t->pastes[i].text);
    t->n_pastes = 0;
    t->pasted = 0;
    t->over = t->nul = t->long_line = 0;
    t->typed = 0;
    t->why = (struct err){ 0 };
}

/* What was pasted takes the place of its marks. A mark that somebody has changed is what it is now. */
static int expand(struct typed *t, struct kept *line, int *pasted, struct err *e)
{
    struct kept whole = { 0 };
    const char *from = line->s ? line->s : "";
    int r = 0;
    *pasted = 0;
    for (struct paste *first = t->pastes; first && r == 0;) {
        const char *at = NULL;
        first = NULL;
        for (int i = 0; i < t->n_pastes; i++) {
            const char *here = strstr(from, t->pastes[i].mark);
            if (here && (!at || here < at)) {
                at = here;
                first = &t->pastes[i];
            }
        }
        if (!first)
            break;
        r = kept_add(&whole, from, (size_t)(at - from), e);
        r = r < 0 ? r : kept_add(&whole, first->text.s, first->text.len, e);
        from = at + strlen(first->mark);
        *pasted = 1;
    }
    if (r == 0 && *pasted && (r = kept_add(&whole, from, strlen(from), e)) == 0) {
        struct kept old = *line;
        *line = whole;
        whole = old;
    }
    kept_free(&whole);
    return r;
}

/* ---- characters ---- */

/* After an Escape: 1: a paste began, and has been taken. Else what followed comes again. */
static int escaped(struct typed *t)
{
    static const char begins[] = "[200~";
    char seen[sizeof begins];
    size_t n = 0;
    while (n < sizeof begins - 1) {
        int c = byte(t, ESCAPE_MS);
        if (c < 0)
            break;
        if (c != begins[n]) {
            t->at--; /* another Escape begins there, perhaps */
            break;
        }
        seen[n++] = (char)c;
    }
    if (n == sizeof begins - 1) {
        take_paste(t);
        return 1;
    }
    put(t, &t->next, seen, n);
    return 0;
}

static void redraw(const struct typed *t)
{
    if (t->edit)
        edit_redraw(t->edit);
    else if (t->line)
        print_to(t->screen, "%s%s", t->prompt, t->line->len ? t->line->s : "");
    fflush(t->screen);
}

int typed_char(struct typed *t, uint32_t *c, int *size_changed)
{
    char seen[4];
    size_t n = 0;
    for (;;) {
        *size_changed |= resized;
        resized = 0;
        if (resumed)
            redraw(t);
        resumed = 0;
        int b = byte(t, -1);
        if (b == -4)
            continue;
        if (b < 0)
            return b == -1 ? -1 : 0;
        if (b == 0x1b && t->next.len == 0 && escaped(t)) {
            if (!t->cut)
                continue;
            t->cut = 0;
            return -1;
        }
        seen[n++] = (char)b;
        size_t want = b < 0xc2 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : b < 0xf5 ? 4 : 1;
        while (n < want && (b = byte(t, ESCAPE_MS)) >= 0x80 && b < 0xc0)
            seen[n++] = (char)b;
        if (!utf8_decode(seen, n, c))
            *c = 0xfffd;
        t->typed += *c >= 0x20 && *c != 0x7f;
        t->typed -= (*c == 0x7f || *c == '\b') && t->typed;
        if (t->typed <= TYPED)
            return 1;
        t->typed--;
        t->long_line = 1;
        n = 0;
    }
}

/* ---- a line without an editor ---- */

static void erase(FILE *f, uint32_t c)
{
    for (int n = c < 0x20 ? 2 : c < 0x1100 ? 1 : 2; n > 0; n--)
        fputs("\b \b", f);
}

/* The last character of the line goes. */
static void rub_out(struct typed *t, struct kept *line)
{
    size_t n = 1;
    uint32_t c = 0;
    while (n < line->len && ((unsigned char)line->s[line->len - n] & 0xc0) == 0x80)
        n++;
    utf8_decode(line->s + line->len - n, n, &c);
    erase(t->screen, c);
    line->s[line->len -= n] = '\0';
}

static int plain_line(struct typed *t, const char *prompt, struct kept *line, struct err *e)
{
    int ignored = 0;
    print_to(t->screen, "%s", prompt);
    fflush(t->screen);
    t->prompt = prompt;
    t->line = line;
    for (;;) {
        uint32_t c = 0;
        char one[4];
        int r = typed_char(t, &c, &ignored);
        if (r <= 0)
            return r < 0 ? err_set(e, ERR_INTR, "interrupted") : line->len > 0;
        if (c == '\n' || (c == 4 && !line->len)) {
            print_to(t->screen, c == 4 ? "" : "\n");
            return c != 4;
        }
        if (c == 0x7f || c == '\b') {
            if (line->len)
                rub_out(t, line);
        } else if (c == 0x15) {
            while (line->len)
                rub_out(t, line);
        } else if (c >= 0x20 || c == '\t') {
            size_t n = utf8_encode(one, c);
            if ((r = kept_add(line, one, n, e)) < 0)
                return r;
            print_to(t->screen, "%.*s", (int)n, one);
        }
        fflush(t->screen);
    }
}

/* ---- a line ---- */

int typed_next(struct typed *t, const char *prompt, struct kept *line, int *pasted, struct err *e)
{
    *pasted = 0;
    line->len = 0;
    forget_line(t);
    int r = kept_add(line, "", 0, e);
    t->line = NULL;
    if (r == 0)
        r = t->edit ? edit_line(t->edit, prompt, line, e) : plain_line(t, prompt, line, e);
    if (r <= 0)
        return r;
    if (t->why.code) {
        *e = t->why;
        return e->code;
    }
    if (t->n_pastes == 0 && line->len && line->len <= REMEMBER && line->s[0] != ' ') {
        if (t->edit)
            edit_remember(t->edit, line->s);
        typed_history_add(&t->history, line->s, line->len);
    }
    if (t->nul)
        return err_set(e, ERR_LIMIT, "what was pasted holds a NUL byte");
    r = expand(t, line, pasted, e);
    if (r == 0 && t->long_line)
        r = err_set(e, ERR_LIMIT, "a line that is typed has at most %d characters; one that is pasted may have more", TYPED);
    if (r == 0 && t->over)
        r = err_set(e, ERR_LIMIT, "what was pasted is longer than %zu bytes, for which the context has room", t->cap - 1);
    if (r == 0 && line->len >= t->cap)
        r = err_set(e, ERR_LIMIT, "a line has %zu bytes; the context has room for %zu", line->len, t->cap - 1);
    return r < 0 ? r : 1;
}

static void remember(void *ctx, const char *line)
{
    edit_remember(ctx, line);
}

static void say(struct typed *t, const char *sequence)
{
    print_to(t->screen, "%s", sequence);
    fflush(t->screen);
}

int typed_open(struct typed **out, size_t cap, int history, const struct cancel *asked, struct err *e)
{
    struct typed *t = calloc(1, sizeof *t);
    const char *terminal = getenv("TERM");
    const int marks = terminal && *terminal && strcmp(terminal, "dumb") != 0;
    if (!t)
        return err_set(e, ERR_NOMEM, "out of memory for a line");
    t->cap = cap;
    t->asked = asked;
    t->history.fd = -1;
    t->screen = isatty(STDERR_FILENO) ? stderr : (t->own = fopen("/dev/tty", "we"));
    if (!t->screen || tcgetattr(STDIN_FILENO, &was) < 0) {
        int r = err_sys(e, ERR_SYS, "the terminal");
        if (t->own)
            fclose(t->own);
        free(t);
        return r;
    }
    on = marks ? "\x1b[?2004h" : "";
    off = marks ? "\x1b[?2004l" : "";
    ending = asked;
    now = was;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    now.c_cc[VMIN] = 1;
    now.c_cc[VTIME] = 0;
    begin_signals();
    tcsetattr(STDIN_FILENO, TCSADRAIN, &now);
    t->edit = edit_open(t, t->screen, ENTRIES);
    say(t, on);
    if (history && t->edit)
        typed_history_open(&t->history, ENTRIES, remember, t->edit);
    *out = t;
    return 0;
}

void typed_close(struct typed *t)
{
    if (!t)
        return;
    say(t, off);
    edit_close(t->edit);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &was);
    end_signals();
    typed_history_close(&t->history);
    forget_line(t);
    free(t->pastes);
    kept_free(&t->next);
    if (t->own)
        fclose(t->own);
    free(t);
}
