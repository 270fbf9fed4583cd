#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

/* The page at /, for people: a client of the other paths like any other. */
#include "server/server.h"

void page_answer(struct server *s, struct call *c);

#endif
