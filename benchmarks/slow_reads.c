/* Lets each read of an SST take longer, as on a slow disk: LD_PRELOAD of look_ahead.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#define MOST_FILES 65536

static char is_sst[MOST_FILES];
static long micros = -1;

static int noted(int fd, const char *path) {
  if (fd >= 0 && fd < MOST_FILES) {
    size_t length = strlen(path);
    is_sst[fd] = length > 4 && strcmp(path + length - 4, ".sst") == 0;
  }
  return fd;
}

static void wait_if_sst(int fd) {
  if (micros < 0) {
    const char *said = getenv("SLOW_SST_READ_MICROS");
    micros = said == NULL ? 0 : atol(said);
  }
  if (micros > 0 && fd >= 0 && fd < MOST_FILES && is_sst[fd]) {
    struct timespec time = {micros / 1000000, micros % 1000000 * 1000};
    nanosleep(&time, NULL);
  }
}

#define OPEN(name)                                                             \
  int name(const char *path, int flags, ...) {                                 \
    static int (*original)(const char *, int, ...);                            \
    if (original == NULL) original = dlsym(RTLD_NEXT, #name);                  \
    mode_t mode = 0;                                                           \
    if (flags & (O_CREAT | O_TMPFILE)) {                                       \
      va_list more;                                                            \
      va_start(more, flags);                                                   \
      mode = va_arg(more, mode_t);                                             \
      va_end(more);                                                            \
    }                                                                          \
    return noted(original(path, flags, mode), path);                           \
  }

#define PREAD(name, offset_type)                                               \
  ssize_t name(int fd, void *to, size_t size, offset_type at) {                \
    static ssize_t (*original)(int, void *, size_t, offset_type);              \
    if (original == NULL) original = dlsym(RTLD_NEXT, #name);                  \
    wait_if_sst(fd);                                                           \
    return original(fd, to, size, at);                                         \
  }

OPEN(open)
OPEN(open64)
PREAD(pread, off_t)
PREAD(pread64, off64_t)
