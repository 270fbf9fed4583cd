/* The files that SQLite may touch. By itself it trusts whatever lies beside a database: it plays a journal that it finds there
 * into the database, removes the file that the journal's end names (a "super-journal"), and makes a -wal and a -shm where the database's
 * header asks for them; all that for a program that only wanted to read. So it gets two file systems of our own, each the
 * system's with less in it:
 *
 *              opens                           removes      a journal that is to be played
 *   reading    the database, its journal:      nothing      SQLite says so (SQLITE_READONLY_ROLLBACK), and that ends it
 *              both only to be read
 *   writing    the database, its journal       the journal  is played, unless it names another file: ours never do
 *
 * No other file is opened, whatever name it comes by: no write-ahead log, no super-journal, no temporary file (hwdb_harden keeps those in
 * memory). Locks are the system's, so a reader and a writer take turns as before. */
#include "common/offline/hwdb/hwdb_impl.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { RECORD_END = 16 };
static const unsigned char journal_magic[8] = { 0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7 };

static sqlite3_vfs *base, file_systems[2]; /* constant after the first use; [1]: writing */
static const char *const file_system_names[2] = { "thermocline-read", "thermocline-write" };

/* The system's part of an open file, and behind it what may be called of it. */
static sqlite3_io_methods *methods_of(sqlite3_file *file)
{
    return (sqlite3_io_methods *)(void *)((char *)file + (size_t)file_systems[0].szOsFile - sizeof(sqlite3_io_methods));
}

/* A link, a pipe or a device is none of ours. */
static int is_plain_or_absent(const char *name)
{
    struct stat st;
    return lstat(name, &st) != 0 || S_ISREG(st.st_mode);
}

static int read_at(const char *name, long at, int whence, unsigned char *out, size_t n)
{
    FILE *f = is_plain_or_absent(name) ? fopen(name, "rbe") : NULL;
    int ok = f && fseek(f, at, whence) == 0 && fread(out, 1, n, f) == n;
    if (f)
        fclose(f);
    return ok;
}

/* A journal's end: the name of another file, its length, its checksum, and the magic. */
static int names_another(const char *journal)
{
    unsigned char end[RECORD_END];
    return read_at(journal, -RECORD_END, SEEK_END, end, sizeof end) &&
           memcmp(end + sizeof end - sizeof journal_magic, journal_magic, sizeof journal_magic) == 0;
}

static int open_file(sqlite3_vfs *own, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    int writing = own == &file_systems[1], database = flags & SQLITE_OPEN_MAIN_DB;
    file->pMethods = NULL;
    if (!name || !(flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL)) || !is_plain_or_absent(name) ||
        (!database && names_another(name)))
        return SQLITE_CANTOPEN;
    if (!writing) /* of a main journal the system's one changes the owner */
        flags = SQLITE_OPEN_READONLY | (database ? SQLITE_OPEN_MAIN_DB : SQLITE_OPEN_TEMP_JOURNAL);
    int rc = base->xOpen(base, name, file, flags, out_flags);
    if (rc != SQLITE_OK)
        return rc;
    if (database) { /* version 1 has no shared memory: without it there is no write-ahead log */
        sqlite3_io_methods *m = methods_of(file);
        *m = *file->pMethods;
        m->iVersion = 1;
        file->pMethods = m;
    }
    return SQLITE_OK;
}

static int remove_nothing(sqlite3_vfs *own, const char *name, int sync)
{
    (void)own, (void)name, (void)sync;
    return SQLITE_IOERR_DELETE;
}

static int remove_journal(sqlite3_vfs *own, const char *name, int sync)
{
    static const char end[] = "-journal";
    size_t n = strlen(name), of = sizeof end - 1;
    (void)own;
    return n > of && strcmp(name + n - of, end) == 0 ? base->xDelete(base, name, sync) : SQLITE_IOERR_DELETE;
}

static void *load_nothing(sqlite3_vfs *own, const char *name)
{
    (void)own, (void)name;
    return NULL;
}

static void make_file_systems(void)
{
    base = sqlite3_vfs_find(NULL);
    for (int i = 0; base && i < 2; i++) {
        sqlite3_vfs *v = &file_systems[i];
        *v = *base;
        v->pNext = NULL;
        v->zName = file_system_names[i];
        v->szOsFile = (int)(((size_t)base->szOsFile + 15) / 16 * 16 + sizeof(sqlite3_io_methods));
        v->xOpen = open_file;
        v->xDelete = i ? remove_journal : remove_nothing;
        v->xDlOpen = load_nothing;
        sqlite3_vfs_register(v, 0); /* fails for want of memory alone, and then they are not found */
    }
}

int hwdb_connect(const char *name, int writing, sqlite3 **db)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_file_systems);
    *db = NULL;
    if (!sqlite3_vfs_find(file_system_names[writing]))
        return SQLITE_NOMEM;
    int rc = sqlite3_open_v2(name, db, writing ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY,
                             file_system_names[writing]);
    if (rc == SQLITE_OK)
        hwdb_harden(*db);
    return rc;
}

/* ---- why a database was not opened ---- */

int hwdb_fail_beside(sqlite3 *db, const char *path, struct err *e)
{
    const char *name = db ? sqlite3_db_filename(db, "main") : NULL;
    unsigned char b[2];
    struct stat st;
    if (!name || !*name)
        return 0;
    const char *journal = sqlite3_filename_journal(name), *wal = sqlite3_filename_wal(name);
    if (!is_plain_or_absent(journal))
        return err_set(e, ERR_INPUT, "'%s': its journal '%s' is no regular file; remove that", path, journal);
    if (names_another(journal))
        return err_set(e, ERR_INPUT, "'%s': its journal '%s' names another file, which a journal of ours never does; nothing was touched. "
                       "Ask whoever made the database for one without a journal", path, journal);
    if (lstat(wal, &st) == 0 || (read_at(name, 18, SEEK_SET, b, sizeof b) && (b[0] > 1 || b[1] > 1)))
        return err_set(e, ERR_INPUT, "'%s' has a write-ahead log ('%s'), which ours never have; a hardware database is one file. "
                       "sqlite3 FILE 'PRAGMA journal_mode = DELETE' makes one of it", path, wal);
    switch (sqlite3_extended_errcode(db)) {
    case SQLITE_READONLY_ROLLBACK:
    case SQLITE_READONLY_RECOVERY:
        return err_set(e, ERR_INPUT, "'%s': a program died while it wrote here and left '%s', and a command that reads changes nothing. "
                       "The next that writes takes that back: thermo-profile hardware or import, thermo-plan calibrate --store. If the "
                       "database is not your own, ask for one without a journal", path, journal);
    default:
        return 0;
    }
}
