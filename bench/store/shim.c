/* LD_PRELOAD: sees each write and sync of a store's files, and fails one. Used by interception.py.
 *
 * SHIM_DIRECTORY: only files under it count. SHIM_LOG: a line with the name of each call goes there, by a bare
 * system call. SHIM_FAIL: the number of the sync, from 1, which fails with EIO; SHIM_FAIL_WRITE: of the write,
 * with ENOSPC.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int ours(int fd) {
    const char *directory = getenv("SHIM_DIRECTORY");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!directory || length < 0) return 0;
    path[length] = 0;
    return strncmp(path, directory, strlen(directory)) == 0;
}

static void note(const char *call) {
    static int log = -1;
    const char *path = getenv("SHIM_LOG");
    char line[64];
    if (!path) return;
    if (log < 0) log = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    int length = snprintf(line, sizeof line, "%s\n", call);
    syscall(SYS_write, log, line, length);
}

/* Whether this is the call that must fail. */
static int due(const char *variable) {
    static int syncs, writes;
    const char *number = getenv(variable);
    int *count = strcmp(variable, "SHIM_FAIL") ? &writes : &syncs;
    return number && __sync_add_and_fetch(count, 1) == atoi(number);
}

#define SEEN(name, variable, error)            \
    if (ours(fd)) {                            \
        note(name);                            \
        if (due(variable)) {                   \
            errno = error;                     \
            return -1;                         \
        }                                      \
    }
#define REAL(result, name, ...)                                      \
    static result (*real)(__VA_ARGS__);                              \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name);

#define SYNC(call)                             \
    int call(int fd) {                         \
        REAL(int, #call, int)                  \
        SEEN(#call, "SHIM_FAIL", EIO)          \
        return real(fd);                       \
    }
SYNC(fsync)
SYNC(fdatasync)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t)
    SEEN("write", "SHIM_FAIL_WRITE", ENOSPC)
    return real(fd, data, size);
}

#define PWRITE(call, seen)                                              \
    ssize_t call(int fd, const void *data, size_t size, off_t at) {     \
        REAL(ssize_t, #call, int, const void *, size_t, off_t)          \
        SEEN(seen, "SHIM_FAIL_WRITE", ENOSPC)                           \
        return real(fd, data, size, at);                                \
    }
PWRITE(pwrite, "pwrite64")
PWRITE(pwrite64, "pwrite64")

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int)
    SEEN("writev", "SHIM_FAIL_WRITE", ENOSPC)
    return real(fd, pieces, count);
}

#define PWRITEV(call)                                                       \
    ssize_t call(int fd, const struct iovec *pieces, int count, off_t at) { \
        REAL(ssize_t, #call, int, const struct iovec *, int, off_t)         \
        SEEN("pwritev", "SHIM_FAIL_WRITE", ENOSPC)                          \
        return real(fd, pieces, count, at);                                 \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define TRUNCATE(call)                         \
    int call(int fd, off_t size) {             \
        REAL(int, #call, int, off_t)           \
        SEEN("ftruncate", "SHIM_NEVER", EIO)   \
        return real(fd, size);                 \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define ALLOCATE(call)                                   \
    int call(int fd, int mode, off_t at, off_t size) {   \
        REAL(int, #call, int, int, off_t, off_t)         \
        SEEN("fallocate", "SHIM_NEVER", EIO)             \
        return real(fd, mode, at, size);                 \
    }
ALLOCATE(fallocate)
ALLOCATE(fallocate64)

int sync_file_range(int fd, off_t at, off_t size, unsigned flags) {
    REAL(int, "sync_file_range", int, off_t, off_t, unsigned)
    SEEN("sync_file_range", "SHIM_NEVER", EIO)
    return real(fd, at, size, flags);
}
