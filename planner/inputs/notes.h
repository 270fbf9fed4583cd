#ifndef PLANNER_INPUTS_NOTES_H
#define PLANNER_INPUTS_NOTES_H

/* What had to be assumed on the way to a plan, each thing once, in the order found. They end up in the
 * plan's "notes". One owner thread. */
#define NOTES_MAX 32

struct notes {
    int n;
    char text[NOTES_MAX][200];
};

void notes_add(struct notes *n, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* n may be NULL */

#endif
