/* libedit's wrapper. It reads characters from us, draws the line and keeps what Up brings back. Its own reading of the terminal, its
 * signals and its configuration files are not used. */
#include "runtime/typed.h"

#include "common/base/utf8.h"

#include <stdlib.h>

#ifdef NO_EDIT
struct edit *edit_open(struct typed *t, FILE *screen, int entries)
{
    (void)t;
    (void)screen;
    (void)entries;
    return NULL;
}

void edit_close(struct edit *d)
{
    (void)d;
}

void edit_redraw(struct edit *d)
{
    (void)d;
}

void edit_remember(struct edit *d, const char *line)
{
    (void)d;
    (void)line;
}

int edit_line(struct edit *d, const char *prompt, struct kept *line, struct err *e)
{
    (void)d;
    (void)prompt;
    (void)line;
    return err_set(e, ERR_UNSUPPORTED, "this build has no line editor");
}
#else
#include <histedit.h>
#include <locale.h>
#include <string.h>
#include <wchar.h>

enum { PROMPT = 16 };

struct edit {
    struct typed *typed;
    EditLine *line;
    HistoryW *history;
    wchar_t prompt[PROMPT];
    int interrupted;
};

static size_t widen(wchar_t *to, size_t most, const char *text)
{
    size_t n = 0, left = strlen(text);
    while (left && n + 1 < most) {
        uint32_t c = 0xfffd;
        size_t k = utf8_decode(text, left, &c);
        k = k ? k : 1;
        to[n++] = (wchar_t)c;
        text += k;
        left -= k;
    }
    to[n] = 0;
    return n;
}

static int get(EditLine *line, wchar_t *to)
{
    struct edit *d;
    uint32_t c = 0;
    int resized = 0;
    el_wget(line, EL_CLIENTDATA, &d);
    int r = typed_char(d->typed, &c, &resized);
    if (resized)
        el_resize(line);
    d->interrupted = r < 0;
    *to = (wchar_t)c;
    return r;
}

static wchar_t *prompt_of(EditLine *line)
{
    struct edit *d;
    el_wget(line, EL_CLIENTDATA, &d);
    return d->prompt;
}

/* Its characters have the width that the locale gives them. */
static void begin_locale(void)
{
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
}

struct edit *edit_open(struct typed *t, FILE *screen, int entries)
{
    HistEventW ev;
    const char *terminal = getenv("TERM");
    if (!terminal || !*terminal || !strcmp(terminal, "dumb"))
        return NULL;
    begin_locale();
    struct edit *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->typed = t;
    d->line = el_init("thermo-run", stdin, screen, screen);
    d->history = history_winit();
    if (!d->line || !d->history) {
        edit_close(d);
        return NULL;
    }
    history_w(d->history, &ev, H_SETSIZE, entries);
    history_w(d->history, &ev, H_SETUNIQUE, 1);
    el_wset(d->line, EL_CLIENTDATA, d);
    el_wset(d->line, EL_EDITOR, L"emacs");
    el_wset(d->line, EL_SIGNAL, 0);
    el_wset(d->line, EL_HIST, history_w, d->history);
    el_wset(d->line, EL_PROMPT, prompt_of);
    el_wset(d->line, EL_GETCFN, get);
    static const wchar_t *const keys[][2] = {
        { L"^R", L"em-inc-search-prev" }, { L"\\e[1;5C", L"em-next-word" }, { L"\\e[1;5D", L"ed-prev-word" },
        { L"\\e[3~", L"ed-delete-next-char" },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_wset(d->line, EL_BIND, keys[i][0], keys[i][1], NULL);
    return d;
}

void edit_close(struct edit *d)
{
    if (!d)
        return;
    if (d->line)
        el_end(d->line);
    if (d->history)
        history_wend(d->history);
    free(d);
}

void edit_redraw(struct edit *d)
{
    el_wset(d->line, EL_REFRESH);
}

void edit_remember(struct edit *d, const char *line)
{
    HistEventW ev;
    size_t most = strlen(line) + 1;
    wchar_t *wide = malloc(most * sizeof *wide);
    if (wide && widen(wide, most, line))
        history_w(d->history, &ev, H_ENTER, wide);
    free(wide);
}

int edit_line(struct edit *d, const char *prompt, struct kept *line, struct err *e)
{
    int n = 0;
    widen(d->prompt, PROMPT, prompt);
    d->interrupted = 0;
    const wchar_t *typed = el_wgets(d->line, &n);
    if (d->interrupted) {
        el_reset(d->line);
        return err_set(e, ERR_INTR, "interrupted");
    }
    if (!typed || n <= 0)
        return 0;
    for (int i = 0; i < n && typed[i] != L'\n'; i++) {
        char one[4];
        uint32_t c = (uint32_t)typed[i];
        size_t k = utf8_encode(one, c <= 0x10ffff && (c < 0xd800 || c >= 0xe000) ? c : 0xfffd);
        if (kept_add(line, one, k, e) < 0)
            return e->code;
    }
    return 1;
}
#endif
