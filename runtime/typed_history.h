#ifndef RUNTIME_TYPED_HISTORY_H
#define RUNTIME_TYPED_HISTORY_H

/* Lines of earlier runs: $XDG_STATE_HOME/thermocline/chat-history, else ~/.local/state/..., which only the user may read. Each line is
 * appended when it is typed, so that several runs may write at once and none loses what it had; a file beyond 64 KiB loses its older half
 * when a run begins that is the only one. What goes wrong is said once, and there is no history. */
#include <stddef.h>

struct typed_history {
    int fd; /* -1: none */
};

/* To each of the last lines, the oldest first. */
void typed_history_open(struct typed_history *h, int most, void (*line)(void *ctx, const char *line), void *ctx);
void typed_history_add(struct typed_history *h, const char *line, size_t len);
void typed_history_close(struct typed_history *h);

#endif
