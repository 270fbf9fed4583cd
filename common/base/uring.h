#ifndef COMMON_BASE_URING_H
#define COMMON_BASE_URING_H

/* 1 where io_uring may be tried: asked once by a process of its own, for filters of Android and of some containers kill whoever calls it,
 * which no error tells. Whether it then works is io_uring's own answer. Safe beside threads and large mappings: the child shares the
 * memory, and does nothing else. */
int uring_may_be_tried(void);

#endif
