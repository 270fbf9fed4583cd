#ifndef TESTS_FAULTS_POWER_H
#define TESTS_FAULTS_POWER_H

/* What a power failure takes: a file that was changed since its last fsync goes back to what it held then. Names stay as
 * they are: file systems may bring a rename to the disk before the data of the file it names. */
#include <sys/types.h>

/* Before a call that changes what the descriptor `fd` of process `pid` holds: keeps what it holds now, unless kept. */
void power_before_change(pid_t pid, int fd);
/* Before a sync of it: what it holds now stays. */
void power_synced(pid_t pid, int fd);
/* After the process is gone: every file in the folder `dir` that was changed and not synced is set back. */
void power_lose(const char *dir);
void power_forget(void);

#endif
